//! The number of units: starts them ahead, and drains idle ones (S42, S43).

use crate::message::UnitId;

use crate::dispatcher::config::{Config, DrainCondition, ScalingRule};
use crate::dispatcher::fleet::Fleet;
use crate::dispatcher::owners::Owners;
use crate::dispatcher::provisioning::Provisioning;
use crate::dispatcher::relief::Relief;
use crate::dispatcher::step::Step;

/// A unit is drained only if the load of the others would then be at most this share of the load
/// that starts a unit: [on average, or of one of them](crate::dispatcher::DrainCondition).
pub const DRAIN_BELOW: f32 = 0.8;

/// The rule by which units start and are drained, with what it has measured.
pub(crate) struct Scaling {
    rule: Rule,
    units_min: usize,
    /// Load of all units from which on another one starts, in bits per second.
    start_from_bps: f32,
    drain_when: DrainCondition,
    idle_ns: u64,
    /// Bytes of packets that were dropped instead of being dispatched.
    bytes_refused: u64,
}

/// The state of a [`ScalingRule`].
enum Rule {
    Room,
    Demand(Box<Provisioning>),
    Drops(Relief),
}

impl Scaling {
    pub fn new(config: &Config) -> Scaling {
        Scaling {
            rule: match config.scaling {
                ScalingRule::Room => Rule::Room,
                ScalingRule::Demand { load } => Rule::Demand(Box::new(Provisioning::new(load, config))),
                ScalingRule::Drops(rule) => Rule::Drops(Relief::new(rule, config)),
            },
            units_min: config.units_min.into(),
            start_from_bps: config.start_at * config.capacity_bps as f32,
            drain_when: config.drain_when,
            idle_ns: config.idle_ns,
            bytes_refused: 0,
        }
    }

    /// Ends this many buckets of the load meter. `bytes` is the total that was dispatched.
    pub fn turn(&mut self, buckets: u64, bytes: u64) {
        if let Rule::Demand(provisioning) = &mut self.rule {
            provisioning.turn(buckets, bytes + self.bytes_refused);
        }
    }

    /// Counts the bytes of a packet that was dropped instead of being dispatched.
    pub fn count_refused(&mut self, bytes: u64) {
        self.bytes_refused += bytes;
    }

    /// Counts packets to a unit that were dropped. Returns true if that may change the number of
    /// units.
    pub fn count_drops(&mut self, unit: UnitId, count: u64) -> bool {
        match &mut self.rule {
            Rule::Drops(relief) => relief.count_drops(unit, count),
            Rule::Room | Rule::Demand(_) => false,
        }
    }

    /// Starts and drains units, and moves load between them, as the rule has it.
    pub fn scale(&mut self, fleet: &mut Fleet, owners: &mut Owners, step: &mut Step<'_>) {
        let drain_below_bps = DRAIN_BELOW * self.start_from_bps;
        match &mut self.rule {
            Rule::Room => {
                start_ahead(self.start_from_bps, fleet, step);
                self.drain_idle(drain_below_bps, fleet, step);
            }
            Rule::Demand(provisioning) => follow(provisioning, self.units_min, fleet, step),
            Rule::Drops(relief) => relief.relieve(drain_below_bps, fleet, owners, step),
        }
    }

    /// Returns true if load is left to move.
    pub fn is_busy(&self) -> bool {
        matches!(&self.rule, Rule::Drops(relief) if relief.is_busy())
    }

    /// Drains the highest unit that has been idle long enough, if the others have room (S43).
    fn drain_idle(&self, below_bps: f32, fleet: &mut Fleet, step: &mut Step<'_>) {
        if !fleet.has_more_than_minimum() {
            return;
        }
        let (active, meter) = (fleet.units().active(), fleet.meter());
        let is_idle =
            |unit: &&UnitId| step.now_ns().saturating_sub(meter.last_packet_ns(**unit)) >= self.idle_ns;
        let Some(&idle) = active.iter().rev().find(is_idle) else {
            return;
        };
        let is_below = match self.drain_when {
            DrainCondition::MeanIsBelow => fleet.is_one_too_many(below_bps),
            DrainCondition::OneIsBelow => {
                active.iter().any(|&unit| unit != idle && meter.sustained_bps(unit) <= below_bps)
            }
        };
        if is_below {
            fleet.drain(idle, step);
        }
    }
}

/// Starts a unit if all active ones have more than this load (S42).
fn start_ahead(from_bps: f32, fleet: &mut Fleet, step: &mut Step<'_>) {
    if fleet.units().active().iter().all(|&unit| fleet.meter().sustained_bps(unit) > from_bps) {
        fleet.start_one(step);
    }
}

/// Starts a unit if more are wanted, or drains the last one if fewer must be kept; one at a time.
fn follow(provisioning: &Provisioning, units_min: usize, fleet: &mut Fleet, step: &mut Step<'_>) {
    let (wanted, kept) = (provisioning.wanted(), provisioning.kept());
    let active = fleet.units().active();
    if wanted > active.len() {
        fleet.start_one(step);
        return;
    }
    let kept = kept.max(units_min);
    if let Some(&last) = active.last().filter(|_| active.len() > kept && fleet.units().draining() == 0) {
        fleet.drain(last, step);
    }
}
