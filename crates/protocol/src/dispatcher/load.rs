//! The load of each unit (S39, S40).

use crate::message::UnitId;
use packet::memory::{OutOfMemory, Zeroed};

use crate::dispatcher::config::{Config, TARGETS_COUNT_MAX};
use crate::dispatcher::flow::TargetList;
use crate::dispatcher::loads::Loads;

/// The load of each unit, over a moving window of buckets.
///
/// A unit's load is the bytes that it was sent within the window, divided by the time that the
/// window covers: at least one bucket, and not the time before the unit was active. It is as of the
/// last packet to the unit, or the begin of the bucket if that is later. Bursts that are much
/// shorter than the window hardly show (S105); a second, shorter window raises the alarm. The
/// higher of both counts for a choice.
///
/// Packets only add their bytes; loads are computed on demand.
pub(crate) struct Meter {
    /// The loads that count for a choice.
    loads: Loads,
    units: Vec<Sent>,
    /// Units that were sent something since their load was computed.
    stale: Vec<UnitId>,
    /// Bytes of past buckets, by bucket and unit.
    ring: Zeroed<u64>,
    buckets: usize,
    /// Number of buckets of the alarm; 0 disables it.
    alarm_buckets: usize,
    bucket_ns: u64,
    /// Index of the current bucket.
    at: usize,
    starts_ns: u64,
    /// End of the current bucket; 0 before the first one.
    ends_ns: u64,
}

#[derive(Clone, Copy, Default)]
struct Sent {
    /// Bytes in the current bucket.
    bytes: u64,
    last_packet_ns: u64,
    /// Bytes in all past buckets.
    over: u64,
    /// Bytes in the other buckets of the window.
    before: u64,
    /// Bytes in the other buckets of the alarm.
    just_before: u64,
    active_since_ns: u64,
    /// Load over the whole window, as last computed.
    sustained_bps: f32,
    is_active: bool,
    /// It is not to be chosen: it counts as without room.
    is_passed_over: bool,
    is_stale: bool,
}

impl Meter {
    pub fn new(config: &Config) -> Result<Meter, OutOfMemory> {
        let units = usize::from(config.units_max);
        Ok(Meter {
            loads: Loads::new(config.units_max, config.capacity_bps as f32),
            units: vec![Sent::default(); units],
            stale: Vec::with_capacity(units),
            ring: Zeroed::new(units.saturating_mul(config.buckets))?,
            buckets: config.buckets,
            alarm_buckets: config.alarm_buckets,
            bucket_ns: config.bucket_ns,
            at: 0,
            starts_ns: 0,
            ends_ns: 0,
        })
    }

    /// Computes the loads of units that were sent something; to be called before loads are read.
    #[inline]
    pub fn reckon(&mut self) {
        while let Some(unit) = self.stale.pop() {
            let sent = &mut self.units[unit.index()];
            sent.is_stale = false;
            let at_ns = sent.last_packet_ns;
            self.reckon_one(unit, at_ns);
        }
    }

    /// Returns the loads, as last computed.
    #[inline]
    pub fn loads(&self) -> &Loads {
        debug_assert!(self.stale.is_empty(), "loads are out of date");
        &self.loads
    }

    /// Hides units, as if they had no room. Returns their loads, for [`show`](Meter::show).
    pub fn hide(&mut self, units: &TargetList) -> [f32; TARGETS_COUNT_MAX as usize] {
        let mut hidden_bps = [f32::INFINITY; TARGETS_COUNT_MAX as usize];
        for (unit, load_bps) in units.units().zip(&mut hidden_bps) {
            *load_bps = self.loads.of(unit);
            self.loads.set(unit, f32::INFINITY);
        }
        hidden_bps
    }

    /// Shows hidden units again.
    pub fn show(&mut self, units: &TargetList, hidden_bps: [f32; TARGETS_COUNT_MAX as usize]) {
        units.units().zip(hidden_bps).for_each(|(unit, load_bps)| self.loads.set(unit, load_bps));
    }

    /// Returns the load of an active unit over the whole window, in bits per second, as last
    /// computed.
    pub fn sustained_bps(&self, unit: UnitId) -> f32 {
        self.units[unit.index()].sustained_bps
    }

    /// Returns the present load of a unit over the whole window, in bits per second, active or not.
    pub fn load_bps(&self, unit: UnitId, now_ns: u64) -> f32 {
        self.sustained(&self.units[unit.index()], now_ns)
    }

    /// Returns all bytes that the unit was sent.
    #[inline]
    pub fn bytes(&self, unit: UnitId) -> u64 {
        let sent = &self.units[unit.index()];
        sent.over + sent.bytes
    }

    /// Returns the time of the last packet to the unit, or of its activation.
    pub fn last_packet_ns(&self, unit: UnitId) -> u64 {
        self.units[unit.index()].last_packet_ns
    }

    /// Returns the end of the current bucket; 0 before the first call of [`roll`](Meter::roll).
    #[inline]
    pub fn ends_ns(&self) -> u64 {
        self.ends_ns
    }

    /// Starts to measure a unit, from zero.
    pub fn activate(&mut self, unit: UnitId, now_ns: u64) {
        self.reckon();
        let index = unit.index();
        let per_bucket = self.units.len();
        for bucket in 0..self.buckets {
            self.ring[bucket * per_bucket + index] = 0;
        }
        self.units[index] = Sent {
            is_active: true,
            active_since_ns: now_ns,
            last_packet_ns: now_ns,
            over: self.bytes(unit),
            ..Sent::default()
        };
        self.loads.set(unit, 0.0);
    }

    /// Marks an active unit as not to be chosen, or as one to be chosen again. Its load is measured
    /// in either case.
    pub fn set_passed_over(&mut self, unit: UnitId, is_passed_over: bool) {
        let sent = &mut self.units[unit.index()];
        if sent.is_active && std::mem::replace(&mut sent.is_passed_over, is_passed_over) != is_passed_over {
            let at_ns = sent.last_packet_ns;
            self.reckon_one(unit, at_ns);
        }
    }

    /// Marks a unit as having no room.
    pub fn deactivate(&mut self, unit: UnitId) {
        self.units[unit.index()].is_active = false;
        self.loads.set(unit, f32::INFINITY);
    }

    /// Counts a packet to the unit. The bucket must be the current one: see [`roll`](Meter::roll).
    #[inline]
    pub fn add(&mut self, unit: UnitId, bytes: u64, now_ns: u64) {
        let sent = &mut self.units[unit.index()];
        sent.bytes += bytes;
        sent.last_packet_ns = now_ns;
        if !sent.is_stale {
            sent.is_stale = true;
            self.stale.push(unit); // There is room: no unit stands there twice.
        }
    }

    /// Moves the window to the bucket of `now_ns`. Returns the number of buckets that ended.
    pub fn roll(&mut self, now_ns: u64) -> u64 {
        if self.ends_ns == 0 {
            self.begin(now_ns);
            return 0;
        }
        if now_ns < self.ends_ns {
            return 0;
        }
        let passed = (now_ns - self.ends_ns) / self.bucket_ns + 1;
        (0..passed.min(self.buckets as u64)).for_each(|_| self.turn());
        self.starts_ns += passed * self.bucket_ns;
        self.ends_ns = self.starts_ns.saturating_add(self.bucket_ns);
        self.reckon();
        self.units_numbered().for_each(|unit| self.reckon_one(unit, now_ns));
        passed
    }

    /// Begins the first bucket; units that are active count as active from now on.
    fn begin(&mut self, now_ns: u64) {
        self.starts_ns = now_ns;
        self.ends_ns = now_ns.saturating_add(self.bucket_ns);
        for sent in self.units.iter_mut().filter(|sent| sent.is_active) {
            (sent.active_since_ns, sent.last_packet_ns) = (now_ns, now_ns);
        }
    }

    /// Ends the current bucket; the oldest one is cleared and becomes the current one.
    fn turn(&mut self) {
        let per_bucket = self.units.len();
        let next = (self.at + 1) % self.buckets;
        let unwatched = (next + self.buckets - self.alarm_buckets) % self.buckets;
        let [over, oldest, unwatched] = [self.at, next, unwatched].map(|bucket| bucket * per_bucket);
        for (index, sent) in self.units.iter_mut().enumerate() {
            self.ring[over + index] = sent.bytes;
            if self.alarm_buckets > 0 {
                sent.just_before = sent.just_before + sent.bytes - self.ring[unwatched + index];
            }
            sent.before = sent.before + sent.bytes - self.ring[oldest + index];
            self.ring[oldest + index] = 0;
            sent.over += std::mem::take(&mut sent.bytes);
        }
        self.at = next;
    }

    fn units_numbered(&self) -> impl Iterator<Item = UnitId> + use<> {
        // There are no more than `u16` can count: see `new`.
        (0..self.units.len() as u16).map(UnitId)
    }

    #[inline]
    fn reckon_one(&mut self, unit: UnitId, at_ns: u64) {
        let sent = &self.units[unit.index()];
        if !sent.is_active {
            return;
        }
        let sustained_bps = self.sustained(sent, at_ns);
        let load_bps = match self.alarm_buckets {
            0 => sustained_bps,
            watched => sustained_bps.max(self.over(watched, sent.just_before + sent.bytes, sent, at_ns)),
        };
        let is_passed_over = sent.is_passed_over;
        self.units[unit.index()].sustained_bps = sustained_bps;
        self.loads.set(unit, if is_passed_over { f32::INFINITY } else { load_bps });
    }

    #[inline]
    fn sustained(&self, sent: &Sent, at_ns: u64) -> f32 {
        self.over(self.buckets, sent.before + sent.bytes, sent, at_ns)
    }

    /// Returns the rate of these bytes over this many of the last buckets, in bits per second.
    #[inline]
    fn over(&self, buckets: usize, bytes: u64, sent: &Sent, at_ns: u64) -> f32 {
        let window_ns = self.bucket_ns.saturating_mul(buckets as u64 - 1);
        let from_ns = sent.active_since_ns.max(self.starts_ns.saturating_sub(window_ns));
        rate_bps(bytes, at_ns.saturating_sub(from_ns).max(self.bucket_ns))
    }
}

/// Returns bits per second. The time must not be 0.
#[inline]
pub(crate) fn rate_bps(bytes: u64, time_ns: u64) -> f32 {
    // Signed numbers convert faster; a time of more than 2^63 ns stands for endless.
    (bytes.cast_signed() as f64 * 8e9 / time_ns.min(i64::MAX as u64).cast_signed() as f64) as f32
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const A: UnitId = UnitId(0);
    const B: UnitId = UnitId(1);

    fn meter(units_max: u16, buckets: usize, alarm_buckets: usize) -> Meter {
        let config = Config { units_max, buckets, alarm_buckets, bucket_ns: 100, ..Config::default() };
        Meter::new(&config).unwrap()
    }

    fn load_bps(meter: &mut Meter, unit: UnitId) -> f32 {
        meter.reckon();
        meter.loads().of(unit)
    }

    #[test]
    fn a_window_that_is_not_full_is_as_long_as_it_is() {
        // S40
        let mut meter = meter(2, 4, 0);
        meter.activate(A, 0);
        meter.roll(1000);
        meter.add(A, 10, 1000);
        assert_eq!(load_bps(&mut meter, A), 8e8, "80 bits in one bucket of 100 ns at least");
        meter.add(A, 10, 1050);
        assert_eq!(load_bps(&mut meter, A), 16e8);
        meter.roll(1200);
        assert_eq!(load_bps(&mut meter, A), 8e8, "160 bits in 200 ns");
        meter.activate(B, 1200);
        meter.add(B, 10, 1250);
        assert_eq!(load_bps(&mut meter, B), 8e8, "a unit's window begins when it does");
        meter.roll(1399);
        assert_eq!(meter.load_bps(A, 1399), rate_bps(20, 399));
        meter.roll(1400);
        assert_eq!(load_bps(&mut meter, A), 0.0, "the first of four buckets is forgotten");
        meter.deactivate(B);
        assert_eq!(load_bps(&mut meter, B), f32::INFINITY);
        assert!(meter.load_bps(B, 1400) > 0.0);
    }

    #[test]
    fn a_burst_that_the_window_hides_raises_the_alarm() {
        // S105
        let mut meter = meter(1, 100, 3);
        meter.activate(A, 0);
        meter.roll(0);
        meter.roll(9_900);
        meter.add(A, 1000, 9_900);
        assert_eq!(
            load_bps(&mut meter, A),
            rate_bps(1000, 200),
            "three buckets, of which the last has begun"
        );
        assert_eq!(meter.sustained_bps(A), rate_bps(1000, 9_900));
        meter.roll(10_100);
        assert_eq!(load_bps(&mut meter, A), rate_bps(1000, 200));
        meter.roll(10_200);
        assert_eq!(load_bps(&mut meter, A), meter.sustained_bps(A), "it has passed");
        assert!(meter.sustained_bps(A) > 0.0);
    }

    proptest! {
        /// Against a list of all packets.
        #[test]
        fn it_is_what_was_sent_within_the_window(
            steps in prop::collection::vec((0u64..300, 0u16..3, 1u64..2000), 1..200),
            watched in 0u64..=5,
        ) {
            const BUCKETS: u64 = 5;
            let mut meter = meter(3, BUCKETS as usize, watched as usize);
            (0..3).for_each(|unit| meter.activate(UnitId(unit), 0));
            meter.roll(7);
            let (mut now, mut sent) = (7, Vec::new());
            for (pause, unit, bytes) in steps {
                now += pause;
                meter.roll(now);
                meter.add(UnitId(unit), bytes, now);
                meter.reckon();
                sent.push((now, unit, bytes));
                let bucket = |t: u64| (t - 7) / 100;
                let over = |unit: u16, buckets: u64| {
                    let oldest = (bucket(now) + 1).saturating_sub(buckets);
                    let elapsed = (now - (7 + oldest * 100)).max(100);
                    let within = sent.iter().filter(|s| s.1 == unit && bucket(s.0) >= oldest);
                    rate_bps(within.map(|s| s.2).sum(), elapsed)
                };
                for unit in 0..3 {
                    prop_assert_eq!(meter.load_bps(UnitId(unit), now), over(unit, BUCKETS));
                }
                let alarm_bps = if watched > 0 { over(unit, watched) } else { 0.0 };
                prop_assert_eq!(meter.sustained_bps(UnitId(unit)), over(unit, BUCKETS));
                prop_assert_eq!(meter.loads().of(UnitId(unit)), over(unit, BUCKETS).max(alarm_bps));
            }
        }
    }
}
