//! X10: how large a flowlet may be.

use super::bases;
use super::common::{BOTH, NO_MORE, PREDICTED, at_most_of, below, faster, in_mode};
use super::{Experiment, Measured};
use crate::chart::{ChartAxis, ChartMark, ChartSeries, FigureChart};
use crate::gauges;
use crate::runs::Lab;
use crate::table::{CostProfile, FigureTable, ReportGauge, RowKind, RowSubject};
use crate::verdict::{Claim, ClaimFinding, MeasuredFigures, MissingFigure};

/// Published claims about B (S100).
pub const X10: Experiment = Experiment {
    id: "X10",
    title: "Size of flowlets",
    question: "How large may a flowlet be?",
    published: "S100: a larger B lowers latency, because fewer states are fetched, and takes more \
                units",
    workload: "W-B at 1 to 10 Gbit/s, P-paper; B from 2 to 64 KB",
    matches: &[
        Claim {
            text: "p99 is lower with 64 KB than with 2 KB, without more drops",
            test: |f| faster(f, LARGEST, LEAST, "p99", 1e3),
        },
        Claim { text: "64 KB takes more units than 2 KB", test: |f| below(f, LEAST, LARGEST, "units", 1.0) },
    ],
    beats: &[Claim {
        text: "if units follow demand and flowlets stay, p99 with B = 15 KB is lower than with \
               every B of the published algorithm, without more drops, at no more than 1.02 times \
               the units, seed by seed",
        test: beats,
    }],
    real: &[],
    measure,
};

const GAUGES: &[&ReportGauge] = &[
    &gauges::P50,
    &gauges::P75,
    &gauges::P99,
    &gauges::UNITS,
    &gauges::PULLS,
    &gauges::SEAMLESS,
    &gauges::DROPPED,
];

const LEAST: &str = "B = 2KB";
const LARGEST: &str = "B = 64KB";
const SIZES_KB: [u32; 6] = [2, 4, 8, 15, 32, 64];

/// The default, which is left out so that X1 shares the run.
const DEFAULT_KB: u32 = 15;

fn beats(f: &MeasuredFigures<'_>) -> Result<ClaimFinding, MissingFigure> {
    let judge = |size: u32| {
        let size = format!("B = {size}KB");
        let cheap = at_most_of(f, BOTH, &size, "units", NO_MORE)?;
        Ok(ClaimFinding::all([faster(f, BOTH, &size, "p99", 1e3)?, cheap]))
    };
    let findings: Result<Vec<_>, _> = SIZES_KB.into_iter().map(judge).collect();
    Ok(ClaimFinding::all(findings?))
}

fn measure(lab: &mut Lab<'_>) -> Measured {
    let base = bases::tracking(lab.length());
    let flowlets = in_mode(&base, "flowlet").setup;
    let mut subjects: Vec<RowSubject> = SIZES_KB
        .into_iter()
        .map(|size| {
            let setup = flowlets.clone();
            let setup = if size == DEFAULT_KB {
                setup
            } else {
                setup.with("dispatcher.size_max", format!("{size}KB"))
            };
            RowSubject::new(format!("B = {size}KB"), RowKind::Faithful, setup)
        })
        .collect();
    subjects.extend([PREDICTED, BOTH].map(|mode| in_mode(&base, mode)));
    let table = FigureTable::measure(lab, "by B", CostProfile::Paper, GAUGES, &subjects);
    let line = |name: &str, metric: &'static str, per: f64| {
        let points = SIZES_KB.into_iter().filter_map(|size| {
            let found = table.get(&format!("B = {size}KB"), metric)?;
            Some((f64::from(size), found.median / per))
        });
        ChartSeries::new(name, ChartMark::Line, points)
    };
    let chart = |title: &str, label: &str, series| FigureChart {
        title: title.to_owned(),
        x: ChartAxis::linear("B, KB"),
        y: ChartAxis::linear(label),
        series: vec![series],
    };
    let charts = vec![
        chart("latency", "p99 of latency at the unit, us", line("flowlet", "p99", 1e3)),
        chart("units", "units in the mean", line("flowlet", "units", 1.0)),
        chart("states fetched", "states fetched, thousands", line("flowlet", "pulls", 1e3)),
    ];
    Measured { tables: vec![table], charts, notes: Vec::new() }
}
