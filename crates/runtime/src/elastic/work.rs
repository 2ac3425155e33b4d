//! The time that a unit takes for bytes.

/// Time that a unit takes for bytes at its capacity.
#[derive(Clone, Copy)]
pub(crate) struct Work {
    /// Time for a byte in 2^-32 ns, rounded up so that whole nanoseconds are exact.
    byte: u64,
}

impl Work {
    /// Creates it for a capacity in bits per second, above 0.
    pub fn at(capacity_bps: u64) -> Work {
        let byte = (8_000_000_000u128 << 32).div_ceil(capacity_bps.into());
        Work { byte: byte.min(u64::MAX.into()) as u64 }
    }

    /// Returns the time for bytes in nanoseconds, rounded down but for less than a thousandth.
    #[inline(always)]
    pub fn ns(self, bytes: u64) -> u64 {
        ((u128::from(self.byte) * u128::from(bytes)) >> 32) as u64
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn time_is_bits_by_capacity(capacity_bps in 1_000u64..1_000_000_000_000, bytes in 0u64..70_000) {
            let (bits_ns, capacity) = (u128::from(bytes) * 8_000_000_000, u128::from(capacity_bps));
            let ns = u128::from(Work::at(capacity_bps).ns(bytes));
            prop_assert!((bits_ns / capacity..=(bits_ns + capacity / 1_000) / capacity).contains(&ns));
        }
    }

    #[test]
    fn slowest_unit_saturates() {
        assert_eq!(Work::at(1).ns(1), u64::MAX >> 32);
    }
}
