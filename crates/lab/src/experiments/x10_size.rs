//! X10: how large a flowlet may be.

use super::bases;
use super::common::{BOTH, NO_MORE, PREDICTED, at_most_of, below, faster, in_mode, series_at};
use super::{Experiment, Measured, OverviewRow, Picture};
use crate::chart::{ChartAxis, ChartMark, FigureChart};
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
    checks: &[],
    real: &[],
    summary: OverviewRow {
        published: "larger: lower latency, more units",
        found: "p99 {0|B = 2KB|p99} at 2 KB, {0|B = 64KB|p99} at 64 KB; units the same",
        caveat: "",
    },
    measure,
    picture: Picture::Charts(charts),
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
    Measured { tables: vec![table], notes: Vec::new() }
}

/// Charts with the axes of the published figure.
fn charts(tables: &[FigureTable]) -> Vec<FigureChart> {
    let Some(table) = tables.first() else { return Vec::new() };
    let chart = |(title, label, metric, per): (&str, &str, &str, f64)| {
        let rows = SIZES_KB.map(|size| (f64::from(size), format!("B = {size}KB")));
        FigureChart {
            title: title.to_owned(),
            x: ChartAxis::logarithmic("size limit B, KB"),
            y: ChartAxis::linear(label),
            series: vec![series_at(table, ("flowlets", ChartMark::Line), (metric, per), rows)],
        }
    };
    [
        ("latency", "99th percentile of latency, us", "p99", 1e3),
        ("units", "units in the mean", "units", 1.0),
        ("states fetched", "states fetched, thousands", "pulls", 1e3),
    ]
    .map(chart)
    .into()
}
