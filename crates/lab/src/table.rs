//! Tables of measurements: rows of figures, with the published ones.

use std::ops::RangeInclusive;
use std::sync::Arc;

use serde::Serialize;
use sim::Report;

use crate::runs::{Lab, RunResult};
use crate::setup::ScenarioText;
use crate::statistics::Estimate;

/// Rows that may be compared: all of one profile (R4).
#[derive(Clone, Debug, PartialEq)]
pub struct FigureTable {
    /// Its title.
    pub title: String,
    /// Under which costs.
    pub profile: CostProfile,
    /// Its columns.
    pub metrics: Vec<TableMetric>,
    /// Its rows.
    pub rows: Vec<TableRow>,
}

/// Source of the costs of packets, messages and states.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum CostProfile {
    /// From the papers.
    #[serde(rename = "P-paper")]
    Paper,
    /// Measured where Rivulet was built.
    #[serde(rename = "P-here")]
    Here,
    /// Not simulated, but measured during the run, where it runs.
    #[serde(rename = "REAL")]
    Real,
}

impl CostProfile {
    /// As tables write it.
    pub fn name(self) -> &'static str {
        match self {
            CostProfile::Paper => "P-paper",
            CostProfile::Here => "P-here",
            CostProfile::Real => "REAL",
        }
    }
}

/// A column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableMetric {
    /// Its name.
    pub name: &'static str,
    /// The unit of its numbers.
    pub unit: FigureUnit,
}

/// The unit of numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum FigureUnit {
    /// Nanoseconds.
    #[serde(rename = "ns")]
    Ns,
    /// A share, of 0 to 1.
    #[serde(rename = "share")]
    Share,
    /// Bits per second.
    #[serde(rename = "bit/s")]
    BitsPerSecond,
    /// Bits.
    #[serde(rename = "bit")]
    Bits,
    /// A count.
    #[serde(rename = "count")]
    Count,
    /// A multiple.
    #[serde(rename = "ratio")]
    Ratio,
}

impl FigureUnit {
    /// As files write it.
    pub fn name(self) -> &'static str {
        match self {
            FigureUnit::Ns => "ns",
            FigureUnit::Share => "share",
            FigureUnit::BitsPerSecond => "bit/s",
            FigureUnit::Bits => "bit",
            FigureUnit::Count => "count",
            FigureUnit::Ratio => "ratio",
        }
    }
}

/// The kind of a row. Faithful and plus never share a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum RowKind {
    /// The algorithm as published.
    Faithful,
    /// The same with something of our own.
    Plus,
    /// A baseline.
    Baseline,
    /// A bound for everything without knowledge of the future.
    Bound,
}

impl RowKind {
    /// As files write it.
    pub fn name(self) -> &'static str {
        match self {
            RowKind::Faithful => "faithful",
            RowKind::Plus => "plus",
            RowKind::Baseline => "baseline",
            RowKind::Bound => "bound",
        }
    }
}

/// One of the things that are compared.
#[derive(Clone, Debug, PartialEq)]
pub struct TableRow {
    /// Its name.
    pub name: String,
    /// Its kind.
    pub kind: RowKind,
    /// Its scenario, for `rivulet sim`; empty if it is none.
    pub scenario: String,
    /// Its figures, in the order of the metrics.
    pub cells: Vec<TableCell>,
    /// Runs that failed, and why.
    pub failures: Vec<String>,
}

/// A figure.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TableCell {
    /// The measured value; `None` if there is none, or a run failed.
    pub measured: Option<Estimate>,
    /// The published value.
    pub paper: Option<f64>,
}

/// A figure of a report.
#[derive(Clone, Copy, Debug)]
pub struct ReportGauge {
    /// Its metric.
    pub metric: TableMetric,
    /// Its value; none if there is none.
    pub of: fn(&Report) -> Option<f64>,
}

/// The subject of a row.
#[derive(Clone, Debug)]
pub struct RowSubject {
    /// The row's name.
    pub name: String,
    /// Its kind.
    pub kind: RowKind,
    /// Its runs.
    pub setup: ScenarioText,
}

impl RowSubject {
    /// A row of this name.
    pub fn new(name: impl Into<String>, kind: RowKind, setup: ScenarioText) -> RowSubject {
        RowSubject { name: name.into(), kind, setup }
    }
}

impl FigureTable {
    /// Runs these, and reads these gauges.
    pub fn measure(
        lab: &mut Lab<'_>,
        title: impl Into<String>,
        profile: CostProfile,
        gauges: &[&ReportGauge],
        subjects: &[RowSubject],
    ) -> FigureTable {
        let seeds = 1..=u64::from(lab.seeds());
        FigureTable::measure_on(lab, &seeds, title, profile, gauges, subjects)
    }

    /// The same with seeds that are not those of the lab.
    pub fn measure_on(
        lab: &mut Lab<'_>,
        seeds: &RangeInclusive<u64>,
        title: impl Into<String>,
        profile: CostProfile,
        gauges: &[&ReportGauge],
        subjects: &[RowSubject],
    ) -> FigureTable {
        let setups: Vec<&ScenarioText> = subjects.iter().map(|subject| &subject.setup).collect();
        let runs = lab.run_on(seeds, &setups);
        let rows = subjects.iter().zip(&runs).map(|(subject, runs)| TableRow::read(subject, runs, gauges));
        FigureTable {
            title: title.into(),
            profile,
            metrics: gauges.iter().map(|gauge| gauge.metric).collect(),
            rows: rows.collect(),
        }
    }

    /// Sets the published value of a row and metric.
    pub fn paper(mut self, row: &str, metric: &str, value: f64) -> FigureTable {
        let column = self.metrics.iter().position(|m| m.name == metric);
        let row = self.rows.iter_mut().find(|r| r.name == row);
        if let (Some(column), Some(row)) = (column, row)
            && let Some(cell) = row.cells.get_mut(column)
        {
            cell.paper = Some(value);
        }
        self
    }

    /// Adds a column: a metric of each row over that of another one, seed by seed.
    pub fn with_ratio(mut self, name: &'static str, metric: &str, base: &str) -> FigureTable {
        let divisor = self.get(base, metric).cloned();
        let ratios: Vec<TableCell> = self
            .rows
            .iter()
            .map(|row| self.get(&row.name, metric).zip(divisor.as_ref()).and_then(|(a, b)| a.over(b)))
            .map(|measured| TableCell { measured, paper: None })
            .collect();
        self.rows.iter_mut().zip(ratios).for_each(|(row, ratio)| row.cells.push(ratio));
        self.metrics.push(TableMetric { name, unit: FigureUnit::Ratio });
        self
    }

    /// A published value.
    pub fn published(&self, row: &str, metric: &str) -> Option<f64> {
        let column = self.metrics.iter().position(|m| m.name == metric)?;
        self.rows.iter().find(|r| r.name == row)?.cells.get(column)?.paper
    }

    /// A figure.
    pub fn get(&self, row: &str, metric: &str) -> Option<&Estimate> {
        let column = self.metrics.iter().position(|m| m.name == metric)?;
        self.rows.iter().find(|r| r.name == row)?.cells.get(column)?.measured.as_ref()
    }
}

impl TableRow {
    /// Returns the gauges' values of these runs; none if one of them failed.
    fn read(subject: &RowSubject, runs: &[RunResult], gauges: &[&ReportGauge]) -> TableRow {
        let failures = runs.iter().filter_map(|run| run.as_ref().err().cloned()).collect::<Vec<_>>();
        let reports: Vec<&Arc<Report>> = runs.iter().filter_map(|run| run.as_ref().ok()).collect();
        let read = |gauge: &&ReportGauge| {
            let values: Option<Vec<f64>> = reports.iter().map(|report| (gauge.of)(report)).collect();
            let measured = values.filter(|_| failures.is_empty()).and_then(Estimate::of);
            TableCell { measured, paper: None }
        };
        let cells = gauges.iter().map(read).collect();
        let (name, scenario) = (subject.name.clone(), subject.setup.to_string());
        TableRow { name, kind: subject.kind, scenario, cells, failures }
    }

    /// A row that was not simulated: the values of each metric, one for each seed.
    pub fn of(name: impl Into<String>, kind: RowKind, values: Vec<Vec<f64>>) -> TableRow {
        let cells = values.into_iter().map(|v| TableCell { measured: Estimate::of(v), paper: None });
        TableRow {
            name: name.into(),
            kind,
            scenario: String::new(),
            cells: cells.collect(),
            failures: Vec::new(),
        }
    }
}
