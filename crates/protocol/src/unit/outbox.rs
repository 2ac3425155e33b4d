//! What a unit wants sent.

use crate::message::{FromPeer, FromUnit, Stamp, UnitId};

/// What a unit wants sent, and what has become of packets that it did not process. Whoever drives
/// the unit empties it.
#[derive(Clone, Debug)]
pub struct Outbox<P> {
    /// To the dispatcher.
    pub to_dispatcher: Vec<FromUnit>,
    /// To units.
    pub to_units: Vec<(UnitId, FromPeer)>,
    /// To all other units that are active.
    pub to_all: Vec<FromPeer>,
    /// Packets that came too late: to the units that own their flows now. The stamp is that of the
    /// owner's epoch.
    pub forwarded: Vec<(UnitId, Stamp, P)>,
    /// Packets that are not processed, and why.
    pub dropped: Vec<(DropCause, Stamp, P)>,
}

/// Why a packet was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DropCause {
    /// It came twice, or after it had been given up.
    Stale,
    /// Its flow is over.
    FlowEnded,
    /// It would have had to wait for its flow's state, and no more packets may wait.
    PendingFull,
    /// Its flow has a slot that no unit has, or the flow has more owners to come than a unit
    /// remembers.
    Refused,
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
    /// Whether nothing is in it.
    pub fn is_empty(&self) -> bool {
        self.to_dispatcher.is_empty()
            && self.to_units.is_empty()
            && self.to_all.is_empty()
            && self.forwarded.is_empty()
            && self.dropped.is_empty()
    }
}
