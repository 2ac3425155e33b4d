//! Every limit that traffic can reach: its policy, a drop reason, a counter, and never a crash.

use std::net::Ipv4Addr;

use packet::LinkType;

use crate::nat_support::{ACK, SYN, UDP, end, ipv4, tcp, udp};
use crate::run::{Outcome, run, try_runner};
use crate::traces::Recorded;

const SECOND: u64 = 1_000_000_000;

/// Returns a policy with one function between two ports.
fn policy(function: &str, settings: &str) -> String {
    format!(
        "Port<0> inside {{ prefixes: 10.0.0.0/8 }};\nPort<1> outside;\nsettings {{ seed: 3, {settings} }};\n\
         {function};\npipelet {{ inside <-> x <-> outside; }}\n"
    )
}

fn record(at_ns: u64, packet: Vec<u8>) -> Recorded {
    let wire_len = packet.len() as u32;
    Recorded { timestamp_ns: at_ns, interface: 0, link: LinkType::RawIp, wire_len, data: packet }
}

fn outcome(policy: &str, records: &[Recorded]) -> Outcome {
    let outcome = run(policy, records, runtime::BATCH);
    outcome.check(records);
    let one_by_one = run(policy, records, 1);
    assert_eq!(outcome.lasting_report(), one_by_one.lasting_report(), "batches change nothing");
    outcome
}

/// Builds a UDP packet of flow `i`.
fn of_flow(i: u32) -> Vec<u8> {
    let [_, b, c, d] = (i / 1000 + 1).to_be_bytes();
    udp((Ipv4Addr::new(10, b, c, d), 5000 + (i % 1000) as u16), end("192.0.2.1:53"), b"x")
}

/// Builds a later fragment of datagram `i`.
fn later_fragment(i: u32, offset: u16) -> Vec<u8> {
    let [a, b, c, d] = (10 << 24 | 1 << 20 | i >> 8).to_be_bytes();
    ipv4(UDP, Ipv4Addr::new(a, b, c, d), Ipv4Addr::new(192, 0, 2, 1), i as u16, offset, &[7; 16])
}

fn spaced(packets: impl Iterator<Item = Vec<u8>>) -> Vec<Recorded> {
    packets.zip(1..).map(|(packet, i)| record(SECOND + i * 1000, packet)).collect()
}

#[test]
fn a_full_flow_table_refuses_new_flows_and_serves_the_others() {
    let records = spaced((0..250).chain(0..100).map(of_flow));
    let outcome = outcome(&policy("Monitor x", "flows: 100, when_full: refuse_new"), &records);
    assert_eq!(outcome.dropped("flow-table-full"), 150);
    assert_eq!((outcome.report.packets_out, outcome.report.flows.peak), (200, 100));
    assert_eq!(outcome.flows.len(), 100);
}

#[test]
fn a_full_flow_table_evicts_the_oldest() {
    let records = spaced((0..250).map(of_flow));
    let outcome = outcome(&policy("Monitor x", "flows: 100, when_full: evict_oldest"), &records);
    assert_eq!((outcome.report.dropped(), outcome.report.flows.peak), (0, 100));
    assert_eq!(outcome.report.flows.ended["evicted"], 150);
    // Lack of resources (IPFIX flowEndReason 5).
    assert_eq!(outcome.flows.iter().filter(|flow| flow.end_reason == 5).count(), 150);
}

#[test]
fn an_exhausted_nat_drops_new_flows_and_serves_the_others() {
    let records = spaced((0..20).chain(0..20).map(of_flow));
    let nat = r#"NAT x { external: [203.0.113.1], ports: "1024-1033", when_full: refuse_new }"#;
    let outcome = outcome(&policy(nat, ""), &records);
    assert_eq!((outcome.dropped("nat-ports-exhausted"), outcome.report.packets_out), (20, 20));
    let ports = &outcome.report.functions[0].pools["ports"];
    assert!(ports.exhausted >= 20 && ports.peak == 10, "{ports:?}");
}

#[test]
fn a_subscriber_has_its_share_of_a_nat() {
    let records = spaced((0..20).map(of_flow));
    let nat = "NAT x { external: [203.0.113.1], subscriber: { sessions: 3 } }";
    assert_eq!(outcome(&policy(nat, ""), &records).dropped("nat-subscriber-limit"), 17);
    let nat = "NAT x { external: [203.0.113.1], blocks: { size: 8, max: 1 } }";
    let outcome = outcome(&policy(nat, ""), &records);
    assert_eq!(outcome.report.packets_out + outcome.dropped("nat-subscriber-limit"), 20);
    assert_eq!(outcome.report.packets_out, 8);
}

#[test]
fn pending_fragments_are_bounded() {
    // One source each: a source may use a quarter of the table.
    let records = spaced((0..10).map(|i| later_fragment(i << 8, 3)));
    let table_full = outcome(&policy("Monitor x", "fragments: 4"), &records);
    assert_eq!((table_full.dropped("fragment-table-full"), table_full.report.packets_pending), (6, 4));

    let records = spaced((0..70).map(|i| later_fragment(1, 3 + 2 * i)));
    let too_many = outcome(&policy("Monitor x", ""), &records);
    let waiting = graph::fragments::WAITING_MAX as u64;
    assert_eq!(
        (too_many.dropped("fragment-too-many"), too_many.report.packets_pending),
        (70 - waiting, waiting)
    );

    let mut records = spaced((0..10).map(|i| later_fragment(i, 3)));
    records.push(record(40 * SECOND, of_flow(0)));
    let late = outcome(&policy("Monitor x", ""), &records);
    assert_eq!((late.dropped("fragment-timeout"), late.report.packets_pending), (10, 0));

    let records = spaced((0..10).map(|i| later_fragment(i, 3)));
    assert_eq!(outcome(&policy("Monitor x", "fragments: 0"), &records).dropped("fragment-table-full"), 10);
}

/// Pending fragments use up to a quarter of the buffers, and free them when they expire.
#[test]
fn pending_fragments_leave_buffers_to_others() {
    let (flood, most) = (9000, graph::fragments::WAITING_MEMORY as u64 / 2048);
    let mut records = spaced((0..flood).map(|i| later_fragment(i, 3)));
    records.extend((1..=5).map(|i| record(2 * SECOND + i, of_flow(0))));
    records.extend((1..=5).map(|i| record(60 * SECOND + i, of_flow(0))));
    let outcome = outcome(&policy("Monitor x", "fragments: 100k"), &records);
    assert!(!outcome.report.drops.contains_key("no-buffer"), "{:?}", outcome.report.drops);
    assert_eq!(outcome.dropped("fragment-table-full"), u64::from(flood) - most);
    assert_eq!(outcome.dropped("fragment-timeout"), most);
    assert_eq!((outcome.report.packets_pending, outcome.report.packets_out), (0, 10));
}

#[test]
fn a_load_balancer_without_servers_drops_with_a_reason() {
    let open = tcp(end("10.0.0.1:5000"), end("192.0.2.80:80"), SYN, b"");
    let records = spaced((0..5).map(|_| open.clone()));
    let lb = "LB x { services: [{ name: web, vip: 192.0.2.80, port: 80, servers: [\
              { name: a, address: 198.51.100.1, down: true }, { name: b, address: 198.51.100.2, weight: 0 }] }] }";
    let outcome = outcome(&policy(lb, ""), &records);
    assert_eq!((outcome.dropped("lb-no-server"), outcome.report.flows.live), (5, 0));
}

#[test]
fn the_number_of_firewall_rules_is_limited() {
    let firewall = |rules: usize| {
        let text: String = (0..rules).map(|i| format!("deny tcp to any port {}\\n", i % 65_000)).collect();
        policy(&format!("Firewall x {{ rules: \"{text}\" }}"), "")
    };
    let most = functions::firewall::classify::RULES_MAX;
    assert!(try_runner(&firewall(most)).is_ok());
    let refused = try_runner(&firewall(most + 1)).err().unwrap();
    assert!(refused.contains("rules"), "{refused}");
}

/// A rejecting firewall sends fewer replies than a flood requests.
#[test]
fn replies_to_rejected_packets_are_limited() {
    let records =
        spaced((0..5000).map(|i| {
            tcp((Ipv4Addr::new(10, 0, (i >> 8) as u8, i as u8), 5000), end("192.0.2.1:80"), ACK, b"")
        }));
    let outcome = outcome(&policy("Firewall x { default: reject }", ""), &records);
    assert!((1..=200).contains(&outcome.report.packets_generated), "{}", outcome.report.packets_generated);
    assert_eq!(outcome.counter("answered"), outcome.report.packets_generated);
    assert_eq!(outcome.counter("answered") + outcome.counter("unanswered"), 5000);
    assert_eq!(outcome.dropped("firewall-rejected") + outcome.dropped("firewall-denied"), 5000);
}

/// More flows end at once than a batch has room for reports, but each is reported.
#[test]
fn every_flow_is_reported_when_the_run_ends() {
    let flows = nf::EFFECTS_MAX as u32 + 10_000;
    let records = spaced((0..flows).map(of_flow));
    let outcome = outcome(&policy("Monitor x", "flows: 200k"), &records);
    assert_eq!(outcome.flows.len(), flows as usize);
    assert_eq!(outcome.report.flow_reports_lost, 0);
}

/// A day later all flows expire within one batch; reports beyond the buffer are counted.
#[test]
fn lost_flow_reports_are_counted() {
    let flows = nf::EFFECTS_MAX as u32 + 10_000;
    let mut records = spaced((0..flows).map(of_flow));
    records.push(record(86_400 * SECOND, of_flow(0)));
    let outcome = outcome(&policy("Monitor x", "flows: 200k"), &records);
    assert_eq!(outcome.flows.len() as u64 + outcome.report.flow_reports_lost, u64::from(flows) + 1);
}

#[test]
fn records_of_any_size_are_accounted_for() {
    let lengths = [0, 1, 13, 14, 19, 20, 33, 60, 1839, 1840, 1841, 65_535, 262_143, 262_144];
    for link in [LinkType::Ethernet, LinkType::RawIp, LinkType::Null, LinkType::Other(105)] {
        for function in ["Monitor x", "Firewall x", "NAT x { external: [203.0.113.1] }"] {
            let records: Vec<_> =
                lengths.iter().map(|&len| Recorded { link, ..record(SECOND, vec![0x45; len]) }).collect();
            outcome(&policy(function, ""), &records);
        }
    }
    let beyond = vec![record(SECOND, vec![0; packet::LARGE_ROOM - packet::HEADROOM + 1])];
    assert_eq!(outcome(&policy("Monitor x", ""), &beyond).dropped("too-big"), 1);
}

#[test]
fn jumps_of_time_are_handled() {
    let times = [0, u64::MAX, 1, u64::MAX / 2, u64::MAX - 1, 5 * SECOND, 0];
    for function in
        ["Monitor x", "Firewall x { default: allow, tcp: strict }", "NAT x { external: [203.0.113.1] }"]
    {
        let packets =
            [of_flow(0), tcp(end("10.0.0.1:5000"), end("192.0.2.1:80"), SYN, b""), later_fragment(1, 3)];
        let records: Vec<_> = times
            .iter()
            .flat_map(|&at| packets.iter().map(move |packet| record(at, packet.clone())))
            .collect();
        outcome(&policy(function, ""), &records);
    }
}

#[test]
fn no_input_gives_no_output() {
    for function in ["Monitor x", "Firewall x", "NAT x { external: [203.0.113.1] }"] {
        let outcome = outcome(&policy(function, ""), &[]);
        assert_eq!((outcome.report.packets_in, outcome.report.first_packet_ns), (0, None));
    }
}

/// Absurd settings either work or are refused with a message.
#[test]
fn huge_settings_work_or_are_refused() {
    let settings = [
        "fragments: 4294967295, fragment_timeout: 18446744073709551615ns",
        "timeouts: { udp: 18446744073709551615ns, tcp_established: 0, icmp: 0, udp_unreplied: 0 }",
        "flows: 1",
        "verify_ipv4_checksum: true, not_ip: drop, key: inner",
    ];
    for settings in settings {
        let records = spaced((0..50).map(of_flow).chain((0..5).map(|i| later_fragment(i, 3))));
        outcome(&policy("Monitor x", settings), &records);
    }
    for refused in [
        "flows: 0",
        "flows: 100M",
        "flows: 4294967296",
        "flows: -1",
        "fragments: 1e9",
        "fragment_timeout: 99999999999999999999s",
    ] {
        assert!(try_runner(&policy("Monitor x", refused)).is_err(), "{refused}");
    }
}
