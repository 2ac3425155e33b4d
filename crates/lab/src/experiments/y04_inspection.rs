//! Y4: intrusion detection and a monitor. Measured, not simulated.

use std::time::Instant;

use graph::Graph;
use io::traffic::FlowLength;

use super::common::{at_most, series_of_rows};
use super::rounds::{BATCH, Rounds, rounds};
use super::y05_chains::{detection, monitor, which_rules};
use super::{Experiment, Measured, OverviewRow, Picture};
use crate::chart::{ChartAxis, ChartMark, FigureChart};
use crate::paths::{Functions, Path, Player, Tape, differing};
use crate::runs::{Lab, RuleFiles, RunLength};
use crate::table::{FigureTable, FigureUnit, RowKind, TableMetric};
use crate::verdict::Claim;

/// Published claims about inspection with a monitor (B33).
pub const Y4: Experiment = Experiment {
    id: "Y4",
    title: "Intrusion detection and a monitor",
    question: "What does consolidation save with intrusion detection?",
    published: "B33: cycles fall, mainly by header consolidation (no figures for one process)",
    workload: "intrusion detection, by a few rules unless others are given, and a monitor, on \
               this machine; synthetic TCP requests from both sides, up to 1,514 bytes long, in \
               batches of 32",
    matches: &[],
    beats: &[],
    checks: &[Claim {
        text: "consolidated, a packet costs less than in the plain chain, round by round",
        test: |f| at_most(f, CONSOLIDATED, "x plain", 1.0, 1.0),
    }],
    real: &[],
    summary: OverviewRow {
        published: "no figures: cycles fall",
        found: "{0|consolidated|x plain} of the plain chain",
        caveat: "search dominates",
    },
    measure,
    picture: Picture::Charts(charts),
};

const METRICS: [TableMetric; 6] = [
    TableMetric { name: "packet", unit: FigureUnit::Ns },
    TableMetric { name: "x plain", unit: FigureUnit::Ratio },
    TableMetric { name: "detection", unit: FigureUnit::Ns },
    TableMetric { name: "monitor", unit: FigureUnit::Ns },
    TableMetric { name: "all else", unit: FigureUnit::Ns },
    TableMetric { name: "followed", unit: FigureUnit::Share },
];

const PLAIN: &str = "plain";
const CONSOLIDATED: &str = "consolidated";

const WAYS: [(&str, RowKind, bool); 2] =
    [(PLAIN, RowKind::Baseline, false), (CONSOLIDATED, RowKind::Faithful, true)];

const FLOWS_MAX: u32 = 4_096;

fn functions(rules: &RuleFiles) -> Functions {
    [detection(rules), monitor()]
        .into_iter()
        .fold(Functions::new(FLOWS_MAX), |functions, (name, config)| functions.with(name, config))
}

/// A chart of a packet's time, and where it goes.
fn charts(tables: &[FigureTable]) -> Vec<FigureChart> {
    let Some(table) = tables.first() else { return Vec::new() };
    let parts = ["packet", "detection", "monitor", "all else"];
    vec![FigureChart {
        title: "where a packet's time goes".to_owned(),
        x: ChartAxis::names("part", parts),
        y: ChartAxis::logarithmic("ns"),
        series: series_of_rows(table, &parts, 1.0, ChartMark::Bars),
    }]
}

fn measure(lab: &mut Lab<'_>) -> Measured {
    let mut measured = Rounds::default();
    if let Err(why) = measure_all(&mut measured, lab) {
        measured.fail(PLAIN, RowKind::Baseline, why);
    }
    let table = measured.table("time of a packet in the functions, and where it goes", &METRICS);
    Measured { tables: vec![table], notes: notes(lab.rules()) }
}

fn measure_all(measured: &mut Rounds, lab: &Lab<'_>) -> Result<(), String> {
    let (length, rules) = (lab.length(), lab.rules());
    let packets = match length {
        RunLength::Smoke => 1_000,
        RunLength::Quick => 10_000,
        RunLength::Full => 100_000,
    };
    let tape = Tape::requests(packets, 256, FlowLength::Fixed(20))?;
    let mut player = Player::new(BATCH);
    let mut sent = WAYS.map(|(_, _, consolidate)| {
        Ok(player.sent(&mut functions(rules).graph(consolidate)?, &tape, 0..tape.len()))
    });
    if let [Ok(plain), Ok(consolidated)] = &mut sent
        && differing(consolidated, plain) > 0
    {
        measured.fail(CONSOLIDATED, RowKind::Faithful, "packets differ from those of the plain chain");
    }
    sent.into_iter().collect::<Result<Vec<_>, String>>()?;
    for _ in 0..rounds(length) {
        let mut plain_ns = f64::NAN;
        for (name, kind, consolidate) in WAYS {
            let mut path = functions(rules).graph(consolidate)?;
            let played = player.play(&mut path, &tape, 0..tape.len());
            let (ns, followed) = (played.per_packet(), path.followed() as f64 / played.packets as f64);
            if name == PLAIN {
                plain_ns = ns;
            }
            let [detection_ns, monitor_ns, rest_ns] = split(&mut player, &tape, rules, consolidate)?;
            measured.add(name, kind, &[ns, ns / plain_ns, detection_ns, monitor_ns, rest_ns, followed]);
        }
    }
    Ok(())
}

/// Returns the nanoseconds per packet in each function and outside of them; NaN if the processor
/// counts no cycles.
fn split(player: &mut Player, tape: &Tape, rules: &RuleFiles, consolidate: bool) -> Result<[f64; 3], String> {
    let Some(cycles) = io::cycles::counter() else { return Ok([f64::NAN; 3]) };
    let mut graph: Box<Graph> = functions(rules).counting_graph(consolidate, cycles)?;
    let (start, first) = (Instant::now(), cycles());
    let played = player.play(&mut graph, tape, 0..tape.len());
    let per_ns = (cycles() - first) as f64 / start.elapsed().as_nanos() as f64;
    let of = |stage: usize| {
        graph
            .report()
            .cycles()
            .get(stage)
            .map_or(f64::NAN, |&cycles| cycles as f64 / per_ns / played.packets as f64)
    };
    let (detection_ns, monitor_ns) = (of(0), of(1));
    Ok([detection_ns, monitor_ns, played.per_packet() - detection_ns - monitor_ns])
}

fn notes(rules: &RuleFiles) -> Vec<String> {
    [
        "Times cover processing only; each round has new chains. Shares are measured in separate \
         runs, in CPU cycles around each call of a function for a group of packets, because \
         counting takes time.",
        "All else: parsing, flows, TCP streams, groups, rules. Neither function of this chain \
         changes a header.",
        "Intrusion detection reads TCP streams and sees every packet. Only the monitor could be \
         consolidated, and one function makes no rules. The paper's Snort recorded its inspection \
         as a state function; here, rules have no streams.",
        &which_rules(rules),
    ]
    .map(str::to_owned)
    .into()
}
