//! The experiments that compare Rivulet with what is published about the systems that it is made
//! of.
//!
//! An [`Experiment`] runs scenarios of [`sim`] with several seeds, compares the results with the
//! published figures, and says whether it matches them, and whether something of our own is better:
//! claims are code ([`Claim`]), and hold only if the intervals of the figures do not overlap.
//! Others play packets through chains, and through what could stand in their place, and measure
//! that. This crate writes no files, and reads none but captures that it is given; one experiment
//! runs a Redis of its own, if that is installed.
//!
//! ```
//! use lab::{Lab, RunLength, experiments};
//!
//! let experiment = experiments().iter().find(|experiment| experiment.id == "X4");
//! let mut lab = Lab::new(RunLength::Smoke, 1, |_| {});
//! let outcome = experiment.map(|experiment| experiment.run(&mut lab));
//! assert!(outcome.is_some_and(|outcome| outcome.failures().count() == 0));
//! ```

mod actors;
mod chart;
mod draw;
mod experiments;
pub mod gauges;
mod hosts;
mod link_parts;
mod migration;
mod move_faults;
mod outcome;
pub mod page;
mod paths;
mod recording;
mod runs;
mod setup;
pub mod shown;
mod statistics;
mod store;
pub mod stored;
mod table;
mod thread_accounts;
mod verdict;

pub use chart::{AxisScale, ChartAxis, ChartMark, ChartSeries, FigureChart};
pub use draw::svg;
pub use experiments::{
    BestSettings, Experiment, OverviewRow, SettingsSweep, TUNING_SEEDS, TunedBaseline, TuningOutcome,
    experiments, sweeps,
};
pub use outcome::ExperimentOutcome;
pub use recording::read as read_recording;
pub use runs::{Lab, RuleFiles, RunLength, RunProgress, RunResult};
pub use setup::{ScenarioText, ScenarioValue, toml};
pub use statistics::{Estimate, interval, median};
pub use table::{
    CostProfile, FigureTable, FigureUnit, ReportGauge, RowKind, RowSubject, TableCell, TableMetric, TableRow,
};
pub use verdict::{
    Claim, ClaimAnswer, ClaimFinding, ClaimsVerdict, JudgedClaim, MeasuredFigures, MissingFigure,
};
