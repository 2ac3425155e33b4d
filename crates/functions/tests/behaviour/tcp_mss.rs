//! The MSS clamp in a graph: SYNs are compared with ones built with the lower MSS.

use crate::meter_support::*;
use packet::{Endpoint, Side};
use proptest::prelude::*;
use serde_json::{Value, json};

const SYN: u8 = 2;
const ACK: u8 = 0x10;

/// A TCP option.
#[derive(Clone, Debug)]
enum TcpOption {
    Mss(u16),
    NoOperation,
    /// Of this kind, with this many bytes of content.
    Other(u8, usize),
}

impl TcpOption {
    fn bytes(&self) -> Vec<u8> {
        match *self {
            TcpOption::Mss(mss) => [&[2, 4][..], &mss.to_be_bytes()].concat(),
            TcpOption::NoOperation => vec![1],
            TcpOption::Other(kind, len) => [&[kind, 2 + len as u8][..], &vec![kind; len]].concat(),
        }
    }
}

/// Returns the options filled up to whole words by ends of the list.
fn padded(options: &[TcpOption]) -> Vec<u8> {
    let mut bytes: Vec<u8> = options.iter().flat_map(TcpOption::bytes).collect();
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

fn host(version: u8, number: u8) -> Endpoint {
    match version {
        4 => v4(10, 0, 0, number, 5_000),
        _ => v6(number.into(), 5_000),
    }
}

fn syn(version: u8, flags: u8, options: &[u8]) -> Vec<u8> {
    tcp_with_options(host(version, 1), host(version, 2), flags, [7, 0], options)
}

fn clamp(config: Value) -> Bench {
    bench("tcp-mss", &config)
}

fn option() -> impl Strategy<Value = TcpOption> {
    prop_oneof![
        2 => (1_200u16..1_600).prop_map(TcpOption::Mss),
        1 => any::<u16>().prop_map(TcpOption::Mss),
        3 => Just(TcpOption::NoOperation),
        3 => (3u8.., 0usize..9).prop_map(|(kind, len)| TcpOption::Other(kind, len)),
    ]
}

proptest! {
    /// In any order and alignment, by either IP version: all bytes are those of a SYN that was made
    /// with the lower MSS.
    #[test]
    fn syns_are_those_of_a_host_that_asks_for_less(
        options in prop::collection::vec(option(), 0..6),
        is_v6: bool,
        is_answer: bool,
        limit in 1_300u16..1_500,
    ) {
        let bytes = padded(&options);
        prop_assume!(bytes.len() <= 40);
        let version = if is_v6 { 6 } else { 4 };
        let flags = if is_answer { SYN | ACK } else { SYN };
        let mut bench = clamp(json!({ "max": limit }));
        let got = bench.through(SECOND_NS, Side::Inside, &syn(version, flags, &bytes));
        let clamped = options.iter().map(|option| match option {
            TcpOption::Mss(mss) => TcpOption::Mss((*mss).min(limit)),
            other => other.clone(),
        });
        let expected = padded(&clamped.collect::<Vec<_>>());
        prop_assert_eq!(got, syn(version, flags, &expected));
        let has = |above: u16| options.iter().any(|option| matches!(option, TcpOption::Mss(mss) if *mss >= above));
        prop_assert_eq!(counter(&bench, "syns"), 1);
        prop_assert_eq!(counter(&bench, "syns_lowered"), u64::from(has(limit + 1)));
        prop_assert_eq!(counter(&bench, "syns_without_mss"), u64::from(!has(0)));
        prop_assert_eq!(counter(&bench, "syns_malformed"), 0);
    }

    #[test]
    fn batches_change_nothing_of_the_output(traffic in traffic(60)) {
        batches_change_nothing("tcp-mss", &json!({ "max": 536 }), &traffic);
    }

    /// With options of any bytes, at most values of whole MSS options change, and a right checksum
    /// stays right.
    #[test]
    fn any_options_keep_a_right_checksum(words in prop::collection::vec(any::<[u8; 4]>(), 0..=10)) {
        let bytes = words.concat();
        let before = syn(4, SYN, &bytes);
        let mut bench = clamp(json!({ "max": 536 }));
        let after = bench.through(SECOND_NS, Side::Inside, &before);
        prop_assert!(checksums_are_right(&after));
        let changed = (40..before.len()).filter(|&at| before[at] != after[at]);
        for at in changed {
            let is_of_mss = |from: usize| before[from..from + 2] == [2, 4];
            prop_assert!(is_of_mss(at - 2) || is_of_mss(at - 3), "byte {at} of {before:?}");
        }
    }
}

#[test]
fn malformed_options_stay_and_are_counted() {
    for options in [
        [2, 3, 5, 180],
        [2, 6, 5, 180],
        [2, 0, 5, 180],
        [1, 2, 4, 5],
        [1, 1, 1, 2],
        [1, 1, 1, 8],
        [8, 0, 2, 4],
        [8, 1, 2, 4],
        [1, 3, 9, 0],
    ] {
        let mut bench = clamp(json!({ "max": 536 }));
        let packet = syn(4, SYN, &options);
        assert_eq!(bench.through(SECOND_NS, Side::Inside, &packet), packet, "{options:?}");
        let counts = ["syns", "syns_lowered", "syns_without_mss", "syns_malformed"];
        assert_eq!(counts.map(|name| counter(&bench, name)), [1, 0, 0, 1], "{options:?}");
    }
    // A whole one before is what receivers read.
    let mut bench = clamp(json!({ "max": 536 }));
    let packet = bench.through(SECOND_NS, Side::Inside, &syn(4, SYN, &[2, 4, 5, 180, 8, 0, 2, 4]));
    assert_eq!(packet, syn(4, SYN, &[2, 4, 2, 24, 8, 0, 2, 4]));
    assert_eq!(["syns_lowered", "syns_malformed"].map(|name| counter(&bench, name)), [1, 1]);
}

// RFC 6691 2
#[test]
fn limits_follow_direction_and_ip_version() {
    let mss = |mss: u16| padded(&[TcpOption::Mss(mss)]);
    for (config, version, side, expected) in [
        (json!({ "max_from_inside": 1_000 }), 4, Side::Inside, 1_000),
        (json!({ "max_from_inside": 1_000 }), 4, Side::Outside, 9_000),
        (json!({ "to_path_mtu": { "outside": 1_492 } }), 4, Side::Inside, 1_452),
        (json!({ "to_path_mtu": { "outside": 1_492 } }), 6, Side::Outside, 1_432),
        (json!({ "to_path_mtu": { "inside": 1_400, "outside": 1_500 } }), 6, Side::Inside, 1_340),
    ] {
        let got = clamp(config.clone()).through(SECOND_NS, side, &syn(version, SYN, &mss(9_000)));
        assert_eq!(got, syn(version, SYN, &mss(expected)), "{config}, IPv{version}, {side:?}");
    }
}

#[test]
fn a_wrong_checksum_stays_wrong() {
    let mut packet = syn(4, SYN, &padded(&[TcpOption::NoOperation, TcpOption::Mss(9_000)]));
    packet[36] ^= 0x40;
    let after = clamp(json!({ "max": 1_000 })).through(SECOND_NS, Side::Inside, &packet);
    let mut mended = after.clone();
    mended[36] ^= 0x40;
    assert!(!checksums_are_right(&after));
    assert_eq!((after[43], after[44]), (3, 232));
}

/// Only SYNs change: not other segments, later fragments, or SYNs quoted in ICMP errors. A first
/// fragment does.
#[test]
fn other_packets_pass_unchanged() {
    let options = padded(&[TcpOption::Mss(9_000)]);
    let whole = syn(4, SYN, &[&options[..], &[1; 20]].concat());
    let mut bench = clamp(json!({ "max": 1_000 }));
    bench.through(SECOND_NS, Side::Inside, &whole);
    let data = tcp_with_options(host(4, 1), host(4, 2), ACK, [8, 0], &options);
    assert_eq!(bench.through(SECOND_NS, Side::Inside, &data), data);
    let error = unreachable(host(4, 2).addr, &whole);
    assert_eq!(bench.through(SECOND_NS, Side::Outside, &error), error);
    assert_eq!(counter(&bench, "syns"), 1);
    let parts = fragments(&whole, 9, 24);
    let first = bench.through(SECOND_NS, Side::Inside, &parts[0]);
    assert_eq!(first[40..44], [2, 4, 3, 232]);
    assert_eq!(bench.through(SECOND_NS, Side::Inside, &parts[1]), parts[1]);
    assert_eq!(counter(&bench, "syns_lowered"), 2);
}

/// The checksum of a UDP tunnel around the SYN is updated, too.
#[test]
fn syns_in_tunnels_change_with_the_tunnels_checksum() {
    let inner = |mss| frame(&syn(6, SYN, &padded(&[TcpOption::NoOperation, TcpOption::Mss(mss)])));
    let vxlan = |mss| {
        let vtep = |number| v4(192, 0, 2, number, 4_789);
        udp(vtep(1), vtep(2), &[&[8, 0, 0, 0, 0, 0, 7, 0][..], &inner(mss)].concat())
    };
    let stages = vec![stage("tcp-mss", &json!({ "max": 1_000 }))];
    let mut bench = Bench::new(stages, graph::Options { inner: true, ..options() });
    assert_eq!(bench.through(SECOND_NS, Side::Inside, &vxlan(9_000)), vxlan(1_000));
}

#[test]
fn known_flows_pass_without_a_call() {
    let stages = vec![stage("tcp-mss", &json!({ "max": 1_000 })), stage("monitor", &json!({}))];
    let mut bench = Bench::new(stages, options());
    let (client, server) = (host(4, 1), host(4, 2));
    bench.through(SECOND_NS, Side::Inside, &syn(4, SYN, &[]));
    bench.through(SECOND_NS, Side::Outside, &tcp(server, client, SYN | ACK, b""));
    for _ in 0..20 {
        bench.through(SECOND_NS, Side::Inside, &tcp(client, server, ACK, b"data"));
        bench.through(SECOND_NS, Side::Outside, &tcp(server, client, ACK, b"data"));
    }
    let path = bench.graph.report().fast_path();
    assert_eq!((path.packets, path.recorded), (40, 0), "rules are predicted");
}
