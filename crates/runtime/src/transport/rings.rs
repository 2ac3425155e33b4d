//! Units on threads of their own, with rings in between.
//!
//! Each unit has a graph and a flow table of its own. NFs of all graphs share their state, except
//! counters (see [`nf::SharedHandle`]), so a NAT assigns a port once, and a rate is that of all
//! units together. Packets of a flow leave in the order of arrival; those of different flows may
//! not.
//!
//! ```text
//!            ring of packets and messages            one queue of reports
//! dispatcher -----------------------------> unit 0 ---------------------> dispatcher -> out
//!            \----------------------------> unit 1 --/
//!                                             | ^
//!                                             v |  states
//! ```
//!
//! Nothing is lost in between. The dispatcher lets [`IN_FLIGHT_MAX`] packets be in flight, and
//! every thread keeps receiving while its sends are blocked, so threads cannot deadlock.

mod unit_thread;

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Instant;

use graph::Graph;
use hdrhistogram::Histogram;
use nf::SharedHandle;
use packet::{DropReason, Packet};
use protocol::message::{FromDispatcher, Stamp, UnitId};
use protocol::unit::Counters;

use super::lane::{Lane, MAILS, Mailbox, RETURNS, RING};
use super::unit_end::{Figures, FiguresBoard, Left, Mail, ToUnit, UnitEnd, control, lock};
use super::{
    Absent, Barrier, Fleet, LocalGraph, Return, Started, Transport, UnitChange, UnitLink, UnitReports,
};
use crate::doorbell::Doorbell;
use crate::panics::Processing;
use crate::report::{Report, new_histogram, percentiles};
use crate::units_config::UnitsConfig;
use crate::units_error::ElasticError;
use crate::units_report::UnitsReport;
use unit_thread::UnitThread;

/// Limit on units with threads of their own.
pub const THREADS_MAX: u16 = 64;

/// Limit on packets in flight to units; at the limit the dispatcher waits.
pub const IN_FLIGHT_MAX: u64 = 4096;

/// Period of the clock messages to units that get packets, in nanoseconds.
const TIME_NS: u64 = 100_000;

/// Period, on the run's clock, of the units' deadlines while nothing is in flight, in nanoseconds.
/// A capture that is played as fast as possible may skip minutes while a state is in flight; the
/// flow would expire before the state arrives.
const STEP_NS: u64 = 1_000_000;

/// Creates a unit's graph of the policy.
pub type Maker = Arc<dyn Fn() -> Result<Box<Graph>, String> + Send + Sync>;

/// Units on threads of their own.
pub struct Rings {
    config: UnitsConfig,
    make: Maker,
    local: LocalGraph,
    /// Commands to functions so far.
    commands: Vec<(usize, String)>,
    commons: Vec<SharedHandle>,
    lanes: Vec<Option<Lane>>,
    mailboxes: Vec<Mailbox>,
    /// The receiving ends, for units that were not started yet.
    mails: Vec<Option<Receiver<Mail>>>,
    returned: Receiver<Box<Return>>,
    returns: SyncSender<Box<Return>>,
    left: Vec<Left>,
    /// The time of the last notification.
    notified_ns: u64,
    /// Time at which units handled deadlines last.
    stepped_ns: u64,
    /// Packets sent to units, and packets that units have finished.
    sent: u64,
    through: u64,
    /// Arrival of batches, by the sequence of their first packets.
    batches: VecDeque<(u64, Instant)>,
    /// Times to start units, in nanoseconds.
    starts_ns: Vec<u64>,
    /// Messages between units that have not been handled.
    mails_in_flight: Arc<AtomicU64>,
    has_failed: bool,
}

impl Rings {
    /// Starts the first units. They run graphs like this one, which itself gets none of their
    /// packets.
    ///
    /// # Errors
    /// If a thread or graph cannot be created.
    pub fn new(config: UnitsConfig, front: &mut Graph, make: Maker) -> Result<Rings, ElasticError> {
        let (returns, returned) = sync_channel(RETURNS);
        let (mailboxes, mails) = (0..config.units_max)
            .map(|_| {
                let (sender, receiver) = sync_channel(MAILS);
                (Mailbox { sender, doorbell: Arc::new(Doorbell::default()) }, Some(receiver))
            })
            .unzip();
        let mut rings = Rings {
            config,
            make,
            local: LocalGraph::placeholder(front)?,
            commands: Vec::new(),
            commons: front.sharing().share(),
            lanes: (0..config.units_max).map(|_| None).collect(),
            mailboxes,
            mails,
            returned,
            returns,
            left: Vec::new(),
            notified_ns: 0,
            stepped_ns: 0,
            sent: 0,
            through: 0,
            batches: VecDeque::new(),
            starts_ns: Vec::new(),
            mails_in_flight: Arc::default(),
            has_failed: false,
        };
        for unit in (0..config.units_min).map(UnitId) {
            let graph = (rings.make)().map_err(ElasticError::Graph)?;
            rings.spawn(unit, Some(graph))?;
        }
        Ok(rings)
    }

    /// Starts a unit's thread, which makes its graph if there is none yet.
    fn spawn(&mut self, id: UnitId, graph: Option<Box<Graph>>) -> std::io::Result<()> {
        let (ring, inbox) = rtrb::RingBuffer::new(RING);
        let Some(mails) = self.mails[id.index()].take() else { return Ok(()) };
        let (mailboxes, returns) = (self.mailboxes.clone(), self.returns.clone());
        let (make, commons, commands) = (Arc::clone(&self.make), self.commons.clone(), self.commands.clone());
        let doorbell = Arc::clone(&self.mailboxes[id.index()].doorbell);
        let (config, rung, in_flight) =
            (self.config, Arc::clone(&doorbell), Arc::clone(&self.mails_in_flight));
        let figures = FiguresBoard::default();
        let board = Arc::clone(&figures);
        let work = move || {
            unit_thread::pin(id);
            let mut graph = match graph {
                Some(graph) => graph,
                None => {
                    let _processing = Processing::begin();
                    // An NF that panics at its creation cannot be created.
                    catch_unwind(AssertUnwindSafe(|| make().ok())).ok().flatten()?
                }
            };
            commands.iter().for_each(|(stage, command)| control(&mut graph, *stage, command));
            let flows_max = config.dispatcher_of_threads(graph.options()).flows_max;
            let unit = config.unit_on_reliable_transport(id, IN_FLIGHT_MAX as usize);
            let end = UnitEnd::new(unit, graph, commons, flows_max, true, unit_thread::clock_ns);
            Some(UnitThread { end, inbox, mails, mailboxes, in_flight, returns, doorbell: rung, board }.run())
        };
        let thread = std::thread::Builder::new().name(format!("unit-{}", id.0)).spawn(work)?;
        self.lanes[id.index()] = Some(Lane {
            ring,
            doorbell,
            thread: Some(thread),
            queue: VecDeque::new(),
            is_used: false,
            is_behind: false,
            has_messages: false,
            due_ns: 0,
            ordered: Instant::now(),
            is_ready: false,
            through: 0,
            figures,
        });
        Ok(())
    }

    fn running(&self) -> impl Iterator<Item = &Lane> {
        self.lanes.iter().flatten().filter(|lane| lane.thread.is_some())
    }

    /// Returns the latest counters of each running unit.
    fn figures(&self) -> impl Iterator<Item = Figures> {
        let last = self.running().map(|lane| lock(&lane.figures).clone());
        last.flatten().map(|figures| *figures)
    }

    /// Sends units something that they answer.
    fn ask(&mut self, question: impl Fn(&mut Lane) -> Option<ToUnit>) {
        for lane in self.lanes.iter_mut().flatten() {
            if let Some(question) = question(lane) {
                lane.is_behind = true;
                lane.push(question);
            }
        }
    }

    /// Takes the packets and buffers of a report, and what the transport itself must know.
    fn take(&mut self, report: &mut Return) {
        self.has_failed |= report.has_failed;
        self.local.pool.replace_lost(report.lost as usize);
        // They are still in the cache of the unit's core.
        report.out.iter().for_each(Packet::prefetch);
        self.local.out.append(&mut report.out);
        report.buffers.drain(..).for_each(|packet| self.local.pool.give(packet));
        let Some(lane) = &mut self.lanes[report.unit.index()] else { return };
        if report.is_ready {
            lane.is_ready = true;
            self.starts_ns.push(lane.ordered.elapsed().as_nanos() as u64);
        }
        self.through += report.through - lane.through;
        lane.through = report.through;
        lane.due_ns = report.due_ns;
        if report.has_answered {
            lane.is_behind = false;
        }
    }

    /// Takes the remains of units with ended threads. Returns a unit that could not be started.
    fn take_ended(&mut self) -> Option<UnitId> {
        let mut failed = None;
        for (unit, lane) in (0..).map(UnitId).zip(&mut self.lanes) {
            let Some(lane) = lane else { continue };
            if lane.thread.as_ref().is_some_and(JoinHandle::is_finished)
                && let Some(thread) = lane.thread.take()
            {
                match thread.join() {
                    Ok(Some(left)) => self.left.push(left),
                    Ok(None) => failed = Some(unit),
                    Err(panic) => std::panic::resume_unwind(panic),
                }
            }
        }
        // The others continue without it.
        failed.inspect(|unit| self.lanes[unit.index()] = None)
    }
}

impl UnitLink for Rings {
    type Access<'a> = &'a mut LocalGraph;

    fn core(&mut self) -> &mut LocalGraph {
        &mut self.local
    }

    #[inline]
    fn packet(&mut self, now_ns: u64, unit: UnitId, stamp: Stamp, packet: Packet) {
        let Some(lane) = &mut self.lanes[unit.index()] else {
            return self.local.drop_packet(packet, DropReason::Internal); // Units with flows have threads.
        };
        lane.is_used = true;
        lane.push(ToUnit::Packet(now_ns, stamp, packet));
        self.sent += 1;
    }

    fn message(&mut self, now_ns: u64, unit: UnitId, message: FromDispatcher) {
        if let Some(lane) = &mut self.lanes[unit.index()] {
            lane.has_messages = true;
            lane.push(ToUnit::Message(now_ns, message));
        }
    }

    fn receive(&mut self) -> Option<Box<Return>> {
        self.lanes.iter_mut().flatten().for_each(Lane::send);
        let report = self.returned.try_recv().ok().or_else(|| {
            let failed = self.take_ended();
            let left = |unit| Box::new(Return { unit, has_left: true, ..Return::default() });
            // A thread's last messages come first.
            self.returned.try_recv().ok().or(failed.map(left))
        });
        report.map(|mut report| {
            if !report.has_left {
                self.take(&mut report);
            }
            report
        })
    }

    fn end_batch(&mut self, now_ns: u64) {
        self.local.graph.handle_timeout(now_ns, &mut self.local.pool);
        if now_ns < self.notified_ns.saturating_add(TIME_NS) {
            return;
        }
        self.notified_ns = now_ns;
        for lane in self.lanes.iter_mut().flatten() {
            if std::mem::take(&mut lane.is_used) {
                lane.push(ToUnit::Time(now_ns));
            }
        }
    }

    fn has_pending(&self) -> bool {
        self.sent > self.through
    }

    fn handle_timeout(&mut self, now_ns: u64) {
        self.stepped_ns = now_ns;
        self.ask(|lane| (lane.is_ready && lane.due_ns <= now_ns).then_some(ToUnit::Step(now_ns)));
    }

    fn next_timeout_ns(&self) -> u64 {
        self.stepped_ns.saturating_add(STEP_NS)
    }
}

impl Fleet for Rings {
    /// A unit that was stopped before still has its thread, which is parked. If a thread cannot be
    /// started, the others continue.
    fn start(&mut self, unit: UnitId) -> Started {
        match &self.lanes[unit.index()] {
            Some(lane) if lane.is_ready => return Started::Ready,
            Some(_) => return Started::Unchanged,
            None => {}
        }
        if self.spawn(unit, None).is_ok() { Started::Pending } else { Started::Unchanged }
    }

    fn control(&mut self, stage: usize, command: &str) {
        self.commands.push((stage, command.to_owned()));
        for lane in self.lanes.iter_mut().flatten() {
            lane.push(ToUnit::Control(stage, command.into()));
        }
    }

    fn finish(&mut self) {
        self.lanes.iter_mut().flatten().for_each(|lane| lane.push(ToUnit::Finish));
    }

    fn has_finished(&mut self) -> bool {
        let has_finished = self.running().next().is_none();
        if has_finished {
            self.local.graph.sharing().part();
        }
        has_finished
    }

    fn is_ready(&self, unit: UnitId, units_min: u16) -> bool {
        unit.0 < units_min
    }

    fn poll_change(&mut self) -> Option<UnitChange> {
        None
    }
}

impl Transport for Rings {
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

impl UnitReports for Rings {
    fn is_deferred(&self) -> bool {
        true
    }

    fn note_arrivals(&mut self, batch: &[Packet]) {
        if let Some(first) = batch.first() {
            self.batches.push_back((first.meta().transit.sequence, Instant::now()));
        }
    }

    /// Units answer in their own time, without a wait: a later report has the counters.
    fn ask_for_figures(&mut self) {
        for lane in self.lanes.iter_mut().flatten().filter(|lane| lane.thread.is_some()) {
            lane.push(ToUnit::Figures);
            lane.send();
        }
    }

    fn unit_counters(&self) -> Vec<Counters> {
        let left = self.left.iter().map(|left| left.counters);
        left.chain(self.figures().map(|figures| figures.counters)).collect()
    }

    fn add_to_units_report(&self, report: &mut UnitsReport) {
        let mut starts_ns = self.starts_ns.clone();
        starts_ns.sort_unstable();
        report.start_ns = starts_ns.get(starts_ns.len() / 2).copied();
        let mut pulls = new_histogram();
        let mut add = |of_unit: &Histogram<u64>| {
            let added = pulls.add(of_unit);
            debug_assert!(added.is_ok(), "all have the same bounds");
        };
        self.left.iter().for_each(|left| add(&left.pulls));
        self.figures().for_each(|figures| add(&figures.pulls));
        report.pull_ns = (!pulls.is_empty()).then(|| percentiles(&pulls));
    }

    fn add_to_report(&self, report: &mut Report, names: &[String]) {
        self.figures().for_each(|figures| report.add(&figures.report));
        let size = report.flows.size;
        for left in &self.left {
            let of_unit = Report::of(&report.policy, report.seed, &left.graph, names);
            report.add(&of_unit);
            report.flows.live += left.flows_live;
            report.restarts += left.restarts;
        }
        if !self.left.is_empty() {
            report.flows.size = size; // That of all units together, as the dispatcher sees to.
        }
    }

    fn record_latency(&mut self, out: &[Packet], latency: &mut Histogram<u64>) {
        let now = Instant::now();
        for packet in out {
            let sequence = packet.meta().transit.sequence;
            let batch = self.batches.partition_point(|&(first, _)| first <= sequence);
            if let Some(&(_, came)) = batch.checked_sub(1).and_then(|batch| self.batches.get(batch)) {
                let took_ns = now.duration_since(came).as_nanos().min(u128::from(u64::MAX));
                latency.saturating_record(took_ns as u64);
            }
        }
        // There cannot be more batches than packets in flight.
        let surplus = self.batches.len().saturating_sub(IN_FLIGHT_MAX as usize + 1);
        self.batches.drain(..surplus);
    }
}

impl Barrier for Rings {
    fn wait(&mut self) {
        std::thread::yield_now();
    }

    fn is_full(&self) -> bool {
        self.sent.saturating_sub(self.through) >= IN_FLIGHT_MAX
            || self.lanes.iter().flatten().any(|lane| !lane.queue.is_empty())
    }

    fn drain_messages(&mut self) {
        self.ask(|lane| (lane.is_ready && std::mem::take(&mut lane.has_messages)).then_some(ToUnit::Answer));
    }

    fn has_unanswered(&self) -> bool {
        self.lanes.iter().flatten().any(|lane| lane.is_behind)
            || self.mails_in_flight.load(Ordering::Acquire) > 0
    }

    /// Nothing is lost between units: a state that is on its way is a message in flight.
    fn is_moving(&self) -> bool {
        false
    }

    fn has_failed(&self) -> bool {
        self.has_failed
    }

    fn reset_units(&mut self) {
        self.has_failed = false;
        self.ask(|_| Some(ToUnit::Reset));
    }

    fn resume_units(&mut self) {
        self.ask(|_| Some(ToUnit::Resume));
    }
}
