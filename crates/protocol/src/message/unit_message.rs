//! A message to a unit, from either kind of sender.

use crate::message::{FlowId, FromDispatcher, FromPeer, Lane, UnitId};

/// A message to a unit, with its sender.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UnitMessage {
    /// A message from the dispatcher.
    FromDispatcher(FromDispatcher),
    /// A message from the named unit.
    FromPeer(UnitId, FromPeer),
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
