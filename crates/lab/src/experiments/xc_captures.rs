//! XC: the modes on captures of real traffic, as a cross-check of what is made up (R5).

use std::path::Path;

use super::common::{
    BOTH, FLOW, FLOW_MODES, FLOWLET, FOLLOWS, NO_MORE, RSS, SMART_50, SMART_100, STAYS, bars_of,
    drops_no_more, in_modes, paper, show,
};
use super::{Experiment, Measured, OverviewRow, Picture};
use crate::chart::{ChartAxis, FigureChart};
use crate::gauges;
use crate::runs::{Lab, RunLength};
use crate::setup::ScenarioText;
use crate::table::{CostProfile, FigureTable, ReportGauge};
use crate::verdict::{Claim, ClaimFinding, MeasuredFigures, MissingFigure};

/// Synthetic traces against captures (R5).
pub const XC: Experiment = Experiment {
    id: "XC",
    title: "Captured traffic",
    question: "Do the results hold on real captures?",
    published: "R5: the papers' traces are not public (no figures)",
    workload: "the given captures, sped up and multiplied to 4 Gbit/s; P-paper; the modes of X1 \
               to X3",
    matches: &[],
    beats: &[Claim {
        text: "if units follow demand and flowlets stay, p99 is below that of flowlets, without \
               more drops, at no more than 1.02 times the unit-seconds, seed by seed",
        test: |f| {
            on_all(f, |table| {
                let share = f.of(table, BOTH, "unit-seconds")?.over(f.of(table, FLOWLET, "unit-seconds")?);
                let is_no_more = share.as_ref().is_some_and(|share| share.is_at_most(NO_MORE));
                let shown = share.map_or_else(|| "-".to_owned(), |share| show(&share, 1.0, ""));
                let costs = ClaimFinding::new(is_no_more, format!("{shown} of the unit-seconds"));
                Ok(ClaimFinding::all([faster(f, table, BOTH, FLOWLET, "p99", 1e6)?, costs]))
            })
        },
    }],
    checks: &[
        Claim {
            text: "on every capture, flowlets overload units less than flows and smart flows",
            test: |f| on_all(f, |table| below_flow_modes(f, table, "above 100 %", 0.01)),
        },
        Claim {
            text: "their p99 is below that of flows and smart flows, without more drops",
            test: |f| on_all(f, |table| below_flow_modes(f, table, "p99", 1e6)),
        },
    ],
    real: &[],
    summary: OverviewRow {
        published: "no figures",
        found: "flowlets: less overload ({0|flowlet|above 100 %} against {0|flow|above 100 %}) and \
                lower p99 than flows",
        caveat: "captures are short",
    },
    measure,
    picture: Picture::Charts(charts),
};

const MODES: [&str; 8] = [FLOWLET, FLOW, SMART_100, SMART_50, RSS, FOLLOWS, STAYS, BOTH];

const GAUGES: &[&ReportGauge] = &[
    &gauges::P50,
    &gauges::P75,
    &gauges::P99,
    &gauges::P99_9,
    &gauges::WITHIN_2,
    &gauges::OVERLOADED,
    &gauges::UNIT_SECONDS,
    &gauges::SEAMLESS,
    &gauges::FLOWLETS,
    &gauges::FLOWS,
    &gauges::DROPPED,
];

/// Judges every table.
fn on_all(
    f: &MeasuredFigures<'_>,
    judge: impl Fn(usize) -> Result<ClaimFinding, MissingFigure>,
) -> Result<ClaimFinding, MissingFigure> {
    let each = f.0.iter().enumerate().map(|(number, table)| {
        let finding = judge(number)?;
        Ok(ClaimFinding { why: format!("{}: {}", table.title, finding.why), ..finding })
    });
    Ok(ClaimFinding::all(each.collect::<Result<Vec<_>, _>>()?))
}

fn below_flow_modes(
    f: &MeasuredFigures<'_>,
    table: usize,
    metric: &str,
    per: f64,
) -> Result<ClaimFinding, MissingFigure> {
    let findings = FLOW_MODES.iter().map(|mode| faster(f, table, FLOWLET, mode, metric, per));
    Ok(ClaimFinding::all(findings.collect::<Result<Vec<_>, _>>()?))
}

fn faster(
    f: &MeasuredFigures<'_>,
    table: usize,
    low: &str,
    high: &str,
    metric: &str,
    per: f64,
) -> Result<ClaimFinding, MissingFigure> {
    let (ours, theirs) = (f.of(table, low, metric)?, f.of(table, high, metric)?);
    let why = format!("{metric}: {low} {}, {high} {}", show(ours, per, ""), show(theirs, per, ""));
    Ok(ClaimFinding::all([
        ClaimFinding::new(ours.is_below(theirs), why),
        drops_no_more(f, table, low, high)?,
    ]))
}

/// The rate that captures are brought to, in bits per second.
const RATE_BPS: f64 = 4e9;

/// A chart of latency by mode, as X2 has it of made-up traffic, for the first capture.
fn charts(tables: &[FigureTable]) -> Vec<FigureChart> {
    let Some(table) = tables.first() else { return Vec::new() };
    let series = |metric| bars_of(table, metric, (metric, 1e3), MODES);
    vec![FigureChart {
        title: format!("latency by mode, {}", table.title),
        x: ChartAxis::names("mode", MODES),
        y: ChartAxis::logarithmic("latency at the unit, us"),
        series: ["p50", "p75", "p99", "p99.9"].map(series).into(),
    }]
}

fn measure(lab: &mut Lab<'_>) -> Measured {
    let mut notes = vec![
        "A capture is sped up to take a second (2 s with --full) and repeated. Enough copies for \
         4 Gbit/s run at the same time, each with its own flows and from a place that the seed \
         determines. Both directions of a connection are one flow, which ends after a second of \
         silence."
            .to_owned(),
    ];
    let files = lab.captures().to_vec();
    if files.is_empty() {
        notes.push("No captures were given (`--captures`), so nothing was measured and judged.".to_owned());
    }
    let mut tables: Vec<FigureTable> = Vec::new();
    for file in files {
        let name = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        match setup(lab, &file) {
            Ok((setup, how)) => {
                notes.push(format!("{name}: {how}"));
                let subjects = in_modes(&setup, &MODES);
                tables.push(FigureTable::measure(lab, name, CostProfile::Paper, GAUGES, &subjects));
            }
            Err(why) => notes.push(format!("left out: {why}")),
        }
    }
    Measured { tables, notes }
}

/// The scenario of a capture, and what was made of it, in words.
fn setup(lab: &Lab<'_>, file: &Path) -> Result<(ScenarioText, String), String> {
    let (round_ms, time_ms, interval_ms) = match lab.length() {
        RunLength::Smoke => (1_000, 40, 10),
        RunLength::Quick => (1_000, 1_000, 100),
        RunLength::Full => (2_000, 4_000, 100),
    };
    let recording = lab.recording(file)?;
    let length_ms = recording.length_ns() as f64 * 1e-6;
    let speedup = (length_ms / f64::from(round_ms)).max(1.0);
    let bytes: u64 = recording.packets().iter().map(|packet| u64::from(packet.len)).sum();
    let copy_bps = bytes as f64 * 8e3 / length_ms.max(1.0) * speedup;
    let copies = (RATE_BPS / copy_bps).ceil().clamp(1.0, f64::from(sim::scenario::COPIES_MAX)) as u32;
    let setup = paper()
        .with("workload.capture.file", file.to_string_lossy().into_owned())
        .with("workload.capture.speedup", speedup)
        .with("workload.capture.copies", copies)
        .with("units.expire_after", "1s")
        .with("run.time", format!("{time_ms}ms"))
        .with("run.interval", format!("{interval_ms}ms"))
        .with("run.warm_up", format!("{interval_ms}ms"));
    let (packets, flows) = (recording.packets().len(), recording.flows());
    Ok((
        setup,
        format!(
            "{packets} packets of {flows} flows; sped up {speedup:.0} times, {copies} \
                        copies"
        ),
    ))
}
