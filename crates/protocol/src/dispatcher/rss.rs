//! Buckets of flows, as in a network card: fixed, or moved periodically to balance units.

use crate::message::UnitId;

/// The unit of each bucket of flows.
pub(crate) struct Rss {
    owners: Vec<UnitId>,
    /// Bytes of each bucket in this period.
    bytes: Vec<u64>,
    every_ns: Option<u64>,
    /// End of the period; 0 before the first one.
    ends_ns: u64,
    /// Bytes of each unit in this period; memory that is reused.
    sums: Vec<u64>,
}

/// Difference of two units' loads, as a share of their mean, below which they count as balanced.
const ALIKE: f64 = 0.05;

/// Limit on the buckets moved per period.
const MOVES_MAX: usize = 128;

impl Rss {
    /// Deals buckets to the first `units_min` of `units_max` units, one after the other.
    pub fn new(buckets: u32, every_ns: Option<u64>, units_min: u16, units_max: u16) -> Rss {
        Rss {
            owners: (0..buckets).map(|bucket| UnitId((bucket % u32::from(units_min)) as u16)).collect(),
            bytes: vec![0; buckets as usize],
            every_ns,
            ends_ns: 0,
            sums: vec![0; usize::from(units_max)],
        }
    }

    /// Deals buckets to these units, one after the other.
    pub fn deal(&mut self, units: &[UnitId]) {
        for (owner, &unit) in self.owners.iter_mut().zip(units.iter().cycle()) {
            *owner = unit;
        }
    }

    /// Returns true if buckets are moved.
    pub fn is_balanced(&self) -> bool {
        self.every_ns.is_some()
    }

    /// Returns the unit of flows with this hash.
    #[inline]
    pub fn owner(&self, hash: u64) -> UnitId {
        self.owners[self.bucket(hash)]
    }

    /// Counts a packet of a flow with this hash.
    #[inline]
    pub fn add(&mut self, hash: u64, bytes: u64) {
        let bucket = self.bucket(hash);
        self.bytes[bucket] += bytes;
    }

    /// At the end of a period, moves buckets from the most to the least loaded unit until they are
    /// balanced or no bucket helps. Returns their number.
    pub fn balance(&mut self, now_ns: u64, active: &[UnitId]) -> u64 {
        let Some(every_ns) = self.every_ns else {
            return 0;
        };
        if now_ns < self.ends_ns {
            return 0;
        }
        let moved = if self.ends_ns == 0 { 0 } else { self.level(active) };
        self.ends_ns = now_ns.saturating_add(every_ns);
        self.bytes.fill(0);
        moved
    }

    /// Moves a unit's buckets to others, each to the least loaded one. Returns their number.
    pub fn clear_out(&mut self, unit: UnitId, active: &[UnitId]) -> u64 {
        self.sum_up();
        let mut moved = 0;
        for bucket in (0..self.owners.len()).filter(|&bucket| self.owners[bucket] == unit).collect::<Vec<_>>()
        {
            if let Some(least) = self.least(active) {
                self.hand(bucket, least);
                moved += 1;
            }
        }
        moved
    }

    /// Moves all buckets to the only active unit. Returns the number of moved buckets.
    pub fn hand_all(&mut self, unit: UnitId) -> u64 {
        let moved = self.owners.iter().filter(|&&owner| owner != unit).count() as u64;
        self.owners.fill(unit);
        moved
    }

    fn level(&mut self, active: &[UnitId]) -> u64 {
        self.sum_up();
        let total: u64 = self.bytes.iter().sum();
        let alike = total as f64 / active.len().max(1) as f64 * ALIKE;
        for moved in 0..MOVES_MAX {
            let most = active.iter().copied().min_by_key(|&unit| (u64::MAX - self.sums[unit.index()], unit));
            let (Some(most), Some(least)) = (most, self.least(active)) else {
                return moved as u64;
            };
            let apart = self.sums[most.index()] - self.sums[least.index()];
            let helps = |bucket: &usize| {
                self.owners[*bucket] == most && self.bytes[*bucket] > 0 && self.bytes[*bucket] < apart
            };
            // The nearer to half the difference, the better the balance.
            let best = (0..self.owners.len())
                .filter(helps)
                .min_by_key(|&bucket| ((apart / 2).abs_diff(self.bytes[bucket]), bucket));
            match best {
                Some(bucket) if apart as f64 > alike => self.hand(bucket, least),
                _ => return moved as u64,
            }
        }
        MOVES_MAX as u64
    }

    fn least(&self, active: &[UnitId]) -> Option<UnitId> {
        active.iter().copied().min_by_key(|&unit| (self.sums[unit.index()], unit))
    }

    fn hand(&mut self, bucket: usize, to: UnitId) {
        let bytes = self.bytes[bucket];
        self.sums[self.owners[bucket].index()] -= bytes; // It is part of the sum: see `sum_up`.
        self.sums[to.index()] += bytes;
        self.owners[bucket] = to;
    }

    fn sum_up(&mut self) {
        self.sums.fill(0);
        for (owner, bytes) in self.owners.iter().zip(&self.bytes) {
            self.sums[owner.index()] += bytes;
        }
    }

    #[inline]
    fn bucket(&self, hash: u64) -> usize {
        (hash % self.owners.len() as u64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNITS: [UnitId; 3] = [UnitId(0), UnitId(1), UnitId(2)];

    #[test]
    fn buckets_move_until_units_are_loaded_alike() {
        let mut rss = Rss::new(6, Some(100), 2, 3);
        assert_eq!((0..6).map(|hash| rss.owner(hash).0).collect::<Vec<_>>(), [0, 1, 0, 1, 0, 1]);
        assert_eq!(rss.balance(0, &UNITS[..2]), 0, "the first period begins");
        [40, 10, 40, 10, 40, 10].iter().zip(0..).for_each(|(&bytes, hash)| rss.add(hash, bytes));
        assert_eq!(rss.balance(99, &UNITS), 0, "the period is not over");
        let moved = rss.balance(100, &UNITS);
        let sum = |unit| {
            let bytes = [40, 10, 40, 10, 40, 10].iter().zip(0..).filter(|(_, hash)| rss.owner(*hash) == unit);
            bytes.map(|(bytes, _)| bytes).sum::<u64>()
        };
        assert_eq!(UNITS.map(sum).iter().sum::<u64>(), 150);
        assert!(UNITS.iter().all(|&unit| (40..=60).contains(&sum(unit))), "{:?}", UNITS.map(sum));
        assert!(moved > 0 && moved < 6);
        assert_eq!(rss.balance(200, &UNITS), 0, "nothing was sent: nothing helps");
    }

    #[test]
    fn one_heavy_bucket_is_not_thrown_about() {
        let mut rss = Rss::new(2, Some(100), 2, 2);
        rss.balance(0, &UNITS[..2]);
        rss.add(0, 1000);
        assert_eq!(rss.balance(100, &UNITS[..2]), 0);
    }

    #[test]
    fn a_unit_is_cleared_out() {
        let mut rss = Rss::new(9, None, 3, 3);
        assert!(!rss.is_balanced());
        assert_eq!(rss.clear_out(UNITS[1], &[UNITS[0], UNITS[2]]), 3);
        assert!((0..9).all(|hash| rss.owner(hash) != UNITS[1]));
    }
}
