//! Fragmented datagrams: matches of the whole datagram, in whatever order its fragments arrive.

use graph::Graph;
use packet::{DropReason, Endpoint, Packet, PacketPool, Side};
use serde_json::json;

use crate::http_support::{fragments, options, packet, stage};
use crate::ids_support::*;

const RULES: &str = r#"
drop udp any any -> any any (msg:"content"; content:"SECRET-IN-DATAGRAM"; sid:1;)
drop icmp any any -> any any (msg:"content"; content:"SECRET-IN-DATAGRAM"; sid:2;)
drop dns any any -> any any (msg:"query"; dns.query; content:"watched.example"; sid:3;)
alert udp any any -> any 6000 (msg:"size"; dsize:96; sid:4;)
alert udp any any -> any any (msg:"parts"; flow:only_frag; content:"SECRET"; sid:5;)
alert udp any any -> any any (msg:"no parts"; flow:no_frag; content:"SECRET"; sid:6;)
alert udp any any -> any 6000 (msg:"never"; content:!"SECRET"; sid:7;)
"#;

fn ends(port: u16, v6: bool) -> (Endpoint, Endpoint) {
    match v6 {
        false => (v4(10, 0, 0, 1, 5_000), v4(192, 0, 2, 1, port)),
        true => (self::v6(1, 5_000), self::v6(2, port)),
    }
}

/// Returns 96 bytes with the content across the border of fragments of 48 bytes.
fn secret() -> Vec<u8> {
    let mut payload = vec![b'x'; 96];
    payload[30..48].copy_from_slice(b"SECRET-IN-DATAGRAM");
    payload
}

fn query() -> Vec<u8> {
    let header = [0x1234u16, 0x0100, 1, 0, 0, 0].map(u16::to_be_bytes).concat();
    [&header[..], b"\x07watched\x07example\0\0\x01\0\x01"].concat()
}

fn arrivals(parts: &[Vec<u8>]) -> Vec<Arrival> {
    let arrival = |(number, part): (u64, &Vec<u8>)| Arrival {
        at_ns: SECOND_NS + number * MS_NS,
        side: Side::Inside,
        network: part.clone(),
    };
    (0..).zip(parts).map(arrival).collect()
}

/// Returns whole datagrams of each protocol, and the rules that match them.
fn datagrams() -> Vec<(Vec<u8>, Vec<u32>)> {
    let of = |v6: bool| {
        let (from, to) = ends(6_000, v6);
        let (asks, answers) = ends(53, v6);
        vec![
            (udp(from, to, &secret()), vec![1, 4, 5]),
            (echo(from.addr, to.addr, 7, false, &secret()), vec![2]),
            (udp(asks, answers, &query()), vec![3]),
        ]
    };
    [of(false), of(true)].concat()
}

/// Returns all permutations.
fn orders(count: usize) -> Vec<Vec<usize>> {
    if count == 0 {
        return vec![vec![]];
    }
    let shorter = orders(count - 1);
    let with = |order: &Vec<usize>, at: usize| {
        let mut longer = order.clone();
        longer.insert(at, count - 1);
        longer
    };
    shorter.iter().flat_map(|order| (0..count).map(|at| with(order, at)).collect::<Vec<_>>()).collect()
}

#[test]
fn rules_match_reassembled_datagrams() {
    for (whole, expected) in datagrams() {
        let seen = watch(RULES, &arrivals(std::slice::from_ref(&whole)));
        let of_whole: Vec<u32> = expected.iter().map(|rule| if *rule == 5 { 6 } else { *rule }).collect();
        assert_eq!((seen.rules(), seen.sent), (of_whole, 0));
        for size in [24, 40, 48] {
            let parts = fragments(&whole, 9, size);
            for order in orders(parts.len().min(4)).into_iter().step_by(5) {
                let mut shuffled: Vec<Vec<u8>> = order.iter().map(|at| parts[*at].clone()).collect();
                shuffled.extend(parts[order.len()..].iter().cloned());
                let seen = watch(RULES, &arrivals(&shuffled));
                assert_eq!(seen.rules(), expected, "parts of {size}: {order:?}");
                assert_eq!(seen.sent, 0, "parts of {size}: {order:?}");
            }
        }
    }
}

#[test]
fn nothing_completes_a_datagram_that_was_dropped() {
    for (whole, _) in datagrams() {
        let parts = fragments(&whole, 9, 16);
        let last = parts.len() - 1; // The part with which it is whole.
        // Repeats the last part, all parts, and each single part.
        let mut all = parts.clone();
        all.push(parts[last].clone());
        all.extend(parts.iter().cloned());
        all.extend(parts.iter().rev().cloned());
        let seen = watch(RULES, &arrivals(&all));
        assert_eq!(seen.sent, 0, "{:?}", seen.drops);
        let of_dropped = seen.drops.iter().find(|(reason, _)| *reason == "fragment-of-dropped").unwrap();
        assert_eq!(of_dropped.1, all.len() as u64 - 1, "{:?}", seen.drops);
    }
}

#[test]
fn packets_without_a_match_pass_unchanged() {
    let (from, to) = ends(6_001, false);
    let mut good = secret();
    good[33] = b'_';
    let parts = fragments(&udp(from, to, &good), 9, 24);
    let seen = watch(RULES, &arrivals(&parts));
    assert_eq!((seen.rules(), seen.sent), (vec![], parts.len()));
    // The next datagram with the same identification is another one.
    let (one, other) = (fragments(&udp(from, to, &good), 9, 24), fragments(&udp(from, to, &secret()), 9, 24));
    let seen = watch(RULES, &arrivals(&[&one[..], &other].concat()));
    assert_eq!((seen.rules(), seen.sent), (vec![1, 5], parts.len()));
}

#[test]
fn fragments_that_no_host_accepts_hide_nothing() {
    let (from, to) = ends(6_000, false);
    let parts = fragments(&udp(from, to, &secret()), 9, 48);
    let mut forged = fragments(&udp(from, to, &[b'y'; 96]), 9, 48);
    // A wrong header checksum.
    forged.iter_mut().for_each(|part| part[10] ^= 0xff);
    let seen = watch(RULES, &arrivals(&[&forged[1..], &parts[..]].concat()));
    assert_eq!(seen.rules(), [1, 4, 5]);
}

#[test]
fn rules_about_fragments_match_each_fragment() {
    let (from, to) = ends(6_000, false);
    let parts = fragments(&udp(from, to, &secret()), 9, 48);
    let rules = r#"
alert ip any any -> any any (msg:"more"; fragbits:M; sid:1;)
alert ip any any -> any any (msg:"last"; fragbits:!M; fragoffset:>0; sid:2;)
alert udp any any -> any 6000 (msg:"once"; sid:3;)
"#;
    assert_eq!(watch(rules, &arrivals(&parts)).reported, [(1, 1), (1, 3), (2, 1), (3, 2)]);
}

/// Returns a datagram without a match.
fn harmless(len: usize) -> Vec<u8> {
    let (from, to) = ends(6_001, false);
    udp(from, to, &vec![b'.'; len])
}

#[test]
fn fragments_are_held_until_complete_and_leave_in_order() {
    let whole = harmless(96);
    let parts = fragments(&whole, 9, 24);
    for order in orders(parts.len()).into_iter().step_by(7) {
        let shuffled: Vec<Vec<u8>> = order.iter().map(|at| parts[*at].clone()).collect();
        let mut bench = ids(RULES);
        for (number, arrival) in arrivals(&shuffled).iter().enumerate() {
            let sent = bench.one(arrival.at_ns, arrival.side, &arrival.network);
            let count = if number + 1 == parts.len() { parts.len() } else { 0 };
            assert_eq!(sent.len(), count, "{order:?}");
            assert_eq!(bench.graph.counters().packets_pending as usize, number + 1 - count);
        }
        let sent: Vec<&[u8]> = bench.sent.iter().map(|(_, _, frame)| &frame[14..]).collect();
        // Later fragments wait for the first one.
        let mut expected: Vec<&[u8]> = shuffled.iter().map(Vec::as_slice).collect();
        let first = order.iter().position(|at| *at == 0).unwrap();
        expected[..=first].rotate_right(1);
        assert_eq!(sent, expected, "{order:?}");
    }
}

#[test]
fn nothing_is_held_back_where_nothing_is_prevented() {
    let parts = fragments(&harmless(96), 9, 24);
    let seen = watch_with(RULES, json!({ "mode": "detect" }), &arrivals(&parts[..2]));
    assert_eq!(seen.sent, 2);
}

#[test]
fn incomplete_datagrams_are_dropped_after_the_timeout() {
    for (v6, seconds) in [(false, 30), (true, 60)] {
        let (from, to) = ends(6_001, v6);
        let parts = fragments(&udp(from, to, &[b'.'; 96]), 9, 24);
        let mut bench = ids(RULES);
        arrivals(&parts[1..3]).iter().for_each(|part| bench.batch(std::slice::from_ref(part)));
        bench.one(SECOND_NS + 5 * MS_NS, Side::Inside, &parts[0]);
        // The first one releases the others; their wait began here.
        let due_ns = SECOND_NS + 5 * MS_NS + seconds * SECOND_NS;
        assert!(bench.graph.next_timeout_ns() <= due_ns);
        for (at_ns, held, drops) in
            [(due_ns - SECOND_NS, 3, vec![]), (due_ns, 0, vec![("fragment-timeout", 3)])]
        {
            bench.advance(at_ns);
            assert_eq!((bench.graph.counters().packets_pending, bench.drops()), (held, drops), "{v6}");
        }
        assert_eq!(bench.one(due_ns + 1, Side::Inside, &parts[3]).len(), 0);
    }
}

#[test]
fn held_fragments_are_bounded() {
    use graph::streams::{HELD_BACK_MAX, HELD_BACK_MEMORY};
    // Of one datagram.
    let parts = fragments(&harmless(24 * (HELD_BACK_MAX + 2)), 9, 24);
    let seen = watch(RULES, &arrivals(&parts));
    let count = parts.len() as u64;
    let refused = HELD_BACK_MAX as u64 + 1;
    let drops = vec![("fragment-too-many", refused), ("fragment-of-dropped", count - refused)];
    assert_eq!((seen.sent, seen.drops), (0, drops));

    // Of one source, and of all sources: the oldest are evicted, and whole ones pass.
    let room = HELD_BACK_MEMORY / (2 << 10);
    for (sources, datagrams, most) in [(1, 200, room / 4), (64, 1024, room)] {
        let mut unit = Unit::new();
        for id in 0..datagrams {
            let source = v4(10, 0, (id % sources) as u8, 1, 5_000);
            let parts = fragments(&udp(source, v4(192, 0, 2, 1, 7_000), &[b'.'; 96]), id, 24);
            parts[..4].iter().for_each(|part| drop(unit.process(part)));
        }
        let counters = unit.graph.counters();
        assert_eq!(counters.packets_pending as usize, most);
        assert!(counters.add_up());
        let full = counters.drops[DropReason::FragmentTableFull.index()];
        assert_eq!(full as usize, 4 * usize::from(datagrams) - most);
        let whole = fragments(&harmless(96), 9_999, 24);
        let sent: Vec<Vec<u8>> = whole.iter().flat_map(|part| unit.process(part)).collect();
        assert_eq!(sent, whole);
    }
}

#[test]
fn a_retransmission_with_other_bytes_does_not_leave() {
    let parts = fragments(&harmless(96), 9, 24);
    for (number, part) in parts.iter().enumerate() {
        let mut copy = part.clone();
        *copy.last_mut().unwrap() ^= 1;
        let mut unit = Unit::new();
        let before: Vec<_> = parts[..=number].iter().flat_map(|part| unit.process(part)).collect();
        let copies = unit.process(&copy);
        let again = unit.process(part);
        let after = parts[number + 1..].iter().flat_map(|part| unit.process(part));
        let sent: Vec<_> = before.into_iter().chain(copies).chain(again).chain(after).collect();
        assert!(!sent.contains(&copy), "{number}");
        assert!(parts.iter().all(|part| sent.contains(part)), "{number}");
        assert!(unit.graph.counters().add_up());
    }
}

/// A graph with more buffers than a bench has.
struct Unit {
    graph: Graph,
    pool: PacketPool,
    out: Vec<Packet>,
}

impl Unit {
    fn new() -> Unit {
        let stages = vec![stage("ids", &config(RULES, json!({})))];
        Unit { graph: Graph::new(stages, options()).unwrap(), pool: PacketPool::new(4_096), out: vec![] }
    }

    /// Sends a packet through; returns the output, from the IP header on.
    fn process(&mut self, network: &[u8]) -> Vec<Vec<u8>> {
        let packet = packet(SECOND_NS, Side::Inside, network);
        self.graph.process(&mut vec![packet], &mut self.out, &mut self.pool);
        let leave = |packet: Packet| {
            assert_eq!(packet.meta().transit.side, Side::Outside);
            packet.data()[14..].to_vec()
        };
        self.out.drain(..).map(leave).collect()
    }

    /// Moves the flow to another unit, which knows that its first fragment passed.
    fn hand_over(&mut self, other: &mut Unit, first: &[u8]) {
        let mut saved = vec![];
        let record = self.graph.flows().records().used().next().unwrap();
        self.graph.flows_mut().save(record, &mut saved);
        other.graph.flows_mut().restore(&saved, &mut other.pool).unwrap();
        self.graph.flows_mut().release(record);
        let mut first = [packet(SECOND_NS, Side::Inside, first)];
        other.graph.classify(&mut first, |_| {});
        other.graph.classifier_mut().learn_elsewhere(&first[0], &mut vec![]);
    }
}

#[test]
fn held_fragments_move_with_their_flow() {
    let (from, to) = ends(6_000, false);
    for whole in [harmless(96), udp(from, to, &secret())] {
        let parts = fragments(&whole, 9, 24);
        let mut alone = Unit::new();
        let expected: Vec<Vec<u8>> = parts.iter().flat_map(|part| alone.process(part)).collect();
        for at in 1..parts.len() {
            let (mut here, mut there) = (Unit::new(), Unit::new());
            parts[..at].iter().for_each(|part| assert!(here.process(part).is_empty()));
            here.hand_over(&mut there, &parts[0]);
            let (before, after) = (here.graph.counters(), there.graph.counters());
            assert!(before.add_up());
            assert_eq!((before.packets_pending, after.packets_pending), (0, at as u64));
            let sent: Vec<Vec<u8>> = parts[at..].iter().flat_map(|part| there.process(part)).collect();
            assert_eq!(sent, expected, "moved after {at}");
            let after = there.graph.counters();
            assert_eq!(after.packets_pending, 0);
            assert_eq!(after.packets_in - 1 + at as u64, after.packets_out + after.dropped());
            here.graph.restart(0, &mut here.pool);
            assert!(here.graph.counters().add_up());
        }
    }
}

#[test]
fn batches_do_not_change_what_is_held_back() {
    let mut traffic = Vec::new();
    for (number, whole) in datagrams().into_iter().map(|(whole, _)| whole).chain([harmless(200)]).enumerate()
    {
        let parts = fragments(&whole, number as u16, 24);
        traffic.extend(arrivals(&parts));
        traffic.extend(arrivals(&[harmless(9 + number)]));
        traffic.extend(arrivals(&parts[1..2]));
    }
    traffic.sort_by_key(|arrival| arrival.at_ns);
    batches_change_nothing("ids", &config(RULES, json!({})), &traffic);
}

#[test]
fn fragments_without_a_first_one_are_seen_before_they_are_dropped() {
    const OF_HEADERS: &str = r#"
drop ip any any -> any any (msg:"a later one"; fragoffset:>0; sid:1;)
alert ip 10.0.0.1 any -> any any (msg:"its header"; ip_proto:17; id:9; sid:2;)
alert udp any any -> any 6000 (msg:"its ports"; content:"SECRET"; sid:3;)
"#;
    let (from, to) = ends(6_000, false);
    let parts = fragments(&udp(from, to, &secret()), 9, 48);
    let mut arrivals = arrivals(&parts[1..]);
    let other = udp(v4(10, 0, 0, 2, 1), v4(192, 0, 2, 2, 2), b"other");
    arrivals.push(Arrival { at_ns: 100 * SECOND_NS, side: Side::Inside, network: other });
    let seen = watch(OF_HEADERS, &arrivals);
    let expected: Vec<u32> = parts[1..].iter().flat_map(|_| [1, 2]).collect();
    assert_eq!((seen.rules(), seen.sent), (expected, 1), "{:?}", seen.drops);
    assert!(seen.drops.contains(&("fragment-timeout", parts.len() as u64 - 1)), "{:?}", seen.drops);
}
