//! Z1: the cost of a flow's actor. Measured, not simulated.

use std::time::Instant;

use super::common::{series_at, show};
use super::rounds::{BATCH, Rounds};
use super::{Experiment, Measured, OverviewRow, Picture};
#[cfg(feature = "kameo")]
use crate::actors::mailbox::ActorLoop;
use crate::actors::{FlowLoop, PlainLoop, ShortFrame, UnitLoop, short_frame};
use crate::chart::{ChartAxis, ChartMark, FigureChart};
use crate::runs::{Lab, RunLength};
use crate::statistics::Estimate;
use crate::table::{FigureTable, FigureUnit, RowKind, TableMetric};
use crate::verdict::{Claim, ClaimFinding, MeasuredFigures, MissingFigure};

/// Claims about a runtime's loop over flows (A31).
pub const Z1: Experiment = Experiment {
    id: "Z1",
    title: "Cost of a flow's actor",
    question: "What does a loop over flows cost on one core?",
    published: "A31: throughput falls with the functions of a chain; no comparison with a plain loop",
    workload: "frames of 64 bytes of 1,000 to 100,000 flows in turn, 1 to 3 functions, one thread on \
               this machine: a plain loop with a hash table, a dispatcher and a unit, and an actor with \
               a mailbox for each flow (kameo, if built with it)",
    matches: &[],
    beats: &[],
    // Without mailboxes, nothing is claimed of them.
    checks: if cfg!(feature = "kameo") { &[LOOP, MAILBOXES] } else { &[LOOP] },
    real: &[],
    summary: OverviewRow {
        published: "no comparison",
        found: "{0|dispatcher and unit, 3 functions, 100000 flows|x plain} to {0|dispatcher and \
                unit, 3 functions, 1000 flows|x plain} times a plain loop's time; actors with \
                mailboxes {0|mailboxes, 3 functions, 100000 flows|x plain} to {0|mailboxes, 3 \
                functions, 1000 flows|x plain} times",
        caveat: "functions of a few nanoseconds: an upper bound",
    },
    measure,
    picture: Picture::Charts(charts),
};

const LOOP: Claim = Claim {
    text: "a dispatcher and its unit take at most 1.15 times the time of the plain loop, with 3 functions",
    test: |f| ratios(f, (BOTH, PLAIN), |ratio| ratio.is_at_most(1.15)),
};

const MAILBOXES: Claim = Claim {
    text: "actors with mailboxes take more than twice the time of a dispatcher and its unit, with 3 \
           functions",
    test: |f| ratios(f, (MAILBOX, BOTH), |ratio| ratio.low > 2.0),
};

const METRICS: [TableMetric; 3] = [
    TableMetric { name: "packet", unit: FigureUnit::Ns },
    TableMetric { name: "x plain", unit: FigureUnit::Ratio },
    TableMetric { name: "first packet", unit: FigureUnit::Ns },
];

type Contender = (&'static str, RowKind, Box<dyn FlowLoop>);

const PLAIN: &str = "plain loop";
const UNIT: &str = "unit";
const BOTH: &str = "dispatcher and unit";
const MAILBOX: &str = "mailboxes";

const FLOWS: [u32; 3] = [1_000, 10_000, 100_000];
const FUNCTIONS: [u32; 3] = [1, 2, 3];

fn named(name: &str, functions: u32, flows: u32) -> String {
    let plural = if functions == 1 { "" } else { "s" };
    format!("{name}, {functions} function{plural}, {flows} flows")
}

/// A row's time over another one's, round by round, with 3 functions and each number of flows.
fn ratios(
    f: &MeasuredFigures<'_>,
    (name, base): (&str, &str),
    holds: fn(&Estimate) -> bool,
) -> Result<ClaimFinding, MissingFigure> {
    let findings = FLOWS.map(|flows| {
        let time = |name| f.get(&named(name, 3, flows), "packet");
        let ratio = time(name)?.over(time(base)?);
        let shown = ratio.as_ref().map_or_else(|| "-".to_owned(), |ratio| show(ratio, 1.0, ""));
        Ok(ClaimFinding::new(ratio.as_ref().is_some_and(holds), format!("{flows} flows: {shown} times")))
    });
    Ok(ClaimFinding::all(findings.into_iter().collect::<Result<Vec<_>, _>>()?))
}

/// Charts of the tables.
fn charts(tables: &[FigureTable]) -> Vec<FigureChart> {
    let Some(table) = tables.first() else { return Vec::new() };
    let chart = |functions: u32| {
        let series = |name: &str| {
            let rows = FLOWS.map(|flows| (f64::from(flows), named(name, functions, flows)));
            series_at(table, (name, ChartMark::Line), ("packet", 1.0), rows)
        };
        FigureChart {
            title: format!("time of a packet, {functions} function{}", if functions == 1 { "" } else { "s" }),
            x: ChartAxis::logarithmic("flows"),
            y: ChartAxis::logarithmic("ns"),
            series: [PLAIN, UNIT, BOTH, MAILBOX].map(series).into(),
        }
    };
    [1, 3].map(chart).into()
}

fn measure(lab: &mut Lab<'_>) -> Measured {
    let (rounds, packets) = match lab.length() {
        RunLength::Smoke => (1, 2_000),
        RunLength::Quick => (21, 20_000),
        RunLength::Full => (101, 20_000),
    };
    let mut measured = Rounds::default();
    for functions in FUNCTIONS {
        for flows in FLOWS {
            if let Err(why) = measure_one(&mut measured, (functions, flows), rounds, packets) {
                measured.fail(&named(BOTH, functions, flows), RowKind::Faithful, why);
            }
        }
    }
    let table = measured.table("time of a packet, in turn", &METRICS);
    let mut notes = vec![
        "All run the same short functions, written by hand, on the same frames in batches of 32: a \
         counter, eight rules and a connection's flags, a search for a request. They take a few \
         nanoseconds, so that the loops differ as much as they can. Keys and hashes are computed alike.",
        "Dispatcher and unit: both on this core, from the frame to the state. Unit: packets come with \
         stamps that a dispatcher elsewhere has written; nothing is claimed of it, because the plain \
         loop looks flows up itself.",
        "A dispatcher notes time, load and the next seq of a flow, and the unit checks epoch and seq in \
         a record of its own: three times the instructions of the plain loop, and more cache lines. \
         The remedy is one record for both where they share a core; functions that do more make the \
         difference smaller.",
        "First packet: the mean over all flows' first packets, with growing tables.",
    ];
    if cfg!(feature = "kameo") {
        notes.push(
            "Mailboxes: an actor for each flow, on one thread, the best setting for them: no packet \
             crosses from one core to another. A batch is sent, then processed.",
        );
    } else {
        notes.push("Built without the feature `kameo`: no actors with mailboxes are measured.");
    }
    Measured { tables: vec![table], notes: notes.into_iter().map(str::to_owned).collect() }
}

fn measure_one(
    measured: &mut Rounds,
    (functions, flows): (u32, u32),
    rounds: u32,
    packets: u32,
) -> Result<(), String> {
    let frames: Vec<ShortFrame> = (0..flows).map(short_frame).collect();
    let mut unit = UnitLoop::new(functions, flows)?;
    let mut others: Vec<Contender> = vec![
        (PLAIN, RowKind::Baseline, Box::new(PlainLoop::new(functions))),
        (BOTH, RowKind::Faithful, Box::new(UnitLoop::new(functions, flows)?)),
        #[cfg(feature = "kameo")]
        (MAILBOX, RowKind::Baseline, Box::new(ActorLoop::new(functions)?)),
    ];
    let name = |name: &str| named(name, functions, flows);
    let firsts = times_of(&mut others, &frames);
    let stamped: Vec<_> = frames.chunks(BATCH).map(|batch| unit.stamps(batch)).collect();
    let began = Instant::now();
    for batch in &stamped {
        unit.serve(batch);
    }
    let first_of_unit = began.elapsed().as_nanos() as f64 / f64::from(flows);
    let mut at = 0;
    for _ in 0..rounds {
        let next: Vec<ShortFrame> =
            (0..packets).map(|step| frames[(at + step as usize) % frames.len()]).collect();
        at += packets as usize;
        let times = times_of(&mut others, &next);
        let plain = times[0];
        for (((row, kind, _), first), time) in others.iter().zip(&firsts).zip(&times) {
            measured.add(&name(row), *kind, &[*time, time / plain, *first]);
        }
        let stamped: Vec<_> = next.chunks(BATCH).map(|batch| unit.stamps(batch)).collect();
        let began = Instant::now();
        for batch in &stamped {
            unit.serve(batch);
        }
        let time = began.elapsed().as_nanos() as f64 / f64::from(packets);
        measured.add(&name(UNIT), RowKind::Faithful, &[time, time / plain, first_of_unit]);
    }
    let expected = u64::from(flows) + u64::from(rounds) * u64::from(packets);
    let counted = others.iter_mut().map(|(.., flow_loop)| flow_loop.counted()).chain([unit.counted()]);
    match counted.into_iter().find(|&counted| counted != expected) {
        Some(counted) => Err(format!("states count {counted} of {expected} packets")),
        None => Ok(()),
    }
}

/// Has each loop process the frames in turn. Returns its time of a packet, in ns.
fn times_of(loops: &mut [Contender], frames: &[ShortFrame]) -> Vec<f64> {
    let time = |(.., flow_loop): &mut Contender| per_packet(frames, |batch| flow_loop.process(batch));
    loops.iter_mut().map(time).collect()
}

/// Returns the time of a packet, in ns.
fn per_packet(frames: &[ShortFrame], mut process: impl FnMut(&[ShortFrame]) -> u64) -> f64 {
    let began = Instant::now();
    let mut passed = 0;
    for batch in frames.chunks(BATCH) {
        passed += process(batch);
    }
    std::hint::black_box(passed);
    began.elapsed().as_nanos() as f64 / frames.len() as f64
}
