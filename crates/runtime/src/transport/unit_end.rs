//! A unit's end of a transport: the unit, its graph, and its outgoing messages. It has no thread
//! and no queue to others: its driver hands over what arrives and takes what is sent.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use graph::Graph;
use hdrhistogram::Histogram;
use nf::SharedHandle;
use packet::{DropReason, Packet};
use protocol::message::{FlowId, FromDispatcher, FromPeer, Stamp, UnitId, UnitMessage};
use protocol::trace::Machine;
use protocol::unit::{Counters, DropCause, Outbox, Unit};

use super::Return;
use super::own_table::OwnEngine;
use crate::report::{Report, new_histogram};
use crate::timeline;

/// Buffers that a unit keeps, for packets that functions make.
const BUFFERS: usize = 64;

/// From the dispatcher to a unit, in order, with the time of the run.
#[allow(clippy::large_enum_variant)] // They lie in a ring, nearly all of them packets.
pub enum ToUnit {
    /// Time passes.
    Time(u64),
    /// Time passes, and deadlines are handled; the unit answers.
    Step(u64),
    /// The unit answers.
    Answer,
    /// A packet.
    Packet(u64, Stamp, Packet),
    /// A message.
    Message(u64, FromDispatcher),
    /// An operator's command to the function with this number.
    Control(usize, Box<str>),
    /// The unit reports its counters.
    Figures,
    /// All flows end, and everything up to [`ToUnit::Resume`] is discarded; the unit answers.
    Reset,
    /// All units have been reset, and nothing is in flight between them; the unit answers.
    Resume,
    /// The run ends.
    Finish,
}

/// From a unit to a unit.
#[derive(Debug)]
pub enum Mail {
    /// A message.
    Message(UnitId, FromPeer),
    /// A packet of a flow that has moved on.
    Packet(Stamp, Packet),
}

/// Something that a unit sends.
pub enum Sending {
    /// A report to the dispatcher.
    Return(Box<Return>),
    /// A message or packet to another unit.
    Mail(UnitId, Mail),
}

/// The remains of a unit after the run.
pub struct Left {
    /// Its graph.
    pub graph: Box<Graph>,
    /// Its counters.
    pub counters: Counters,
    /// Flows that it had at the end of the run.
    pub flows_live: u64,
    /// Time to pull states from other units.
    pub pulls: Histogram<u64>,
    /// Panics of its thread.
    pub restarts: u64,
}

/// Counters of a running unit.
#[derive(Clone)]
pub(super) struct Figures {
    pub report: Report,
    pub counters: Counters,
    pub pulls: Histogram<u64>,
}

/// The board on which a unit's thread puts its counters.
pub(super) type FiguresBoard = Arc<Mutex<Option<Box<Figures>>>>;

/// Locks a board, whatever happened to its last user.
pub(super) fn lock(board: &FiguresBoard) -> MutexGuard<'_, Option<Box<Figures>>> {
    board.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A unit, its graph, and its outgoing messages.
pub struct UnitEnd {
    id: UnitId,
    unit: Unit<OwnEngine>,
    outbox: Outbox<Packet>,
    now_ns: u64,
    /// A clock to measure how long states take to arrive.
    clock_ns: fn() -> u64,
    next: Box<Return>,
    /// Packets and deadline that were reported last.
    reported: (u64, u64),
    /// Outgoing messages in order: a state leaves after all output of its packets.
    sending: VecDeque<Sending>,
    /// Messages of others that were handled since the last report.
    handled: u64,
    /// Messages to others that were sent since the last report.
    sent: u64,
    /// Pulled states, with the time of the pull.
    pulled: HashMap<FlowId, u64>,
    pulls: Histogram<u64>,
    received: u64,
    forwarded: u64,
    /// On a lossy transport: packets that the unit dropped, by sequence.
    dropped: Vec<(u64, DropCause)>,
    /// Packets that were lost to a panic.
    lost: u64,
    /// A request of the dispatcher is not answered yet.
    is_asked: bool,
    is_resetting: bool,
    is_finished: bool,
}

impl UnitEnd {
    /// Creates a unit that runs this graph, which has no flows yet. `flows_max` is the number of
    /// flows of its dispatcher. If the transport is reliable, a state is released once it is sent.
    pub fn new(
        config: protocol::unit::Config,
        mut graph: Box<Graph>,
        shared: Vec<SharedHandle>,
        flows_max: u32,
        is_reliable: bool,
        clock_ns: fn() -> u64,
    ) -> UnitEnd {
        graph.sharing().join(shared);
        graph.classifier_mut().hold_no_fragments();
        let id = config.id;
        let mut unit = Unit::new(config, OwnEngine::new(graph, flows_max, is_reliable));
        unit.set_trace(timeline::trace(Machine::Unit(id)));
        let mut end = UnitEnd {
            id,
            unit,
            outbox: Outbox::default(),
            now_ns: 0,
            clock_ns,
            next: Box::new(Return { unit: id, is_ready: true, ..Return::default() }),
            reported: (0, 0),
            sending: VecDeque::new(),
            handled: 0,
            sent: 0,
            pulled: HashMap::new(),
            pulls: new_histogram(),
            received: 0,
            forwarded: 0,
            dropped: Vec::new(),
            lost: 0,
            is_asked: false,
            is_resetting: false,
            is_finished: false,
        };
        end.report();
        end
    }

    /// Returns whether the dispatcher has ended the run.
    pub fn is_finished(&self) -> bool {
        self.is_finished
    }

    /// Returns the protocol's earliest deadline at the unit; its flows have others.
    pub fn next_timeout_ns(&self) -> u64 {
        self.unit.next_timeout_ns()
    }

    /// Returns whether no flow's state is on its way to or from the unit.
    pub fn is_settled(&self) -> bool {
        self.unit.is_settled()
    }

    /// Returns the number of packets that the next report sends through the graph.
    pub fn pending(&self) -> usize {
        self.unit.engine().pending()
    }

    /// Returns the unit's counters.
    pub fn counters(&self) -> Counters {
        *self.unit.counters()
    }

    /// Returns the unit's graph.
    pub fn graph(&self) -> &Graph {
        &self.unit.engine().graph
    }

    /// Returns packets that the unit dropped, by sequence, on a lossy transport.
    pub fn take_dropped(&mut self) -> Vec<(u64, DropCause)> {
        std::mem::take(&mut self.dropped)
    }

    /// Handles something from the dispatcher.
    pub(super) fn handle_asked(&mut self, given: ToUnit) -> Option<Box<Figures>> {
        let unit = &mut self.unit;
        self.is_asked = matches!(given, ToUnit::Step(_) | ToUnit::Answer | ToUnit::Reset | ToUnit::Resume);
        match given {
            ToUnit::Reset => {
                self.reset();
                self.answer();
            }
            ToUnit::Resume => {
                self.is_resetting = false;
                self.answer();
            }
            ToUnit::Packet(..) if self.is_resetting => self.discard(),
            ToUnit::Message(..) if self.is_resetting => {}
            ToUnit::Time(now_ns) => self.handle_timeout(now_ns),
            ToUnit::Step(now_ns) => {
                self.handle_timeout(now_ns);
                self.answer();
            }
            ToUnit::Answer => self.answer(),
            ToUnit::Packet(now_ns, stamp, packet) => {
                self.now_ns = now_ns;
                self.received += 1;
                unit.handle_packet(now_ns, stamp, packet, &mut self.outbox);
                self.collect();
            }
            ToUnit::Message(now_ns, message) => {
                self.now_ns = now_ns;
                let message = UnitMessage::FromDispatcher(message);
                unit.handle_message(now_ns, message, &mut self.outbox);
                self.collect();
            }
            ToUnit::Control(stage, command) => {
                let engine = unit.engine_mut();
                engine.run();
                control(&mut engine.graph, stage, &command);
            }
            ToUnit::Figures => return Some(self.figures()),
            ToUnit::Finish => self.is_finished = true,
        }
        None
    }

    /// Handles something from the dispatcher.
    pub fn handle(&mut self, given: ToUnit) {
        self.handle_asked(given);
    }

    /// Handles something from another unit.
    pub fn handle_mail(&mut self, mail: Mail) {
        self.handled += 1;
        let unit = &mut self.unit;
        match mail {
            Mail::Packet(..) if self.is_resetting => self.discard(),
            Mail::Message(..) if self.is_resetting => {}
            Mail::Message(from, message) => {
                // The answer to a pull: the state, or that there is none.
                let asked_ns = match &message {
                    FromPeer::State { flow, .. }
                    | FromPeer::Changes { flow, .. }
                    | FromPeer::End { flow, .. } => self.pulled.remove(flow),
                    _ => None,
                };
                let is_state = message.hands_over();
                let is_handed = is_state || matches!(message, FromPeer::Refuse { .. });
                let engine = unit.engine_mut();
                engine.is_handed = is_handed && engine.is_reliable;
                unit.handle_message(self.now_ns, UnitMessage::FromPeer(from, message), &mut self.outbox);
                unit.engine_mut().is_handed = false;
                if let Some(asked_ns) = asked_ns.filter(|_| is_state) {
                    self.pulls.saturating_record((self.clock_ns)().saturating_sub(asked_ns));
                }
            }
            Mail::Packet(stamp, packet) => {
                self.received += 1;
                unit.handle_packet(self.now_ns, stamp, packet, &mut self.outbox);
            }
        }
        self.collect();
    }

    /// Sets the time.
    pub fn set_time(&mut self, now_ns: u64) {
        self.now_ns = self.now_ns.max(now_ns);
    }

    /// Handles deadlines of the protocol that have passed, and none of flows.
    pub fn handle_protocol_timeout(&mut self, now_ns: u64) {
        self.now_ns = self.now_ns.max(now_ns);
        self.unit.handle_timeout(self.now_ns, &mut self.outbox);
        self.collect();
    }

    /// Handles deadlines that have passed.
    pub fn handle_timeout(&mut self, now_ns: u64) {
        self.now_ns = now_ns;
        let unit = &mut self.unit;
        unit.engine_mut().advance(now_ns);
        if unit.next_timeout_ns() <= now_ns {
            unit.handle_timeout(now_ns, &mut self.outbox);
            self.collect();
        }
    }

    /// Notes that a panic has interrupted the unit, and reports to the dispatcher that state is
    /// lost.
    pub fn fail(&mut self) {
        self.next.has_failed = true;
        self.next.has_answered |= std::mem::take(&mut self.is_asked);
    }

    /// Returns what the unit sends next.
    pub fn poll(&mut self) -> Option<Sending> {
        self.sending.pop_front()
    }

    /// Takes back something that found no room.
    pub(super) fn push_back(&mut self, sending: Sending) {
        self.sending.push_front(sending);
    }

    /// Drops a packet that was forwarded to a lost unit.
    pub fn drop_forwarded(&mut self, packet: Packet) {
        self.forwarded -= 1;
        let OwnEngine { graph, pool, through, .. } = self.unit.engine_mut();
        *through += 1;
        graph.classifier_mut().discard(packet, DropReason::UnitLost, pool);
    }

    /// Returns whether there is something to send.
    pub fn is_blocked(&self) -> bool {
        !self.sending.is_empty()
    }

    /// Returns the number of messages of others that were handled since the last call. All their
    /// results have been polled.
    pub(super) fn take_handled(&mut self) -> u64 {
        std::mem::take(&mut self.handled)
    }

    /// Returns the number of messages to others that were added since the last call.
    pub(super) fn take_sent(&mut self) -> u64 {
        std::mem::take(&mut self.sent)
    }

    fn answer(&mut self) {
        self.report();
        self.next.has_answered = true;
        self.is_asked = false;
    }

    /// Drops all flows and everything in flight.
    fn reset(&mut self) {
        self.is_resetting = true;
        self.outbox = Outbox::default();
        self.pulled.clear();
        self.unit.note_reset(self.now_ns);
        self.unit.reset();
        let engine = self.unit.engine_mut();
        let lost = self.received - self.forwarded - self.lost - engine.through;
        self.lost += lost;
        self.next.lost += lost;
        engine.start_over(lost);
    }

    /// Discards a packet that arrives during a reset.
    fn discard(&mut self) {
        self.received += 1;
        self.lost += 1;
        self.next.lost += 1;
        self.unit.engine_mut().start_over(1);
    }

    fn figures(&mut self) -> Box<Figures> {
        let counters = *self.unit.counters();
        let engine = self.unit.engine_mut();
        engine.run();
        let names = vec![String::new(); engine.graph.stages().len()];
        let report = Report::of("", None, &engine.graph, &names);
        Box::new(Figures { report, counters, pulls: self.pulls.clone() })
    }

    /// Takes the unit's outgoing messages.
    fn collect(&mut self) {
        if self.outbox.is_empty() {
            return;
        }
        if !self.outbox.to_units.is_empty() || !self.outbox.forwarded.is_empty() {
            for (_, message) in &self.outbox.to_units {
                match message {
                    FromPeer::State { flow, .. } | FromPeer::Changes { flow, .. } => {
                        self.unit.engine_mut().sent(*flow)
                    }
                    FromPeer::Pull { flow, owner, .. } if *owner == self.id => {
                        self.pulled.insert(*flow, (self.clock_ns)());
                    }
                    _ => {}
                }
            }
            // The output of earlier packets leaves first.
            self.report();
            self.sent += (self.outbox.to_units.len() + self.outbox.forwarded.len()) as u64;
        }
        self.next.messages.append(&mut self.outbox.to_dispatcher);
        for (to, message) in self.outbox.to_units.drain(..) {
            self.sending.push_back(Sending::Mail(to, Mail::Message(self.id, message)));
        }
        debug_assert!(self.outbox.to_all.is_empty(), "copies go to units that are named");
        for (to, stamp, packet) in self.outbox.forwarded.drain(..) {
            self.forwarded += 1;
            self.sending.push_back(Sending::Mail(to, Mail::Packet(stamp, packet)));
        }
        let OwnEngine { graph, pool, through, is_reliable, .. } = self.unit.engine_mut();
        for (why, _, packet) in self.outbox.dropped.drain(..) {
            *through += 1;
            if !*is_reliable {
                self.dropped.push((packet.meta().transit.sequence, why));
            }
            // A reliable transport repeats no packet, and fewer are in flight than may be pending.
            let reason = match why {
                DropCause::FlowEnded => DropReason::FlowEnded,
                // Recovered states cover what was to be processed at the lost unit.
                DropCause::Stale => DropReason::UnitLost,
                DropCause::PendingFull | DropCause::Refused => DropReason::Internal,
            };
            graph.classifier_mut().discard(packet, reason, pool);
        }
    }

    /// Reports the outcomes of packets, unless there is nothing new.
    pub fn report(&mut self) {
        self.release();
        self.propose_ends();
        let unit_due_ns = self.unit.next_timeout_ns();
        let engine = self.unit.engine_mut();
        let next = &mut self.next;
        engine.pool.take_surplus(BUFFERS, &mut next.buffers);
        engine.pool.fill(BUFFERS);
        next.through = self.lost + engine.through;
        next.due_ns = engine.graph.next_timeout_ns().min(unit_due_ns);
        if !next.is_empty(self.reported) {
            self.reported = (next.through, next.due_ns);
            let empty = Box::new(Return { unit: self.id, ..Return::default() });
            self.sending.push_back(Sending::Return(std::mem::replace(&mut self.next, empty)));
        }
    }

    /// Releases the outcomes of packets and of ends of flows.
    fn release(&mut self) {
        let next = &mut self.next;
        self.unit.flush(|done| {
            next.out.extend(done.outputs);
            next.aliases.extend(done.alias.map(|alias| (done.flow, alias)));
            if let Some(mut effects) = done.effects {
                match next.effects.last_mut().filter(|last| !last.is_half_full()) {
                    Some(last) => last.append(&mut effects),
                    None => next.effects.push(*effects),
                }
            }
        });
        next.fragments.append(&mut self.unit.engine_mut().fragments);
    }

    /// Proposes the ends of flows without state in the graph.
    fn propose_ends(&mut self) {
        let engine = self.unit.engine_mut();
        let mut ended = std::mem::take(&mut engine.without_flow);
        ended.append(&mut engine.ended);
        for handle in ended.drain(..) {
            let engine = self.unit.engine();
            if let Some(flow) = engine.flow_at(handle).filter(|_| !engine.has(handle)) {
                self.unit.propose_end(self.now_ns, flow, &mut self.outbox);
                self.next.messages.append(&mut self.outbox.to_dispatcher);
            }
        }
        self.unit.engine_mut().without_flow = ended;
    }

    /// Ends flows at the end of the run, until there is no room for their effects. Returns whether
    /// all have ended.
    pub fn end_flows(&mut self) -> bool {
        let is_done = self.unit.engine_mut().finish();
        self.report();
        is_done
    }

    /// Returns the flows that the unit has.
    pub(super) fn flows_live(&self) -> u64 {
        self.unit.engine().graph.counters().flows_live
    }

    /// Returns what remains once all flows have ended.
    pub(super) fn into_left(self, flows_live: u64, restarts: u64) -> Left {
        let counters = *self.unit.counters();
        let engine = self.unit.into_engine();
        Left { graph: engine.graph, counters, flows_live, pulls: self.pulls, restarts }
    }
}

/// Executes a command that the same function of another graph has accepted.
pub(super) fn control(graph: &mut Graph, stage: usize, command: &str) {
    if let Some(function) = graph.stage_mut(stage) {
        let understood = function.control(command);
        debug_assert!(understood.is_ok(), "{understood:?}");
    }
}
