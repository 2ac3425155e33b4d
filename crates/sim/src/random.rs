//! Repeatable randomness: a seed gives the same numbers on every machine.
//!
//! Logarithms and powers are those of `libm`: the standard library's may differ in the last bit
//! between platforms, and one bit is enough for another report.

use packet::split_mix;

/// A stream of random numbers.
#[derive(Clone, Debug)]
pub struct Random {
    state: u64,
}

impl Random {
    /// Creates the stream of this seed and purpose. Streams of different purposes are independent.
    pub fn new(seed: u64, purpose: &str) -> Random {
        let mut state = seed;
        for byte in purpose.bytes() {
            state = split_mix(&mut state) ^ u64::from(byte);
        }
        Random { state }
    }

    /// Returns 64 random bits.
    #[inline]
    pub fn bits(&mut self) -> u64 {
        split_mix(&mut self.state)
    }

    /// Returns a number in 0..1, never 1.
    #[inline]
    pub fn share(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Returns a number below `end`; 0 if that is 0.
    #[inline]
    pub fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.bits()) * u128::from(end)) >> 64) as u64
    }

    /// Returns true with this probability. Probability 0 draws no number.
    #[inline]
    pub fn happens(&mut self, probability: f64) -> bool {
        probability > 0.0 && self.share() < probability
    }

    /// Returns the time until the next of independent events, in units of its mean.
    #[inline]
    pub fn exponential(&mut self) -> f64 {
        -libm::log(1.0 - self.share())
    }
}

/// Values of a [`Table`]; its tails end at the quantiles half a value from the ends.
const TABLE_LEN: usize = 2048;

/// A distribution, as a table of equally likely values: a draw is one look-up.
#[derive(Clone, Debug)]
pub struct Table {
    values: Vec<f32>,
}

impl Table {
    /// Creates the distribution with this quantile function.
    pub fn new(quantile: impl FnMut(f64) -> f64) -> Table {
        let middle = |i: usize| (i as f64 + 0.5) / TABLE_LEN as f64;
        Table { values: (0..TABLE_LEN).map(middle).map(quantile).map(|value| value as f32).collect() }
    }

    /// Creates a log-normal distribution with this median; `sigma` is the standard deviation of the
    /// logarithms.
    pub fn log_normal(median: f64, sigma: f64) -> Table {
        Table::new(|share| median * libm::exp(sigma * normal_quantile(share)))
    }

    /// Draws a value.
    #[inline]
    pub fn draw(&self, random: &mut Random) -> f64 {
        f64::from(self.values[(random.bits() >> (u64::BITS - TABLE_LEN.ilog2())) as usize])
    }

    /// Returns the mean of the values.
    pub fn mean(&self) -> f64 {
        self.values.iter().map(|&value| f64::from(value)).sum::<f64>() / TABLE_LEN as f64
    }
}

/// Returns the quantile of the standard normal distribution, by Newton's method on its lower half,
/// where that converges from 0.
fn normal_quantile(share: f64) -> f64 {
    if share > 0.5 {
        return -normal_quantile(1.0 - share);
    }
    let mut z = 0.0;
    for _ in 0..100 {
        let cumulated = 0.5 * libm::erfc(-z / std::f64::consts::SQRT_2);
        let density = libm::exp(-z * z / 2.0) / libm::sqrt(2.0 * std::f64::consts::PI);
        let step = (cumulated - share) / density;
        z -= step;
        if step.abs() < 1e-12 {
            break;
        }
    }
    z
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_repeat_and_differ_by_seed_and_purpose() {
        let first = |seed, purpose| Random::new(seed, purpose).bits();
        assert_eq!(first(1, "loss"), first(1, "loss"));
        assert!(first(1, "loss") != first(2, "loss") && first(1, "loss") != first(1, "jitter"));
    }

    #[test]
    fn quantiles_are_those_of_the_books() {
        for (share, z) in [(0.5, 0.0), (0.841_344_746, 1.0), (0.975, 1.959_963_985), (0.001, -3.090_232_306)]
        {
            assert!((normal_quantile(share) - z).abs() < 1e-6, "{share}");
        }
    }

    #[test]
    fn a_log_normal_has_its_mean() {
        let mean = Table::log_normal(20.0, 1.0).mean();
        assert!((mean / (20.0 * libm::exp(0.5)) - 1.0).abs() < 0.01, "{mean}");
        let mut random = Random::new(1, "test");
        let exponential: f64 = (0..100_000).map(|_| random.exponential()).sum();
        assert!((exponential / 1e5 - 1.0).abs() < 0.02);
    }
}
