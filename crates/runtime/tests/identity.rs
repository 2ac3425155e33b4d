//! Flows with the same addresses and ports that enter elsewhere: those of segments and of tenants
//! are apart on one thread, on units that hand flows over, on threads and on workers.
#![allow(clippy::unwrap_used)] // A test fails by panicking.

mod support;

use std::sync::Arc;

use packet::Endpoint;
use proptest::prelude::*;
use protocol::dispatcher::Granularity;
use runtime::elastic::UnitsConfig;
use runtime::shards::parts;
use runtime::transport::Maker;
use runtime::{Assembly, Report, Runner};

use support::packets::{frame, udp, v4};
use support::{Arriving, Sink, assembly_of, play, receive};

/// Two customers with the same network, each with a NAT of its own.
const CUSTOMERS: &str = r#"
    Port<0> a { tenant: 1 };
    Port<1> b { tenant: 2 };
    Port<2> wan;
    NAT na { external: [203.0.113.10] };
    NAT nb { external: [203.0.113.20] };
    pipelet one { a <-> na <-> wan; }
    pipelet two { b <-> nb <-> wan; }
    settings { seed: 7 };"#;

/// A customer with a NAT that admits all outside hosts.
const OPEN: &str = r#"
    Port<0> a { tenant: 1 }; Port<1> wan;
    NAT na { external: [203.0.113.10], filtering: endpoint_independent };
    pipelet { a <-> na <-> wan; }
    settings { seed: 7 };"#;

/// Two wires in series: what leaves `a1` returns at `b0`.
const WIRES: &str = r#"
    Port<0> a0; Port<1> a1; Port<2> b0; Port<3> b1;
    Monitor first;
    Firewall second { rules: "deny out udp to any port 23\nallow out", default: deny };
    pipelet one { a0 <-> first <-> a1; }
    pipelet two { b0 <-> second <-> b1; }
    settings { seed: 7 };"#;

/// A line with tenants: all flows enter by one port and leave by another, without a rewriting NF.
const LINE: &str = r#"
    Port<0> lan { tenant: 5 }; Port<1> wan;
    Firewall f { rules: "allow out", default: deny };
    pipelet { lan <-> f <-> wan; }
    settings { seed: 7 };"#;

const HOST: Endpoint = Endpoint::new(packet::Addr::from_v4_bytes([10, 0, 0, 5]), 4000);
const SERVER: Endpoint = Endpoint::new(packet::Addr::from_v4_bytes([192, 0, 2, 53]), 53);

fn arriving(number: usize, port: u16, from: Endpoint, to: Endpoint, content: &str) -> Arriving {
    let timestamp_ns = 1_700_000_000_000_000_000 + number as u64 * 1_000_000;
    Arriving { timestamp_ns, port, data: frame(&udp(from, to, content.as_bytes())) }
}

/// Plays frames however a policy can run, and returns what came out each time.
fn all_ways(text: &'static str, frames: &[Arriving]) -> Vec<(String, Sink, Report)> {
    let assemble = move || -> Assembly { assembly_of("identity.rvl", text) };
    let mut ways = Vec::new();
    let mut add = |way: &str, (sink, report): (Sink, Report)| ways.push((way.to_owned(), sink, report));
    add("single", play(Runner::new(assemble(), "single"), frames));
    for mode in [Granularity::Flowlet, Granularity::Packet] {
        let config = UnitsConfig {
            mode,
            units_min: 2,
            units_max: 4,
            capacity_bps: 1_000_000,
            ..UnitsConfig::as_published()
        };
        let units = Runner::on_units(assemble(), "units", config).unwrap();
        add(&format!("units {mode:?}"), play(units, frames));
        let make: Maker = Arc::new(move || Ok(assemble().graph));
        let threads = Runner::on_threads(assemble(), "threads", config, make).unwrap();
        add(&format!("threads {mode:?}"), play(threads, frames));
    }
    let parts = parts((0..3).map(|_| assemble()).collect(), "workers").unwrap();
    let mut runners: Vec<Runner> = parts.into_iter().map(Runner::of_part).collect();
    let mut sink = Sink::default();
    for (number, arriving) in frames.iter().enumerate() {
        receive(&mut runners[number % 3], arriving, &mut sink);
        runners.iter_mut().for_each(|runner| runner.flush(&mut sink).unwrap());
        while runners.iter().any(Runner::has_pending) {
            runners.iter_mut().for_each(|runner| runner.flush(&mut sink).unwrap());
        }
    }
    let mut reports: Vec<Report> =
        runners.into_iter().rev().map(|mut runner| runner.finish(&mut sink).unwrap()).collect();
    let mut all = reports.pop().unwrap();
    reports.into_iter().for_each(|report| all.add_worker(&report));
    add("workers", (sink, all));
    ways
}

/// Returns what left, in order of content: its port, its source, its destination.
fn left(sink: &Sink) -> Vec<(String, u16, [u8; 4], [u8; 4])> {
    let mut left: Vec<_> = sink
        .sent
        .iter()
        .map(|(port, _, data)| {
            let content = String::from_utf8(data[42..].to_vec()).unwrap();
            (content, *port, data[26..30].try_into().unwrap(), data[30..34].try_into().unwrap())
        })
        .collect();
    left.sort();
    left
}

#[test]
fn tenants_with_the_same_addresses_keep_their_nats() {
    let (na, nb) = (v4(203, 0, 113, 10, 4000), v4(203, 0, 113, 20, 4000));
    let mut frames = Vec::new();
    for _ in 0..3 {
        for (port, from, to, content) in [
            (0, HOST, SERVER, "from a"),
            (1, HOST, SERVER, "from b"),
            (2, SERVER, na, "to a"),
            (2, SERVER, nb, "to b"),
        ] {
            frames.push(arriving(frames.len(), port, from, to, content));
        }
    }
    let [host, server] = [[10, 0, 0, 5], [192, 0, 2, 53]];
    for (way, sink, report) in all_ways(CUSTOMERS, &frames) {
        let mut expected = Vec::new();
        for _ in 0..3 {
            expected.push(("from a".to_owned(), 2, [203, 0, 113, 10], server));
            expected.push(("from b".to_owned(), 2, [203, 0, 113, 20], server));
            expected.push(("to a".to_owned(), 0, server, host));
            expected.push(("to b".to_owned(), 1, server, host));
        }
        expected.sort();
        assert_eq!(left(&sink), expected, "{way}");
        assert_eq!(report.flows.started, 2, "{way}");
        assert!(report.adds_up(), "{way}");
    }
}

/// Another outside host reaches the inside host through the mapping of a tenant.
#[test]
fn mappings_of_tenants_are_reached_from_outside() {
    let (mapped, other) = (v4(203, 0, 113, 10, 4000), v4(198, 51, 100, 7, 999));
    let frames = [
        arriving(0, 0, HOST, SERVER, "from a"),
        arriving(1, 1, other, mapped, "to a"),
        arriving(2, 0, HOST, other, "reply"),
    ];
    let [a, host, server, other] = [[203, 0, 113, 10], [10, 0, 0, 5], [192, 0, 2, 53], [198, 51, 100, 7]];
    for (way, sink, report) in all_ways(OPEN, &frames) {
        let expected = [("from a", 1, a, server), ("reply", 1, a, other), ("to a", 0, other, host)];
        let expected = expected.map(|(content, port, from, to)| (content.to_owned(), port, from, to));
        assert_eq!(left(&sink), expected, "{way}");
        assert_eq!(report.flows.started, 2, "{way}");
    }
}

#[test]
fn a_wire_behind_another_has_flows_of_its_own() {
    let telnet = v4(192, 0, 2, 53, 23);
    let mut frames = Vec::new();
    for _ in 0..3 {
        for (port, from, to, content) in [
            (0, HOST, SERVER, "in a0"),
            (2, HOST, SERVER, "in b0"),
            (3, SERVER, HOST, "in b1"),
            (1, SERVER, HOST, "in a1"),
            (0, HOST, telnet, "telnet a0"),
            (2, HOST, telnet, "telnet b0"),
        ] {
            frames.push(arriving(frames.len(), port, from, to, content));
        }
    }
    for (way, sink, report) in all_ways(WIRES, &frames) {
        let mut ports: Vec<_> = left(&sink).into_iter().map(|(content, port, ..)| (content, port)).collect();
        ports.dedup();
        let expected = [("in a0", 1), ("in a1", 0), ("in b0", 3), ("in b1", 2), ("telnet a0", 1)];
        assert_eq!(ports, expected.map(|(content, port)| (content.to_owned(), port)), "{way}");
        assert_eq!(report.drops["firewall-denied"], 3, "{way}");
        assert!(report.adds_up(), "{way}");
    }
}

#[test]
fn replies_find_the_flow_of_a_tenant_that_nothing_rewrote() {
    let frames = [
        arriving(0, 0, HOST, SERVER, "request"),
        arriving(1, 1, SERVER, HOST, "reply"),
        arriving(2, 0, HOST, SERVER, "request"),
        // No host inside has sent a request.
        arriving(3, 1, v4(192, 0, 2, 54, 53), HOST, "unsolicited"),
    ];
    for (way, sink, report) in all_ways(LINE, &frames) {
        let ports: Vec<_> = left(&sink).into_iter().map(|(content, port, ..)| (content, port)).collect();
        let expected = [("reply", 0), ("request", 1), ("request", 1)];
        assert_eq!(ports, expected.map(|(content, port)| (content.to_owned(), port)), "{way}");
        assert_eq!(report.flows.started, 2, "{way}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Packets that enter a segment leave it, as if the other one were not there.
    #[test]
    fn segments_never_see_each_others_flows(
        packets in proptest::collection::vec((0u16..4, 0u16..2, 0u16..2, any::<bool>()), 1..40),
    ) {
        let frames: Vec<_> = packets
            .iter()
            .enumerate()
            .map(|(number, &(port, host, service, is_reply))| {
                let ends = (v4(10, 0, 0, 5, 4000 + host), v4(192, 0, 2, 53, 22 + service));
                let (from, to) = if is_reply { (ends.1, ends.0) } else { ends };
                arriving(number, port, from, to, &format!("{number:03}"))
            })
            .collect();
        let of = |ports: [u16; 2]| {
            let frames: Vec<_> = frames
                .iter()
                .filter(|frame| ports.contains(&frame.port))
                .map(|frame| Arriving { data: frame.data.clone(), ..*frame })
                .collect();
            left(&play(Runner::new(assembly_of("identity.rvl", WIRES), "one"), &frames).0)
        };
        let both = left(&play(Runner::new(assembly_of("identity.rvl", WIRES), "both"), &frames).0);
        let mut apart = [of([0, 1]), of([2, 3])].concat();
        apart.sort();
        prop_assert_eq!(both, apart);
    }
}
