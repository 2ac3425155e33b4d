//! The experiments, by their numbers.

mod bases;
mod common;
mod d01_drain;
mod d02_distribution;
mod links;
mod m01_wait;
mod m02_flows;
mod moves;
mod over_time;
mod rounds;
mod tuning;
mod u04_validation;
mod v01_loopback;
mod v02_ports;
mod v03_streams;
mod v04_tags;
mod v05_splitter;
mod veth;
mod x01_tracking;
mod x02_latency;
mod x03_utilisation;
mod x04_flowlets;
mod x05_storage;
mod x06_adversary;
mod x10_size;
mod x11_copies;
mod x12_choice;
mod x13_bandwidth;
mod x14_billing;
mod xc_captures;
mod y01_headers;
mod y02_drop;
mod y03_break_even;
mod y03_functions;
mod y04_inspection;
mod y05_chains;
mod y06_equality;
mod y07_events;
mod y08_table;
mod z01_actors;
mod z02_scaling;
mod z03_migration;
mod z04_controllers;
mod z07_scaling;
mod z08_update;
mod z08_versions;
mod z09_faults;

use serde::Serialize;

#[cfg(test)]
pub(crate) use moves::chain;
pub use tuning::{BestSettings, SettingsSweep, TUNING_SEEDS, TunedBaseline, TuningOutcome, sweeps};
#[cfg(test)]
pub(crate) use z08_versions::{REFUSED, first, next};

use crate::chart::FigureChart;
use crate::outcome::ExperimentOutcome;
use crate::runs::Lab;
use crate::table::{CostProfile, FigureTable};
use crate::verdict::{Claim, ClaimsVerdict};

/// An experiment: the published figures, the runs that measure them again, and the claims about the
/// result.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Experiment {
    /// Its number.
    pub id: &'static str,
    /// Its title.
    pub title: &'static str,
    /// The question that it answers.
    pub question: &'static str,
    /// The published figure, with the requirements that quote it.
    pub published: &'static str,
    /// The runs, and their baselines.
    pub workload: &'static str,
    /// Claims that figures printed in the four papers are met, by the same measure.
    pub matches: &'static [Claim],
    /// Claims that one of our own modes is better than the published algorithm.
    pub beats: &'static [Claim],
    /// Claims that no figure of the four papers is about: limits of ours, and others' figures.
    pub checks: &'static [Claim],
    /// Checks of figures measured on the machine, in an experiment that also simulates. Judged with
    /// [`Experiment::checks`] if there are such figures.
    pub real: &'static [Claim],
    /// Its row in the overview.
    pub summary: OverviewRow,
    #[serde(skip)]
    measure: fn(&mut Lab<'_>) -> Measured,
    #[serde(skip)]
    picture: Picture,
}

/// An experiment's row in the overview of the evaluation.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct OverviewRow {
    /// The published figure, in short.
    pub published: &'static str,
    /// The figures found. `{0|row|metric}` stands for a median of a table, which is counted from 0.
    pub found: &'static str,
    /// The main caveat.
    pub caveat: &'static str,
}

/// The picture of an experiment. It follows from the tables, so that it shows the same run.
#[derive(Clone, Copy, Debug)]
enum Picture {
    /// These charts.
    Charts(fn(&[FigureTable]) -> Vec<FigureChart>),
    /// None, for this reason.
    None(&'static str),
}

/// Measurements of an experiment.
struct Measured {
    tables: Vec<FigureTable>,
    notes: Vec<String>,
}

/// All experiments, each system's in order of their numbers.
pub fn experiments() -> &'static [Experiment] {
    &[
        x01_tracking::X1,
        x02_latency::X2,
        x03_utilisation::X3,
        x04_flowlets::X4,
        x05_storage::X5,
        x06_adversary::X6,
        x10_size::X10,
        x11_copies::X11,
        x12_choice::X12,
        x13_bandwidth::X13,
        x14_billing::X14,
        xc_captures::XC,
        y01_headers::Y1,
        y02_drop::Y2,
        y03_functions::Y3,
        y04_inspection::Y4,
        y05_chains::Y5,
        y06_equality::Y6,
        y07_events::Y7,
        y08_table::Y8,
        z01_actors::Z1,
        z02_scaling::Z2,
        z03_migration::Z3,
        z04_controllers::Z4,
        z07_scaling::Z7,
        z08_update::Z8,
        z09_faults::Z9,
        v01_loopback::V1,
        v02_ports::V2,
        v03_streams::V3,
        v04_tags::V4,
        v05_splitter::V5,
        m01_wait::M1,
        m02_flows::M2,
        d01_drain::D1,
        d02_distribution::D2,
        u04_validation::U4,
    ]
}

impl Experiment {
    /// Returns the charts of its tables.
    pub fn charts(&self, tables: &[FigureTable]) -> Vec<FigureChart> {
        match self.picture {
            Picture::Charts(charts) if !tables.is_empty() => charts(tables),
            _ => Vec::new(),
        }
    }

    /// Returns why it has no picture, if it never has one.
    pub fn without_picture(&self) -> Option<&'static str> {
        match self.picture {
            Picture::Charts(_) => None,
            Picture::None(why) => Some(why),
        }
    }

    /// Runs it, and judges what came of it.
    pub fn run(&self, lab: &mut Lab<'_>) -> ExperimentOutcome {
        let Measured { tables, notes } = (self.measure)(lab);
        let charts = self.charts(&tables);
        // Where nothing could be measured, nothing is claimed.
        let claimed = |claims: &'static [Claim]| if tables.is_empty() { &[] } else { claims };
        let is_real = tables.iter().any(|table| table.profile == CostProfile::Real);
        let checks = [claimed(self.checks), if is_real { self.real } else { &[] }].concat();
        ExperimentOutcome {
            id: self.id,
            title: self.title,
            question: self.question,
            published: self.published,
            seeds: lab.seeds(),
            matched: ClaimsVerdict::of(claimed(self.matches), &tables),
            beaten: ClaimsVerdict::of(claimed(self.beats), &tables),
            checked: ClaimsVerdict::of(&checks, &tables),
            tables,
            notes,
            charts,
        }
    }
}
