//! Weighted sampling at constant cost.

/// A sampler of numbers from 0 on by weight, by Walker's alias method. Probabilities are exact to
/// within 2^-32.
#[derive(Default)]
pub(crate) struct WeightedSampler {
    /// One lot per number; all are equally likely.
    lots: Vec<Lot>,
}

/// A lot for its own number and another one.
#[derive(Clone, Copy)]
struct Lot {
    /// Threshold below which its own number is drawn.
    own_below: u32,
    other: u16,
}

impl WeightedSampler {
    /// Creates a sampler with room for this many numbers.
    pub fn with_capacity(count: usize) -> WeightedSampler {
        WeightedSampler { lots: Vec::with_capacity(count) }
    }

    /// Sets the weights of the numbers: above 0, and at most 2^16.
    pub fn set(&mut self, weights: impl Iterator<Item = f64> + Clone) {
        let count = weights.clone().count();
        let sum: f64 = weights.clone().sum();
        // The share that each number still needs; a lot is worth 1.
        let mut due: Vec<f64> = weights.map(|weight| weight / sum * count as f64).collect();
        self.lots.clear();
        self.lots.extend((0..count).map(|number| Lot { own_below: u32::MAX, other: number as u16 }));
        let (mut small, mut large): (Vec<usize>, Vec<usize>) =
            (0..count).rev().partition(|&number| due[number] < 1.0);
        while let (Some(less), Some(&more)) = (small.pop(), large.last()) {
            self.lots[less] = Lot { own_below: (due[less] * 2f64.powi(32)) as u32, other: more as u16 };
            due[more] -= 1.0 - due[less];
            if due[more] < 1.0 {
                large.pop();
                small.push(more);
            }
        }
    }

    /// Returns a number for 64 random bits; 0 if there is none.
    #[inline]
    pub fn draw(&self, random: u64) -> usize {
        let (which, below) = (random >> 32, random as u32);
        let number = ((which * self.lots.len() as u64) >> 32) as usize;
        let Some(lot) = self.lots.get(number) else {
            return 0;
        };
        // Both are at hand: no branch that could be mispredicted.
        std::hint::select_unpredictable(below < lot.own_below, number, lot.other.into())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// The shares of all lots add up to each number's weight.
        #[test]
        fn shares_are_those_of_the_weights(weights in prop::collection::vec(0.01f64..10.0, 1..300)) {
            let mut lottery = WeightedSampler::with_capacity(0);
            lottery.set(weights.iter().copied());
            let mut shares = vec![0.0; weights.len()];
            for (number, lot) in lottery.lots.iter().enumerate() {
                let own = f64::from(lot.own_below) / 2f64.powi(32);
                shares[number] += own / weights.len() as f64;
                shares[usize::from(lot.other)] += (1.0 - own) / weights.len() as f64;
            }
            let sum: f64 = weights.iter().sum();
            for (share, weight) in shares.iter().zip(&weights) {
                prop_assert!((share - weight / sum).abs() < 1e-8, "{share} for {weight} of {sum}");
            }
        }
    }

    #[test]
    fn every_lot_is_drawn() {
        let mut lottery = WeightedSampler::default();
        assert_eq!(lottery.draw(u64::MAX), 0, "there is none");
        lottery.set([3.0, 1.0].into_iter());
        let quarters = [0u64, 1 << 30, 2 << 30, 3 << 30];
        let drawn = [0u64, 1 << 31].map(|which| quarters.map(|below| lottery.draw(which << 32 | below)));
        assert_eq!(drawn, [[0, 0, 0, 0], [1, 1, 0, 0]]);
    }
}
