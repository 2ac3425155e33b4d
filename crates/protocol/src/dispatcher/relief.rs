//! Relief of units that drop packets: NFActor's rule for the number of units (A39).

use crate::message::UnitId;

use crate::dispatcher::config::{Config, DropRule};
use crate::dispatcher::evacuation::FLOWS_SCANNED_PER_BUCKET;
use crate::dispatcher::fleet::Fleet;
use crate::dispatcher::load::rate_bps;
use crate::dispatcher::owners::Owners;
use crate::dispatcher::step::Step;
use crate::dispatcher::units::UnitState;

/// Dropped packets, and the unit that is being relieved because of them.
pub(crate) struct Relief {
    rule: DropRule,
    /// Packets to each unit that were dropped in this period.
    drops: Vec<u64>,
    period_ends_ns: u64,
    shift: Option<Shift>,
    /// Time since which there is a unit too many.
    spare_since_ns: Option<u64>,
    /// Minimum time with a unit too many, in ns.
    idle_ns: u64,
    /// Minimum time to measure a flow's rate over, in ns.
    gap_ns: u64,
}

/// Load on its way from an overloaded unit to another one.
#[derive(Clone, Copy)]
struct Shift {
    from: UnitId,
    to: UnitId,
    /// Load left to move, in bits per second; `None` until the other unit is ready.
    left_bps: Option<f32>,
    /// Position of the search for flows.
    hand: u32,
}

impl Relief {
    pub fn new(rule: DropRule, config: &Config) -> Relief {
        Relief {
            rule,
            drops: vec![0; config.units_max.into()],
            period_ends_ns: 0,
            shift: None,
            spare_since_ns: None,
            idle_ns: config.idle_ns,
            gap_ns: config.gap_ns,
        }
    }

    /// Counts packets to a unit that were dropped. Returns false if there is no such unit.
    pub fn count_drops(&mut self, unit: UnitId, count: u64) -> bool {
        let Some(drops) = self.drops.get_mut(unit.index()) else { return false };
        *drops += count;
        self.spare_since_ns = None;
        true
    }

    /// Returns true if flows are left to move.
    pub fn is_busy(&self) -> bool {
        self.shift.is_some()
    }

    /// Relieves an overloaded unit, or drains the one with the least load if it is one too many:
    /// the others would then have at most `drain_below_bps` on average.
    pub fn relieve(
        &mut self,
        drain_below_bps: f32,
        fleet: &mut Fleet,
        owners: &mut Owners,
        step: &mut Step<'_>,
    ) {
        if let Some(shift) = self.shift.take() {
            self.shift = self.shift_load(shift, fleet, owners, step);
            // What was dropped before says nothing about the units as they are now.
            self.end_period(step.now_ns());
            return;
        }
        let is_over = step.now_ns() >= self.period_ends_ns;
        let overloaded = if is_over { self.end_period(step.now_ns()) } else { None };
        match overloaded.filter(|&unit| fleet.units().is_active(unit)) {
            Some(unit) => self.begin(unit, fleet, step),
            None => self.drain_spare(drain_below_bps, fleet, step),
        }
    }

    /// Ends the period. Returns the unit with most drops, if these are too many.
    fn end_period(&mut self, now_ns: u64) -> Option<UnitId> {
        self.period_ends_ns = now_ns.saturating_add(self.rule.period_ns);
        // The lowest number of equal ones. There are no more units than `u16` can count.
        let most = (0u16..).zip(&self.drops).max_by_key(|&(unit, &drops)| (drops, u16::MAX - unit));
        let most = most.filter(|&(_, &drops)| drops > self.rule.drops_max).map(|(unit, _)| UnitId(unit));
        self.drops.fill(0);
        most
    }

    /// Starts a unit that takes load from this one; without any, the least loaded one does.
    fn begin(&mut self, from: UnitId, fleet: &mut Fleet, step: &mut Step<'_>) {
        if fleet.units().starting() > 0 {
            return;
        }
        let Some(to) = fleet.start_one(step).or_else(|| half_as_loaded(from, fleet)) else { return };
        step.counters().units_relieved += 1;
        self.shift = Some(Shift { from, to, left_bps: None, hand: 0 });
    }

    /// Moves the next flows. Returns what is left.
    fn shift_load(
        &self,
        mut shift: Shift,
        fleet: &Fleet,
        owners: &mut Owners,
        step: &mut Step<'_>,
    ) -> Option<Shift> {
        if !fleet.units().is_active(shift.from) {
            return None;
        }
        match fleet.units().state(shift.to) {
            UnitState::Active => {}
            UnitState::Starting => return Some(shift),
            UnitState::Off | UnitState::Draining | UnitState::Lost => return None,
        }
        let [from_bps, to_bps] = [shift.from, shift.to].map(|unit| fleet.meter().sustained_bps(unit));
        let mut left_bps = shift.left_bps.unwrap_or((from_bps - to_bps) / 2.0);
        let mut moves_left = u64::from(self.rule.step);
        let mut scans_left = FLOWS_SCANNED_PER_BUCKET;
        while left_bps > 0.0 {
            if moves_left == 0 || scans_left == 0 {
                shift.left_bps = Some(left_bps);
                return Some(shift);
            }
            let until = owners.flows().used().min(shift.hand.saturating_add(scans_left));
            if shift.hand >= until {
                return None; // All flows that can move have.
            }
            let found = owners.flows().first_of(shift.from, shift.hand..until);
            let next = found.map_or(until, |index| index + 1);
            scans_left -= next - shift.hand;
            shift.hand = next;
            let Some(index) = found else { continue };
            let rate_bps = self.mean_rate_bps(index, owners, step);
            let moved = owners.relocate(index, shift.to, fleet.units(), step);
            left_bps -= rate_bps * moved as f32;
            moves_left = moves_left.saturating_sub(moved);
        }
        None
    }

    /// Returns the rate of a flow since its flowlet, or the flow itself, began.
    fn mean_rate_bps(&self, index: u32, owners: &Owners, step: &Step<'_>) -> f32 {
        let started_ns = owners.flows().flowlet(index).started_ns();
        let time_ns = step.now_ns().saturating_sub(started_ns).max(self.gap_ns);
        let flow = owners.flows().get(index);
        flow.bytes().map_or(flow.estimate_bps(), |bytes| rate_bps(bytes, time_ns))
    }

    /// Drains the unit with the least load, of equal ones the last, if the others have had room for
    /// total load for long enough.
    fn drain_spare(&mut self, below_bps: f32, fleet: &mut Fleet, step: &mut Step<'_>) {
        let units = fleet.units();
        let is_spare = units.starting() == 0 && units.draining() == 0 && fleet.is_one_too_many(below_bps);
        self.spare_since_ns = is_spare.then(|| self.spare_since_ns.unwrap_or(step.now_ns()));
        let is_new = |since_ns| step.now_ns().saturating_sub(since_ns) < self.idle_ns;
        if self.spare_since_ns.is_none_or(is_new) {
            return;
        }
        let load_bps = |unit: UnitId| fleet.meter().sustained_bps(unit);
        let least = units.active().iter().rev().copied().min_by(|&a, &b| load_bps(a).total_cmp(&load_bps(b)));
        if let Some(unit) = least {
            self.spare_since_ns = None;
            fleet.drain(unit, step);
        }
    }
}

/// Returns the least loaded unit, if it has less than half the load of this one.
fn half_as_loaded(unit: UnitId, fleet: &Fleet) -> Option<UnitId> {
    let load_bps = |unit| fleet.meter().sustained_bps(unit);
    let others = fleet.units().active().iter().copied().filter(|&other| other != unit);
    let least = others.min_by(|&a, &b| load_bps(a).total_cmp(&load_bps(b)))?;
    (2.0 * load_bps(least) < load_bps(unit)).then_some(least)
}
