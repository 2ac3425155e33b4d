//! The tombstone of a flow that left a unit.

use crate::message::{Epoch, FromUnit, Handover, RefuseReason, Stamp, UnitId};

use super::Context;
use crate::trace::TimelineEvent;
use crate::unit::Engine;

/// The tombstone of a flow that left.
#[derive(Clone, Copy, Debug, Hash)]
pub(crate) struct Tombstone {
    /// The epoch that began elsewhere.
    pub epoch: Epoch,
    /// The owner of that epoch.
    pub owner: UnitId,
    /// The last seq before it.
    pub last: u64,
    /// The reason for this unit's refusal of the state: this unit was the owner of that epoch, and
    /// the state stayed with `owner`.
    pub refused: Option<RefuseReason>,
}

impl Tombstone {
    /// Forwards a packet of an earlier epoch to the owner, as one of the owner's epoch.
    pub fn forward<E: Engine>(&self, stamp: Stamp, packet: E::Packet, cx: &mut Context<'_, E>) {
        let previous = if self.refused.is_some() { self.owner } else { cx.id() };
        let handover = Handover::From { previous, last: self.last };
        cx.counters.forwarded += 1;
        cx.note_packet(&stamp, TimelineEvent::Relayed { to: self.owner });
        if let Some(reason) = self.refused {
            // The earlier message may have been lost.
            let (epoch, holder) = (self.epoch, self.owner);
            cx.out.to_dispatcher.push(FromUnit::Refuse { flow: stamp.flow, epoch, reason, holder });
        }
        cx.out.forwarded.push((self.owner, Stamp { epoch: self.epoch, handover, ..stamp }, packet));
    }
}
