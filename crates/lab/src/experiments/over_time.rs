//! Tables over time: a row for each interval of a run with seed 1. Published plots over time show
//! one run, too.

use protocol::metering::Interval;
use sim::Report;

use crate::table::{CostProfile, FigureTable, FigureUnit, RowKind, TableMetric, TableRow};

/// The name of a row follows the middle of its interval with this.
const SECONDS: &str = " s";

/// Returns a table of a run's intervals, without columns.
pub fn table_over_time(title: &str, report: &Report) -> FigureTable {
    let middle_s = |interval: &Interval| (interval.start_ns + interval.length_ns / 2) as f64 * 1e-9;
    let row = |interval: &Interval| {
        TableRow::of(format!("{:.3}{SECONDS}", middle_s(interval)), RowKind::Baseline, Vec::new())
    };
    FigureTable {
        title: format!("{title}, seed 1"),
        profile: CostProfile::Paper,
        metrics: Vec::new(),
        rows: report.intervals.iter().map(row).collect(),
    }
}

/// Adds a column: a value of each interval of a run of the same length.
pub fn add_column(
    table: &mut FigureTable,
    (name, unit): (&'static str, FigureUnit),
    report: &Report,
    of: impl Fn(&Interval) -> f64,
) {
    table.metrics.push(TableMetric { name, unit });
    for (row, interval) in table.rows.iter_mut().zip(&report.intervals) {
        row.cells.extend(TableRow::of("", row.kind, vec![vec![of(interval)]]).cells);
    }
}

/// Returns a column, divided by `per`, over seconds.
pub fn points_over_time(table: &FigureTable, metric: &str, per: f64) -> Vec<(f64, f64)> {
    let point = |row: &TableRow| {
        let seconds = row.name.strip_suffix(SECONDS)?.parse().ok()?;
        Some((seconds, table.get(&row.name, metric)?.median / per))
    };
    table.rows.iter().filter_map(point).collect()
}
