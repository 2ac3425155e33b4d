//! Rabin fingerprints (1981) of all windows of a payload, or of a stream: the remainders that their
//! bits, taken for polynomials over GF(2), leave when they are divided by an irreducible one. That
//! of the next window follows from the last one's with two look-ups.

/// The polynomial, of degree 63: that of the file system LBFS (Muthitacharoen et al., SOSP 2001).
/// Bit n is the coefficient of x^n.
pub const POLYNOMIAL: u64 = 0xbfe6_b8a5_bf37_8d83;

/// Fingerprints noted of one payload at most: those that come first.
pub const SAMPLES_MAX: usize = 256;

/// Bytes of the shortest window. What stands for a shorter one would be no shorter.
pub const WINDOW_MIN: u8 = 16;

/// Bytes of the longest window.
pub const WINDOW_MAX: u8 = 64;

const DEGREE: u32 = 63;

/// A fingerprint that was chosen, and which byte its window begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// The fingerprint.
    pub fingerprint: u64,
    /// Where its window begins.
    pub at: u16,
}

/// Fingerprints of windows of one length.
pub struct Rabin {
    /// By a fingerprint's upper nine bits, what those become when eight more follow. The ninth, of
    /// no fingerprint, saves a mask.
    push: [u64; 512],
    /// By the byte that leaves a window, what it has contributed.
    pop: [u64; 256],
    window: usize,
    /// The bits of which none is set in fingerprints that are chosen.
    mask: u64,
}

impl Rabin {
    /// For windows of so many bytes, of whose fingerprints one of `sample`, a power of two, is
    /// chosen: those whose lowest bits are 0.
    pub fn new(window: usize, sample: u64) -> Rabin {
        let shifted = |byte: usize, bits: usize| (0..bits).fold(byte as u64, |value, _| times_x(value));
        // What is shifted out above is dropped by the processor, all but the lowest bit of it.
        let push =
            std::array::from_fn(|bits| shifted(bits & 0xff, DEGREE as usize) ^ (bits as u64) << DEGREE);
        let pop = std::array::from_fn(|byte| shifted(byte, 8 * window));
        Rabin { push, pop, window, mask: sample - 1 }
    }

    /// The length of windows.
    #[inline]
    pub fn window(&self) -> usize {
        self.window
    }

    /// Puts what is chosen of a payload into `samples`, in order, and nothing else. Of windows with
    /// the same fingerprint that follow on each other, as those within a run of zeros, the first
    /// one.
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
        // What leaves a window is as many bytes before what enters it, for all of them: eight at a
        // time, of which each is one step.
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

    /// The fingerprint of what has this one, and of a byte behind it; 0 is that of nothing.
    #[inline(always)]
    pub fn push(&self, fingerprint: u64, byte: u8) -> u64 {
        let above = fingerprint >> (DEGREE - 8);
        (fingerprint << 8 | u64::from(byte)) ^ self.push[above as usize]
    }

    /// The fingerprint of the window that a byte enters, `new`, while another leaves it, `old`.
    #[inline(always)]
    pub fn roll(&self, fingerprint: u64, new: u8, old: u8) -> u64 {
        self.push(fingerprint, new) ^ self.pop[usize::from(old)]
    }

    /// Whether the fingerprint is one of those that are chosen.
    #[inline(always)]
    pub fn is_chosen(&self, fingerprint: u64) -> bool {
        fingerprint & self.mask == 0
    }
}

/// The remainder of `value`, which is one, times x.
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

    /// x to the power of 2^n.
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

    // Rabin's own test (1980): x^(2^63) = x, and x^(2^(63/p)) - x has no divisor in common with it,
    // for 63's prime divisors p.
    #[test]
    fn the_polynomial_is_irreducible() {
        assert_eq!(power(63), 2);
        assert_eq!([power(21), power(9)].map(|value| divisor(POLYNOMIAL, value ^ 2)), [1, 1]);
    }

    /// Bit by bit.
    fn remainder(window: &[u8]) -> u64 {
        let bits = window.iter().flat_map(|byte| (0..8).rev().map(move |bit| u64::from(byte >> bit & 1)));
        bits.fold(0, |value, bit| times_x(value) ^ bit)
    }

    #[test]
    fn windows_are_divided_as_by_hand() {
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
    fn one_of_so_many_is_chosen_and_of_a_run_one() {
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
