//! Messages between units.

use crate::message::declare::messages;
use crate::message::{Epoch, FlowId, FlowRecord, RefuseReason, StateDelta, UnitId, Version, Watermark};
use crate::timer::UnitTimer;

messages! {
    /// A message from a unit to another unit. It may be lost, repeated or reordered.
    pub enum FromPeer of FlowId {
        /// Requests the state from the previous owner (S49). A unit that has refused that state, or
        /// has given it away, forwards the message to its holder.
        Pull = 0 {
            /// The flow.
            flow: FlowId,
            /// The epoch that the state begins.
            epoch: Epoch,
            /// The owner of that epoch.
            owner: UnitId,
            /// The seq that the state must cover.
            last: u64,
            /// Marks a retransmission: it queues after packets, and counts as a `Release`.
            again: bool,
            /// The version of the owner's replica, if it has one: changes to it are enough.
            has: Option<Version> = since(2),
        } => {
            from: "new owner",
            to: "previous owner",
            lane: Ordered if again,
            exchange: epoch,
            answer: "`State` or `Changes`; `End` if there is no state",
            timers: [UnitTimer::Pull],
            repeated_by: "the timer, with `again`",
            if_lost: "the timer repeats it, or the previous owner offers the state after its release",
        }
        /// Hands the state to the new owner. Packets up to the seq of the pull that it does not
        /// cover are lost.
        State = 1 {
            /// The flow.
            flow: FlowId,
            /// The receiver's epoch.
            epoch: Epoch,
            /// The state.
            record: FlowRecord,
        } => {
            from: "previous owner",
            to: "new owner",
            lane: Free,
            exchange: epoch,
            answer: "`StateAck` or `Refuse`",
            timers: [UnitTimer::Offer, UnitTimer::State],
            repeated_by: "the timer, and a further `Pull`",
            if_lost: "the timer repeats it; the sender keeps the state until the answer",
        }
        /// Hands the state to the new owner as the difference to the replica that its pull named.
        /// An owner that does not have that replica any more pulls again.
        Changes = 8 {
            /// The flow.
            flow: FlowId,
            /// The receiver's epoch.
            epoch: Epoch,
            /// The packets that the state covers.
            watermark: Watermark,
            /// The difference to the replica.
            delta: StateDelta,
        } => {
            from: "previous owner",
            to: "new owner",
            lane: Free,
            exchange: epoch,
            answer: "`StateAck` or `Refuse`; `Pull` if the replica is gone",
            timers: [UnitTimer::State],
            repeated_by: "nothing: `State` follows in its place",
            if_lost: "the timer sends `State`",
        }
        /// Acknowledges the state: the previous owner may forget the flow.
        StateAck = 2 {
            /// The flow.
            flow: FlowId,
            /// The sender's epoch.
            epoch: Epoch,
        } => {
            from: "new owner",
            to: "previous owner",
            lane: Free,
            exchange: epoch,
            answer: "none",
            timers: [],
            repeated_by: "each repeated `State`",
            if_lost: "the previous owner sends `State` again, and gets another one",
        }
        /// Copies the state to a unit that may be the next owner (S51).
        Replicate = 3 {
            /// The flow.
            flow: FlowId,
            /// The owner's epoch.
            epoch: Epoch,
            /// The state.
            record: FlowRecord,
            /// The dispatcher has requested it: the receiver reports `Replicated`.
            is_reported: bool = since(2),
        } => {
            from: "owner",
            to: "possible next owners",
            lane: Free,
            answer: "`Replicated` to the dispatcher if that has requested it",
            timers: [UnitTimer::Replicate],
            repeated_by: "nothing; the next silence sends a newer one",
            if_lost: "a move waits for the whole state, and a pre-copy for its time limit",
        }
        /// Updates a replica that the receiver is believed to have.
        Delta = 4 {
            /// The flow.
            flow: FlowId,
            /// The owner's epoch.
            epoch: Epoch,
            /// The packets that the new state covers.
            watermark: Watermark,
            /// The difference to the replica.
            delta: StateDelta,
        } => {
            from: "owner",
            to: "possible next owners",
            lane: Free,
            answer: "`NeedFull` if the replica is missing",
            timers: [UnitTimer::Replicate],
            repeated_by: "nothing; the next silence sends a newer one",
            if_lost: "the next delta lacks its base, and the receiver requests the whole state",
        }
        /// Requests the whole state in place of a delta without its base.
        NeedFull = 5 {
            /// The flow.
            flow: FlowId,
            /// The version that the delta leads to.
            version: Version,
        } => {
            from: "possible next owner",
            to: "owner",
            lane: Free,
            answer: "`Replicate`, unless there is a later version",
            timers: [],
            repeated_by: "the next delta without a base",
            if_lost: "the replica stays old until the next delta; a move waits for the whole state",
        }
        /// Requests the receiver's replica of a flow whose owner is lost, if it is newer than the
        /// sender's.
        Seek = 9 {
            /// The flow.
            flow: FlowId,
            /// The sender's epoch.
            epoch: Epoch,
            /// The version that the sender has.
            has: Option<Version>,
        } => {
            from: "new owner",
            to: "possible next owners, and the owner before the lost one",
            lane: Free,
            exchange: epoch,
            answer: "`Found`",
            timers: [UnitTimer::Seek],
            repeated_by: "the timer",
            if_lost: "the timer repeats it",
        }
        /// Answers a `Seek`.
        Found = 10 {
            /// The flow.
            flow: FlowId,
            /// The receiver's epoch.
            epoch: Epoch,
            /// The version of the replica; `None` if there is none, or none that is newer.
            version: Option<Version>,
            /// The replica; empty if there is none.
            record: FlowRecord,
        } => {
            from: "possible next owner, or the transport for a lost one",
            to: "new owner",
            lane: Free,
            exchange: epoch,
            answer: "none",
            timers: [],
            repeated_by: "each repeated `Seek`",
            if_lost: "the new owner repeats its `Seek`",
        }
        /// Answers a pull: the flow has ended or is lost, and no state will come.
        End = 6 {
            /// The flow.
            flow: FlowId,
            /// The receiver's epoch.
            epoch: Epoch,
        } => {
            from: "previous owner, or the transport for a lost one",
            to: "new owner",
            lane: Free,
            exchange: epoch,
            answer: "`Lost` to the dispatcher",
            timers: [],
            repeated_by: "each repeated `Pull`",
            if_lost: "the new owner repeats its `Pull`",
        }
        /// Returns a state that the sender cannot take. The receiver owns the sender's epoch, too,
        /// and gets its packets from the sender.
        Refuse = 7 {
            /// The flow.
            flow: FlowId,
            /// The sender's epoch.
            epoch: Epoch,
            /// The reason.
            reason: RefuseReason,
            /// The state as it came: its holder may have let it go with the message.
            record: FlowRecord,
        } => {
            from: "new owner",
            to: "previous owner",
            lane: Free,
            exchange: epoch,
            answer: "none",
            timers: [],
            repeated_by: "each repeated `State`",
            if_lost: "the previous owner sends `State` again, and it is refused again",
        }
    }
}

impl FromPeer {
    /// Returns true if the message hands a flow's state to its next owner.
    pub fn hands_over(&self) -> bool {
        matches!(self, FromPeer::State { .. } | FromPeer::Changes { .. })
    }

    /// Returns the answer to a [`Seek`](FromPeer::Seek).
    pub fn found(flow: FlowId, epoch: Epoch, replica: Option<(Version, FlowRecord)>) -> FromPeer {
        let (version, record) = replica.unzip();
        FromPeer::Found { flow, epoch, version, record: record.unwrap_or_default() }
    }

    /// Returns the answer that a transport gives in the place of a unit that has crashed, and its
    /// receiver: there is no state, and a state that was sent to it need not be kept. `None`: no
    /// answer is awaited.
    pub fn answer_for_lost_unit(&self, from: UnitId) -> Option<(UnitId, FromPeer)> {
        match *self {
            FromPeer::Pull { flow, epoch, owner, .. } => Some((owner, FromPeer::End { flow, epoch })),
            FromPeer::State { flow, epoch, .. } | FromPeer::Changes { flow, epoch, .. } => {
                Some((from, FromPeer::StateAck { flow, epoch }))
            }
            FromPeer::Seek { flow, epoch, .. } => Some((from, FromPeer::found(flow, epoch, None))),
            _ => None,
        }
    }
}
