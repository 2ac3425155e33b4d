//! The invariants of design.md 3.10, as questions about one state of the model.

use std::collections::BTreeSet;

use protocol::dispatcher::FlowStatus;
use protocol::message::FlowId;

use crate::common::world::World;
use crate::network::Handover;
use crate::situation::Situation;

/// Deliveries and timers within which everything must have ended.
const STEPS_MAX: u32 = 5_000;

/// No two units own a flow in the same epoch.
pub fn one_writer(world: &World) -> bool {
    let mut owners = BTreeSet::new();
    flows(world).into_iter().all(|flow| {
        let epochs = world.units.iter().filter_map(|unit| unit.owned(flow));
        epochs.into_iter().all(|(epoch, _)| owners.insert((flow, epoch)))
    })
}

/// No packet is processed at two units, or twice at one.
pub fn at_most_once(world: &World) -> bool {
    let mut seen = BTreeSet::new();
    world.units.iter().flat_map(|unit| &unit.engine().processed).all(|packet| seen.insert(packet))
}

/// An owner's state lists everything that was processed anywhere, up to its watermark, in order;
/// except what was lost with a unit.
pub fn states_are_whole(world: &World) -> bool {
    flows(world).into_iter().all(|flow| {
        let processed = processed(world, flow);
        world.units.iter().all(|unit| {
            let Some((_, mark)) = unit.owned(flow) else { return true };
            let state = unit.engine().state(flow);
            state.iter().eq(world.lasting(flow, state, processed.range(..=mark.contiguous)))
        })
    })
}

/// A unit processed packets of an epoch that began with another unit's state.
pub fn has_moved(world: &World) -> bool {
    world.units.iter().any(|unit| {
        let engine = unit.engine();
        engine.states.iter().any(|(flow, state)| {
            let is_here = |seq: u64| engine.processed.contains(&(*flow, seq));
            state.first().is_some_and(|first| !is_here(*first))
                && state.last().is_some_and(|last| is_here(*last))
        })
    })
}

/// Once the network has no more faults, everything arrives, and all timers have fired: nothing is
/// pending, each flow that the dispatcher knows is at its owner, nothing else is anywhere, and
/// packets that were not processed were given up. A flow that is nowhere continues or ends with its
/// next packet.
pub fn everything_ends(model: &Handover, situation: &Situation) -> bool {
    let Some(mut end) = settled(model, situation.clone()) else { return false };
    let mut nowhere = end.flows(model);
    nowhere.retain(|flow| end.world.units.iter().all(|unit| unit.owned(flow.flow).is_none()));
    if !nowhere.is_empty() {
        nowhere.iter().for_each(|flow| end.packet(model, &flow.key));
        let Some(settled) = settled(model, end) else { return false };
        end = settled;
    }
    let flows = end.flows(model);
    let is_clean = end.world.units.iter().all(|unit| {
        let here = flows.iter().filter(|flow| unit.owned(flow.flow).is_some()).count();
        unit.pending() == 0 && unit.flows() == here && unit.engine().states.len() == here
    });
    let given_up: u64 = end.world.units.iter().map(|unit| unit.counters().given_up).sum();
    let is_complete = || flows.iter().all(|flow| is_complete(&end.world, flow));
    flows.iter().all(|flow| is_at_owner(&end.world, flow))
        && is_clean
        && (!model.is_patient || given_up == 0 && is_complete())
}

/// The owner has the state, in the latest epoch.
fn is_at_owner(world: &World, flow: &FlowStatus) -> bool {
    world.units[flow.owner.index()].owned(flow.flow).is_some_and(|(epoch, _)| epoch == flow.epoch)
}

/// Every packet of the flow was processed.
fn is_complete(world: &World, flow: &FlowStatus) -> bool {
    processed(world, flow.flow).into_iter().eq(1..=flow.packets)
}

/// Delivers everything, and lets time pass until nothing is left to do; `None` if that has no end.
fn settled(model: &Handover, mut end: Situation) -> Option<Situation> {
    for _ in 0..STEPS_MAX {
        if !end.world.wire.is_empty() {
            end.arrive(model, 0, false);
        } else if !end.world.to_dispatcher.is_empty() {
            end.report(model, 0);
        } else if end.world.next_timeout_ns() != u64::MAX {
            end.world.handle_timeout(end.world.next_timeout_ns());
        } else {
            return Some(end);
        }
    }
    None
}

/// Returns the flows with a state at some unit.
fn flows(world: &World) -> BTreeSet<FlowId> {
    world.units.iter().flat_map(|unit| unit.engine().states.keys().copied()).collect()
}

/// Returns the packets of a flow that were processed anywhere.
fn processed(world: &World, flow: FlowId) -> BTreeSet<u64> {
    let all = world.units.iter().flat_map(|unit| &unit.engine().processed);
    all.filter(|(of, _)| *of == flow).map(|(_, seq)| *seq).collect()
}
