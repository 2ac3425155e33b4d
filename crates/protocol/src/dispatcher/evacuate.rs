//! Evacuation: flows of draining units move to others, without waiting for packets.
//!
//! With [pre-copy](crate::dispatcher::Config::pre_copy), replicas of flows that had packets of late
//! go to their next owners first. Once they are there, the flows move, and only what has changed
//! since has to follow. Until then packets of their flowlets go to their old owners. Silent flows
//! move at once: few of them have a packet while their states travel, and replicas cost more. Some
//! of them are copied anyway, as samples of the time that states take. More flows are taken at a
//! time as long as the replicas arrive soon, and fewer if they take long: links and units are then
//! busy, and packets of flows that move would wait.

use crate::dispatcher::config::UnitChoice;
use crate::dispatcher::evacuation::{COPIES_MIN, Evacuation};
use crate::dispatcher::machine::{Dispatcher, DispatcherOutput};
use crate::dispatcher::units::UnitState;
use crate::message::{FlowId, FromDispatcher, UnitId};

/// Indexes searched per bucket of the load meter for flows of draining units.
pub const FLOWS_SCANNED_PER_BUCKET: u32 = 65_536;

/// Limit on the flows of draining units moved per bucket of the load meter. The last affinity group
/// moves as a whole, even beyond it.
pub const MOVES_PER_BUCKET: u32 = 4096;

/// Buckets of the load meter after which flows move although their replicas have not come: they may
/// be lost, or too large for the unit.
const COPY_PATIENCE_BUCKETS: u64 = 100;

/// Buckets of the load meter within which replicas have come soon: more flows are taken at a time.
const SOON_BUCKETS: u64 = 20;

/// Buckets of the load meter after which replicas have come late: fewer flows are taken at a time.
const LATE_BUCKETS: u64 = 40;

/// Buckets of the load meter without a packet after which a flow is silent. States travel for a
/// tenth of that, so one in ten such flows, at most, has a packet in the meantime.
const SILENT_BUCKETS: u64 = 10 * SOON_BUCKETS;

/// One of this many flows that a bucket finds is copied ahead even if it is silent. At least one of
/// the least number of flows that are taken at a time.
const SAMPLED_OF: u32 = COPIES_MIN;

impl Dispatcher {
    /// Moves flows of draining units: up to [`MOVES_PER_BUCKET`] of the next
    /// [`FLOWS_SCANNED_PER_BUCKET`] indexes.
    pub(crate) fn evacuate(&mut self, now_ns: u64, outputs: &mut Vec<DispatcherOutput>) {
        if !self.move_copied(now_ns, outputs) {
            return;
        }
        let (mut scans_left, mut moves_left) = (
            FLOWS_SCANNED_PER_BUCKET.min(self.flows.used()),
            if self.config.pre_copy { self.evacuation.copies_max } else { MOVES_PER_BUCKET },
        );
        let mut found_count = 0;
        loop {
            let Some(unit) = self.draining().find(|&unit| self.units.flows(unit) > 0) else { return };
            while self.units.flows(unit) > 0 {
                if scans_left == 0 || moves_left == 0 {
                    return;
                }
                let from = if self.evacuation.hand < self.flows.used() { self.evacuation.hand } else { 0 };
                let until = self.flows.used().min(from + scans_left);
                let found = self.flows.first_of(unit, from..until);
                self.evacuation.hand = found.map_or(until, |index| index + 1);
                scans_left -= self.evacuation.hand - from;
                let Some(index) = found else { continue };
                if self.evacuation.awaited.contains(&self.flows.id(index)) {
                    continue; // With another flow of its group.
                }
                let is_sample = found_count % SAMPLED_OF == 0;
                found_count += 1;
                // If all active units refused it, the flow stays until its next packet or its end.
                let moved = match self.refuge(index) {
                    Some(to) if self.config.pre_copy && (is_sample || !self.is_silent(now_ns, index)) => {
                        self.copy_ahead(now_ns, index, to, outputs)
                    }
                    Some(to) => self.relocate(index, to, outputs),
                    None => 0,
                };
                moves_left = moves_left.saturating_sub(u32::try_from(moved.max(1)).unwrap_or(u32::MAX));
            }
        }
    }

    /// Returns true if flows stay at a unit during a flowlet until their states have been copied.
    #[cold]
    pub(crate) fn leaves_with_copy(&self, unit: UnitId) -> bool {
        self.config.pre_copy && self.units.state(unit) == UnitState::Draining
    }

    /// Notes that a replica that was asked for has come.
    pub(crate) fn replicated(&mut self, flow: FlowId, outputs: &mut Vec<DispatcherOutput>) {
        self.evacuation.awaited.remove(&flow);
        outputs.push(DispatcherOutput::Replicated(flow));
    }

    /// Moves the flows whose states were copied. Returns false if replicas are still on their way.
    fn move_copied(&mut self, now_ns: u64, outputs: &mut Vec<DispatcherOutput>) -> bool {
        let Evacuation { copied, awaited, copied_ns, copies_max, .. } = &mut self.evacuation;
        if copied.is_empty() {
            return true;
        }
        let waited_ns = now_ns.saturating_sub(*copied_ns);
        if !awaited.is_empty() && waited_ns < COPY_PATIENCE_BUCKETS.saturating_mul(self.config.bucket_ns) {
            return false;
        }
        let waited_buckets = waited_ns / self.config.bucket_ns;
        if waited_buckets <= SOON_BUCKETS {
            *copies_max = (*copies_max * 2).min(MOVES_PER_BUCKET);
        } else if waited_buckets > LATE_BUCKETS {
            *copies_max = (*copies_max / 2).max(COPIES_MIN);
        }
        awaited.clear();
        for (flow, to) in std::mem::take(copied) {
            let owner = self.flows.live(flow).map(|live| live.owner());
            let is_draining = owner.is_some_and(|owner| self.units.state(owner) == UnitState::Draining);
            if is_draining && self.units.is_active(to) {
                self.relocate(flow.index, to, outputs);
            }
        }
        true
    }

    /// Returns true if the flow, and all of its affinity group, had no packet of late.
    fn is_silent(&self, now_ns: u64, index: u32) -> bool {
        let silent_ns = self.config.bucket_ns.saturating_mul(SILENT_BUCKETS);
        let is_silent = |index| now_ns.saturating_sub(self.flows.get(index).last_seen_ns) >= silent_ns;
        self.moving_with(index).all(is_silent)
    }

    /// Returns the flow and those that move with it: its affinity group.
    fn moving_with(&self, index: u32) -> impl Iterator<Item = u32> + '_ {
        let group = self.groups.as_ref().and_then(|groups| Some((groups, groups.of_flow(index)?)));
        let members = group.into_iter().flat_map(|(groups, group)| groups.flows(group));
        members.chain(group.is_none().then_some(index))
    }

    /// Asks for replicas of a flow, or of all flows of its affinity group, at the unit to which it
    /// will move. Returns their number.
    fn copy_ahead(
        &mut self,
        now_ns: u64,
        index: u32,
        to: UnitId,
        outputs: &mut Vec<DispatcherOutput>,
    ) -> u64 {
        let flow = self.flows.id(index);
        self.evacuation.copied.push((flow, to));
        self.evacuation.copied_ns = now_ns;
        let before = self.evacuation.awaited.len();
        let mut awaited = std::mem::take(&mut self.evacuation.awaited);
        self.ask_for_replicas(index, to, outputs, &mut awaited);
        self.evacuation.awaited = awaited;
        (self.evacuation.awaited.len() - before) as u64
    }

    /// Asks the owner of a flow, or of all flows of its affinity group, for replicas at a unit.
    pub(crate) fn ask_for_replicas(
        &self,
        index: u32,
        to: UnitId,
        outputs: &mut Vec<DispatcherOutput>,
        asked: &mut impl Extend<FlowId>,
    ) {
        for index in self.moving_with(index) {
            let (flow, live) = (self.flows.id(index), self.flows.get(index));
            if live.owner() != to {
                let message = FromDispatcher::Replicate { flow, epoch: live.epoch, to };
                outputs.push(DispatcherOutput::Send { to: live.owner(), message });
                asked.extend([flow]);
            }
        }
    }

    /// Returns the unit to which a flow of a draining unit moves: the lowest with room, or a near
    /// one that has the state; the next one in turn if flows are spread over all; for a flow of an
    /// affinity group, the one with the fewest groups. `None` if all have refused the flow.
    fn refuge(&mut self, index: u32) -> Option<UnitId> {
        if let Some(groups) = &self.groups
            && let Some(group) = groups.of_flow(index)
        {
            return groups.fewest(group, self.units.active()).filter(|_| !groups.is_moving(group));
        }
        if let Some(rss) = &self.rss {
            return Some(rss.owner(self.flows.hash(index)));
        }
        let refusers = self.flows.flowlet(index).refusers;
        let hidden_bps = self.meter.hide(&refusers);
        let refuge = match self.config.choice {
            UnitChoice::MostUtilised | UnitChoice::LowestId => self.lowest_with_room(index),
            UnitChoice::LeastLoaded | UnitChoice::RoundRobin => self.next_in_turn(),
        };
        self.meter.show(&refusers, hidden_bps);
        refuge
    }

    /// Returns the lowest unit with room for a flow, or a near one that has the state.
    fn lowest_with_room(&self, index: u32) -> Option<UnitId> {
        let chosen = self.assigner.choose_like(
            UnitChoice::LowestId,
            self.meter.loads(),
            self.flows.get(index).estimate_bps,
            self.flows.flowlet(index).targets.units(),
            self.units.active().len(),
        );
        chosen.map(|chosen| chosen.unit)
    }
}
