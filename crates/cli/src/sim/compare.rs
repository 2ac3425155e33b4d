//! Comparison of several runs: a column for each mode, and the spread over seeds (R6).

use ::lab::{interval, median};
use ::sim::Report;

use crate::output::{Table, duration};

/// A figure of a run, and its format.
struct Figure {
    name: &'static str,
    of: fn(&Report) -> Option<f64>,
    show: fn(f64) -> String,
}

const FIGURES: &[Figure] = &[
    Figure { name: "latency at the unit, p25", of: |r| Some(r.latency_at_unit.p25_ns as f64), show: time },
    Figure { name: "p50", of: |r| Some(r.latency_at_unit.p50_ns as f64), show: time },
    Figure { name: "p75", of: |r| Some(r.latency_at_unit.p75_ns as f64), show: time },
    Figure { name: "p99", of: |r| Some(r.latency_at_unit.p99_ns as f64), show: time },
    Figure { name: "p99.9", of: |r| Some(r.latency_at_unit.p99_9_ns as f64), show: time },
    Figure { name: "units, mean", of: |r| Some(r.tracking.units_mean), show: decimal },
    Figure { name: "unit-seconds", of: |r| Some(r.tracking.unit_seconds), show: decimal },
    Figure {
        name: "deviation from demand, Gbit/s",
        of: |r| Some(r.tracking.error_mean_bps * 1e-9),
        show: decimal,
    },
    Figure { name: "intervals overloaded", of: |r| Some(r.tracking.overloaded), show: percent },
    Figure { name: "intervals less than half used", of: |r| Some(r.tracking.underloaded), show: percent },
    Figure { name: "flowlets per flow", of: |r| Some(r.assignment.flowlets_per_flow), show: decimal },
    Figure { name: "states present in time", of: |r| r.state.seamless_share, show: percent },
    Figure { name: "states pulled", of: |r| Some(r.state.pulls as f64), show: whole },
    Figure { name: "states sent, Mbit/s", of: |r| Some(r.state.rate_bps * 1e-6), show: decimal },
    Figure { name: "packets not processed", of: |r| Some(r.drops.values().sum::<u64>() as f64), show: whole },
];

/// Renders the figures of each group: the median, and for several runs its 95% interval.
pub fn table(groups: &[Vec<Report>]) -> String {
    let runs = groups.first().map_or(0, Vec::len);
    let head: Vec<&str> = [""]
        .into_iter()
        .chain(groups.iter().filter_map(|group| Some(group.first()?.mode.as_str())))
        .collect();
    let mut table = Table::new(&head);
    for figure in FIGURES {
        let mut row = vec![figure.name.to_owned()];
        row.extend(groups.iter().map(|group| cell(figure, group)));
        table.row(row);
    }
    let mut text = table.render().trim_start_matches('\n').to_owned();
    if runs > 1 {
        text += &format!(
            "\nMedians of {runs} seeds, [95% interval of a bootstrap]. All checks held in every run.\n"
        );
    } else {
        text += "\nAll checks held in every run.\n";
    }
    text
}

fn cell(figure: &Figure, group: &[Report]) -> String {
    let mut values: Vec<f64> = group.iter().filter_map(figure.of).collect();
    if values.is_empty() {
        return "-".to_owned();
    }
    let middle = (figure.show)(median(&mut values));
    if values.len() == 1 {
        return middle;
    }
    let (low, high) = interval(&values);
    format!("{middle} [{}, {}]", (figure.show)(low), (figure.show)(high))
}

fn time(ns: f64) -> String {
    duration(ns.round() as u64)
}

fn decimal(value: f64) -> String {
    format!("{value:.2}")
}

fn percent(share: f64) -> String {
    format!("{:.1}%", share * 100.0)
}

fn whole(value: f64) -> String {
    crate::output::thousands(value.round() as u64)
}
