//! V3: one reassembly of TCP streams for several functions. Measured, not simulated.

use packet::PacketPool;

use io::traffic::FlowLength;

use super::common::{at_most, bars_of};
use super::rounds::{BATCH, Contender, Rounds, differences, rounds};
use super::y05_chains::{detection, which_rules};
use super::{Experiment, Measured, OverviewRow, Picture};
use crate::chart::{ChartAxis, FigureChart};
use crate::paths::{Functions, Player, Tape};
use crate::runs::{Lab, RuleFiles, RunLength};
use crate::table::{FigureTable, FigureUnit, RowKind, TableMetric};
use crate::verdict::Claim;

/// Published claims about shared byte streams (E23).
pub const V3: Experiment = Experiment {
    id: "V3",
    title: "One reassembly for several functions",
    question: "What does it save if functions share reassembled streams?",
    published: "E23: 25 % of cycles with three functions that inspect TCP streams",
    workload: "HTTP, intrusion detection by a few rules unless others are given, and a meter of \
               redundancy (Rabin fingerprints), on this machine; synthetic HTTP over TCP from both \
               sides, up to 1,514 bytes long, in batches of 32",
    matches: &[Claim {
        text: "in one graph, they take at most 0.75 of the cycles that they take in a graph each, \
               round by round",
        test: |f| at_most(f, TOGETHER, "x apart", 0.75, 1.0),
    }],
    beats: &[],
    checks: &[],
    real: &[],
    summary: OverviewRow {
        published: "25 % of cycles",
        found: "{0|one graph|x apart} of the cycles are left",
        caveat: "reassembly is 2 % of our cycles",
    },
    measure,
    picture: Picture::Charts(charts),
};

const METRICS: [TableMetric; 3] = [
    TableMetric { name: "packet", unit: FigureUnit::Ns },
    TableMetric { name: "cycles per byte", unit: FigureUnit::Ratio },
    TableMetric { name: "x apart", unit: FigureUnit::Ratio },
];

const APART: &str = "a graph each";
const TOGETHER: &str = "one graph";
const LISTEN: &str = "reassembly, and nothing else";

const FLOWS_MAX: u32 = 4_096;

/// Share of the tape that is played before measuring, as a divisor.
const WARM_UP: usize = 8;

fn inspectors(rules: &RuleFiles) -> [(&'static str, &'static str, String); 3] {
    let detection = detection(rules).1;
    [
        ("HTTP alone", "HTTP", String::new()),
        ("detection alone", "IDS", detection),
        ("redundancy alone", "RedundancyMeter", String::new()),
    ]
}

/// All ways; the first one is that of three graphs.
fn contenders(rules: &RuleFiles) -> Result<Vec<Contender>, String> {
    let none = || Functions::new(FLOWS_MAX);
    let inspectors = inspectors(rules);
    let all = inspectors.iter().fold(none(), |all, (_, name, config)| all.with(name, config));
    let mut contenders = vec![
        Contender::new(APART, RowKind::Baseline, all.apart()?),
        Contender::new(TOGETHER, RowKind::Faithful, all.graph(false)?),
        Contender::new(LISTEN, RowKind::Bound, none().with("Listen", "").graph(false)?),
    ];
    for (row, name, config) in inspectors {
        contenders.push(Contender::new(row, RowKind::Baseline, none().with(name, config).graph(false)?));
    }
    Ok(contenders)
}

/// A chart with the bars of the published figure, and each function's.
fn charts(tables: &[FigureTable]) -> Vec<FigureChart> {
    let Some(table) = tables.first() else { return Vec::new() };
    let ways = table.rows.iter().map(|row| row.name.as_str());
    vec![FigureChart {
        title: "cycles of three functions that inspect streams".to_owned(),
        x: ChartAxis::names("way", ways.clone()),
        y: ChartAxis::linear("of the cycles with a graph each"),
        series: vec![bars_of(table, "cycles", ("x apart", 1.0), ways)],
    }]
}

fn measure(lab: &mut Lab<'_>) -> Measured {
    let mut measured = Rounds::default();
    if let Err(why) = measure_all(&mut measured, lab) {
        measured.fail(APART, RowKind::Baseline, why);
    }
    let table =
        measured.table("time of a packet in the functions", &METRICS).paper(TOGETHER, "x apart", 0.75);
    Measured { tables: vec![table], notes: notes(lab.rules()) }
}

fn measure_all(measured: &mut Rounds, lab: &Lab<'_>) -> Result<(), String> {
    let packets = match lab.length() {
        RunLength::Smoke => 1_000,
        RunLength::Quick => 10_000,
        RunLength::Full => 50_000,
    };
    let tape = Tape::requests(packets, 256, FlowLength::Fixed(20))?;
    let mut player = Player::new(BATCH);
    let mut contenders = contenders(lab.rules())?;
    let differ = differences(&mut player, &mut contenders, &tape);
    for (contender, differ) in contenders.iter().zip(differ).filter(|(_, differ)| *differ > 0) {
        measured.fail(contender.name, contender.kind, format!("{differ} packets differ"));
    }
    let warm = tape.len() / WARM_UP;
    let mut pool = PacketPool::new(1);
    let mut bytes = 0;
    for arrival in tape.arrivals(warm..tape.len()) {
        let packet = tape.packet(arrival, &mut pool).ok_or("there is no buffer")?;
        bytes += packet.data().len();
        pool.give(packet);
    }
    for _ in 0..rounds(lab.length()) {
        let mut of_round = Vec::new();
        for Contender { name, kind, path } in &mut contenders {
            player.end_flows(&mut **path);
            player.play(&mut **path, &tape, 0..warm);
            let played = player.play(&mut **path, &tape, warm..tape.len());
            of_round.push((*name, *kind, played));
        }
        let apart_ns = of_round.first().map_or(f64::NAN, |(.., played)| played.per_packet());
        for (name, kind, played) in of_round {
            let cycles = played.ns as f64 * per_ns() / bytes as f64;
            let ns = played.per_packet();
            measured.add(name, kind, &[ns, cycles, ns / apart_ns]);
        }
    }
    Ok(())
}

/// The processor's cycles in a nanosecond; NaN if it counts none.
fn per_ns() -> f64 {
    use std::sync::OnceLock;
    use std::time::{Duration, Instant};
    static PER_NS: OnceLock<f64> = OnceLock::new();
    *PER_NS.get_or_init(|| {
        let Some(cycles) = io::cycles::counter() else { return f64::NAN };
        let (start, first) = (Instant::now(), cycles());
        while start.elapsed() < Duration::from_millis(20) {}
        (cycles() - first) as f64 / start.elapsed().as_nanos() as f64
    })
}

fn notes(rules: &RuleFiles) -> Vec<String> {
    [
        "Times cover processing only. Cycles are those of the time stamp counter, per byte of the \
         frames.",
        "A graph each: every graph parses the packets, looks their flows up and reassembles their \
         streams. In one graph this happens once; so the difference is more than reassembly.",
        "Reassembly, and nothing else: parsing, flows, streams, and a function that ignores the \
         bytes. One graph saves this twice. More or less than that comes of caches, and of other work \
         on the machine.",
        "The talk's functions: signatures (Aho-Corasick), HTTP, redundancy elimination (Rabin). The \
         more the functions themselves take, the smaller the share of what they share.",
        &which_rules(rules),
    ]
    .map(str::to_owned)
    .into()
}
