//! Tests the buckets against the texts of their RFCs, token by token, and against closed forms.

use proptest::prelude::*;

use super::*;

fn single(rate: u64, size: u64, excess: u64) -> Marker {
    Marker::SingleRate { committed: TokenBucket { rate, size }, excess }
}

/// Tokens as counted by RFC 2697 and RFC 2698: upwards, one by one.
struct Literal {
    marker: Marker,
    committed: u64,
    other: u64,
}

impl Literal {
    fn new(marker: Marker) -> Literal {
        let (committed, other) = match marker {
            Marker::SingleRate { committed, excess } => (committed.size, excess),
            Marker::TwoRate { committed, peak } => (committed.size, peak.size),
        };
        Literal { marker, committed, other }
    }

    fn nanosecond(&mut self) {
        match self.marker {
            // "If Tc is less than CBS, Tc is incremented by one, else if Te is less then EBS, Te is
            // incremented by one, else neither Tc nor Te is incremented."
            Marker::SingleRate { committed, excess } => {
                for _ in 0..committed.rate {
                    if self.committed < committed.size {
                        self.committed += 1;
                    } else if self.other < excess {
                        self.other += 1;
                    }
                }
            }
            // "Thereafter, the token count Tp is incremented by one PIR times per second up to PBS
            // and the token count Tc is incremented by one CIR times per second up to CBS."
            Marker::TwoRate { committed, peak } => {
                for _ in 0..peak.rate {
                    self.other += u64::from(self.other < peak.size);
                }
                for _ in 0..committed.rate {
                    self.committed += u64::from(self.committed < committed.size);
                }
            }
        }
    }

    fn packet(&mut self, cost: u64, before: PacketColour) -> PacketColour {
        let (left_committed, left_other) = (self.committed.checked_sub(cost), self.other.checked_sub(cost));
        match self.marker {
            Marker::SingleRate { .. } => match (before, left_committed, left_other) {
                (PacketColour::Green, Some(left), _) => {
                    self.committed = left;
                    PacketColour::Green
                }
                (PacketColour::Green | PacketColour::Yellow, _, Some(left)) => {
                    self.other = left;
                    PacketColour::Yellow
                }
                _ => PacketColour::Red,
            },
            Marker::TwoRate { .. } => match (before, left_other, left_committed) {
                (PacketColour::Red, ..) | (_, None, _) => PacketColour::Red,
                (PacketColour::Yellow, Some(left), _) | (PacketColour::Green, Some(left), None) => {
                    self.other = left;
                    PacketColour::Yellow
                }
                (PacketColour::Green, Some(left), Some(left_committed)) => {
                    (self.other, self.committed) = (left, left_committed);
                    PacketColour::Green
                }
            },
        }
    }
}

fn colours() -> impl Strategy<Value = PacketColour> {
    prop_oneof![3 => Just(PacketColour::Green), 1 => Just(PacketColour::Yellow), 1 => Just(PacketColour::Red)]
}

/// Generates packets: time since the previous one, cost, colour.
fn packets() -> impl Strategy<Value = Vec<(u64, u64, PacketColour)>> {
    prop::collection::vec((prop_oneof![0u64..4, 0u64..120], 1u64..300, colours()), 1..60)
}

fn follows_the_text(marker: Marker, packets: &[(u64, u64, PacketColour)]) -> Result<(), TestCaseError> {
    let (mut literal, mut levels, mut now_ns) = (Literal::new(marker), BucketLevels::default(), 1_000);
    for &(gap_ns, cost, before) in packets {
        now_ns += gap_ns;
        (0..gap_ns).for_each(|_| literal.nanosecond());
        prop_assert_eq!(marker.colour(&mut levels, cost, now_ns, before), literal.packet(cost, before));
    }
    Ok(())
}

proptest! {
    // RFC 2697
    #[test]
    fn one_rate_follows_the_text(rate in 1u64..20, size in 0u64..600, excess in 0u64..600, packets in packets()) {
        follows_the_text(single(rate, size, excess), &packets)?;
    }

    // RFC 2698
    #[test]
    fn two_rates_follow_the_text(
        (rate, more) in (1u64..15, 0u64..15), size in 1u64..600, peak_size in 1u64..600, packets in packets(),
    ) {
        let marker = Marker::TwoRate {
            committed: TokenBucket { rate, size },
            peak: TokenBucket { rate: rate + more, size: peak_size },
        };
        follows_the_text(marker, &packets)?;
    }

    /// Closed form for all sizes: a packet is green if and only if, over every interval up to it,
    /// green packets do not exceed the burst plus the interval's tokens.
    #[test]
    fn green_is_what_fits_every_window(
        rate_bps in prop_oneof![Just(1u64), 1u64..1_000_000, 1u64..=400_000_000_000],
        burst_bytes in 0u64..100_000,
        packets in prop::collection::vec((prop_oneof![0u64..2_000, 0u64..10_000_000_000], 20u64..9_000), 1..80),
    ) {
        let marker = single(rate_bps, burst_bytes * BYTE, 0);
        let (mut levels, mut now_ns) = (BucketLevels::default(), 0);
        let mut green: Vec<(u64, u128)> = Vec::new();
        for (gap_ns, bytes) in packets {
            now_ns += gap_ns;
            let cost = u128::from(bytes) * u128::from(BYTE);
            let fits = |from: usize| {
                let since_ns = green.get(from).map_or(now_ns, |&(at_ns, _)| at_ns);
                let sum: u128 = green[from..].iter().map(|&(_, cost)| cost).sum();
                let filled = u128::from(rate_bps) * u128::from(now_ns - since_ns);
                sum + cost <= u128::from(burst_bytes) * u128::from(BYTE) + filled
            };
            let wanted = (0..=green.len()).all(fits);
            let colour = marker.colour(&mut levels, bytes * BYTE, now_ns, PacketColour::Green);
            prop_assert_eq!(colour == PacketColour::Green, wanted);
            if wanted {
                green.push((now_ns, cost));
            }
        }
    }

    /// A greedy source gets the burst and then its rate, to within a packet.
    #[test]
    fn a_greedy_source_gets_its_rate(rate_bps in 1_000u64..=400_000_000_000, bytes in 64u64..1_500, step in 1u64..500) {
        const PACKETS: u64 = 20_000;
        // Packets arrive at up to about 100 times the rate, and not at multiples of any interval.
        let gap_ns = (bytes * BYTE * step / rate_bps / 500).max(1);
        let burst = 10 * bytes * BYTE;
        let marker = single(rate_bps, burst, 0);
        let mut levels = BucketLevels::default();
        let offered = u128::from(bytes * BYTE) * u128::from(PACKETS);
        let passed = (0..PACKETS)
            .filter(|i| marker.colour(&mut levels, bytes * BYTE, 5 + i * gap_ns, PacketColour::Green) == PacketColour::Green)
            .count() as u128 * u128::from(bytes * BYTE);
        let allowed = u128::from(burst) + u128::from(rate_bps) * u128::from((PACKETS - 1) * gap_ns);
        prop_assert!(passed <= allowed);
        prop_assert!(passed + u128::from(bytes * BYTE) > allowed.min(offered));
    }

    /// For all inputs, nothing overflows and the spent units never exceed the size.
    #[test]
    fn no_numbers_are_too_large(
        rates in any::<[u64; 2]>(), sizes in any::<[u64; 2]>(), steps in prop::collection::vec((any::<u64>(), any::<u64>(), colours()), 1..40),
        two in any::<bool>(),
    ) {
        let [size, other] = sizes.map(|size| size >> 1);
        let marker = if two {
            Marker::TwoRate { committed: TokenBucket { rate: rates[0], size }, peak: TokenBucket { rate: rates[1], size: other } }
        } else {
            single(rates[0], size, other)
        };
        prop_assert!(marker.full_after_ns() > 0 || (size == 0 && other == 0));
        let mut levels = BucketLevels::default();
        for (now_ns, cost, before) in steps {
            prop_assert!(marker.colour(&mut levels, cost, now_ns, before) >= before);
            prop_assert!(levels.committed <= size && levels.other <= other);
        }
    }
}

#[test]
fn the_burst_is_exact() {
    let marker = single(8_000, 3_000 * BYTE, 0);
    let mut levels = BucketLevels::default();
    let mut colour =
        |bytes: u64, now_ns: u64| marker.colour(&mut levels, bytes * BYTE, now_ns, PacketColour::Green);
    assert_eq!(colour(3_001, 0), PacketColour::Red, "never: the bucket holds less");
    assert_eq!(
        [colour(1_500, 0), colour(1_500, 0), colour(1, 0)],
        [PacketColour::Green, PacketColour::Green, PacketColour::Red]
    );
    // 1000 bytes per second: a byte each millisecond, and not a nanosecond earlier.
    assert_eq!([colour(1, 999_999), colour(1, 1_000_000)], [PacketColour::Red, PacketColour::Green]);
    assert_eq!(colour(1, 500_000), PacketColour::Red, "late, and fills nothing");
    assert_eq!([colour(1, 1_999_999), colour(1, 2_000_000)], [PacketColour::Red, PacketColour::Green]);
    assert_eq!(colour(3_001, u64::MAX), PacketColour::Red);
    assert_eq!(colour(3_000, u64::MAX), PacketColour::Green, "full, and not more than full");
    assert_eq!(colour(1, u64::MAX), PacketColour::Red);
}

#[test]
fn the_slowest_rate_loses_nothing() {
    // One bit per second, checked every nanosecond around the time when a byte is complete.
    let marker = single(1, 100 * BYTE, 0);
    let mut levels = BucketLevels::default();
    assert_eq!(marker.colour(&mut levels, 100 * BYTE, 7, PacketColour::Green), PacketColour::Green);
    for late_ns in (1..8_000_000_000).step_by(7_777_777) {
        assert_eq!(marker.colour(&mut levels, BYTE, 7 + late_ns, PacketColour::Green), PacketColour::Red);
    }
    assert_eq!(
        marker.colour(&mut levels, BYTE, 7 + 8_000_000_000 - 1, PacketColour::Green),
        PacketColour::Red
    );
    assert_eq!(marker.colour(&mut levels, BYTE, 7 + 8_000_000_000, PacketColour::Green), PacketColour::Green);
}

#[test]
fn buckets_are_full_after_the_stated_time() {
    for marker in [
        single(7, 1_000, 333),
        Marker::TwoRate {
            committed: TokenBucket { rate: 3, size: 1_000 },
            peak: TokenBucket { rate: 9, size: 5_000 },
        },
    ] {
        let (mut levels, full_ns) = (BucketLevels::default(), marker.full_after_ns());
        while marker.colour(&mut levels, 1, 0, PacketColour::Green) != PacketColour::Red {}
        let mut almost = levels;
        marker.colour(&mut levels, u64::MAX, full_ns, PacketColour::Green);
        assert_eq!((levels.committed, levels.other), (0, 0));
        marker.colour(&mut almost, u64::MAX, full_ns - 1, PacketColour::Green);
        assert_ne!((almost.committed, almost.other), (0, 0));
    }
}

#[test]
fn a_smaller_burst_forgives_what_it_cannot_hold() {
    let mut levels = BucketLevels::default();
    assert_eq!(single(1, 1_000, 0).colour(&mut levels, 1_000, 0, PacketColour::Green), PacketColour::Green);
    assert_eq!(single(1, 10, 0).colour(&mut levels, 10, 9, PacketColour::Green), PacketColour::Red);
    assert_eq!(single(1, 10, 0).colour(&mut levels, 10, 10, PacketColour::Green), PacketColour::Green);
}
