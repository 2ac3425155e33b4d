//! Every order of arrival, for small schedules of owners. The dispatcher's messages to a unit
//! arrive in order, those between units in any order. A packet may be lost on the way, a message
//! may arrive twice, one between units may be lost, and timers may fire before anything arrives.

use std::collections::HashSet;
use std::rc::Rc;

use protocol::message::{FlowId, ReplicaTargets, UnitId};
use protocol::trace::failure::attempt;
use protocol::unit::{Config, Unit};

use crate::common::world::{Flow, Item, World};

const FLOW: FlowId = FlowId { index: 0, generation: 1 };

/// A step of the dispatcher.
#[derive(Clone, Copy)]
enum Step {
    /// This many packets go to this unit.
    Packets(u16, u64),
    /// The owner sends a replica to this unit.
    Ahead(u16),
    /// This unit becomes the owner without a packet.
    Adopt(u16),
    /// The flow ends.
    End,
    /// The flow ends, and another one has its index; this many of its packets go to this unit.
    Next(u16, u64),
}
use Step::{Adopt, Ahead, End, Next, Packets};

/// Faults, and how many of each may happen.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
struct Faults {
    lost: u8,
    twice: u8,
    /// Messages between units that are lost. Their retransmissions arrive after this many.
    mute: u8,
    early: u8,
}

/// Explores all orders; returns the number of different worlds.
fn explore(units: u16, steps: &[Step], copies: ReplicaTargets, faults: Faults) -> usize {
    explore_with(units, steps, copies, false, faults)
}

/// The same; replicas may be deltas.
fn explore_with(units: u16, steps: &[Step], copies: ReplicaTargets, deltas: bool, faults: Faults) -> usize {
    let begin = || begin(units, steps, (copies, deltas), faults);
    let (world, flow, over) = begin();
    let (world, first) = (world.without_timeline(), faults);
    let mut seen = HashSet::from([(world.fingerprint(), faults)]);
    let mut open = vec![(world, faults, None)];
    while let Some((world, faults, way)) = open.pop() {
        if world.wire.is_empty() {
            let live = Some(&flow).filter(|flow| !over.contains(&flow.id));
            check_or_replay((begin, first), &way, &world, |world| check_rest(world.clone(), live, &over));
        }
        for (nth, (next, faults)) in successors(&world, faults, None).into_iter().enumerate() {
            if seen.insert((next.fingerprint(), faults)) {
                let way = Some(Rc::new(Way { before: way.clone(), nth }));
                check_or_replay((begin, first), &way, &next, World::check);
                open.push((next, faults, way));
            }
        }
    }
    seen.len()
}

/// The way to a world: the successor that each step took.
struct Way {
    before: Option<Rc<Way>>,
    nth: usize,
}

/// Checks a world. If that fails, goes the way to it again, for the timeline.
#[allow(clippy::panic, reason = "a test fails by panicking")]
fn check_or_replay(
    (begin, faults): (impl Fn() -> (World, Flow, Vec<FlowId>), Faults),
    way: &Option<Rc<Way>>,
    world: &World,
    check: impl Fn(&World),
) {
    let Err(message) = attempt(|| check(world)) else { return };
    let steps = std::iter::successors(way.as_ref(), |way| way.before.as_ref()).map(|way| way.nth);
    let (mut world, ..) = begin();
    let mut faults = faults;
    for nth in steps.collect::<Vec<_>>().into_iter().rev() {
        (world, faults) = successors(&world, faults, Some(nth)).remove(0);
    }
    let _ = attempt(|| check(&world)); // It may let the world go on.
    panic!("{message}");
}

/// Returns the first world, the flow at the end of the schedule, and flows that end before.
fn begin(
    units: u16,
    steps: &[Step],
    (copies, deltas): (ReplicaTargets, bool),
    faults: Faults,
) -> (World, Flow, Vec<FlowId>) {
    let mut world = World::new(units, |id| Config {
        deltas,
        replicate_after_ns: (copies != ReplicaTargets::NONE).then_some(150),
        reorder_timeout_ns: 100,
        retransmit_ns: if faults.mute + faults.early > 0 { 1_000 } else { u64::MAX },
        ..Config::new(id)
    });
    let mut flow = Flow::new(FLOW, UnitId(0));
    let mut over = Vec::new();
    for step in steps {
        match *step {
            Packets(owner, packets) => {
                flow.release_to(UnitId(owner), &mut world);
                (0..packets).for_each(|_| flow.packet(copies, &mut world));
            }
            Ahead(to) => flow.copy_to(UnitId(to), &mut world),
            Adopt(owner) => {
                flow.release_to(UnitId(owner), &mut world);
                flow.adopt(&mut world);
            }
            End => {
                flow.end(copies, &mut world);
                over.push(flow.id);
            }
            Next(owner, packets) => {
                flow.end(copies, &mut world);
                over.push(flow.id);
                let id = FlowId { generation: flow.id.generation + 1, ..flow.id };
                flow = Flow::new(id, UnitId(owner));
                (0..packets).for_each(|_| flow.packet(copies, &mut world));
            }
        }
    }
    (world, flow, over)
}

/// Returns all worlds that may follow, or only the one with this number.
fn successors(world: &World, faults: Faults, only: Option<usize>) -> Vec<(World, Faults)> {
    let (mut next, mut number) = (Vec::new(), 0);
    let mut go = |faults: Faults, act: &dyn Fn(&mut World)| {
        if only.is_none_or(|only| only == number) {
            let mut world = world.clone();
            act(&mut world);
            next.push((world, faults));
        }
        number += 1;
    };
    for (at, parcel) in world.wire.iter().enumerate() {
        if parcel.from.is_none() && !world.is_first(at) {
            continue;
        }
        go(faults, &|world| world.deliver(at, false));
        match parcel.item {
            Item::Packet(..) if faults.lost > 0 => {
                let faults = Faults { lost: faults.lost - 1, ..faults };
                go(faults, &|world| lose(world, at));
            }
            Item::Message(_) if faults.twice > 0 => {
                let faults = Faults { twice: faults.twice - 1, ..faults };
                go(faults, &|world| world.deliver(at, true));
            }
            _ => {}
        }
        match parcel.item {
            Item::Message(_) if parcel.from.is_some() && faults.mute > 0 => {
                let faults = Faults { mute: faults.mute - 1, ..faults };
                go(faults, &|world| lose(world, at));
            }
            _ => {}
        }
    }
    let is_early = !world.wire.is_empty() && world.next_timeout_ns() > AGAIN_NS;
    if world.next_timeout_ns() != u64::MAX && (!is_early || faults.early > 0) {
        let faults = Faults { early: faults.early - u8::from(is_early), ..faults };
        go(faults, &|world| world.handle_timeout(world.next_timeout_ns()));
    }
    next
}

fn lose(world: &mut World, at: usize) {
    let parcel = world.wire.remove(at);
    world.note_lost(&parcel);
}

/// Deadlines later than this are those of retransmissions: all others are shorter.
const AGAIN_NS: u64 = 1_000;

/// Nothing is lost from here on, so everything must complete. Ended flows have ended once, where
/// their states were.
fn check_rest(mut world: World, live: Option<&Flow>, over: &[FlowId]) {
    world.settle();
    over.iter().for_each(|&flow| world.check_ended(flow));
    if let Some(flow) = live {
        let lost = world.check_end(flow);
        let given_up: u64 = world.units.iter().map(|unit| unit.counters().given_up).sum();
        assert!(lost == given_up || !over.is_empty() && lost < given_up);
    }
    let here: usize = world.units.iter().map(Unit::flows).sum();
    assert_eq!(here, live.iter().count(), "something waits forever");
}

fn report(name: &str, worlds: usize) {
    println!("{name}: {worlds} worlds");
    assert!(worlds > 100);
}

const NONE: Faults = Faults { lost: 0, twice: 0, mute: 0, early: 0 };

#[test]
fn a_flow_goes_to_another_unit() {
    let faults = Faults { lost: 2, twice: 1, ..NONE };
    report("to another", explore(2, &[Packets(0, 2), Packets(1, 2)], ReplicaTargets::ALL, faults));
}

#[test]
fn a_flow_comes_back() {
    let steps = [Packets(0, 2), Packets(1, 1), Packets(0, 1)];
    report("back", explore(2, &steps, ReplicaTargets::NONE, Faults { lost: 1, twice: 1, ..NONE }));
    let steps = [Packets(0, 1), Packets(1, 1), Packets(0, 1)];
    report("back, with copies", explore(2, &steps, ReplicaTargets::ALL, NONE));
}

#[test]
fn states_are_copied_before_they_move() {
    let steps = [Packets(0, 2), Ahead(1), Packets(0, 1), Packets(1, 1)];
    report("copied", explore(2, &steps, ReplicaTargets::NONE, Faults { lost: 1, twice: 1, ..NONE }));
    report(
        "copied, lost messages",
        explore(2, &steps, ReplicaTargets::NONE, Faults { mute: 1, early: 1, ..NONE }),
    );
    let steps = [Packets(0, 2), Ahead(1), Packets(0, 1), Adopt(1), Ahead(0), Packets(0, 1)];
    report("copied, back", explore(2, &steps, ReplicaTargets::NONE, Faults { twice: 1, ..NONE }));
    let steps = [Packets(0, 2), Ahead(1), Packets(2, 1), Packets(1, 1)];
    report("copied, on", explore(3, &steps, ReplicaTargets::NONE, Faults { twice: 1, ..NONE }));
    let steps = [Packets(0, 2), Ahead(1), Packets(0, 1), Packets(1, 1), End];
    report("copied, ends", explore(2, &steps, ReplicaTargets::ALL, NONE));
}

#[test]
fn copies_tell_what_has_changed() {
    let steps = [Packets(0, 2), Packets(1, 1)];
    let faults = Faults { twice: 1, ..NONE };
    report("changes", explore_with(2, &steps, ReplicaTargets::ALL, true, faults));
    let faults = Faults { mute: 1, early: 1, ..NONE };
    report("changes, lost messages", explore_with(2, &steps, ReplicaTargets::ALL, true, faults));
    let steps = [Packets(0, 2), Packets(1, 1), Packets(0, 1)];
    report("changes, and back", explore_with(2, &steps, ReplicaTargets::ALL, true, NONE));
}

#[test]
fn a_flow_goes_on_before_it_has_come() {
    let steps = [Packets(0, 2), Packets(1, 1), Packets(2, 1)];
    report("on", explore(3, &steps, ReplicaTargets::NONE, Faults { lost: 1, twice: 1, ..NONE }));
    let mut last = ReplicaTargets::NONE;
    last.add(UnitId(2));
    let steps = [Packets(0, 1), Packets(1, 1), Packets(2, 1)];
    report("on, with copies", explore(3, &steps, last, NONE));
}

#[test]
fn a_flow_has_four_owners() {
    let steps = [Packets(0, 1), Packets(1, 1), Packets(0, 1), Packets(2, 1)];
    report("four owners", explore(3, &steps, ReplicaTargets::NONE, Faults { lost: 1, twice: 0, ..NONE }));
    let steps = [Packets(0, 1), Packets(1, 1), Packets(0, 1), Packets(1, 1)];
    report("to and fro", explore(2, &steps, ReplicaTargets::NONE, Faults { lost: 1, twice: 0, ..NONE }));
}

#[test]
fn a_flow_is_adopted() {
    let steps = [Packets(0, 1), Adopt(1), Packets(0, 1)];
    report("adopted", explore(2, &steps, ReplicaTargets::ALL, Faults { lost: 1, twice: 0, ..NONE }));
    let steps = [Packets(0, 1), Adopt(1), Adopt(2), Packets(1, 1)];
    report("adopted twice", explore(3, &steps, ReplicaTargets::NONE, Faults { lost: 1, twice: 0, ..NONE }));
}

#[test]
fn messages_between_units_are_lost() {
    let faults = Faults { lost: 1, mute: 1, early: 1, ..NONE };
    report("lost messages", explore(2, &[Packets(0, 2), Packets(1, 2)], ReplicaTargets::ALL, faults));
    let steps = [Packets(0, 1), Packets(1, 1), Packets(0, 1)];
    report(
        "lost on the way back",
        explore(2, &steps, ReplicaTargets::NONE, Faults { mute: 1, early: 1, ..NONE }),
    );
    let steps = [Packets(0, 1), Packets(1, 1), Packets(2, 1)];
    report("lost on the way", explore(3, &steps, ReplicaTargets::NONE, Faults { mute: 2, early: 1, ..NONE }));
}

#[test]
fn a_flow_ends_while_its_state_is_on_its_way() {
    let faults = Faults { lost: 1, twice: 1, ..NONE };
    report("ends", explore(2, &[Packets(0, 2), Packets(1, 1), End], ReplicaTargets::ALL, faults));
    let steps = [Packets(0, 1), Packets(1, 1), Packets(0, 1), End];
    report("ends, back", explore(2, &steps, ReplicaTargets::NONE, Faults { lost: 1, ..NONE }));
    let steps = [Packets(0, 1), Packets(1, 1), Packets(2, 1), End];
    report("ends, on", explore(3, &steps, ReplicaTargets::NONE, Faults { lost: 1, ..NONE }));
    let faults = Faults { mute: 1, early: 1, ..NONE };
    report(
        "ends, lost messages",
        explore(2, &[Packets(0, 2), Packets(1, 1), End], ReplicaTargets::ALL, faults),
    );
}

#[test]
fn a_flow_ends_once_although_its_index_has_another() {
    let steps = [Packets(0, 1), Packets(1, 1), Next(1, 1)];
    report("next", explore(2, &steps, ReplicaTargets::ALL, NONE));
    report("next, lost messages", explore(2, &steps, ReplicaTargets::ALL, Faults { mute: 1, ..NONE }));
    let steps = [Packets(0, 1), Next(1, 1), Packets(0, 1)];
    report("next, elsewhere", explore(2, &steps, ReplicaTargets::ALL, Faults { lost: 1, twice: 1, ..NONE }));
}
