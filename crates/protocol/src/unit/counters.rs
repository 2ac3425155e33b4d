//! Counters of a unit.

use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::unit::DropCause;

/// Counters of a unit, since it started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub struct Counters {
    /// Packets processed, without those not yet [notified](crate::unit::Unit::catch_up).
    pub processed: u64,
    /// Handovers with a replica that was here before the first packet (S49).
    pub seamless: u64,
    /// Handovers that a replica completed after the state was pulled (S53).
    pub overtaken_by_replica: u64,
    /// Pulls sent (S49).
    pub pulls_sent: u64,
    /// Pulls retransmitted.
    pub pulls_retransmitted: u64,
    /// Packets that became pending (S50).
    pub pending: u64,
    /// Total time that processed packets were pending, in ns.
    pub pending_ns: u64,
    /// Replicas sent; one to all units counts once (S51).
    pub replicas_sent: u64,
    /// Bytes of states and deltas in them.
    pub replica_bytes_sent: u64,
    /// Of these replicas, the deltas.
    pub deltas_sent: u64,
    /// Replicas received.
    pub replicas_received: u64,
    /// Bytes of states and deltas in them.
    pub replica_bytes_received: u64,
    /// Deltas received without their base. The whole state was requested.
    pub deltas_without_base: u64,
    /// Replicas discarded: not newer than the one here, unreadable, or too large.
    pub replicas_refused: u64,
    /// Replicas evicted for others.
    pub replicas_evicted: u64,
    /// States sent to new owners.
    pub states_sent: u64,
    /// Bytes of state in them.
    pub state_bytes_sent: u64,
    /// States retransmitted because no acknowledgement came.
    pub states_retransmitted: u64,
    /// States sent without a pull.
    pub states_offered: u64,
    /// States received and accepted.
    pub states_taken: u64,
    /// States received that the engine refused; their flows stay where they were.
    pub states_refused: u64,
    /// States returned by the next owner, which refused them.
    pub states_returned: u64,
    /// States returned that could not be taken back: their flows began again.
    pub states_lost: u64,
    /// Late packets forwarded to the flow's owner.
    pub forwarded: u64,
    /// Packets given up as lost before they reached the unit.
    pub given_up: u64,
    /// Proposals to end a flow.
    pub expiries_proposed: u64,
    /// Flows that ended after a proposal of this unit.
    pub expiries_accepted: u64,
    /// Ended flows with an awaited state that did not arrive.
    pub ends_given_up: u64,
    /// Tombstones forgotten for lack of room.
    pub tombstones_forgotten: u64,
    /// Messages that were repeated or overtaken.
    pub messages_stale: u64,
    /// Messages refused: not for units, from the wrong sender, or beyond a limit.
    pub messages_refused: u64,
    /// Packets dropped as [`DropCause::Stale`].
    pub dropped_stale: u64,
    /// Packets dropped as [`DropCause::FlowEnded`].
    pub dropped_flow_ended: u64,
    /// Packets dropped as [`DropCause::PendingFull`].
    pub dropped_pending_full: u64,
    /// Packets dropped as [`DropCause::Refused`].
    pub dropped_refused: u64,
    /// Replicas of lost states that were sought at other units.
    pub replicas_sought: u64,
    /// Lost states recovered from replicas.
    pub states_recovered: u64,
    /// Packets that the recovered states do not cover.
    pub packets_unrecovered: u64,
}

/// Number of the counters.
const COUNT: usize = size_of::<Counters>() / size_of::<u64>();

impl Counters {
    /// Returns all counters in the order of their declaration, for a message. New ones are added at
    /// the end.
    pub fn numbers(&self) -> [u64; COUNT] {
        zerocopy::transmute!(*self)
    }

    /// Returns the counters with these [numbers](Counters::numbers).
    pub fn of_numbers(numbers: [u64; COUNT]) -> Counters {
        zerocopy::transmute!(numbers)
    }

    /// Returns the packets dropped for this reason.
    pub fn dropped(&self, reason: DropCause) -> u64 {
        match reason {
            DropCause::Stale => self.dropped_stale,
            DropCause::FlowEnded => self.dropped_flow_ended,
            DropCause::PendingFull => self.dropped_pending_full,
            DropCause::Refused => self.dropped_refused,
        }
    }

    /// Counts a dropped packet.
    pub(crate) fn drop(&mut self, reason: DropCause) {
        *match reason {
            DropCause::Stale => &mut self.dropped_stale,
            DropCause::FlowEnded => &mut self.dropped_flow_ended,
            DropCause::PendingFull => &mut self.dropped_pending_full,
            DropCause::Refused => &mut self.dropped_refused,
        } += 1;
    }
}
