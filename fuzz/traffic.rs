//! Common parts of the targets of single NFs: traffic made of any bytes, and its invariants.

use graph::{Graph, Options, WhenFull};
use nf::Setup;
use packet::{LinkType, PacketPool, Side};
use serde_json::Value;

const FLOWS: u32 = 16;
const BUFFERS: usize = 256;

/// Takes what `data` says through an instance of a function with one of the configurations; the
/// graph behind it, of which all flows are over.
///
/// Input: a byte that chooses configuration (all bits but 2 and 3) and options, then records of
/// kind (side, link type), time step, length, and that many bytes.
pub fn through(function: &str, configs: &[Value], data: &[u8]) -> Option<Graph> {
    let [choice, rest @ ..] = data else { return None };
    let mut rest = rest;
    let registry = functions::registry::<Value>();
    let entry = registry.find(function).expect("it is a built-in function");
    let config = &configs[usize::from(choice & 3 | choice >> 4 << 2) % configs.len()];
    let mut setup = Setup::new(1, FLOWS);
    setup.inner = true; // As tunnels want it, also where they do not get it.
    let stage = entry.make(config, setup).expect("the configuration is right");
    let options = Options {
        flows_max: FLOWS,
        when_full: if choice & 4 != 0 { WhenFull::RefuseNew } else { WhenFull::EvictOldest },
        inner: choice & 8 != 0,
        fragments_max: 4,
        ..Options::default()
    };
    let mut graph = Graph::new(vec![stage], options).expect("it fits");
    let mut pool = PacketPool::new(BUFFERS);
    let (mut batch, mut out, mut now_ns) = (Vec::new(), Vec::new(), 1_700_000_000_000_000_000u64);
    while let [kind, step, length, bytes @ ..] = rest {
        let (data, behind) = bytes.split_at(usize::from(*length).min(bytes.len()));
        rest = behind;
        now_ns += u64::from(step >> 4) << (2 * (step & 15));
        let Some(mut packet) = pool.take(data) else { break };
        let meta = packet.meta_mut();
        meta.transit.timestamp_ns = now_ns;
        meta.transit.side = if kind & 1 == 0 { Side::Inside } else { Side::Outside };
        meta.link = if kind & 2 == 0 { LinkType::RawIp } else { LinkType::Ethernet };
        batch.push(packet);
        if kind & 4 == 0 {
            graph.process(&mut batch, &mut out, &mut pool);
            out.drain(..).for_each(|packet| pool.give(packet));
        }
        assert!(graph.counters().add_up());
    }
    graph.process(&mut batch, &mut out, &mut pool);
    out.drain(..).for_each(|packet| pool.give(packet));
    let counters = graph.counters();
    assert!(counters.add_up());
    while !graph.finish(&mut pool) {
        graph.effects_mut().alerts.clear();
        graph.effects_mut().events.clear();
        graph.effects_mut().reports.clear();
    }
    assert_eq!(graph.flows().records().live(), 0);
    if let Some(buffers) = &graph.stages()[0].shared().buffers {
        assert_eq!(buffers.used_bytes(), 0, "ended flows left bytes in buffers");
    }
    for pool in &graph.stages()[0].shared().pools {
        assert_eq!(pool.in_use(), 0, "items of pool `{}` were not returned", pool.name());
    }
    Some(graph)
}
