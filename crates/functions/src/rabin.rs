//! Rabin fingerprints (1981) of all windows of a payload or stream. A fingerprint is the window's
//! bits, as a polynomial over GF(2), modulo an irreducible polynomial. Two lookups advance it by
//! one byte.

/// The polynomial of degree 63 from the file system LBFS (Muthitacharoen et al., SOSP 2001). Bit n
/// is the coefficient of x^n.
pub const POLYNOMIAL: u64 = 0xbfe6_b8a5_bf37_8d83;

/// Maximum number of samples per payload; the first ones are kept.
pub const SAMPLES_MAX: usize = 256;

/// Minimum window in bytes. A reference to a shorter window would not be shorter than the window.
pub const WINDOW_MIN: u8 = 16;

/// Maximum window in bytes.
pub const WINDOW_MAX: u8 = 64;

const DEGREE: u32 = 63;

/// A sampled fingerprint and the position of its window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    pub fingerprint: u64,
    /// Offset of the window.
    pub at: u16,
}

/// Fingerprinter for windows of one length.
pub struct Rabin {
    /// By the upper nine bits of a fingerprint: their contribution after a shift by eight bits. The
    /// ninth bit is never set; indexing with it saves a mask.
    push: [u64; 512],
    /// By the byte that leaves the window: its contribution.
    pop: [u64; 256],
    window: usize,
    /// Bits that are zero in sampled fingerprints.
    mask: u64,
}

impl Rabin {
    /// Creates a fingerprinter for windows of `window` bytes. It samples the fingerprints with
    /// lowest bits 0: one in `sample`, a power of two.
    pub fn new(window: usize, sample: u64) -> Rabin {
        let shifted = |byte: usize, bits: usize| (0..bits).fold(byte as u64, |value, _| times_x(value));
        // The shift drops the upper bits, except the lowest of them.
        let push =
            std::array::from_fn(|bits| shifted(bits & 0xff, DEGREE as usize) ^ (bits as u64) << DEGREE);
        let pop = std::array::from_fn(|byte| shifted(byte, 8 * window));
        Rabin { push, pop, window, mask: sample - 1 }
    }

    /// Returns the length of a window.
    #[inline]
    pub fn window(&self) -> usize {
        self.window
    }

    /// Replaces `samples` by the samples of a payload, in order. Of consecutive windows with the
    /// same fingerprint, as within a run of zeros, only the first is sampled.
    pub fn sample(&self, payload: &[u8], samples: &mut Vec<Sample>) {
        samples.clear();
        let Some((first, rest)) = payload.split_at_checked(self.window) else { return };
        let mut fingerprint = first.iter().fold(0, |fingerprint, &byte| self.push(fingerprint, byte));
        let mut last = u64::MAX; // No fingerprint has 64 bits.
        let mut choose = |fingerprint: u64, at: usize| {
            if last != fingerprint && samples.len() < SAMPLES_MAX {
                last = fingerprint;
                samples.push(Sample { fingerprint, at: at as u16 });
            }
        };
        if self.is_chosen(fingerprint) {
            choose(fingerprint, 0);
        }
        let mut step = |new: u8, old: u8, at: usize| {
            fingerprint = self.roll(fingerprint, new, old);
            if self.is_chosen(fingerprint) {
                choose(fingerprint, at);
            }
        };
        // The leaving byte is always `window` bytes before the entering byte. The loop processes
        // eight steps per iteration.
        let ((entering, last), (leaving, _)) = (rest.as_chunks::<8>(), payload.as_chunks::<8>());
        for (chunk, (new, old)) in entering.iter().zip(leaving).enumerate() {
            for i in 0..8 {
                step(new[i], old[i], 8 * chunk + i + 1);
            }
        }
        for (at, (&new, &old)) in (8 * entering.len()..).zip(last.iter().zip(&payload[8 * entering.len()..]))
        {
            step(new, old, at + 1);
        }
    }

    /// Returns the fingerprint after appending a byte; the empty fingerprint is 0.
    #[inline(always)]
    pub fn push(&self, fingerprint: u64, byte: u8) -> u64 {
        let above = fingerprint >> (DEGREE - 8);
        (fingerprint << 8 | u64::from(byte)) ^ self.push[above as usize]
    }

    /// Returns the fingerprint after `new` has entered the window and `old` has left it.
    #[inline(always)]
    pub fn roll(&self, fingerprint: u64, new: u8, old: u8) -> u64 {
        self.push(fingerprint, new) ^ self.pop[usize::from(old)]
    }

    /// Returns whether the fingerprint is sampled.
    #[inline(always)]
    pub fn is_chosen(&self, fingerprint: u64) -> bool {
        fingerprint & self.mask == 0
    }
}

/// Returns the remainder of x times `value`, which is a remainder itself.
fn times_x(value: u64) -> u64 {
    let shifted = value << 1;
    if shifted >> DEGREE & 1 == 1 { shifted ^ POLYNOMIAL } else { shifted }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn product(a: u64, b: u64) -> u64 {
        (0..DEGREE).rev().fold(0, |sum, bit| times_x(sum) ^ if b >> bit & 1 == 1 { a } else { 0 })
    }

    /// Returns x to the power of 2^n.
    fn power(n: u32) -> u64 {
        (0..n).fold(2, |value, _| product(value, value))
    }

    fn divisor(mut a: u64, mut b: u64) -> u64 {
        while b != 0 {
            while a != 0 && a.leading_zeros() <= b.leading_zeros() {
                a ^= b << (b.leading_zeros() - a.leading_zeros());
            }
            (a, b) = (b, a);
        }
        a
    }

    // Rabin's test (1980): x^(2^63) = x, and x^(2^(63/p)) - x is coprime to the polynomial for the
    // prime divisors p of 63.
    #[test]
    fn the_polynomial_is_irreducible() {
        assert_eq!(power(63), 2);
        assert_eq!([power(21), power(9)].map(|value| divisor(POLYNOMIAL, value ^ 2)), [1, 1]);
    }

    /// Computes the remainder bit by bit.
    fn remainder(window: &[u8]) -> u64 {
        let bits = window.iter().flat_map(|byte| (0..8).rev().map(move |bit| u64::from(byte >> bit & 1)));
        bits.fold(0, |value, bit| times_x(value) ^ bit)
    }

    #[test]
    fn fingerprints_equal_bitwise_remainders() {
        let mut random = 7;
        let payload: Vec<u8> = (0..200).map(|_| packet::split_mix(&mut random) as u8).collect();
        for window in [16, 32, 64] {
            let mut samples = Vec::new();
            Rabin::new(window, 1).sample(&payload, &mut samples);
            assert_eq!(samples.len(), payload.len() - window + 1);
            for Sample { fingerprint, at } in samples {
                assert_eq!(fingerprint, remainder(&payload[usize::from(at)..][..window]));
            }
        }
    }

    #[test]
    fn one_in_32_windows_is_sampled_and_one_of_a_run() {
        let (mut random, mut samples, mut chosen) = (7, Vec::new(), 0);
        let rabin = Rabin::new(32, 32);
        for _ in 0..1_000 {
            let payload: Vec<u8> = (0..1_031).map(|_| packet::split_mix(&mut random) as u8).collect();
            rabin.sample(&payload, &mut samples);
            chosen += samples.len();
        }
        assert!((30_000..32_500).contains(&chosen), "{chosen} of 1,000,000");
        rabin.sample(&[0; 1_400], &mut samples);
        assert_eq!(samples, [Sample { fingerprint: 0, at: 0 }]);
        rabin.sample(&[0; 31], &mut samples);
        assert!(samples.is_empty());
        let many: Vec<u8> = (0..1_400).map(|_| packet::split_mix(&mut random) as u8).collect();
        Rabin::new(32, 1).sample(&many, &mut samples);
        assert_eq!(samples.len(), SAMPLES_MAX);
    }
}
