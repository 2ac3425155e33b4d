//! Messages about flows between dispatchers and units.

use crate::message::{Delta, Epoch, FlowId, UnitId, Version, Watermark};

/// A flow's state on its way, as bytes (S19).
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct FlowRecord {
    /// Which of the flow's packets it covers.
    pub watermark: Watermark,
    /// All that the flow owns; what that is only units know. Empty: that of a new flow.
    pub bytes: Vec<u8>,
}

/// A message about a flow, or about all of a unit's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// From the dispatcher to the owner so far, behind its last packet: another unit is the owner.
    Release {
        /// The flow.
        flow: FlowId,
        /// The new owner's number.
        epoch: Epoch,
        /// The new owner.
        owner: UnitId,
        /// The seq of the last packet that went to the owner so far.
        last: u64,
    },
    /// From the dispatcher to a new owner that there is no packet for: it is to fetch the state all the
    /// same.
    Adopt {
        /// The flow.
        flow: FlowId,
        /// The new owner's number.
        epoch: Epoch,
        /// The owner before.
        previous: UnitId,
        /// The seq of the last packet that went there.
        last: u64,
    },
    /// From a new owner to the one before it: the state is wanted (S49).
    Pull {
        /// The flow.
        flow: FlowId,
        /// The new owner's number.
        epoch: Epoch,
        /// The seq that the state has to cover.
        last: u64,
        /// It is repeated. Then it travels behind the packets that wait at the owner before, as a
        /// release does, and counts as one.
        again: bool,
    },
    /// The answer: the state. What it does not cover up to the seq that was asked for will not
    /// come.
    State {
        /// The flow.
        flow: FlowId,
        /// The new owner's number.
        epoch: Epoch,
        /// The state.
        record: FlowRecord,
    },
    /// From a new owner to the one before it: it has the state. Whatever of the flow is still there
    /// may be forgotten.
    StateAck {
        /// The flow.
        flow: FlowId,
        /// The new owner's number.
        epoch: Epoch,
    },
    /// From the owner to a unit that may be the next one: a copy of the state (S51).
    Replicate {
        /// The flow.
        flow: FlowId,
        /// The owner's number.
        epoch: Epoch,
        /// The state.
        record: FlowRecord,
    },
    /// The same, to a unit that seems to have an older copy: what has changed since.
    Delta {
        /// The flow.
        flow: FlowId,
        /// The owner's number.
        epoch: Epoch,
        /// Which of the flow's packets the state covers.
        watermark: Watermark,
        /// What has changed.
        delta: Delta,
    },
    /// The answer of a unit that has no such copy: it is to get the whole state.
    NeedFull {
        /// The flow.
        flow: FlowId,
        /// Of which state the changes came.
        version: Version,
    },
    /// From the owner to the dispatcher: the flow's time is over. Nothing ends before the dispatcher has
    /// said so.
    Expire {
        /// The flow.
        flow: FlowId,
        /// The owner's number.
        epoch: Epoch,
        /// The highest seq that the state covers.
        seq: u64,
    },
    /// From the dispatcher to the owner: the flow is over, as soon as its state is there; to others
    /// that have copies: these are worth nothing. From a unit that was to have the state to one
    /// that asks for it: it is over, and there is none.
    End {
        /// The flow.
        flow: FlowId,
    },
    /// From the dispatcher to a unit that is to stop: it gets no flowlets any more, and its flows go
    /// elsewhere one by one.
    Drain,
    /// From that unit to the dispatcher: it has none left.
    Drained,
}

impl Message {
    /// The flow that it is about; none: all of a unit's.
    pub fn flow(&self) -> Option<FlowId> {
        match self {
            Message::Release { flow, .. }
            | Message::Adopt { flow, .. }
            | Message::Pull { flow, .. }
            | Message::State { flow, .. }
            | Message::StateAck { flow, .. }
            | Message::Replicate { flow, .. }
            | Message::Delta { flow, .. }
            | Message::NeedFull { flow, .. }
            | Message::Expire { flow, .. }
            | Message::End { flow } => Some(*flow),
            Message::Drain | Message::Drained => None,
        }
    }

    /// Bytes of state in it, or of what has changed in one.
    pub fn state_bytes(&self) -> Option<usize> {
        match self {
            Message::State { record, .. } | Message::Replicate { record, .. } => Some(record.bytes.len()),
            Message::Delta { delta, .. } => Some(delta.len()),
            _ => None,
        }
    }
}
