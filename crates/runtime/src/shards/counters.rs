//! Counters of a worker.

use serde::Serialize;

/// Packets and frames of a worker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counters {
    /// Packets received from interfaces.
    pub received: u64,
    /// Packets handed over to other workers, each time; without `no_room`.
    pub handed_over: u64,
    /// Packets taken over from other workers.
    pub taken: u64,
    /// Packets processed: those of its flows, and of no flow.
    pub processed: u64,
    /// Packets dropped (`worker-behind`) because the ring to another worker was full.
    pub no_room: u64,
    /// Frames about neighbours not shared with a worker because the ring to it was full.
    pub neighbours_lost: u64,
}
