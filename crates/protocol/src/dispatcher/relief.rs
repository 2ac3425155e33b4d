//! Dropped packets of units, and the unit that is relieved because of them (A39).

use crate::message::UnitId;

use crate::dispatcher::config::{Config, DropRule, ScalingRule};

/// Dropped packets, and the unit that is being relieved because of them.
pub(crate) struct Relief {
    pub rule: DropRule,
    /// Packets to each unit that were dropped in this period.
    pub drops: Vec<u64>,
    pub period_ends_ns: u64,
    pub shift: Option<Shift>,
    /// Time since which there is a unit too many.
    pub spare_since_ns: Option<u64>,
}

/// Load on its way from an overloaded unit to another one.
#[derive(Clone, Copy)]
pub(crate) struct Shift {
    pub from: UnitId,
    pub to: UnitId,
    /// Load left to move, in bits per second; `None` until the other unit is ready.
    pub left_bps: Option<f32>,
    /// Position of the search for flows.
    pub hand: u32,
}

impl Relief {
    /// Creates it; `None` if another rule applies.
    pub fn new(config: &Config) -> Option<Relief> {
        let ScalingRule::Drops(rule) = config.scaling else { return None };
        Some(Relief {
            rule,
            drops: vec![0; config.units_max.into()],
            period_ends_ns: 0,
            shift: None,
            spare_since_ns: None,
        })
    }

    /// Returns true if flows are left to move.
    pub fn is_busy(&self) -> bool {
        self.shift.is_some()
    }

    /// Ends the period. Returns the unit with most drops, if these are too many.
    pub fn end_period(&mut self, now_ns: u64) -> Option<UnitId> {
        self.period_ends_ns = now_ns.saturating_add(self.rule.period_ns);
        // The lowest number of equal ones. There are no more units than `u16` can count.
        let most = (0u16..).zip(&self.drops).max_by_key(|&(unit, &drops)| (drops, u16::MAX - unit));
        let most = most.filter(|&(_, &drops)| drops > self.rule.drops_max).map(|(unit, _)| UnitId(unit));
        self.drops.fill(0);
        most
    }
}
