//! Evacuation: flows of draining units move to others, without waiting for packets.
//!
//! With [pre-copy](crate::dispatcher::Config::pre_copy), replicas of the flows that a bucket finds
//! go to their next owners first. Once they are there, the flows move, and only what has changed
//! since has to follow. Until then packets of their flowlets go to their old owners. More flows are
//! copied at a time as long as their replicas arrive within a bucket, and fewer if they take
//! longer: links and units are then busy.

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
                // If all active units refused it, the flow stays until its next packet or its end.
                let moved = match self.refuge(index) {
                    Some(to) if self.config.pre_copy => self.copy_ahead(now_ns, index, to, outputs),
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
        // The timer fires once in a bucket.
        *copies_max = match waited_ns < self.config.bucket_ns.saturating_mul(2) {
            true => (*copies_max * 2).min(MOVES_PER_BUCKET),
            false => (*copies_max / 2).max(COPIES_MIN),
        };
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
        let group = self.groups.as_ref().and_then(|groups| Some((groups, groups.of_flow(index)?)));
        let members = group.into_iter().flat_map(|(groups, group)| groups.flows(group));
        for index in members.chain(group.is_none().then_some(index)) {
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
