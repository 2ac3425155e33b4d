//! Demand and capacity over time as text.

use protocol::metering::Interval;

use crate::text::rate;

/// Lines of a picture; more intervals share lines.
const LINES: usize = 40;

/// Length of the longest bar in characters.
const WIDTH: f64 = 50.0;

/// Draws demand and capacity over time: full blocks are the demand met, light ones spare capacity,
/// crosses unmet demand.
pub fn draw(intervals: &[Interval]) -> String {
    let together = intervals.len().div_ceil(LINES).max(1);
    let rows: Vec<Row> = intervals.chunks(together).map(Row::of).collect();
    let most = rows.iter().map(|row| row.demand.max(row.provisioned)).fold(1.0, f64::max);
    rows.iter().map(|row| row.draw(WIDTH / most)).collect()
}

struct Row {
    start_ns: u64,
    demand: f64,
    provisioned: f64,
    units: f64,
}

impl Row {
    fn of(intervals: &[Interval]) -> Row {
        let length_ns: u64 = intervals.iter().map(|interval| interval.length_ns).sum();
        let mean = |of: fn(&Interval) -> f64| {
            intervals.iter().map(|interval| of(interval) * interval.length_ns as f64).sum::<f64>()
                / length_ns as f64
        };
        Row {
            start_ns: intervals[0].start_ns, // Chunks are never empty.
            demand: mean(|interval| interval.demand_bps),
            provisioned: mean(|interval| interval.provisioned_bps),
            units: mean(|interval| interval.units),
        }
    }

    fn draw(&self, scale: f64) -> String {
        let cells = |bps: f64| (bps * scale).round() as usize;
        let (demand, provisioned) = (cells(self.demand), cells(self.provisioned));
        let met = "█".repeat(demand.min(provisioned));
        let spare = "░".repeat(provisioned.saturating_sub(demand));
        let missing = "x".repeat(demand.saturating_sub(provisioned));
        let bar = met + &spare + &missing;
        let padding = " ".repeat(WIDTH as usize - bar.chars().count());
        format!(
            "{:>7.2} s  {bar}{padding}  {:>11} of {:>11}  {:>5.1} units\n",
            self.start_ns as f64 * 1e-9,
            rate(self.demand),
            rate(self.provisioned),
            self.units
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interval(start_ns: u64, demand_bps: f64, units: f64) -> Interval {
        let provisioned_bps = units * 1e9;
        Interval { start_ns, length_ns: 1_000, demand_bps, provisioned_bps, units, ..Interval::default() }
    }

    #[test]
    fn bars_show_demand_and_capacity() {
        let picture = draw(&[interval(0, 1e9, 2.0), interval(1_000, 5e9, 4.0)]);
        let bars: Vec<usize> = "█░x".chars().map(|c| picture.chars().filter(|&p| p == c).count()).collect();
        assert_eq!(bars, [10 + 40, 10, 10]);
        assert!(
            picture
                .lines()
                .all(|line| line.chars().count() == picture.lines().next().unwrap().chars().count())
        );
    }

    #[test]
    fn many_intervals_share_lines() {
        let intervals: Vec<_> = (0..100).map(|i| interval(i * 1_000, i as f64 * 1e7, 1.0)).collect();
        assert_eq!(draw(&intervals).lines().count(), 34);
        assert_eq!(draw(&[]), "");
    }
}
