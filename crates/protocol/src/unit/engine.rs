//! The engine: processes the packets of a unit, and yields the outcome of each.

use packet::FlowKey;

use crate::message::{FlowId, RefuseReason};

/// The states of flows, and the effect of packets on them. The unit decides when to process a
/// packet, the engine how.
///
/// A flow's state may be here while another flow has its index already.
pub trait Engine {
    /// A packet, however it is carried.
    type Packet;

    /// Output other than packets, such as alerts, of a packet or of a flow's end.
    type Effects;

    /// Accepts the next packet of a flow; begins the flow if it has no state here. The engine may
    /// process packets later, together: it has processed them before any other call for the same
    /// flow takes effect.
    fn process(&mut self, now_ns: u64, flow: FlowId, seq: u64, packet: Self::Packet);

    /// Processes all accepted packets, and yields the outcome of them and of ended flows since the
    /// last call: per flow in order, and one [`Done`] for each accepted packet.
    ///
    /// If units fail only together with their dispatcher, output needs no protection. The engine
    /// may then send it directly, and yields nothing.
    fn flush(&mut self, done: impl FnMut(Done<Self::Packet, Self::Effects>));

    /// Appends the flow's whole state to `out`; nothing if it has none here.
    fn save(&mut self, flow: FlowId, out: &mut Vec<u8>);

    /// Replaces the flow's state by one saved with [`save`](Engine::save).
    ///
    /// # Errors
    ///
    /// A [`RefuseReason`] if the state cannot be taken. Then nothing has changed here, and the flow
    /// stays at the unit that sent the state.
    fn restore(&mut self, now_ns: u64, flow: FlowId, state: &[u8]) -> Result<(), RefuseReason>;

    /// Notes that the flow's state lacks this many packets: they were processed at a unit that was
    /// lost, and may have left.
    fn miss(&mut self, _now_ns: u64, _flow: FlowId, _packets: u64) {}

    /// Discards the flow's state: it moved, or the flow has `ended`. At its end the flow returns
    /// its shares of pools.
    fn forget(&mut self, now_ns: u64, flow: FlowId, ended: bool);
}

/// The outcome of one packet, or of a flow's end: everything that must not leave the unit before
/// the flow's state that caused it is safe.
///
/// [`Unit::flush`](crate::unit::Unit::flush) releases each at once today. A unit with loggers will
/// hold it there, per flow in order, until every logger of the flow has applied the delta up to
/// `seq` and the alias is granted. Then it releases all parts together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Done<P, F> {
    /// The flow.
    pub flow: FlowId,
    /// The packet's seq; at the flow's end, that of the last packet processed here, or 0.
    pub seq: u64,
    /// Packets to send.
    pub outputs: DoneOutputs<P>,
    /// The flow's new alias: the dispatcher must know it before the outputs leave.
    pub alias: Option<FlowAlias>,
    /// The effects.
    pub effects: Option<F>,
}

impl<P, F> Done<P, F> {
    /// Creates an empty outcome.
    pub fn new(flow: FlowId, seq: u64) -> Done<P, F> {
        Done { flow, seq, outputs: DoneOutputs::default(), alias: None, effects: None }
    }
}

/// A key that packets of a flow have after rewriting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowAlias {
    /// The key; the flow's own key if it has no alias any more.
    pub key: FlowKey,
    /// The key's hash.
    pub hash: u64,
    /// The ends of the key are in another order than those of the flow's own key: the first one is
    /// the host that is the second one there. `None` if that is not known.
    pub is_turned: Option<bool>,
}

/// Packets that leave because of one packet, in order: nearly always one, which takes no memory
/// of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DoneOutputs<P> {
    first: Option<P>,
    more: Vec<P>,
}

impl<P> Default for DoneOutputs<P> {
    fn default() -> DoneOutputs<P> {
        DoneOutputs { first: None, more: Vec::new() }
    }
}

impl<P> DoneOutputs<P> {
    /// Adds a packet.
    #[inline]
    pub fn push(&mut self, packet: P) {
        match self.first {
            None => self.first = Some(packet),
            Some(_) => self.more.push(packet),
        }
    }
}

impl<P> IntoIterator for DoneOutputs<P> {
    type Item = P;
    type IntoIter = std::iter::Chain<std::option::IntoIter<P>, std::vec::IntoIter<P>>;

    fn into_iter(self) -> Self::IntoIter {
        self.first.into_iter().chain(self.more)
    }
}
