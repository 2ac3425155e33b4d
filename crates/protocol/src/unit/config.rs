//! Configuration and limits of a unit.

use crate::message::{ReplicaTargets, UnitId};

use crate::unit::timers::NEVER_NS;

/// Limit on the flow indexes that a unit knows. Messages and packets about higher ones are refused
/// and counted.
pub const FLOWS_MAX: u32 = 1 << 22;

/// Limit on the epochs of one flow that a unit owns and has not finished. Further ones are refused
/// and counted. Only assignment packet by packet, faster than states can follow, needs more than a
/// few.
pub const OWNERSHIPS_MAX: usize = 1 << 16;

/// Limit on the flows that a unit remembers after another flow took their index, so that it does
/// not end them twice. The oldest are forgotten.
pub const TOMBSTONES_MAX: usize = 1 << 16;

/// Time after a flow's release at which its state is sent even without a pull, in units of
/// [`reorder_timeout_ns`](Config::reorder_timeout_ns): every packet and message that could start
/// the new owner may have been lost. It is at most [`retransmit_ns`](Config::retransmit_ns): the
/// new owner may have a replica, and its acknowledgement may have been lost.
pub const OFFER_AFTER_TIMEOUTS: u64 = 8;

/// Limit on how often the retransmission timeout doubles.
pub const BACKOFF_DOUBLINGS_MAX: u32 = 6;

/// Configuration of a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Config {
    /// The unit's number.
    pub id: UnitId,
    /// Silence after which a flow's state is replicated, in ns (S51). `None` disables replication.
    pub replicate_after_ns: Option<u64>,
    /// Send deltas against the version that the target is known to have; otherwise replicas are
    /// whole.
    pub deltas: bool,
    /// Time that an out-of-order packet waits for earlier ones before they are given up, in ns.
    pub reorder_timeout_ns: u64,
    /// Time after which an unanswered pull or an unacknowledged state is retransmitted, in ns. It
    /// doubles with each retransmission, up to [`BACKOFF_DOUBLINGS_MAX`] times.
    pub retransmit_ns: u64,
    /// Limit on pending packets of all flows. When it is reached, gaps are given up at once, and
    /// packets that wait for a state are dropped.
    pub pending_max: usize,
    /// Limit on pending packets of one flow; the same happens.
    pub pending_per_flow_max: usize,
    /// Limit on the bytes of replicas, with the base versions of deltas. The oldest are evicted.
    pub replica_bytes_max: usize,
    /// Silence after which a flow's end is proposed to the dispatcher, and proposed again, in ns.
    /// `None` disables proposals.
    pub expire_after_ns: Option<u64>,
    /// Flows of affinity groups share state. A state leaves only after the dispatcher's release:
    /// all packets that the unit gets as the group's owner are then processed, as long as the
    /// dispatcher's packets and messages arrive, and in order. Its arrival is reported.
    pub has_groups: bool,
}

impl Config {
    /// Returns the silence after which a timer of a flow with these targets fires, if the state is
    /// here: that of its replica or of its end.
    pub(crate) fn silence_ns(&self, targets: &ReplicaTargets) -> u64 {
        let copy_ns = self.replicate_after_ns.filter(|_| *targets != ReplicaTargets::NONE);
        copy_ns.unwrap_or(NEVER_NS).min(self.expire_after_ns.unwrap_or(NEVER_NS))
    }

    /// Returns the timeout of a message that was retransmitted this many times.
    pub(crate) fn again_ns(&self, times: u32) -> u64 {
        self.retransmit_ns.saturating_mul(1 << times.min(BACKOFF_DOUBLINGS_MAX))
    }

    /// Returns the time after a release at which the state is sent even without a pull.
    pub(crate) fn offer_after_ns(&self) -> u64 {
        self.reorder_timeout_ns.saturating_mul(OFFER_AFTER_TIMEOUTS).min(self.retransmit_ns)
    }

    /// Returns the time after which an awaited state is given up: its sender has stopped
    /// retransmitting.
    pub(crate) fn patience_ns(&self) -> u64 {
        self.again_ns(BACKOFF_DOUBLINGS_MAX).saturating_mul(2)
    }

    /// Returns the defaults for this unit.
    pub fn new(id: UnitId) -> Config {
        Config {
            id,
            replicate_after_ns: Some(250_000), // S51
            deltas: false,
            reorder_timeout_ns: 1_000_000,
            retransmit_ns: 10_000_000,
            pending_max: 65_536,
            pending_per_flow_max: 1_024,
            replica_bytes_max: 64 << 20,
            expire_after_ns: None,
            has_groups: false,
        }
    }
}
