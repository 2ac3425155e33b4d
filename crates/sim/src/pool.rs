//! Units that are started before any is ordered (S106).

use protocol::metering::Tariff;
use serde::Serialize;

use crate::scenario::UnitsSettings;

/// A pool of started, warm units. A unit taken from it is replaced by starting another; a stopped
/// unit returns to it if there is room.
#[derive(Clone, Debug)]
pub struct WarmPool {
    size: u16,
    /// Time from the order of a cold unit until it is ready.
    cold_ns: u64,
    /// The same for a warm unit.
    warm_ns: u64,
    /// Warm units.
    waiting: u16,
    /// Units that are being started for the pool.
    starting: u16,
    /// End of the time that is counted in `unit_ns`.
    counted_ns: u64,
    pub counters: PoolCounters,
}

/// Counters of a pool of warm units.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolCounters {
    /// Orders met by a warm unit.
    pub warm_starts: u64,
    /// Orders that had to start a unit.
    pub cold_starts: u64,
    /// Time of units that were warm or being started for the pool.
    pub unit_ns: u64,
}

/// Benefit and cost of a pool of warm units.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WarmUnits {
    /// Orders met by a warm unit.
    pub warm_starts: u64,
    /// Orders that had to start a unit.
    pub cold_starts: u64,
    /// Time of warm units, in addition to [`protocol::metering::Tracking::unit_seconds`].
    pub unit_seconds: f64,
    /// Its cost to the provider, in addition to the bill's `cost`.
    pub cost: f64,
}

impl WarmUnits {
    pub(crate) fn of(counters: PoolCounters, tariff: &Tariff) -> WarmUnits {
        let PoolCounters { warm_starts, cold_starts, unit_ns } = counters;
        let unit_seconds = unit_ns as f64 * 1e-9;
        WarmUnits {
            warm_starts,
            cold_starts,
            unit_seconds,
            cost: unit_seconds / 3_600.0 * tariff.unit_hour_cost,
        }
    }
}

/// Outcome of an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Start {
    /// Time until the unit is ready.
    pub ready_after_ns: u64,
    /// Time until its replacement is warm, if one is started: see [`WarmPool::filled`].
    pub filled_after_ns: Option<u64>,
}

impl WarmPool {
    /// Creates a full pool.
    pub fn new(units: &UnitsSettings) -> WarmPool {
        WarmPool {
            size: units.warm,
            cold_ns: units.start.0,
            warm_ns: units.warm_start.0,
            waiting: units.warm,
            starting: 0,
            counted_ns: 0,
            counters: PoolCounters::default(),
        }
    }

    /// Orders a unit.
    pub fn order(&mut self, now_ns: u64) -> Start {
        self.count(now_ns);
        if self.waiting == 0 {
            self.counters.cold_starts += 1;
            return Start { ready_after_ns: self.cold_ns, filled_after_ns: None };
        }
        self.counters.warm_starts += 1;
        self.waiting -= 1;
        self.starting += 1;
        Start { ready_after_ns: self.warm_ns, filled_after_ns: Some(self.cold_ns) }
    }

    /// Notes that a replacement is warm. It stays, unless a stopped unit has filled its place.
    pub fn filled(&mut self, now_ns: u64) {
        self.count(now_ns);
        self.starting -= 1;
        self.waiting += u16::from(self.waiting < self.size);
    }

    /// Notes that a unit has stopped: it stays warm, if there is room.
    pub fn give_back(&mut self, now_ns: u64) {
        self.count(now_ns);
        self.waiting += u16::from(self.waiting < self.size);
    }

    /// Counts the time of warm units until now.
    pub fn count(&mut self, now_ns: u64) {
        let time_ns = now_ns.saturating_sub(self.counted_ns);
        self.counters.unit_ns += time_ns * u64::from(self.waiting + self.starting);
        self.counted_ns = self.counted_ns.max(now_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use values::Nanos;

    #[test]
    fn who_waits_is_ready_at_once_and_is_replaced() {
        let units =
            UnitsSettings { warm: 1, start: Nanos(1_000), warm_start: Nanos(10), ..UnitsSettings::default() };
        let mut pool = WarmPool::new(&units);
        assert_eq!(pool.order(500), Start { ready_after_ns: 10, filled_after_ns: Some(1_000) });
        assert_eq!(pool.order(600), Start { ready_after_ns: 1_000, filled_after_ns: None }, "nobody waits");
        pool.filled(1_500);
        assert_eq!(pool.order(1_600).ready_after_ns, 10);
        pool.give_back(2_000);
        assert_eq!(pool.order(2_100).ready_after_ns, 10, "it had come back");
        pool.give_back(2_200);
        // Two replacements were started, and one unit has returned: there is room for one.
        pool.filled(2_600);
        pool.filled(3_100);
        pool.count(4_000);
        let PoolCounters { warm_starts, cold_starts, unit_ns } = pool.counters;
        assert_eq!((warm_starts, cold_starts), (3, 1));
        let by_hand = 2_000 // One unit until it returns at 2,000,
            + 2 * 100 // with another until that is taken at 2,100;
            + 2 * 100 // then two that are started,
            + 3 * 400 // with the returned one until the first of these ends,
            + 2 * 500 // and the second one.
            + 900;
        assert_eq!(unit_ns, by_hand);
    }

    #[test]
    fn without_a_pool_all_starts_are_cold_and_nothing_waits() {
        let mut pool = WarmPool::new(&UnitsSettings { start: Nanos(7), ..UnitsSettings::default() });
        assert_eq!(pool.order(5), Start { ready_after_ns: 7, filled_after_ns: None });
        pool.give_back(9);
        assert_eq!(pool.order(10).ready_after_ns, 7);
        pool.count(100);
        assert_eq!(pool.counters, PoolCounters { warm_starts: 0, cold_starts: 2, unit_ns: 0 });
    }
}
