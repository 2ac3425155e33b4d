//! Observing single packets in a graph.

use nf::{Recording, Verdict};
use packet::{DropReason, Packet};

use crate::topology::EdgeId;

/// The reason for a packet's edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EdgeChoice {
    /// It is the first edge with a filter that the packet passes, or no edge takes the packet.
    Filters,
    /// The flow's route has it.
    Route,
}

/// Receives the steps of one packet (see [`crate::Graph::observe`]).
pub trait Observer {
    /// The packet arrived; its metadata is as parsed, if it could be parsed.
    fn arrived(&mut self, packet: &Packet);
    /// The packet took this edge of [`crate::Topology::edges`], of a graph with branches.
    fn edge(&mut self, _edge: EdgeId, _choice: EdgeChoice, _packet: &Packet) {}
    /// This function will process the packet next.
    fn before(&mut self, stage: usize, packet: &Packet);
    /// The function processed the packet, with this verdict and this recording.
    fn after(&mut self, stage: usize, packet: &Packet, verdict: Verdict, recording: &Recording);
    /// The packet left.
    fn sent(&mut self, packet: &Packet);
    /// The packet was dropped.
    fn dropped(&mut self, packet: &Packet, reason: DropReason);
}
