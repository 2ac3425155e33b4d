//! What a unit runs.

use crate::message::{FlowId, RefuseReason};

/// What a unit runs: the states of flows, and what packets do to them. The unit decides when, this
/// decides what.
///
/// A flow's state may be here while another flow has its slot already: what of it was under way
/// comes to its end.
pub trait Engine {
    /// A packet, however it is carried.
    type Packet;

    /// The next packet of a flow; begins the flow if it has no state here.
    fn process(&mut self, now_ns: u64, flow: FlowId, packet: Self::Packet);

    /// Appends the flow's whole state to `out`; nothing if it has none here.
    fn save(&mut self, flow: FlowId, out: &mut Vec<u8>);

    /// Replaces the flow's state by one that [`save`](Engine::save) wrote.
    ///
    /// # Errors
    ///
    /// A [`RefuseReason`] if the state cannot be taken. Then nothing has changed here, and the flow
    /// stays at the unit that sent the state.
    fn restore(&mut self, now_ns: u64, flow: FlowId, state: &[u8]) -> Result<(), RefuseReason>;

    /// The state here is worth nothing any more: it went elsewhere, or (`ended`) the flow is over,
    /// and what it took is given back.
    fn forget(&mut self, now_ns: u64, flow: FlowId, ended: bool);
}
