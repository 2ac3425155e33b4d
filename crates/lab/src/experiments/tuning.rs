//! Baselines at their best (R2): a sweep over named grids of their settings, with seeds that no
//! experiment measures.
//!
//! The best point of a baseline's grid has the lowest median of the objective over the seeds; of
//! equal ones, the fewest unit-seconds; then the lowest place. It must take no more unit-seconds
//! than the published algorithm, or than the published baseline if that takes more, and drop no
//! more packets than the published baseline. So the published baseline itself always qualifies.
//!
//! Full runs of all points would take hours: all points are run for a short time, and only the best
//! in full (one halving of many, as in Karnin, Koren and Somekh, Almost Optimal Exploration in
//! Multi-Armed Bandits, 2013).

mod chosen;
mod grids;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

use serde::{Serialize, Serializer};

pub(super) use chosen::{notes, subjects, tuned};
pub use grids::TunedBaseline;

use crate::gauges;
use crate::outcome::{JsonRow, csv, json_rows};
use crate::runs::{Lab, RunLength};
use crate::setup::{ScenarioText, toml};
use crate::statistics::Estimate;
use crate::table::{CostProfile, FigureTable, ReportGauge, RowKind, RowSubject, TableMetric, TableRow};

/// The seeds for choosing settings. No experiment measures with them.
pub const TUNING_SEEDS: RangeInclusive<u64> = 1_001..=1_005;

/// Points of a baseline with full runs, for each objective, besides the published one: first the
/// Pareto front of short runs in objective and cost, then the next front. The limit on cost is
/// checked in full runs, which have other costs.
pub const FINALISTS: usize = 12;

/// The name of the row that says what baselines may take.
const PUBLISHED: &str = "flowlet, as published";

/// A sweep of settings for an experiment.
#[derive(Clone, Copy, Debug)]
pub struct SettingsSweep {
    /// The experiment's number.
    pub id: &'static str,
    /// Metrics to minimise, each on its own: those of the experiment's claims.
    pub objectives: &'static [&'static ReportGauge],
    /// The baselines, and what is tried of them.
    pub baselines: &'static [TunedBaseline],
    /// The published algorithm's scenario; the baselines are variants of it.
    base: fn(RunLength) -> ScenarioText,
    /// The length of the runs that found the experiments' settings.
    length: RunLength,
}

/// All sweeps, in order of their experiments' numbers.
pub fn sweeps() -> &'static [SettingsSweep] {
    grids::SWEEPS
}

/// Results of a sweep.
#[derive(Clone, Debug)]
pub struct TuningOutcome {
    /// The experiment.
    pub id: &'static str,
    /// Seeds of each row.
    pub seeds: RangeInclusive<u64>,
    /// A table for each baseline: the published algorithm, and then each point of the baseline's
    /// grid, the published one first.
    pub tables: Vec<FigureTable>,
    /// The best point of each baseline by each objective.
    pub best: Vec<BestSettings>,
}

/// A point of a grid: its settings.
type Point = Vec<(&'static str, &'static str)>;

/// Points of a baseline and their results: a row for each, after the published algorithm's.
struct Field {
    points: Vec<Point>,
    table: FigureTable,
}

/// The best point of a baseline's grid.
#[derive(Clone, Debug, Serialize)]
pub struct BestSettings {
    /// The baseline.
    pub baseline: &'static str,
    /// The metric to minimise.
    #[serde(serialize_with = "name_of")]
    pub objective: TableMetric,
    /// Points run at this length.
    pub points: usize,
    /// The best one's name.
    pub point: String,
    /// Its settings, as scenarios have them: values as TOML by section and key.
    pub settings: BTreeMap<&'static str, &'static str>,
    /// Its objective: the median over seeds.
    pub value: f64,
    /// The published point's objective.
    pub published: f64,
    /// Experiments show the baseline with these settings.
    pub is_in_use: bool,
}

impl SettingsSweep {
    /// Runs every point of every baseline with the tuning seeds, whatever the lab's own are.
    pub fn run(&self, lab: &mut Lab<'_>) -> TuningOutcome {
        let seeds = match lab.length() {
            RunLength::Smoke => *TUNING_SEEDS.start()..=*TUNING_SEEDS.start(),
            RunLength::Quick | RunLength::Full => TUNING_SEEDS,
        };
        let fields: Vec<Field> =
            self.baselines.iter().map(|baseline| self.field(lab, &seeds, baseline)).collect();
        let best = self.baselines.iter().zip(&fields).flat_map(|(baseline, field)| {
            self.objectives.iter().filter_map(|objective| self.best(baseline, field, objective.metric))
        });
        let best = best.collect();
        TuningOutcome {
            id: self.id,
            seeds,
            best,
            tables: fields.into_iter().map(|field| field.table).collect(),
        }
    }

    /// Runs all points of a baseline; in full length only the best of short runs.
    fn field(&self, lab: &mut Lab<'_>, seeds: &RangeInclusive<u64>, baseline: &TunedBaseline) -> Field {
        let all = baseline.points();
        let points = match lab.length() {
            RunLength::Smoke | RunLength::Quick => all,
            RunLength::Full => {
                let short = self.measure(lab, (RunLength::Quick, seeds), baseline, all);
                let objectives = self.objectives.iter().map(|objective| objective.metric.name);
                let places = finalists(&short.table, objectives.collect());
                places.into_iter().map(|place| short.points[place].clone()).collect()
            }
        };
        self.measure(lab, (lab.length(), seeds), baseline, points)
    }

    fn measure(
        &self,
        lab: &mut Lab<'_>,
        (length, seeds): (RunLength, &RangeInclusive<u64>),
        baseline: &TunedBaseline,
        points: Vec<Point>,
    ) -> Field {
        let base = (self.base)(length);
        let published = RowSubject::new(PUBLISHED, RowKind::Faithful, base.clone());
        let of_points = points.iter().map(|point| {
            let setup = with(with(base.clone(), baseline.fixed), point);
            RowSubject::new(name(point), RowKind::Baseline, setup)
        });
        let subjects: Vec<RowSubject> = [published].into_iter().chain(of_points).collect();
        let costs = [&gauges::UNIT_SECONDS, &gauges::DROPPED];
        let gauges: Vec<&ReportGauge> = self.objectives.iter().copied().chain(costs).collect();
        let table =
            FigureTable::measure_on(lab, seeds, baseline.name, CostProfile::Paper, &gauges, &subjects);
        Field { points, table }
    }

    /// None if the published point could not be run.
    fn best(&self, baseline: &TunedBaseline, field: &Field, objective: TableMetric) -> Option<BestSettings> {
        let Field { points, table } = field;
        let (reference, rows) = table.rows.split_first()?;
        let at = best_of(table, reference, rows, objective.name)?;
        let point = points.get(at)?;
        let median = |row: &TableRow| Some(table.get(&row.name, objective.name)?.median);
        Some(BestSettings {
            baseline: baseline.name,
            objective,
            points: rows.len(),
            point: rows[at].name.clone(),
            value: median(&rows[at])?,
            published: median(rows.first()?)?,
            is_in_use: chosen::is_chosen(self.id, baseline.name, objective.name, point),
            settings: point.iter().copied().collect(),
        })
    }
}

/// Returns the places of the points for full runs, counted from the second row: the published
/// one's, and for each objective the best.
fn finalists(table: &FigureTable, objectives: Vec<&str>) -> BTreeSet<usize> {
    let rows = table.rows.get(1..).unwrap_or_default();
    let best = |objective: &str| {
        let of = |row: &TableRow, metric| table.get(&row.name, metric).map(|found| found.median);
        let point =
            |(place, row)| Some((of(row, objective)?, of(row, gauges::UNIT_SECONDS.metric.name)?, place));
        let mut left: Vec<(f64, f64, usize)> = rows.iter().enumerate().filter_map(point).collect();
        left.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)).then(a.2.cmp(&b.2)));
        let mut places = Vec::new();
        while places.len() < FINALISTS && !left.is_empty() {
            // From the best on, points that are cheaper than all before.
            let mut least = f64::INFINITY;
            let is_front = |&(_, cost, _): &(f64, f64, usize)| {
                let is_cheaper = cost < least;
                least = least.min(cost);
                is_cheaper
            };
            let (front, behind): (Vec<_>, Vec<_>) = left.into_iter().partition(is_front);
            places.extend(front.into_iter().map(|(_, _, place)| place));
            left = behind;
        }
        places.truncate(FINALISTS);
        places
    };
    [0].into_iter().chain(objectives.into_iter().flat_map(best)).collect()
}

/// Returns the place of the best of these rows; the first one is the published baseline.
fn best_of(table: &FigureTable, reference: &TableRow, rows: &[TableRow], objective: &str) -> Option<usize> {
    let of = |row: &TableRow, metric| table.get(&row.name, metric);
    let cost = |row: &TableRow| of(row, gauges::UNIT_SECONDS.metric.name).map(|found| found.median);
    let dropped = |row: &TableRow| of(row, gauges::DROPPED.metric.name).map(total);
    let published = rows.first()?;
    let (cost_max, dropped_max) = (cost(reference)?.max(cost(published)?), dropped(published)?);
    let score = |(place, row): (usize, &TableRow)| {
        let (value, cost) = (of(row, objective)?.median, cost(row)?);
        (cost <= cost_max && dropped(row)? <= dropped_max).then_some((value, cost, place))
    };
    let scores = rows.iter().enumerate().filter_map(score);
    let best = scores.min_by(|a, b| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)).then(a.2.cmp(&b.2)));
    best.map(|(.., place)| place)
}

fn total(estimate: &Estimate) -> f64 {
    estimate.values.iter().sum()
}

/// A scenario with these settings.
fn with(setup: ScenarioText, settings: &[(&'static str, &'static str)]) -> ScenarioText {
    settings.iter().fold(setup, |setup, &(key, value)| setup.with(key, toml(value)))
}

/// Settings in a line.
fn name(settings: &[(&'static str, &'static str)]) -> String {
    let one = |&(key, value): &(&str, &str)| {
        let key = key.rsplit_once('.').map_or(key, |(_, key)| key);
        format!("{key} {}", value.trim_matches('"'))
    };
    settings.iter().map(one).collect::<Vec<_>>().join(", ")
}

impl TuningOutcome {
    /// Runs that did what they must not, or could not be done: the row, and why.
    pub fn failures(&self) -> impl Iterator<Item = (&str, &str)> {
        let rows = self.tables.iter().flat_map(|table| &table.rows);
        rows.flat_map(|row| row.failures.iter().map(|why| (row.name.as_str(), why.as_str())))
    }

    /// A line for each figure, as those of experiments.
    pub fn csv(&self) -> String {
        csv(self.id, &self.tables)
    }
}

impl Serialize for TuningOutcome {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let TuningOutcome { id, seeds, tables, best } = self;
        let (first_seed, last_seed) = (*seeds.start(), *seeds.end());
        Json { id, first_seed, last_seed, best, rows: json_rows(tables) }.serialize(to)
    }
}

#[derive(Serialize)]
struct Json<'a> {
    id: &'a str,
    first_seed: u64,
    last_seed: u64,
    best: &'a [BestSettings],
    rows: Vec<JsonRow<'a>>,
}

fn name_of<S: Serializer>(metric: &TableMetric, to: S) -> Result<S::Ok, S::Error> {
    metric.name.serialize(to)
}

#[cfg(test)]
mod tests;
