//! Medians over seeds, and how sure they are (R6).

use packet::split_mix;
use serde::Serialize;

/// Resamples for an interval.
const RESAMPLES: usize = 2_000;

/// A figure over several seeds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Estimate {
    /// The median.
    pub median: f64,
    /// Lower end of its 95 % interval.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// The figure of each seed, in order of seeds.
    pub values: Vec<f64>,
}

impl Estimate {
    /// Of these values; none if there are none, or one of them is no number.
    pub fn of(values: Vec<f64>) -> Option<Estimate> {
        if values.is_empty() || values.iter().any(|value| value.is_nan()) {
            return None;
        }
        let median = median(&mut values.clone());
        let (low, high) = interval(&values);
        Some(Estimate { median, low, high, values })
    }

    /// Returns true if it is smaller and the intervals do not overlap.
    pub fn is_below(&self, other: &Estimate) -> bool {
        self.high < other.low
    }

    /// Returns true if the whole interval is at most this.
    pub fn is_at_most(&self, limit: f64) -> bool {
        self.high <= limit
    }

    /// Returns true if the whole interval is at least this.
    pub fn is_at_least(&self, limit: f64) -> bool {
        self.low >= limit
    }

    /// This over the other, seed by seed; none if they have not the same seeds.
    pub fn over(&self, other: &Estimate) -> Option<Estimate> {
        let pairs = self.values.iter().zip(&other.values);
        let is_paired = self.values.len() == other.values.len();
        Estimate::of(pairs.map(|(a, b)| a / b).collect()).filter(|_| is_paired)
    }
}

/// The median; sorts the values. Of no values, it is no number.
pub fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    let half = values.len() / 2;
    match values.len() {
        0 => f64::NAN,
        len if len.is_multiple_of(2) => (values[half - 1] + values[half]) / 2.0,
        _ => values[half],
    }
}

/// Returns the 95 % interval of the values' median, by bootstrap. Of one value, it is that value;
/// of three, the smallest to the largest.
pub fn interval(values: &[f64]) -> (f64, f64) {
    let mut state = 1;
    let mut draw = || values[(split_mix(&mut state) % values.len().max(1) as u64) as usize];
    if values.is_empty() {
        return (f64::NAN, f64::NAN);
    }
    let mut medians: Vec<f64> =
        (0..RESAMPLES).map(|_| median(&mut (0..values.len()).map(|_| draw()).collect::<Vec<_>>())).collect();
    medians.sort_by(f64::total_cmp);
    (medians[RESAMPLES / 40], medians[RESAMPLES - 1 - RESAMPLES / 40])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_holds_the_median_and_not_much_more() {
        let mut values: Vec<f64> = (0..101).map(f64::from).collect();
        assert_eq!(median(&mut values), 50.0);
        let (low, high) = interval(&values);
        assert!((30.0..45.0).contains(&low) && (55.0..70.0).contains(&high), "{low} {high}");
        assert_eq!(interval(&[7.0, 7.0]), (7.0, 7.0));
        assert_eq!(interval(&[3.0, 1.0, 2.0]), (1.0, 3.0));
        assert_eq!(median(&mut [1.0, 2.0, 4.0, 9.0]), 3.0);
    }

    #[test]
    fn what_overlaps_does_not_count() {
        let of = |values: &[f64]| Estimate::of(values.to_vec()).unwrap();
        assert!(of(&[1.0, 2.0, 3.0]).is_below(&of(&[4.0, 5.0, 6.0])));
        assert!(!of(&[1.0, 2.0, 4.5]).is_below(&of(&[4.0, 5.0, 6.0])));
        assert!(of(&[1.0, 2.0]).is_at_most(2.0) && !of(&[1.0, 2.0]).is_at_most(1.9));
        assert!(of(&[1.0, 2.0]).is_at_least(1.0) && !of(&[1.0, 2.0]).is_at_least(1.1));
    }

    #[test]
    fn ratios_are_of_pairs() {
        let of = |values: &[f64]| Estimate::of(values.to_vec()).unwrap();
        assert_eq!(of(&[2.0, 9.0, 8.0]).over(&of(&[1.0, 3.0, 4.0])).unwrap().values, [2.0, 3.0, 2.0]);
        assert_eq!(of(&[2.0, 9.0]).over(&of(&[1.0])), None);
        assert_eq!(of(&[0.0]).over(&of(&[0.0])), None);
        assert_eq!(Estimate::of(vec![]), None);
    }
}
