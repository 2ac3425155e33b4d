//! V5: an attribute for a function's outgoing edges, against another function that parses again.
//! Measured, not simulated.

use io::traffic::FlowLength;

use super::common::{at_least, bars_of};
use super::rounds::{BATCH, Contender, Rounds, differences, rounds};
use super::{Experiment, Measured, OverviewRow, Picture};
use crate::chart::{ChartAxis, FigureChart};
use crate::paths::{Path, Player, Series, Tape, compiled};
use crate::runs::{Lab, RunLength};
use crate::table::{FigureTable, FigureUnit, RowKind, TableMetric};
use crate::verdict::Claim;

/// Published claims about attributes of content (E25).
pub const V5: Experiment = Experiment {
    id: "V5",
    title: "Attributes against a splitter",
    question: "What does another function cost that finds out what an attribute says?",
    published: "E25: 41 % more CPU with a splitter that reads URLs again",
    workload: "HTTP, and two branches with a monitor each, of which one has the flows with a GET, \
               on this machine; synthetic HTTP over TCP from both sides, up to 1,514 bytes long, in \
               batches of 32",
    matches: &[],
    beats: &[],
    checks: &[Claim {
        text: "with a splitter of its own, a packet takes at least 1.41 of its time with the \
               attribute, round by round",
        test: |f| at_least(f, SPLITTER, "x attribute", 1.41, 1.0),
    }],
    real: &[],
    summary: OverviewRow {
        published: "a splitter takes 41 % more",
        found: "{0|a splitter in a graph of its own|x attribute} of the time, {0|a splitter in the \
                same graph|x attribute} in the same graph",
        caveat: "our splitter is slow, so the published figure is neither met nor missed; by \
                 method, not by URL",
    },
    measure,
    picture: Picture::Charts(charts),
};

const METRICS: [TableMetric; 2] = [
    TableMetric { name: "packet", unit: FigureUnit::Ns },
    TableMetric { name: "x attribute", unit: FigureUnit::Ratio },
];

const TAG: &str = "attribute";
const SPLITTER: &str = "a splitter in a graph of its own";
const INSIDE: &str = "a splitter in the same graph";
const NEITHER: &str = "no decision";

/// Share of the tape that is played before measuring, as a divisor.
const WARM_UP: usize = 8;

fn policy(nodes: &str, line: &str) -> String {
    format!(
        "settings {{ flows: 4096, seed: 1, consolidate: false }} Port<0> inside; Port<1> outside;
         {nodes} pipelet main {{ {line} }}"
    )
}

/// Two branches after this function, by the attribute that it sets.
fn branches(nodes: &str, head: &str, by: &str) -> String {
    let monitors = "Monitor a { report: [] }; Monitor b { report: [] };";
    let line = format!("{head}; {by} [{by}.method == \"GET\"] <-> a <-> outside; {by} <-> b <-> outside;");
    policy(&format!("{nodes} {monitors}"), &line)
}

/// All ways; the first one is that of attributes.
fn contenders() -> Result<Vec<Contender>, String> {
    let alone = || compiled(&policy("HTTP w;", "inside <-> w <-> outside;"));
    let behind: Vec<Box<dyn Path>> =
        vec![Box::new(alone()?), Box::new(compiled(&branches("HTTP s;", "inside <-> s", "s"))?)];
    let same = compiled(&branches("HTTP w; HTTP s;", "inside <-> w <-> s", "s"))?;
    let line = policy("HTTP w; Monitor a { report: [] };", "inside <-> w <-> a <-> outside;");
    Ok(vec![
        Contender::new(TAG, RowKind::Faithful, compiled(&branches("HTTP w;", "inside <-> w", "w"))?),
        Contender::new(SPLITTER, RowKind::Baseline, Series::new(behind)),
        Contender::new(INSIDE, RowKind::Baseline, same),
        Contender::new(NEITHER, RowKind::Bound, compiled(&line)?),
    ])
}

/// A chart of what it costs to find out.
fn charts(tables: &[FigureTable]) -> Vec<FigureChart> {
    let Some(table) = tables.first() else { return Vec::new() };
    let ways = [NEITHER, TAG, INSIDE, SPLITTER];
    vec![FigureChart {
        title: "time of a packet by who decides".to_owned(),
        x: ChartAxis::names("way", ways),
        y: ChartAxis::linear("of the time with an attribute"),
        series: vec![bars_of(table, "time", ("x attribute", 1.0), ways)],
    }]
}

fn measure(lab: &mut Lab<'_>) -> Measured {
    let mut measured = Rounds::default();
    if let Err(why) = measure_all(&mut measured, lab.length()) {
        measured.fail(TAG, RowKind::Faithful, why);
    }
    let table = measured.table("time of a packet in the functions", &METRICS);
    let table = table.paper(SPLITTER, "x attribute", 1.41);
    Measured { tables: vec![table], notes: notes() }
}

fn measure_all(measured: &mut Rounds, length: RunLength) -> Result<(), String> {
    let packets = match length {
        RunLength::Smoke => 1_000,
        RunLength::Quick => 10_000,
        RunLength::Full => 50_000,
    };
    let tape = Tape::requests(packets, 256, FlowLength::Fixed(20))?;
    let mut player = Player::new(BATCH);
    let mut contenders = contenders()?;
    let differ = differences(&mut player, &mut contenders, &tape);
    for (contender, differ) in contenders.iter().zip(differ).filter(|(_, differ)| *differ > 0) {
        measured.fail(contender.name, contender.kind, format!("{differ} packets differ"));
    }
    let warm = tape.len() / WARM_UP;
    for _ in 0..rounds(length) {
        let mut of_round = Vec::new();
        for Contender { name, kind, path } in &mut contenders {
            player.end_flows(&mut **path);
            player.play(&mut **path, &tape, 0..warm);
            let played = player.play(&mut **path, &tape, warm..tape.len());
            of_round.push((*name, *kind, played.per_packet()));
        }
        let tag_ns = of_round.first().map_or(f64::NAN, |row| row.2);
        for (name, kind, ns) in of_round {
            measured.add(name, kind, &[ns, ns / tag_ns]);
        }
    }
    Ok(())
}

fn notes() -> Vec<String> {
    [
        "Times cover processing only. The talk splits by URL between a CDN and others; the attribute \
         here is the request's method, which HTTP sets for the flow.",
        "A graph of its own: packets are parsed, flows looked up and streams reassembled again. In \
         the same graph, only HTTP is parsed again; but where several functions want streams and \
         filters read attributes, packets of a group go one by one.",
        "No decision: HTTP and one monitor in a line.",
    ]
    .map(str::to_owned)
    .into()
}
