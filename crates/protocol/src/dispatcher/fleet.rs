//! The units of a dispatcher: which run, and how loaded they are.

mod starts;

use telemetry::event;

use crate::message::{FromDispatcher, UnitId};
use crate::trace::{EventSink, FlowPlace, TimelineEvent};

use crate::dispatcher::assign::{Assigner, UnitPick};
use crate::dispatcher::config::{
    Config, DispatcherError, Granularity, ScalingRule, TARGETS_COUNT_MAX, UnitChoice,
};
use crate::dispatcher::flow::TargetList;
use crate::dispatcher::load::Meter;
use crate::dispatcher::output::DispatcherOutput;
use crate::dispatcher::owners::Owners;
use crate::dispatcher::rss::Rss;
use crate::dispatcher::step::Step;
use crate::dispatcher::units::{UnitState, Units};

/// The units, their loads, and the choice among them. Whatever changes a unit's state changes the
/// others with it.
pub(crate) struct Fleet {
    units: Units,
    meter: Meter,
    assigner: Assigner,
    /// `None` unless buckets of flows are assigned.
    rss: Option<Rss>,
    units_min: u16,
    /// Time after which a drain is sent again, in ns.
    ask_again_ns: u64,
    /// A unit starts for each flowlet without room.
    starts_for_room: bool,
    trace: EventSink,
}

impl Fleet {
    /// Creates the units; the first `units_min` are active.
    ///
    /// # Errors
    ///
    /// If there is no memory for the load meter.
    pub fn new(config: &Config) -> Result<Fleet, DispatcherError> {
        let rss = match config.mode {
            Granularity::Rss { buckets, every_ns } => {
                Some(Rss::new(buckets, every_ns, config.units_min, config.units_max))
            }
            Granularity::Flowlet
            | Granularity::Flow
            | Granularity::SmartFlow { .. }
            | Granularity::Packet => None,
        };
        let mut fleet = Fleet {
            units: Units::new(config.units_max),
            meter: Meter::new(config)?,
            assigner: Assigner::new(config),
            rss,
            units_min: config.units_min,
            ask_again_ns: config.idle_ns,
            starts_for_room: config.scaling == ScalingRule::Room,
            trace: EventSink::default(),
        };
        (0..fleet.units_min).for_each(|unit| fleet.meter.activate(UnitId(unit), 0));
        fleet.units.activate_first(fleet.units_min);
        fleet.assigner.set_active(fleet.units.active());
        Ok(fleet)
    }

    /// Notes in a timeline what happens from now on.
    pub fn set_trace(&mut self, trace: EventSink) {
        self.trace = trace;
    }

    fn set_state(&mut self, unit: UnitId, state: UnitState, now_ns: u64) {
        self.units.set_state(unit, state);
        let changed = TimelineEvent::UnitChanged { unit, state: state.name() };
        self.trace.note(now_ns, FlowPlace::NONE, None, changed);
    }

    /// Returns the units.
    #[inline(always)]
    pub fn units(&self) -> &Units {
        &self.units
    }

    /// Returns the load meter.
    #[inline(always)]
    pub fn meter(&self) -> &Meter {
        &self.meter
    }

    /// Returns the unit of the bucket of this hash, if buckets of flows are assigned. `None` if it
    /// was lost, and no other unit could take its buckets.
    #[inline]
    pub fn bucket_owner(&self, hash: u64) -> Option<UnitId> {
        let owner = self.rss.as_ref()?.owner(hash);
        (self.units.state(owner) != UnitState::Lost).then_some(owner)
    }

    /// Computes the loads of units; to be called before they are read.
    #[inline]
    pub fn reckon(&mut self) {
        self.meter.reckon();
    }

    /// Begins the next bucket of the load meter. Returns the number of buckets that ended.
    pub fn roll(&mut self, now_ns: u64) -> u64 {
        self.meter.roll(now_ns)
    }

    /// Counts a packet of this length to a unit.
    #[inline(always)]
    pub fn add(&mut self, unit: UnitId, len: u32, now_ns: u64) {
        self.meter.add(unit, len.into(), now_ns);
    }

    /// Counts a packet of this length in the bucket of this hash, if buckets of flows are assigned.
    #[inline(always)]
    pub fn add_to_bucket(&mut self, hash: u64, len: u32) {
        if let Some(rss) = &mut self.rss {
            rss.add(hash, len.into());
        }
    }

    /// Moves buckets of flows between units at the end of a period.
    pub fn balance_buckets(&mut self, step: &mut Step<'_>) {
        if let Some(rss) = &mut self.rss {
            step.counters().buckets_moved += rss.balance(step.now_ns(), self.units.active());
        }
    }

    /// Chooses the unit for a flowlet with this estimated rate, given the units that have the
    /// state. `None` if no unit is active.
    pub fn choose(&self, estimate_bps: f32, having_state: impl Iterator<Item = UnitId>) -> Option<UnitPick> {
        self.assigner.choose(self.meter.loads(), estimate_bps, having_state, self.units.active().len())
    }

    /// Returns the lowest unit with room for a flowlet with this estimated rate, or a near unit
    /// with the state.
    pub fn lowest_with_room(&self, estimate_bps: f32, targets: &TargetList) -> Option<UnitId> {
        let chosen = self.assigner.choose_like(
            UnitChoice::LowestId,
            self.meter.loads(),
            estimate_bps,
            targets.units(),
            self.units.active().len(),
        );
        chosen.map(|chosen| chosen.unit)
    }

    /// Chooses the targets for the state of a flowlet of `owner` (S54).
    pub fn choose_targets(&mut self, owner: UnitId, estimate_bps: f32) -> TargetList {
        self.assigner.targets(owner, estimate_bps, self.units.active(), &mut self.meter)
    }

    /// Hides units, as if they had no room. Returns their loads, for [`show`](Fleet::show).
    pub fn hide(&mut self, units: &TargetList) -> [f32; TARGETS_COUNT_MAX as usize] {
        self.meter.hide(units)
    }

    /// Shows hidden units again.
    pub fn show(&mut self, units: &TargetList, hidden_bps: [f32; TARGETS_COUNT_MAX as usize]) {
        self.meter.show(units, hidden_bps);
    }

    /// Begins with the units that are ready: the others of the first `units_min` are
    /// starting, and ready ones beyond them are active as well.
    pub fn begin_with(&mut self, is_ready: impl Fn(UnitId) -> bool) {
        for unit in self.units.all() {
            match (self.units.state(unit), is_ready(unit)) {
                (UnitState::Active, false) => {
                    self.meter.deactivate(unit);
                    self.set_state(unit, UnitState::Starting, 0);
                }
                (UnitState::Off, true) => {
                    self.meter.activate(unit, 0);
                    self.set_state(unit, UnitState::Active, 0);
                }
                _ => {}
            }
        }
        self.assigner.set_active(self.units.active());
        self.deal_buckets();
    }

    /// Deals buckets of flows to the active units, one after the other.
    pub fn deal_buckets(&mut self) {
        if let Some(rss) = self.rss.as_mut().filter(|_| !self.units.active().is_empty()) {
            rss.deal(self.units.active());
        }
    }

    /// Makes a unit active. Returns the number of buckets of flows that move to it.
    pub fn activate(&mut self, unit: UnitId, now_ns: u64) -> u64 {
        self.meter.activate(unit, now_ns);
        self.set_state(unit, UnitState::Active, now_ns);
        self.note_active();
        // Buckets of lost units that no unit could take.
        match (&mut self.rss, self.units.active()) {
            (Some(rss), [_]) => rss.hand_all(unit),
            _ => 0,
        }
    }

    /// Hides the loads of suspect units, if others can be chosen, and notes the active ones.
    fn note_active(&mut self) {
        self.meter.reckon();
        for unit in self.units.all() {
            self.meter.set_passed_over(unit, self.units.is_passed_over(unit));
        }
        self.assigner.set_active(self.units.active());
    }

    /// Moves a unit's buckets of flows to the active units. Returns their number.
    fn clear_out(&mut self, unit: UnitId) -> u64 {
        self.rss.as_mut().map_or(0, |rss| rss.clear_out(unit, self.units.active()))
    }

    /// Drains a unit: it gets no more packets, and its flows move away.
    pub fn drain(&mut self, unit: UnitId, step: &mut Step<'_>) {
        self.set_state(unit, UnitState::Draining, step.now_ns());
        self.units.set_asked_ns(unit, Some(step.now_ns()));
        self.meter.deactivate(unit);
        self.note_active();
        step.counters().buckets_moved += self.clear_out(unit);
        step.counters().units_drained += 1;
        event::unit_drained(unit.0.into());
        step.send(unit, FromDispatcher::Drain);
    }

    /// Drains units that leave, as soon as others can take their flows.
    pub fn drain_leaving(&mut self, step: &mut Step<'_>) {
        while let Some(unit) = self.units.first_to_drain() {
            self.drain(unit, step);
        }
    }

    /// Makes a draining unit active again.
    pub fn resume(&mut self, unit: UnitId, now_ns: u64) -> u64 {
        self.units.expect_stale_reports(unit);
        self.activate(unit, now_ns)
    }

    /// Notes that a unit that runs or starts leaves as soon as another one can take its flows, or
    /// that it stays.
    pub fn set_leaving(&mut self, unit: UnitId, is_leaving: bool) {
        self.units.set_leaving(unit, is_leaving);
    }

    /// Notes that an operator has drained a unit and wants no other one in its place, if there are
    /// too few without it.
    pub fn excuse(&mut self, unit: UnitId, is_wanted: bool) {
        let is_below = self.units.held() < usize::from(self.units_min);
        self.units.set_excused(unit, is_wanted && is_below);
    }

    /// Notes that a unit has crashed. Returns false if it did not run.
    pub fn lose(&mut self, unit: UnitId, step: &mut Step<'_>) -> bool {
        match self.units.state(unit) {
            UnitState::Active => {
                self.meter.deactivate(unit);
                self.set_state(unit, UnitState::Lost, step.now_ns());
                self.note_active();
                if !self.units.active().is_empty() {
                    step.counters().buckets_moved += self.clear_out(unit);
                }
            }
            UnitState::Starting | UnitState::Draining => {
                self.set_state(unit, UnitState::Lost, step.now_ns());
            }
            // It was drained, and would not start any more.
            UnitState::Off => {
                self.retire(unit);
                return false;
            }
            UnitState::Lost => return false,
        }
        step.counters().units_lost += 1;
        true
    }

    /// Notes that a unit is silent, or no longer. Returns the number of buckets of flows that move
    /// to others.
    pub fn suspect(&mut self, now_ns: u64, unit: UnitId, is_suspect: bool) -> u64 {
        self.units.set_suspect(unit, is_suspect);
        let event = match is_suspect {
            true => TimelineEvent::UnitSuspect { unit },
            false => TimelineEvent::UnitHeard { unit },
        };
        self.trace.note(now_ns, FlowPlace::NONE, None, event);
        self.note_active();
        if self.units.is_passed_over(unit) { self.clear_out(unit) } else { 0 }
    }

    /// Notes that a unit that was drained never runs again. Does nothing if it still runs.
    pub fn retire(&mut self, unit: UnitId) {
        if self.units.state(unit) == UnitState::Off {
            self.units.set_state(unit, UnitState::Lost);
        }
    }

    /// Stops a draining unit if it owns no flow. If it reports too early, it does not know of all
    /// its flows yet, or answers an earlier drain: the drain is sent again once it has none.
    pub fn drained(&mut self, from: UnitId, owners: &Owners, step: &mut Step<'_>) {
        let is_stale = self.units.take_report(from);
        if self.units.state(from) != UnitState::Draining {
            return;
        }
        if is_stale || owners.count_of(from) > 0 {
            return self.units.set_asked_ns(from, None);
        }
        self.set_state(from, UnitState::Off, step.now_ns());
        step.counters().units_stopped += 1;
        event::unit_stopped(from.0.into());
        step.push(DispatcherOutput::Stop(from));
    }

    /// Sends the drain again to draining units without flows: their reports may have been lost.
    pub fn ask_again(&mut self, owners: &Owners, step: &mut Step<'_>) {
        if self.units.draining() == 0 {
            return;
        }
        for unit in self.units.all() {
            let is_done = self.units.state(unit) == UnitState::Draining && owners.count_of(unit) == 0;
            let is_time = |asked_ns| step.now_ns().saturating_sub(asked_ns) >= self.ask_again_ns;
            if is_done && self.units.asked_ns(unit).is_none_or(is_time) {
                self.units.set_asked_ns(unit, Some(step.now_ns()));
                step.send(unit, FromDispatcher::Drain);
            }
        }
    }
}
