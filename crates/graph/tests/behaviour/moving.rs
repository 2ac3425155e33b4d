//! Flows that move between graphs are processed as if they had stayed.

use graph::streams::StreamOptions;
use graph::{Graph, Options, RestoreError, WhenFull};
use nf::EndReason;
use nf::record::RecordHeader;
use nf::stage::Stage;
use packet::{FlowHasher, FlowKey, Side};
use proptest::prelude::*;

use crate::support::bench::{Arrival, Bench};
use crate::support::functions::*;
use crate::support::packets::{tcp_segment, udp, v4};
use crate::support::traffic::{START_NS, traffic};

const FLOWS: u32 = 1024;
const SEED: u64 = 11;

/// Functions that keep everything that can be kept of flows: states, maps, buffers, streams,
/// aliases, tags, timers. None shares anything but counters: what flows share stays where it is.
fn movers() -> Vec<Box<dyn Stage>> {
    vec![
        stage::<Tally>(FLOWS),
        stage::<Rejecter>(FLOWS),
        stage::<OneToOne>(FLOWS),
        stage::<Listener>(FLOWS),
        stage::<Gate>(FLOWS),
        stage::<Marker>(FLOWS),
        stage::<Keeper>(FLOWS),
        stage::<Teller>(FLOWS),
        stage::<Witness>(FLOWS),
    ]
}

fn bench() -> Bench {
    Bench::new(movers(), Options { flows_max: FLOWS, seed: SEED, ..Options::default() })
}

fn live(graph: &Graph) -> Vec<u32> {
    let records = graph.flows().records();
    records.used().filter(|&record| records.header(record).has(RecordHeader::FLAG_LIVE)).collect()
}

fn saved(graph: &mut Graph, record: u32) -> Vec<u8> {
    let mut saved = vec![];
    graph.flows_mut().save(record, &mut saved);
    saved
}

/// The first flow's bytes.
fn first(bench: &mut Bench) -> Vec<u8> {
    let record = live(&bench.graph)[0];
    saved(&mut bench.graph, record)
}

/// Moves all flows.
fn move_all(from: &mut Bench, to: &mut Bench) {
    for record in live(&from.graph) {
        let bytes = saved(&mut from.graph, record);
        let there = to.graph.flows_mut().restore(&bytes, &mut to.pool).unwrap();
        assert_eq!(saved(&mut to.graph, there).len(), bytes.len());
        from.graph.flows_mut().release(record);
    }
}

/// The outcome seen from outside: packets in order, then the rest. Numbers of packets are each
/// graph's own, and so is the order in which flows end that expire at once.
fn seen(benches: &mut [Bench]) -> Vec<String> {
    let (mut sent, mut seen) = (vec![], vec![]);
    for bench in benches {
        sent.extend(bench.sent.drain(..).map(|(_, side, bytes)| format!("{side:?} {bytes:02x?}")));
        seen.extend(bench.alerts.drain(..).map(|alert| format!("{:?}", nf::Alert { sequence: 0, ..alert })));
        seen.extend(bench.reports.drain(..).map(|report| format!("{report:?}")));
    }
    seen.sort();
    sent.append(&mut seen);
    sent
}

/// All flows' bytes without their streams' links, by content.
fn flows(graph: &mut Graph) -> Vec<Vec<u8>> {
    let mut flows: Vec<_> = live(graph).into_iter().map(|record| saved(graph, record)).collect();
    flows.sort();
    flows
}

fn is_fragment(arrival: &Arrival) -> bool {
    let network = &arrival.network;
    network[0] >> 4 == 4 && (network[6] & 0x3f, network[7]) != (0, 0)
}

proptest! {
    // Fragments that wait are no flow's yet, and do not move with one.
    #[test]
    fn moved_anywhere_is_never_moved(
        arrivals in traffic(60),
        moves in prop::collection::vec(prop::bool::weighted(0.4), 300),
    ) {
        let (mut stays, mut moving) = ([bench()], [bench(), bench()]);
        let (mut at, mut latest_ns) = (0, 0);
        let arrivals: Vec<_> = arrivals.into_iter().filter(|arrival| !is_fragment(arrival)).collect();
        for (arrival, moves) in arrivals.iter().zip(moves.into_iter().cycle()) {
            latest_ns = latest_ns.max(arrival.at_ns);
            stays[0].batch(std::slice::from_ref(arrival));
            moving[at].batch(std::slice::from_ref(arrival));
            prop_assert_eq!(seen(&mut moving), seen(&mut stays));
            if moves {
                let [one, other] = &mut moving;
                let (from, to) = if at == 0 { (one, other) } else { (other, one) };
                to.advance(latest_ns);
                move_all(from, to);
                at = 1 - at;
                prop_assert_eq!(live(&moving[1 - at].graph), [0; 0]);
            }
        }
        let ended = |bench: &Bench, reason| bench.graph.counters().ended(reason);
        for reason in [EndReason::Idle, EndReason::Closed, EndReason::Rejected, EndReason::Evicted] {
            let both: u64 = moving.iter().map(|bench| ended(bench, reason)).sum();
            prop_assert_eq!(both, ended(&stays[0], reason));
        }
        prop_assert_eq!(moving[at].graph.counters().flows_live, stays[0].graph.counters().flows_live);
    }

    #[test]
    fn damaged_bytes_are_refused_and_leave_nothing(
        at in any::<prop::sample::Index>(),
        cut in prop::bool::ANY,
        flip in 1u8..=255,
    ) {
        let (mut here, mut there) = (bench(), bench());
        talk(&mut here);
        let mut bytes = first(&mut here);
        let at = at.index(bytes.len());
        if cut { bytes.truncate(at) } else { bytes[at] ^= flip }
        match there.graph.flows_mut().restore(&bytes, &mut there.pool) {
            // Not every byte can be told to be wrong.
            Ok(record) => there.graph.flows_mut().release(record),
            Err(_) => prop_assert_eq!(live(&there.graph), [0; 0]),
        }
        there.advance(START_NS + 1);
        talk(&mut there);
        prop_assert_eq!(there.graph.counters().flows_live, 1);
    }
}

/// One flow of which something waits in each place where something can.
fn talk(bench: &mut Bench) {
    let (inside, outside) = (v4(10, 0, 0, 1, 1000), v4(192, 0, 2, 1, 53));
    let segments = [(0x02u8, 0u32, vec![]), (0x10, 1, vec![0; 3]), (0x10, 9, vec![0, 7])];
    for (number, (flags, sequence, payload)) in segments.into_iter().enumerate() {
        let network = tcp_segment(inside, outside, flags, [sequence, 0], &payload);
        bench.batch(&[Arrival { at_ns: START_NS + number as u64, side: Side::Inside, network }]);
    }
}

fn key() -> (FlowKey, bool) {
    FlowKey::new(v4(10, 0, 0, 1, 1000), v4(192, 0, 2, 1, 53), 6, 4, Default::default(), 0)
}

#[test]
fn a_flow_is_found_where_it_went_and_no_longer_where_it_was() {
    let (mut here, mut there) = (bench(), bench());
    talk(&mut here);
    let (key, reversed) = key();
    let hash = FlowHasher::new(SEED).hash(&key);
    let record = here.graph.flows().find(hash, &key, reversed).unwrap();
    let bytes = saved(&mut here.graph, record);
    let moved = there.graph.flows_mut().restore(&bytes, &mut there.pool).unwrap();
    assert_eq!(there.graph.flows().find(hash, &key, reversed), Some(moved));
    assert_eq!(flows(&mut there.graph), flows(&mut here.graph));
    assert_eq!(there.graph.flows_mut().restore(&bytes, &mut there.pool), Err(RestoreError::Known));
    here.graph.flows_mut().release(record);
    assert_eq!(here.graph.flows().find(hash, &key, reversed), None);
    let (here, there) = (here.graph.counters(), there.graph.counters());
    assert_eq!((here.flows_moved_out, here.flows_live), (1, 0));
    assert_eq!((there.flows_moved_in, there.flows_live, there.flows_started), (1, 1, 0));
}

#[test]
fn a_flow_of_another_graph_is_refused() {
    let mut here = bench();
    talk(&mut here);
    let bytes = first(&mut here);
    let mut other = Bench::new(vec![stage::<Gate>(FLOWS)], Options::default());
    assert_eq!(other.graph.flows_mut().restore(&bytes, &mut other.pool), Err(RestoreError::OtherChain));
    assert_eq!(other.graph.flows_mut().restore(&bytes[..3], &mut other.pool), Err(RestoreError::Damaged));
}

#[test]
fn a_full_table_does_as_it_does_with_new_flows() {
    let mut here = bench();
    talk(&mut here);
    let bytes = first(&mut here);
    for (when_full, expected) in
        [(WhenFull::RefuseNew, Err(RestoreError::TableFull)), (WhenFull::EvictOldest, Ok(0))]
    {
        let options = Options { flows_max: 1, when_full, seed: SEED, ..Options::default() };
        let mut full = Bench::new(movers(), options);
        let other = udp(v4(10, 0, 0, 9, 9), v4(192, 0, 2, 9, 9), &[0]);
        full.batch(&[Arrival { at_ns: START_NS, side: Side::Inside, network: other }]);
        assert_eq!(full.graph.flows_mut().restore(&bytes, &mut full.pool), expected);
        if expected.is_ok() {
            let again = full.graph.flows_mut().restore(&bytes, &mut full.pool);
            assert_eq!(again, Err(RestoreError::Known), "nothing goes for a flow that does not come");
        }
        full.advance(START_NS);
        assert_eq!(full.graph.counters().flows_live, 1);
    }
}

#[test]
fn a_flow_that_comes_and_goes_takes_nothing_with_every_visit() {
    let mut here = bench();
    talk(&mut here);
    let bytes = first(&mut here);
    let streams = StreamOptions { memory: 4096, ..StreamOptions::default() };
    let mut there = Bench::new(movers(), Options { streams, seed: SEED, ..Options::default() });
    for _ in 0..1000 {
        let record = there.graph.flows_mut().restore(&bytes, &mut there.pool).unwrap();
        assert_eq!(first(&mut there), bytes);
        there.graph.flows_mut().release(record);
    }
}

#[test]
#[should_panic(expected = "a record without a flow is released")]
fn a_flow_is_released_once() {
    let mut here = bench();
    talk(&mut here);
    let record = live(&here.graph)[0];
    here.graph.flows_mut().release(record);
    here.graph.flows_mut().release(record);
}
