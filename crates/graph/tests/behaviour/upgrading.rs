//! Flows go on in a graph with newer versions of its functions.

use graph::{Graph, Options, RestoreError};
use nf::record::RecordHeader;
use nf::stage::{Stage, load};
use nf::{Context, Descriptor, NetworkFunction, PacketView, Setup, UpgradeError, Verdict};
use packet::{DropReason, Side};
use values::ConfigError;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::support::bench::{Arrival, Bench};
use crate::support::functions::{BASE, Keeper, Marker, Tally, stage};
use crate::support::packets::{udp, v4};
use crate::support::traffic::START_NS;

const FLOWS: u32 = 16;

const OLD: Descriptor = Descriptor { name: "quota", summary: "Lets five packets of a flow pass.", ..BASE };

/// Counts packets up.
struct Old;

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
struct Seen {
    packets: u16,
}

/// Counts those down that are left, and bytes.
struct New;

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
struct Left {
    bytes: u64,
    packets: u32,
    begun: u32,
}

const QUOTA: u32 = 5;

impl NetworkFunction for Old {
    const DESCRIPTOR: &'static Descriptor = &OLD;
    type State = Seen;
    type Config = ();

    fn new(_: (), _: &mut Setup) -> Result<Old, ConfigError> {
        Ok(Old)
    }

    fn process(&self, _: &mut PacketView<'_>, state: &mut Seen, _: &mut Context<'_>) -> Verdict {
        state.packets += 1;
        if u32::from(state.packets) > QUOTA { Verdict::Drop(DropReason::Policy) } else { Verdict::Forward }
    }
}

impl NetworkFunction for New {
    const DESCRIPTOR: &'static Descriptor = &Descriptor { state_version: 3, ..OLD };
    type State = Left;
    type Config = ();

    fn new(_: (), _: &mut Setup) -> Result<New, ConfigError> {
        Ok(New)
    }

    fn process(&self, packet: &mut PacketView<'_>, state: &mut Left, _: &mut Context<'_>) -> Verdict {
        if state.begun == 0 {
            (state.begun, state.packets) = (1, QUOTA);
        }
        state.bytes += packet.meta().wire_len as u64;
        let Some(left) = state.packets.checked_sub(1) else { return Verdict::Drop(DropReason::Policy) };
        state.packets = left;
        Verdict::Forward
    }

    fn upgrade(from_version: u16, old: &[u8]) -> Result<Left, UpgradeError> {
        match (from_version, Seen::read_from_bytes(old)) {
            (1, Ok(seen)) => {
                Ok(Left { bytes: 0, packets: QUOTA.saturating_sub(seen.packets.into()), begun: 1 })
            }
            _ => Err(UpgradeError { from_version, to_version: 3 }),
        }
    }
}

/// The function between others, which have states, tags and timers of their own.
fn bench<N: NetworkFunction<Config = ()>>() -> Bench {
    let stages: Vec<Box<dyn Stage>> = vec![
        stage::<Marker>(FLOWS),
        load::<N>((), Setup::new(7, FLOWS)).unwrap(),
        stage::<Keeper>(FLOWS),
        stage::<Tally>(FLOWS),
    ];
    Bench::new(stages, Options { flows_max: FLOWS, ..Options::default() })
}

/// Plays n packets of one flow; returns how many of them came out.
fn send(bench: &mut Bench, count: u64, at_ns: u64) -> usize {
    let network = udp(v4(10, 0, 0, 1, 1000), v4(192, 0, 2, 1, 53), &[0]);
    let before = bench.graph.counters().packets_out;
    for number in 0..count {
        let arrival = Arrival { at_ns: at_ns + number, side: Side::Inside, network: network.clone() };
        bench.batch(&[arrival]);
    }
    (bench.graph.counters().packets_out - before) as usize
}

fn saved(graph: &mut Graph) -> Vec<u8> {
    let records = graph.flows().records();
    let live = records.used().find(|&record| records.header(record).has(RecordHeader::FLAG_LIVE)).unwrap();
    let mut bytes = Vec::new();
    graph.flows_mut().save(live, &mut bytes);
    bytes
}

#[test]
fn a_flow_goes_on_where_it_was() {
    let (mut old, mut new) = (bench::<Old>(), bench::<New>());
    assert_eq!(send(&mut old, 3, START_NS), 3);
    let bytes = saved(&mut old.graph);
    assert_eq!(new.graph.flows_mut().restore(&bytes, &mut new.pool), Err(RestoreError::OtherChain));
    new.graph.flows_mut().accept_states_of(old.graph.flows().saved_layout()).unwrap();
    for at in 0..bytes.len() {
        let cut = new.graph.flows_mut().restore(&bytes[..at], &mut new.pool);
        assert!(cut.is_err(), "{at} of {} bytes", bytes.len());
    }
    new.graph.flows_mut().restore(&bytes, &mut new.pool).unwrap();
    assert_eq!(send(&mut new, 4, START_NS + 10), 2, "five pass in all");
    let counters = new.graph.counters();
    assert_eq!((counters.flows_started, counters.flows_moved_in), (0, 1));
    // What the other functions keep came along as it was: the same as if the whole flow had been
    // here.
    let mut whole = bench::<New>();
    send(&mut whole, 3, START_NS);
    send(&mut whole, 4, START_NS + 10);
    let (here, there) = (saved(&mut whole.graph), saved(&mut new.graph));
    let quota = whole.graph.stages()[1].saved_part().unwrap().bytes;
    let prefix = here.len() - whole.graph.flows().record_len();
    let differ: Vec<_> = (0..here.len()).filter(|&at| here[at] != there[at]).collect();
    assert!(differ.iter().all(|at| quota.contains(&(at - prefix))), "{differ:?} outside of {quota:?}");
}

#[test]
fn what_there_is_no_way_from_is_refused() {
    let (mut old, mut new) = (bench::<Old>(), bench::<New>());
    send(&mut new, 1, START_NS);
    let bytes = saved(&mut new.graph);
    // The older one knows no way back.
    old.graph.flows_mut().accept_states_of(new.graph.flows().saved_layout()).unwrap();
    let no_way = UpgradeError { from_version: 3, to_version: 1 };
    assert_eq!(old.graph.flows_mut().restore(&bytes, &mut old.pool), Err(RestoreError::Upgrade(no_way)));
    assert_eq!(old.graph.counters().flows_live, 0);
    let mut other = Bench::new(vec![stage::<Marker>(FLOWS)], Options::default());
    assert_eq!(
        other.graph.flows_mut().accept_states_of(new.graph.flows().saved_layout()),
        Err(RestoreError::OtherChain)
    );
}
