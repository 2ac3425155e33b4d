//! The monitor in a graph: its reports.

use crate::monitor_support::*;
use graph::{Options, WhenFull};
use nf::{Connection, FlowReport};
use packet::{Addr, Endpoint, FlowKey, Scope, Side};
use serde_json::json;

const SYN: u16 = 0x02;
const ACK: u16 = 0x10;
const RST: u16 = 0x04;

fn addr(text: &str) -> Addr {
    text.parse::<std::net::IpAddr>().unwrap().into()
}

#[test]
fn a_connection_is_reported_with_both_directions() {
    let mut bench = Bench::new(&json!({}));
    let mut there = ip(TCP, "10.0.0.1:4000", "198.51.100.7:80").marks(SYN);
    (there.tos, there.vlan) = (0x28, Some(77));
    let mut back = there.back().marks(SYN | ACK);
    back.tos = 0;
    bench.inside(5, &there);
    bench.outside(7, &back);
    bench.inside(9, &Ip { payload: vec![0; 100], ..there.clone().marks(ACK) });
    assert!(bench.reports().is_empty());
    let ends = [("10.0.0.1", 4000), ("198.51.100.7", 80)];
    let [client, server] = ends.map(|(address, port)| Endpoint::new(addr(address), port));
    let report = FlowReport {
        key: FlowKey::new(client, server, TCP, 4, Scope::default().with_vlan(77), 0).0,
        source: addr("10.0.0.1"),
        destination: addr("198.51.100.7"),
        source_port: 4000,
        destination_port: 80,
        protocol: TCP,
        version: 4,
        tcp_flags: [0x12, 0x12],
        icmp: [0, 0],
        vlan: 77,
        first_ns: [5, 7],
        last_ns: [9, 7],
        packets: [2, 1],
        bytes: [40 + 140, 40],
        tos: [0x28, 0],
        translated: None,
        end_reason: 4,
        connection: Connection::ESTABLISHED,
        sampling: 1,
        findings: None,
    };
    assert_eq!(bench.finish(), [report]);
    assert_eq!(
        ["flows", "reports", "packets_tcp", "bytes_tcp", "packets_udp"].map(|name| bench.counter(name)),
        [1, 1, 3, 220, 0]
    );
}

#[test]
fn the_reason_says_why_a_flow_ended() {
    let dns = ip(UDP, "10.0.0.1:5000", "198.51.100.7:53");
    let reasons = |bench: &mut Bench| bench.reports().iter().map(|r| r.end_reason).collect::<Vec<_>>();
    let options = Options::default();

    let mut bench = Bench::of(&[("monitor", json!({}))], options);
    bench.inside(0, &dns);
    bench.graph.handle_timeout(3600 * SECOND_NS, &mut bench.pool);
    assert_eq!(reasons(&mut bench), [1], "idle");

    let mut bench = Bench::of(&[("monitor", json!({}))], options);
    let syn = ip(TCP, "10.0.0.1:5000", "198.51.100.7:80").marks(SYN);
    bench.inside(0, &syn);
    bench.outside(1, &syn.back().marks(RST));
    bench.graph.handle_timeout(3600 * SECOND_NS, &mut bench.pool);
    assert_eq!(reasons(&mut bench), [3], "closed");

    let full = Options { flows_max: 1, when_full: WhenFull::EvictOldest, ..options };
    let mut bench = Bench::of(&[("monitor", json!({}))], full);
    bench.inside(0, &dns);
    bench.inside(1, &ip(UDP, "10.0.0.2:5000", "198.51.100.7:53"));
    assert_eq!(reasons(&mut bench), [5], "evicted");

    // No way in from outside: the NAT after the monitor drops it.
    let nat = ("nat", json!({"external": ["203.0.113.1"]}));
    let mut bench = Bench::of(&[nat, ("monitor", json!({}))], options);
    assert_eq!(bench.outside(0, &ip(UDP, "198.51.100.7:53", "203.0.113.1:9")), 0);
    assert_eq!(reasons(&mut bench), [4], "rejected");
}

#[test]
fn a_long_flow_is_reported_at_the_active_timeout() {
    let mut bench = Bench::new(&json!({"active_timeout": "10s"}));
    let there = ip(UDP, "[2001:db8::1]:5000", "[2001:db8::2]:53");
    bench.inside(SECOND_NS, &there);
    bench.outside(2 * SECOND_NS, &there.back());
    bench.inside(11 * SECOND_NS - 1, &there);
    assert!(bench.reports().is_empty());
    bench.outside(11 * SECOND_NS, &there.back());
    let reports = bench.reports();
    assert_eq!(reports.len(), 1);
    assert_eq!((reports[0].end_reason, reports[0].packets, reports[0].bytes), (2, [2, 1], [96, 48]));
    let last = bench.finish();
    assert_eq!(last.len(), 1);
    assert_eq!((last[0].end_reason, last[0].packets, last[0].bytes), (4, [0, 1], [0, 48]));
    assert_eq!((last[0].first_ns, last[0].last_ns), ([0, 11 * SECOND_NS], [0, 11 * SECOND_NS]));
    assert_eq!((last[0].source, last[0].source_port), (addr("2001:db8::1"), 5000));
}

#[test]
fn reports_can_be_chosen() {
    for (occasions, expected) in [
        (json!(["end"]), vec![4]),
        (json!(["active"]), vec![2]),
        (json!([]), vec![]),
        (json!(["end", "active"]), vec![2, 4]),
    ] {
        let mut bench = Bench::new(&json!({"active_timeout": "1s", "report": occasions}));
        let packet = ip(UDP, "10.0.0.1:5000", "198.51.100.7:53");
        bench.inside(0, &packet);
        bench.inside(2 * SECOND_NS, &packet);
        let reasons: Vec<_> = bench.finish().iter().map(|r| r.end_reason).collect();
        assert_eq!(reasons, expected, "{occasions}");
        assert_eq!(bench.counter("packets_udp"), 2);
    }
}

#[test]
fn ends_are_those_at_the_monitors_place() {
    let there = ip(UDP, "10.0.0.1:5000", "198.51.100.7:53");
    let nat = ("nat", json!({"external": ["203.0.113.1"]}));
    let monitor = ("monitor", json!({}));
    let mut before = Bench::of(&[monitor.clone(), nat.clone()], Options::default());
    assert_eq!(before.inside(0, &there), 1);
    let report = before.finish()[0];
    assert_eq!((report.source, report.source_port), (addr("10.0.0.1"), 5000));

    let mut behind = Bench::of(&[nat, monitor], Options::default());
    assert_eq!(behind.inside(0, &there), 1);
    let report = behind.finish()[0];
    assert_eq!(report.source, addr("203.0.113.1"));
    assert_eq!((report.destination, report.destination_port), (addr("198.51.100.7"), 53));
}

#[test]
fn replies_behind_a_nat_count_for_the_same_flow() {
    let nat = ("nat", json!({"external": ["203.0.113.1"]}));
    let mut bench = Bench::of(&[nat, ("monitor", json!({}))], Options::default());
    let there = ip(UDP, "10.0.0.1:5000", "198.51.100.7:53");
    bench.inside(0, &there);
    let port = {
        let mut probe = Bench::of(
            &[("nat", json!({"external": ["203.0.113.1"]})), ("monitor", json!({}))],
            Options::default(),
        );
        probe.inside(0, &there);
        probe.finish()[0].source_port
    };
    assert_eq!(bench.outside(1, &ip(UDP, "198.51.100.7:53", &format!("203.0.113.1:{port}"))), 1);
    let reports = bench.finish();
    assert_eq!(reports.len(), 1);
    assert_eq!((reports[0].packets, reports[0].source_port), ([1, 1], port));
}

#[test]
fn icmp_errors_are_not_packets_of_the_flow_they_quote() {
    let mut bench = Bench::new(&json!({}));
    let there = ip(UDP, "10.0.0.1:5000", "198.51.100.7:53");
    let unreachable =
        |quoted: &Ip| Ip { payload: quoted.bytes(), ..ip(ICMP, "192.0.2.1:0", "10.0.0.1:0").marks(0x0301) };
    bench.inside(0, &there);
    bench.outside(1, &unreachable(&there));
    // Two errors that quote an unknown flow are a flow of their own.
    let unknown = ip(UDP, "10.0.0.1:5001", "198.51.100.7:53");
    bench.outside(2, &unreachable(&unknown));
    bench.outside(3, &unreachable(&unknown));
    let mut reports = bench.finish();
    reports.sort_by_key(|r| r.first_ns[0]);
    assert_eq!(reports.len(), 2);
    assert_eq!((reports[0].protocol, reports[0].packets, reports[0].bytes), (UDP, [1, 0], [28, 0]));
    assert_eq!((reports[1].protocol, reports[1].packets, reports[1].bytes), (ICMP, [2, 0], [112, 0]));
    assert_eq!((reports[1].source, reports[1].icmp), (addr("192.0.2.1"), [0x0301, 0]));
    assert_eq!(["icmp_errors", "packets_icmp", "flows"].map(|name| bench.counter(name)), [1, 3, 2]);
}

#[test]
fn echo_is_reported_with_its_types() {
    let mut bench = Bench::new(&json!({}));
    let request = ip(ICMP, "10.0.0.1:99", "198.51.100.7:99").marks(0x0800);
    bench.inside(0, &request);
    bench.outside(1, &request.back().marks(0));
    let reports = bench.finish();
    assert_eq!((reports[0].icmp, reports[0].packets, reports[0].tcp_flags), ([0x0800, 0], [1, 1], [0, 0]));
}

#[test]
fn a_sample_is_repeatable_and_about_as_large_as_asked() {
    let run = |seed: u64| {
        let options = Options { seed, ..Options::default() };
        let mut bench = Bench::of(&[("monitor", json!({"sample": 4}))], options);
        for i in 0..2000u64 {
            let packet = ip(UDP, &format!("10.0.{}.{}:5000", i / 250, i % 250), "198.51.100.7:53");
            bench.inside(i, &packet);
            bench.outside(i, &packet.back());
        }
        let mut sources: Vec<_> = bench.finish().iter().map(|r| (r.source, r.packets)).collect();
        sources.sort();
        assert!(sources.iter().all(|(_, packets)| *packets == [1, 1]));
        assert_eq!((bench.counter("flows"), bench.counter("packets_udp")), (2000, 4000));
        assert_eq!(bench.counter("flows_unsampled") + sources.len() as u64, 2000);
        sources
    };
    let sampled = run(1);
    assert!((400..600).contains(&sampled.len()), "{}", sampled.len());
    assert_eq!(sampled, run(1));
    assert_ne!(sampled, run(2));
}

#[test]
fn packets_from_outside_can_begin_flows() {
    let mut bench = Bench::new(&json!({}));
    let there = ip(TCP, "198.51.100.7:4000", "10.0.0.1:80").marks(SYN);
    assert_eq!(bench.batch(&[(0, Side::Outside, there.frame()), (1, Side::Inside, there.back().frame())]), 2);
    let report = bench.finish()[0];
    assert_eq!((report.source, report.packets), (addr("198.51.100.7"), [1, 1]));
}

/// RFC 8158 8.1: translated endpoints, on whichever side of the NAT the monitor is.
#[test]
fn a_report_has_the_ends_that_a_nat_gave_the_flow() {
    let nat = ("nat", json!({"external": ["203.0.113.1"]}));
    let monitor = ("monitor", json!({}));
    let query = ip(UDP, "10.0.0.1:5000", "198.51.100.7:53");
    let mut bench = Bench::of(&[monitor.clone(), nat.clone()], Options::default());
    bench.inside(0, &query);
    let report = bench.finish().remove(0);
    let (source, destination) = report.translated.unwrap();
    assert_eq!((report.source, source.addr), (addr("10.0.0.1"), addr("203.0.113.1")));
    assert_eq!((destination.addr, destination.port), (addr("198.51.100.7"), 53));

    let mut bench = Bench::of(&[nat, monitor.clone()], Options::default());
    bench.inside(0, &query);
    let report = bench.finish().remove(0);
    assert_eq!((report.source, report.translated), (addr("203.0.113.1"), None), "it is translated here");

    let mut bench = Bench::of(&[monitor], Options::default());
    bench.inside(0, &query);
    assert_eq!(bench.finish().remove(0).translated, None);
}

/// Collectors add bytes by DSCP and direction.
#[test]
fn each_direction_has_its_own_type_of_service() {
    let mut bench = Bench::new(&json!({"active_timeout": "10s"}));
    let mut query = ip(UDP, "10.0.0.1:5000", "198.51.100.7:53");
    query.tos = 0xb8;
    let answer = |tos| Ip { tos, ..query.back() };
    bench.inside(0, &query);
    bench.outside(1, &answer(0));
    bench.outside(2, &answer(0x28));
    bench.outside(11 * SECOND_NS, &answer(0x48));
    assert_eq!(bench.reports().iter().map(|report| report.tos).collect::<Vec<_>>(), [[0xb8, 0]]);
    assert_eq!(bench.finish().iter().map(|report| report.tos).collect::<Vec<_>>(), [[0, 0x48]]);
}

/// Neither the end of a run nor a full table makes a closed connection a truncated one.
#[test]
fn a_closed_connection_has_ended_whatever_takes_it_away() {
    const FIN: u16 = 0x01;
    let opens = ip(TCP, "10.0.0.1:5000", "198.51.100.7:80");
    let close = |bench: &mut Bench| {
        bench.inside(0, &opens.clone().marks(SYN));
        bench.outside(1, &opens.back().marks(SYN | ACK));
        bench.inside(2, &opens.clone().marks(FIN | ACK));
        bench.outside(3, &opens.back().marks(FIN | ACK));
        bench.inside(4, &opens.clone().marks(ACK));
    };
    let mut bench = Bench::new(&json!({}));
    close(&mut bench);
    assert_eq!(bench.finish().remove(0).end_reason, 3);
    let full = Options { flows_max: 1, when_full: WhenFull::EvictOldest, ..Options::default() };
    let mut bench = Bench::of(&[("monitor", json!({}))], full);
    close(&mut bench);
    bench.inside(5, &ip(UDP, "10.0.0.2:5000", "198.51.100.7:53"));
    assert_eq!(bench.reports().remove(0).end_reason, 3);
    // One direction is still open.
    let mut bench = Bench::new(&json!({}));
    bench.inside(0, &opens.clone().marks(SYN));
    bench.outside(1, &opens.back().marks(SYN | ACK));
    bench.inside(2, &opens.clone().marks(FIN | ACK));
    assert_eq!(bench.finish().remove(0).end_reason, 4);
}
