//! Units of time in capture files, converted to nanoseconds since 1970.

pub(super) const NS_PER_SECOND: u64 = 1_000_000_000;

/// Time scale of a pcapng interface (options `if_tsresol` and `if_tsoffset`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TimeScale {
    unit: Unit,
    offset_seconds: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unit {
    /// Nanoseconds per tick.
    Nanoseconds(u64),
    /// Ticks per nanosecond.
    PerNanosecond(u128),
    /// The exponent of a power of 2, in ticks per second.
    BinaryFraction(u32),
}

impl Default for TimeScale {
    /// Microseconds since 1970.
    fn default() -> TimeScale {
        TimeScale { unit: Unit::Nanoseconds(1_000), offset_seconds: 0 }
    }
}

impl TimeScale {
    /// Applies option `if_tsresol`: with the top bit a power of 2, otherwise a power of 10 of a
    /// second.
    pub fn set_resolution(&mut self, code: u8) {
        let exponent = u32::from(code & 0x7f);
        self.unit = match (code & 0x80 != 0, exponent) {
            (true, _) => Unit::BinaryFraction(exponent),
            (false, ..=9) => Unit::Nanoseconds(10_u64.pow(9 - exponent)),
            (false, _) => Unit::PerNanosecond(10_u128.checked_pow(exponent - 9).unwrap_or(u128::MAX)),
        };
    }

    /// Applies option `if_tsoffset`: seconds to add to each time.
    pub fn set_offset_seconds(&mut self, seconds: i64) {
        self.offset_seconds = seconds;
    }

    /// Converts ticks to nanoseconds since 1970, saturating.
    pub fn nanoseconds(self, ticks: u64) -> u64 {
        let plain = match self.unit {
            Unit::Nanoseconds(1) => ticks,
            Unit::Nanoseconds(length) => ticks.saturating_mul(length),
            Unit::PerNanosecond(count) => {
                clamp(i128::try_from(u128::from(ticks) / count).unwrap_or(i128::MAX))
            }
            Unit::BinaryFraction(power) => {
                let scaled = (u128::from(ticks) * u128::from(NS_PER_SECOND)) >> power;
                u64::try_from(scaled).unwrap_or(u64::MAX)
            }
        };
        if self.offset_seconds == 0 {
            return plain;
        }
        clamp(i128::from(plain) + i128::from(self.offset_seconds) * i128::from(NS_PER_SECOND))
    }
}

/// Converts seconds and a fraction to nanoseconds. `fraction_ns` is the length of the fraction's
/// unit. A fraction of a second or more is carried into the seconds.
pub(super) fn from_parts(seconds: u32, fraction: u32, fraction_ns: u64) -> u64 {
    // At most 2^32 * 10^9 + 2^32 * 10^3 < 2^63.
    u64::from(seconds) * NS_PER_SECOND + u64::from(fraction) * fraction_ns
}

fn clamp(value: i128) -> u64 {
    u64::try_from(value.max(0)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scale(code: u8, offset: i64) -> TimeScale {
        let mut scale = TimeScale::default();
        scale.set_resolution(code);
        scale.set_offset_seconds(offset);
        scale
    }

    #[test]
    fn resolutions_in_powers_of_ten_and_two() {
        assert_eq!(TimeScale::default().nanoseconds(5), 5_000);
        assert_eq!(scale(0, 0).nanoseconds(3), 3 * NS_PER_SECOND);
        assert_eq!(scale(9, 0).nanoseconds(7), 7);
        assert_eq!(scale(12, 0).nanoseconds(7_999), 7);
        assert_eq!(scale(127, 0).nanoseconds(u64::MAX), 0);
        assert_eq!(scale(0x80 | 1, 0).nanoseconds(3), 1_500_000_000);
        assert_eq!(scale(0x80 | 10, 0).nanoseconds(1_024), NS_PER_SECOND);
        assert_eq!(scale(0xff, 0).nanoseconds(u64::MAX), 0);
    }

    #[test]
    fn times_beyond_the_range_saturate() {
        assert_eq!(scale(0, 0).nanoseconds(u64::MAX), u64::MAX);
        assert_eq!(scale(0x80, 0).nanoseconds(u64::MAX), u64::MAX);
        assert_eq!(scale(9, i64::MIN).nanoseconds(1), 0);
        assert_eq!(scale(9, i64::MAX).nanoseconds(1), u64::MAX);
        assert_eq!(scale(9, -2).nanoseconds(3 * NS_PER_SECOND), NS_PER_SECOND);
    }

    #[test]
    fn a_fraction_over_a_second_is_carried() {
        assert_eq!(from_parts(1, 1_000_001, 1_000), 2_000_001_000);
        assert_eq!(from_parts(u32::MAX, u32::MAX, 1), 4_294_967_295_000_000_000 + 4_294_967_295);
    }
}
