//! The messages of the protocol, grouped by who sends them, so that no other pair of sender and
//! receiver can be written.

use crate::message::{Epoch, FlowId, Handover, StateDelta, UnitId, Version, Watermark};

/// A flow's serialised state, with the packets that it covers (S19).
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct FlowRecord {
    /// The packets that the state covers.
    pub watermark: Watermark,
    /// Everything that the flow owns, in a format that only units know. Empty for a new flow.
    pub bytes: Vec<u8>,
}

/// Why a unit cannot take a flow's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum RefuseReason {
    /// The bytes are damaged.
    #[error("the state is damaged")]
    Unreadable,
    /// The state was written by other functions, or by versions of them that cannot be upgraded.
    #[error("the state is of other functions or versions")]
    Incompatible,
    /// Another flow at the unit has the same key or alias.
    #[error("another flow has the key or the alias of this one")]
    Conflict,
    /// The unit has no room for another flow or its streams.
    #[error("there is no room for the flow")]
    NoRoom,
}

/// The order of a message relative to the packets on the same path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lane {
    /// The message stays after all packets sent before it: it queues with them.
    Ordered,
    /// The message may pass packets that wait (S18).
    Free,
}

/// A message from the dispatcher to a unit. The transport must not lose it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FromDispatcher {
    /// Ends the receiver's ownership: no packet of its epoch follows.
    Release {
        /// The flow.
        flow: FlowId,
        /// The new owner's epoch.
        epoch: Epoch,
        /// The new owner.
        owner: UnitId,
        /// The seq of the last packet of the receiver's epoch.
        last: u64,
        /// The place of the state that the receiver's epoch begins with: its packets, which name
        /// it, may all be lost.
        start: Handover,
    },
    /// Makes the receiver the owner without a packet: it fetches the state.
    Adopt {
        /// The flow.
        flow: FlowId,
        /// The receiver's epoch.
        epoch: Epoch,
        /// The previous owner.
        previous: UnitId,
        /// The seq of the last packet of the previous owner's epoch.
        last: u64,
    },
    /// Asks the flow's owner for a replica at a unit to which the flow is about to move: packets go
    /// on while most of the state is on its way (pre-copy).
    Replicate {
        /// The flow.
        flow: FlowId,
        /// The owner's epoch.
        epoch: Epoch,
        /// The next owner.
        to: UnitId,
    },
    /// Ends the flow at its owner once the state is there. Elsewhere, replicas become worthless.
    End {
        /// The flow.
        flow: FlowId,
    },
    /// Announces that the unit will stop: it gets no new flowlets, and its flows move away.
    Drain,
}

/// A message from a unit to the dispatcher. It may be lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FromUnit {
    /// Proposes the end of a flow. The flow ends only once the dispatcher answers with
    /// [`FromDispatcher::End`].
    Expire {
        /// The flow.
        flow: FlowId,
        /// The owner's epoch.
        epoch: Epoch,
        /// The highest seq that the state covers.
        seq: u64,
    },
    /// Reports that the owner has the flow's state, which another unit had before. Sent for all
    /// flows if some are in affinity groups; the transport must not lose it.
    Arrived {
        /// The flow.
        flow: FlowId,
        /// The sender's epoch.
        epoch: Epoch,
    },
    /// Reports that a replica has come that the dispatcher [asked for](FromDispatcher::Replicate),
    /// whether it is kept or not.
    Replicated {
        /// The flow.
        flow: FlowId,
        /// The epoch of the owner that sent it.
        epoch: Epoch,
    },
    /// Reports that a draining unit has no flows left.
    Drained,
    /// Reports that the flow's state, for which the owner waited, is lost: nobody has it.
    Lost {
        /// The flow.
        flow: FlowId,
        /// The sender's epoch.
        epoch: Epoch,
    },
    /// Reports that the owner could not take the state. The flow goes on where the state is.
    Refuse {
        /// The flow.
        flow: FlowId,
        /// The sender's epoch.
        epoch: Epoch,
        /// The reason.
        reason: RefuseReason,
        /// The unit that holds the state.
        holder: UnitId,
    },
}

/// A message from a unit to another unit. It may be lost, repeated or reordered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FromPeer {
    /// Asks the previous owner for the state (S49). A unit that has refused that state forwards
    /// the message to its holder.
    Pull {
        /// The flow.
        flow: FlowId,
        /// The epoch that the state begins.
        epoch: Epoch,
        /// The owner of that epoch.
        owner: UnitId,
        /// The seq that the state must cover.
        last: u64,
        /// Marks a retransmission: it queues after packets, and counts as a
        /// [`FromDispatcher::Release`].
        again: bool,
        /// The version of the owner's replica, if it has one: changes to it are enough.
        has: Option<Version>,
    },
    /// Hands the state to the new owner. Packets up to the seq of the pull that it does not cover
    /// are lost.
    State {
        /// The flow.
        flow: FlowId,
        /// The receiver's epoch.
        epoch: Epoch,
        /// The state.
        record: FlowRecord,
    },
    /// Hands the state to the new owner as the difference to the replica that its pull named. An
    /// owner that does not have that replica any more pulls again.
    Changes {
        /// The flow.
        flow: FlowId,
        /// The receiver's epoch.
        epoch: Epoch,
        /// The packets that the state covers.
        watermark: Watermark,
        /// The difference to the replica.
        delta: StateDelta,
    },
    /// Acknowledges the state: the previous owner may forget the flow.
    StateAck {
        /// The flow.
        flow: FlowId,
        /// The sender's epoch.
        epoch: Epoch,
    },
    /// Copies the state to a unit that may be the next owner (S51).
    Replicate {
        /// The flow.
        flow: FlowId,
        /// The owner's epoch.
        epoch: Epoch,
        /// The state.
        record: FlowRecord,
        /// The dispatcher asked for it: the receiver reports [`FromUnit::Replicated`].
        is_reported: bool,
    },
    /// Updates a replica that the receiver is believed to have.
    Delta {
        /// The flow.
        flow: FlowId,
        /// The owner's epoch.
        epoch: Epoch,
        /// The packets that the new state covers.
        watermark: Watermark,
        /// The difference to the replica.
        delta: StateDelta,
    },
    /// Asks for the whole state in place of a delta whose base is missing.
    NeedFull {
        /// The flow.
        flow: FlowId,
        /// The version that the delta leads to.
        version: Version,
    },
    /// Answers a pull: the flow has ended or is lost, and no state will come.
    End {
        /// The flow.
        flow: FlowId,
        /// The receiver's epoch.
        epoch: Epoch,
    },
    /// Returns a state that the sender cannot take. The receiver goes on as the owner of the
    /// sender's epoch, whose packets the sender forwards.
    Refuse {
        /// The flow.
        flow: FlowId,
        /// The sender's epoch.
        epoch: Epoch,
        /// The reason.
        reason: RefuseReason,
        /// The state as it came: its holder may have let it go with the message.
        record: FlowRecord,
    },
}

/// A message to a unit, with its sender.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UnitMessage {
    /// A message from the dispatcher.
    FromDispatcher(FromDispatcher),
    /// A message from the named unit.
    FromPeer(UnitId, FromPeer),
}

impl FromDispatcher {
    /// The order of the message relative to packets.
    pub fn lane(&self) -> Lane {
        match self {
            FromDispatcher::Release { .. } | FromDispatcher::End { .. } | FromDispatcher::Drain => {
                Lane::Ordered
            }
            FromDispatcher::Adopt { .. } | FromDispatcher::Replicate { .. } => Lane::Free,
        }
    }

    /// The flow concerned; `None` for a message about the unit.
    pub fn flow(&self) -> Option<FlowId> {
        match self {
            FromDispatcher::Release { flow, .. }
            | FromDispatcher::Adopt { flow, .. }
            | FromDispatcher::Replicate { flow, .. }
            | FromDispatcher::End { flow } => Some(*flow),
            FromDispatcher::Drain => None,
        }
    }
}

impl FromPeer {
    /// The order of the message relative to packets.
    pub fn lane(&self) -> Lane {
        match self {
            FromPeer::Pull { again: true, .. } => Lane::Ordered,
            _ => Lane::Free,
        }
    }

    /// The flow concerned.
    pub fn flow(&self) -> FlowId {
        match self {
            FromPeer::Pull { flow, .. }
            | FromPeer::State { flow, .. }
            | FromPeer::Changes { flow, .. }
            | FromPeer::StateAck { flow, .. }
            | FromPeer::Replicate { flow, .. }
            | FromPeer::Delta { flow, .. }
            | FromPeer::NeedFull { flow, .. }
            | FromPeer::End { flow, .. }
            | FromPeer::Refuse { flow, .. } => *flow,
        }
    }

    /// Returns true if the message hands a flow's state to its next owner.
    pub fn hands_over(&self) -> bool {
        matches!(self, FromPeer::State { .. } | FromPeer::Changes { .. })
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
            _ => None,
        }
    }

    /// Returns the epoch that a pull or a state asks about, and that their answers name; `None` for
    /// messages that are neither.
    pub fn epoch_of_exchange(&self) -> Option<Epoch> {
        match *self {
            FromPeer::Pull { epoch, .. }
            | FromPeer::State { epoch, .. }
            | FromPeer::Changes { epoch, .. }
            | FromPeer::StateAck { epoch, .. }
            | FromPeer::End { epoch, .. }
            | FromPeer::Refuse { epoch, .. } => Some(epoch),
            FromPeer::Replicate { .. } | FromPeer::Delta { .. } | FromPeer::NeedFull { .. } => None,
        }
    }

    /// Bytes of state or delta in the message.
    pub fn state_bytes(&self) -> Option<usize> {
        match self {
            FromPeer::State { record, .. }
            | FromPeer::Replicate { record, .. }
            | FromPeer::Refuse { record, .. } => Some(record.bytes.len()),
            FromPeer::Delta { delta, .. } | FromPeer::Changes { delta, .. } => Some(delta.len()),
            _ => None,
        }
    }
}

impl UnitMessage {
    /// The order of the message relative to packets.
    pub fn lane(&self) -> Lane {
        match self {
            UnitMessage::FromDispatcher(message) => message.lane(),
            UnitMessage::FromPeer(_, message) => message.lane(),
        }
    }

    /// The flow concerned; `None` for a message about the unit.
    pub fn flow(&self) -> Option<FlowId> {
        match self {
            UnitMessage::FromDispatcher(message) => message.flow(),
            UnitMessage::FromPeer(_, message) => Some(message.flow()),
        }
    }
}
