//! The owner of each flow: handovers, moves and ends.

mod aliases;
mod group_moves;
mod recovery;
mod reports;
mod view;

use nf::AffinityGroup;
use packet::FlowKey;

use crate::message::{Epoch, FlowId, FromDispatcher, ReplicaTargets, Stamp, UnitId};
use crate::trace::{EventSink, FlowPlace, TimelineEvent};

use crate::dispatcher::config::{Config, DispatcherError, TargetChoice};
use crate::dispatcher::demand::Demand;
use crate::dispatcher::flow::{Flow, TargetList};
use crate::dispatcher::flows::{FlowGuess, Flows};
use crate::dispatcher::groups::Groups;
use crate::dispatcher::lost_flows::LostFlows;
use crate::dispatcher::output::{DispatcherOutput, PacketArrival};
use crate::dispatcher::step::Step;
use crate::dispatcher::units::{UnitState, Units};

pub use aliases::Aliases;
pub(crate) use recovery::sound_target;
pub use view::{FlowStatus, OwnersView};

/// The live flows, and the unit that owns each.
pub(crate) struct Owners {
    flows: Flows,
    /// `None` if all flows may be anywhere.
    groups: Option<Groups>,
    /// The rates of flowlets so far.
    demand: Demand,
    lost: LostFlows,
    /// Number of flows that each unit owns.
    counts: Vec<u32>,
    /// Silence after which a flow may end for a new one, in ns; `None` if none may.
    displaced_after_ns: Option<u64>,
    /// Units that are to have replicas of each flow for as long as it lasts; `None` if flows have
    /// none, or other ones in each flowlet.
    wanted: Option<usize>,
    /// Units have replicas of flows of others.
    has_replicas: bool,
    trace: EventSink,
}

/// A flowlet that begins, before a unit is chosen for it.
#[derive(Clone, Copy)]
pub(crate) struct NextFlowlet {
    /// The owner so far.
    pub owner: UnitId,
    /// The rate that is expected of it, in bits per second.
    pub estimate_bps: f32,
    /// The targets of the flow's replicas so far.
    pub targets: TargetList,
}

impl Owners {
    /// Creates the table of flows; there are none.
    ///
    /// # Errors
    ///
    /// If there is no memory for the table.
    pub fn new(config: &Config) -> Result<Owners, DispatcherError> {
        Ok(Owners {
            flows: Flows::new(config.flows_max)?,
            groups: config.affinity_groups.map(Groups::new),
            demand: Demand::new(config),
            lost: LostFlows::default(),
            counts: vec![0; usize::from(config.units_max)],
            displaced_after_ns: config.displaced_after_ns(),
            wanted: config.lasting_targets(),
            has_replicas: config.targets != TargetChoice::None,
            trace: EventSink::default(),
        })
    }

    /// Notes in a timeline what happens from now on.
    pub fn set_trace(&mut self, trace: EventSink) {
        self.trace = trace;
    }

    /// Returns the table of flows.
    #[inline(always)]
    pub fn flows(&self) -> &Flows {
        &self.flows
    }

    /// Returns the affinity groups; `None` if all flows may be anywhere.
    #[inline]
    pub fn groups(&self) -> Option<&Groups> {
        self.groups.as_ref()
    }

    /// Returns the group of the flow with this index.
    #[inline]
    pub fn group_of(&self, index: u32) -> Option<AffinityGroup> {
        self.groups.as_ref()?.of_flow(index)
    }

    /// Returns the number of flows that a unit owns; 0 if there is no such unit.
    pub fn count_of(&self, unit: UnitId) -> u32 {
        self.counts.get(unit.index()).copied().unwrap_or(0)
    }

    /// Returns the lost flows, to be taken.
    pub fn lost_flows(&mut self) -> &mut LostFlows {
        &mut self.lost
    }

    /// Returns a guessed flow if it has this key or alias, so that its next packet can be numbered.
    #[inline(always)]
    pub fn find_guessed(&mut self, guess: FlowGuess, key: &FlowKey) -> Option<&mut Flow> {
        self.flows.find_guessed(guess, key)
    }

    /// Predicts whether packets to come begin flowlets: see [`Flows::expect_flowlets`].
    pub fn expect_flowlets(&mut self, flowlets: u64, packets: u64) {
        self.flows.expect_flowlets(flowlets, packets);
    }

    /// Numbers and stamps a packet of this length for the flow's owner; `targets` if it begins a
    /// flowlet.
    #[inline(always)]
    pub fn number(
        &mut self,
        now_ns: u64,
        index: u32,
        len: u32,
        targets: Option<ReplicaTargets>,
    ) -> (UnitId, Stamp) {
        let flow = self.flows.get_mut(index);
        flow.number(now_ns, flow.bytes_with(len));
        (flow.owner(), flow.stamp(index, targets))
    }

    /// Makes room for another flow if the table is full, by ending a flow that was silent for long
    /// enough. Returns false if there is none.
    pub fn make_room(&mut self, units: &Units, step: &mut Step<'_>) -> bool {
        if self.flows.is_full()
            && let Some(silent_ns) = self.displaced_after_ns
            && let Some(victim) = self.flows.victim(step.now_ns(), silent_ns)
        {
            step.counters().flows_displaced += 1;
            self.end(victim, units, step);
        }
        !self.flows.is_full()
    }

    /// Returns the rate that is expected of a new flow, in bits per second.
    pub fn estimate_of_new_bps(&self) -> f32 {
        self.demand.of_new_flow_bps()
    }

    /// Creates the flow of this packet at a unit. Returns its index; `None` if the table is full.
    pub fn create(
        &mut self,
        now_ns: u64,
        arrival: &PacketArrival<'_>,
        group: Option<AffinityGroup>,
        owner: UnitId,
    ) -> Option<u32> {
        let index = self.flows.create(arrival.hash, arrival.key, owner, now_ns)?;
        self.flows.get_mut(index).begin_flowlet(self.demand.of_new_flow_bps());
        if let Some((groups, group)) = self.groups.as_mut().zip(group) {
            groups.add(index, group, owner);
        }
        self.counts[owner.index()] += 1;
        let place = FlowPlace::of(self.flows.id(index));
        self.trace.note(now_ns, place, None, TimelineEvent::FlowBegan { unit: owner, key: *arrival.key });
        if let Some(group) = self.group_of(index) {
            self.trace.note(now_ns, place, None, TimelineEvent::GroupJoined { group: group.0 });
        }
        Some(index)
    }

    /// Begins a flowlet of a known flow: measures the past one, and estimates the next one.
    #[inline]
    pub fn begin_flowlet(&mut self, now_ns: u64, index: u32) -> NextFlowlet {
        let (flow, flowlet) = self.flows.both_mut(index);
        let estimate_bps = self.demand.of_next_bps(now_ns, flow, flowlet);
        flow.begin_flowlet(estimate_bps);
        flowlet.begin(now_ns);
        NextFlowlet { owner: flow.owner(), estimate_bps, targets: *flowlet.targets() }
    }

    /// Sets the targets of the replicas of the flow's present flowlet.
    #[inline]
    pub fn set_targets(&mut self, index: u32, targets: TargetList) {
        self.flows.both_mut(index).1.set_targets(targets);
    }

    /// Returns the flowlet's targets that are still active, to be replicated to at once; `None` if
    /// there are none. One may be the owner by now, if the flow's unit was drained.
    #[cold]
    pub fn targets_at_once(&self, index: u32, units: &Units) -> Option<ReplicaTargets> {
        let owner = self.flows.get(index).owner();
        let list = self.flows.flowlet(index).targets();
        let targets = match list.is_all() {
            true => ReplicaTargets::ALL,
            false => ReplicaTargets::of_distinct(
                list.units().filter(|&unit| unit != owner && units.is_active(unit)),
            ),
        };
        (targets != ReplicaTargets::NONE).then(|| targets.at_once())
    }

    /// Makes another unit the flow's owner, and notifies the previous one (design.md 3.1). Returns
    /// the new epoch; `None`, and nothing has changed, if the epochs are exhausted.
    pub fn hand_over(&mut self, index: u32, to: UnitId, step: &mut Step<'_>) -> Option<Epoch> {
        let (flow, start) = (self.flows.id(index), self.flows.get(index).handover());
        let epoch = self.name_owner(index, to, step)?;
        let (previous, last) = (self.flows.get(index).previous(), self.flows.get(index).last());
        step.send(previous, FromDispatcher::Release { flow, epoch, owner: to, last, start });
        Some(epoch)
    }

    /// Makes another unit the flow's owner. Returns the new epoch; `None`, and nothing has changed,
    /// if the epochs are exhausted.
    fn name_owner(&mut self, index: u32, to: UnitId, step: &mut Step<'_>) -> Option<Epoch> {
        if !self.flows.hand_to(index, to) {
            step.counters().epochs_exhausted += 1;
            return None;
        }
        let (id, flow) = (self.flows.id(index), self.flows.get(index));
        self.counts[flow.previous().index()] -= 1; // It owned that one.
        self.counts[to.index()] += 1;
        let changed = TimelineEvent::OwnerChanged { from: flow.previous(), to };
        self.trace.note(step.now_ns(), FlowPlace::new(id, flow.epoch(), flow.last()), None, changed);
        Some(flow.epoch())
    }

    /// Makes another unit the flow's owner between two packets: it fetches the state at once.
    /// Returns the new epoch; `None`, and nothing has changed, if the epochs are exhausted.
    pub fn hand_over_at_rest(&mut self, index: u32, to: UnitId, step: &mut Step<'_>) -> Option<Epoch> {
        let (flow, live) = (self.flows.id(index), self.flows.get(index));
        let (previous, last) = (live.owner(), live.seq());
        let epoch = self.hand_over(index, to, step)?;
        self.renew_targets(index);
        step.send(to, FromDispatcher::Adopt { flow, epoch, previous, last });
        Some(epoch)
    }

    /// Moves a flow, with its affinity group, to a unit that has not refused it. Returns the number
    /// of flows that move.
    pub fn relocate(&mut self, index: u32, to: UnitId, units: &Units, step: &mut Step<'_>) -> u64 {
        if self.flows.flowlet(index).refusers().contains(to) {
            return 0;
        }
        let before = step.counters().flows_moved;
        match self.group_of(index) {
            Some(group) => self.move_group(group, to, units, step),
            None if self.hand_over_at_rest(index, to, step).is_some() => step.counters().flows_moved += 1,
            None => {}
        }
        step.counters().flows_moved - before
    }

    /// Forgets that a unit refused the flow's state.
    pub fn forget_refuser(&mut self, index: u32, unit: UnitId) {
        self.flows.forget_refuser(index, unit);
    }

    /// Requests replicas at a unit from the owner of a flow, or of all flows of its affinity group.
    pub fn ask_for_replicas(
        &self,
        index: u32,
        to: UnitId,
        outputs: &mut impl Extend<DispatcherOutput>,
        asked: &mut impl Extend<FlowId>,
    ) {
        for index in self.moving_with(index) {
            let (flow, live) = (self.flows.id(index), self.flows.get(index));
            if live.owner() != to {
                let message = FromDispatcher::Replicate { flow, epoch: live.epoch(), to };
                outputs.extend([DispatcherOutput::Send { to: live.owner(), message }]);
                asked.extend([flow]);
            }
        }
    }

    /// Returns the flows that move together with this one: its affinity group, or only itself.
    pub fn moving_with(&self, index: u32) -> impl Iterator<Item = u32> + '_ {
        let group = self.groups.as_ref().and_then(|groups| Some((groups, groups.of_flow(index)?)));
        let members = group.into_iter().flat_map(|(groups, group)| groups.flows(group));
        members.chain(group.is_none().then_some(index))
    }

    /// Ends a flow. Notifies its owner, the previous one, and the units that have replicas of this
    /// flowlet. Older replicas elsewhere are worthless, and go with the index's next flow.
    pub fn end(&mut self, index: u32, units: &Units, step: &mut Step<'_>) {
        let message = FromDispatcher::End { flow: self.flows.id(index) };
        let (flow, flowlet) = (self.flows.get(index), self.flows.flowlet(index));
        self.demand.measure(step.now_ns(), flow, flowlet);
        let (owner, targets) = (flow.owner(), *flowlet.targets());
        let before = (flow.epoch() > 1).then(|| flow.previous()).filter(|&unit| !targets.contains(unit));
        step.send(owner, message.clone());
        let mut tell = |to: UnitId| {
            if to != owner && matches!(units.state(to), UnitState::Active | UnitState::Draining) {
                step.send(to, message.clone());
            }
        };
        if targets.is_all() {
            units.all().for_each(&mut tell);
        } else {
            targets.units().chain(before).for_each(&mut tell);
        }
        self.counts[owner.index()] -= 1; // It owned this one.
        let (now_ns, place) = (step.now_ns(), FlowPlace::of(self.flows.id(index)));
        self.trace.note(now_ns, place, None, TimelineEvent::FlowEnded { owner });
        let had_alias = self.flows.alias(index).0.is_some();
        if !self.flows.remove(index) {
            step.counters().indexes_retired += 1;
        }
        if had_alias && self.flows.alias(index).0.is_none() {
            self.trace.note(now_ns, place, None, TimelineEvent::AliasFreed {});
        }
        self.leave_group(index, units, step);
    }
}
