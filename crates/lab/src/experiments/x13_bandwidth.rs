//! X13: what it takes to copy states ahead.

use super::common::{
    FLOWLET, NO_MORE, at_most_of, few_copies, flat, in_mode, paper, predicted, series_at, show,
};
use super::{Experiment, Measured, OverviewRow, Picture};
use crate::chart::{ChartAxis, ChartMark, FigureChart};
use crate::gauges;
use crate::runs::Lab;
use crate::setup::{ScenarioText, toml};
use crate::table::{CostProfile, FigureTable, ReportGauge, RowKind, RowSubject};
use crate::verdict::{Claim, ClaimFinding, MeasuredFigures, MissingFigure};

/// Published claims about the bandwidth of states (S103, S57).
pub const X13: Experiment = Experiment {
    id: "X13",
    title: "Bandwidth of states",
    question: "How much bandwidth do states need?",
    published: "S103, K = 3: NAT 3.62, load balancer 4.13, IDS 3.12, UDP whitelister 2.9, policer 4.8 Mbit/s",
    workload: "W-B at 10 Gbit/s, P-paper; the state sizes of our functions; replicas at three \
               units (weighted), the first, the least loaded, all, or the next choice; whole \
               states or deltas; of all flowlets, or of those that may leave their units",
    matches: &[Claim {
        text: "no function needs more than published, at the flowlet rate of W-B at 10 Gbit/s",
        test: matches,
    }],
    beats: &[Claim {
        text: "if flowlets stay, deltas from nearly full units only take at most a third of the \
               bandwidth of three whole weighted replicas, whose share of changes without waiting \
               is at most 1.02 times as large, seed by seed",
        test: beats,
    }],
    checks: &[],
    real: &[],
    summary: OverviewRow {
        published: "2.9 to 4.8 Mbit/s",
        found: "NAT: {0|NAT, weighted|per flowlet} per flowlet as published, {0|NAT, plus: few, \
                deltas|per flowlet} when only changes are sent",
        caveat: "published: 13 to 22 bits per flowlet",
    },
    measure,
    picture: Picture::Charts(charts),
};

const GAUGES: &[&ReportGauge] = &[
    &gauges::STATE_RATE,
    &gauges::STATE_PER_FLOWLET,
    &gauges::STATE_RATE_PER_UNIT,
    &gauges::SEAMLESS,
    &gauges::PULLS,
];

/// A function.
struct Function {
    name: &'static str,
    /// Bytes of a flow's state, as `rivulet nf list` shows them.
    state: u32,
    /// Bytes of these that change between replicas: chosen so that a delta is as large as the
    /// largest of our functions' ([decision
    /// 18](../../../../docs/decisions/0018-delta-replication.md)). An IDS has varying deltas: two
    /// thirds here, half in its own deltas.
    changes: u32,
    /// Published rate for K = 3, in bit/s.
    published_bps: f64,
}

const FUNCTIONS: [Function; 5] = [
    Function { name: "NAT", state: 96, changes: 16, published_bps: 3.62e6 },
    Function { name: "load balancer", state: 64, changes: 22, published_bps: 4.13e6 },
    Function { name: "IDS", state: 384, changes: 250, published_bps: 3.12e6 },
    Function { name: "whitelister", state: 16, changes: 16, published_bps: 2.9e6 },
    Function { name: "policer", state: 48, changes: 48, published_bps: 4.8e6 },
];

/// Flowlets that W-B has in a second at 10 Gbit/s: 199 K flows of 4.66 flowlets each (S86, S99).
/// Their 6.4 M packets of 833 bytes, our workload's mean, take 4.27 s.
const FLOWLETS_PER_SECOND: f64 = 199e3 * 4.66 / (6.4e6 * 833.0 * 8.0 / 10e9);

const WEIGHTED: &str = "weighted";
const PREDICTED: &str = "plus: predicted";
const DELTAS: &str = "plus: deltas";
const BOTH: &str = "plus: predicted, deltas";
const FEW: &str = "plus: few";
const FEW_DELTAS: &str = "plus: few, deltas";

fn row(function: &str, targets: &str) -> String {
    format!("{function}, {targets}")
}

fn matches(f: &MeasuredFigures<'_>) -> Result<ClaimFinding, MissingFigure> {
    let judge = |Function { name, published_bps, .. }: Function| {
        let found = f.get(&row(name, WEIGHTED), "per flowlet")?;
        let limit = published_bps / FLOWLETS_PER_SECOND;
        let why = format!("{name} {} against {limit:.0} bit per flowlet", show(found, 1.0, ""));
        Ok(ClaimFinding::new(found.is_at_most(limit), why))
    };
    let findings: Result<Vec<_>, _> = FUNCTIONS.into_iter().map(judge).collect();
    Ok(ClaimFinding::all(findings?))
}

fn beats(f: &MeasuredFigures<'_>) -> Result<ClaimFinding, MissingFigure> {
    let name = FUNCTIONS[0].name;
    let (ours, theirs) = (row(name, FEW_DELTAS), row(name, WEIGHTED));
    let cheap = at_most_of(f, &ours, &theirs, "per flowlet", 1.0 / 3.0)?;
    Ok(ClaimFinding::all([cheap, at_most_of(f, &theirs, &ours, "seamless", NO_MORE)?]))
}

/// Charts with the axes of the published figure.
fn charts(tables: &[FigureTable]) -> Vec<FigureChart> {
    let Some(table) = tables.first() else { return Vec::new() };
    let series = |(manner, name): (&str, &str)| {
        let rows = (0..).zip(FUNCTIONS).map(|(at, function)| (f64::from(at), row(function.name, manner)));
        series_at(table, (name, ChartMark::Bars), ("states", 1e6), rows)
    };
    vec![FigureChart {
        title: "states on links".to_owned(),
        x: ChartAxis::names("functions", FUNCTIONS.map(|function| function.name)),
        y: ChartAxis::logarithmic("Mbit/s"),
        series: [(WEIGHTED, "whole replicas at three units"), (FEW_DELTAS, "ours: few, deltas")]
            .map(series)
            .into(),
    }]
}

fn measure(lab: &mut Lab<'_>) -> Measured {
    let flowlets = in_mode(&flat(paper(), "W-B", "10Gbps", lab.length(), 400, 2_000), FLOWLET).setup;
    let deltas = |setup: ScenarioText| setup.with("units.deltas", toml("true"));
    let manners: [(&str, RowKind, ScenarioText); 9] = [
        (WEIGHTED, RowKind::Faithful, flowlets.clone()),
        ("first", RowKind::Baseline, flowlets.clone().with("dispatcher.targets", "first")),
        ("least loaded", RowKind::Baseline, flowlets.clone().with("dispatcher.targets", "least_loaded")),
        ("all", RowKind::Baseline, flowlets.clone().with("dispatcher.targets", "all")),
        (PREDICTED, RowKind::Plus, predicted(flowlets.clone())),
        (DELTAS, RowKind::Plus, deltas(flowlets.clone())),
        (BOTH, RowKind::Plus, deltas(predicted(flowlets.clone()))),
        (FEW, RowKind::Plus, few_copies(flowlets.clone())),
        (FEW_DELTAS, RowKind::Plus, deltas(few_copies(flowlets))),
    ];
    // How flowlets go does not depend on what their states are: the first function in all manners,
    // the others in these two.
    let is_wanted = |function: usize, manner: &str| function == 0 || [WEIGHTED, FEW_DELTAS].contains(&manner);
    let mut subjects = Vec::new();
    for (i, Function { name, state, changes, .. }) in FUNCTIONS.into_iter().enumerate() {
        for (manner, kind, setup) in manners.iter().filter(|manner| is_wanted(i, manner.0)) {
            let setup = setup
                .clone()
                .with("units.state", format!("{state}B"))
                .with("units.changes", format!("{changes}B"));
            subjects.push(RowSubject::new(row(name, manner), *kind, setup));
        }
    }
    let mut table = FigureTable::measure(lab, "states on links", CostProfile::Paper, GAUGES, &subjects);
    for Function { name, published_bps, .. } in FUNCTIONS {
        table = table.paper(&row(name, WEIGHTED), "states", published_bps);
    }
    Measured {
        tables: vec![table],
        notes: vec![
            "Only bytes of states count, not headers of messages.".to_owned(),
            "Deltas: states are synthetic, without zeros, and change as much as those of our \
             functions. The version of the base counts. States handed over on request are whole."
                .to_owned(),
            format!(
                "The papers name neither the flowlet rate nor the number of units. At {:.0} \
                 thousand flowlets per second (W-B at 10 Gbit/s), their 3.62 Mbit/s of a NAT are \
                 {:.1} bytes per flowlet, less than an address and a port. So their figures are \
                 probably per unit, or not every flowlet's state is copied. The verdict uses the \
                 plain reading.",
                FLOWLETS_PER_SECOND / 1e3,
                3.62e6 / FLOWLETS_PER_SECOND / 8.0
            ),
        ],
    }
}
