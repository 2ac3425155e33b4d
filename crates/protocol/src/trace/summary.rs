//! Messages as a line shows them: their kind, and their contents without flow, epoch and seq.

use std::fmt;

use crate::message::{
    Epoch, FlowId, FromDispatcher, FromPeer, FromUnit, RefuseReason, UnitId, UnitMessage, Version, Watermark,
};

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
    /// The replica that it builds on, or carries.
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
    /// Creates the summary of a message; `number` returns the value of a field.
    fn new(name: &'static str, flow: Option<FlowId>, number: impl Fn(&str) -> Option<u64>) -> MessageSummary {
        let epoch = number("epoch").and_then(|epoch| Epoch::try_from(epoch).ok());
        let place = FlowPlace { flow, epoch, seq: number("seq").or_else(|| number("last")) };
        MessageSummary { name, place, unit: None, base: None, bytes: None, note: None }
    }

    /// Returns the kind.
    pub(super) fn name(&self) -> &'static str {
        self.name
    }

    /// Returns the replica that it builds on, or carries.
    pub(super) fn base(&self) -> Option<Version> {
        self.base
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
        if let Some(base) = self.base {
            write!(f, ", replica {base}")?;
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

// A message shows its name, flow, epoch and seq; those below show more.

impl From<&FromDispatcher> for MessageSummary {
    fn from(message: &FromDispatcher) -> MessageSummary {
        let plain = MessageSummary::new(message.name(), message.flow(), |field| message.number(field));
        let unit = match *message {
            FromDispatcher::Release { owner, .. } => Some(("owner", owner)),
            FromDispatcher::Adopt { previous, .. } => Some(("previous", previous)),
            FromDispatcher::Replicate { to, .. } => Some(("to", to)),
            _ => None,
        };
        MessageSummary { unit, ..plain }
    }
}

impl From<&FromUnit> for MessageSummary {
    fn from(message: &FromUnit) -> MessageSummary {
        let plain = MessageSummary::new(message.name(), message.flow(), |field| message.number(field));
        match *message {
            FromUnit::Refuse { reason, holder, .. } => {
                let (unit, note) = (Some(("holder", holder)), Some(Note::Refused(reason)));
                MessageSummary { unit, note, ..plain }
            }
            _ => plain,
        }
    }
}

impl From<&FromPeer> for MessageSummary {
    fn from(message: &FromPeer) -> MessageSummary {
        let plain = MessageSummary::new(message.name(), Some(message.flow()), |field| message.number(field));
        let plain = MessageSummary { bytes: message.state_bytes(), ..plain };
        let covers = |watermark: &Watermark| FlowPlace { seq: Some(watermark.contiguous), ..plain.place };
        match *message {
            FromPeer::Pull { owner, again, has, .. } => {
                let (unit, note) = (Some(("owner", owner)), again.then_some(Note::Again));
                MessageSummary { unit, base: has, note, ..plain }
            }
            FromPeer::State { ref record, .. } => {
                MessageSummary { place: covers(&record.watermark), ..plain }
            }
            FromPeer::Changes { epoch, watermark, ref delta, .. } => {
                let base = delta.base(Version::beginning(epoch, watermark)).ok();
                MessageSummary { place: covers(&watermark), base, ..plain }
            }
            FromPeer::Replicate { ref record, is_reported, .. } => {
                let note = is_reported.then_some(Note::Reported);
                MessageSummary { place: covers(&record.watermark), note, ..plain }
            }
            FromPeer::Delta { epoch, watermark, ref delta, .. } => {
                let base = delta.base(Version { epoch, seq: watermark.contiguous }).ok();
                MessageSummary { place: covers(&watermark), base, ..plain }
            }
            FromPeer::NeedFull { flow, version } => {
                MessageSummary { place: FlowPlace::new(flow, version.epoch, version.seq), ..plain }
            }
            FromPeer::Seek { has, .. } => MessageSummary { base: has, ..plain },
            FromPeer::Found { version, .. } => MessageSummary { base: version, ..plain },
            FromPeer::Refuse { reason, .. } => {
                MessageSummary { note: Some(Note::Refused(reason)), bytes: None, ..plain }
            }
            _ => plain,
        }
    }
}
