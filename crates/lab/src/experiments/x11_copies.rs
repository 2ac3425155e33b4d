//! X11: to how many units states are copied ahead, and what having one is worth.

use super::common::{
    BOTH, FEW_COPIES, FLOWLET, PUSHED, STAYS, drops_no_more, faster, in_mode, paper, predicted, series_at,
    show, up_and_down,
};
use super::{Experiment, Measured, OverviewRow, Picture};
use crate::chart::{ChartAxis, ChartMark, ChartSeries, FigureChart};
use crate::gauges;
use crate::runs::Lab;
use crate::table::{CostProfile, FigureTable, ReportGauge, RowKind, RowSubject};
use crate::verdict::{Claim, ClaimFinding, MeasuredFigures, MissingFigure};

/// Published claims about K and lambda (S101).
pub const X11: Experiment = Experiment {
    id: "X11",
    title: "Benefit of replicas",
    question: "Are replicas worth their cost?",
    published: "S101, 15 units of 500 Mbit/s: with K = 3 the tail falls from 107 to 6.8 us as lambda goes from 0 to 0.75; at high \
                lambda, K from 3 to 9 raises it from 6.8 to 15.2 us; more lambda takes more units",
    workload: "W-B at 0.5 to 5 Gbit/s, P-paper with units of 500 Mbit/s, 15 at most",
    matches: &[
        Claim {
            text: "K = 3: p99 falls to a tenth from lambda = 0 to 0.75, seed by seed, without \
                   more drops",
            test: |f| {
                let ratio = f.get(&row(3, 0.0), "p99")?.over(f.get(&row(3, HIGH), "p99")?);
                let holds = ratio.as_ref().is_some_and(|ratio| ratio.is_at_least(10.0));
                let shown = ratio.map_or_else(|| "-".to_owned(), |ratio| show(&ratio, 1.0, ""));
                let fall = ClaimFinding::new(holds, format!("a factor of {shown} against 10"));
                Ok(ClaimFinding::all([fall, drops_no_more(f, 0, &row(3, HIGH), &row(3, 0.0))?]))
            },
        },
        Claim {
            text: "at lambda = 0.75, K = 3 has a lower p99 than K = 9, without more drops",
            test: |f| faster(f, &row(3, HIGH), &row(9, HIGH), "p99", 1e3),
        },
    ],
    beats: &[Claim {
        text: "if flowlets stay, one replica from nearly full units only has a lower p99 and a \
               larger seamless share than three of all flowlets, at lambda = 0.25 and at 0.75, \
               without more drops",
        test: beats,
    }],
    checks: &[],
    real: &[],
    summary: OverviewRow {
        published: "tail 107 to 6.8 us with three copies",
        found: "{0|K = 3, lambda = 0|p99} to {0|K = 3, lambda = 0.75|p99}",
        caveat: "the published figures contradict each other",
    },
    measure,
    picture: Picture::Charts(charts),
};

const GAUGES: &[&ReportGauge] = &[
    &gauges::P50,
    &gauges::P75,
    &gauges::P99,
    &gauges::UNITS,
    &gauges::SEAMLESS,
    &gauges::PULLS,
    &gauges::STATE_RATE,
    &gauges::DROPPED,
];

/// Time of a message at a unit, in the second table: that of a packet. The papers do not say.
const MESSAGE_COST: &str = "440ns";

/// The published default.
const DEFAULT: f64 = 0.25;
/// Lambda that counts as high.
const HIGH: f64 = 0.75;

const LAMBDAS_FULL: [f64; 5] = [0.0, DEFAULT, 0.5, HIGH, 1.0];
const LAMBDAS_QUICK: [f64; 3] = [0.0, DEFAULT, HIGH];
const KS_FULL: [u32; 5] = [1, 3, 5, 7, 9];
const KS_QUICK: [u32; 3] = [1, 3, 9];

fn row(k: u32, lambda: f64) -> String {
    format!("K = {k}, lambda = {lambda}")
}

fn costly(k: u32, lambda: f64) -> String {
    format!("{}, messages {MESSAGE_COST}", row(k, lambda))
}

fn predicted_at(lambda: f64) -> String {
    format!("plus: predicted, lambda = {lambda}")
}

fn beats(f: &MeasuredFigures<'_>) -> Result<ClaimFinding, MissingFigure> {
    let mut findings = Vec::new();
    for lambda in [DEFAULT, HIGH] {
        let theirs = row(3, lambda);
        let (share, their_share) = (f.get(FEW_COPIES, "seamless")?, f.get(&theirs, "seamless")?);
        let why = format!("seamless {} against {}", show(share, 0.01, "%"), show(their_share, 0.01, "%"));
        findings.push(faster(f, FEW_COPIES, &theirs, "p99", 1e3)?);
        findings.push(ClaimFinding::new(their_share.is_below(share), why));
    }
    Ok(ClaimFinding::all(findings))
}

fn measure(lab: &mut Lab<'_>) -> Measured {
    let length = lab.length();
    let setup = up_and_down(paper(), "W-B", 0.5, length)
        .with("units.capacity", "500Mbps")
        .with("dispatcher.capacity", "490Mbps")
        .with("units.count", "1..15");
    let setup = in_mode(&setup, FLOWLET).setup;
    let lambdas = length.pick(&LAMBDAS_QUICK[..], &LAMBDAS_FULL[..]);
    let ks = length.pick(&KS_QUICK[..], &KS_FULL[..]);
    let mut subjects = Vec::new();
    for &k in ks {
        subjects.extend(lambdas.iter().map(|&lambda| {
            let setup = setup.clone().with("dispatcher.targets_count", k).with("dispatcher.lambda", lambda);
            RowSubject::new(row(k, lambda), RowKind::Faithful, setup)
        }));
    }
    subjects.extend([DEFAULT, HIGH].map(|lambda| {
        RowSubject::new(
            predicted_at(lambda),
            RowKind::Plus,
            predicted(setup.clone()).with("dispatcher.lambda", lambda),
        )
    }));
    // With the published lambda, and K unless there are few copies.
    subjects.extend([STAYS, FEW_COPIES, PUSHED, BOTH].map(|mode| in_mode(&setup, mode)));
    let table = FigureTable::measure(lab, "by K and lambda", CostProfile::Paper, GAUGES, &subjects)
        .paper(&row(3, 0.0), "p99", 107e3)
        .paper(&row(3, HIGH), "p99", 6.8e3)
        .paper(&row(9, HIGH), "p99", 15.2e3);
    let costly: Vec<RowSubject> = ks
        .iter()
        .filter(|&&k| k > 1)
        .flat_map(|&k| [0.0, HIGH].map(|lambda| (k, lambda)))
        .map(|(k, lambda)| {
            let setup = setup.clone().with("dispatcher.targets_count", k).with("dispatcher.lambda", lambda);
            RowSubject::new(
                costly(k, lambda),
                RowKind::Faithful,
                setup.with("units.message_cost", MESSAGE_COST),
            )
        })
        .collect();
    let with_cost =
        FigureTable::measure(lab, "units that spend time on messages", CostProfile::Paper, GAUGES, &costly);
    Measured { tables: vec![table, with_cost], notes: notes() }
}

fn notes() -> Vec<String> {
    [
        "The papers do not name the percentile of the tail; here it is the 99th.",
        "In the first table, messages cost units no time. In the second, a message costs 0.44 us, \
         like a packet, at the receiving unit and at a sending one, outside of quotas. No claim \
         is about the second table.",
    ]
    .map(str::to_owned)
    .into()
}

/// Charts with the axes of the published figure.
fn charts(tables: &[FigureTable]) -> Vec<FigureChart> {
    let Some(table) = tables.first() else { return Vec::new() };
    let series = |metric: &str, per: f64| {
        let of = |name: &str, row: &dyn Fn(f64) -> String| {
            let rows = LAMBDAS_FULL.map(|lambda| (lambda, row(lambda)));
            series_at(table, (name, ChartMark::Line), (metric, per), rows)
        };
        let by_k = KS_FULL.map(|k| of(&format!("K = {k}"), &|lambda| row(k, lambda)));
        by_k.into_iter().chain([of("ours: predicted", &predicted_at)]).collect::<Vec<ChartSeries>>()
    };
    let chart = |title: &str, y: ChartAxis, series| FigureChart {
        title: title.to_owned(),
        x: ChartAxis::linear("lambda"),
        y,
        series,
    };
    vec![
        chart("tail", ChartAxis::logarithmic("99th percentile of latency, us"), series("p99", 1e3)),
        chart("units", ChartAxis::linear("units in the mean"), series("units", 1.0)),
        chart("seamless", ChartAxis::linear("changes without waiting, %"), series("seamless", 0.01)),
    ]
}
