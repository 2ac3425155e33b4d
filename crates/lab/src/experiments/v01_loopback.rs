//! V1: the cost of a port between two functions. Measured, not simulated.

use super::common::{at_least, at_most, bars_of};
use super::links::{DirectCall, Link, PortPair, SocketPair, frame, frame_ns, turn_ns};
use super::rounds::{Rounds, rounds};
use super::{Experiment, Measured, OverviewRow, Picture};
use crate::chart::{ChartAxis, FigureChart};
use crate::runs::{Lab, RunLength};
use crate::table::{FigureTable, FigureUnit, RowKind, TableMetric};
use crate::verdict::{Claim, ClaimFinding};

/// Published claims about the data plane in loopback (E21).
pub const V1: Experiment = Experiment {
    id: "V1",
    title: "Loopback",
    question: "What does a port between two functions cost?",
    published: "E21: 0.3 us there and back, through a data plane on a core of its own, which fills 10 Gbit/s",
    workload: "ports of shared memory (memif) within this process, a function call that copies, and \
               a pair of datagram sockets, on this machine: frames of 60 bytes there and back, and \
               bursts of 32 frames of 1,514 bytes there",
    matches: &[Claim {
        text: "a frame takes at most 0.3 us there and back between two cores",
        test: |f| at_most(f, TWO_CORES, "there and back", 300.0, 1.0),
    }],
    beats: &[Claim {
        text: "a frame takes at most 0.15 us there and back between two cores that poll",
        test: |f| at_most(f, TWO_CORES, "there and back", 150.0, 1.0),
    }],
    checks: &[Claim {
        text: "a frame takes at most 0.3 us there and back, with both ends on one core, and a core \
               that sends and receives moves at least 10 Gbit/s",
        test: |f| {
            let turn = at_most(f, MEMIF, "there and back", 300.0, 1.0)?;
            Ok(ClaimFinding::all([turn, at_least(f, MEMIF, "rate of a core", 10e9, 1e9)?]))
        },
    }],
    real: &[],
    summary: OverviewRow {
        published: "0.3 us there and back through a third core, 10 Gbit/s per core",
        found: "{0|memif, two threads, plus: a core each|there and back} between two cores; \
                {0|memif, one thread|there and back} and {0|memif, one thread|rate of a core} with \
                both ends on one",
        caveat: "0.26 us between cores in three other runs; on a busy machine 0.34 us on one core",
    },
    measure,
    picture: Picture::Charts(charts),
};

const METRICS: [TableMetric; 3] = [
    TableMetric { name: "there and back", unit: FigureUnit::Ns },
    TableMetric { name: "frame of a burst", unit: FigureUnit::Ns },
    TableMetric { name: "rate of a core", unit: FigureUnit::BitsPerSecond },
];

const CALL: &str = "function call";
const SOCKETS: &str = "pair of sockets";
const MEMIF: &str = "memif, one thread";
const TWO_CORES: &str = "memif, two threads, plus: a core each";

const SHORT: usize = 60;
const LONG: usize = 1_514;

/// Charts of the times, and of what a core can move.
fn charts(tables: &[FigureTable]) -> Vec<FigureChart> {
    let Some(table) = tables.first() else { return Vec::new() };
    let ways = [CALL, SOCKETS, MEMIF, TWO_CORES];
    let chart = |title: &str, ways: &[&str], y, series| FigureChart {
        title: title.to_owned(),
        x: ChartAxis::names("between two ends", ways.iter().copied()),
        y,
        series,
    };
    let times = [("there and back", "there and back"), ("of a burst", "frame of a burst")];
    let times = times.map(|(name, metric)| bars_of(table, name, (metric, 1.0), ways));
    // One core moves what both ends on it send and receive.
    let on_one_core = &ways[..3];
    let rate = bars_of(table, "rate", ("rate of a core", 1e9), on_one_core.iter().copied());
    vec![
        chart("time of a frame", &ways, ChartAxis::logarithmic("ns"), times.into()),
        chart("rate of a core", on_one_core, ChartAxis::logarithmic("Gbit/s"), vec![rate]),
    ]
}

fn measure(lab: &mut Lab<'_>) -> Measured {
    let mut measured = Rounds::default();
    if let Err(why) = measure_all(&mut measured, lab.length()) {
        measured.fail(MEMIF, RowKind::Faithful, why);
    }
    let table = measured.table("time of frames between two ends", &METRICS);
    let table = table.paper(TWO_CORES, "there and back", 300.0).paper(MEMIF, "rate of a core", 10e9);
    Measured { tables: vec![table], notes: notes() }
}

fn measure_all(measured: &mut Rounds, length: RunLength) -> Result<(), String> {
    let (turns, bursts) = match length {
        RunLength::Smoke => (20, 5),
        RunLength::Quick | RunLength::Full => (2_000, 200),
    };
    let mut links: Vec<(&str, RowKind, Box<dyn Link>)> = vec![
        (CALL, RowKind::Bound, Box::new(DirectCall::default())),
        (SOCKETS, RowKind::Baseline, Box::new(SocketPair::new()?)),
        (MEMIF, RowKind::Faithful, Box::new(PortPair::memif()?)),
    ];
    let (short, long) = (frame(SHORT), frame(LONG));
    for (.., link) in &mut links {
        // Rings are touched for the first time.
        frame_ns(&mut **link, &long, bursts)?;
    }
    for _ in 0..rounds(length) {
        for (name, kind, link) in &mut links {
            let turn = turn_ns(&mut **link, &short, turns)?;
            let of_burst = frame_ns(&mut **link, &long, bursts)?;
            measured.add(name, *kind, &[turn, of_burst, LONG as f64 * 8e9 / of_burst]);
        }
    }
    // The thread that polls is there only while it is needed.
    let mut link = PortPair::memif()?.on_two_threads();
    turn_ns(&mut link, &short, turns)?;
    for _ in 0..rounds(length) {
        measured.add(TWO_CORES, RowKind::Plus, &[turn_ns(&mut link, &short, turns)?, f64::NAN, f64::NAN]);
    }
    Ok(())
}

fn notes() -> Vec<String> {
    [
        "Both ends in one thread: the processor's whole time for a frame, without waiting. Each way, \
         a port copies the frame into shared memory and out of it, and the driver checks what the \
         other end wrote.",
        "Two threads: with two idle cores, the time includes four transfers of cache lines between \
         them. If another process takes one of the cores, it has much longer times.",
        "Rate of a core: bits of frames of 1,514 bytes that one thread sends and receives. Sockets \
         take one at a time, ports bursts of 32.",
    ]
    .map(str::to_owned)
    .into()
}
