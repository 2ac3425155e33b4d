//! The resources to process a batch of packets.

use graph::Graph;
use packet::{Packet, PacketPool};

/// Packets that are processed together.
pub const BATCH: usize = 64;

/// Graph and buffers that a backend works with during a call, and its runner keeps between calls.
pub struct Core<'a> {
    /// The graph of the calling thread.
    pub graph: &'a mut Box<Graph>,
    /// Packets that leave.
    pub out: &'a mut Vec<Packet>,
    /// Buffers.
    pub pool: &'a mut PacketPool,
}
