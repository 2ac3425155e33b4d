//! Any packets, of any sides and times, through the ends of a link between two sites: nothing
//! panics, and every packet is accounted for.
//!
//! Packets made by the other end reach the code after the checksum. Unmodified, they decode to the
//! input.

#![no_main]

use functions::re::Re;
use libfuzzer_sys::fuzz_target;
use nf::Setup;
use nf::stage::load;
use packet::{LinkType, Packet, PacketPool, Side};
use serde_json::{Value, json};

#[path = "../traffic.rs"]
mod traffic;

/// An end for which all hosts are on both sides.
fn config(more: Value) -> Value {
    let anywhere = json!(["0.0.0.0/0", "::/0"]);
    let mut config = json!({
        "local_networks": anywhere, "remote_networks": anywhere, "cache": "64KiB", "window": 16, "sample": 4, "patience": 0,
    });
    for (key, value) in more.as_object().into_iter().flatten() {
        config[key] = value.clone();
    }
    config
}

fuzz_target!(|data: &[u8]| {
    let configs = [
        config(json!({})),
        config(json!({ "patience": "1s", "protocol": 253 })),
        config(json!({ "sample": 1024, "window": 64 })),
        config(json!({ "local_networks": ["10.0.0.0/8"], "remote_networks": ["192.0.2.0/24", "2001:db8::/32"] })),
    ];
    traffic::through("re", &configs, data);
    crossed(data);
});

/// Takes packets over a link: the output of one end is the input of the other, except for a byte;
/// generated packets go back.
fn crossed(mut rest: &[u8]) {
    let end = || {
        let config = serde_json::from_value(config(json!({}))).expect("the configuration is right");
        let stage = load::<Re>(config, Setup::new(1, 16)).expect("the configuration is right");
        let options = graph::Options { flows_max: 16, ..graph::Options::default() };
        graph::Graph::new(vec![stage], options).expect("it fits")
    };
    let (mut here, mut there, mut pool) = (end(), end(), PacketPool::new(64));
    let (mut out, mut arrived, mut reports, mut now_ns) = (vec![], vec![], vec![], 1u64);
    while let [change, value, length, bytes @ ..] = rest {
        let (data, behind) = bytes.split_at(usize::from(*length).min(bytes.len()));
        (rest, now_ns) = (behind, now_ns + 300_000);
        let Some(packet) = received(&mut pool, data, now_ns, Side::Inside) else { break };
        here.process(&mut vec![packet], &mut out, &mut pool);
        for packet in out.drain(..) {
            let Some(mut again) = received(&mut pool, packet.data(), now_ns, Side::Outside) else { return };
            let at = usize::from(*change).min(again.len().saturating_sub(1));
            if let Some(byte) = again.data_mut().get_mut(at) {
                *byte ^= value & 0x0f;
            }
            there.process(&mut vec![again], &mut arrived, &mut pool);
            pool.give(packet);
            for packet in arrived.drain(..) {
                if packet.meta().transit.side == Side::Outside {
                    reports.push(packet);
                    continue;
                }
                assert!(value & 0x0f != 0 || data.starts_with(packet.data()), "it is not what went in");
                pool.give(packet);
            }
        }
        for report in reports.drain(..) {
            let Some(back) = received(&mut pool, report.data(), now_ns, Side::Outside) else { return };
            here.process(&mut vec![back], &mut out, &mut pool);
            pool.give(report);
            out.drain(..).for_each(|packet| pool.give(packet));
        }
        assert!(here.counters().add_up() && there.counters().add_up());
    }
}

fn received(pool: &mut PacketPool, data: &[u8], now_ns: u64, side: Side) -> Option<Packet> {
    let mut packet = pool.take(data)?;
    let meta = packet.meta_mut();
    (meta.transit.timestamp_ns, meta.transit.side, meta.link) = (now_ns, side, LinkType::RawIp);
    Some(packet)
}
