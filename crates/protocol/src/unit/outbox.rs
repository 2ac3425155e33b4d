//! The output of a unit.

use crate::message::{FromPeer, FromUnit, Stamp, UnitId};

/// Messages and packets that a unit sends, and packets that it dropped. The driver empties it.
#[derive(Clone, Debug)]
pub struct Outbox<P> {
    /// To the dispatcher.
    pub to_dispatcher: Vec<FromUnit>,
    /// To units.
    pub to_units: Vec<(UnitId, FromPeer)>,
    /// To all other active units.
    pub to_all: Vec<FromPeer>,
    /// Late packets, for the units that own their flows now, with a stamp of the owner's epoch.
    pub forwarded: Vec<(UnitId, Stamp, P)>,
    /// Packets that are not processed, with the reason.
    pub dropped: Vec<(DropCause, Stamp, P)>,
}

/// The reason for dropping a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DropCause {
    /// It came twice, or after it had been given up.
    Stale,
    /// Its flow has ended.
    FlowEnded,
    /// It would have to wait for its flow's state, and the limit on pending packets is reached.
    PendingFull,
    /// Its index is beyond the limit, or the flow has more future owners than a unit remembers.
    Refused,
}

impl DropCause {
    /// Returns the name, for the timeline.
    pub fn name(self) -> &'static str {
        match self {
            DropCause::Stale => "stale",
            DropCause::FlowEnded => "flow ended",
            DropCause::PendingFull => "too many pending",
            DropCause::Refused => "refused",
        }
    }
}

impl<P> Default for Outbox<P> {
    fn default() -> Outbox<P> {
        Outbox {
            to_dispatcher: Vec::new(),
            to_units: Vec::new(),
            to_all: Vec::new(),
            forwarded: Vec::new(),
            dropped: Vec::new(),
        }
    }
}

impl<P> Outbox<P> {
    /// Returns true if there is no output.
    pub fn is_empty(&self) -> bool {
        self.to_dispatcher.is_empty()
            && self.to_units.is_empty()
            && self.to_all.is_empty()
            && self.forwarded.is_empty()
            && self.dropped.is_empty()
    }
}
