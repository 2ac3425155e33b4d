//! The monitor against a slow recount from the descriptions of the packets, never from their bytes.

use crate::monitor_support::*;
use nf::{Connection, CounterValues, FlowReport};
use packet::{FlowKey, Side};
use proptest::prelude::*;
use serde_json::json;

/// A datagram of one of a few flows.
#[derive(Clone, Debug)]
struct Event {
    flow: usize,
    reply: bool,
    payload_len: usize,
    marks: u16,
    tos: u8,
    gap_ms: u64,
    /// UDP only.
    fragments: Fragments,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Fragments {
    None,
    InOrder,
    LastFirst,
}

const FLOWS: [(u8, &str, &str, Option<u16>); 8] = [
    (TCP, "10.0.0.1:4000", "198.51.100.7:80", None),
    (TCP, "[2001:db8::1]:4000", "[2001:db8::7]:80", Some(12)),
    (UDP, "10.0.0.1:4000", "198.51.100.7:80", Some(4095)),
    (UDP, "[2001:db8::1]:53", "[2001:db8::7]:53", None),
    (ICMP, "10.0.0.1:7", "198.51.100.7:7", None),
    (ICMPV6, "[2001:db8::1]:9", "[2001:db8::7]:9", None),
    (89, "10.0.0.1:0", "198.51.100.7:0", None),
    (UDP, "198.51.100.7:80", "10.0.0.1:4001", None),
];

fn event() -> impl Strategy<Value = Event> {
    let fragments = prop_oneof![
        4 => Just(Fragments::None),
        1 => Just(Fragments::InOrder),
        1 => Just(Fragments::LastFirst),
    ];
    let gap_ms = prop_oneof![0..50u64, 0..4_000u64, Just(10_000)];
    // No FIN or RST: flows must end with the run.
    let flags = prop_oneof![Just(2u16), Just(16), Just(18), Just(24), Just(0x30)];
    (0..FLOWS.len(), any::<bool>(), 0..1200usize, flags, any::<u8>(), gap_ms, fragments).prop_map(
        |(flow, reply, payload_len, flags, tos, gap_ms, fragments)| {
            let marks = match FLOWS[flow].0 {
                TCP => flags,
                ICMP if reply => 0,
                ICMP => 0x0800,
                ICMPV6 if reply => 0x8100,
                ICMPV6 => 0x8000,
                _ => 0,
            };
            let fragments = if FLOWS[flow].0 == UDP { fragments } else { Fragments::None };
            Event { flow, reply, payload_len, marks, tos, gap_ms, fragments }
        },
    )
}

impl Event {
    /// Returns its packets in order of arrival.
    fn packets(&self, number: usize) -> Vec<Ip> {
        let (protocol, from, to, vlan) = FLOWS[self.flow];
        let there = Ip { vlan, tos: self.tos, ..ip(protocol, from, to).marks(self.marks) };
        let whole = if self.reply { there.back() } else { there };
        let packet =
            |payload_len, fragment| Ip { payload: vec![0x55; payload_len], fragment, ..whole.clone() };
        if self.fragments == Fragments::None {
            return vec![packet(self.payload_len, None)];
        }
        let fragment = |offset, more| Some(Fragment { id: number as u16, offset, more });
        let first = packet(8 + 32, fragment(0, true)); // With its header 48 bytes.
        let last = packet(self.payload_len.max(1), fragment(6, false));
        if self.fragments == Fragments::InOrder { vec![first, last] } else { vec![last, first] }
    }

    /// Returns the lengths of its IP packets, from the RFCs.
    fn lens(&self) -> Vec<u64> {
        let (protocol, from, ..) = FLOWS[self.flow];
        let v6 = from.starts_with('[');
        let header = if v6 { 40 } else { 20 };
        let transport = match protocol {
            TCP => 20,
            UDP | ICMP | ICMPV6 => 8,
            _ => 0,
        };
        if self.fragments == Fragments::None {
            return vec![header + transport + self.payload_len as u64];
        }
        let header = if v6 { header + 8 } else { header };
        vec![header + 48, header + self.payload_len.max(1) as u64]
    }
}

/// A packet of a flow: time, direction, length, flags or ICMP type, type of service.
type Seen = (u64, usize, u64, u16, u8);

const ACTIVE_NS: u64 = 10 * SECOND_NS;

/// Returns all expected reports, in any order.
fn recount(events: &[Event], times: &[u64]) -> Vec<FlowReport> {
    let mut reports = Vec::new();
    for (flow, &(protocol, from, to, vlan)) in FLOWS.iter().enumerate() {
        let own: Vec<_> = events.iter().zip(times).filter(|(event, _)| event.flow == flow).collect();
        let Some((first, _)) = own.first() else { continue };
        let described = ip(protocol, from, to);
        let (source, destination) =
            if first.reply { (described.to, described.from) } else { (described.from, described.to) };
        let mut pending: Vec<Seen> = Vec::new();
        let mut cut = |pending: &mut Vec<Seen>, end_reason| {
            let of = |d: usize| pending.iter().filter(move |seen| seen.1 == d);
            let both = |f: &dyn Fn(usize) -> u64| [f(0), f(1)];
            let marks = [0, 1].map(|d| match protocol {
                TCP => of(d).fold(0, |all, seen| all | seen.3),
                _ => of(d).next().map_or(0, |seen| seen.3),
            });
            reports.push(FlowReport {
                source: source.0.into(),
                destination: destination.0.into(),
                source_port: source.1,
                destination_port: destination.1,
                protocol,
                version: if source.0.is_ipv4() { 4 } else { 6 },
                tcp_flags: if protocol == TCP { marks.map(|m| m as u8) } else { [0; 2] },
                icmp: if protocol == TCP { [0; 2] } else { marks },
                vlan: vlan.unwrap_or(0),
                first_ns: both(&|d| of(d).map(|seen| seen.0).min().unwrap_or(0)),
                last_ns: both(&|d| of(d).map(|seen| seen.0).max().unwrap_or(0)),
                packets: both(&|d| of(d).count() as u64),
                bytes: both(&|d| of(d).map(|seen| seen.2).sum()),
                tos: [0, 1].map(|d| of(d).next().map_or(0, |seen| seen.4)),
                translated: None,
                end_reason,
                sampling: 1,
                ..FlowReport::default()
            });
            pending.clear();
        };
        for &(event, &time) in &own {
            for len in event.lens() {
                if pending.iter().any(|seen| time >= seen.0 + ACTIVE_NS) {
                    cut(&mut pending, 2);
                }
                pending.push((time, usize::from(event.reply != first.reply), len, event.marks, event.tos));
            }
        }
        cut(&mut pending, 4);
    }
    reports
}

fn sorted(mut reports: Vec<FlowReport>) -> Vec<FlowReport> {
    reports.sort_by_cached_key(|report| format!("{report:?}")); // Nothing less distinguishes two for certain.
    reports
}

/// Assigns the policy's sides, or only the inside, as with a mirror port.
fn arrivals(events: &[Event], times: &[u64], mirrored: bool) -> Vec<Arrival> {
    let all = events.iter().zip(times).enumerate().flat_map(|(number, (event, &time))| {
        let side = if event.reply && !mirrored { Side::Outside } else { Side::Inside };
        event.packets(number).into_iter().map(move |packet| (time, side, packet.frame()))
    });
    all.collect()
}

fn run(arrivals: &[Arrival], batch: usize) -> (Vec<FlowReport>, CounterValues) {
    let mut bench = Bench::new(&json!({"active_timeout": "10s"}));
    for part in arrivals.chunks(batch) {
        assert_eq!(bench.graph.counters().dropped(), 0);
        bench.batch(part);
    }
    // Key and connection are the graph's.
    let counted = |report| FlowReport { key: FlowKey::default(), connection: Connection::NEW, ..report };
    let reports = bench.finish().into_iter().map(counted).collect();
    (reports, bench.graph.stages()[0].shared().counters.clone())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn counts_are_those_of_a_recount(events in prop::collection::vec(event(), 1..80)) {
        let mut now = SECOND_NS;
        let times: Vec<u64> = events.iter().map(|event| { now += event.gap_ms * 1_000_000; now }).collect();
        let (reports, counters) = run(&arrivals(&events, &times, false), 1);
        prop_assert_eq!(sorted(reports), sorted(recount(&events, &times)));
        let lens: Vec<(u8, u64)> =
            events.iter().flat_map(|e| e.lens().into_iter().map(|len| (FLOWS[e.flow].0, len))).collect();
        let class = |protocol| match protocol {
            TCP => "tcp",
            UDP => "udp",
            ICMP | ICMPV6 => "icmp",
            _ => "other",
        };
        for name in ["tcp", "udp", "icmp", "other"] {
            let of = lens.iter().filter(|(protocol, _)| class(*protocol) == name);
            let counted = |what: &str| counters.get(&format!("{what}_{name}")).unwrap();
            prop_assert_eq!(counted("packets"), of.clone().count() as u64);
            prop_assert_eq!(counted("bytes"), of.map(|(_, len)| len).sum::<u64>());
        }
    }

    #[test]
    fn batches_make_no_difference(events in prop::collection::vec(event(), 1..80), batch in 2..100usize) {
        let mut now = SECOND_NS;
        let times: Vec<u64> = events.iter().map(|event| { now += event.gap_ms * 1_000_000; now }).collect();
        let arrivals = arrivals(&events, &times, true);
        let [alone, together] = [1, batch].map(|size| run(&arrivals, size));
        prop_assert_eq!(sorted(alone.0), sorted(together.0));
        prop_assert_eq!(alone.1, together.1);
    }
}
