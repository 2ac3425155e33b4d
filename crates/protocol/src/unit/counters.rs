//! What a unit counts.

use crate::unit::DropCause;

/// What a unit has counted since it started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Packets processed, as far as it has [heard](crate::unit::Unit::catch_up) of them.
    pub processed: u64,
    /// Handovers for which a copy of the state was here before the first packet (S49).
    pub seamless: u64,
    /// Handovers that a copy ended which came after the state had been asked for (S53).
    pub overtaken_by_replica: u64,
    /// States asked for (S49).
    pub pulls_sent: u64,
    /// States asked for once more.
    pub pulls_retransmitted: u64,
    /// Packets that had to wait (S50).
    pub pending: u64,
    /// How long those of them that were processed had waited, all in all, ns.
    pub pending_ns: u64,
    /// Copies sent; one to all units counts as one (S51).
    pub replicas_sent: u64,
    /// Bytes of state in them, or of what has changed.
    pub replica_bytes_sent: u64,
    /// Of these copies, those that tell what has changed.
    pub deltas_sent: u64,
    /// Copies received.
    pub replicas_received: u64,
    /// Bytes of state in them, or of what has changed.
    pub replica_bytes_received: u64,
    /// Copies that told what had changed in one that is not here. The whole was asked for.
    pub deltas_without_base: u64,
    /// Copies that were of no use: not newer than what was here, unreadable, or too large.
    pub replicas_refused: u64,
    /// Copies that had to make room for others.
    pub replicas_evicted: u64,
    /// States sent to new owners.
    pub states_sent: u64,
    /// Bytes of state in them.
    pub state_bytes_sent: u64,
    /// States sent once more, as nobody said that they had come.
    pub states_retransmitted: u64,
    /// Of these states, those that nobody had asked for yet.
    pub states_offered: u64,
    /// States received and taken.
    pub states_taken: u64,
    /// States received that the engine refused; their flows stay where they were.
    pub states_refused: u64,
    /// States returned by the next owner, which refused them.
    pub states_returned: u64,
    /// States returned that could not be taken back: their flows began again.
    pub states_lost: u64,
    /// Packets that came late and were sent on to the flow's owner.
    pub forwarded: u64,
    /// Packets given up as lost before the unit.
    pub given_up: u64,
    /// Ends of flows proposed.
    pub expiries_proposed: u64,
    /// Ends of flows that had been proposed here.
    pub expiries_accepted: u64,
    /// Flows that are over, whose states were waited for, and did not come.
    pub ends_given_up: u64,
    /// Flows whose slots others have, and that had to be forgotten.
    pub tombstones_forgotten: u64,
    /// Messages about what is past: repeated, or overtaken by others.
    pub messages_stale: u64,
    /// Messages that no unit gets, or not from there, or beyond a limit.
    pub messages_refused: u64,
    /// Packets dropped as [`DropCause::Stale`].
    pub dropped_stale: u64,
    /// Packets dropped as [`DropCause::FlowEnded`].
    pub dropped_flow_ended: u64,
    /// Packets dropped as [`DropCause::PendingFull`].
    pub dropped_pending_full: u64,
    /// Packets dropped as [`DropCause::Refused`].
    pub dropped_refused: u64,
}

impl Counters {
    /// Packets dropped for this reason.
    pub fn dropped(&self, reason: DropCause) -> u64 {
        match reason {
            DropCause::Stale => self.dropped_stale,
            DropCause::FlowEnded => self.dropped_flow_ended,
            DropCause::PendingFull => self.dropped_pending_full,
            DropCause::Refused => self.dropped_refused,
        }
    }

    /// One more was dropped for this reason.
    pub(crate) fn drop(&mut self, reason: DropCause) {
        *match reason {
            DropCause::Stale => &mut self.dropped_stale,
            DropCause::FlowEnded => &mut self.dropped_flow_ended,
            DropCause::PendingFull => &mut self.dropped_pending_full,
            DropCause::Refused => &mut self.dropped_refused,
        } += 1;
    }
}
