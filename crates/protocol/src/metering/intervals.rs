//! Demand and allocation per interval (S47, S88, S92).

use crate::message::UnitId;
use serde::Serialize;

/// Demand and allocation in an interval.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Interval {
    /// Its begin.
    pub start_ns: u64,
    /// Its length; the last one may be shorter.
    pub length_ns: u64,
    /// Bits that arrived at the dispatcher, per second.
    pub demand_bps: f64,
    /// Capacity of the units that were ready.
    pub provisioned_bps: f64,
    /// Mean number of units that were ready.
    pub units: f64,
    /// Time of units that ran or were starting, in unit-seconds: these cost.
    pub unit_seconds: f64,
    /// Packets that arrived at the dispatcher.
    pub packets: u64,
    /// Flowlets that began.
    pub flowlets: u64,
    /// Packets that were processed.
    pub processed: u64,
    /// Longest queue at one unit.
    pub queue_peak: u64,
    /// Work of each unit that was ready, as a share of its capacity in that time; with its number.
    pub utilisation: Vec<(u16, f64)>,
}

impl Interval {
    /// Joins this interval and the next one.
    fn join(&self, next: &Interval) -> Interval {
        let length_ns = self.length_ns + next.length_ns;
        let mean = |of: fn(&Interval) -> f64| {
            let sum = of(self) * self.length_ns as f64 + of(next) * next.length_ns as f64;
            sum / length_ns.max(1) as f64
        };
        let mut utilisation = self.utilisation.clone();
        for &(unit, share) in &next.utilisation {
            match utilisation.iter_mut().find(|(known, _)| *known == unit) {
                Some((_, so_far)) => {
                    let sum = *so_far * self.length_ns as f64 + share * next.length_ns as f64;
                    *so_far = sum / length_ns.max(1) as f64;
                }
                None => utilisation.push((unit, share)),
            }
        }
        Interval {
            start_ns: self.start_ns,
            length_ns,
            demand_bps: mean(|interval| interval.demand_bps),
            provisioned_bps: mean(|interval| interval.provisioned_bps),
            units: mean(|interval| interval.units),
            unit_seconds: self.unit_seconds + next.unit_seconds,
            packets: self.packets + next.packets,
            flowlets: self.flowlets + next.flowlets,
            processed: self.processed + next.processed,
            queue_peak: self.queue_peak.max(next.queue_peak),
            utilisation,
        }
    }
}

/// Limit on empty intervals that are listed one by one; a longer series is one interval.
const IDLE_MAX: u64 = 100;

/// Counts per interval.
#[derive(Clone, Debug)]
pub struct IntervalMeter {
    interval_ns: u64,
    /// Planned length of the present interval.
    length_ns: u64,
    end_ns: u64,
    kept_max: usize,
    capacity_bps: f64,
    done: Vec<Interval>,
    units: Vec<Usage>,
    /// Begin of the present interval.
    start_ns: u64,
    bits: u64,
    packets: u64,
    processed: u64,
    queue_peak: u64,
    /// Flowlets before the present interval.
    flowlets_before: u64,
}

/// A unit's present interval.
#[derive(Clone, Copy, Debug, Default)]
struct Usage {
    on_since_ns: Option<u64>,
    ready_since_ns: Option<u64>,
    on_ns: u64,
    ready_ns: u64,
    work_ns: u64,
}

impl IntervalMeter {
    /// Creates a meter with intervals of this length until `end_ns`, for this many units of this
    /// capacity.
    pub fn new(interval_ns: u64, end_ns: u64, units: u16, capacity_bps: u64) -> IntervalMeter {
        IntervalMeter {
            interval_ns,
            length_ns: interval_ns,
            end_ns,
            kept_max: usize::MAX,
            capacity_bps: capacity_bps as f64,
            done: Vec::new(),
            units: vec![Usage::default(); usize::from(units)],
            start_ns: 0,
            bits: 0,
            packets: 0,
            processed: 0,
            queue_peak: 0,
            flowlets_before: 0,
        }
    }

    /// Limits the number of intervals kept, at least 2. At the limit, each two are joined, and
    /// later ones take twice as long.
    pub fn keeping(mut self, kept_max: usize) -> IntervalMeter {
        self.kept_max = kept_max.max(2);
        self
    }

    /// Advances the time: closes the intervals that have ended. `flowlets` is the total. A long
    /// time without events is one interval.
    pub fn pass(&mut self, now_ns: u64, flowlets: u64) {
        while self.ends_ns() <= now_ns {
            self.close(flowlets);
            let idle = now_ns.saturating_sub(self.start_ns) / self.interval_ns;
            self.length_ns = if idle > IDLE_MAX { idle * self.interval_ns } else { self.interval_ns };
        }
    }

    /// Returns the end of the present interval; `u64::MAX` after the last one.
    #[inline]
    pub fn ends_ns(&self) -> u64 {
        match self.start_ns < self.end_ns {
            true => self.start_ns.saturating_add(self.length_ns).min(self.end_ns),
            false => u64::MAX,
        }
    }

    /// Counts packets that arrived at the dispatcher, with their bytes.
    #[inline]
    pub fn came(&mut self, packets: u64, bytes: u64) {
        self.packets += packets;
        self.bits += 8 * bytes;
    }

    /// Counts work given to a unit, in its time.
    #[inline]
    pub fn given(&mut self, unit: UnitId, work_ns: u64) {
        self.units[unit.index()].work_ns += work_ns;
    }

    /// Notes the length of a unit's queue.
    #[inline]
    pub fn queued(&mut self, queued: usize) {
        self.queue_peak = self.queue_peak.max(queued as u64);
    }

    /// Counts processed packets.
    #[inline]
    pub fn processed(&mut self, packets: u64) {
        self.processed += packets;
    }

    /// Notes that a unit was ordered to start or to stop.
    pub fn set_on(&mut self, now_ns: u64, unit: UnitId, is_on: bool) {
        let usage = &mut self.units[unit.index()];
        usage.on_ns += since(&mut usage.on_since_ns, now_ns, is_on);
    }

    /// Notes that a unit is ready, or no longer.
    pub fn set_ready(&mut self, now_ns: u64, unit: UnitId, is_ready: bool) {
        let usage = &mut self.units[unit.index()];
        usage.ready_ns += since(&mut usage.ready_since_ns, now_ns, is_ready);
    }

    /// Closes the present interval. `flowlets` is the total.
    pub fn close(&mut self, flowlets: u64) {
        let now_ns = self.ends_ns();
        let length_ns = now_ns - self.start_ns;
        let (mut on_ns, mut ready_ns, mut utilisation) = (0, 0, Vec::new());
        for (number, usage) in (0u16..).zip(&mut self.units) {
            let (is_on, is_ready) = (usage.on_since_ns.is_some(), usage.ready_since_ns.is_some());
            usage.on_ns += since(&mut usage.on_since_ns, now_ns, is_on);
            usage.ready_ns += since(&mut usage.ready_since_ns, now_ns, is_ready);
            if usage.ready_ns > 0 {
                utilisation.push((number, usage.work_ns as f64 / usage.ready_ns as f64));
            }
            on_ns += usage.on_ns;
            ready_ns += usage.ready_ns;
            (usage.on_ns, usage.ready_ns, usage.work_ns) = (0, 0, 0);
        }
        let units = ready_ns as f64 / length_ns as f64;
        self.done.push(Interval {
            start_ns: self.start_ns,
            length_ns,
            demand_bps: self.bits as f64 * 1e9 / length_ns as f64,
            provisioned_bps: units * self.capacity_bps,
            units,
            unit_seconds: on_ns as f64 * 1e-9,
            packets: self.packets,
            flowlets: flowlets - self.flowlets_before,
            processed: self.processed,
            queue_peak: self.queue_peak,
            utilisation,
        });
        if self.done.len() >= self.kept_max {
            self.join_pairs();
        }
        self.start_ns = now_ns;
        self.flowlets_before = flowlets;
        (self.bits, self.packets, self.processed, self.queue_peak) = (0, 0, 0, 0);
    }

    /// Closes the last interval, which ends right after this time.
    pub fn finish(&mut self, last_ns: u64, flowlets: u64) {
        self.pass(last_ns, flowlets);
        self.end_ns = last_ns + 1;
        self.pass(self.end_ns, flowlets);
    }

    /// Joins each two intervals, and doubles the length of later ones.
    fn join_pairs(&mut self) {
        let pairs = self.done.chunks(2).map(|pair| match pair {
            [one, other] => one.join(other),
            rest => rest.first().cloned().unwrap_or_default(),
        });
        self.done = pairs.collect();
        self.interval_ns = self.interval_ns.saturating_mul(2);
        self.length_ns = self.interval_ns;
    }

    /// Returns the closed intervals.
    pub fn done(&self) -> &[Interval] {
        &self.done
    }
}

/// Returns how long a condition held until now, and sets whether it holds from now on.
fn since(since_ns: &mut Option<u64>, now_ns: u64, goes_on: bool) -> u64 {
    let took_ns = since_ns.map_or(0, |since_ns| now_ns.saturating_sub(since_ns));
    *since_ns = goes_on.then_some(now_ns);
    took_ns
}

/// The closeness of allocation to demand (X1, X3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Tracking {
    /// Mean of the absolute difference.
    pub error_mean_bps: f64,
    /// 95th percentile of the difference over the intervals.
    pub error_p95_bps: f64,
    /// Allocation beyond demand, in bits.
    pub over_bits: f64,
    /// Demand beyond allocation, in bits.
    pub under_bits: f64,
    /// Share of units' intervals with more work than capacity (S92).
    pub overloaded: f64,
    /// Share of units' intervals with less work than half of capacity (S92).
    pub underloaded: f64,
    /// Lowest number of units.
    pub units_min: f64,
    /// Mean number of units.
    pub units_mean: f64,
    /// Highest number of units.
    pub units_max: f64,
    /// Total cost, in unit-seconds.
    pub unit_seconds: f64,
}

impl Tracking {
    /// Computes the tracking over these intervals.
    pub fn of(intervals: &[Interval]) -> Tracking {
        let errors = |interval: &Interval| interval.provisioned_bps - interval.demand_bps;
        let mut sizes: Vec<f64> = intervals.iter().map(|interval| errors(interval).abs()).collect();
        sizes.sort_by(f64::total_cmp);
        let bits = |interval: &Interval| errors(interval) * interval.length_ns as f64 * 1e-9;
        let loads: Vec<f64> = intervals
            .iter()
            .flat_map(|interval| interval.utilisation.iter().map(|&(_, share)| share))
            .collect();
        let share_of_loads =
            |is: fn(f64) -> bool| mean(loads.iter().map(|&load| if is(load) { 1.0 } else { 0.0 }));
        let units = || intervals.iter().map(|interval| interval.units);
        let p95 = (sizes.len() * 95).div_ceil(100).saturating_sub(1);
        Tracking {
            error_mean_bps: mean(sizes.iter().copied()),
            error_p95_bps: sizes.get(p95).copied().unwrap_or(0.0),
            over_bits: intervals.iter().map(bits).filter(|&bits| bits > 0.0).sum(),
            under_bits: -intervals.iter().map(bits).filter(|&bits| bits < 0.0).sum::<f64>(),
            overloaded: share_of_loads(|load| load > 1.0),
            underloaded: share_of_loads(|load| load < 0.5),
            units_min: if intervals.is_empty() { 0.0 } else { units().fold(f64::INFINITY, f64::min) },
            units_mean: mean(units()),
            units_max: units().fold(0.0, f64::max),
            unit_seconds: intervals.iter().map(|interval| interval.unit_seconds).sum(),
        }
    }
}

/// Returns the mean; 0 of no values.
fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = values.fold((0.0, 0u64), |(sum, count), value| (sum + value, count + 1));
    sum / count.max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn epochs_are_bounded_and_a_long_silence_is_one() {
        let mut intervals = IntervalMeter::new(100, u64::MAX, 1, 1_000_000_000).keeping(8);
        intervals.set_on(0, UnitId(0), true);
        intervals.came(1, 100);
        intervals.pass(1_000_000_000_000_000, 1);
        assert_eq!(intervals.done().len(), 2);
        for round in 0..100 {
            intervals.came(1, 100);
            intervals.pass(1_000_000_000_000_000 + 100 * (round + 1), round + 2);
        }
        let done = intervals.done();
        assert!(done.len() < 9 && done.windows(2).all(|w| w[0].start_ns + w[0].length_ns == w[1].start_ns));
        intervals.finish(1_000_000_000_009_999, 101);
        let done = intervals.done();
        assert_eq!(done.iter().map(|interval| interval.packets).sum::<u64>(), 101);
        assert_eq!(done.iter().map(|interval| interval.flowlets).sum::<u64>(), 101);
        let seconds: f64 = done.iter().map(|interval| interval.unit_seconds).sum();
        assert!((seconds - 1_000_000.000_01).abs() < 1e-6, "{seconds}");
    }

    #[test]
    fn an_interval_says_what_was_wanted_and_what_was_there() {
        let mut intervals = IntervalMeter::new(100, 250, 2, 1_000_000_000);
        let (a, b) = (UnitId(0), UnitId(1));
        intervals.set_on(0, a, true);
        intervals.set_ready(0, a, true);
        intervals.came(1, 25);
        intervals.given(a, 150);
        intervals.set_on(20, b, true);
        intervals.set_ready(60, b, true);
        intervals.close(5);
        intervals.set_ready(150, b, false);
        intervals.set_on(150, b, false);
        intervals.close(5);
        assert_eq!(intervals.ends_ns(), 250);
        intervals.close(6);
        assert_eq!(intervals.ends_ns(), u64::MAX);
        let done = intervals.done();
        assert_eq!((done[0].demand_bps, done[0].units, done[0].provisioned_bps), (2e9, 1.4, 1.4e9));
        assert_eq!(done[0].utilisation, [(0, 1.5), (1, 0.0)]);
        assert_eq!((done[1].units, done[2].units, done[2].length_ns), (1.5, 1.0, 50));
        assert_eq!([done[0].flowlets, done[1].flowlets, done[2].flowlets], [5, 0, 1]);
        let tracking = Tracking::of(done);
        assert!((tracking.unit_seconds - (250.0 + 130.0) * 1e-9).abs() < 1e-15);
        assert_eq!((tracking.units_min, tracking.units_max), (1.0, 1.5));
        assert_eq!((tracking.overloaded, tracking.underloaded), (0.2, 0.8));
        assert!((tracking.under_bits - 60.0).abs() < 1e-6, "{tracking:?}");
    }
}
