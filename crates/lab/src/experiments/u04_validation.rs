//! U4: figures of the simulator compared with a dispatcher and units over sockets.

use protocol::metering::{Interval, Tracking};
use runtime::elastic::{UnitsConfig, UnitsReport};
use sim::workload::{Arriving, Packets};
use sim::{Report, Scenario};

use super::common::{FLOWLET, in_mode, series_at, show, up_and_down};
use super::moves::chain;
use super::rounds::Rounds;
use super::{Experiment, Measured, OverviewRow, Picture};
use crate::chart::{ChartAxis, ChartMark, ChartSeries, FigureChart};
use crate::hosts::Hosts;
use crate::runs::{Lab, RunLength};
use crate::setup::{ScenarioText, toml};
use crate::table::{FigureTable, FigureUnit, RowKind, TableMetric};
use crate::verdict::{Claim, ClaimFinding, MeasuredFigures, MissingFigure};

/// Claims that simulated figures are those of hosts.
pub const U4: Experiment = Experiment {
    id: "U4",
    title: "Simulator and hosts",
    question: "Does the simulator predict what hosts do?",
    published: "nothing; the simulator's figures are asked to be within 25 % of measured ones",
    workload: "W-B at a hundredth of its rate, the same packets simulated and sent in real time to a \
               dispatcher and up to 8 units, a thread each, over loopback on this machine: flowlets as \
               published, three replicas, units of 20 Mbit/s, T = 500 us and 25 ms",
    matches: &[],
    beats: &[],
    checks: &[
        Claim { text: "flowlets per flow (X4): within 25 %", test: |f| is_near(f, FLOWLETS) },
        Claim { text: "units of an interval (X1): within 25 %", test: |f| is_near(f, UNITS) },
        Claim { text: "distance from demand (X1): within 25 %", test: |f| is_near(f, ERROR) },
        Claim { text: "unit intervals below 50 % (X3): within 25 %", test: |f| is_near(f, BELOW) },
        Claim { text: "unit intervals above 100 % (X3): within 25 %", test: |f| is_near(f, ABOVE) },
        Claim { text: "moves per flowlet (X1): within 25 %", test: |f| is_near(f, MOVES) },
        Claim { text: "changes without waiting (X5, X11): within 25 %", test: |f| is_near(f, SEAMLESS) },
        Claim { text: "pulls per flowlet (X5, X11): within 25 %", test: |f| is_near(f, PULLS) },
        Claim { text: "replicas per flowlet (X13): within 25 %", test: |f| is_near(f, REPLICAS) },
        Claim {
            text: "no packet is lost",
            test: |f| {
                let lost = [f.of(0, LOST, "measured")?, f.of(1, LOST, "measured")?];
                let findings = lost.map(|lost| {
                    ClaimFinding::new(lost.is_at_most(0.0), format!("{} lost", show(lost, 1.0, "")))
                });
                Ok(ClaimFinding::all(findings))
            },
        },
    ],
    real: &[],
    summary: OverviewRow {
        published: "none; aim: within 25 %",
        found: "flowlets, units and moves within 10 %; with T = 500 us {0|replicas per \
                flowlet|measured / simulated} of the replicas, and {0|pulls per flowlet|measured / \
                simulated} times the pulls",
        caveat: "threads on two busy processors; utilisation is counted otherwise",
    },
    measure,
    picture: Picture::Charts(charts),
};

const METRICS: [TableMetric; 3] = [
    TableMetric { name: "measured", unit: FigureUnit::Ratio },
    TableMetric { name: "simulated", unit: FigureUnit::Ratio },
    TableMetric { name: RATIO, unit: FigureUnit::Ratio },
];

const RATIO: &str = "measured / simulated";

const FLOWLETS: &str = "flowlets per flow";
const UNITS: &str = "units";
const ERROR: &str = "off demand, Mbit/s";
const BELOW: &str = "below 50 %";
const ABOVE: &str = "above 100 %";
const MOVES: &str = "moves per flowlet";
const SEAMLESS: &str = "seamless";
const PULLS: &str = "pulls per flowlet";
const REPLICAS: &str = "replicas per flowlet";
const LOST: &str = "lost packets";
const ROWS: [&str; 10] = [FLOWLETS, UNITS, ERROR, BELOW, ABOVE, MOVES, SEAMLESS, PULLS, REPLICAS, LOST];

/// The greatest distance between what is measured and what is simulated, as a share (U4).
const NEAR: f64 = 0.25;

/// Share of the workload's rate that two processors carry in real time.
const SCALE: f64 = 0.01;
/// Capacity that the dispatcher assumes.
const CAPACITY_BPS: u64 = 20_000_000;
/// T: as published, and as much longer as units are slower.
const GAPS: [(&str, u64); 2] = [("500us", 500_000), ("25ms", 25_000_000)];
/// Ratios to nothing count as this.
const RATIO_MAX: f64 = 1e3;
const UNITS_MAX: u16 = 8;
const COPIES: u8 = 3;

/// The whole interval of a row's ratio is near 1, with each T.
fn is_near(f: &MeasuredFigures<'_>, row: &str) -> Result<ClaimFinding, MissingFigure> {
    let of_table = |(table, (gap, _)): (usize, (&str, u64))| {
        let ratio = f.of(table, row, RATIO)?;
        let holds = ratio.is_at_least(1.0 - NEAR) && ratio.is_at_most(1.0 + NEAR);
        Ok(ClaimFinding::new(holds, format!("T = {gap}: {} times", show(ratio, 1.0, ""))))
    };
    let findings = (0..).zip(GAPS).map(of_table);
    Ok(ClaimFinding::all(findings.collect::<Result<Vec<_>, _>>()?))
}

fn measure(lab: &mut Lab<'_>) -> Measured {
    let tables = GAPS.map(|gap| measure_gap(lab, gap));
    let notes = [
        "Measured: packets arrive in real time, with the time stamps of the workload, so that a \
         thread that is late cuts no flowlets. States, replicas and starts of units take the time that \
         they take.",
        "Simulated: links of 25 us, units that take 732 ns for a packet, both set from M1 and D2 before \
         this was run.",
        "T = 25 ms was added after a first run with 500 us only. Slow units need a longer T, or a flowlet \
         fills one: with 500 us, all 8 units run.",
        "Below 50 % and above 100 % are not the same thing in both: the simulator counts the \
         processor's time of its units, hosts count bits against the assumed capacity.",
        "The first interval is a warm-up for units and loads. A ratio of nothing to nothing is 1, one to \
         nothing 1,000.",
    ];
    Measured { tables: tables.into(), notes: notes.map(str::to_owned).into() }
}

/// The table of one T.
fn measure_gap(lab: &mut Lab<'_>, (gap, gap_ns): (&str, u64)) -> FigureTable {
    let setup = setup(lab.length()).with("dispatcher.gap", gap);
    let mut measured = Rounds::default();
    for seed in 1..=lab.length().pick(lab.seeds().min(3), 5) {
        if let Err(why) = measure_seed(lab, (&setup, gap_ns), seed.into(), &mut measured) {
            measured.fail(FLOWLETS, RowKind::Faithful, why);
        }
    }
    measured.table(format!("measured and simulated, the same packets, T = {gap}"), &METRICS)
}

/// A chart of all ratios but those to nothing, and of their limits.
fn charts(tables: &[FigureTable]) -> Vec<FigureChart> {
    let rows: Vec<&str> = ROWS.into_iter().filter(|row| *row != ABOVE && *row != LOST).collect();
    let series = |(table, (gap, _)): (&FigureTable, (&str, u64))| {
        let at = (0..).zip(&rows).map(|(at, row)| (f64::from(at), (*row).to_owned()));
        series_at(table, (&*format!("T = {gap}"), ChartMark::Points), (RATIO, 1.0), at)
    };
    let (left, right) = (-0.5, rows.len() as f64 - 0.5);
    let [low, high] = [1.0 - NEAR, 1.0 + NEAR];
    let near = [(left, low), (right, low), (right, high), (left, high), (left, low)];
    let near = ChartSeries::new("within 25 %", ChartMark::Reference, near);
    vec![FigureChart {
        title: "what hosts do, over what is simulated".to_owned(),
        x: ChartAxis::names("figure", rows.iter().copied()),
        y: ChartAxis::linear("measured / simulated"),
        series: [near].into_iter().chain(tables.iter().zip(GAPS).map(series)).collect(),
    }]
}

/// The simulator's scenario, with the costs of this machine.
fn setup(length: RunLength) -> ScenarioText {
    let link = || toml("{ latency = \"25us\" }");
    let setup = ScenarioText::new()
        .with("units.capacity", "20Mbps")
        .with("units.count", format!("1..{UNITS_MAX}"))
        .with("units.packet_cost", "732ns")
        .with("units.byte_cost", "0ns")
        .with("dispatcher.targets_count", u32::from(COPIES))
        .with("links.copy_time", "50us")
        .with("links.dispatcher_to_unit", link())
        .with("links.unit_to_unit", link())
        .with("links.unit_to_router", link());
    in_mode(&up_and_down(setup, "W-B", SCALE, length), FLOWLET).setup
}

/// Sends the packets of a seed to hosts, and simulates them.
fn measure_seed(
    lab: &mut Lab<'_>,
    (setup, gap_ns): (&ScenarioText, u64),
    seed: u64,
    measured: &mut Rounds,
) -> Result<(), String> {
    let scenario = Scenario::parse(&setup.to_string()).map_err(|error| error.to_string())?;
    let (time_ns, interval_ns) = (scenario.run.time.0, scenario.run.interval.0);
    let packets = Packets::new(&scenario.workload, seed);
    let packets: Vec<Arriving> = packets.take_while(|packet| packet.time_ns < time_ns).collect();
    let config = UnitsConfig {
        units_max: UNITS_MAX,
        capacity_bps: CAPACITY_BPS,
        gap_ns,
        copies: COPIES,
        interval_ns,
        is_live: true,
        ..UnitsConfig::as_published()
    };
    let report = Hosts::replay(config, &packets, chain)?;
    let units = report.units.as_ref().ok_or("the report has no units")?;
    let simulated = lab.run_seed(setup, seed)?;
    let lost = packets.len() as f64 - report.packets_out as f64;
    let dropped = simulated.drops.values().sum::<u64>() as f64;
    let figures = of_hosts(units).into_iter().zip(of_simulation(&simulated));
    for (row, (real, sim)) in ROWS.into_iter().zip(figures.chain([(lost, dropped)])) {
        let ratio = if real == sim { 1.0 } else { (real / sim).min(RATIO_MAX) };
        measured.add(row, RowKind::Faithful, &[real, sim, ratio]);
    }
    Ok(())
}

/// Figures in the order of the rows, but the last.
fn of_hosts(units: &UnitsReport) -> [f64; 9] {
    let UnitsReport { flows, flowlets, moved, seamless, pulls, replicas, .. } = *units;
    figures([flows, flowlets, moved, seamless, pulls, replicas], &units.intervals)
}

fn of_simulation(report: &Report) -> [f64; 9] {
    let (assignment, state) = (&report.assignment, &report.state);
    let counts = [assignment.flows, assignment.flowlets, assignment.moved];
    let [flows, flowlets, moved] = counts;
    figures([flows, flowlets, moved, state.seamless, state.pulls, state.replicas], &report.intervals)
}

fn figures(counts: [u64; 6], intervals: &[Interval]) -> [f64; 9] {
    let [flows, flowlets, moved, seamless, pulls, replicas] = counts.map(|count| count as f64);
    let tracking = Tracking::of(intervals.get(1..).unwrap_or_default());
    [
        flowlets / flows,
        tracking.units_mean,
        tracking.error_mean_bps / 1e6,
        tracking.underloaded,
        tracking.overloaded,
        moved / flowlets,
        seamless / (seamless + pulls).max(1.0),
        pulls / flowlets,
        replicas / flowlets,
    ]
}
