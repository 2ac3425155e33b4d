//! Axes: places of values, ticks and their labels.

use super::{AxisScale, CHARACTER, ChartAxis, FigureChart};

/// Widest label of a name, in characters; longer ones are broken.
const NAME_MAX: usize = 15;

/// Logarithmic axes of fewer decades have ticks at 2 and 5 times the powers of ten, too.
const FEW_DECADES: f64 = 2.7;

/// An axis of this length.
pub struct Axis {
    scale: AxisScale,
    length: f64,
    /// The ends: values, or their logarithms.
    low: f64,
    high: f64,
}

impl Axis {
    /// The axis of a chart for all values of its series.
    pub fn new(chart: &FigureChart, axis: &ChartAxis, length: f64, of: fn(&(f64, f64)) -> f64) -> Axis {
        let series = chart.series.iter();
        let points = series.flat_map(|series| series.points.iter().chain(&series.published));
        let values: Vec<f64> = points.map(of).filter(|value| value.is_finite()).collect();
        let most = values.iter().copied().fold(0.0, f64::max);
        let (low, high) = match &axis.scale {
            AxisScale::Names(names) => (-0.5, names.len() as f64 - 0.5),
            AxisScale::Linear => (0.0, if most > 0.0 { most * 1.05 } else { 1.0 }),
            AxisScale::Logarithmic => {
                let above = values.iter().copied().filter(|&value| value > 0.0);
                let least = above.fold(f64::INFINITY, f64::min);
                let (least, most) = if least <= most { (least, most) } else { (1.0, 10.0) };
                let room = (most / least).log10() * 0.05;
                (
                    (least.log10() - room).min(most.log10() - 0.5),
                    (most.log10() + room).max(least.log10() + 0.5),
                )
            }
        };
        Axis { scale: axis.scale.clone(), length, low, high }
    }

    /// Returns the distance of a value from the beginning; `None` if it is not on the axis. Below a
    /// logarithmic axis, values are at its beginning.
    pub fn place(&self, value: f64) -> Option<f64> {
        let value = match self.scale {
            AxisScale::Logarithmic if value <= 0.0 => return Some(0.0),
            AxisScale::Logarithmic => value.log10(),
            _ => value,
        };
        let share = (value - self.low) / (self.high - self.low);
        (-1e-9..=1.0 + 1e-9).contains(&share).then_some(share * self.length)
    }

    /// Returns the distance of two neighbours.
    pub fn step(&self) -> f64 {
        match &self.scale {
            AxisScale::Names(names) => self.length / names.len().max(1) as f64,
            _ => self.length / 10.0,
        }
    }

    /// Returns the places of ticks, and their labels.
    pub fn ticks(&self) -> Vec<(f64, String)> {
        let values: Vec<(f64, String)> = match &self.scale {
            AxisScale::Names(names) => {
                (0..).zip(names).map(|(at, name)| (f64::from(at), name.clone())).collect()
            }
            AxisScale::Linear => {
                let step = nice_step(self.high - self.low);
                let count = (self.high / step).floor() as u32;
                (0..=count).map(|at| f64::from(at) * step).map(|value| (value, number(value))).collect()
            }
            AxisScale::Logarithmic => {
                let decades = self.high - self.low;
                let factors: &[f64] = if decades < FEW_DECADES { &[1.0, 2.0, 5.0] } else { &[1.0] };
                let every = (decades / 8.0).ceil().max(1.0) as i32;
                let first = self.low.floor() as i32;
                let powers = (first..=self.high.ceil() as i32).filter(|power| power % every == 0);
                let values = powers.flat_map(|power| factors.iter().map(move |f| f * 10f64.powi(power)));
                values.map(|value| (value, number(value))).collect()
            }
        };
        let placed = values.into_iter().filter_map(|(value, label)| Some((self.place(value)?, label)));
        // Values below a logarithmic axis have no ticks.
        placed.filter(|(at, _)| *at > 0.0 || !matches!(self.scale, AxisScale::Logarithmic)).collect()
    }

    /// Returns the lines of a label. A word that is longer than a line is broken after a colon or a
    /// hyphen.
    pub fn broken(&self, label: &str) -> Vec<String> {
        let room =
            ((self.step() / CHARACTER) as usize).clamp(6, NAME_MAX.max((self.step() / CHARACTER) as usize));
        let mut lines: Vec<String> = Vec::new();
        let fits = |line: &str, rest: &str| line.chars().count() + rest.chars().count() <= room;
        for word in label.split(' ') {
            let is_long = !fits(word, "");
            let parts = if is_long { word.split_inclusive([':', '-']).collect() } else { vec![word] };
            for (number, part) in parts.into_iter().enumerate() {
                let gap = if number == 0 { " " } else { "" };
                match lines.last_mut() {
                    Some(line) if fits(line, &format!("{gap}{part}")) => *line += &format!("{gap}{part}"),
                    _ => lines.push(part.to_owned()),
                }
            }
        }
        lines
    }

    /// Returns the lines of the longest label.
    pub fn label_lines(&self) -> usize {
        match &self.scale {
            AxisScale::Names(names) => names.iter().map(|name| self.broken(name).len()).max().unwrap_or(1),
            _ => 1,
        }
    }
}

/// A step of 1, 2 or 5 times a power of ten, such that there are four to ten of them.
fn nice_step(range: f64) -> f64 {
    let power = 10f64.powf((range / 4.0).log10().floor());
    let fits = |factor: &&f64| range / (**factor * power) >= 4.0;
    [5.0, 2.0, 1.0].iter().find(fits).unwrap_or(&1.0) * power
}

/// A number without digits that say nothing.
pub fn number(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        size if size >= 999_999.5 => format!("{}M", short(value / 1e6)),
        size if size >= 9_999.5 => format!("{}k", short(value / 1e3)),
        size if size < 1e-3 => format!("{value:.0e}"),
        _ => short(value),
    }
}

fn short(value: f64) -> String {
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        let numbers = [0.0, 0.5, 1234.5, 1e6, 2e-9, -3.0, 25_000.0];
        assert_eq!(numbers.map(number), ["0", "0.5", "1234.5", "1M", "2e-9", "-3", "25k"]);
    }

    #[test]
    fn labels_are_broken_where_they_can_be() {
        let names = ["rss:128:100ms", "plus: follows, and stays", "flow"].map(str::to_owned).to_vec();
        let axis = Axis { scale: AxisScale::Names(names), length: 270.0, low: -0.5, high: 2.5 };
        assert_eq!(axis.broken("rss:128:100ms"), ["rss:128:", "100ms"]);
        assert_eq!(axis.broken("plus: follows, and stays"), ["plus:", "follows, and", "stays"]);
        assert_eq!(axis.label_lines(), 3);
    }

    #[test]
    fn steps_are_nice() {
        assert_eq!([10.0, 4.2, 39.0, 0.7].map(nice_step), [2.0, 1.0, 5.0, 0.1]);
    }
}
