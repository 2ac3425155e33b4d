//! Z7: how the number of units follows the load, by NFActor's rule and by ours.

use runtime::elastic::{ALARM_BUCKETS, UnitsConfig};
use sim::Report;

use super::common::{BOTH, at_least, at_most, bars_of, in_mode, paper, strict};
use super::over_time::{add_column, points_over_time, table_over_time};
use super::{Experiment, Measured, OverviewRow, Picture};
use crate::chart::{ChartAxis, ChartMark, ChartSeries, FigureChart};
use crate::gauges;
use crate::runs::{Lab, RunLength};
use crate::setup::{ScenarioText, toml};
use crate::table::{CostProfile, FigureTable, FigureUnit, ReportGauge, RowKind, RowSubject, TableMetric};
use crate::verdict::{Claim, ClaimFinding};

/// Published claims about dynamic scaling (A39).
pub const Z7: Experiment = Experiment {
    id: "Z7",
    title: "Scaling by drops and by demand",
    question: "Does what leaves keep up with what comes?",
    published: "A39, later version: 40,000 flows rise in 15 s and fall in 45 s; a runtime with more \
                than 100 drops is relieved, 500 flows at a time, and throughput matches the input",
    workload: "W-B from 1 to 10 Gbit/s in 3 s, and down in 9 s; units of 1 Gbit/s that take 50 ms to \
               start and hold 1,024 packets, as a ring of a network card does",
    matches: &[],
    beats: &[Claim {
        text: "units that follow demand start before packets are dropped: at most 1 of 10,000 is",
        test: |f| at_most(f, OURS, LOST.metric.name, 1e-4, 1e-4),
    }],
    checks: &[Claim {
        text: "with NFActor's rule, 99 % of what comes leaves, in 90 % of intervals of 100 ms",
        test: |f| {
            let findings =
                [LEAST_LOADED, ROUND_ROBIN].map(|row| at_least(f, row, MATCHED.metric.name, 0.9, 1.0));
            let [least_loaded, round_robin] = findings;
            Ok(ClaimFinding::all([least_loaded?, round_robin?]))
        },
    }],
    real: &[],
    summary: OverviewRow {
        published: "no figures: throughput matches the input after each reaction to 100 drops",
        found: "NFActor's rule: {0|nfactor, least loaded|dropped} and {0|nfactor, round \
                robin|dropped} dropped, {0|nfactor, least loaded|kept up} and {0|nfactor, round \
                robin|kept up} of intervals keep up; ours: {0|plus: follows, flowlets stay, fast \
                alarm|dropped} dropped in {0|plus: follows, flowlets stay, fast \
                alarm|unit-seconds} unit-seconds in place of {0|nfactor, least \
                loaded|unit-seconds}",
        caveat: "a trace in place of 40,000 equal flows; limits and periods are ours",
    },
    measure,
    picture: Picture::Charts(charts),
};

/// NFActor's later choice.
const LEAST_LOADED: &str = "nfactor, least loaded";
/// Its first one.
const ROUND_ROBIN: &str = "nfactor, round robin";
/// NFActor's flows on units that follow demand.
const FLOWS_FOLLOW: &str = "plus: flows, follows demand";

/// The same flowlets as [`BOTH`], and the last 5 ms of load count on their own, too: the default of
/// `rivulet run --cluster`.
const OURS: &str = "plus: follows, flowlets stay, fast alarm";

/// Share of packets that were dropped.
const LOST: ReportGauge = ReportGauge {
    metric: TableMetric { name: "dropped", unit: FigureUnit::Share },
    of: |report| Some(report.drops.values().sum::<u64>() as f64 / report.workload.packets.max(1) as f64),
};

/// Share of intervals with at least 99 % of the arrived traffic processed.
const MATCHED: ReportGauge = ReportGauge {
    metric: TableMetric { name: "kept up", unit: FigureUnit::Share },
    of: |report| {
        let intervals = gauges::intervals(report);
        let kept_up = |interval: &&protocol::metering::Interval| {
            interval.processed as f64 >= 0.99 * interval.packets as f64
        };
        Some(intervals.iter().filter(kept_up).count() as f64 / intervals.len().max(1) as f64)
    },
};

const GAUGES: &[&ReportGauge] =
    &[&LOST, &MATCHED, &gauges::UNITS, &gauges::UNIT_SECONDS, &gauges::OVER_ORACLE, &gauges::PULLS];

/// Rise and fall, in milliseconds.
fn setup(length: RunLength) -> ScenarioText {
    let (rise, fall) = match length {
        RunLength::Smoke => (20, 60),
        RunLength::Quick => (500, 1_500),
        RunLength::Full => (3_000, 9_000),
    };
    let end = rise + fall;
    let curve = format!("[[\"0ms\", \"1Gbps\"], [\"{rise}ms\", \"10Gbps\"], [\"{end}ms\", \"1Gbps\"]]");
    let interval = if length == RunLength::Smoke { "10ms" } else { "100ms" };
    strict(paper())
        .with("workload.trace.profile", "W-B")
        .with("workload.trace.bursts", "windows")
        .with("workload.trace.curve", toml(curve))
        .with("units.count", "2..40")
        .with("units.queue", 1_024)
        .with("units.drops_at", "dispatcher")
        .with("units.start", "50ms")
        .with("run.time", format!("{end}ms"))
        .with("run.interval", interval)
        .with("run.warm_up", interval)
}

fn nfactor(setup: &ScenarioText, choice: &str) -> ScenarioText {
    let flows = setup.clone().without("dispatcher.capacity").with("dispatcher.mode", "flow");
    flows.with("dispatcher.choice", choice).with("dispatcher.lambda", 0).with("dispatcher.drops_max", 100)
}

fn subjects(setup: &ScenarioText) -> Vec<RowSubject> {
    let share = UnitsConfig::default().follow_at.unwrap_or(1.0);
    let follows = nfactor(setup, "least_loaded").without("dispatcher.drops_max");
    let follows = follows.with("dispatcher.follow_at", toml(share.to_string()));
    vec![
        RowSubject::new(LEAST_LOADED, RowKind::Faithful, nfactor(setup, "least_loaded")),
        RowSubject::new(ROUND_ROBIN, RowKind::Faithful, nfactor(setup, "round_robin")),
        RowSubject::new(FLOWS_FOLLOW, RowKind::Plus, follows),
        in_mode(setup, BOTH),
        RowSubject::new(
            OURS,
            RowKind::Plus,
            in_mode(setup, BOTH).setup.with("dispatcher.alarm_buckets", ALARM_BUCKETS as u32),
        ),
    ]
}

/// The rules, in the order of the table.
const RULES: [&str; 5] = [LEAST_LOADED, ROUND_ROBIN, FLOWS_FOLLOW, BOTH, OURS];

const INPUT: &str = "input";

/// Charts of what comes and leaves over time, and of the whole runs.
fn charts(tables: &[FigureTable]) -> Vec<FigureChart> {
    let over_time = tables.get(1).zip(tables.get(2));
    let over_time = over_time.into_iter().flat_map(|tables| RULES.map(|rule| chart(tables, rule)));
    over_time.chain(tables.first().map(shares)).collect()
}

/// Input, output and capacity with a rule.
fn chart((packets, capacity): (&FigureTable, &FigureTable), rule: &str) -> FigureChart {
    let of = |table, metric| points_over_time(table, metric, 1e6);
    FigureChart {
        title: rule.to_owned(),
        x: ChartAxis::linear("time, s"),
        y: ChartAxis::linear("million packets/s"),
        series: vec![
            ChartSeries::new(INPUT, ChartMark::Reference, of(packets, INPUT)),
            ChartSeries::new("output", ChartMark::Line, of(packets, rule)),
            ChartSeries::new("capacity", ChartMark::Line, of(capacity, rule)),
        ],
    }
}

fn shares(table: &FigureTable) -> FigureChart {
    let series = |(metric, name): (&str, &str)| bars_of(table, name, (metric, 0.01), RULES);
    FigureChart {
        title: "the whole run, all seeds".to_owned(),
        x: ChartAxis::names("rule", RULES),
        y: ChartAxis::linear("%"),
        series: [(LOST.metric.name, "packets dropped"), (MATCHED.metric.name, "intervals that keep up")]
            .map(series)
            .into(),
    }
}

fn measure(lab: &mut Lab<'_>) -> Measured {
    let setup = setup(lab.length());
    let subjects = subjects(&setup);
    let table = FigureTable::measure(
        lab,
        "packets and units, while load changes",
        CostProfile::Paper,
        GAUGES,
        &subjects,
    );
    let over_time = over_time(lab, &subjects);
    Measured {
        tables: [table].into_iter().chain(over_time.into_iter().flatten()).collect(),
        notes: [
            "Published are the limit of 100 drops and steps of 500 flows. Ours are: a period of 100 ms; \
             half the load by the flows' mean rates; a unit is drained when the others have had room for \
             200 ms.",
            "The number of flows is that of the trace, not 40,000. Rise and fall take a fifth of the \
             published time.",
            "A drop is known at the dispatcher at once; NFActor's controller polls for it.",
            "The figure shows seed 1 over time.",
        ]
        .map(str::to_owned)
        .to_vec(),
    }
}

/// Returns input and output over time, and capacity; `None` if a run failed.
fn over_time(lab: &mut Lab<'_>, subjects: &[RowSubject]) -> Option<[FigureTable; 2]> {
    let setups: Vec<&ScenarioText> = subjects.iter().map(|subject| &subject.setup).collect();
    let runs = lab.run(&setups);
    let reports = runs.iter().map(|runs| runs.first()?.as_ref().ok());
    let reports = reports.collect::<Option<Vec<_>>>()?;
    let mut packets = table_over_time("packets per second that come and leave", reports.first()?);
    let mut capacity = table_over_time("packets of mean length that units can process", reports.first()?);
    let unit = FigureUnit::Count;
    add_column(&mut packets, (INPUT, unit), reports.first()?, |interval| {
        per_second(interval.packets, interval.length_ns)
    });
    for (rule, report) in RULES.into_iter().zip(reports) {
        add_column(&mut packets, (rule, unit), report, |interval| {
            per_second(interval.processed, interval.length_ns)
        });
        let of_unit = capacity_of_unit(report);
        add_column(&mut capacity, (rule, unit), report, |interval| interval.units * of_unit);
    }
    Some([packets, capacity])
}

fn per_second(packets: u64, length_ns: u64) -> f64 {
    packets as f64 * 1e9 / length_ns.max(1) as f64
}

/// Returns the packets of mean length that a unit processes in a second.
fn capacity_of_unit(report: &Report) -> f64 {
    let (packets, bits) = report.intervals.iter().fold((0.0, 0.0), |(packets, bits), interval| {
        let seconds = interval.length_ns as f64 * 1e-9;
        (packets + interval.packets as f64, bits + interval.demand_bps * seconds)
    });
    if bits > 0.0 { 1e9 / (bits / packets) } else { 0.0 }
}
