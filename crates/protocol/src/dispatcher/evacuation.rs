//! Evacuation: flows of draining units move to others, without waiting for packets.
//!
//! With [pre-copy](crate::dispatcher::Config::pre_copy), replicas of flows that had packets of late
//! go to their next owners first. Once they are there, the flows move, and only what has changed
//! since has to follow. Until then packets of their flowlets go to their old owners. Silent flows
//! move at once: few of them have a packet while their states travel, and replicas cost more. Some
//! of them are copied anyway, as samples of the time that states take. More flows are taken at a
//! time as long as the replicas arrive soon, and fewer if they take long: links and units are then
//! busy, and packets of flows that move would wait.

use std::collections::BTreeSet;

use crate::dispatcher::config::Config;
use crate::dispatcher::fleet::Fleet;
use crate::dispatcher::output::DispatcherOutput;
use crate::dispatcher::owners::Owners;
use crate::dispatcher::placement::Placement;
use crate::dispatcher::step::Step;
use crate::dispatcher::units::{UnitState, Units};
use crate::message::{FlowId, UnitId};

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

/// Least number of flows that are copied or move at a time, and the first one.
const COPIES_MIN: u32 = 64;

/// One of this many flows that a bucket finds is copied ahead even if it is silent. At least one of
/// the least number of flows that are taken at a time.
const SAMPLED_OF: u32 = COPIES_MIN;

/// The evacuation of draining units.
pub(crate) struct Evacuation {
    /// Replicas go to the next owners first.
    pre_copy: bool,
    /// Length of a bucket of the load meter.
    bucket_ns: u64,
    /// Position of the search for flows of draining units.
    hand: u32,
    /// Flows with a replica on its way to the next owner, and that owner.
    copied: Vec<(FlowId, UnitId)>,
    /// Of these flows, the ones with replicas that have not come.
    awaited: BTreeSet<FlowId>,
    /// Time of the latest request for a replica.
    copied_ns: u64,
    /// Limit on the flows that are copied or move at a time.
    copies_max: u32,
}

impl Evacuation {
    pub fn new(config: &Config) -> Evacuation {
        Evacuation {
            pre_copy: config.pre_copy,
            bucket_ns: config.bucket_ns,
            hand: 0,
            copied: Vec::new(),
            awaited: BTreeSet::new(),
            copied_ns: 0,
            copies_max: COPIES_MIN,
        }
    }

    /// Moves flows of draining units: up to [`MOVES_PER_BUCKET`] of the next
    /// [`FLOWS_SCANNED_PER_BUCKET`] indexes.
    pub fn evacuate(
        &mut self,
        owners: &mut Owners,
        fleet: &mut Fleet,
        placement: &mut Placement,
        step: &mut Step<'_>,
    ) {
        if !self.move_copied(owners, fleet.units(), step) {
            return;
        }
        let (mut scans_left, mut moves_left) = (
            FLOWS_SCANNED_PER_BUCKET.min(owners.flows().used()),
            if self.pre_copy { self.copies_max } else { MOVES_PER_BUCKET },
        );
        let mut found_count = 0;
        loop {
            let Some(unit) = fleet.units().all_draining().find(|&unit| owners.count_of(unit) > 0) else {
                return;
            };
            while owners.count_of(unit) > 0 {
                if scans_left == 0 || moves_left == 0 {
                    return;
                }
                let Some(index) = self.find_next(unit, &mut scans_left, owners) else { continue };
                if self.awaited.contains(&owners.flows().id(index)) {
                    continue; // With another flow of its group.
                }
                let is_sample = found_count % SAMPLED_OF == 0;
                found_count += 1;
                // If all active units refused it, the flow stays until its next packet or its end.
                let moved = match placement.refuge(index, owners, fleet) {
                    Some(to) if self.pre_copy && (is_sample || !self.is_silent(index, owners, step)) => {
                        self.copy_ahead(index, to, owners, step)
                    }
                    Some(to) => owners.relocate(index, to, fleet.units(), step),
                    None => 0,
                };
                moves_left = moves_left.saturating_sub(u32::try_from(moved.max(1)).unwrap_or(u32::MAX));
            }
        }
    }

    /// Searches at most `scans_left` indexes, and not beyond the last one, for the next flow of a
    /// unit.
    fn find_next(&mut self, unit: UnitId, scans_left: &mut u32, owners: &Owners) -> Option<u32> {
        let used = owners.flows().used();
        let from = if self.hand < used { self.hand } else { 0 };
        let until = used.min(from + *scans_left);
        let found = owners.flows().first_of(unit, from..until);
        self.hand = found.map_or(until, |index| index + 1);
        *scans_left -= self.hand - from;
        found
    }

    /// Notes that a requested replica has come.
    pub fn replicated(&mut self, flow: FlowId, step: &mut Step<'_>) {
        self.awaited.remove(&flow);
        step.push(DispatcherOutput::Replicated(flow));
    }

    /// Moves the flows with replicas at their next owners. Returns false if replicas are still on
    /// their way.
    fn move_copied(&mut self, owners: &mut Owners, units: &Units, step: &mut Step<'_>) -> bool {
        if self.copied.is_empty() {
            return true;
        }
        let waited_ns = step.now_ns().saturating_sub(self.copied_ns);
        if !self.awaited.is_empty() && waited_ns < COPY_PATIENCE_BUCKETS.saturating_mul(self.bucket_ns) {
            return false;
        }
        let waited_buckets = waited_ns / self.bucket_ns;
        if waited_buckets <= SOON_BUCKETS {
            self.copies_max = (self.copies_max * 2).min(MOVES_PER_BUCKET);
        } else if waited_buckets > LATE_BUCKETS {
            self.copies_max = (self.copies_max / 2).max(COPIES_MIN);
        }
        self.awaited.clear();
        for (flow, to) in std::mem::take(&mut self.copied) {
            let owner = owners.flows().live(flow).map(|live| live.owner());
            let is_draining = owner.is_some_and(|owner| units.state(owner) == UnitState::Draining);
            if is_draining && units.is_active(to) {
                owners.relocate(flow.index, to, units, step);
            }
        }
        true
    }

    /// Returns true if the flow, and all of its affinity group, had no packet of late.
    fn is_silent(&self, index: u32, owners: &Owners, step: &Step<'_>) -> bool {
        let silent_ns = self.bucket_ns.saturating_mul(SILENT_BUCKETS);
        let silence_ns = |index| step.now_ns().saturating_sub(owners.flows().get(index).last_seen_ns());
        owners.moving_with(index).all(|index| silence_ns(index) >= silent_ns)
    }

    /// Asks for replicas of a flow, or of all flows of its affinity group, at the unit to which it
    /// will move. Returns their number.
    fn copy_ahead(&mut self, index: u32, to: UnitId, owners: &Owners, step: &mut Step<'_>) -> u64 {
        self.copied.push((owners.flows().id(index), to));
        self.copied_ns = step.now_ns();
        let before = self.awaited.len();
        owners.ask_for_replicas(index, to, step, &mut self.awaited);
        (self.awaited.len() - before) as u64
    }
}
