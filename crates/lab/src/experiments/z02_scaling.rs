//! Z2: throughput by the number of units.

use std::sync::Barrier;
use std::time::Instant;

use rustix::time::{ClockId, clock_gettime};
use sim::Report;

use super::common::{number, series_at, show};
use super::rounds::{BATCH, Rounds};
use super::{Experiment, Measured, OverviewRow, Picture};
use crate::actors::{FlowLoop, ShortFrame, UnitLoop, short_frame};
use crate::chart::{ChartAxis, ChartMark, FigureChart};
use crate::runs::{Lab, RunLength};
use crate::setup::{ScenarioText, toml};
use crate::table::{CostProfile, FigureTable, FigureUnit, ReportGauge, RowKind, RowSubject, TableMetric};
use crate::verdict::{Claim, ClaimFinding, MeasuredFigures, MissingFigure};

/// Published claims about runtimes (A32).
pub const Z2: Experiment = Experiment {
    id: "Z2",
    title: "Throughput by units",
    question: "Does throughput grow with the units?",
    published: "A32: near-linear; 2.4 million packets/s with 4 runtimes",
    workload: "packets of 64 bytes of 16,000 flows, to 1 to 16 units, at 95 % of the rate that all \
               units can process",
    matches: &[Claim {
        text: "over links of our own, 4 units process 2.4 million packets/s, and at least 90 % of 4 times \
               the throughput of one",
        test: |f| {
            let share = linear(f, 1, 4)?;
            let four = f.of(1, &named(4), "throughput")?;
            let why = format!("{} million packets/s", show(four, 1e6, ""));
            Ok(ClaimFinding::all([share, ClaimFinding::new(four.is_at_least(2.4e6), why)]))
        },
    }],
    beats: &[Claim {
        text: "the same over links of our own, where a packet takes 1.5 us at the dispatcher and 3.2 us \
               at a unit",
        test: |f| linear(f, 1, 16),
    }],
    checks: &[Claim {
        text: "16 units reach at least 90 % of 16 times the throughput of one, and 4 at least 2.16 \
               million packets/s, if a packet takes 1.67 us at a unit and 0.04 us at the dispatcher",
        test: |f| {
            let many = linear(f, 0, 16)?;
            let four = f.of(0, &named(4), "throughput")?;
            let why = format!("4 units: {} million packets/s", show(four, 1e6, ""));
            let all = ClaimFinding::all([many, ClaimFinding::new(four.is_at_least(2.16e6), why)]);
            Ok(all.by_fit("the published time of a packet"))
        },
    }],
    real: &[
        Claim {
            text: "two threads, each with a dispatcher and a unit, reach at least 1.8 times the throughput \
                   of one",
            test: |f| {
                let ratio = f.of(2, TWO, "x one")?;
                Ok(ClaimFinding::new(ratio.is_at_least(1.8), format!("{} times", show(ratio, 1.0, ""))))
            },
        },
        Claim {
            text: "a packet then takes at most 1.11 times as much processor time",
            test: |f| {
                let ratio = f.of(2, TWO, "CPU x one")?;
                Ok(ClaimFinding::new(ratio.is_at_most(1.11), format!("{} times", show(ratio, 1.0, ""))))
            },
        },
    ],
    summary: OverviewRow {
        published: "near-linear, 2.4 million packets/s with 4",
        found: "over links of ours {1|4 units|throughput} packets/s with 4 units, for {1|1 \
                units|throughput} with 1; {2|2 threads|x one} times with two threads that have no \
                links",
        caveat: "with the published time of a packet as its input, the simulator gives {0|4 \
                 units|throughput}, which shows nothing; one dispatcher is the limit",
    },
    measure,
    picture: Picture::Charts(charts),
};

const REAL: [TableMetric; 4] = [
    TableMetric { name: "throughput", unit: FigureUnit::Count },
    TableMetric { name: "x one", unit: FigureUnit::Ratio },
    TableMetric { name: "CPU of a packet", unit: FigureUnit::Ns },
    TableMetric { name: "CPU x one", unit: FigureUnit::Ratio },
];

const ONE: &str = "1 thread";
const TWO: &str = "2 threads";

/// Flows of a thread.
const FLOWS: u32 = 8_000;

const UNITS: [u32; 5] = [1, 2, 4, 8, 16];

/// Time of a packet at a unit, in ns: 600,000 packets/s of a runtime (A32).
const PAPER_NS: f64 = 1_667.0;

/// The same with what links take: 1.5 us at each end ([cluster.md]).
///
/// [cluster.md]: ../../../../docs/cluster.md
const LINK_NS: f64 = 1_500.0;

const THROUGHPUT: ReportGauge = ReportGauge {
    metric: TableMetric { name: "throughput", unit: FigureUnit::Count },
    of: |report: &Report| Some(report.checked.processed as f64 * 1e9 / report.end_ns as f64),
};

fn named(units: u32) -> String {
    format!("{units} units")
}

/// Throughput of some units, as a share of their number times that of one.
fn linear(f: &MeasuredFigures<'_>, table: usize, units: u32) -> Result<ClaimFinding, MissingFigure> {
    let (one, many) = (f.of(table, &named(1), "throughput")?, f.of(table, &named(units), "throughput")?);
    let share = many.median / one.median / f64::from(units);
    let why = format!("{units} units: {} of linear, {} million/s", number(share), show(many, 1e6, ""));
    Ok(ClaimFinding::new(many.low / one.high / f64::from(units) >= 0.9, why))
}

/// Charts with the axes of the published figure.
fn charts(tables: &[FigureTable]) -> Vec<FigureChart> {
    let [paper, here, ..] = tables else { return Vec::new() };
    let series = |name: &str, table: &FigureTable| {
        let rows = UNITS.map(|units| (f64::from(units), named(units)));
        series_at(table, (name, ChartMark::Line), ("throughput", 1e6), rows)
    };
    vec![FigureChart {
        title: "throughput by units, simulated".to_owned(),
        x: ChartAxis::linear("units (published: runtimes)"),
        y: ChartAxis::linear("million packets/s"),
        series: vec![
            series("with the published time of a packet (by fit)", paper),
            series("over links of our own", here),
        ],
    }]
}

fn measure(lab: &mut Lab<'_>) -> Measured {
    let time = match lab.length() {
        RunLength::Smoke => "4ms",
        RunLength::Quick => "20ms",
        RunLength::Full => "50ms",
    };
    let rows = |unit_ns: f64, dispatcher: &'static str| {
        UNITS.map(|units| {
            RowSubject::new(named(units), RowKind::Faithful, setup(units, unit_ns, dispatcher, time))
        })
    };
    let paper = FigureTable::measure(
        lab,
        "a packet takes 1.67 us at a unit, 0.04 us at the dispatcher",
        CostProfile::Paper,
        &[&THROUGHPUT],
        &rows(PAPER_NS, "40ns"),
    );
    let paper = paper.paper(&named(4), "throughput", 2.4e6);
    let here = FigureTable::measure(
        lab,
        "links of our own: a packet takes 3.2 us at a unit, 1.5 us at the dispatcher",
        CostProfile::Here,
        &[&THROUGHPUT],
        &rows(PAPER_NS + LINK_NS, "1500ns"),
    );
    let here = here.paper(&named(4), "throughput", 2.4e6);
    let mut measured = Rounds::default();
    if let Err(why) = measure_threads(&mut measured, lab.length()) {
        measured.fail(TWO, RowKind::Faithful, why);
    }
    let real = measured.table("threads of this machine, in turn: a dispatcher and a unit each", &REAL);
    let notes = [
        "Units and dispatcher each do one thing at a time. Packets of a flow stay with their unit, by \
         4,096 buckets of hashes, which are dealt evenly. Throughput: packets processed until the \
         last one has left.",
        "In the first table a packet of the published chain takes as long as published, and the \
         dispatcher twice as long as its state machine alone (X12). In the second one both ends of a \
         link take what sockets and encryption do on one host: then one dispatcher feeds two units, \
         and more bring nothing. Several dispatchers (cluster.md) are the remedy; the simulator has one.",
        "Threads: three short functions (Z1) on frames of 64 bytes of 8,000 flows each. Rates need two \
         idle cores; beside other work only processor time can be compared.",
        "One flow is processed by one unit at a time. A mode that replicates the computation, so that \
         several units share an elephant, is not built.",
    ];
    Measured { tables: vec![paper, here, real], notes: notes.map(str::to_owned).into() }
}

/// Measures one thread and two in turn.
fn measure_threads(measured: &mut Rounds, length: RunLength) -> Result<(), String> {
    let (rounds, packets) = match length {
        RunLength::Smoke => (1, 2_000),
        RunLength::Quick => (21, 400_000),
        RunLength::Full => (101, 400_000),
    };
    for _ in 0..rounds {
        let (one, one_cpu) = run_threads(1, packets)?;
        let (two, two_cpu) = run_threads(2, packets)?;
        measured.add(ONE, RowKind::Faithful, &[one, 1.0, one_cpu, 1.0]);
        measured.add(TWO, RowKind::Faithful, &[two, two / one, two_cpu, two_cpu / one_cpu]);
    }
    Ok(())
}

/// Has threads process packets of their own flows. Returns packets/s, and the processor time of a
/// packet in ns.
fn run_threads(threads: u32, packets: u32) -> Result<(f64, f64), String> {
    let barrier = Barrier::new(threads as usize);
    let work = &|thread: u32| {
        let frames: Vec<ShortFrame> = (0..FLOWS).map(|flow| short_frame(thread * FLOWS + flow)).collect();
        let flow_loop = UnitLoop::new(3, FLOWS);
        barrier.wait(); // Without an early return, on which the others would wait.
        let mut flow_loop = flow_loop?;
        let mut batches = frames.chunks(BATCH).cycle();
        let mut process = |packets: u32| {
            let count = packets.div_ceil(BATCH as u32) as usize;
            batches.by_ref().take(count).map(|batch| flow_loop.process(batch)).sum::<u64>()
        };
        process(FLOWS); // All flows begin.
        let (began, cpu_ns) = (Instant::now(), thread_cpu_ns());
        let processed = process(packets) as f64;
        let (wall_s, cpu_ns) = (began.elapsed().as_secs_f64(), thread_cpu_ns() - cpu_ns);
        Ok::<_, String>((processed / wall_s, cpu_ns / processed))
    };
    let all: Result<Vec<(f64, f64)>, String> = std::thread::scope(|scope| {
        let spawned: Vec<_> = (0..threads).map(|thread| scope.spawn(move || work(thread))).collect();
        let joined =
            spawned.into_iter().map(|thread| thread.join().map_err(|_| "a thread failed".to_owned()));
        joined.map(|done| done.and_then(|done| done)).collect()
    });
    let all = all?;
    let rate = all.iter().map(|(rate, _)| rate).sum();
    Ok((rate, all.iter().map(|(_, cpu_ns)| cpu_ns).sum::<f64>() / f64::from(threads)))
}

/// Returns the processor time of this thread, in ns.
fn thread_cpu_ns() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

/// Units that are all there from the beginning, and cannot lose packets.
fn setup(units: u32, unit_ns: f64, dispatcher: &'static str, time: &'static str) -> ScenarioText {
    let rate_bps = 0.95 * f64::from(units) * 64.0 * 8e9 / unit_ns;
    ScenarioText::new()
        .with("workload.steady.rate", format!("{}bps", rate_bps.round()))
        .with("workload.steady.packet_size", "64B")
        .with("workload.steady.flows", 16_000_u32)
        .with("units.count", units.to_string())
        .with("units.packet_cost", format!("{unit_ns}ns"))
        .with("dispatcher.packet_cost", dispatcher)
        .with("dispatcher.mode", "rss:4096")
        .with("dispatcher.idle", "100s")
        .with("links.dispatcher_to_unit", toml("{ latency = \"65us\" }"))
        .with("run.time", time)
        .with("run.warm_up", "1ms")
}
