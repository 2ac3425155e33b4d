//! Counters of all units and links.

use protocol::unit::DropCause;

use crate::store::Accesses;

/// Counters of all units and links.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Packets of flows without room at the dispatcher.
    pub refused: u64,
    /// Packets dropped at a full queue.
    pub queue_full: u64,
    /// Packets that links lost.
    pub lost: u64,
    /// Replicas sent, one per target.
    pub replicas: u64,
    /// Bytes of state in them, or of deltas.
    pub replica_bytes: u64,
    /// Replicas that were deltas.
    pub deltas: u64,
    /// Deltas to units without their base version.
    pub deltas_without_base: u64,
    /// Bytes of replicas at units at the end.
    pub replicas_kept_bytes: u64,
    /// Handovers with the state already there.
    pub seamless: u64,
    /// Pulls.
    pub pulls: u64,
    /// Pulls overtaken by a replica in flight.
    pub overtaken: u64,
    /// States that were handed over on demand.
    pub states: u64,
    /// Bytes of these states.
    pub state_bytes: u64,
    /// Pulls and states that were retransmitted.
    pub repeated: u64,
    /// Packets that had to wait for a state, or for packets before them.
    pub pending: u64,
    /// Their total time.
    pub pending_ns: u64,
    /// Requests to the store.
    pub store: Accesses,
    /// Backlog of the store at the end: the time that its pending writes would take.
    pub store_behind_ns: u64,
    /// Late packets that were forwarded to the new owner.
    pub forwarded: u64,
    /// Packets that units gave up for lost.
    pub given_up: u64,
    /// Flows that ended while a unit still waited for their state.
    pub ends_given_up: u64,
    /// Ended flows that units had no room to remember.
    pub tombstones_forgotten: u64,
    /// Packets that units dropped, by reason: in the order of [`REASONS`].
    pub dropped: [u64; REASONS.len()],
}

/// Changes of flows' units.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Changes with the state already there.
    pub seamless: u64,
    /// Changes that had to pull the state.
    pub pulls: u64,
}

/// The reasons of units' drops, and their names.
pub const REASONS: [(DropCause, &str); 4] = [
    (DropCause::Stale, "stale"),
    (DropCause::FlowEnded, "flow-ended"),
    (DropCause::PendingFull, "pending-full"),
    (DropCause::Refused, "unit-refused"),
];

impl Tally {
    /// Adds what a unit has counted.
    pub fn add_unit(&mut self, unit: &protocol::unit::Counters) {
        self.seamless += unit.seamless;
        self.pulls += unit.pulls_sent;
        self.overtaken += unit.overtaken_by_replica;
        self.deltas_without_base += unit.deltas_without_base;
        self.states += unit.states_sent;
        self.state_bytes += unit.state_bytes_sent;
        self.repeated += unit.pulls_retransmitted + unit.states_retransmitted;
        self.pending += unit.pending;
        self.pending_ns += unit.pending_ns;
        self.forwarded += unit.forwarded;
        self.given_up += unit.given_up;
        self.ends_given_up += unit.ends_given_up;
        self.tombstones_forgotten += unit.tombstones_forgotten;
        for (count, (reason, _)) in self.dropped.iter_mut().zip(REASONS) {
            *count += unit.dropped(reason);
        }
    }
}
