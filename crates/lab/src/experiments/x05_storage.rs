//! X5: where states are kept, and how they get to where they are wanted.

mod real;

use super::bases::{FUNCTIONS, ON_DEMAND, STORE, of_function, storage_flowlets};
use super::common::{
    BOTH, FEW_COPIES, FLOWLET, PREDICTED, PUSHED, STAYS, as_fast_as, at_least, at_most_of, drops_no_more,
    flat, in_mode, paper, percentile_boxes, series_at, show, tuned_row,
};
use super::{Experiment, Measured, OverviewRow, Picture, tuning};
use crate::chart::{ChartAxis, ChartMark, FigureChart};
use crate::gauges;
use crate::runs::Lab;
use crate::setup::ScenarioText;
use crate::table::{CostProfile, FigureTable, ReportGauge, RowKind, RowSubject};
use crate::verdict::{Claim, ClaimFinding, MeasuredFigures, MissingFigure};

/// Published claims about the place of states (S93, S94, S95).
pub const X5: Experiment = Experiment {
    id: "X5",
    title: "Location and transfer of state",
    question: "Where should state live?",
    published: "S93, of a NAT: medians 0.67, 0.61 and 0.44 us, tails 168.18, 132.74 and 11.01 us \
                with an external store, with states fetched on demand, and with replicas; S95: \
                90.43 % of changes of unit without waiting",
    workload: "W-B at 4 Gbit/s, P-paper; five functions by state size and cost; on this machine: \
               generated packets through a real NAT, with states in a Redis, at another thread, \
               or in the unit",
    matches: &[
        Claim {
            text: "NAT: a median of at most 0.67 us with replicas, without drops",
            test: |f| as_fast_as(f, &row("NAT", AHEAD), "p50", 670.0, 1e3),
        },
        Claim {
            text: "every function: the tail (p99) is a 12th of that with states fetched on \
                   demand, without more drops",
            test: |f| tails(f, ON_DEMAND, 12.0),
        },
        Claim {
            text: "every function: the tail is a 15th of that with an external store, without \
                   more drops",
            test: |f| tails(f, STORE, 15.0),
        },
        Claim {
            text: "every function: the same with both baselines tuned for it",
            test: |f| {
                let tuned = [(ON_DEMAND, 12.0), (STORE, 15.0)]
                    .map(|(manner, least)| tails(f, &tuned_row(manner, "p99"), least));
                Ok(ClaimFinding::all(tuned.into_iter().collect::<Result<Vec<_>, _>>()?))
            },
        },
        Claim {
            text: "NAT: at least 90.43 % of changes of unit go without waiting",
            test: |f| at_least(f, &row("NAT", AHEAD), "seamless", 0.9043, 0.01),
        },
    ],
    beats: &[
        Claim {
            text: "NAT: if flowlets stay and only nearly full units send replicas, at least 97 % \
                   of changes go without waiting, at no more than half of the bandwidth, seed by \
                   seed",
            test: |f| {
                let ours = row("NAT", FEW_COPIES);
                let share = at_least(f, &ours, "seamless", 0.97, 0.01)?;
                Ok(ClaimFinding::all([share, at_most_of(f, &ours, &row("NAT", AHEAD), "states", 0.5)?]))
            },
        },
        Claim {
            text: "NAT: if flowlets stay with units that are not full, the tail (p99) is at most \
                   the published 11.01 us, and a 12th of that with states fetched on demand, as \
                   published and tuned, without more drops",
            test: |f| {
                let ours = row("NAT", STAYS);
                Ok(ClaimFinding::all([
                    as_fast_as(f, &ours, "p99", 11.01e3, 1e3)?,
                    tail(f, "NAT", STAYS, ON_DEMAND, 12.0)?,
                    tail(f, "NAT", STAYS, &tuned_row(ON_DEMAND, "p99"), 12.0)?,
                ]))
            },
        },
    ],
    checks: &[],
    real: real::CLAIMS,
    summary: OverviewRow {
        published: "p99 11 us copied ahead, 133 us on demand, 168 us in a store",
        found: "{0|NAT, plus: flowlets stay|p99} when flowlets stay; {0|NAT, ahead|p99} with \
                copies as published",
        caveat: "the rate decides, and is not published",
    },
    measure,
    picture: Picture::Charts(charts),
};

const GAUGES: &[&ReportGauge] = &[
    &gauges::P1,
    &gauges::P25,
    &gauges::P50,
    &gauges::P75,
    &gauges::P99,
    &gauges::P99_9,
    &gauges::SEAMLESS,
    &gauges::PULLS,
    &gauges::STATE_RATE,
    &gauges::DROPPED,
];

pub(super) const AHEAD: &str = "ahead";
pub(super) const NAIVE: &str = "naive store";

/// Our modes that are measured with the first function only.
const OF_THE_FIRST: [&str; 4] = [STAYS, FEW_COPIES, BOTH, PUSHED];

pub(super) fn row(function: &str, manner: &str) -> String {
    format!("{function}, {manner}")
}

fn tails(f: &MeasuredFigures<'_>, manner: &str, least: f64) -> Result<ClaimFinding, MissingFigure> {
    let findings: Result<Vec<_>, _> =
        FUNCTIONS.into_iter().map(|(function, ..)| tail(f, function, AHEAD, manner, least)).collect();
    Ok(ClaimFinding::all(findings?))
}

/// Judges a function's tail in another mode to be at least `least` times that of ours, which drops
/// no more.
fn tail(
    f: &MeasuredFigures<'_>,
    function: &str,
    ours: &str,
    other: &str,
    least: f64,
) -> Result<ClaimFinding, MissingFigure> {
    let ratio = times_as_long(f, 0, function, (ours, other), least)?;
    Ok(ClaimFinding::all([ratio, drops_no_more(f, 0, &row(function, ours), &row(function, other))?]))
}

/// Judges a function's p99 in the second mode to be at least `least` times that in the first.
pub(super) fn times_as_long(
    f: &MeasuredFigures<'_>,
    table: usize,
    function: &str,
    (ours, other): (&str, &str),
    least: f64,
) -> Result<ClaimFinding, MissingFigure> {
    let p99 = |manner| f.of(table, &row(function, manner), "p99");
    let ratio = p99(other)?.over(p99(ours)?);
    let holds = ratio.as_ref().is_some_and(|ratio| ratio.is_at_least(least));
    let shown = ratio.map_or_else(|| "-".to_owned(), |ratio| show(&ratio, 1.0, ""));
    Ok(ClaimFinding::new(holds, format!("{function}: {shown} times as long, asked is {least}")))
}

/// States in a store with 100 ns per request, as with several cores of its own.
fn in_store(base: &ScenarioText, manner: &str) -> ScenarioText {
    base.clone().with("state.where", manner).with("state.store_time", "100ns")
}

/// Rates of the sweep, in Gbit/s: the rate of the published figures is not published.
const RATES_FULL: [u32; 7] = [1, 2, 3, 4, 6, 8, 10];
const RATES_QUICK: [u32; 2] = [2, 4];

const SWEEP_GAUGES: &[&ReportGauge] = &[
    &gauges::P50,
    &gauges::P75,
    &gauges::P99,
    &gauges::UNITS,
    &gauges::SEAMLESS,
    &gauges::PULLS,
    &gauges::DROPPED,
];

/// A NAT's row at a rate.
fn at_rate(manner: &str, gbps: u32) -> String {
    format!("{} at {gbps} Gbit/s", row("NAT", manner))
}

/// A NAT's states copied ahead, fetched on demand, and with flowlets that stay, by rate.
fn by_rate(lab: &mut Lab<'_>, rates: &[u32]) -> FigureTable {
    let at = |&gbps: &u32| {
        let base = flat(paper(), "W-B", &format!("{gbps}Gbps"), lab.length(), 500, 1_000);
        let base = of_function(in_mode(&base, FLOWLET).setup, FUNCTIONS[0]);
        let on_demand = base.clone().with("state.where", "reactive");
        let both = in_mode(&base, BOTH).setup;
        [
            (ON_DEMAND, RowKind::Baseline, on_demand),
            (AHEAD, RowKind::Faithful, base),
            (BOTH, RowKind::Plus, both),
        ]
        .map(|(manner, kind, setup)| RowSubject::new(at_rate(manner, gbps), kind, setup))
    };
    let subjects: Vec<RowSubject> = rates.iter().flat_map(at).collect();
    FigureTable::measure(lab, "a NAT, by rate", CostProfile::Paper, SWEEP_GAUGES, &subjects)
}

/// Charts with the axes of the published figure.
fn charts(tables: &[FigureTable]) -> Vec<FigureChart> {
    let [table, by_rate, real @ ..] = tables else { return Vec::new() };
    let manners = [
        (STORE, "external store"),
        (ON_DEMAND, "fetched on demand"),
        (AHEAD, "replicas (as published)"),
        (STAYS, "ours: flowlets stay"),
        (FEW_COPIES, "ours: few copies"),
    ];
    let names = manners.map(|(manner, name)| (row("NAT", manner), name));
    let rows: Vec<(&str, &str)> = names.iter().map(|(row, name)| (row.as_str(), *name)).collect();
    let series = |manner: &str| {
        let rows = RATES_FULL.map(|gbps| (f64::from(gbps), at_rate(manner, gbps)));
        series_at(by_rate, (manner, ChartMark::Line), ("p99", 1e3), rows)
    };
    let rates = FigureChart {
        title: "NAT: 99th percentile by rate".to_owned(),
        x: ChartAxis::linear("demand, Gbit/s"),
        y: ChartAxis::logarithmic("99th percentile of latency, us"),
        series: [ON_DEMAND, AHEAD, BOTH].map(series).into(),
    };
    let of_real = |table: &FigureTable| {
        let rows: Vec<(&str, &str)> =
            table.rows.iter().map(|row| (row.name.as_str(), row.name.as_str())).collect();
        percentile_boxes("NAT, measured on this machine", table, &rows)
    };
    let simulated = percentile_boxes("NAT, simulated", table, &rows);
    [simulated, rates].into_iter().chain(real.first().map(of_real)).collect()
}

fn measure(lab: &mut Lab<'_>) -> Measured {
    let base = storage_flowlets(lab.length());
    let ours = [PREDICTED, STAYS, FEW_COPIES, BOTH, PUSHED]
        .map(|mode| (mode.to_owned(), RowKind::Plus, in_mode(&base, mode).setup));
    let tuned =
        tuning::tuned("X5").map(|chosen| (chosen.row(), RowKind::Baseline, chosen.setup(base.clone())));
    let tuned: Vec<(String, RowKind, ScenarioText)> = tuned.collect();
    let published = [
        (NAIVE, RowKind::Baseline, in_store(&base, "store_naive")),
        (STORE, RowKind::Baseline, in_store(&base, "store")),
        (ON_DEMAND, RowKind::Baseline, base.clone().with("state.where", "reactive")),
        (AHEAD, RowKind::Faithful, base),
    ];
    let published = published.map(|(manner, kind, setup)| (manner.to_owned(), kind, setup));
    let manners: Vec<(String, RowKind, ScenarioText)> =
        published.into_iter().chain(tuned).chain(ours).collect();
    let subjects: Vec<RowSubject> = FUNCTIONS
        .iter()
        .flat_map(|function| manners.iter().map(move |manner| (function, manner)))
        .filter(|(function, manner)| **function == FUNCTIONS[0] || !OF_THE_FIRST.contains(&manner.0.as_str()))
        .map(|(&function, (manner, kind, setup))| {
            RowSubject::new(row(function.0, manner), *kind, of_function(setup.clone(), function))
        })
        .collect();
    let published = [(STORE, 670.0, 168.18e3), (ON_DEMAND, 610.0, 132.74e3), (AHEAD, 440.0, 11.01e3)];
    let table = FigureTable::measure(lab, "latency at the unit", CostProfile::Paper, GAUGES, &subjects);
    let table = published.iter().fold(table, |table, &(manner, p50, p99)| {
        let row = row("NAT", manner);
        table.paper(&row, "p50", p50).paper(&row, "p99", p99)
    });
    let table = table.paper(&row("NAT", AHEAD), "seamless", 0.9043);
    let rates = lab.length().pick(&RATES_QUICK[..], &RATES_FULL[..]);
    let by_rate = by_rate(lab, rates);
    let real = real::measure(lab.length());
    Measured {
        notes: [
            "External store: states are read when a flowlet begins and written when the flow \
             falls silent; naive: before and after every packet. Both are simulated, over a link \
             as between units, with 100 ns per request."
                .to_owned(),
            real::note(real.is_some()),
            "Costs per packet are published for a NAT only. Other functions that read headers are \
             assumed to cost the same, the IDS five times as much."
                .to_owned(),
            "The papers do not name the percentile of the tail; here it is the 99th.".to_owned(),
            "Seamless: the share after the warm-up, 100 % if no flow changes its unit. Pulls: of \
             the whole run."
                .to_owned(),
            "Baselines are tuned with the NAT's states and have the same settings for all \
             functions."
                .to_owned(),
        ]
        .into_iter()
        .chain(tuning::notes("X5"))
        .collect(),
        tables: [table, by_rate].into_iter().chain(real).collect(),
    }
}
