//! Sizes of flows and packets.

use crate::random::{Random, Table};

/// A Pareto distribution between two bounds: many small values, and a few large ones with most of
/// the total.
#[derive(Clone, Copy, Debug)]
pub struct BoundedPareto {
    alpha: f64,
    low: f64,
    high: f64,
    /// The bounds to the power of minus `alpha`.
    powers: [f64; 2],
}

impl BoundedPareto {
    /// Creates a distribution of values from `low` to `high`; a greater `alpha` gives more small
    /// ones. `alpha` may be negative, but not 0.
    pub fn new(alpha: f64, low: f64, high: f64) -> BoundedPareto {
        let powers = [low, high].map(|bound| libm::pow(bound, -alpha));
        BoundedPareto { alpha, low, high, powers }
    }

    /// Fits `alpha` between these bounds so that `measure`, which must fall as `alpha` grows, is
    /// `wanted`.
    pub fn fitted(
        low: f64,
        high: f64,
        wanted: f64,
        measure: impl Fn(&BoundedPareto) -> f64,
    ) -> BoundedPareto {
        let (mut least, mut most) = (-2.0, 6.0);
        for _ in 0..60 {
            let alpha = (least + most) / 2.0;
            match measure(&BoundedPareto::new(alpha, low, high)) > wanted {
                true => least = alpha,
                false => most = alpha,
            }
        }
        BoundedPareto::new((least + most) / 2.0, low, high)
    }

    /// Draws a value.
    pub fn draw(&self, random: &mut Random) -> f64 {
        let [low, high] = self.powers;
        libm::pow(low - random.share() * (low - high), -1.0 / self.alpha)
    }

    /// Returns the mean of the values' `k`-th powers.
    pub fn moment(&self, k: f64) -> f64 {
        // The integral of x^(e-1) between the bounds, which is a logarithm where e is 0.
        let integral = |e: f64| match e.abs() < 1e-9 {
            true => libm::log(self.high / self.low),
            false => (libm::pow(self.high, e) - libm::pow(self.low, e)) / e,
        };
        integral(k - self.alpha) / integral(-self.alpha)
    }
}

/// Returns packet sizes between quantiles: each is the share of packets up to a size, and the size
/// in bytes. Sizes grow exponentially in between.
pub fn packet_sizes(quantiles: &[(f64, f64)]) -> Table {
    Table::new(|share| {
        let next = quantiles.partition_point(|&(at, _)| at < share).clamp(1, quantiles.len() - 1);
        let ((from, low), (to, high)) = (quantiles[next - 1], quantiles[next]);
        libm::round(low * libm::pow(high / low, (share - from) / (to - from)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_those_of_the_values() {
        for alpha in [-0.5, 0.3, 0.6, 1.0, 1.7] {
            let pareto = BoundedPareto::new(alpha, 10.0, 1_000.0);
            let mut random = Random::new(3, "test");
            let values: Vec<f64> = (0..200_000).map(|_| pareto.draw(&mut random)).collect();
            assert!(values.iter().all(|value| (9.999..1_000.001).contains(value)));
            for k in [0.5, 1.0, -1.0] {
                let mean = values.iter().map(|&value| libm::pow(value, k)).sum::<f64>() / 200_000.0;
                assert!((mean / pareto.moment(k) - 1.0).abs() < 0.02, "{alpha} {k}: {mean}");
            }
        }
    }

    #[test]
    fn a_distribution_is_fitted_to_its_mean() {
        let pareto = BoundedPareto::fitted(10.0, 10_000.0, 300.0, |pareto| pareto.moment(1.0));
        assert!((pareto.moment(1.0) / 300.0 - 1.0).abs() < 1e-6);
    }

    #[test]
    fn packets_have_their_quantiles() {
        let table = packet_sizes(&[(0.0, 60.0), (0.4, 100.0), (0.45, 1434.0), (1.0, 1434.0)]);
        let mut random = Random::new(1, "test");
        let mut sizes: Vec<f64> = (0..10_000).map(|_| table.draw(&mut random)).collect();
        sizes.sort_by(f64::total_cmp);
        assert_eq!(sizes[5_000], 1434.0);
        assert!(sizes[3_700] < 100.0 && sizes[0] >= 60.0 && sizes[9_999] == 1434.0);
    }
}
