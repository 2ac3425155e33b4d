//! Figures of reports. Those about intervals leave the first out, which is the warm-up.

use protocol::metering::{Interval, Tracking};
use sim::Report;

use crate::table::{FigureUnit, ReportGauge, TableMetric};

macro_rules! gauges {
    ($($(#[$doc:meta])* $ident:ident = $name:literal, $unit:ident, |$report:ident| $of:expr;)*) => {$(
        $(#[$doc])*
        pub const $ident: ReportGauge =
            ReportGauge { metric: TableMetric { name: $name, unit: FigureUnit::$unit }, of: |$report: &Report| $of };
    )*};
}

gauges! {
    /// Of latency at the unit (S91), the 1st percentile.
    P1 = "p1", Ns, |r| Some(r.latency_at_unit.p1_ns as f64);
    /// The 25th.
    P25 = "p25", Ns, |r| Some(r.latency_at_unit.p25_ns as f64);
    /// The median.
    P50 = "p50", Ns, |r| Some(r.latency_at_unit.p50_ns as f64);
    /// The 75th.
    P75 = "p75", Ns, |r| Some(r.latency_at_unit.p75_ns as f64);
    /// The 99th.
    P99 = "p99", Ns, |r| Some(r.latency_at_unit.p99_ns as f64);
    /// The 99.9th.
    P99_9 = "p99.9", Ns, |r| Some(r.latency_at_unit.p99_9_ns as f64);

    /// Share of intervals with capacity within a unit of demand.
    WITHIN_1 = "within 1 unit", Share, |r| Some(within(r, 1.0));
    /// Within two.
    WITHIN_2 = "within 2 units", Share, |r| Some(within(r, 2.0));
    /// Mean distance of capacity from demand.
    ERROR = "off demand", BitsPerSecond, |r| Some(tracking(r).error_mean_bps);
    /// 95th percentile of it.
    ERROR_P95 = "p95 of that", BitsPerSecond, |r| Some(tracking(r).error_p95_bps);
    /// Capacity beyond demand, over time.
    OVER = "over", Bits, |r| Some(tracking(r).over_bits);
    /// Demand beyond capacity, over time.
    UNDER = "under", Bits, |r| Some(tracking(r).under_bits);
    /// Both: the area between provision and demand.
    AREA = "area", Bits, |r| Some(tracking(r).over_bits + tracking(r).under_bits);
    /// Units in the mean.
    UNITS = "units", Count, |r| Some(tracking(r).units_mean);
    /// Unit-seconds.
    UNIT_SECONDS = "unit-seconds", Count, |r| Some(tracking(r).unit_seconds);
    /// The same relative to the fewest units that can hold each interval's demand.
    OVER_ORACLE = "x oracle", Ratio, |r| {
        Some(tracking(r).unit_seconds / Tracking::of(&oracle(intervals(r))).unit_seconds)
    };
    /// Share of units' intervals with more work than the unit can do (S92).
    OVERLOADED = "above 100 %", Share, |r| Some(tracking(r).overloaded);
    /// With less than half of that (S92).
    UNDERLOADED = "below 50 %", Share, |r| Some(tracking(r).underloaded);

    /// Flowlets per flow (S89, S99).
    FLOWLETS = "flowlets per flow", Ratio, |r| Some(r.assignment.flowlets_per_flow);
    /// Flows.
    FLOWS = "flows", Count, |r| Some(r.assignment.flows as f64);
    /// Share of changes of a unit with the state already there (S95); 1 if no flow changed its
    /// unit.
    SEAMLESS = "seamless", Share, |r| Some(r.state.seamless_share.unwrap_or(1.0));
    /// States that had to be fetched.
    PULLS = "pulls", Count, |r| Some(r.state.pulls as f64);
    /// States on links (S103).
    STATE_RATE = "states", BitsPerSecond, |r| Some(r.state.rate_bps);
    /// The same for each unit.
    STATE_RATE_PER_UNIT = "per unit", BitsPerSecond, |r| Some(r.state.rate_bps / tracking(r).units_mean);
    /// The same for each flowlet.
    STATE_PER_FLOWLET = "per flowlet", Bits, |r| {
        let bytes = r.state.replica_bytes + r.state.moved_bytes;
        Some(bytes as f64 * 8.0 / r.assignment.flowlets.max(1) as f64)
    };
    /// Packets that were dropped.
    DROPPED = "dropped", Count, |r| Some(r.drops.values().sum::<u64>() as f64);
}

/// The intervals that count.
pub fn intervals(report: &Report) -> &[Interval] {
    report.intervals.get(1..).unwrap_or_default()
}

fn tracking(report: &Report) -> Tracking {
    Tracking::of(intervals(report))
}

/// Returns the share of intervals with capacity within `units` units of demand.
fn within(report: &Report, units: f64) -> f64 {
    let intervals = intervals(report);
    let is_within = |interval: &&Interval| {
        let unit_bps = interval.provisioned_bps / interval.units;
        (interval.provisioned_bps - interval.demand_bps).abs() <= units * unit_bps
    };
    intervals.iter().filter(is_within).count() as f64 / intervals.len().max(1) as f64
}

/// Returns the same intervals with as few units as can hold each demand: perfect knowledge.
pub fn oracle(intervals: &[Interval]) -> Vec<Interval> {
    let pack = |interval: &Interval| {
        let unit_bps = interval.provisioned_bps / interval.units;
        let units = (interval.demand_bps / unit_bps).ceil().max(1.0);
        let load = interval.demand_bps / unit_bps / units;
        Interval {
            provisioned_bps: units * unit_bps,
            units,
            unit_seconds: units * interval.length_ns as f64 * 1e-9,
            utilisation: (0..units as u16).map(|unit| (unit, load)).collect(),
            ..interval.clone()
        }
    };
    // An interval without a unit has no capacity per unit; in fact at least one always runs.
    intervals.iter().filter(|interval| interval.units > 0.0).map(pack).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oracle_packs_demand_into_as_few_units_as_can_hold_it() {
        let interval = |demand_bps, units| Interval {
            length_ns: 100_000_000,
            demand_bps,
            units,
            provisioned_bps: units * 1e9,
            ..Interval::default()
        };
        let packed = oracle(&[interval(4.1e9, 9.0), interval(0.0, 1.0), interval(3e9, 2.0)]);
        let units: Vec<f64> = packed.iter().map(|interval| interval.units).collect();
        assert_eq!(units, [5.0, 1.0, 3.0]);
        assert_eq!(packed[2].utilisation, [(0, 1.0), (1, 1.0), (2, 1.0)]);
        assert!((packed[0].unit_seconds - 0.5).abs() < 1e-12);
    }
}
