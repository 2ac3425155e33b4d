//! How much is sent to each unit (S39, S40).

use packet::memory::{OutOfMemory, Zeroed};
use proto::UnitId;

/// What is sent to each unit, over a window of buckets that moves on.
///
/// A unit's load is what it was sent within the window so far, by the time that the window covers: that since the unit is
/// active, if this is shorter, and at least one bucket. It is brought up to date with every packet to the unit, and for all
/// units whenever a bucket is over. Bursts that are much shorter than the window hardly show (S105).
pub(crate) struct Meter {
    /// In bits per second; infinite for a unit that is not active, which therefore never has room. Padded with such ones
    /// to a multiple of [`LANES`].
    loads_bps: Vec<f32>,
    units: Vec<Sent>,
    /// Bytes, by bucket and unit.
    ring: Zeroed<u64>,
    buckets: usize,
    bucket_ns: u64,
    /// The current bucket.
    at: usize,
    starts_ns: u64,
    /// When it is over; 0 before the first one.
    ends_ns: u64,
}

/// Units that are looked at together.
pub(crate) const LANES: usize = 16;

#[derive(Clone, Copy, Default)]
struct Sent {
    /// Within the window.
    bytes: u64,
    is_active: bool,
    active_since_ns: u64,
    last_packet_ns: u64,
}

impl Meter {
    pub fn new(units_max: u16, buckets: usize, bucket_ns: u64) -> Result<Meter, OutOfMemory> {
        let units = usize::from(units_max);
        Ok(Meter {
            loads_bps: vec![f32::INFINITY; units.next_multiple_of(LANES)],
            units: vec![Sent::default(); units],
            ring: Zeroed::new(units.saturating_mul(buckets))?,
            buckets,
            bucket_ns,
            at: 0,
            starts_ns: 0,
            ends_ns: 0,
        })
    }

    /// The units' loads, in bits per second, by number; infinite for those that are not active, and behind the last.
    #[inline]
    pub fn loads_bps(&self) -> &[f32] {
        &self.loads_bps
    }

    /// The same, with one unit hidden, for as long as `look` looks.
    pub fn without<R>(&mut self, unit: UnitId, look: impl FnOnce(&[f32]) -> R) -> R {
        let load_bps = std::mem::replace(&mut self.loads_bps[unit.index()], f32::INFINITY);
        let seen = look(&self.loads_bps);
        self.loads_bps[unit.index()] = load_bps;
        seen
    }

    /// The unit's load in bits per second, active or not.
    pub fn load_bps(&self, unit: UnitId, now_ns: u64) -> f32 {
        self.measure(&self.units[unit.index()], now_ns)
    }

    /// When the unit was last sent a packet, or became active.
    pub fn last_packet_ns(&self, unit: UnitId) -> u64 {
        self.units[unit.index()].last_packet_ns
    }

    /// When the current bucket is over; 0 before the first call of [`roll`](Meter::roll).
    #[inline]
    pub fn ends_ns(&self) -> u64 {
        self.ends_ns
    }

    /// From now on the unit is measured, from nothing.
    pub fn activate(&mut self, unit: UnitId, now_ns: u64) {
        let index = unit.index();
        let per_bucket = self.units.len();
        for bucket in 0..self.buckets {
            self.ring[bucket * per_bucket + index] = 0;
        }
        self.units[index] =
            Sent { bytes: 0, is_active: true, active_since_ns: now_ns, last_packet_ns: now_ns };
        self.loads_bps[index] = 0.0;
    }

    /// From now on the unit has no room.
    pub fn deactivate(&mut self, unit: UnitId) {
        self.units[unit.index()].is_active = false;
        self.loads_bps[unit.index()] = f32::INFINITY;
    }

    /// A packet is sent to the unit. The bucket must be the current one: see [`roll`](Meter::roll).
    #[inline]
    pub fn add(&mut self, unit: UnitId, bytes: u64, now_ns: u64) {
        let (index, per_bucket) = (unit.index(), self.units.len());
        self.ring[self.at * per_bucket + index] += bytes;
        let sent = &mut self.units[index];
        sent.bytes += bytes;
        sent.last_packet_ns = now_ns;
        let sent = *sent;
        if sent.is_active {
            self.loads_bps[index] = self.measure(&sent, now_ns);
        }
    }

    /// Moves the window on to the bucket that `now_ns` is in.
    pub fn roll(&mut self, now_ns: u64) {
        if self.ends_ns == 0 {
            return self.begin(now_ns);
        }
        if now_ns < self.ends_ns {
            return;
        }
        let passed = (now_ns - self.ends_ns) / self.bucket_ns + 1;
        for _ in 0..passed.min(self.buckets as u64) {
            self.at = (self.at + 1) % self.buckets;
            self.forget_current();
        }
        self.starts_ns += passed * self.bucket_ns;
        self.ends_ns = self.starts_ns.saturating_add(self.bucket_ns);
        for index in 0..self.units.len() {
            if self.units[index].is_active {
                self.loads_bps[index] = self.measure(&self.units[index], now_ns);
            }
        }
    }

    /// The first bucket begins now, and the units that are active are so from now on.
    fn begin(&mut self, now_ns: u64) {
        self.starts_ns = now_ns;
        self.ends_ns = now_ns.saturating_add(self.bucket_ns);
        for sent in self.units.iter_mut().filter(|sent| sent.is_active) {
            (sent.active_since_ns, sent.last_packet_ns) = (now_ns, now_ns);
        }
    }

    /// The bucket that was the oldest is the current one, and empty.
    fn forget_current(&mut self) {
        let per_bucket = self.units.len();
        let bucket = &mut self.ring[self.at * per_bucket..][..per_bucket];
        for (sent, bytes) in self.units.iter_mut().zip(bucket).filter(|(_, bytes)| **bytes != 0) {
            sent.bytes -= *bytes;
            *bytes = 0;
        }
    }

    #[inline]
    fn measure(&self, sent: &Sent, now_ns: u64) -> f32 {
        let window_ns = self.bucket_ns.saturating_mul(self.buckets as u64 - 1);
        let from_ns = sent.active_since_ns.max(self.starts_ns.saturating_sub(window_ns));
        rate_bps(sent.bytes, now_ns.saturating_sub(from_ns).max(self.bucket_ns))
    }
}

/// Bits per second. The time must not be 0.
#[inline]
pub(crate) fn rate_bps(bytes: u64, time_ns: u64) -> f32 {
    // A signed number is quicker to convert; a time of more than 2^63 ns stands for endless.
    (bytes.cast_signed() as f64 * 8e9 / time_ns.min(i64::MAX as u64).cast_signed() as f64) as f32
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const A: UnitId = UnitId(0);
    const B: UnitId = UnitId(1);

    #[test]
    fn a_window_that_is_not_full_is_as_long_as_it_is() {
        // S40
        let mut meter = Meter::new(2, 4, 100).unwrap();
        meter.activate(A, 0);
        meter.roll(1000);
        meter.add(A, 10, 1000);
        assert_eq!(meter.loads_bps()[0], 8e8, "80 bits in one bucket of 100 ns at least");
        meter.add(A, 10, 1050);
        assert_eq!(meter.loads_bps()[0], 16e8);
        meter.roll(1200);
        assert_eq!(meter.loads_bps()[0], 8e8, "160 bits in 200 ns");
        meter.activate(B, 1200);
        meter.add(B, 10, 1250);
        assert_eq!(meter.loads_bps()[1], 8e8, "a unit's window begins when it does");
        meter.roll(1399);
        assert_eq!(meter.load_bps(A, 1399), rate_bps(20, 399));
        meter.roll(1400);
        assert_eq!(meter.loads_bps()[0], 0.0, "the first of four buckets is forgotten");
        meter.deactivate(B);
        assert_eq!(meter.loads_bps()[1], f32::INFINITY);
        assert!(meter.load_bps(B, 1400) > 0.0);
    }

    proptest! {
        /// Against a list of all packets.
        #[test]
        fn it_is_what_was_sent_within_the_window(steps in prop::collection::vec((0u64..300, 0u16..3, 1u64..2000), 1..200)) {
            const BUCKETS: u64 = 5;
            let mut meter = Meter::new(3, BUCKETS as usize, 100).unwrap();
            (0..3).for_each(|unit| meter.activate(UnitId(unit), 0));
            meter.roll(7);
            let (mut now, mut sent) = (7, Vec::new());
            for (pause, unit, bytes) in steps {
                now += pause;
                meter.roll(now);
                meter.add(UnitId(unit), bytes, now);
                sent.push((now, unit, bytes));
                let bucket = |t: u64| (t - 7) / 100;
                let oldest = (bucket(now) + 1).saturating_sub(BUCKETS);
                let elapsed = (now - (7 + oldest * 100)).max(100);
                for unit in 0..3 {
                    let bytes: u64 =
                        sent.iter().filter(|s| s.1 == unit && bucket(s.0) >= oldest).map(|s| s.2).sum();
                    prop_assert_eq!(meter.load_bps(UnitId(unit), now), rate_bps(bytes, elapsed));
                }
            }
        }
    }
}
