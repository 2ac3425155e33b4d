//! X3: how much units are used.

use super::bases;
use super::common::{
    FLOW, FLOW_MODES, FLOWLET, FOLLOWS, SMART_50, SMART_100, TUNED_FLOW_MODES, at_most, below, below_all,
    in_mode, in_modes, series_at, tuned_for,
};
use super::x01_tracking::{MODES, oracle_row, subjects};
use super::{Experiment, Measured, OverviewRow, tuning};
use crate::chart::{ChartAxis, ChartMark, ChartSeries, FigureChart};
use crate::gauges;
use crate::runs::Lab;
use crate::setup::ScenarioText;
use crate::table::{CostProfile, FigureTable, ReportGauge};
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
    charts,
};

const GAUGES: &[&ReportGauge] =
    &[&gauges::OVERLOADED, &gauges::UNDERLOADED, &gauges::UNITS, &gauges::UNIT_SECONDS, &gauges::OVER_ORACLE];

/// Charts of the table. The distribution of loads needs the runs.
fn charts(tables: &[FigureTable]) -> Vec<FigureChart> {
    let Some(table) = tables.first() else { return Vec::new() };
    let modes = [FLOW, SMART_100, SMART_50, FLOWLET, FOLLOWS];
    let series = |(metric, name): (&str, &str)| {
        let rows = (0..).zip(modes).map(|(at, mode)| (f64::from(at), mode.to_owned()));
        series_at(table, (name, ChartMark::Bars), (metric, 0.01), rows)
    };
    vec![FigureChart {
        title: "loads of units in intervals of 100 ms".to_owned(),
        x: ChartAxis::names("mode", modes),
        y: ChartAxis::linear("% of units' intervals"),
        series: [("above 100 %", "overloaded: above 100 %"), ("below 50 %", "underloaded: below 50 %")]
            .map(series)
            .into(),
    }]
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
        charts: vec![chart(lab, &setup)],
        tables: vec![table],
        notes: [
            "A unit's load is its assigned work in an interval divided by its capacity while it \
             was ready. The first interval does not count."
                .to_owned(),
            "The figure shows all seeds.".to_owned(),
        ]
        .into_iter()
        .chain(tuning::notes("X3"))
        .collect(),
    }
}

/// Share of units' intervals with at most a load.
fn chart(lab: &mut Lab<'_>, setup: &ScenarioText) -> FigureChart {
    let subjects = in_modes(setup, &MODES);
    let series = subjects.iter().map(|subject| {
        let runs = lab.run(&[&in_mode(setup, &subject.name).setup]);
        let reports = runs.iter().flatten().filter_map(|run| run.as_ref().ok());
        let intervals = reports.flat_map(|report| gauges::intervals(report));
        let mut loads: Vec<f64> =
            intervals.flat_map(|interval| interval.utilisation.iter().map(|u| u.1)).collect();
        loads.sort_by(f64::total_cmp);
        let share = |percent: usize| {
            let at = (loads.len() * percent / 100).min(loads.len().saturating_sub(1));
            loads.get(at).map(|&load| (load * 100.0, percent as f64))
        };
        ChartSeries::new(&subject.name, ChartMark::Line, (0..=100).filter_map(share).filter(|p| p.0 <= 300.0))
    });
    FigureChart {
        title: "load of units in intervals".to_owned(),
        x: ChartAxis::linear("load, % of what a unit can do"),
        y: ChartAxis::linear("share of units' intervals with at most this load, %"),
        series: series.collect(),
    }
}
