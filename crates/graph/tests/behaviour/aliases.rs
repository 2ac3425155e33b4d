//! Flows that functions rewrite: replies come with other addresses and find the same record.

use graph::Options;
use packet::{Addr, Endpoint, Side};

use crate::support::bench::Bench;
use crate::support::functions::*;
use crate::support::packets::*;

const T: u64 = 1_000_000_000_000;

fn virtual_end() -> Endpoint {
    Endpoint::new(Addr::from_v4_bytes(VIRTUAL), 53)
}

/// Source and destination address of an IPv4 packet, and its ports.
fn ends_of(network: &[u8]) -> (Endpoint, Endpoint) {
    let end = |a: usize, p: usize| {
        let addr = Addr::from_v4_bytes(network[a..a + 4].try_into().unwrap());
        Endpoint::new(addr, u16::from_be_bytes([network[p], network[p + 1]]))
    };
    (end(12, 20), end(16, 22))
}

/// Both orders of the key's ends, for the key and for the alias.
#[test]
fn replies_reach_the_record_whichever_end_is_lower() {
    for inside in [v4(10, 0, 0, 1, 1000), v4(250, 0, 0, 1, 1000)] {
        for peer in [v4(1, 1, 1, 1, 53), v4(251, 1, 1, 1, 53)] {
            let mut bench = Bench::new(vec![stage::<Masquerade>(8), stage::<Witness>(8)], Options::default());
            let out = bench.through(T, Side::Inside, &udp(inside, peer, b"\0a"));
            assert_eq!(ends_of(&out), (masquerade_end(0), peer));
            assert!(checksums_are_right(&out));
            let back = bench.through(T + 1, Side::Outside, &udp(peer, masquerade_end(0), b"\0b"));
            assert_eq!(ends_of(&back), (peer, inside));
            assert!(checksums_are_right(&back));
            let clocks: Vec<u32> = bench.alerts.iter().map(|alert| alert.signature_id).collect();
            assert_eq!((clocks, &*bench.alerts[1].category), (vec![1, 2], "replied"));
            assert_eq!(bench.graph.counters().flows_started, 1);
        }
    }
}

#[test]
fn two_rewriters_make_one_alias() {
    let stages = vec![stage::<Masquerade>(8), stage::<Balancer>(8)];
    let mut bench = Bench::new(stages, Options::default());
    let inside = v4(10, 0, 0, 1, 1000);
    let out = bench.through(T, Side::Inside, &tcp(inside, virtual_end(), 2, b""));
    let peer = Endpoint::new(server(0), 53);
    assert_eq!(ends_of(&out), (masquerade_end(0), peer));
    let back = bench.through(T, Side::Outside, &tcp(peer, masquerade_end(0), 0x12, b""));
    assert_eq!(ends_of(&back), (virtual_end(), inside));
    assert!(checksums_are_right(&back));
    assert_eq!(bench.graph.counters().flows_started, 1);
}

/// The flow's new alias counts from the packet on that changed it, the old one no longer.
#[test]
fn an_exchanged_server_is_the_flows_server() {
    let mut bench = Bench::new(vec![stage::<Balancer>(8)], Options::default());
    let client = v4(10, 0, 0, 1, 1000);
    bench.through(T, Side::Inside, &udp(client, virtual_end(), &[0]));
    let out = bench.through(T, Side::Inside, &udp(client, virtual_end(), &[command::MOVE]));
    assert_eq!(ends_of(&out).1.addr, server(1));
    let new = bench.through(T, Side::Outside, &udp(Endpoint::new(server(1), 53), client, &[0]));
    assert_eq!(ends_of(&new).0, virtual_end());
    assert_eq!(bench.graph.counters().flows_live, 1);
    let old = bench.through(T, Side::Outside, &udp(Endpoint::new(server(0), 53), client, &[0]));
    assert_eq!(ends_of(&old).0.addr, server(0), "a flow of its own");
    assert_eq!(bench.graph.counters().flows_live, 2);
}

/// The rewritten key is another flow's: the packet looks like that flow's, so it
/// does not leave.
#[test]
fn a_rewritten_flow_that_looks_like_another_is_refused() {
    let mut bench = Bench::new(vec![stage::<OneToOne>(8)], Options::default());
    let (inside, outside, peer) = (v4(10, 0, 0, 1, 1000), v4(203, 0, 113, 1, 1000), v4(192, 0, 2, 1, 53));
    bench.through(T, Side::Outside, &udp(peer, outside, &[0]));
    bench.through(T, Side::Inside, &udp(outside, peer, &[0]));
    assert_eq!(bench.one(T, Side::Inside, &udp(inside, peer, &[0])), []);
    assert_eq!(bench.drops(), [("alias-conflict", 1)]);
    assert_eq!(bench.graph.counters().ended(nf::EndReason::Rejected), 1);
    assert_eq!(bench.graph.counters().flows_live, 1);
    // There is no conflict once the other flow has expired, even before it is removed.
    let over = T + u64::from(Options::default().timeouts.udp_ms) * 1_000_000 + 1;
    bench.through(over, Side::Inside, &udp(inside, peer, &[0]));
    assert_eq!(bench.graph.counters().flows_live, 1);
}

/// An unanswered flow that an outside host opened does not reserve its key against inside hosts.
#[test]
fn an_unanswered_flow_from_outside_gives_way() {
    let mut bench = Bench::new(vec![stage::<OneToOne>(8)], Options::default());
    let (inside, outside, peer) = (v4(10, 0, 0, 1, 1000), v4(203, 0, 113, 1, 1000), v4(192, 0, 2, 1, 53));
    bench.through(T, Side::Outside, &udp(peer, outside, &[0]));
    bench.through(T, Side::Inside, &udp(inside, peer, &[0]));
    assert_eq!(bench.graph.counters().ended(nf::EndReason::Evicted), 1);
    let answer = bench.through(T, Side::Outside, &udp(peer, outside, &[0]));
    assert_eq!(ends_of(&answer).1, inside);
    assert_eq!(bench.graph.counters().flows_live, 1);
}

/// A refused flow gives everything back.
#[test]
fn a_conflict_gives_the_port_back() {
    let mut bench = Bench::new(vec![stage::<Masquerade>(8)], Options::default());
    let peer = v4(192, 0, 2, 1, 53);
    bench.through(T, Side::Outside, &udp(peer, masquerade_end(0), &[0]));
    bench.through(T, Side::Inside, &udp(masquerade_end(0), peer, &[1]));
    assert_eq!(bench.one(T, Side::Inside, &udp(v4(10, 0, 0, 1, 1000), peer, &[0])), []);
    assert_eq!(bench.drops(), [("alias-conflict", 1)]);
    assert_eq!(bench.graph.stages()[0].shared().pools[0].in_use(), 0);
}

/// Seen from outside the graph only right checksums leave, if only right ones came.
#[test]
fn ipv6_flows_pass_rewriters_of_ipv4_unchanged() {
    let mut bench = Bench::new(vec![stage::<Masquerade>(8), stage::<Tally>(8)], Options::default());
    let out = bench.through(T, Side::Inside, &udp(v6(1, 1000), v6(2, 53), &[0]));
    assert!(checksums_are_right(&out));
    let back = bench.through(T, Side::Outside, &udp(v6(2, 53), v6(1, 1000), &[0]));
    assert!(checksums_are_right(&back));
    assert_eq!(bench.graph.counters().flows_started, 1);
}
