//! Baselines at their best (R2): a sweep over named grids of their settings, on seeds on which nothing is measured.
//!
//! Of the points of a baseline's grid, that one is the best whose objective has the least median over the seeds, and of equal ones
//! the one that takes fewer unit-seconds, and then the one that comes first. It must take no more unit-seconds than the published
//! algorithm does, or the baseline as published if that takes more, and drop no more packets than the baseline as published does. So
//! that itself is always in the running.

mod chosen;
mod grids;

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use serde::{Serialize, Serializer};

pub(super) use chosen::{notes, row, subjects, tuned};
pub use grids::Baseline;

use crate::gauges;
use crate::outcome::{JsonRow, csv, json_rows};
use crate::runs::{Lab, Length};
use crate::setup::{Setup, toml};
use crate::statistics::Estimate;
use crate::table::{Gauge, Kind, Metric, Profile, Row, Subject, Table};

/// The seeds that settings are chosen with: none of them is among those that experiments measure.
pub const TUNING_SEEDS: RangeInclusive<u64> = 1_001..=1_005;

/// The name of the row that says what baselines may take.
const PUBLISHED: &str = "flowlet, as published";

/// What is swept for an experiment.
#[derive(Clone, Copy, Debug)]
pub struct Sweep {
    /// The experiment's number.
    pub id: &'static str,
    /// What is to be small, each on its own: what the experiment's claims are about.
    pub objectives: &'static [&'static Gauge],
    /// The baselines, and what is tried of them.
    pub baselines: &'static [Baseline],
    /// The published algorithm's scenario, of which the baselines' are variants.
    base: fn(Length) -> Setup,
}

/// All sweeps, in order of their experiments' numbers.
pub fn sweeps() -> &'static [Sweep] {
    grids::SWEEPS
}

/// What a sweep has shown.
#[derive(Clone, Debug)]
pub struct Tuning {
    /// The experiment.
    pub id: &'static str,
    /// Seeds of each row.
    pub seeds: RangeInclusive<u64>,
    /// A table for each baseline: the published algorithm, and then each point of the baseline's grid, the published one first.
    pub tables: Vec<Table>,
    /// The best point of each baseline by each objective.
    pub best: Vec<Best>,
}

/// The best point of a baseline's grid.
#[derive(Clone, Debug, Serialize)]
pub struct Best {
    /// The baseline.
    pub baseline: &'static str,
    /// What is to be small.
    #[serde(serialize_with = "name_of")]
    pub objective: Metric,
    /// How many points there are.
    pub points: usize,
    /// The best one's name.
    pub point: String,
    /// Its settings, as scenarios have them: values as TOML by section and key.
    pub settings: BTreeMap<&'static str, &'static str>,
    /// What it has of the objective: the median.
    pub value: f64,
    /// What the published point has.
    pub published: f64,
    /// Whether experiments show the baseline with these settings.
    pub is_in_use: bool,
}

impl Sweep {
    /// Runs every point of every baseline with the tuning seeds, whatever the lab's own are.
    pub fn run(&self, lab: &mut Lab<'_>) -> Tuning {
        let seeds = match lab.length() {
            Length::Smoke => *TUNING_SEEDS.start()..=*TUNING_SEEDS.start(),
            Length::Quick | Length::Full => TUNING_SEEDS,
        };
        let tables: Vec<Table> =
            self.baselines.iter().map(|baseline| self.measure(lab, &seeds, baseline)).collect();
        let each = self.baselines.iter().zip(&tables);
        let best = each.flat_map(|(baseline, table)| {
            self.objectives.iter().filter_map(|objective| self.best(baseline, table, objective.metric))
        });
        Tuning { id: self.id, seeds, best: best.collect(), tables }
    }

    fn measure(&self, lab: &mut Lab<'_>, seeds: &RangeInclusive<u64>, baseline: &Baseline) -> Table {
        let base = (self.base)(lab.length());
        let published = Subject::new(PUBLISHED, Kind::Faithful, base.clone());
        let points = baseline.points().into_iter().map(|point| {
            let setup = with(with(base.clone(), baseline.fixed), &point);
            Subject::new(name(&point), Kind::Baseline, setup)
        });
        let subjects: Vec<Subject> = [published].into_iter().chain(points).collect();
        let costs = [&gauges::UNIT_SECONDS, &gauges::DROPPED];
        let gauges: Vec<&Gauge> = self.objectives.iter().copied().chain(costs).collect();
        Table::measure_on(lab, seeds, baseline.name, Profile::Paper, &gauges, &subjects)
    }

    /// None if the published point could not be run.
    fn best(&self, baseline: &Baseline, table: &Table, objective: Metric) -> Option<Best> {
        let (reference, rows) = table.rows.split_first()?;
        let at = best_of(table, reference, rows, objective.name)?;
        let point = baseline.points().into_iter().nth(at)?;
        let median = |row: &Row| Some(table.get(&row.name, objective.name)?.median);
        Some(Best {
            baseline: baseline.name,
            objective,
            points: rows.len(),
            point: rows[at].name.clone(),
            value: median(&rows[at])?,
            published: median(rows.first()?)?,
            is_in_use: chosen::is_chosen(self.id, baseline.name, objective.name, &point),
            settings: point.into_iter().collect(),
        })
    }
}

/// The place of the best of these rows, the first of which is the baseline as published.
fn best_of(table: &Table, reference: &Row, rows: &[Row], objective: &str) -> Option<usize> {
    let of = |row: &Row, metric| table.get(&row.name, metric);
    let cost = |row: &Row| of(row, gauges::UNIT_SECONDS.metric.name).map(|found| found.median);
    let dropped = |row: &Row| of(row, gauges::DROPPED.metric.name).map(total);
    let published = rows.first()?;
    let (cost_max, dropped_max) = (cost(reference)?.max(cost(published)?), dropped(published)?);
    let score = |(place, row): (usize, &Row)| {
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
fn with(setup: Setup, settings: &[(&'static str, &'static str)]) -> Setup {
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

impl Tuning {
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

impl Serialize for Tuning {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let Tuning { id, seeds, tables, best } = self;
        let (first_seed, last_seed) = (*seeds.start(), *seeds.end());
        Json { id, first_seed, last_seed, best, rows: json_rows(tables) }.serialize(to)
    }
}

#[derive(Serialize)]
struct Json<'a> {
    id: &'a str,
    first_seed: u64,
    last_seed: u64,
    best: &'a [Best],
    rows: Vec<JsonRow<'a>>,
}

fn name_of<S: Serializer>(metric: &Metric, to: S) -> Result<S::Ok, S::Error> {
    metric.name.serialize(to)
}

#[cfg(test)]
mod tests;
