//! Tables of figures as text.

use crate::statistics::Estimate;
use crate::table::{CostProfile, FigureTable, FigureUnit, TableCell, TableMetric};

/// Returns the column heads of a table.
pub fn head(shown: &FigureTable) -> Vec<&'static str> {
    [""].into_iter().chain(shown.metrics.iter().map(|metric| metric.name)).collect()
}

/// Returns the rows of a table, each followed by the published values if there are any.
pub fn rows(shown: &FigureTable) -> Vec<Vec<String>> {
    let mut rows = Vec::new();
    for row in &shown.rows {
        let cells = || shown.metrics.iter().zip(&row.cells);
        let measured = cells().map(|(metric, cell)| match &cell.measured {
            Some(estimate) => figure(metric, estimate),
            None if row.failures.is_empty() => "-".to_owned(),
            None => "failed".to_owned(),
        });
        rows.push([row.name.clone()].into_iter().chain(measured).collect());
        if row.cells.iter().any(|cell| cell.paper.is_some()) {
            let paper = |(metric, cell): (&TableMetric, &TableCell)| {
                cell.paper.map_or_else(String::new, |value| one(metric, value))
            };
            rows.push(["  published".to_owned()].into_iter().chain(cells().map(paper)).collect());
        }
    }
    rows
}

/// Returns the caption of a table.
pub fn caption(shown: &FigureTable) -> String {
    let cells = shown.rows.iter().flat_map(|row| &row.cells);
    let seeds = cells.filter_map(|cell| cell.measured.as_ref()).map(|measured| measured.values.len()).max();
    let medians = match (shown.profile, seeds.unwrap_or(0)) {
        (CostProfile::Real, _) => "medians, [95% interval of a bootstrap]".to_owned(),
        (_, 0 | 1) => "one seed".to_owned(),
        (_, seeds) => format!("medians of {seeds} seeds, [95% interval of a bootstrap]"),
    };
    format!("{}: {}; {medians}", shown.profile.name(), shown.title)
}

/// Formats median and interval in one unit.
fn figure(metric: &TableMetric, estimate: &Estimate) -> String {
    let Estimate { median, low, high, values } = estimate;
    let (factor, unit) = scale(metric.unit, *median);
    let digits = |value: f64| number(value / factor);
    match values.len() {
        1 => format!("{}{unit}", digits(*median)),
        _ if high / low > 1e3 => {
            format!("{} [{}, {}]", one(metric, *median), one(metric, *low), one(metric, *high))
        }
        _ => format!("{} [{}, {}]{unit}", digits(*median), digits(*low), digits(*high)),
    }
}

/// Formats a value.
pub fn one(metric: &TableMetric, value: f64) -> String {
    let (factor, unit) = scale(metric.unit, value);
    format!("{}{unit}", number(value / factor))
}

/// Returns the divisor that makes a number readable, and its unit.
fn scale(unit: FigureUnit, value: f64) -> (f64, &'static str) {
    let pick = |scales: &[(f64, &'static str)]| {
        scales.iter().find(|(factor, _)| value >= *factor).or(scales.last()).copied().unwrap_or((1.0, ""))
    };
    match unit {
        FigureUnit::Ns => pick(&[(1e9, " s"), (1e6, " ms"), (1e3, " us"), (1.0, " ns")]),
        FigureUnit::Share => (0.01, "%"),
        FigureUnit::BitsPerSecond => {
            pick(&[(1e9, " Gbit/s"), (1e6, " Mbit/s"), (1e3, " kbit/s"), (1.0, " bit/s")])
        }
        FigureUnit::Bits => pick(&[(1e9, " Gbit"), (1e6, " Mbit"), (1e3, " kbit"), (1.0, " bit")]),
        FigureUnit::Count | FigureUnit::Ratio => pick(&[(1e6, " M"), (1e3, " k"), (1.0, "")]),
    }
}

/// Formats a number with three digits.
fn number(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        size if size >= 99.95 => format!("{value:.0}"),
        size if size >= 9.995 => format!("{value:.1}"),
        size if size >= 0.01 => format!("{value:.2}"),
        _ => format!("{value:.1e}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_one_unit_and_three_digits() {
        let metric = |unit| TableMetric { name: "", unit };
        let estimate = |values: [f64; 3]| Estimate::of(values.to_vec()).unwrap();
        let shown = figure(&metric(FigureUnit::Ns), &estimate([950_000.0, 1_234_567.0, 22e6]));
        assert_eq!(shown, "1.23 [0.95, 22.0] ms");
        assert_eq!(
            figure(&metric(FigureUnit::Ns), &estimate([440.0, 670.0, 27e6])),
            "670 ns [440 ns, 27.0 ms]"
        );
        assert_eq!(figure(&metric(FigureUnit::Share), &estimate([0.5, 0.25, 1.0])), "50.0 [25.0, 100]%");
        assert_eq!(one(&metric(FigureUnit::BitsPerSecond), 3.62e6), "3.62 Mbit/s");
        assert_eq!(one(&metric(FigureUnit::Count), 0.0), "0");
        assert_eq!(one(&metric(FigureUnit::Ratio), 19.6e3), "19.6 k");
    }
}
