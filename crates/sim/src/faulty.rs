//! Real policies on units behind faulty links, on virtual time.
//!
//! [`Faulty`] is a transport between a real dispatcher and real units, each with a graph of its
//! own. Packets and messages take time, and are lost, repeated, delayed and overtaken as a
//! [`FaultPlan`] says. Units join, leave and crash. The same plan and seed give the same run. Messages of the dispatcher and
//! reports of units arrive, in order; packets, and messages between units, may not.

mod members;
mod observed;
mod plan;
mod trial;

use std::cell::RefCell;
use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;

use graph::Graph;
use nf::SharedHandle;
use packet::{DropReason, Packet};
use protocol::message::{FlowId, FromDispatcher, FromPeer, Stamp, UnitId};
use protocol::trace::failure::simulated_timeline;
use protocol::trace::{
    EventTimeline, FlowPlace, Machine, MessagePeer, MessageSummary, TimelineEvent, TraceDetail,
};
use protocol::unit::{Counters, DropCause};
use runtime::elastic::{ElasticError, UnitsConfig};
use runtime::report::Report;
use runtime::transport::{
    Absent, Barrier, Fleet, LocalGraph, Mail, Return, Sending, Started, ToUnit, Transport, UnitChange,
    UnitEnd, UnitLink, UnitReports,
};
use runtime::{Assembly, Runner, timeline};

use crate::random::Random;
use members::Members;

pub use observed::TrialDifference;
pub use plan::{ChangeKind, FaultPlan, PlannedChange};
pub use trial::{FaultTrial, TrialFrame, TrialReport};

/// Time of the run after which units handle deadlines, in nanoseconds.
const STEP_NS: u64 = 1_000_000;

/// Time after which a run is given up in which no pending packet and no answer has arrived.
const PATIENCE_NS: u64 = 60_000_000_000;

/// The host of all, in timelines.
const HOST: &str = "simulation";

/// Counts of faults, during and after a run.
#[derive(Clone, Debug, Default)]
pub struct FaultCounts {
    /// Packets that no unit processed, by sequence: they were lost, or came too late.
    pub unprocessed: BTreeSet<u64>,
    /// Packets that were lost on a link.
    pub packets_lost: u64,
    /// Packets that were overtaken.
    pub packets_late: u64,
    /// Messages that were lost.
    pub messages_lost: u64,
    /// Messages that arrived twice.
    pub messages_repeated: u64,
    /// Messages that were overtaken.
    pub messages_late: u64,
    /// Units that joined by the plan.
    pub joins: u64,
    /// Units that left by the plan.
    pub leaves: u64,
    /// Units that crashed.
    pub crashes: u64,
    /// Flows that were lost in a crash, and the sequence of the first packet after it.
    pub flows_lost: BTreeMap<FlowId, u64>,
    /// The flow of each packet that was sent to a unit, by sequence.
    pub flows: BTreeMap<u64, FlowId>,
    /// Packets that a unit dropped because it had given them up.
    pub stale: u64,
    /// Packets that were pending forever, or 1 if only an answer was missing: the run was given up.
    pub stuck: u64,
}

impl FaultCounts {
    fn drop_at_unit(&mut self, dropped: Vec<(u64, DropCause)>) {
        for (sequence, cause) in dropped {
            self.unprocessed.insert(sequence);
            self.stale += u64::from(cause == DropCause::Stale);
        }
    }
}

/// A transport over faulty links.
pub struct Faulty {
    plan: FaultPlan,
    config: UnitsConfig,
    make: Box<dyn Fn() -> Result<Box<Graph>, String>>,
    local: LocalGraph,
    shared: Vec<SharedHandle>,
    units: Vec<Option<Box<UnitEnd>>>,
    random: Random,
    now_ns: u64,
    stepped_ns: u64,
    events: BinaryHeap<Reverse<Scheduled>>,
    /// Events that were scheduled so far.
    scheduled: u64,
    /// Latest arrival of what keeps its order: to each unit, and back.
    to_unit_ns: Vec<u64>,
    back_ns: Vec<u64>,
    reports: VecDeque<Box<Return>>,
    sent: u64,
    through: u64,
    through_of: Vec<u64>,
    unanswered: u64,
    mails: u64,
    /// Time at which a packet was sent, or a report arrived that brought something forward.
    progress_ns: u64,
    is_finishing: bool,
    members: Members,
    /// Changes of units that the dispatcher has not heard of.
    changes: VecDeque<UnitChange>,
    /// Sequence of the next packet, if packets are sent in order of arrival.
    next_sequence: u64,
    outcome: Rc<RefCell<FaultCounts>>,
    timeline: Arc<EventTimeline>,
}

/// Something that arrives at a time.
struct Scheduled {
    at_ns: u64,
    number: u64,
    event: Event,
}

#[allow(clippy::large_enum_variant)] // Nearly all are packets.
enum Event {
    ToUnit(UnitId, ToUnit),
    Mail(UnitId, Mail),
    Report(Box<Return>),
    Change(PlannedChange),
}

impl PartialEq for Scheduled {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Scheduled {}

impl PartialOrd for Scheduled {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Scheduled {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.at_ns, self.number).cmp(&(other.at_ns, other.number))
    }
}

/// Creates a runner of a policy on units behind faulty links, and returns what the links do.
/// `make` makes a graph for each unit, of the same policy with the same seed.
///
/// # Errors
/// If the configuration is invalid, or a graph cannot be made.
pub fn runner(
    mut assembly: Assembly,
    name: &str,
    config: UnitsConfig,
    plan: FaultPlan,
    seed: u64,
    make: impl Fn() -> Result<Box<Graph>, String> + 'static,
) -> Result<(Runner, Rc<RefCell<FaultCounts>>), ElasticError> {
    let outcome = Rc::new(RefCell::new(FaultCounts::default()));
    let timeline = simulated_timeline();
    let units = usize::from(config.units_max);
    let mut transport = Faulty {
        plan,
        config,
        make: Box::new(make),
        local: LocalGraph::placeholder(&assembly.graph)?,
        shared: assembly.graph.sharing().share(),
        units: (0..units).map(|_| None).collect(),
        random: Random::new(seed, "faulty links"),
        now_ns: 0,
        stepped_ns: 0,
        events: BinaryHeap::new(),
        scheduled: 0,
        to_unit_ns: vec![0; units],
        back_ns: vec![0; units],
        reports: VecDeque::new(),
        sent: 0,
        through: 0,
        through_of: vec![0; units],
        unanswered: 0,
        mails: 0,
        progress_ns: 0,
        is_finishing: false,
        members: Members::new(units, seed),
        changes: VecDeque::new(),
        next_sequence: 0,
        outcome: Rc::clone(&outcome),
        timeline: Arc::clone(&timeline),
    };
    for unit in (0..config.units_min).map(UnitId) {
        transport.spawn(unit).map_err(ElasticError::Graph)?;
        transport.members.activate(unit);
    }
    let runner = timeline::recorded(&timeline, HOST, TraceDetail::Packets, || {
        Runner::on_transport(assembly, name, config, transport)
    });
    Ok((runner?, outcome))
}

/// Units measure no time here.
fn no_clock() -> u64 {
    0
}

impl Faulty {
    fn spawn(&mut self, unit: UnitId) -> Result<(), String> {
        let graph = (self.make)()?;
        let flows_max = self.config.dispatcher_of_threads(graph.options()).flows_max;
        let config = self.config.unit(unit);
        let end = timeline::recorded(&self.timeline, HOST, TraceDetail::Packets, || {
            UnitEnd::new(config, graph, self.shared.clone(), flows_max, false, no_clock)
        });
        self.units[unit.index()] = Some(Box::new(end));
        self.collect(unit);
        Ok(())
    }

    fn schedule(&mut self, at_ns: u64, event: Event) {
        self.scheduled += 1;
        self.events.push(Reverse(Scheduled { at_ns, number: self.scheduled, event }));
    }

    /// Returns when something arrives that is sent now.
    fn arrival_ns(&mut self) -> u64 {
        let link = self.plan.packets;
        self.now_ns + link.latency.0 + self.random.below(link.jitter.0 + 1)
    }

    /// Returns when something arrives after everything that was sent to the unit before.
    fn in_order_ns(&mut self, unit: UnitId) -> u64 {
        let at_ns = self.arrival_ns().max(self.to_unit_ns[unit.index()]);
        self.to_unit_ns[unit.index()] = at_ns;
        at_ns
    }

    /// Sends a packet, or loses it.
    fn send_packet(&mut self, packet: Packet, send: impl FnOnce(Packet) -> Event) {
        let link = self.plan.packets;
        if self.random.happens(link.loss.0) {
            self.outcome.borrow_mut().packets_lost += 1;
            return self.lose_packet(packet);
        }
        let mut at_ns = self.arrival_ns();
        if self.random.happens(link.reorder.0) {
            self.outcome.borrow_mut().packets_late += 1;
            at_ns += link.reorder_by.0;
        }
        let event = send(packet);
        self.schedule(at_ns, event);
    }

    /// Drops a packet that does not arrive.
    fn lose_packet(&mut self, packet: Packet) {
        self.outcome.borrow_mut().unprocessed.insert(packet.meta().transit.sequence);
        self.through += 1;
        self.local.drop_packet(packet, DropReason::Internal);
    }

    /// Sends a unit's report to the dispatcher, after all earlier ones.
    fn send_report(&mut self, report: Box<Return>) {
        let unit = report.unit.index();
        let at_ns = self.arrival_ns().max(self.back_ns[unit]);
        self.back_ns[unit] = at_ns;
        self.schedule(at_ns, Event::Report(report));
    }

    /// Sends a message between units as often as it arrives.
    fn send_mail(&mut self, from: UnitId, to: UnitId, message: &FromPeer) {
        let faults = self.plan.messages;
        if self.random.happens(faults.loss.0) {
            self.outcome.borrow_mut().messages_lost += 1;
            let event = TimelineEvent::Lost { message: message.into(), to: MessagePeer::Unit(to) };
            return self.note_fault(Machine::Unit(from), MessageSummary::from(message).place(), event);
        }
        let mut at_ns = self.arrival_ns();
        if self.random.happens(faults.late.0) {
            self.outcome.borrow_mut().messages_late += 1;
            at_ns += self.random.below(faults.late_by.0 + 1);
        }
        let again_ns = self.random.happens(faults.again.0).then(|| self.random.below(faults.late_by.0 + 1));
        for delay_ns in std::iter::once(0).chain(again_ns) {
            self.mails += 1;
            self.schedule(at_ns + delay_ns, Event::Mail(to, Mail::Message(from, message.clone())));
        }
        self.outcome.borrow_mut().messages_repeated += u64::from(again_ns.is_some());
    }

    /// Sends what a unit sends.
    fn collect(&mut self, unit: UnitId) {
        loop {
            let Some(end) = &mut self.units[unit.index()] else { return };
            self.outcome.borrow_mut().drop_at_unit(end.take_dropped());
            let Some(sending) = end.poll() else { return };
            match sending {
                Sending::Return(mut report) => {
                    let (loss, random) = (self.plan.messages.loss.0, &mut self.random);
                    let before = report.messages.len();
                    report.messages.retain(|_| !random.happens(loss));
                    let lost = before - report.messages.len();
                    self.outcome.borrow_mut().messages_lost += lost as u64;
                    self.send_report(report);
                }
                Sending::Mail(to, Mail::Message(from, message)) => self.send_mail(from, to, &message),
                Sending::Mail(to, Mail::Packet(stamp, packet)) => {
                    self.mails += 1;
                    let before = self.events.len();
                    self.send_packet(packet, |packet| Event::Mail(to, Mail::Packet(stamp, packet)));
                    self.mails -= u64::from(self.events.len() == before);
                }
            }
        }
    }

    /// Returns when something happens next.
    fn next_ns(&self) -> Option<u64> {
        let event_ns = self.events.peek().map(|Reverse(next)| next.at_ns);
        let timeouts = self.units.iter().flatten().map(|end| end.next_timeout_ns());
        let timeout_ns = timeouts.min().filter(|&at_ns| at_ns < u64::MAX);
        event_ns.into_iter().chain(timeout_ns).min()
    }

    /// Lets everything happen up to a time.
    fn run_to(&mut self, until_ns: u64) {
        while let Some(next_ns) = self.next_ns().filter(|&next_ns| next_ns <= until_ns) {
            self.now_ns = self.now_ns.max(next_ns);
            let is_event = self.events.peek().is_some_and(|Reverse(event)| event.at_ns <= next_ns);
            match is_event.then(|| self.events.pop()).flatten() {
                Some(Reverse(Scheduled { event, .. })) => self.deliver(event),
                None => self.handle_unit_timeouts(),
            }
        }
        self.now_ns = self.now_ns.max(until_ns);
    }

    /// Lets everything happen that happens before the dispatcher's present time. A gap in the
    /// traffic is no time in which something is awaited.
    fn pass_to(&mut self, now_ns: u64) {
        let is_later = now_ns > self.now_ns;
        self.run_to(now_ns.max(self.now_ns));
        if is_later {
            self.progress_ns = now_ns;
        }
    }

    /// Notes what a link or the plan does.
    fn note_fault(&self, role: Machine, place: FlowPlace, event: TimelineEvent) {
        self.timeline.trace(HOST, role, TraceDetail::Packets).note(self.now_ns, place, None, event);
    }

    fn deliver(&mut self, event: Event) {
        let now_ns = self.now_ns;
        self.timeline.set_in_flight(self.events.len());
        self.mails -= u64::from(matches!(event, Event::Mail(..)));
        match event {
            Event::Report(report) => self.reports.push_back(report),
            Event::Change(change) => self.change(change),
            Event::ToUnit(unit, _) | Event::Mail(unit, _) if self.members.is_crashed(unit) => {
                self.at_dead_unit(unit, event);
            }
            Event::ToUnit(unit, given) => {
                if let ToUnit::Message(_, FromDispatcher::End { flow }) = given {
                    self.members.ended(flow, unit);
                }
                let given = match given {
                    ToUnit::Packet(_, stamp, packet) => ToUnit::Packet(now_ns, stamp, packet),
                    ToUnit::Message(_, message) => ToUnit::Message(now_ns, message),
                    other => other,
                };
                self.at_unit(unit, |end| end.handle(given));
            }
            Event::Mail(unit, mail) => {
                self.at_unit(unit, |end| {
                    end.set_time(now_ns);
                    end.handle_mail(mail);
                });
            }
        }
    }

    fn handle_unit_timeouts(&mut self) {
        let now_ns = self.now_ns;
        for unit in (0..self.units.len() as u16).map(UnitId) {
            let is_due = |end: &&mut Box<UnitEnd>| end.next_timeout_ns() <= now_ns;
            if self.units[unit.index()].as_mut().filter(is_due).is_some() {
                self.at_unit(unit, |end| end.handle_protocol_timeout(now_ns));
            }
        }
    }

    fn at_unit(&mut self, unit: UnitId, act: impl FnOnce(&mut UnitEnd)) {
        if let Some(end) = &mut self.units[unit.index()] {
            act(end);
            end.report();
            self.collect(unit);
        }
    }

    /// Returns the ends of all units, those that have crashed, too.
    fn ends(&self) -> impl Iterator<Item = &UnitEnd> {
        self.units.iter().flatten().map(|end| &**end).chain(&self.members.dead)
    }

    /// Sends every started unit something that it answers.
    fn ask(&mut self, question: impl Fn() -> ToUnit) {
        for unit in (0..self.units.len() as u16).map(UnitId) {
            if self.units[unit.index()].is_some() {
                self.unanswered += 1;
                let at_ns = self.in_order_ns(unit);
                self.schedule(at_ns, Event::ToUnit(unit, question()));
            }
        }
    }
}

impl UnitLink for Faulty {
    type Access<'a> = &'a mut LocalGraph;

    fn core(&mut self) -> &mut LocalGraph {
        &mut self.local
    }

    fn packet(&mut self, now_ns: u64, unit: UnitId, stamp: Stamp, packet: Packet) {
        let sequence = packet.meta().transit.sequence;
        if self.sent == 0 {
            self.schedule_changes(now_ns);
        }
        self.next_sequence = self.next_sequence.max(sequence + 1);
        self.outcome.borrow_mut().flows.insert(sequence, stamp.flow);
        self.set_owner(stamp.flow, unit);
        self.pass_to(now_ns);
        self.sent += 1;
        self.progress_ns = self.now_ns;
        self.send_packet(packet, |packet| Event::ToUnit(unit, ToUnit::Packet(now_ns, stamp, packet)));
    }

    fn message(&mut self, now_ns: u64, unit: UnitId, message: FromDispatcher) {
        self.pass_to(now_ns);
        self.note_message(unit, &message);
        let at_ns = self.in_order_ns(unit);
        self.schedule(at_ns, Event::ToUnit(unit, ToUnit::Message(now_ns, message)));
    }

    fn receive(&mut self) -> Option<Box<Return>> {
        let mut report = self.reports.pop_front()?;
        self.note_report(&report);
        self.local.out.append(&mut report.out);
        report.buffers.drain(..).for_each(|packet| self.local.pool.give(packet));
        let through = &mut self.through_of[report.unit.index()];
        if report.through > *through || report.has_answered {
            self.progress_ns = self.now_ns;
        }
        self.through += report.through - *through;
        *through = report.through;
        self.unanswered -= u64::from(report.has_answered);
        Some(report)
    }

    fn end_batch(&mut self, now_ns: u64) {
        self.pass_to(now_ns);
        self.local.graph.handle_timeout(now_ns, &mut self.local.pool);
    }

    fn has_pending(&self) -> bool {
        self.sent > self.through && self.outcome.borrow().stuck == 0
    }

    fn handle_timeout(&mut self, now_ns: u64) {
        self.stepped_ns = now_ns;
        self.ask(|| ToUnit::Step(now_ns));
    }

    fn next_timeout_ns(&self) -> u64 {
        self.stepped_ns.saturating_add(STEP_NS)
    }
}

impl Fleet for Faulty {
    fn start(&mut self, unit: UnitId) -> Started {
        if self.units[unit.index()].is_some() {
            self.members.activate(unit);
            return Started::Ready;
        }
        if self.spawn(unit).is_ok() { Started::Pending } else { Started::Unchanged }
    }

    fn poll_change(&mut self) -> Option<UnitChange> {
        self.changes.pop_front()
    }

    fn finish(&mut self) {
        self.is_finishing = true;
        for unit in (0..self.units.len() as u16).map(UnitId) {
            let mut is_done = self.units[unit.index()].is_none();
            while !is_done {
                self.at_unit(unit, |end| is_done = end.end_flows());
            }
        }
        while let Some(Reverse(Scheduled { at_ns, event, .. })) = self.events.pop() {
            self.now_ns = self.now_ns.max(at_ns);
            if let Event::Report(report) = event {
                self.reports.push_back(report);
            }
        }
    }

    fn has_finished(&mut self) -> bool {
        let has_finished = self.reports.is_empty();
        if has_finished {
            self.local.graph.sharing().part();
        }
        has_finished
    }

    fn is_ready(&self, unit: UnitId, units_min: u16) -> bool {
        unit.0 < units_min
    }

    /// Trials have no operators.
    fn control(&mut self, _stage: usize, _command: &str) {}
}

impl Transport for Faulty {
    type FastLane = Absent;
    type Barrier = Self;
    type Nodes = Absent;
    type Federation = Absent;

    #[inline(always)]
    fn fast_lane(&mut self) -> Option<&mut Absent> {
        None
    }

    #[inline(always)]
    fn barrier(&mut self) -> Option<&mut Self> {
        Some(self)
    }

    #[inline(always)]
    fn nodes(&self) -> Option<&Absent> {
        None
    }

    #[inline(always)]
    fn nodes_mut(&mut self) -> Option<&mut Absent> {
        None
    }

    #[inline(always)]
    fn federation(&mut self) -> Option<&mut Absent> {
        None
    }
}

impl UnitReports for Faulty {
    fn is_deferred(&self) -> bool {
        true
    }

    fn unit_counters(&self) -> Vec<Counters> {
        self.ends().map(|end| end.counters()).collect()
    }

    fn add_to_report(&self, report: &mut Report, names: &[String]) {
        let size = report.flows.size;
        for end in self.ends() {
            report.add(&Report::of(&report.policy, report.seed, end.graph(), names));
        }
        report.flows.size = size;
    }
}

impl Barrier for Faulty {
    /// Time passes until something happens.
    fn wait(&mut self) {
        // Units may retransmit forever, so it does not suffice that something happens.
        match self.next_ns().filter(|&next_ns| next_ns < self.progress_ns + PATIENCE_NS) {
            Some(next_ns) => self.run_to(next_ns),
            None if self.is_finishing => {}
            // Whatever is awaited never comes: the run goes on without it, and the trial fails.
            None => self.outcome.borrow_mut().stuck = (self.sent - self.through).max(1),
        }
    }

    fn drain_messages(&mut self) {
        self.ask(|| ToUnit::Answer);
    }

    fn has_unanswered(&self) -> bool {
        (self.unanswered > 0 || self.mails > 0) && self.outcome.borrow().stuck == 0
    }

    fn is_moving(&self) -> bool {
        let is_moving = self.units.iter().flatten().any(|end| !end.is_settled());
        is_moving && self.outcome.borrow().stuck == 0
    }

    fn is_full(&self) -> bool {
        false
    }

    /// A unit that has lost its state has crashed, which is a change of units.
    fn has_failed(&self) -> bool {
        false
    }

    fn reset_units(&mut self) {}

    fn resume_units(&mut self) {}
}
