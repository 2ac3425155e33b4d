//! Sends any packets, from any side and at any time, through `{{name}}`: nothing panics, and every
//! packet is accounted for.
//!
//! Input: records of a side and link type, a time step, a length, and that many bytes.

#![no_main]

use graph::{Graph, Options};
use functions::{{name}}::{Config, {{Type}}};
use libfuzzer_sys::fuzz_target;
use nf::Setup;
use nf::stage::load;
use packet::{LinkType, PacketPool, Side};

fuzz_target!(|input: &[u8]| {
    let config = Config { packets_max: 3, dscp: Some(10) };
    let Ok(stage) = load::<{{Type}}>(config, Setup::new(1, 16)) else { return };
    let options = Options { flows_max: 16, ..Options::default() };
    let Ok(mut graph) = Graph::new(vec![stage], options) else { return };
    let mut pool = PacketPool::new(64);
    let (mut out, mut now_ns, mut rest) = (Vec::new(), 0u64, input);
    while let [kind, step, length, bytes @ ..] = rest {
        let (data, behind) = bytes.split_at(usize::from(*length).min(bytes.len()));
        rest = behind;
        now_ns += u64::from(*step) * 1_000_000_000;
        let Some(mut packet) = pool.take(data) else { break };
        let meta = packet.meta_mut();
        meta.transit.timestamp_ns = now_ns;
        meta.transit.side = if kind & 1 == 0 { Side::Inside } else { Side::Outside };
        meta.link = if kind & 2 == 0 { LinkType::RawIp } else { LinkType::Ethernet };
        graph.process(&mut vec![packet], &mut out, &mut pool);
        out.drain(..).for_each(|packet| pool.give(packet));
        assert!(graph.counters().add_up());
    }
    graph.finish(&mut pool);
    assert_eq!(graph.flows().records().live(), 0);
});
