//! What a dispatcher writes on every packet (S13, S58).

use crate::message::{Epoch, FlowId, UnitId};

/// What a dispatcher writes on a packet: whose flow it is, which of its packets, and what its unit has
/// to know about owners.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// The packet's flow.
    pub flow: FlowId,
    /// The packet's number in its flow, both directions; the first one's is 1 (S58).
    pub seq: u64,
    /// The owner's number.
    pub epoch: Epoch,
    /// Where the owner finds the state that it begins with.
    pub handover: Handover,
    /// Where a copy of the state is to go when the flow falls silent, on the first packet of a
    /// flowlet (S54). None on others: it is to go where it was to go before. Or the same once more,
    /// with the mark that it is to go there [at once](Targets::at_once).
    pub targets: Option<Targets>,
}

/// Where an owner finds the state that its epoch begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handover {
    /// Nowhere: the flow begins (S49).
    None,
    /// At the owner before, once that has processed what it gets.
    From {
        /// The owner of the epoch before.
        previous: UnitId,
        /// The seq of the last packet that it got. The first one of this epoch is the next.
        last: u64,
    },
}

/// The most units that a flow's state is copied to, other than to all.
pub const TARGETS_MAX: usize = 15;

/// Units that a flow's state is copied to: some, or all that are active; and when.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Targets {
    /// How many there are; [`ALL`](Targets::ALL)'s value for all.
    len: u8,
    at_once: bool,
    units: [UnitId; TARGETS_MAX],
}

impl Targets {
    /// None: nothing is copied.
    pub const NONE: Targets = Targets { len: 0, at_once: false, units: [UnitId(0); TARGETS_MAX] };
    /// All units that are active.
    pub const ALL: Targets = Targets { len: u8::MAX, ..Targets::NONE };

    /// These units, which must be different ones; beyond [`TARGETS_MAX`] they are left out.
    #[inline]
    pub fn of_distinct(units: impl Iterator<Item = UnitId>) -> Targets {
        let mut targets = Targets::NONE;
        for (place, unit) in targets.units.iter_mut().zip(units) {
            *place = unit;
            targets.len += 1;
        }
        targets
    }

    /// Adds a unit; false if it is there already, or if there is no room.
    pub fn add(&mut self, unit: UnitId) -> bool {
        let len = usize::from(self.len);
        if len >= TARGETS_MAX || self.units[..len].contains(&unit) {
            return false;
        }
        self.units[len] = unit;
        self.len += 1;
        true
    }

    /// The same, with the mark that the packet they are said on is likely to be its flowlet's last,
    /// and leaves no time for silence to tell: the state is to be copied as soon as it covers that
    /// packet (S62).
    #[must_use]
    pub fn at_once(self) -> Targets {
        Targets { at_once: true, ..self }
    }

    /// Whether they have that mark.
    #[inline]
    pub fn are_at_once(&self) -> bool {
        self.at_once
    }

    /// Whether the unit is one of them.
    #[inline]
    pub fn contains(&self, unit: UnitId) -> bool {
        self.is_all() || self.units().contains(&unit)
    }

    /// Whether they are all that are active; then [`units`](Targets::units) names none.
    #[inline]
    pub fn is_all(&self) -> bool {
        self.len == u8::MAX
    }

    /// Those that are named.
    #[inline]
    pub fn units(&self) -> &[UnitId] {
        self.units.get(..usize::from(self.len)).unwrap_or_default()
    }
}

const _: () = assert!(size_of::<Option<Targets>>() == 32, "none takes no room of its own");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_distinct_and_bounded() {
        let mut targets = Targets::NONE;
        assert!((0..TARGETS_MAX as u16).all(|unit| targets.add(UnitId(unit))));
        assert!(!targets.add(UnitId(3)) && !targets.add(UnitId(100)));
        assert!(targets.at_once().are_at_once() && targets.at_once().units() == targets.units());
        assert!(!targets.are_at_once() && targets.at_once() != targets);
        assert!(targets.contains(UnitId(14)) && !targets.contains(UnitId(15)));
        assert_eq!(targets.units().len(), TARGETS_MAX);
        assert_eq!(Targets::of_distinct((0..99).map(UnitId)), targets);
        let mut all = Targets::ALL;
        assert!(all.contains(UnitId(999)) && all.units().is_empty() && !all.add(UnitId(1)));
    }
}
