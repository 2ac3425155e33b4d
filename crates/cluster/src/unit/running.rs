//! A unit at work: its graph, and its exchange with its process.

use std::sync::Arc;

use packet::PacketPool;
use protocol::message::UnitId;
use protocol::trace::{EventTimeline, TraceDetail};
use runtime::elastic::UnitsConfig;
use runtime::report::Figures;
use runtime::timeline;
use runtime::transport::{Mail, Return, Sending, ToUnit, UnitEnd};

use super::EffectsTaker;
use super::details::Details;
use super::others::{Others, UnitChanges};
use crate::network::Network;
use crate::peers::{ASIDE, ORDERED, PeerId, Peers, stream_of};
use crate::policies::{Digest, GraphMaker, NumberedDigest, PolicyTexts};
use crate::remote::IN_FLIGHT_MAX;
use crate::wire::{
    ArrivedFrame, Assignment, FrameError, PolicyFrame, ReportContext, TimelineQuestion, UnitAddress,
    UnitFigures, begin_output, read_frame, write_figure_changes, write_figures, write_output,
    write_report_frame,
};

/// Free buffers that a unit keeps, for packets that wait or are processed. More are allocated, and
/// freed again, if all packets in flight are at this unit.
const BUFFERS: usize = IN_FLIGHT_MAX as usize / 2;
/// Packets per batch: few enough that they are still in the nearest cache when they leave, many
/// enough to share the cost of a report.
const BATCH: usize = 64;
/// Buffers that are allocated at once when none is free.
const BUFFERS_MORE: usize = 256;
/// Time after which an unanswered message to another unit is retransmitted: it was lost with a
/// link. A sound link delivers sooner.
const RETRANSMIT_NS: u64 = 500_000_000;
/// Limit on the time that a unit waits at its end for flows in transfer. Some may have been lost
/// with a link, and are retransmitted.
const SETTLE_NS: u64 = 10_000_000_000;

/// A unit at work.
pub(super) struct Running {
    pub id: UnitId,
    pub end: UnitEnd,
    pub others: Others,
    details: Details,
    /// Alerts and events raised by functions.
    pub raised: [u64; 2],
    pub pool: PacketPool,
    /// Packets so far; the next packet's number.
    pub sequence: u64,
    /// The dispatcher's latest known clock, and the node's own clock at that moment.
    pub last_clock_ns: (u64, u64),
    /// The node's own clock.
    pub clock_ns: u64,
    /// Time at which it announced that it leaves.
    pub leaving_ns: Option<u64>,
    /// Time since which it has no flows and gets none.
    pub drained_ns: Option<u64>,
    /// Time at which the end of the run began.
    pub finishing_ns: Option<u64>,
    pub has_finished: bool,
}

/// A task for the process that results from a frame.
pub(super) enum Order {
    Assign(Assignment),
    Read(PolicyTexts, Digest),
    Renew(NumberedDigest),
    Part,
    /// The dispatcher wants the policy that the unit runs.
    Show,
    /// The dispatcher runs this policy.
    Number(NumberedDigest),
    /// The dispatcher wants a flow's lines.
    Trace(TimelineQuestion),
    Connect {
        own: UnitId,
        connect: Vec<UnitAddress>,
        forget: Vec<UnitAddress>,
    },
}

/// The reason why a frame was not executed.
pub(super) enum Refused {
    Frame(FrameError),
    Packet,
}

/// A frame that its sender may not send.
const WRONG_SENDER: Refused = Refused::Frame(FrameError::Invalid("sender"));

impl From<FrameError> for Refused {
    fn from(error: FrameError) -> Refused {
        Refused::Frame(error)
    }
}

/// Handles a frame.
pub(super) fn handle(
    unit: &mut Option<Running>,
    (peer, is_dispatcher): (PeerId, bool),
    frame: &[u8],
) -> Result<Option<Order>, Refused> {
    let now_ns = unit.as_ref().map_or(0, Running::now_ns);
    let arrived = read_frame(frame, now_ns, |_| 0)?;
    let of_dispatcher = matches!(
        arrived,
        ArrivedFrame::Assign(_)
            | ArrivedFrame::Policy(..)
            | ArrivedFrame::Renew(_)
            | ArrivedFrame::Part
            | ArrivedFrame::Stopped
            | ArrivedFrame::Units(_)
            | ArrivedFrame::Input(_)
            | ArrivedFrame::Packet(_)
            | ArrivedFrame::Relayed(..)
            | ArrivedFrame::TimelineAsked(_)
            | ArrivedFrame::OfPolicies(_)
    );
    if of_dispatcher != is_dispatcher {
        return Err(WRONG_SENDER);
    }
    let arrived = match arrived {
        ArrivedFrame::Assign(assignment) => return Ok(Some(Order::Assign(assignment))),
        ArrivedFrame::Policy(texts, digest) => return Ok(Some(Order::Read(texts, digest))),
        ArrivedFrame::Renew(policy) => return Ok(Some(Order::Renew(policy))),
        ArrivedFrame::OfPolicies(PolicyFrame::Wanted) => return Ok(Some(Order::Show)),
        ArrivedFrame::OfPolicies(PolicyFrame::Runs(policy)) => return Ok(Some(Order::Number(policy))),
        ArrivedFrame::OfPolicies(_) => return Err(WRONG_SENDER),
        ArrivedFrame::Part => return Ok(Some(Order::Part)),
        ArrivedFrame::TimelineAsked(question) => return Ok(Some(Order::Trace(question))),
        arrived => arrived,
    };
    let unit = unit.as_mut().ok_or(Refused::Frame(FrameError::Invalid("order")))?;
    match arrived {
        ArrivedFrame::Units(units) => {
            let UnitChanges { connect, forget, answers } = unit.others.set(units, unit.clock_ns);
            answers.into_iter().for_each(|mail| unit.end.handle_mail(mail));
            return Ok(Some(Order::Connect { own: unit.id, connect, forget }));
        }
        ArrivedFrame::Stopped => {
            unit.drained_ns.get_or_insert(unit.clock_ns);
            unit.others.figures_due |= !unit.has_finished;
        }
        ArrivedFrame::Input(ToUnit::Finish) => unit.finishing_ns = Some(unit.now_ns()),
        ArrivedFrame::Input(input) => {
            if let ToUnit::Time(now_ns) | ToUnit::Step(now_ns) | ToUnit::Message(now_ns, _) = input {
                unit.observe_clock(now_ns);
            }
            if matches!(input, ToUnit::Figures) {
                unit.others.figures_due = true;
            } else {
                unit.end.handle(input);
            }
        }
        ArrivedFrame::Packet(packet) => {
            unit.observe_clock(packet.timestamp_ns);
            let (stamp, now_ns) = (packet.stamp, unit.last_clock_ns.0);
            let packet = packet.into_packet(unit.sequence, unit.end.graph(), &mut unit.pool);
            unit.sequence += 1;
            let packet = packet.ok_or(Refused::Packet)?;
            unit.end.handle(ToUnit::Packet(now_ns, stamp, packet));
        }
        ArrivedFrame::Relayed(from, frame) => {
            let relayed = read_frame(frame, now_ns, |_| 0)?;
            unit.handle_of_unit(Some(from), relayed)?;
        }
        of_unit => unit.handle_of_unit(unit.others.at(peer), of_unit)?,
    }
    Ok(None)
}

impl Running {
    /// Makes the unit of an assignment; it notes what happens in `kept`, if there is one.
    pub fn new(
        assignment: &Assignment,
        make: &mut GraphMaker,
        stopwatch: fn() -> u64,
        kept: Option<&Arc<EventTimeline>>,
    ) -> Result<Running, String> {
        let graph = make(assignment.seed)?;
        let config = UnitsConfig {
            gap_ns: assignment.gap_ns,
            copies: assignment.copies,
            deltas: assignment.deltas,
            ..UnitsConfig::default()
        };
        let flows_max = config.dispatcher_of_threads(graph.options()).flows_max;
        let has_groups = graph.options().affinity_groups.is_some();
        let unit = config.unit_on_reliable_transport(assignment.unit, IN_FLIGHT_MAX as usize);
        let unit = protocol::unit::Config { has_groups, retransmit_ns: RETRANSMIT_NS, ..unit };
        let create = || UnitEnd::new(unit, graph, Vec::new(), flows_max, true, stopwatch);
        let end = match kept {
            // The dispatcher knows the name of this host.
            Some(kept) => timeline::recorded(kept, "", TraceDetail::Transitions, create),
            None => create(),
        };
        Ok(Running {
            id: assignment.unit,
            end,
            others: Others::new(assignment.unit),
            details: Details::default(),
            raised: [0; 2],
            pool: PacketPool::new(BUFFERS).with_large(IN_FLIGHT_MAX as usize),
            sequence: 0,
            last_clock_ns: (0, 0),
            clock_ns: 0,
            leaving_ns: None,
            drained_ns: None,
            finishing_ns: None,
            has_finished: false,
        })
    }

    /// Handles a frame of another unit, direct or relayed.
    fn handle_of_unit(&mut self, from: Option<UnitId>, frame: ArrivedFrame<'_>) -> Result<(), Refused> {
        match frame {
            ArrivedFrame::Peer { unit, message, through, now_ns } => {
                self.observe_clock_estimate(now_ns);
                self.others.answered(unit, &message, through);
                self.end.set_time(self.now_ns());
                self.end.handle_mail(Mail::Message(unit, message));
            }
            ArrivedFrame::Forwarded(packet) => {
                self.observe_clock_estimate(packet.timestamp_ns);
                let stamp = packet.stamp;
                let packet = packet.into_packet(self.sequence, self.end.graph(), &mut self.pool);
                self.sequence += 1;
                from.into_iter().for_each(|from| self.others.received_from(from));
                self.end.handle_mail(Mail::Packet(stamp, packet.ok_or(Refused::Packet)?));
            }
            _ => return Err(WRONG_SENDER),
        }
        Ok(())
    }

    /// Sets the dispatcher's clock to at least this time.
    pub fn observe_clock(&mut self, now_ns: u64) {
        if now_ns >= self.last_clock_ns.0 {
            self.last_clock_ns = (now_ns, self.clock_ns);
        }
    }

    /// Takes another unit's estimate of the dispatcher's clock. It counts only until the
    /// dispatcher's own time is known, because its messages may be late.
    fn observe_clock_estimate(&mut self, now_ns: u64) {
        if self.last_clock_ns.0 == 0 {
            self.observe_clock(now_ns);
        }
    }

    /// Returns the time of the dispatcher's clock; 0 while it is unknown.
    pub fn now_ns(&self) -> u64 {
        match self.last_clock_ns {
            (0, _) => 0,
            (now_ns, at) => now_ns.saturating_add(self.clock_ns.saturating_sub(at)),
        }
    }

    /// Returns the earliest deadline; at the end of the run, without the flows' deadlines.
    pub fn due_ns(&self) -> u64 {
        let of_flows = match self.finishing_ns {
            Some(_) => u64::MAX,
            None => self.end.graph().next_timeout_ns(),
        };
        self.end.next_timeout_ns().min(of_flows)
    }

    /// Returns the time until a deadline passes.
    pub fn sleep_ns(&self) -> u64 {
        self.due_ns().saturating_sub(self.now_ns())
    }

    /// Handles deadlines that have passed. Returns true if there were any.
    pub fn handle_timeouts(&mut self) -> bool {
        let now_ns = self.now_ns();
        if let Some(since_ns) = self.finishing_ns.filter(|_| !self.has_finished) {
            if self.end.is_settled() || now_ns.saturating_sub(since_ns) >= SETTLE_NS {
                while !self.end.end_flows() {}
                self.has_finished = true;
                self.others.figures_due = true;
                return true;
            }
            // Flows no longer expire, but messages lost with links are retransmitted.
            let is_due = self.end.next_timeout_ns() <= now_ns;
            if is_due {
                self.end.handle_protocol_timeout(now_ns);
            }
            return is_due;
        }
        let is_due = now_ns > 0 && self.due_ns() <= now_ns;
        if is_due {
            self.end.handle_timeout(now_ns);
        }
        is_due
    }

    pub fn figures(&self) -> UnitFigures {
        UnitFigures::of(self.end.counters(), self.end.graph())
    }

    /// Processes the received packets once they fill a [`BATCH`], and refills the buffer pool.
    pub fn process_batch<N: Network>(
        &mut self,
        dispatcher: Option<PeerId>,
        peers: &mut Peers<N>,
        effects: &mut EffectsTaker,
    ) {
        let is_empty = self.pool.free() == 0;
        if is_empty || self.end.pending() >= BATCH {
            self.end.report();
            self.send(dispatcher, peers, effects);
        }
        if is_empty {
            self.pool.fill(BUFFERS_MORE);
        }
    }

    /// Sends the unit's output, messages and reports.
    pub fn send<N: Network>(
        &mut self,
        dispatcher: Option<PeerId>,
        peers: &mut Peers<N>,
        effects: &mut EffectsTaker,
    ) {
        let now_ns = self.now_ns();
        self.others.handle_timeout(self.clock_ns, dispatcher, peers);
        loop {
            let passed_on = self.others.take_passed_on().map(|(to, mail)| Sending::Mail(to, mail));
            let Some(sending) = passed_on.or_else(|| self.end.poll()) else { break };
            match sending {
                Sending::Return(report) => self.send_report(*report, dispatcher, peers, effects),
                Sending::Mail(to, Mail::Packet(_, packet)) if !self.others.reaches(to) => {
                    self.end.drop_forwarded(packet);
                }
                Sending::Mail(to, mail) => {
                    if let Some(answer) = self.others.send((to, now_ns), &mail, dispatcher, peers) {
                        self.end.handle_mail(answer);
                    }
                    if let Mail::Packet(_, packet) = mail {
                        self.pool.give(packet);
                    }
                }
            }
        }
        if self.others.has_context() {
            let report = Return { unit: self.id, through: self.others.through, ..Return::default() };
            self.send_report(report, dispatcher, peers, effects);
        }
        let (Some(dispatcher), true) = (dispatcher, std::mem::take(&mut self.others.figures_due)) else {
            return;
        };
        let is_last = self.has_finished || self.drained_ns.is_some();
        if is_last || self.details.is_due(self.clock_ns) {
            let mut figures = Figures::of(self.end.graph()).with_raised(self.raised);
            for changes in self.details.changes(&mut figures, self.clock_ns, is_last) {
                peers.send(dispatcher, ORDERED, |out| write_figure_changes(out, &changes));
            }
        }
        let figures = self.figures();
        peers.send(dispatcher, ORDERED, |out| write_figures(out, &figures));
        if self.has_finished {
            let last = Return { unit: self.id, has_answered: true, ..Return::default() };
            let last = Return { through: self.others.through, due_ns: u64::MAX, ..last };
            let context = ReportContext { is_complete: true, ..self.others.take_context() };
            peers.send(dispatcher, ORDERED, |out| write_report_frame(out, &last, &context));
        }
    }

    pub fn send_report<N: Network>(
        &mut self,
        mut report: Return,
        dispatcher: Option<PeerId>,
        peers: &mut Peers<N>,
        effects: &mut EffectsTaker,
    ) {
        self.others.through = report.through;
        let now_ns = self.now_ns();
        for of_report in report.effects.drain(..) {
            let of_each = self.raised.iter_mut().zip(runtime::raised(&of_report));
            of_each.for_each(|(sum, count)| *sum += count);
            effects(of_report, now_ns);
        }
        report.buffers.drain(..).for_each(|packet| self.pool.give(packet));
        if let Some(dispatcher) = dispatcher {
            let mut context = self.others.take_context();
            context.is_complete |= !report.is_progress();
            for (_, alias) in &mut report.aliases {
                alias.key = self.end.graph().flows().alias_to_send(alias.key);
            }
            // Output depends on the reports before it, not on those of other flows.
            let stream = if context.is_complete { ORDERED } else { ASIDE };
            peers.send(dispatcher, stream, |out| write_report_frame(out, &report, &context));
            for packet in &report.out {
                peers.send(dispatcher, stream_of(packet.meta().transit.flow.into()), |out| {
                    begin_output(out);
                    write_output(out, packet);
                });
            }
        }
        report.out.drain(..).for_each(|packet| self.pool.give(packet));
        self.pool.trim(BUFFERS);
        self.pool.fill(BUFFERS / 2);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // A test fails by panicking.
mod tests {
    use graph::{Graph, Options};
    use protocol::message::{FlowId, FromPeer};

    use super::*;
    use crate::wire::{write_input, write_mail};

    #[test]
    fn time_of_other_units_counts_until_the_dispatcher_sends_its_own() {
        let assignment = Assignment {
            unit: UnitId(0),
            seed: 1,
            gap_ns: 1_000,
            copies: 0,
            deltas: false,
            keeps_timeline: false,
        };
        let mut make: GraphMaker = Box::new(|_| {
            Graph::new(Vec::new(), Options::default()).map(Box::new).map_err(|error| error.to_string())
        });
        let mut unit = Running::new(&assignment, &mut make, || 0, None).ok();
        let mut receive = |is_dispatcher, frame: &[u8]| {
            assert!(handle(&mut unit, (PeerId::at(0), is_dispatcher), frame).is_ok());
            unit.as_ref().unwrap().now_ns()
        };
        let of_unit = |now_ns| {
            let message = FromPeer::StateAck { flow: FlowId { index: 1, generation: 0 }, epoch: 2 };
            let mut frame = Vec::new();
            write_mail(&mut frame, &Mail::Message(UnitId(1), message), 0, now_ns);
            frame
        };
        let of_dispatcher = |now_ns| {
            let mut frame = Vec::new();
            write_input(&mut frame, &ToUnit::Time(now_ns));
            frame
        };
        assert_eq!(receive(false, &of_unit(0)), 0, "the other does not know it either");
        assert_eq!(receive(false, &of_unit(5_000)), 5_000);
        assert_eq!(receive(false, &of_unit(9_000)), 5_000);
        assert_eq!(receive(true, &of_dispatcher(7_000)), 7_000);
    }
}
