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
mod figures;
mod fleet;
mod homes;
mod lane;
mod link;
mod memory;
mod nodes;
mod own_table;
mod rings;
mod shared_table;
mod unheard;
mod unit_end;

use graph::{Datagram, FlowChange, FlowLookup, Graph, Options};
use nf::Effects;
use packet::{DropReason, FlowKey, Packet, PacketPool};
use protocol::message::{FlowId, FromUnit, UnitId};
use protocol::unit::FlowAlias;

use crate::batch::Core;
use crate::units_error::ElasticError;

pub use absent::Absent;
pub use barrier::Barrier;
pub use fast_lane::FastLane;
pub use figures::UnitReports;
pub use fleet::{Fleet, Started, UnitChange};
pub use homes::{Elsewhere, Federation, Passage};
pub use lane::{MAILS, RETURNS, RING};
pub use link::UnitLink;
pub use memory::Memory;
pub use nodes::UnitNodes;
pub use rings::{IN_FLIGHT_MAX, Maker, Rings, THREADS_MAX};
pub use unit_end::{Left, Mail, Sending, ToUnit, UnitEnd};

/// The dispatcher's side of a transport: a link to units and the fleet that they are, which every
/// transport has, and parts that not all have. One that a transport has not is [`Absent`].
///
/// Units are either in the memory of the calling thread, behind a [`FastLane`], or beside it,
/// behind a [`Barrier`].
pub trait Transport: UnitLink + Fleet {
    /// The fast lane to units in the memory of the calling thread, or [`Absent`].
    type FastLane: FastLane;

    /// The wait for units, or [`Absent`] if they are in the memory of the calling thread.
    type Barrier: Barrier;

    /// The nodes of units, or [`Absent`] if they are on this machine.
    type Nodes: UnitNodes;

    /// The other dispatchers, or [`Absent`].
    type Federation: Federation;

    /// Returns the fast lane to units. There is either this or a barrier.
    fn fast_lane(&mut self) -> Option<&mut Self::FastLane>;

    /// Returns the wait for units, unless they have always answered.
    fn barrier(&mut self) -> Option<&mut Self::Barrier>;

    /// Returns the nodes of units.
    fn nodes(&self) -> Option<&Self::Nodes>;

    /// Returns the nodes of units, to be changed.
    fn nodes_mut(&mut self) -> Option<&mut Self::Nodes>;

    /// Returns the other dispatchers, if there are any.
    fn federation(&mut self) -> Option<&mut Self::Federation>;
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
