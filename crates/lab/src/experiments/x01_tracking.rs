//! X1: how what is there follows what is wanted.

use sim::Report;

use super::common::{
    ALARM, BOTH, FLOW, FLOW_MODES, FLOWLET, FOLLOWS, HEADROOM, PACKET, PREDICTED, RSS, SMART_50, SMART_100,
    STAYS, TUNED_FLOW_MODES, at_least, at_most_of, bars_of, below_all, in_mode, in_modes, tuned_for,
    tuned_row,
};
use super::over_time::{add_column, points_over_time, table_over_time};
use super::{Experiment, Measured, OverviewRow, Picture, bases, tuning};
use crate::chart::{ChartAxis, ChartMark, ChartSeries, FigureChart};
use crate::gauges;
use crate::runs::{Lab, RunLength};
use crate::setup::ScenarioText;
use crate::table::{CostProfile, FigureTable, FigureUnit, ReportGauge, RowKind, RowSubject, TableRow};
use crate::verdict::{Claim, ClaimFinding};

/// Published claims about provisioning (S88).
pub const X1: Experiment = Experiment {
    id: "X1",
    title: "Provisioning and demand",
    question: "Does provisioning follow demand?",
    published: "S88: flowlets track the demand per 100 ms, sometimes with 1 or 2 units more; flow \
                modes over-provision",
    workload: "W-B at 1 to 10 Gbit/s, P-paper; flowlets, flows, smart flows, packets, RSS \
               buckets; an oracle as bound",
    matches: &[
        Claim {
            text: "flowlets are within 2 units of the demand in 95 % of intervals",
            test: |f| at_least(f, FLOWLET, "within 2 units", 0.95, 1.0),
        },
        Claim {
            text: "flowlets are closer to the demand than every flow mode, on average",
            test: |f| below_all(f, FLOWLET, &FLOW_MODES, "off demand", 1e9),
        },
        Claim {
            text: "the same against flows and smart flows tuned for it",
            test: |f| below_all(f, FLOWLET, &tuned_for("off demand", &TUNED_FLOW_MODES), "off demand", 1e9),
        },
    ],
    beats: &[
        Claim {
            text: "if units follow demand, provisioning is within 1 unit of the demand in 95 % of \
                   intervals, and the area between both is at most 0.8 of the flowlets', seed by \
                   seed",
            test: |f| {
                let near = at_least(f, FOLLOWS, "within 1 unit", 0.95, 1.0)?;
                Ok(ClaimFinding::all([near, at_most_of(f, FOLLOWS, FLOWLET, "area", 0.8)?]))
            },
        },
        Claim {
            text: "the area is also at most 0.8 of that of flowlets tuned to be close to the \
                   demand, seed by seed",
            test: |f| at_most_of(f, FOLLOWS, &tuned_row(FLOWLET, "off demand"), "area", 0.8),
        },
    ],
    checks: &[],
    real: &[],
    summary: OverviewRow {
        published: "within 1 to 2 units with flowlets",
        found: "within 2 units {0|flowlet|within 2 units} of the time; within 1 unit {0|plus: \
                follows demand|within 1 unit} with our forecast, which is off by {0|plus: follows \
                demand|area} in place of {0|flowlet|area}",
        caveat: "made-up traffic",
    },
    measure,
    picture: Picture::Charts(charts),
};

const GAUGES: &[&ReportGauge] = &[
    &gauges::WITHIN_1,
    &gauges::WITHIN_2,
    &gauges::ERROR,
    &gauges::ERROR_P95,
    &gauges::OVER,
    &gauges::UNDER,
    &gauges::AREA,
    &gauges::UNITS,
    &gauges::UNIT_SECONDS,
];

/// The name of the bound's row.
pub const ORACLE: &str = "oracle";

/// The modes of X1, X2 and X3.
pub const MODES: [&str; 12] =
    [FLOWLET, FLOW, SMART_100, SMART_50, PACKET, RSS, PREDICTED, HEADROOM, ALARM, FOLLOWS, STAYS, BOTH];

/// All modes as published, then the modes tuned for an experiment.
pub fn subjects(id: &str, length: RunLength) -> Vec<RowSubject> {
    let published = in_modes(&bases::tracking(length), &MODES);
    published.into_iter().chain(tuning::subjects(id, &bases::tracking_flowlets(length))).collect()
}

/// The modes that are drawn: those of the published figure, and ours.
const DRAWN: [&str; 5] = [FLOW, SMART_100, SMART_50, FLOWLET, FOLLOWS];

const DEMAND: &str = "demand";

/// Charts with the axes of the published figure, and one of the whole run.
fn charts(tables: &[FigureTable]) -> Vec<FigureChart> {
    let over_time = tables.get(1).into_iter().flat_map(|table| DRAWN.map(|mode| chart(table, mode)));
    over_time.chain(tables.first().map(areas)).collect()
}

/// Demand, and the provision of a mode.
fn chart(table: &FigureTable, mode: &str) -> FigureChart {
    let of = |metric| points_over_time(table, metric, 1e9);
    FigureChart {
        title: mode.to_owned(),
        x: ChartAxis::linear("time, s"),
        y: ChartAxis::linear("Gbit/s"),
        series: vec![
            ChartSeries::new(DEMAND, ChartMark::Reference, of(DEMAND)),
            ChartSeries::new("provision", ChartMark::Line, of(mode)),
        ],
    }
}

fn areas(table: &FigureTable) -> FigureChart {
    let series = |(metric, name): (&str, &str)| bars_of(table, name, (metric, 1e9), DRAWN);
    FigureChart {
        title: "area between demand and provision".to_owned(),
        x: ChartAxis::names("mode", DRAWN),
        y: ChartAxis::linear("Gbit"),
        series: [("over", "too much"), ("under", "too little")].map(series).into(),
    }
}

fn measure(lab: &mut Lab<'_>) -> Measured {
    let setup = bases::tracking(lab.length());
    let mut table = FigureTable::measure(
        lab,
        "provision and demand",
        CostProfile::Paper,
        GAUGES,
        &subjects("X1", lab.length()),
    );
    table.rows.extend(oracle_row(lab, &setup, GAUGES));
    Measured {
        tables: [table].into_iter().chain(provision_over_time(lab, &setup)).collect(),
        notes: [
            "The oracle knows each interval's demand in advance and runs the fewest units that \
             can carry it."
                .to_owned(),
            "rss:128:100ms represents schemes such as RSS++: 128 buckets of flows, moved every \
             100 ms to balance load."
                .to_owned(),
            "The settings of `follows demand` and `flowlets stay` were chosen with seeds 1001 to \
             1005, which no experiment measures."
                .to_owned(),
            "`following flow` and similar rows are baselines on units that follow demand, an \
             improvement of ours."
                .to_owned(),
            "The figure shows seed 1 over time, as the paper shows one run.".to_owned(),
        ]
        .into_iter()
        .chain(tuning::notes("X1"))
        .collect(),
    }
}

/// Returns the row of perfect knowledge for the same demand; `None` if the runs for the demand
/// failed.
pub fn oracle_row(lab: &mut Lab<'_>, setup: &ScenarioText, gauges: &[&ReportGauge]) -> Option<TableRow> {
    let runs = lab.run(&[&in_mode(setup, FLOWLET).setup]);
    let reports: Option<Vec<Report>> =
        runs.first()?.iter().map(|run| run.as_ref().ok().map(perfect)).collect();
    let reports = reports?;
    let read = |gauge: &&ReportGauge| reports.iter().filter_map(gauge.of).collect();
    Some(TableRow::of(ORACLE, RowKind::Bound, gauges.iter().map(read).collect()))
}

/// The same report with the oracle's intervals.
fn perfect(report: &std::sync::Arc<Report>) -> Report {
    let mut perfect = Report::clone(report);
    // The first interval does not count, whatever it is.
    perfect.intervals.truncate(1);
    perfect.intervals.extend(gauges::oracle(gauges::intervals(report)));
    perfect
}

/// Returns demand and provision over time; `None` if a run failed.
fn provision_over_time(lab: &mut Lab<'_>, setup: &ScenarioText) -> Option<FigureTable> {
    let setups = DRAWN.map(|mode| in_mode(setup, mode).setup);
    let runs = lab.run(&setups.each_ref());
    let reports = runs.iter().map(|runs| runs.first()?.as_ref().ok());
    let reports = reports.collect::<Option<Vec<_>>>()?;
    let mut table = table_over_time("demand and provision", reports.first()?);
    let unit = FigureUnit::BitsPerSecond;
    add_column(&mut table, (DEMAND, unit), reports.first()?, |interval| interval.demand_bps);
    for (mode, report) in DRAWN.into_iter().zip(reports) {
        add_column(&mut table, (mode, unit), report, |interval| interval.provisioned_bps);
    }
    Some(table)
}
