//! The rings between two workers.

use std::sync::Arc;

use packet::Packet;
use rtrb::{Consumer, Producer, RingBuffer};

use crate::doorbell::{Doorbell, EventWaker};

/// Length of the ring from one worker to another. Packets beyond it are dropped,
/// [`packet::DropReason::WorkerBehind`].
pub const RING: usize = 4096;

/// A packet or frame that one worker hands over to another.
#[allow(clippy::large_enum_variant)] // Nearly all are packets.
pub(super) enum Handover {
    /// A fragment of a datagram that the other worker tracks.
    Fragment(Packet),
    /// A packet of a flow that the other worker owns.
    Flow(Packet),
    /// An ICMP error about no known flow. It belongs to the flow of its own addresses, which the
    /// other worker owns.
    Aside(Packet),
    /// A received frame about a neighbour of this port.
    Snooped(u16, Box<[u8]>),
}

impl Handover {
    /// Returns the packet, if it is one.
    pub fn packet(self) -> Option<Packet> {
        match self {
            Handover::Fragment(packet) | Handover::Flow(packet) | Handover::Aside(packet) => Some(packet),
            Handover::Snooped(..) => None,
        }
    }
}

/// The sending end of the rings to another worker.
pub(super) struct ToWorker {
    pub ring: Producer<Handover>,
    /// Handovers to send with the rest of the batch.
    pub next: Vec<Handover>,
    /// Returned buffers.
    pub buffers: Consumer<Packet>,
    pub doorbell: Arc<Doorbell<EventWaker>>,
}

/// The receiving end of the rings from another worker.
pub(super) struct FromWorker {
    pub ring: Consumer<Handover>,
    /// Takes its buffers back.
    pub buffers: Producer<Packet>,
    /// Buffers that are not returned yet.
    pub owed: usize,
}

/// Creates the rings from one worker to another, which the doorbell wakes.
pub(super) fn link(doorbell: &Arc<Doorbell<EventWaker>>) -> (ToWorker, FromWorker) {
    let (ring, taken) = RingBuffer::new(RING);
    let (given_back, buffers) = RingBuffer::new(RING);
    let to = ToWorker { ring, next: Vec::new(), buffers, doorbell: Arc::clone(doorbell) };
    (to, FromWorker { ring: taken, buffers: given_back, owed: 0 })
}
