//! Seeded randomness, and the distributions of traffic.
//!
//! It does not use a library, because a seed must mean the same traffic for good, and libraries
//! change their algorithms between versions.

/// A SplitMix64 generator (Steele, Lea and Flood, 2014): one word of state, several hundred million
/// numbers per second.
#[derive(Clone, Debug)]
pub(super) struct Random {
    state: u64,
}

impl Random {
    /// Returns the stream with this number under a seed; streams are independent.
    pub fn stream(seed: u64, number: u64) -> Random {
        Random { state: mix(seed) ^ mix(!number) }
    }

    /// Returns 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.state)
    }

    /// Returns a number below `limit`, which must not be 0.
    pub fn below(&mut self, limit: u64) -> u64 {
        ((u128::from(self.bits()) * u128::from(limit)) >> 64) as u64
    }

    /// Returns a number in 0.0..1.0.
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Returns true with this probability.
    pub fn chance(&mut self, probability: f64) -> bool {
        probability > 0.0 && self.unit() < probability
    }

    /// Returns an exponential variate.
    pub fn exponential(&mut self, mean: f64) -> f64 {
        -mean * (1.0 - self.unit()).ln()
    }

    /// Returns a log-normal variate; `sigma` is the standard deviation of its logarithm.
    pub fn log_normal(&mut self, median: f64, sigma: f64) -> f64 {
        // Box and Muller; one of the pair.
        let radius = (-2.0 * (1.0 - self.unit()).ln()).sqrt();
        let angle = std::f64::consts::TAU * self.unit();
        median * (sigma * radius * angle.cos()).exp()
    }

    /// Returns a geometric variate of at least 1 with this mean.
    pub fn geometric(&mut self, mean: f64) -> f64 {
        if mean <= 1.0 {
            return 1.0;
        }
        1.0 + ((1.0 - self.unit()).ln() / (1.0 - 1.0 / mean).ln()).floor()
    }

    /// Returns a Pareto variate of at least `least`; a smaller `alpha` has a heavier tail.
    pub fn pareto(&mut self, least: f64, alpha: f64) -> f64 {
        least / (1.0 - self.unit()).powf(1.0 / alpha)
    }
}

/// Mixes every bit into all others; a bijection.
pub(super) fn mix(mut word: u64) -> u64 {
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

/// Draws ranks with a probability proportional to `rank^-exponent`, by rejection-inversion (Hörmann
/// and Derflinger, 1996): constant time for any number of ranks, without a table.
#[derive(Clone, Debug)]
pub(super) struct Zipf {
    exponent: f64,
    ranks: u64,
    area_first: f64,
    area_last: f64,
    shortcut: f64,
}

/// An exponent this close to 1 is treated as 1, where the general formula loses precision.
const NEARLY_HARMONIC: f64 = 1e-9;

impl Zipf {
    pub fn new(exponent: f64, ranks: u64) -> Zipf {
        let mut zipf = Zipf { exponent, ranks: 0, area_first: 0.0, area_last: 0.0, shortcut: 0.0 };
        zipf.area_first = zipf.area(1.5) - 1.0;
        zipf.shortcut = 2.0 - zipf.area_inverse(zipf.area(2.5) - 2.0_f64.powf(-exponent));
        zipf.resize(ranks);
        zipf
    }

    /// Returns a rank below `ranks`, which must not be 0; rank 0 is the most likely.
    pub fn rank(&mut self, ranks: u64, random: &mut Random) -> u64 {
        if ranks != self.ranks {
            self.resize(ranks);
        }
        loop {
            let area = self.area_last + random.unit() * (self.area_first - self.area_last);
            let place = self.area_inverse(area);
            let rank = place.round().clamp(1.0, self.ranks as f64);
            if rank - place <= self.shortcut || area >= self.area(rank + 0.5) - rank.powf(-self.exponent) {
                return rank as u64 - 1;
            }
        }
    }

    fn resize(&mut self, ranks: u64) {
        self.ranks = ranks;
        self.area_last = self.area(ranks as f64 + 0.5);
    }

    /// Returns the area under `x^-exponent` from 1 to `place`.
    fn area(&self, place: f64) -> f64 {
        match 1.0 - self.exponent {
            power if power.abs() < NEARLY_HARMONIC => place.ln(),
            power => (place.powf(power) - 1.0) / power,
        }
    }

    fn area_inverse(&self, area: f64) -> f64 {
        match 1.0 - self.exponent {
            power if power.abs() < NEARLY_HARMONIC => area.exp(),
            power => (1.0 + area * power).powf(1.0 / power),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mean(count: u32, mut draw: impl FnMut() -> f64) -> f64 {
        (0..count).map(|_| draw()).sum::<f64>() / f64::from(count)
    }

    #[test]
    fn distributions_have_their_means() {
        let mut random = Random::stream(1, 0);
        let near = |found: f64, wanted: f64| assert!((found / wanted - 1.0).abs() < 0.03, "{found} {wanted}");
        near(mean(100_000, || random.unit()), 0.5);
        near(mean(100_000, || random.below(1_000) as f64), 499.5);
        near(mean(100_000, || random.exponential(70.0)), 70.0);
        near(mean(100_000, || random.geometric(12.0)), 12.0);
        near(mean(100_000, || random.pareto(2.0, 3.0)), 3.0);
        near(mean(100_000, || random.log_normal(5.0, 0.5)), 5.0 * 0.125_f64.exp());
    }

    #[test]
    fn streams_of_different_seeds_differ() {
        let first = |seed, number| Random::stream(seed, number).bits();
        assert_eq!(first(1, 2), first(1, 2));
        assert_ne!(first(1, 2), first(2, 1));
        assert_ne!(first(1, 1), first(1, 2));
    }

    #[test]
    fn zipf_ranks_have_their_probabilities() {
        const RANKS: u64 = 50;
        const DRAWS: u32 = 200_000;
        for exponent in [0.5, 1.0, 1.4] {
            let mut random = Random::stream(9, 9);
            let mut zipf = Zipf::new(exponent, 3);
            let mut counts = [0_u32; RANKS as usize];
            for _ in 0..DRAWS {
                counts[zipf.rank(RANKS, &mut random) as usize] += 1;
            }
            let weights: Vec<f64> = (1..=RANKS).map(|rank| (rank as f64).powf(-exponent)).collect();
            let total: f64 = weights.iter().sum();
            for (count, weight) in counts.iter().zip(&weights) {
                let expected = f64::from(DRAWS) * weight / total;
                assert!(
                    (f64::from(*count) - expected).abs() < 6.0 * expected.sqrt(),
                    "{exponent}: {count} {expected}"
                );
            }
        }
    }
}
