//! ICMP errors go with the flow that they speak of.

use graph::Options;
use packet::{Addr, Side};

use crate::support::bench::Bench;
use crate::support::functions::*;
use crate::support::packets::*;

const T: u64 = 1_000_000_000_000;

fn bench() -> Bench {
    Bench::new(vec![stage::<Masquerade>(8), stage::<Witness>(8)], Options::default())
}

/// From outside about a packet as it left, to the host inside with everything translated back (RFC
/// 5508 REQ-4).
#[test]
fn an_error_about_a_rewritten_packet_finds_its_flow() {
    let (inside, peer, router) =
        (v4(10, 0, 0, 1, 1000), v4(192, 0, 2, 1, 53), Addr::from_v4_bytes([192, 0, 2, 254]));
    let mut bench = bench();
    let request = udp(inside, peer, b"\0some request");
    let left = bench.through(T, Side::Inside, &request);
    let error = bench.through(T, Side::Outside, &unreachable(router, &left));
    assert_eq!(error, unreachable(router, &request));
    assert_eq!(bench.alerts[1].category, "unreplied", "an error is no reply");
    assert_eq!(bench.alerts[1].signature_id, 2);
    assert_eq!(bench.graph.counters().flows_started, 1);
}

/// From inside about a reply: goes out under the address that the peer knows (RFC 5508 REQ-5).
#[test]
fn an_error_about_a_reply_finds_its_flow() {
    let (inside, peer) = (v4(10, 0, 0, 1, 1000), v4(192, 0, 2, 1, 53));
    let mut bench = bench();
    bench.through(T, Side::Inside, &udp(inside, peer, b"\0a"));
    let reply = udp(peer, masquerade_end(0), b"\0b");
    let entered = bench.through(T, Side::Outside, &reply);
    let error = bench.through(T, Side::Inside, &unreachable(inside.addr, &entered));
    assert_eq!(error, unreachable(masquerade_end(0).addr, &reply));
}

#[test]
fn an_error_about_an_unknown_flow_is_a_flow_of_its_own() {
    let mut bench = Bench::new(vec![stage::<Witness>(8)], Options::default());
    for host in [v4(10, 0, 0, 1, 1000), v6(1, 1000)] {
        let peer = if host.addr.is_v4() { v4(192, 0, 2, 1, 53) } else { v6(2, 53) };
        bench.through(T, Side::Outside, &unreachable(peer.addr, &udp(host, peer, b"\0")));
        let alert = bench.alerts.last().unwrap();
        assert!(matches!(alert.key.protocol, 1 | 58));
        let (a, b) = alert.key.ends(alert.reversed);
        assert_eq!((a.addr, b.addr, a.port, b.port), (peer.addr, host.addr, 0, 0));
    }
    assert_eq!(bench.graph.counters().flows_started, 2);
}

/// An expired flow is not known any more, whether or not it was cleared already.
#[test]
fn an_error_about_a_flow_that_is_over_is_unrelated() {
    let (inside, peer) = (v4(10, 0, 0, 1, 1000), v4(192, 0, 2, 1, 53));
    for late in [1, 10_000, 1_000_000_000] {
        let mut bench = Bench::new(vec![stage::<Witness>(8)], Options::default());
        let request = udp(inside, peer, b"\0");
        bench.through(T, Side::Inside, &request);
        bench.through(T + 120_000_000_000 + late, Side::Outside, &unreachable(peer.addr, &request));
        assert_eq!(bench.alerts.last().unwrap().key.protocol, 1, "{late} ns late");
    }
}
