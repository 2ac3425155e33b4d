//! The stamp that a dispatcher writes on every packet (S13, S58).

use crate::message::{Epoch, FlowId, UnitId};
use crate::wire::{FrameError, Reader, Wire, WireCase, WireForm, part};

/// A packet's stamp: its flow, its number in it, and what its unit must know about owners.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// The packet's flow.
    pub flow: FlowId,
    /// The packet's number in its flow, both directions, counted from 1 (S58).
    pub seq: u64,
    /// The owner's epoch.
    pub epoch: Epoch,
    /// The place of the state that the epoch begins with.
    pub handover: Handover,
    /// On the first packet of a flowlet: the targets of replicas when the flow falls silent (S54).
    /// On others `None`, and the earlier targets hold; or the same again, with the mark to
    /// replicate [at once](ReplicaTargets::at_once).
    pub targets: Option<ReplicaTargets>,
}

/// The place of the state that an epoch begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handover {
    /// Nowhere: the flow begins (S49).
    None,
    /// At the previous owner, once it has processed its packets.
    From {
        /// The owner of the previous epoch.
        previous: UnitId,
        /// The seq of its last packet. The first packet of this epoch follows.
        last: u64,
    },
}

impl Wire for Handover {
    const FORM: WireForm = WireForm::Parts(&[part(
        "handover",
        WireForm::Cases(&[
            WireCase { name: "none", parts: &[] },
            WireCase { name: "from", parts: &[part("previous", UnitId::FORM), part("last", u64::FORM)] },
        ]),
    )]);

    #[inline]
    fn write(&self, out: &mut Vec<u8>) {
        match self {
            Handover::None => out.push(0),
            Handover::From { previous, last } => {
                out.push(1);
                previous.write(out);
                last.write(out);
            }
        }
    }

    #[inline]
    fn read(from: &mut Reader<'_>) -> Result<Handover, FrameError> {
        match from.u8()? {
            0 => Ok(Handover::None),
            1 => Ok(Handover::From { previous: Wire::read(from)?, last: Wire::read(from)? }),
            _ => Err(FrameError::Invalid("handover")),
        }
    }
}

/// Limit on the targets of replicas, unless they go to all.
pub const TARGETS_MAX: usize = 15;

/// The units that get replicas of a flow's state: some, or all active ones; and when.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ReplicaTargets {
    /// The number of units; [`ALL`](ReplicaTargets::ALL)'s value for all.
    len: u8,
    at_once: bool,
    units: [UnitId; TARGETS_MAX],
}

impl ReplicaTargets {
    /// No unit.
    pub const NONE: ReplicaTargets =
        ReplicaTargets { len: 0, at_once: false, units: [UnitId(0); TARGETS_MAX] };
    /// All active units.
    pub const ALL: ReplicaTargets = ReplicaTargets { len: u8::MAX, ..ReplicaTargets::NONE };

    /// Creates a set of these units, which must be distinct; those beyond [`TARGETS_MAX`] are left
    /// out.
    #[inline]
    pub fn of_distinct(units: impl Iterator<Item = UnitId>) -> ReplicaTargets {
        let mut targets = ReplicaTargets::NONE;
        for (place, unit) in targets.units.iter_mut().zip(units) {
            *place = unit;
            targets.len += 1;
        }
        targets
    }

    /// Adds a unit; false if it is there already or there is no room.
    pub fn add(&mut self, unit: UnitId) -> bool {
        let len = usize::from(self.len);
        if len >= TARGETS_MAX || self.units[..len].contains(&unit) {
            return false;
        }
        self.units[len] = unit;
        self.len += 1;
        true
    }

    /// Adds the mark to replicate as soon as the state covers the packet: the flowlet is likely to
    /// be cut after it, and leaves no silence to do so (S62).
    #[must_use]
    pub fn at_once(self) -> ReplicaTargets {
        ReplicaTargets { at_once: true, ..self }
    }

    /// Returns true if they have that mark.
    #[inline]
    pub fn are_at_once(&self) -> bool {
        self.at_once
    }

    /// Returns true if the unit is a target.
    #[inline]
    pub fn contains(&self, unit: UnitId) -> bool {
        self.is_all() || self.units().contains(&unit)
    }

    /// Returns true for all active units; then [`units`](ReplicaTargets::units) names none.
    #[inline]
    pub fn is_all(&self) -> bool {
        self.len == u8::MAX
    }

    /// Returns the named units.
    #[inline]
    pub fn units(&self) -> &[UnitId] {
        self.units.get(..usize::from(self.len)).unwrap_or_default()
    }
}

const _: () = assert!(size_of::<Option<ReplicaTargets>>() == 32, "none takes no room of its own");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_distinct_and_bounded() {
        let mut targets = ReplicaTargets::NONE;
        assert!((0..TARGETS_MAX as u16).all(|unit| targets.add(UnitId(unit))));
        assert!(!targets.add(UnitId(3)) && !targets.add(UnitId(100)));
        assert!(targets.at_once().are_at_once() && targets.at_once().units() == targets.units());
        assert!(!targets.are_at_once() && targets.at_once() != targets);
        assert!(targets.contains(UnitId(14)) && !targets.contains(UnitId(15)));
        assert_eq!(targets.units().len(), TARGETS_MAX);
        assert_eq!(ReplicaTargets::of_distinct((0..99).map(UnitId)), targets);
        let mut all = ReplicaTargets::ALL;
        assert!(all.contains(UnitId(999)) && all.units().is_empty() && !all.add(UnitId(1)));
    }
}
