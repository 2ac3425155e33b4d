//! X4: how many more occasions for a choice flowlets bring.

use super::common::{FLOWLET, bars_of, in_mode, paper, show, up_and_down};
use super::{Experiment, Measured, OverviewRow, Picture};
use crate::chart::{ChartAxis, FigureChart};
use crate::gauges;
use crate::runs::Lab;
use crate::setup::ScenarioText;
use crate::table::{CostProfile, FigureTable, RowKind, RowSubject};
use crate::verdict::{Claim, ClaimFinding};

/// Published claims about flowlets per flow (S89, S99).
pub const X4: Experiment = Experiment {
    id: "X4",
    title: "Flowlets per flow",
    question: "How many flowlets has a flow?",
    published: "S89: 3.36 times as many choices of a unit as with flows; S99: 5.18 with T = 100 \
                us, 4.66 with 500 us",
    workload: "W-A and W-B at 1 to 10 Gbit/s; T = 100 and 500 us; a flow is one choice",
    matches: &[
        Claim {
            text: "W-B, T = 500 us: more than 3.36 flowlets per flow",
            test: |f| {
                let found = f.get(&row("W-B", "500us"), "flowlets per flow")?;
                Ok(ClaimFinding::new(found.low > 3.36, show(found, 1.0, "")).by_fit("our trace"))
            },
        },
        Claim {
            text: "more flowlets with T = 100 us than with 500 us, on both traces, seed by seed",
            test: |f| {
                let judge = |trace| {
                    let few = f.get(&row(trace, "500us"), "flowlets per flow")?;
                    let many = f.get(&row(trace, "100us"), "flowlets per flow")?;
                    let ratio = many.over(few);
                    let shown = ratio.as_ref().map_or_else(|| "-".to_owned(), |ratio| show(ratio, 1.0, ""));
                    let holds = ratio.is_some_and(|ratio| ratio.low > 1.0);
                    Ok(ClaimFinding::new(holds, format!("{trace}: {shown} times as many")))
                };
                Ok(ClaimFinding::all([judge("W-A")?, judge("W-B")?]))
            },
        },
    ],
    beats: &[],
    checks: &[],
    real: &[],
    summary: OverviewRow {
        published: "3.36 to 5.18",
        found: "{0|W-B, T = 500us|flowlets per flow}",
        caveat: "fitted, so it shows nothing",
    },
    measure,
    picture: Picture::Charts(charts),
};

const TRACES: [&str; 2] = ["W-A", "W-B"];
const GAPS: [&str; 2] = ["100us", "500us"];

fn row(trace: &str, gap: &str) -> String {
    format!("{trace}, T = {gap}")
}

/// A chart of both traces.
fn charts(tables: &[FigureTable]) -> Vec<FigureChart> {
    let Some(table) = tables.first() else { return Vec::new() };
    let series = |gap: &str| {
        bars_of(table, &format!("T = {gap}"), ("flowlets per flow", 1.0), TRACES.map(|trace| row(trace, gap)))
    };
    vec![FigureChart {
        title: "flowlets per flow".to_owned(),
        x: ChartAxis::names("trace", TRACES),
        y: ChartAxis::linear("flowlets per flow"),
        series: GAPS.map(series).into(),
    }]
}

fn measure(lab: &mut Lab<'_>) -> Measured {
    let length = lab.length();
    let setup = |trace, gap: &str| -> ScenarioText {
        let flowlets = in_mode(&up_and_down(paper(), trace, 1.0, length), FLOWLET).setup;
        // What is the default is left out: so X1 and this have the same run.
        if gap == "500us" { flowlets } else { flowlets.with("dispatcher.gap", gap) }
    };
    let pairs = TRACES.iter().flat_map(|trace| GAPS.iter().map(move |gap| (*trace, *gap)));
    let subjects: Vec<RowSubject> = pairs
        .map(|(trace, gap)| RowSubject::new(row(trace, gap), RowKind::Faithful, setup(trace, gap)))
        .collect();
    let table = FigureTable::measure(
        lab,
        "flowlets per flow",
        CostProfile::Paper,
        &[&gauges::FLOWLETS, &gauges::FLOWS],
        &subjects,
    )
    .paper(&row("W-B", "100us"), "flowlets per flow", 5.18)
    .paper(&row("W-B", "500us"), "flowlets per flow", 4.66);
    Measured {
        tables: vec![table],
        notes: vec![
            "The number is a property of the trace. The papers' traces are not public, and ours \
             are fitted to the published bursts per flow at T = 500 us (S99). So only the order \
             is evidence; a verdict about the number is by fit."
                .to_owned(),
            "The papers do not name the trace of these figures; W-B is the one that they show \
             elsewhere."
                .to_owned(),
            "A short run sees only a part of each long flow.".to_owned(),
        ],
    }
}
