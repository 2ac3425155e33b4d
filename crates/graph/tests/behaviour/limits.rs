//! Full tables, rejected flows, frames that are not IP, graphs without functions.

use graph::{FlowClass, Graph, GraphError, NotIp, Options, WhenFull};
use nf::{EFFECTS_MAX, EndReason};
use packet::{Packet, PacketPool, Side};

use crate::support::bench::Bench;
use crate::support::functions::*;
use crate::support::packets::*;

const T: u64 = 1_000_000_000_000;

fn request(host: u8, byte: u8) -> Vec<u8> {
    udp(v4(10, 0, 0, host, 1000), v4(192, 0, 2, 1, 53), &[byte])
}

#[test]
fn a_full_table_refuses_new_flows() {
    let options = Options { flows_max: 3, when_full: WhenFull::RefuseNew, ..Options::default() };
    let mut bench = Bench::new(vec![stage::<Witness>(8)], options);
    for host in 1..=5 {
        bench.one(T, Side::Inside, &request(host, 0));
    }
    assert_eq!(bench.drops(), [("flow-table-full", 2)]);
    bench.through(T, Side::Inside, &request(1, 0));
    let counters = bench.graph.counters();
    assert_eq!((counters.flows_started, counters.flows_live, counters.flows_peak), (3, 3, 3));
    // Once one has ended there is room.
    bench.one(T + 121_000_000_000, Side::Inside, &request(4, 0));
    assert_eq!(bench.drops(), [("flow-table-full", 2)]);
}

#[test]
fn a_full_table_gives_up_the_flow_it_misses_least() {
    let options = Options { flows_max: 3, ..Options::default() };
    let mut bench = Bench::new(vec![stage::<Masquerade>(8), stage::<Witness>(8)], options);
    for (host, at) in [(1, 0), (2, 1), (3, 2)] {
        bench.through(T + at, Side::Inside, &request(host, 0));
    }
    // The oldest is answered, so the next oldest goes.
    bench.through(T + 3, Side::Outside, &udp(v4(192, 0, 2, 1, 53), masquerade_end(0), &[0]));
    bench.through(T + 4, Side::Inside, &request(4, 0));
    let counters = bench.graph.counters();
    assert_eq!((counters.ended(EndReason::Evicted), counters.flows_live), (1, 3));
    assert_eq!(bench.reports[0].source, v4(10, 0, 0, 2, 0).addr);
    assert_eq!(bench.graph.stages()[0].shared().pools[0].in_use(), 3);
    bench.through(T + 5, Side::Outside, &udp(v4(192, 0, 2, 1, 53), masquerade_end(0), &[0]));
    assert_eq!(bench.graph.counters().flows_started, 4);
}

/// Ten thousand queries of as many sources, answered or not, or as many opening segments: idle
/// connections stay.
#[test]
fn floods_displace_themselves_and_no_idle_connections() {
    let client = |i: u32| {
        let [_, b, c, d] = i.to_be_bytes();
        v4(10, b, c, d, 1000)
    };
    for consolidate in [true, false] {
        for (answered, class) in [
            (true, FlowClass::UdpAnswered),
            (false, FlowClass::UdpUnanswered),
            (false, FlowClass::TcpHalfOpen),
        ] {
            let options = Options { flows_max: 500, consolidate, ..Options::default() };
            let mut bench = Bench::new(vec![stage::<Tally>(8)], options);
            let server = v4(192, 0, 2, 1, 80);
            let segment = |i, flags| match flags {
                0x12 => (Side::Outside, tcp_segment(server, client(i), flags, [1, 1], &[])),
                _ => (Side::Inside, tcp_segment(client(i), server, flags, [1, 1], &[])),
            };
            for i in 0..100 {
                for flags in [0x02, 0x12, 0x10, 0x10] {
                    let (side, frame) = segment(i, flags);
                    bench.through(T, side, &frame);
                }
            }
            assert_eq!(bench.graph.counters().flows_by_class[FlowClass::TcpEstablished as usize], 100);
            for i in 100..10_100 {
                let at = T + u64::from(i) * 1000;
                let dns = v4(192, 0, 2, 1, 53);
                match class {
                    FlowClass::TcpHalfOpen => bench.through(at, Side::Inside, &segment(i, 0x02).1),
                    _ => bench.through(at, Side::Inside, &udp(client(i), dns, &[0])),
                };
                if answered {
                    bench.through(at + 100, Side::Outside, &udp(dns, client(i), &[0]));
                }
                bench.sent.clear();
            }
            let counters = bench.graph.counters();
            assert_eq!(counters.flows_by_class[FlowClass::TcpEstablished as usize], 100, "{class:?}");
            assert_eq!(counters.flows_by_class.iter().sum::<u64>(), 500);
            assert_eq!(counters.evicted_by_class[class as usize], 9_600);
            assert_eq!(counters.ended(EndReason::Evicted), 9_600);
            for i in 0..100 {
                bench.through(T + 1_000_000_000, Side::Inside, &segment(i, 0x10).1);
            }
            assert_eq!(bench.graph.counters().flows_started, 10_100);
        }
    }
}

/// Millions of flows through a small table: bounded, every one accounted for.
#[test]
fn a_flood_of_flows_is_survived() {
    let options = Options { flows_max: 64, ..Options::default() };
    let mut bench = Bench::new(vec![stage::<Tally>(8), stage::<Witness>(8)], options);
    for i in 0..20_000u32 {
        let [_, b, c, d] = i.to_be_bytes();
        bench.through(T, Side::Inside, &udp(v4(10, b, c, d, 1000), v4(192, 0, 2, 1, 53), &[0]));
        if i % 1000 == 0 {
            bench.reports.clear();
            bench.alerts.clear();
            bench.sent.clear();
        }
    }
    let counters = bench.graph.counters();
    assert_eq!((counters.flows_live, counters.ended(EndReason::Evicted)), (64, 20_000 - 64));
}

/// More flows end with the run than there is room for what they report: nothing of it is lost.
#[test]
fn the_end_of_many_flows_is_told_in_parts() {
    let flows = EFFECTS_MAX as u32 + 1000;
    let options = Options { flows_max: flows, ..Options::default() };
    let mut bench = Bench::new(vec![stage::<Witness>(8)], options);
    for i in 0..flows {
        let [_, b, c, d] = i.to_be_bytes();
        bench.one(T, Side::Inside, &udp(v4(10, b, c, d, 1000), v4(192, 0, 2, 1, 53), &[0]));
    }
    let mut ends = 0;
    loop {
        let all = bench.graph.finish(&mut bench.pool);
        let effects = bench.graph.effects_mut();
        ends += effects.alerts.drain(..).len();
        effects.reports.clear();
        if all {
            break;
        }
    }
    assert_eq!((ends as u32, bench.graph.effects().alerts_lost), (flows, 0));
    assert_eq!(bench.graph.counters().ended(EndReason::Shutdown), u64::from(flows));
}

/// Of a flow whose first packets were all dropped, nothing is left, wherever in the graph they
/// were.
#[test]
fn rejected_flows_leave_nothing() {
    let stages = vec![stage::<Masquerade>(8), stage::<Tally>(8), stage::<Gate>(8), stage::<Witness>(8)];
    let mut bench = Bench::new(stages, Options::default());
    for host in 1..=100 {
        assert_eq!(bench.one(T, Side::Inside, &request(host, command::DROP)), []);
        assert_eq!(bench.graph.flows().records().live(), 0);
        assert_eq!(bench.graph.stages()[0].shared().pools[0].in_use(), 0);
    }
    assert_eq!(bench.graph.counters().ended(EndReason::Rejected), 100);
    assert_eq!(bench.drops(), [("policy", 100)]);
    // One that passes keeps the flow, though later ones are dropped.
    bench.through(T, Side::Inside, &request(1, 0));
    bench.one(T, Side::Inside, &request(1, command::DROP));
    assert_eq!(bench.graph.flows().records().live(), 1);
}

#[test]
fn an_exhausted_pool_is_a_reason_like_any_other() {
    let mut bench = Bench::new(vec![stage::<Masquerade>(64)], Options::default());
    for host in 1..=MASQUERADE_PORTS as u8 + 2 {
        bench.one(T, Side::Inside, &request(host, 0));
    }
    assert_eq!(bench.drops(), [("nat-ports-exhausted", 2)]);
    assert_eq!(bench.graph.flows().records().live(), MASQUERADE_PORTS);
    bench.graph.finish(&mut bench.pool);
    assert_eq!(bench.graph.stages()[0].shared().pools[0].in_use(), 0);
    assert_eq!(bench.graph.counters().ended(EndReason::Shutdown), u64::from(MASQUERADE_PORTS));
    assert_eq!(bench.graph.counters().flows_live, 0);
}

fn arp() -> Packet {
    let mut packet = Packet::from_bytes(&[&[0xff; 12][..], &[0x08, 0x06], &[1; 28]].concat());
    packet.meta_mut().transit.timestamp_ns = T;
    packet
}

#[test]
fn what_is_not_ip_passes_or_is_dropped() {
    for (not_ip, drops) in [(NotIp::Pass, 0), (NotIp::Drop, 1)] {
        for stages in [vec![], vec![stage::<Gate>(8)]] {
            let mut graph = Graph::new(stages, Options { not_ip, ..Options::default() }).unwrap();
            let (mut out, mut pool) = (vec![], PacketPool::new(0));
            graph.process(&mut vec![arp()], &mut out, &mut pool);
            let counters = graph.counters();
            assert_eq!((counters.not_ip_passed, counters.dropped()), (1 - drops, drops));
            assert_eq!(out.len() as u64, 1 - drops);
            assert!(out.iter().all(|packet| packet.meta().transit.side == Side::Outside));
        }
    }
}

#[test]
fn a_graph_without_functions_is_a_wire_that_parses() {
    let mut bench = Bench::new(vec![], Options::default());
    let whole = request(1, 0);
    assert_eq!(bench.through(T, Side::Inside, &whole), whole);
    assert_eq!(bench.one(T, Side::Outside, &whole[..16]), []);
    assert_eq!(bench.drops(), [("ipv4-truncated", 1)]);
    assert_eq!(bench.graph.counters().flows_started, 0);
}

#[test]
fn attributes_beyond_the_tag_word_are_refused() {
    let stages = (0..5).map(|_| stage::<Marker>(8)).collect();
    let refused = Graph::new(stages, Options::default());
    assert!(matches!(refused.err(), Some(GraphError::TooManyTags("marker"))));
    assert!(Graph::new((0..4).map(|_| stage::<Marker>(8)).collect(), Options::default()).is_ok());
}
