//! The link to units.

use std::ops::DerefMut;

use packet::Packet;
use protocol::message::{FromDispatcher, Stamp, UnitId};

use super::{LocalGraph, Return};

/// A link to units: packets and messages there, reports back, and the time.
pub trait UnitLink {
    /// Access to the graph and the buffers of the calling thread.
    type Access<'a>: DerefMut<Target = LocalGraph>
    where
        Self: 'a;

    /// Returns the graph of the calling thread, during calls. It classifies all packets, and
    /// processes those of no flow.
    fn core(&mut self) -> Self::Access<'_>;

    /// Sends a packet to its unit.
    fn packet(&mut self, now_ns: u64, unit: UnitId, stamp: Stamp, packet: Packet);

    /// Sends a message of the dispatcher.
    fn message(&mut self, now_ns: u64, unit: UnitId, message: FromDispatcher);

    /// Returns what units have reported, in order, until there is nothing left. Packets that leave
    /// are added to the output.
    fn receive(&mut self) -> Option<Box<Return>>;

    /// Notifies units of the time after a batch.
    fn end_batch(&mut self, now_ns: u64);

    /// Returns whether packets are at units.
    fn has_pending(&self) -> bool;

    /// Lets units handle deadlines that have passed; they answer.
    fn handle_timeout(&mut self, now_ns: u64);

    /// Returns the earliest deadline at a unit.
    fn next_timeout_ns(&self) -> u64;
}
