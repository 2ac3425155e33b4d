//! Any packets, of any sides and times, through gateways: nothing panics, and every packet is
//! accounted for. Packets made by a gateway at the other end reach the code after the integrity
//! check.

#![no_main]

use functions::vpn::Vpn;
use libfuzzer_sys::fuzz_target;
use nf::Setup;
use nf::stage::load;
use packet::{LinkType, PacketPool, Side};
use serde_json::{Value, json};

#[path = "../traffic.rs"]
mod traffic;

const KEY: &str = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";

/// Returns the configuration of the gateway at this end, or at the other end.
fn config(protocol: &str, ends: [&str; 2], more: Value) -> Value {
    let mut tunnel = json!({
        "name": "t", "protocol": protocol, "local": ends[0], "remote": ends[1],
        // Packets into one end may come out at the other, whatever they are.
        "local_networks": ["0.0.0.0/0", "::/0"], "remote_networks": ["0.0.0.0/0", "2000::/3"],
        "outbound": { "spi": 0x1001, "key": key(protocol, 0) }, "inbound": [{ "spi": 0x1001, "key": key(protocol, 1) }],
    });
    for (key, value) in more.as_object().into_iter().flatten() {
        tunnel[key] = value.clone();
    }
    json!({ "tunnels": [tunnel], "gateway4": "10.1.0.1" })
}

fn key(protocol: &str, direction: usize) -> String {
    let len = if protocol == "esp" { 40 } else { 64 };
    if direction == 0 { KEY[..len].to_owned() } else { format!("ff{}", &KEY[2..len]) }
}

fuzz_target!(|data: &[u8]| {
    let (ends4, ends6) = (["192.0.2.1", "198.51.100.1"], ["2001:db8:a::1", "2001:db8:b::1"]);
    let configs = [
        config("ah", ends4, json!({})),
        config("ah", ends6, json!({ "mtu": 1400 })),
        config("esp_null", ends6, json!({ "anti_replay": false })),
        config("esp", ends4, json!({ "df": "clear" })),
    ];
    traffic::through("vpn", &configs, data);
    if let [choice, rest @ ..] = data {
        crossed(["ah", "esp_null", "esp"][usize::from(*choice) % 3], rest);
    }
});

/// Takes packets through the gateways of both ends: the output of one is the input of the other,
/// except for a few bytes.
fn crossed(protocol: &str, mut rest: &[u8]) {
    let ends = ["192.0.2.1", "198.51.100.1"];
    let mut here = config(protocol, ends, json!({}));
    let there = config(protocol, [ends[1], ends[0]], json!({}));
    here["tunnels"][0]["outbound"]["key"] = json!(key(protocol, 1));
    here["tunnels"][0]["inbound"][0]["key"] = json!(key(protocol, 0));
    let gateway = |config: Value| {
        let config = serde_json::from_value(config).expect("the configuration is right");
        let stage = load::<Vpn>(config, Setup::new(1, 16)).expect("the configuration is right");
        let options = graph::Options { flows_max: 16, ..graph::Options::default() };
        graph::Graph::new(vec![stage], options).expect("it fits")
    };
    let (mut here, mut there, mut pool) = (gateway(here), gateway(there), PacketPool::new(64));
    let (mut out, mut arrived, mut now_ns) = (vec![], vec![], 1u64);
    while let [change, value, length, bytes @ ..] = rest {
        let (data, behind) = bytes.split_at(usize::from(*length).min(bytes.len()));
        (rest, now_ns) = (behind, now_ns + 1);
        let Some(mut packet) = pool.take(data) else { break };
        packet.meta_mut().transit.timestamp_ns = now_ns;
        packet.meta_mut().link = LinkType::RawIp;
        here.process(&mut vec![packet], &mut out, &mut pool);
        for packet in out.drain(..) {
            let Some(mut again) = pool.take(packet.data()) else { return };
            let at = usize::from(*change).min(again.len().saturating_sub(1));
            if let Some(byte) = again.data_mut().get_mut(at) {
                *byte ^= value & 0x0f;
            }
            again.meta_mut().transit.timestamp_ns = now_ns;
            again.meta_mut().transit.side = Side::Outside;
            again.meta_mut().link = LinkType::RawIp;
            there.process(&mut vec![again], &mut arrived, &mut pool);
            pool.give(packet);
            arrived.drain(..).for_each(|packet| pool.give(packet));
        }
        assert!(here.counters().add_up() && there.counters().add_up());
    }
}
