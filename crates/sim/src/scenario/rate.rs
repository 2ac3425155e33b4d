//! A rate that changes over time, and the arrivals of packets with gaps scaled to it.

use std::fmt;

use serde::de::value::SeqAccessDeserializer;
use serde::de::{Deserialize, Deserializer, Error, SeqAccess, Visitor};

use values::{Nanos, PositiveBitRate};

/// A rate over time: straight lines between points, constant before the first and after the last.
#[derive(Clone, Debug, PartialEq)]
pub struct RateCurve {
    points: Vec<(Nanos, PositiveBitRate)>,
}

/// The reason why points are no curve.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RateCurveError {
    /// There are no points.
    #[error("a curve needs a point of time and rate: [[\"0s\", \"1Gbps\"]]")]
    Empty,
    /// They are not in order of time.
    #[error("the points of a curve come in order of time, each later than the one before")]
    Unordered,
}

impl RateCurve {
    /// Creates the curve through these points.
    ///
    /// # Errors
    /// If there are none, or they are not in order of time.
    pub fn new(points: Vec<(Nanos, PositiveBitRate)>) -> Result<RateCurve, RateCurveError> {
        if points.is_empty() {
            return Err(RateCurveError::Empty);
        }
        if points.windows(2).any(|pair| pair[0].0 >= pair[1].0) {
            return Err(RateCurveError::Unordered);
        }
        Ok(RateCurve { points })
    }

    /// Creates a constant rate.
    pub fn flat(rate: PositiveBitRate) -> RateCurve {
        RateCurve { points: vec![(Nanos(0), rate)] }
    }

    /// Creates a curve from 1 to 10 Gbps and back within 8 seconds, with a mean of 5 Gbps (R5).
    pub fn up_and_down() -> RateCurve {
        let point = |ms: u64, gbps: u64| (Nanos(ms * 1_000_000), PositiveBitRate(gbps * 1_000_000_000));
        let points = [
            (0, 1),
            (300, 2),
            (700, 8),
            (1_000, 5),
            (1_400, 3),
            (1_800, 9),
            (2_200, 10),
            (2_600, 4),
            (3_000, 2),
            (3_500, 6),
            (4_000, 5),
            (4_400, 9),
            (4_900, 3),
            (5_400, 4),
            (5_800, 10),
            (6_300, 6),
            (6_800, 1),
            (7_300, 5),
            (8_000, 2),
        ];
        RateCurve { points: points.into_iter().map(|(ms, gbps)| point(ms, gbps)).collect() }
    }

    /// Returns the bits per second at this time.
    pub fn at(&self, time_ns: u64) -> f64 {
        let next = self.points.partition_point(|&(at, _)| at.0 <= time_ns);
        let rate = |i: usize| self.points[i].1.0 as f64;
        if next == 0 {
            return rate(0);
        }
        let Some(&(to, _)) = self.points.get(next) else { return rate(next - 1) };
        let from = self.points[next - 1].0;
        let share = (time_ns - from.0) as f64 / (to.0 - from.0) as f64;
        rate(next - 1) + share * (rate(next) - rate(next - 1))
    }

    /// Returns the bits until this time.
    pub fn bits_until(&self, time_ns: u64) -> f64 {
        let ends = self.points.iter().map(|&(at, _)| at.0).take_while(|&at| at < time_ns).chain([time_ns]);
        let (mut bits, mut from) = (0.0, 0);
        for end in ends {
            // Within a segment the rate is linear.
            bits += (end - from) as f64 * 1e-9 * (self.at(from) + self.at(end)) / 2.0;
            from = end;
        }
        bits
    }
}

impl<'de> Deserialize<'de> for RateCurve {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<RateCurve, D::Error> {
        from.deserialize_any(Points)
    }
}

/// Reads points, or a constant rate.
struct Points;

impl<'de> Visitor<'de> for Points {
    type Value = RateCurve;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a rate, such as \"1Gbps\", or points of time and rate, such as [[\"0s\", \"1Gbps\"]]")
    }

    fn visit_str<E: Error>(self, rate: &str) -> Result<RateCurve, E> {
        rate.parse().map(RateCurve::flat).map_err(E::custom)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, points: A) -> Result<RateCurve, A::Error> {
        let points = Vec::deserialize(SeqAccessDeserializer::new(points))?;
        RateCurve::new(points).map_err(A::Error::custom)
    }
}

/// The arrival times of given numbers of bits; the numbers never decrease.
#[derive(Clone, Debug)]
pub struct Warp {
    curve: RateCurve,
    /// The curve's segment of the last answer.
    segment: Segment,
}

/// A part of a curve with a straight line.
#[derive(Clone, Copy, Debug)]
struct Segment {
    /// The curve's first point after it.
    next: usize,
    from_ns: f64,
    bits_before: f64,
    /// Bits of the segment; `None` if it never ends.
    bits: Option<f64>,
    rate: f64,
    /// Slope of the rate, in bits per second per second.
    slope: f64,
}

impl Warp {
    /// Follows this curve, from time 0.
    pub fn new(curve: RateCurve) -> Warp {
        let segment = segment(&curve, 0, 0.0, 0.0);
        Warp { curve, segment }
    }

    /// Returns the time in ns when this many bits have arrived. They must not be fewer than in the
    /// call before.
    #[inline]
    pub fn time_ns(&mut self, bits: f64) -> u64 {
        while let Some(in_segment) = self.segment.bits
            && bits >= self.segment.bits_before + in_segment
        {
            let (next, before) = (self.segment.next, self.segment.bits_before + in_segment);
            self.segment = segment(&self.curve, next + 1, self.curve.points[next].0.0 as f64, before);
        }
        let s = &self.segment;
        let bits = bits - s.bits_before;
        // rate * t + slope / 2 * t^2 = bits, solved so that a slope of 0 is no special case.
        let root = (s.rate * s.rate + 2.0 * s.slope * bits).max(0.0).sqrt();
        (s.from_ns + 2e9 * bits / (s.rate + root)) as u64
    }
}

/// Returns the segment before point `next`.
fn segment(curve: &RateCurve, next: usize, from_ns: f64, bits_before: f64) -> Segment {
    let rate = curve.at(from_ns as u64);
    let end = curve.points.get(next).map(|&(at, to)| (at.0 as f64, to.0 as f64));
    let (bits, slope) = match end {
        Some((end_ns, end_rate)) => {
            let seconds = (end_ns - from_ns) * 1e-9;
            let slope = if seconds > 0.0 { (end_rate - rate) / seconds } else { 0.0 };
            (Some(seconds * (rate + end_rate) / 2.0), slope)
        }
        None => (None, 0.0),
    };
    Segment { next, from_ns, bits_before, bits, rate, slope }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_come_when_their_bits_have() {
        let curve = RateCurve::up_and_down();
        let mut warp = Warp::new(curve.clone());
        let mut last = 0;
        for time_ns in (0..12_000_000_000).step_by(1_234_567) {
            let bits = curve.bits_until(time_ns);
            let back = warp.time_ns(bits);
            assert!(back.abs_diff(time_ns) <= 2_000, "{time_ns} {back}");
            assert!(back >= last);
            last = back;
        }
    }

    #[test]
    fn a_curve_has_its_points() {
        let curve = RateCurve::up_and_down();
        assert_eq!((curve.at(0), curve.at(700_000_000), curve.at(u64::MAX)), (1e9, 8e9, 2e9));
        assert_eq!(curve.at(150_000_000), 1.5e9);
        let mean = curve.bits_until(8_000_000_000) / 8.0;
        assert!((mean / 5.2e9 - 1.0).abs() < 0.1, "{mean}");
        assert_eq!(RateCurve::new(vec![]), Err(RateCurveError::Empty));
        let back = vec![(Nanos(5), PositiveBitRate(1)), (Nanos(5), PositiveBitRate(2))];
        assert_eq!(RateCurve::new(back), Err(RateCurveError::Unordered));
    }
}
