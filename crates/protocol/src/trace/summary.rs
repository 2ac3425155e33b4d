//! Messages as a line shows them: their kind, and their contents without flow, epoch and seq.

use std::fmt;

use crate::message::{FromDispatcher, FromPeer, FromUnit, RefuseReason, UnitId, UnitMessage, Version};

use super::place::FlowPlace;

/// The other end of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessagePeer {
    /// The dispatcher.
    Dispatcher,
    /// A unit.
    Unit(UnitId),
    /// All other active units.
    All,
}

impl fmt::Display for MessagePeer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MessagePeer::Dispatcher => f.write_str("dispatcher"),
            MessagePeer::Unit(unit) => unit.fmt(f),
            MessagePeer::All => f.write_str("all units"),
        }
    }
}

/// A message without its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageSummary {
    /// The kind.
    name: &'static str,
    place: FlowPlace,
    /// A unit that it names, and the part that the unit has in it.
    unit: Option<(&'static str, UnitId)>,
    /// A replica that it builds on.
    base: Option<Version>,
    /// Bytes of state or changes.
    bytes: Option<usize>,
    note: Option<Note>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Note {
    Again,
    Reported,
    Refused(RefuseReason),
}

impl MessageSummary {
    fn new(name: &'static str, place: FlowPlace) -> MessageSummary {
        MessageSummary { name, place, unit: None, base: None, bytes: None, note: None }
    }

    /// Returns the flow, the epoch, and the last packet that the message covers or demands.
    pub fn place(&self) -> FlowPlace {
        self.place
    }
}

impl fmt::Display for MessageSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)?;
        if let Some((part, unit)) = self.unit {
            write!(f, ", {part} {unit}")?;
        }
        if let Some(Version { epoch, seq }) = self.base {
            write!(f, ", replica {epoch}/{seq}")?;
        }
        if let Some(bytes) = self.bytes {
            write!(f, ", {bytes} bytes")?;
        }
        match self.note {
            Some(Note::Again) => f.write_str(", again"),
            Some(Note::Reported) => f.write_str(", reported"),
            Some(Note::Refused(reason)) => write!(f, ", {reason}"),
            None => Ok(()),
        }
    }
}

impl From<&UnitMessage> for MessageSummary {
    fn from(message: &UnitMessage) -> MessageSummary {
        match message {
            UnitMessage::FromDispatcher(message) => message.into(),
            UnitMessage::FromPeer(_, message) => message.into(),
        }
    }
}

impl From<&FromDispatcher> for MessageSummary {
    fn from(message: &FromDispatcher) -> MessageSummary {
        match *message {
            FromDispatcher::Release { flow, epoch, owner, last, .. } => {
                let unit = Some(("owner", owner));
                MessageSummary { unit, ..MessageSummary::new("Release", FlowPlace::new(flow, epoch, last)) }
            }
            FromDispatcher::Adopt { flow, epoch, previous, last } => {
                let unit = Some(("previous", previous));
                MessageSummary { unit, ..MessageSummary::new("Adopt", FlowPlace::new(flow, epoch, last)) }
            }
            FromDispatcher::Replicate { flow, epoch, to } => {
                let place = FlowPlace { epoch: Some(epoch), ..FlowPlace::of(flow) };
                MessageSummary { unit: Some(("to", to)), ..MessageSummary::new("Replicate", place) }
            }
            FromDispatcher::End { flow } => MessageSummary::new("End", FlowPlace::of(flow)),
            FromDispatcher::Drain => MessageSummary::new("Drain", FlowPlace::NONE),
        }
    }
}

impl From<&FromUnit> for MessageSummary {
    fn from(message: &FromUnit) -> MessageSummary {
        let of = |flow, epoch| FlowPlace { epoch: Some(epoch), ..FlowPlace::of(flow) };
        match *message {
            FromUnit::Expire { flow, epoch, seq } => {
                MessageSummary::new("Expire", FlowPlace::new(flow, epoch, seq))
            }
            FromUnit::Arrived { flow, epoch } => MessageSummary::new("Arrived", of(flow, epoch)),
            FromUnit::Replicated { flow, epoch } => MessageSummary::new("Replicated", of(flow, epoch)),
            FromUnit::Drained => MessageSummary::new("Drained", FlowPlace::NONE),
            FromUnit::Lost { flow, epoch } => MessageSummary::new("Lost", of(flow, epoch)),
            FromUnit::Refuse { flow, epoch, reason, holder } => MessageSummary {
                unit: Some(("holder", holder)),
                note: Some(Note::Refused(reason)),
                ..MessageSummary::new("Refuse", of(flow, epoch))
            },
        }
    }
}

impl From<&FromPeer> for MessageSummary {
    fn from(message: &FromPeer) -> MessageSummary {
        let of = |flow, epoch| FlowPlace { epoch: Some(epoch), ..FlowPlace::of(flow) };
        let bytes = message.state_bytes();
        match *message {
            FromPeer::Pull { flow, epoch, owner, last, again, has } => MessageSummary {
                unit: Some(("owner", owner)),
                base: has,
                note: again.then_some(Note::Again),
                ..MessageSummary::new("Pull", FlowPlace::new(flow, epoch, last))
            },
            FromPeer::State { flow, epoch, ref record } => {
                let place = FlowPlace::new(flow, epoch, record.watermark.contiguous);
                MessageSummary { bytes, ..MessageSummary::new("State", place) }
            }
            FromPeer::Changes { flow, epoch, watermark, ref delta } => MessageSummary {
                base: delta.base(Version::beginning(epoch, watermark)).ok(),
                bytes,
                ..MessageSummary::new("Changes", FlowPlace::new(flow, epoch, watermark.contiguous))
            },
            FromPeer::StateAck { flow, epoch } => MessageSummary::new("StateAck", of(flow, epoch)),
            FromPeer::Replicate { flow, epoch, ref record, is_reported } => MessageSummary {
                bytes,
                note: is_reported.then_some(Note::Reported),
                ..MessageSummary::new("Replicate", FlowPlace::new(flow, epoch, record.watermark.contiguous))
            },
            FromPeer::Delta { flow, epoch, watermark, ref delta } => MessageSummary {
                base: delta.base(Version { epoch, seq: watermark.contiguous }).ok(),
                bytes,
                ..MessageSummary::new("Delta", FlowPlace::new(flow, epoch, watermark.contiguous))
            },
            FromPeer::NeedFull { flow, version } => {
                MessageSummary::new("NeedFull", FlowPlace::new(flow, version.epoch, version.seq))
            }
            FromPeer::End { flow, epoch } => MessageSummary::new("End", of(flow, epoch)),
            FromPeer::Refuse { flow, epoch, reason, .. } => MessageSummary {
                note: Some(Note::Refused(reason)),
                ..MessageSummary::new("Refuse", of(flow, epoch))
            },
        }
    }
}
