//! The transport between a dispatcher and its units, and among units.
//!
//! | transport | units |
//! |---|---|
//! | [`Memory`] | on the calling thread; they share one flow table, and every step is a call |
//! | [`Rings`] | on threads of their own, each with a flow table; rings in between |
//!
//! Messages of the dispatcher to a unit and packets to the same unit keep their order, if they are
//! about the same flow or affinity group, or if the message is about no flow. What units send to
//! each other keeps its order per pair.

mod absent;
mod barrier;
mod fast_lane;
mod homes;
mod lane;
mod memory;
mod nodes;
mod own_table;
mod rings;
mod shared_table;
mod unheard;
mod unit_end;

use std::ops::DerefMut;

use graph::{Datagram, FlowChange, FlowLookup, Graph, Options};
use hdrhistogram::Histogram;
use nf::Effects;
use packet::{DropReason, FlowKey, Packet, PacketPool};
use protocol::message::{FlowId, FromDispatcher, FromUnit, Stamp, UnitId};
use protocol::unit::FlowAlias;

use crate::batch::Core;
use crate::report::Report;
use crate::units_error::ElasticError;
use crate::units_report::UnitsReport;

pub use absent::Absent;
pub use barrier::Barrier;
pub use fast_lane::FastLane;
pub use homes::{Elsewhere, Federation, Passage};
pub use lane::{MAILS, RETURNS, RING};
pub use memory::Memory;
pub use nodes::UnitNodes;
pub use rings::{IN_FLIGHT_MAX, Maker, Rings, THREADS_MAX};
pub use unit_end::{Left, Mail, Sending, ToUnit, UnitEnd};

/// The dispatcher's side of a transport.
pub trait Transport {
    /// Access to the graph and the buffers of the calling thread.
    type Access<'a>: DerefMut<Target = LocalGraph>
    where
        Self: 'a;

    /// The fast lane to units in the memory of the calling thread, or [`Absent`].
    type Lane: FastLane;

    /// The wait for units, or [`Absent`] if they are in the memory of the calling thread.
    type Barrier: Barrier;

    /// The nodes of units, or [`Absent`] if they are on this machine.
    type Nodes: UnitNodes;

    /// The other dispatchers, or [`Absent`].
    type Federation: Federation;

    /// Returns the fast lane to units. There is either this or a barrier.
    fn lane(&mut self) -> Option<&mut Self::Lane>;

    /// Returns the wait for units, unless they have always answered.
    fn barrier(&mut self) -> Option<&mut Self::Barrier>;

    /// Returns the nodes of units.
    fn nodes(&self) -> Option<&Self::Nodes>;

    /// Returns the nodes of units, to be changed.
    fn nodes_mut(&mut self) -> Option<&mut Self::Nodes>;

    /// Returns the other dispatchers, if there are any.
    fn federation(&mut self) -> Option<&mut Self::Federation>;

    /// Returns the graph of the calling thread, during calls. It classifies all packets, and
    /// processes those of no flow.
    fn core(&mut self) -> Self::Access<'_>;

    /// Sends a packet to its unit.
    fn packet(&mut self, now_ns: u64, unit: UnitId, stamp: Stamp, packet: Packet);

    /// Sends a message of the dispatcher.
    fn message(&mut self, now_ns: u64, unit: UnitId, message: FromDispatcher);

    /// Returns whether a unit is there from the beginning.
    fn is_ready(&self, unit: UnitId, units_min: u16) -> bool {
        unit.0 < units_min
    }

    /// Starts a unit.
    fn start(&mut self, unit: UnitId) -> Started;

    /// Repeats an operator's command for the units' graphs.
    fn control(&mut self, _stage: usize, _command: &str) {}

    /// Notes when packets of a batch arrived, to measure their latency.
    fn note_arrivals(&mut self, _batch: &[Packet]) {}

    /// Notifies units of the time after a batch.
    fn end_batch(&mut self, _now_ns: u64) {}

    /// Returns what units have reported, in order, until there is nothing left. Packets that leave
    /// are added to the output.
    fn receive(&mut self) -> Option<Box<Return>>;

    /// Returns the next change of units that the dispatcher did not ask for.
    fn poll_change(&mut self) -> Option<UnitChange> {
        None
    }

    /// Returns whether packets are at units.
    fn has_pending(&self) -> bool {
        false
    }

    /// Lets units handle deadlines that have passed; they answer.
    fn handle_timeout(&mut self, now_ns: u64);

    /// Returns the earliest deadline at a unit.
    fn next_timeout_ns(&self) -> u64;

    /// Ends all flows of units.
    fn finish(&mut self) {}

    /// Returns whether all units have ended their flows.
    fn has_finished(&mut self) -> bool {
        true
    }

    /// Returns whether packets may leave during a later call than the one that brought them. Flows
    /// are in the units' own tables then.
    fn is_deferred(&self) -> bool;

    /// Asks units for their counters.
    fn ask_for_figures(&mut self) {}

    /// Returns the counters of each unit.
    fn unit_counters(&self) -> Vec<protocol::unit::Counters>;

    /// Adds what the transport has measured.
    fn add_to_units_report(&self, _report: &mut UnitsReport) {}

    /// Adds what the units' graphs have counted.
    fn add_to_report(&self, _report: &mut Report, _names: &[String]) {}

    /// Records the latency of packets that leave now.
    fn record_latency(&mut self, _out: &[Packet], _latency: &mut Histogram<u64>) {}
}

/// A change of units that the dispatcher did not ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnitChange {
    /// One more unit is to run.
    Join,
    /// The unit will stop: it is drained.
    Leave(UnitId),
    /// The unit has crashed, with its flows.
    Crash(UnitId),
    /// The unit was drained, and never runs again.
    Retire(UnitId),
    /// Nothing is heard from the unit: its flows stay, and new ones go to others.
    Suspect(UnitId),
    /// The unit is heard again.
    Heard(UnitId),
}

/// Outcome of starting a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Started {
    /// It is ready.
    Ready,
    /// It will report when it is ready.
    Pending,
    /// Nothing changes: it is starting already, or cannot be started.
    Unchanged,
}

/// The graph of the calling thread, its buffers, and packets that leave.
pub struct LocalGraph {
    /// The graph.
    pub graph: Box<Graph>,
    /// Buffers.
    pub pool: PacketPool,
    /// Packets that leave.
    pub out: Vec<Packet>,
}

impl LocalGraph {
    /// Creates one that stands in while its owner has the real one.
    ///
    /// # Errors
    /// If there is no memory for tables.
    pub fn placeholder(like: &Graph) -> Result<LocalGraph, ElasticError> {
        let nothing = Graph::new(Vec::new(), Options { flows_max: 1, ..*like.options() })?;
        Ok(LocalGraph { graph: Box::new(nothing), pool: PacketPool::new(0), out: Vec::new() })
    }

    /// Swaps it with that of the calling thread.
    pub fn swap(&mut self, core: &mut Core<'_>) {
        std::mem::swap(&mut self.graph, core.graph);
        std::mem::swap(&mut self.out, core.out);
        std::mem::swap(&mut self.pool, core.pool);
    }

    pub(crate) fn flow_of(&mut self, packet: &mut Packet) -> FlowLookup {
        self.graph.flow_of(packet, &mut self.pool)
    }

    pub(crate) fn process_aside(&mut self, packet: Packet) {
        self.graph.process_without_flow(packet, &mut self.out, &mut self.pool);
    }

    /// Drops a packet.
    pub fn drop_packet(&mut self, packet: Packet, reason: DropReason) {
        self.graph.classifier_mut().discard(packet, reason, &mut self.pool);
    }

    /// Notes that later fragments follow this first one to another dispatcher.
    pub(crate) fn learn_elsewhere(&mut self, packet: &Packet, waited: &mut Vec<Packet>) {
        self.graph.classifier_mut().learn_elsewhere(packet, waited);
    }

    pub(crate) fn learn_first(
        &mut self,
        datagram: Datagram,
        passed: Option<(FlowKey, bool)>,
        at_ns: u64,
        waited: &mut Vec<Packet>,
    ) {
        self.graph.classifier_mut().learn_first(datagram, passed, at_ns, waited);
    }
}

/// A report of a unit to its dispatcher: what became of packets. The fields are in the order in
/// which they take effect, so that the dispatcher knows what a packet created before it leaves.
#[derive(Default)]
pub struct Return {
    /// The unit.
    pub unit: UnitId,
    /// It has just started.
    pub is_ready: bool,
    /// It could not be started.
    pub has_left: bool,
    /// It panicked: nobody knows what of its flows is lost, and what others wait for.
    pub has_failed: bool,
    /// Packets that were lost, and their buffers with them.
    pub lost: u64,
    /// Aliases of flows.
    pub aliases: Vec<(FlowId, FlowAlias)>,
    /// First fragments: datagram, key of the flow if it passed, and when.
    pub fragments: Vec<FirstFragment>,
    /// Messages.
    pub messages: Vec<FromUnit>,
    /// Packets that leave.
    pub out: Vec<Packet>,
    /// Buffers of packets that do not.
    pub buffers: Vec<Packet>,
    /// Alerts, events and flow reports.
    pub effects: Vec<Effects>,
    /// Packets that have left or were dropped at the unit since its start.
    pub through: u64,
    /// The unit's earliest deadline.
    pub due_ns: u64,
    /// This answers a question.
    pub has_answered: bool,
}

/// A first fragment's datagram, the key of its flow if it passed, and when.
pub type FirstFragment = (Datagram, Option<(FlowKey, bool)>, u64);

impl Return {
    /// Notes a change in the graph's flow table. Returns the handle of a flow that has ended.
    pub(crate) fn note(
        &mut self,
        change: FlowChange,
        flow_at: impl Fn(u32) -> Option<FlowId>,
    ) -> Option<u32> {
        match change {
            FlowChange::Alias { handle, key, hash } => {
                let alias = FlowAlias { key, hash, is_turned: None };
                self.aliases.extend(flow_at(handle).map(|flow| (flow, alias)));
                None
            }
            FlowChange::FirstFragment { datagram, passed, at_ns } => {
                self.fragments.push((datagram, passed, at_ns));
                None
            }
            FlowChange::Ended { handle, .. } => Some(handle),
        }
    }

    /// Returns whether the report is of packets alone: how many the unit has finished, and those
    /// that leave. What a dispatcher does with them rests on nothing else in it.
    pub fn is_progress(&self) -> bool {
        !(self.is_ready || self.has_left || self.has_failed || self.has_answered)
            && self.lost == 0
            && self.aliases.is_empty()
            && self.fragments.is_empty()
            && self.messages.is_empty()
    }

    /// Returns whether there is nothing to report beyond a count and a deadline that were reported
    /// before.
    pub(crate) fn is_empty(&self, (through, due_ns): (u64, u64)) -> bool {
        (self.through, self.due_ns) == (through, due_ns)
            && !self.is_ready
            && !self.has_failed
            && self.lost == 0
            && self.aliases.is_empty()
            && self.fragments.is_empty()
            && self.messages.is_empty()
            && self.out.is_empty()
            && self.buffers.is_empty()
            && self.effects.is_empty()
            && !self.has_answered
    }
}
