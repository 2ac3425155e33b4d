//! The elastic backend: a dispatcher cuts flowlets and packs them on units that come and go, and
//! flow state follows (S3, S42, S49).
//!
//! This is the dispatcher's end. It finds each packet's flow, numbers and assigns it, executes the
//! dispatcher's outputs, applies what units report, and meters intervals. The units are at the
//! other end of a [`Transport`]: in memory ([`Memory`]) or on threads ([`Rings`]).
//!
//! A packet of no known flow may be a reply to an earlier packet, found by the alias that this one
//! created, or a later fragment. In a capture it is assigned after all earlier packets have left.
//! Live, a reply arrives after the packet that it answers has left, and its alias was reported
//! before: so first packets need not wait, except for fragments.
//!
//! ```text
//! batch -> classify -> number -> transport -> unit: may it be processed? -> pending -> graph
//!                         ^                                                              |
//!                         +------------- aliases, ends, messages <---- transport <-------+
//! ```

mod copying;
mod lent;
mod lost;
mod operate;
mod passing;
mod pump;
mod resets;
mod returns;
mod subflows;
mod tally;
mod waiting;
mod work;

use std::os::fd::BorrowedFd;

use graph::{Graph, Options};
use hdrhistogram::Histogram;
use nf::{AffinityGroup, AffinityGroups, Effects};
use packet::memory::reserve;
use packet::{DropReason, FlowKey, Packet, PacketClass, PacketPool};
use protocol::dispatcher::{
    Dispatched, Dispatcher, DispatcherOutput, FlowGuess, NumberedPacket, PacketArrival, UnitState,
};
use protocol::message::UnitId;
use protocol::metering::{Interval, IntervalMeter};

pub use copying::COPY_PATIENCE_NS;
use copying::Copying;
pub use lost::LOST_FLOWS_NS;
use lost::LostFlows;
use subflows::ConnectionTokens;
pub use subflows::{TOKENS_MAX, TOKENS_SCANNED_MAX};
use tally::Tally;
pub use waiting::GROUP_WAITING_MAX;
use waiting::GroupWaiting;
pub(crate) use work::Work;

use crate::backend::{Backend, UnitsBackend, UnitsFigures};
use crate::batch::Core;
use crate::operator::{DispatcherStatus, OperatorRequest};
use crate::report::Report;
use crate::transport::{
    Barrier, FastLane, Maker, Memory, Passage, Rings, THREADS_MAX, Transport, UnitNodes, UnitReports,
};
pub use crate::units_config::{ALARM_BUCKETS, FLOWS_MAX, UNITS_MAX, UnitsConfig};
pub use crate::units_error::ElasticError;
pub use crate::units_report::UnitsReport;

/// Limit on reported intervals, an hour of default ones. Then pairs are merged, and later intervals
/// are twice as long.
pub const INTERVALS_MAX: usize = 36_000;

/// Distance in packets at which flow state is prefetched: soon enough to arrive in time, late
/// enough not to evict what is needed first.
const AHEAD: usize = 16;

/// Units in the memory of the calling thread.
pub type Units = Elastic<Memory>;

/// Units on threads of their own.
pub type Threads = Elastic<Rings>;

/// The dispatcher's end of units that are reached through `T`.
pub struct Elastic<T> {
    config: UnitsConfig,
    dispatcher: Dispatcher,
    transport: T,
    intervals: IntervalMeter,
    /// Arrival of the first packet; intervals count from there.
    began_ns: Option<u64>,
    now_ns: u64,
    /// The earliest deadline of the dispatcher, of the transport, or of an interval.
    due_ns: u64,
    tally: Tally,
    /// The flow of each packet of a batch, as guessed by its hash.
    guesses: Vec<FlowGuess>,
    /// Packets of a batch after those that continue flowlets.
    rest: Vec<Packet>,
    outputs: Vec<DispatcherOutput>,
    /// Fragments released by their first fragment, and packets of affinity groups that have moved.
    again: Vec<Packet>,
    waiting: GroupWaiting,
    copying: Copying,
    effects: Vec<Effects>,
    /// Empty unless hosts of lost flows are reset.
    lost: LostFlows,
    /// `None` unless sub-flows of Multipath TCP must be where their connections are.
    tokens: Option<ConnectionTokens>,
    flows_peak: u32,
    is_finishing: bool,
    is_starting_over: bool,
}

/// Returns each running unit with its load, as a share of its capacity, and its flows.
pub(crate) fn loads(
    dispatcher: &Dispatcher,
    capacity_bps: u64,
) -> impl Iterator<Item = (UnitId, f64, u32)> + '_ {
    let runs = |state| matches!(state, UnitState::Active | UnitState::Draining);
    let running = dispatcher.units().filter(move |unit| runs(unit.state));
    running.map(move |unit| (unit.unit, f64::from(unit.load_bps) / capacity_bps as f64, unit.flows))
}

impl Units {
    /// Creates units that run this graph, which has no flows yet.
    ///
    /// # Errors
    /// If the configuration is invalid, the graph may have more than [`FLOWS_MAX`] flows, or memory
    /// for tables is missing.
    pub fn new(config: UnitsConfig, graph: &Graph) -> Result<Units, ElasticError> {
        let options = graph.options();
        check_flows(options)?;
        Elastic::with_transport(config, config.dispatcher(options), Memory::new(&config, graph)?)
    }
}

impl Threads {
    /// Creates units that run graphs like this one. It classifies their packets and processes those
    /// of no flow; it has no flows yet.
    ///
    /// # Errors
    /// If the configuration is invalid, or a thread or graph cannot be created.
    pub fn new(config: UnitsConfig, local: &mut Graph, make: Maker) -> Result<Threads, ElasticError> {
        if config.units_max > THREADS_MAX {
            return Err(ElasticError::Units { asked: config.units_max, max: THREADS_MAX });
        }
        check_flows(local.options())?;
        let dispatcher = config.dispatcher_of_threads(local.options());
        Elastic::with_transport(config, dispatcher, Rings::new(config, local, make)?)
    }
}

fn check_flows(options: &Options) -> Result<(), ElasticError> {
    if options.flows_max > FLOWS_MAX { Err(ElasticError::Flows(options.flows_max)) } else { Ok(()) }
}

impl<T: Transport> Elastic<T> {
    /// Creates the dispatcher's end of units that run graphs like this one, which has no flows yet.
    pub(crate) fn with_transport(
        config: UnitsConfig,
        dispatcher: protocol::dispatcher::Config,
        mut transport: T,
    ) -> Result<Elastic<T>, ElasticError> {
        let mut intervals =
            IntervalMeter::new(config.interval_ns, u64::MAX, config.units_max, config.capacity_bps)
                .keeping(INTERVALS_MAX);
        let is_ready = |unit| transport.is_ready(unit, config.units_min);
        for unit in (0..config.units_max).map(UnitId) {
            intervals.set_on(0, unit, unit.0 < config.units_min || is_ready(unit));
            intervals.set_ready(0, unit, is_ready(unit));
        }
        let mut dispatcher = Dispatcher::new(dispatcher)?;
        dispatcher.membership().begin_with(is_ready);
        if transport.federation().is_some() {
            dispatcher.aliases().note_changes();
        }
        if transport.barrier().is_some() && config.is_live && config.resets {
            dispatcher.note_lost_flows();
        }
        Ok(Elastic {
            dispatcher,
            tally: Tally::new(config.units_max, Work::at(config.capacity_bps)),
            config,
            transport,
            intervals,
            began_ns: None,
            now_ns: 0,
            due_ns: 0,
            guesses: Vec::new(),
            rest: Vec::new(),
            outputs: Vec::new(),
            again: Vec::new(),
            waiting: GroupWaiting::default(),
            copying: Copying::default(),
            effects: Vec::new(),
            lost: LostFlows::default(),
            tokens: None,
            flows_peak: 0,
            is_finishing: false,
            is_starting_over: false,
        })
    }

    /// Puts sub-flows of Multipath TCP into the groups of their connections, if there are groups.
    pub(crate) fn group_connections(mut self, groups: Option<AffinityGroups>) -> Elastic<T> {
        self.tokens = groups.map(ConnectionTokens::new);
        self
    }

    /// Returns the intervals that have ended.
    pub fn intervals(&self) -> &[Interval] {
        self.intervals.done()
    }

    /// Returns each running unit with its load, as a share of its capacity, and its flows.
    pub fn loads(&self) -> impl Iterator<Item = (UnitId, f64, u32)> + '_ {
        loads(&self.dispatcher, self.config.capacity_bps)
    }

    fn since_ns(&self, now_ns: u64) -> u64 {
        now_ns - self.began_ns.unwrap_or(now_ns)
    }

    fn classify(&mut self, batch: &mut [Packet]) {
        self.transport.core().graph.classify(batch, |hash| self.dispatcher.prefetch(hash));
    }

    /// Dispatches a classified batch, and applies the consequences.
    fn take_batch(&mut self, batch: &mut Vec<Packet>) {
        self.learn_tokens(batch);
        self.dispatch_batch(batch);
        self.flush();
        self.end_batch();
        if self.take_passed() {
            self.end_batch();
        }
        self.wait_while(Elastic::is_full);
    }

    /// Advances the time to `now_ns`.
    fn advance(&mut self, now_ns: u64) {
        self.now_ns = self.now_ns.max(now_ns);
        self.handle_timeouts();
        if self.transport.barrier().is_some() {
            self.transport.end_batch(self.now_ns);
            self.handle_unit_timeouts();
            self.announce_aliases();
        }
    }

    /// Ends all flows of units. Returns false if it must be called again.
    fn end_flows(&mut self) -> bool {
        if !self.is_finishing {
            self.begin_to_end_flows();
            self.is_finishing = true;
        }
        self.pump();
        let is_done = self.transport.has_finished();
        if !is_done && let Some(units) = self.transport.barrier() {
            units.wait();
        }
        is_done
    }

    /// Has units end all flows, once none is between two of them.
    fn begin_to_end_flows(&mut self) {
        if self.transport.barrier().is_some() {
            self.await_groups();
            // No flow is in handover now: each ends at its owner.
            self.handle_unit_timeouts();
            self.wait_while(|this| this.transport.barrier().is_some_and(|units| units.is_moving()));
        }
        if self.began_ns.is_some() {
            self.tally.report(&mut self.intervals, &self.dispatcher);
            self.intervals.finish(self.since_ns(self.now_ns), self.dispatcher.counters().flowlets());
        }
        self.transport.finish();
    }

    /// Numbers and dispatches the packets of a classified batch.
    fn dispatch_batch(&mut self, batch: &mut Vec<Packet>) {
        let mut guesses = std::mem::take(&mut self.guesses);
        let lane = self.transport.fast_lane();
        guesses.extend(batch.iter().map(|packet| {
            let guess = self.dispatcher.guess(packet.meta().hash);
            if let Some(lane) = &lane {
                lane.prefetch_index(guess.index());
            }
            guess
        }));
        // Units are notified of packets that begin flowlets, and of few others.
        let many = lane.is_none() || self.dispatcher.expects_flowlets();
        let count = if many { 0 } else { self.number_all(batch, &guesses) };
        let (first, others) = guesses.split_at(count);
        let mut rest = std::mem::take(&mut self.rest);
        rest.extend(batch.drain(count..));
        if let Some(lane) = self.transport.fast_lane() {
            lane.skip_unit_all(first, batch.drain(..));
        }
        self.dispatch(&mut rest, others, many);
        self.rest = rest;
        guesses.clear();
        self.guesses = guesses;
    }

    /// Dispatches packets that may begin flowlets; `many` if most are expected to.
    fn dispatch(&mut self, packets: &mut Vec<Packet>, guesses: &[FlowGuess], mut many: bool) {
        let mut packets = packets.drain(..);
        for guesses in guesses.chunks(AHEAD) {
            if let Some(lane) = self.transport.fast_lane()
                && many
            {
                for (unit, index) in guesses.iter().filter_map(|&guess| self.dispatcher.owner_of_guess(guess))
                {
                    self.dispatcher.prefetch_flowlet(index);
                    lane.prefetch_flow(unit, index);
                }
            }
            let before = self.dispatcher.counters().flowlets();
            for (&guess, packet) in guesses.iter().zip(packets.by_ref()) {
                self.dispatch_one(packet, guess);
            }
            // Flows that began together are cut together.
            many |= 2 * (self.dispatcher.counters().flowlets() - before) > guesses.len() as u64;
        }
    }

    /// Numbers packets from the front of the batch as long as each continues a flowlet and its unit
    /// need not be notified. Returns how many.
    #[inline]
    fn number_all(&mut self, packets: &[Packet], guesses: &[FlowGuess]) -> usize {
        let arrivals = packets.iter().zip(guesses).map_while(|(packet, &guess)| {
            let meta = packet.meta();
            let arrival = PacketArrival { key: &meta.key, hash: meta.hash, len: meta.wire_len };
            (meta.class == PacketClass::Whole).then_some((meta.transit.timestamp_ns, arrival, guess))
        });
        let bytes_before = self.dispatcher.counters().bytes;
        let times = self.now_ns..self.due_ns;
        let Some(lane) = self.transport.fast_lane() else { return 0 };
        let count = self.dispatcher.number_batch(times, arrivals, |packet| lane.skips_unit(packet));
        self.now_ns = self.dispatcher.now_ns();
        self.tally.add(count as u64, self.dispatcher.counters().bytes - bytes_before);
        count
    }

    /// Dispatches a classified packet.
    #[inline]
    fn dispatch_one(&mut self, packet: Packet, guess: FlowGuess) {
        if packet.meta().class != PacketClass::Whole {
            return self.dispatch_other(packet);
        }
        self.arrive(&packet);
        if let Some(nodes) = self.transport.nodes()
            && nodes.has_full_units()
            && let Some(unit) = self.full_unit_of(&packet)
        {
            return self.drop_for_unit(unit, packet);
        }
        let meta = packet.meta();
        let arrival = PacketArrival { key: &meta.key, hash: meta.hash, len: meta.wire_len };
        match self.dispatcher.number_next(self.now_ns, arrival, guess) {
            Some(numbered) => self.continue_flowlet(numbered, packet),
            None => self.dispatch_known(packet),
        }
    }

    /// Returns the owner of the packet's flow, if that unit is full.
    #[cold]
    fn full_unit_of(&self, packet: &Packet) -> Option<UnitId> {
        let meta = packet.meta();
        let nodes = self.transport.nodes()?;
        self.dispatcher.flows().owner(meta.hash, &meta.key).filter(|&unit| nodes.is_unit_full(unit))
    }

    /// Drops a packet that its unit cannot take. It has no number yet: no later one waits for it.
    #[cold]
    fn drop_for_unit(&mut self, unit: UnitId, packet: Packet) {
        self.dispatcher.refuse_packet(self.now_ns, unit, packet.meta().wire_len);
        self.due_ns = self.due_ns.min(self.dispatcher.next_timeout_ns());
        self.transport.core().drop_packet(packet, DropReason::UnitBehind);
    }

    /// Dispatches a packet that is not a whole one of a flow.
    #[cold]
    fn dispatch_other(&mut self, packet: Packet) {
        if packet.meta().class == PacketClass::NotIp
            && self.transport.core().graph.classifier().is_refused(&packet)
        {
            // As in the graph, unreadable packets do not advance the time.
            self.flush();
            return self.transport.core().process_aside(packet);
        }
        self.arrive(&packet);
        self.dispatch_alone(packet);
    }

    /// Advances the time to the packet's arrival.
    #[inline(always)]
    fn arrive(&mut self, packet: &Packet) {
        self.now_ns = self.now_ns.max(packet.meta().transit.timestamp_ns);
        if self.now_ns >= self.due_ns {
            self.handle_timeouts();
        }
        self.tally.add(1, packet.meta().wire_len.into());
    }

    /// Sends the next packet of a flowlet to its unit.
    #[inline(always)]
    fn continue_flowlet(&mut self, numbered: NumberedPacket, packet: Packet) {
        let Some(lane) = self.transport.fast_lane() else {
            let stamp = self.dispatcher.stamp_numbered(&numbered);
            return self.transport.packet(self.now_ns, numbered.unit, stamp, packet);
        };
        if lane.skips_unit(&numbered) {
            return lane.skip_unit(numbered.flow.index, packet);
        }
        let stamp = self.dispatcher.stamp_numbered(&numbered);
        lane.continue_flowlet(self.now_ns, &numbered, stamp, packet);
        self.due_ns = self.due_ns.min(self.transport.next_timeout_ns());
    }

    /// Dispatches a whole packet that does not just continue a flowlet.
    #[inline(never)]
    fn dispatch_known(&mut self, packet: Packet) {
        let meta = packet.meta();
        let arrival = PacketArrival { key: &meta.key, hash: meta.hash, len: meta.wire_len };
        match self.dispatcher.handle_known_packet(self.now_ns, arrival, &mut self.outputs) {
            Some(Dispatched::To { unit, stamp }) => {
                self.execute_outputs();
                self.transport.packet(self.now_ns, unit, stamp, packet);
                self.take_messages();
            }
            Some(Dispatched::Refused | Dispatched::NoUnit | Dispatched::Waits(_)) | None => {
                self.dispatch_alone(packet)
            }
        }
    }

    /// Dispatches a packet of no known flow, or a packet that depends on others: after all earlier
    /// packets if it may depend on their outcome, and in memory before any later one.
    #[cold]
    fn dispatch_alone(&mut self, packet: Packet) {
        self.dispatch_from(packet, Passage::Arrived);
    }

    /// Dispatches a packet alone, after this passage.
    fn dispatch_from(&mut self, packet: Packet, passage: Passage) {
        self.dispatch_again(); // They have arrived before.
        let packet = match self.lost.is_empty() {
            true => packet,
            false => match self.reset_ends(packet) {
                Some(packet) => packet,
                None => return,
            },
        };
        let may_depend = self.transport.fast_lane().is_some() || !self.config.is_live || is_fragment(&packet);
        if may_depend {
            self.settle_units();
        }
        let Some((packet, (key, hash), group)) = self.keep(packet, passage) else { return };
        let arrival = PacketArrival { key: &key, hash, len: packet.meta().wire_len };
        self.dispatcher.refuse_flows(reserve::is_short());
        let dispatched = self.dispatcher.handle_packet_of(self.now_ns, arrival, group, &mut self.outputs);
        self.flows_peak = self.flows_peak.max(self.dispatcher.flows().count());
        if let Dispatched::To { stamp, .. } = &dispatched
            && let Some(nodes) = self.transport.nodes_mut()
        {
            nodes.begin(stamp.flow, self.dispatcher.flows().group(stamp.flow));
        }
        self.execute_outputs();
        match dispatched {
            Dispatched::To { unit, stamp } => {
                if let Some(tokens) = &mut self.tokens {
                    tokens.begun(&packet);
                }
                match self.transport.fast_lane() {
                    Some(lane) => lane.packet_alone(self.now_ns, unit, stamp, packet),
                    None => self.transport.packet(self.now_ns, unit, stamp, packet),
                }
                if may_depend {
                    self.pump();
                }
            }
            Dispatched::Refused => {
                let is_short = reserve::is_short();
                let reason = if is_short { DropReason::NoMemory } else { DropReason::FlowTableFull };
                self.transport.core().drop_packet(packet, reason);
            }
            Dispatched::NoUnit => self.transport.core().drop_packet(packet, DropReason::NoUnit),
            Dispatched::Waits(group) => {
                if let Some(packet) = self.waiting.add(group, packet) {
                    self.transport.core().drop_packet(packet, DropReason::GroupMoving);
                }
            }
        }
    }

    /// Returns the affinity group of the flow that this packet begins.
    fn group_of(&mut self, packet: &Packet) -> Option<AffinityGroup> {
        let group = self.transport.core().graph.group_of(packet);
        group.or_else(|| self.tokens.as_ref()?.group_of(packet))
    }

    /// Remembers the tokens of connections that these packets begin.
    fn learn_tokens(&mut self, packets: &[Packet]) {
        let Some(tokens) = &mut self.tokens else { return };
        for packet in packets {
            tokens.learn(packet, |key, hash| self.dispatcher.flows().find(hash, key).is_some());
        }
    }

    /// Returns whether a live flow has this key.
    fn is_live(&mut self, hash: u64, key: &FlowKey) -> bool {
        let Some(flow) = self.dispatcher.flows().find(hash, key) else { return false };
        if let Some(lane) = self.transport.fast_lane() {
            lane.expire_flow(self.now_ns, flow);
        }
        self.pump();
        self.dispatcher.flows().find(hash, key).is_some()
    }

    /// Handles all deadlines that have passed.
    #[cold]
    fn handle_timeouts(&mut self) {
        self.flush();
        let now_ns = self.now_ns;
        let began_ns = *self.began_ns.get_or_insert(now_ns);
        self.tally.report(&mut self.intervals, &self.dispatcher);
        self.intervals.pass(now_ns - began_ns, self.dispatcher.counters().flowlets());
        if self.transport.next_timeout_ns() <= now_ns {
            self.handle_unit_timeouts();
        }
        if self.dispatcher.next_timeout_ns() <= now_ns {
            self.dispatcher.handle_timeout(now_ns, &mut self.outputs);
        }
        self.execute_outputs();
        self.copying.handle_timeout(now_ns);
        self.forget_old_lost();
        let interval_end_ns = began_ns.saturating_add(self.intervals.ends_ns());
        let due_ns = interval_end_ns.min(self.copying.next_timeout_ns());
        self.due_ns = due_ns.min(self.transport.next_timeout_ns()).min(self.dispatcher.next_timeout_ns());
    }

    /// Advances the time at units while nothing is in flight: a flow expires at its owner, and
    /// nowhere else.
    fn handle_unit_timeouts(&mut self) {
        if self.transport.nodes().is_some() {
            // They have clocks of their own; this call need not wait for them.
            self.transport.handle_timeout(self.now_ns);
            return self.pump();
        }
        self.settle_units();
        if let Some(units) = self.transport.barrier() {
            units.drain_messages();
        }
        self.await_answers();
        self.transport.handle_timeout(self.now_ns);
        self.await_answers();
    }

    /// Dispatches packets that have waited.
    fn dispatch_again(&mut self) {
        if self.again.is_empty() || self.is_starting_over {
            return; // They stay pending until units have started over.
        }
        for packet in std::mem::take(&mut self.again) {
            self.dispatch_alone(packet);
        }
    }
}

fn is_fragment(packet: &Packet) -> bool {
    matches!(packet.meta().class, PacketClass::FirstFragment | PacketClass::LaterFragment)
}

impl<T: Transport + UnitReports> Elastic<T> {
    /// Processes packets in order, as [`Graph::process`] does.
    pub fn process(
        &mut self,
        graph: &mut Box<Graph>,
        batch: &mut Vec<Packet>,
        out: &mut Vec<Packet>,
        pool: &mut PacketPool,
    ) {
        Backend::process(self, batch, Core { graph, out, pool });
    }

    /// Returns what the units did.
    pub fn report(&self) -> UnitsReport {
        let counters = self.transport.unit_counters();
        let running = self.loads().count();
        let mut report =
            UnitsReport::of(&self.config, &self.dispatcher, counters.iter(), running, &self.intervals);
        report.packets_waited = self.waiting.count;
        report.flows_reset = self.lost.counts.flows_reset;
        report.resets_sent = self.lost.counts.resets;
        report.lost_flows_forgotten += self.lost.counts.forgotten;
        if let Some(tokens) = &self.tokens {
            tokens.add_to_report(&mut report);
        }
        self.transport.add_to_units_report(&mut report);
        report
    }
}

impl<T: Transport + UnitReports> Backend for Elastic<T> {
    fn process(&mut self, batch: &mut Vec<Packet>, core: Core<'_>) {
        let mut this = self.lend(core);
        this.classify(batch);
        this.transport.note_arrivals(batch);
        this.take_batch(batch);
    }

    fn handle_timeout(&mut self, now_ns: u64, core: Core<'_>) {
        self.lend(core).advance(now_ns);
    }

    fn has_pending(&self) -> bool {
        self.transport.has_pending() || !self.waiting.is_empty()
    }

    fn finish(&mut self, core: Core<'_>) -> bool {
        self.lend(core).end_flows()
    }
}

impl<T: Transport + UnitReports> UnitsBackend for Elastic<T> {
    fn settle(&mut self, core: Core<'_>) {
        let mut this = self.lend(core);
        this.await_groups();
        this.settle_units();
    }

    fn takes_stale(&self) -> bool {
        self.transport.nodes().is_none()
    }

    fn event(&self) -> Option<BorrowedFd<'_>> {
        self.transport.nodes()?.event()
    }

    fn control(&mut self, stage: usize, command: &str) {
        self.transport.control(stage, command);
    }

    fn operate(&mut self, request: OperatorRequest, core: Core<'_>) {
        self.lend(core).answer(request);
    }

    fn effects_mut(&mut self) -> &mut Vec<Effects> {
        &mut self.effects
    }
}

impl<T: Transport + UnitReports> UnitsFigures for Elastic<T> {
    fn dispatcher_status(&self) -> DispatcherStatus {
        self.status()
    }

    fn unit_loads(&self) -> Vec<(UnitId, f64, u32)> {
        self.loads().collect()
    }

    fn ask_for_figures(&mut self) {
        self.transport.ask_for_figures();
    }

    fn add_to_report(&self, report: &mut Report, names: &[String]) {
        report.units = Some(self.report());
        report.packets_pending += self.waiting.len() as u64;
        self.transport.add_to_report(report, names);
        let resets = self.lost.counts;
        report.packets_generated += resets.resets;
        report.packets_out += resets.resets;
        report.bytes_out += resets.bytes;
        if self.transport.is_deferred() {
            // Units have tables of their own: the dispatcher alone knows the peak of all together.
            report.flows.peak = u64::from(self.flows_peak).min(report.flows.started);
        }
    }

    fn is_deferred(&self) -> bool {
        self.transport.is_deferred()
    }

    fn record_latency(&mut self, out: &[Packet], latency: &mut Histogram<u64>) {
        self.transport.record_latency(out, latency);
    }
}
