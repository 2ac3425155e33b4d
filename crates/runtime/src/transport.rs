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
mod local_graph;
mod memory;
mod nodes;
mod own_table;
mod report;
mod rings;
mod shared_table;
mod unheard;
mod unit_end;

pub use absent::Absent;
pub use barrier::Barrier;
pub use fast_lane::FastLane;
pub use figures::UnitReports;
pub use fleet::{Fleet, Started, UnitChange};
pub use homes::{Elsewhere, Federation, Passage};
pub use lane::{MAILS, RETURNS, RING};
pub use link::UnitLink;
pub use local_graph::LocalGraph;
pub use memory::Memory;
pub use nodes::UnitNodes;
pub use report::{FirstFragment, Return};
pub use rings::{IN_FLIGHT_MAX, Maker, Rings, THREADS_MAX};
pub use unit_end::{Left, Mail, Sending, ToUnit, UnitEnd};

/// The dispatcher's side of a transport: a link to units and their fleet, and optional parts. A
/// missing part is [`Absent`].
///
/// Units are either in the memory of the calling thread, with a [`FastLane`], or run concurrently,
/// with a [`Barrier`].
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
