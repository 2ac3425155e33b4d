//! X3: how much units are used.

use super::bases;
use super::common::{
    FLOW, FLOW_MODES, FLOWLET, FOLLOWS, SMART_50, SMART_100, TUNED_FLOW_MODES, at_most, bars_of, below,
    below_all, in_mode, series_at, tuned_for,
};
use super::x01_tracking::{oracle_row, subjects};
use super::{Experiment, Measured, OverviewRow, Picture, tuning};
use crate::chart::{ChartAxis, ChartMark, FigureChart};
use crate::gauges;
use crate::runs::{Lab, RunResult};
use crate::setup::ScenarioText;
use crate::table::{CostProfile, FigureTable, FigureUnit, ReportGauge, RowKind, TableMetric, TableRow};
use crate::verdict::{Claim, ClaimFinding};

/// Published claims about utilisation (S92).
pub const X3: Experiment = Experiment {
    id: "X3",
    title: "Utilisation of units",
    question: "How well are units used?",
    published: "S92: flows overload units most, smart flows every 100 ms less, every 50 ms still less, \
                flowlets rarely; all flow modes leave more units underloaded (a plot, no figures)",
    workload: "the runs of X1",
    matches: &[
        Claim {
            text: "overloaded intervals in the published order: flowlets below smart flows every 50 ms, \
                   below smart flows every 100 ms, below flows",
            test: |f| {
                let order = [FLOWLET, SMART_50, SMART_100, FLOW];
                let pairs = order.windows(2).map(|pair| below(f, pair[0], pair[1], "above 100 %", 0.01));
                Ok(ClaimFinding::all(pairs.collect::<Result<Vec<_>, _>>()?))
            },
        },
        Claim {
            text: "flowlets leave fewer units below 50 % than every flow mode",
            test: |f| below_all(f, FLOWLET, &FLOW_MODES, "below 50 %", 0.01),
        },
    ],
    beats: &[Claim {
        text: "if units follow demand, unit-seconds are at most 1.05 of perfect packing, and \
               units are overloaded in less than 1 % of their intervals",
        test: |f| {
            let [cheap, kind] = [("x oracle", 1.05, 1.0), ("above 100 %", 0.01, 0.01)]
                .map(|(metric, limit, per)| at_most(f, FOLLOWS, metric, limit, per));
            Ok(ClaimFinding::all([cheap?, kind?]))
        },
    }],
    checks: &[
        Claim {
            text: "flowlets overload units in less than 1 % of their intervals",
            test: |f| at_most(f, FLOWLET, "above 100 %", 0.01, 0.01),
        },
        Claim {
            text: "flowlets overload units less than every flow mode",
            test: |f| below_all(f, FLOWLET, &FLOW_MODES, "above 100 %", 0.01),
        },
        Claim {
            text: "the same against flows and smart flows tuned for it",
            test: |f| {
                below_all(f, FLOWLET, &tuned_for("above 100 %", &TUNED_FLOW_MODES), "above 100 %", 0.01)
            },
        },
    ],
    real: &[],
    summary: OverviewRow {
        published: "overloaded: flows most, smart flows every 100 ms less, every 50 ms still less, \
                    flowlets rarely",
        found: "{0|flowlet|above 100 %} against {0|flow|above 100 %}, {0|smart-flow:100ms|above \
                100 %} and {0|smart-flow:50ms|above 100 %}: flowlets least, the others in another \
                order; {0|plus: follows demand|x oracle} of perfect packing",
        caveat: "units are filled to 98 %",
    },
    measure,
    picture: Picture::Charts(charts),
};

const GAUGES: &[&ReportGauge] =
    &[&gauges::OVERLOADED, &gauges::UNDERLOADED, &gauges::UNITS, &gauges::UNIT_SECONDS, &gauges::OVER_ORACLE];

/// The modes that are drawn: those of the published figure, and ours.
const DRAWN: [&str; 5] = [FLOW, SMART_100, SMART_50, FLOWLET, FOLLOWS];

/// Loads at which the distribution is read, in percent: up to here, in steps of this.
const LOAD_MAX: u32 = 200;
const LOAD_STEP: usize = 5;

/// Charts: the distribution, as published, and what lies outside the limits.
fn charts(tables: &[FigureTable]) -> Vec<FigureChart> {
    let distribution = tables.get(1).map(distribution_chart);
    distribution.into_iter().chain(tables.first().map(limits_chart)).collect()
}

fn limits_chart(table: &FigureTable) -> FigureChart {
    let series = |(metric, name): (&str, &str)| bars_of(table, name, (metric, 0.01), DRAWN);
    FigureChart {
        title: "units' intervals of 100 ms outside the limits".to_owned(),
        x: ChartAxis::names("mode", DRAWN),
        y: ChartAxis::linear("% of units' intervals"),
        series: [("above 100 %", "overloaded: above 100 %"), ("below 50 %", "underloaded: below 50 %")]
            .map(series)
            .into(),
    }
}

fn distribution_chart(table: &FigureTable) -> FigureChart {
    let loads: Vec<(f64, String)> = loads().map(|load| (f64::from(load), load_name(load))).collect();
    let series = |mode| series_at(table, (mode, ChartMark::Line), (mode, 0.01), loads.clone());
    FigureChart {
        title: "load of units in intervals of 100 ms".to_owned(),
        x: ChartAxis::linear("load, % of what a unit can do"),
        y: ChartAxis::linear("% of units' intervals with at most this load"),
        series: DRAWN.map(series).into(),
    }
}

fn loads() -> impl Iterator<Item = u32> {
    (0..=LOAD_MAX).step_by(LOAD_STEP)
}

fn load_name(load: u32) -> String {
    format!("{load} %")
}

fn measure(lab: &mut Lab<'_>) -> Measured {
    let setup = bases::tracking(lab.length());
    let mut table = FigureTable::measure(
        lab,
        "units' intervals of 100 ms",
        CostProfile::Paper,
        GAUGES,
        &subjects("X3", lab.length()),
    );
    table.rows.extend(oracle_row(lab, &setup, GAUGES));
    Measured {
        tables: vec![table, distribution(lab, &setup)],
        notes: ["A unit's load is its assigned work in an interval divided by its capacity while it \
             was ready. The first interval does not count."
            .to_owned()]
        .into_iter()
        .chain(tuning::notes("X3"))
        .collect(),
    }
}

/// Returns the share of units' intervals with at most a load, by mode.
fn distribution(lab: &mut Lab<'_>, setup: &ScenarioText) -> FigureTable {
    let setups = DRAWN.map(|mode| in_mode(setup, mode).setup);
    let runs = lab.run(&setups.each_ref());
    // The loads of each run, in order; none of a mode that had a run fail.
    let of_run = |run: &RunResult| {
        let intervals = gauges::intervals(run.as_ref().ok()?);
        let loads = intervals.iter().flat_map(|interval| interval.utilisation.iter().map(|unit| unit.1));
        let mut loads: Vec<f64> = loads.collect();
        loads.sort_by(f64::total_cmp);
        Some(loads)
    };
    let of_mode = |runs: &Vec<RunResult>| runs.iter().map(of_run).collect::<Option<Vec<_>>>();
    let modes: Vec<Vec<Vec<f64>>> = runs.iter().map(|runs| of_mode(runs).unwrap_or_default()).collect();
    let row = |load: u32| {
        let limit = f64::from(load) * 0.01;
        let share =
            |loads: &Vec<f64>| loads.partition_point(|&load| load <= limit) as f64 / loads.len() as f64;
        let shares = modes.iter().map(|runs| runs.iter().map(share).collect());
        TableRow::of(load_name(load), RowKind::Baseline, shares.collect())
    };
    FigureTable {
        title: "units' intervals with at most this load".to_owned(),
        profile: CostProfile::Paper,
        metrics: DRAWN.map(|name| TableMetric { name, unit: FigureUnit::Share }).into(),
        rows: loads().map(row).collect(),
    }
}
