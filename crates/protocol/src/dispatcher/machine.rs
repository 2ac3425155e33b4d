//! The dispatcher: its state, inputs and outputs.

mod packets;

use crate::message::{FromDispatcher, FromUnit, UnitId};
use crate::trace::{EventSink, MessagePeer, MessageSummary, TimelineEvent};

use crate::dispatcher::clock::Clock;
use crate::dispatcher::config::{Config, DispatcherError};
use crate::dispatcher::counters::Counters;
use crate::dispatcher::evacuation::Evacuation;
use crate::dispatcher::fleet::Fleet;
use crate::dispatcher::flowlet::Cuts;
use crate::dispatcher::flows::FlowGuess;
use crate::dispatcher::lost_flows::LostFlow;
use crate::dispatcher::membership::Membership;
use crate::dispatcher::migrations::Migrations;
use crate::dispatcher::output::DispatcherOutput;
use crate::dispatcher::owners::{Aliases, Owners, OwnersView};
use crate::dispatcher::placement::Placement;
use crate::dispatcher::scaling::Scaling;
use crate::dispatcher::step::Step;
use crate::dispatcher::sweep::Sweep;
use crate::dispatcher::units::UnitStatus;

/// Numbers the packets of flows, assigns flowlets to units, and names the owner of each flow.
///
/// It routes each input to the objects that it concerns. Each of them owns the state of one
/// concern.
pub struct Dispatcher {
    config: Config,
    clock: Clock,
    counters: Counters,
    owners: Owners,
    fleet: Fleet,
    cuts: Cuts,
    placement: Placement,
    scaling: Scaling,
    evacuation: Evacuation,
    sweep: Sweep,
    /// No flow may begin.
    refuses_flows: bool,
    trace: EventSink,
}

impl Dispatcher {
    /// Creates a dispatcher. Units 0 to `units_min` - 1 are active, and must be ready for the first
    /// packet.
    ///
    /// # Errors
    ///
    /// If the configuration is invalid, or there is no memory for the tables.
    pub fn new(config: Config) -> Result<Dispatcher, DispatcherError> {
        config.check()?;
        Ok(Dispatcher {
            clock: Clock::new(config.bucket_ns),
            counters: Counters::default(),
            owners: Owners::new(&config)?,
            fleet: Fleet::new(&config)?,
            cuts: Cuts::new(&config),
            placement: Placement::new(&config),
            scaling: Scaling::new(&config),
            evacuation: Evacuation::new(&config),
            sweep: Sweep::new(&config),
            refuses_flows: false,
            trace: EventSink::default(),
            config,
        })
    }

    /// Notes in a timeline what happens from now on. If packets are noted, those that continue
    /// flowlets are dispatched as others are, which is slower.
    pub fn set_trace(&mut self, trace: EventSink) {
        if trace.has_packets() {
            self.cuts.look_for_all();
        }
        self.owners.set_trace(trace.clone());
        self.fleet.set_trace(trace.clone());
        self.trace = trace;
    }

    /// Notes that the caller sends a message that this dispatcher returned.
    pub fn note_sent(&self, to: UnitId, message: &FromDispatcher) {
        if self.trace.is_on() {
            let message = MessageSummary::from(message);
            let event = TimelineEvent::Sent { message, to: MessagePeer::Unit(to) };
            self.trace.note(self.now_ns(), message.place(), None, event);
        }
    }

    /// Returns the configuration.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Refuses new flows from now on, or accepts them again. Known flows continue.
    pub fn refuse_flows(&mut self, refuses: bool) {
        self.refuses_flows = refuses;
    }

    /// First pass over a batch: prefetches the index line of this hash.
    #[inline]
    pub fn prefetch(&self, hash: u64) {
        self.owners.flows().prefetch_index(hash);
    }

    /// Second pass over a batch: prefetches the likely flow of this hash, and returns it for
    /// [`stamp_next`](Dispatcher::stamp_next).
    #[inline]
    pub fn guess(&self, hash: u64) -> FlowGuess {
        self.owners.flows().prefetch_flow(hash)
    }

    /// Returns true if many recent packets began flowlets, so that prefetching more is worth it.
    #[inline]
    pub fn expects_flowlets(&self) -> bool {
        self.owners.flows().expects_flowlets()
    }

    /// Prefetches what the next flowlet of the flow with this index needs, if that was not
    /// [expected](Dispatcher::expects_flowlets).
    #[inline]
    pub fn prefetch_flowlet(&self, index: u32) {
        self.owners.flows().prefetch_flowlet(index);
    }

    /// Returns the present owner and the index of a guessed flow.
    #[inline]
    pub fn owner_of_guess(&self, guess: FlowGuess) -> Option<(UnitId, u32)> {
        let flows = self.owners.flows();
        flows.guessed(guess).map(|index| (flows.get(index).owner(), index))
    }

    /// Returns the live flows, to be looked at.
    pub fn flows(&self) -> OwnersView<'_> {
        OwnersView::new(&self.owners)
    }

    /// Returns the aliases of flows, to be changed.
    pub fn aliases(&mut self) -> Aliases<'_> {
        Aliases::new(self.clock.now_ns(), &mut self.owners, self.fleet.units(), &mut self.counters)
    }

    /// Returns the migrations of flows by hand.
    pub fn migrations(&mut self) -> Migrations<'_> {
        let Dispatcher { clock, owners, fleet, counters, config, .. } = self;
        Migrations::new(clock, owners, fleet.units(), counters, config.mode)
    }

    /// Returns the membership of units, to be changed.
    pub fn membership(&mut self) -> Membership<'_> {
        let Dispatcher { clock, owners, fleet, counters, config, .. } = self;
        Membership::new(clock, fleet, owners, counters, config.replaces_drained)
    }

    /// Returns all units by number, whatever their state.
    pub fn units(&self) -> impl Iterator<Item = UnitStatus> + '_ {
        let units = self.fleet.units();
        units.all().map(|unit| UnitStatus {
            unit,
            state: units.state(unit),
            load_bps: self.fleet.meter().load_bps(unit, self.clock.now_ns()),
            flows: self.owners.count_of(unit),
        })
    }

    /// Returns the bytes on the wire of all packets that were sent to a unit.
    #[inline]
    pub fn bytes_of(&self, unit: UnitId) -> u64 {
        self.fleet.meter().bytes(unit)
    }

    /// Returns the counters.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Returns the latest time given.
    #[inline]
    pub fn now_ns(&self) -> u64 {
        self.clock.now_ns()
    }

    /// Notes lost TCP flows from now on.
    pub fn note_lost_flows(&mut self) {
        self.owners.lost_flows().note_from_now();
    }

    /// Takes the flows that were lost since this was called last.
    pub fn take_lost_flows(&mut self) -> Vec<LostFlow> {
        self.owners.lost_flows().take()
    }

    /// Ends all flows, without a message: all units know that already.
    pub fn end_all(&mut self) {
        let mut known = Vec::new();
        let mut step = Step::new(self.clock.now_ns(), &mut self.counters, &mut known);
        for index in 0..self.owners.flows().used() {
            if self.owners.flows().get(index).is_live() {
                self.owners.end(index, self.fleet.units(), &mut step);
            }
        }
    }

    /// Counts packets that were dispatched to a unit, and dropped at its input.
    pub fn count_drops(&mut self, now_ns: u64, unit: UnitId, count: u64) {
        let now_ns = self.clock.at(now_ns);
        self.counters.drops += count;
        if self.scaling.count_drops(unit, count) {
            self.clock.wake(now_ns);
        }
    }

    /// Counts a packet of this length that is dropped instead of being dispatched to its unit. It
    /// is part of demand and of the unit's load.
    pub fn refuse_packet(&mut self, now_ns: u64, unit: UnitId, len: u32) {
        let now_ns = self.clock.at(now_ns);
        if now_ns >= self.fleet.meter().ends_ns() {
            self.roll(now_ns);
        }
        self.scaling.count_refused(len.into());
        self.fleet.add(unit, len, now_ns);
        self.count_drops(now_ns, unit, 1);
    }

    /// Returns the earliest deadline, for [`handle_timeout`](Dispatcher::handle_timeout);
    /// `u64::MAX` if there is none before another packet arrives.
    #[inline]
    pub fn next_timeout_ns(&self) -> u64 {
        self.clock.next_timeout_ns()
    }

    /// Handles the timers that have expired: moves the load meter's window, starts a unit ahead or
    /// because fewer than `units_min` run, drains idle ones, moves their flows, balances buckets of
    /// flows, and ends silent flows. Does nothing before
    /// [`next_timeout_ns`](Dispatcher::next_timeout_ns).
    ///
    /// Adds at most four outputs for each of
    /// [`MOVES_PER_BUCKET`](crate::dispatcher::MOVES_PER_BUCKET) flows, three for each unit, and
    /// for each of [`FORGOTTEN_PER_BUCKET`](crate::dispatcher::FORGOTTEN_PER_BUCKET) flows one per
    /// unit that has its state or a replica.
    pub fn handle_timeout(&mut self, now_ns: u64, outputs: &mut Vec<DispatcherOutput>) {
        let now_ns = self.clock.at(now_ns);
        if now_ns < self.clock.next_timeout_ns() {
            return;
        }
        if now_ns >= self.fleet.meter().ends_ns() {
            self.roll(now_ns);
        }
        let Dispatcher { counters, owners, fleet, placement, scaling, evacuation, sweep, .. } = self;
        let step = &mut Step::new(now_ns, counters, outputs);
        fleet.reckon();
        fleet.balance_buckets(step);
        // Units that leave, before the rules look for one too many.
        fleet.drain_leaving(step);
        scaling.scale(fleet, owners, step);
        fleet.hold_minimum(step);
        evacuation.evacuate(owners, fleet, placement, step);
        owners.level_groups(fleet.units(), step);
        fleet.ask_again(owners, step);
        sweep.forget(owners, fleet.units(), step);
        let ends_ns = fleet.meter().ends_ns();
        let is_busy = scaling.is_busy() || fleet.has_more_to_do();
        self.clock.set_next(if is_busy { ends_ns } else { sweep.deadline_ns(owners).max(ends_ns) });
    }

    /// Handles a message from a unit.
    pub fn handle_message(
        &mut self,
        now_ns: u64,
        from: UnitId,
        message: FromUnit,
        outputs: &mut Vec<DispatcherOutput>,
    ) {
        let now_ns = self.clock.at(now_ns);
        self.trace.note_at_dispatcher(now_ns, from, &message);
        let (owners, units) = (&mut self.owners, self.fleet.units());
        let step = &mut Step::new(now_ns, &mut self.counters, outputs);
        match message {
            FromUnit::Expire { flow, epoch, seq } => owners.expire(from, (flow, epoch, seq), units, step),
            FromUnit::Arrived { flow, epoch } => owners.arrived(from, (flow, epoch), units, step),
            FromUnit::Replicated { flow, .. } => self.evacuation.replicated(flow, step),
            FromUnit::Drained => self.fleet.drained(from, owners, step),
            FromUnit::Lost { flow, epoch } => owners.recoveries(units).report_lost(from, (flow, epoch), step),
            FromUnit::Recovered { flow, epoch, lacks } => {
                owners.recoveries(units).report_recovered(from, (flow, epoch), lacks, step);
            }
            FromUnit::Refuse { flow, epoch, holder, .. } => {
                owners.refused(from, (flow, epoch), holder, units, step);
            }
        }
    }

    /// Begins the next bucket of the load meter.
    #[cold]
    fn roll(&mut self, now_ns: u64) {
        let buckets = self.fleet.roll(now_ns);
        self.scaling.turn(buckets, self.counters.bytes);
        self.owners.expect_flowlets(self.counters.flowlets(), self.counters.packets);
    }
}
