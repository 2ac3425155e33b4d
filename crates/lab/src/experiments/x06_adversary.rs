//! X6: flows that send bursts to spoil the others' latency.

use super::bases::{TIMEOUT, adversary_flowlets, attacked};
use super::common::{
    ALARM, BOTH, PREDICTED, PUSHED, STAYS, at_most_of, drops_no_more, faster, in_mode, series_at, show,
    strict, tuned_row,
};
use super::{Experiment, Measured, OverviewRow, Picture, tuning};
use crate::chart::{ChartAxis, ChartMark, FigureChart};
use crate::gauges;
use crate::runs::Lab;
use crate::setup::ScenarioText;
use crate::table::{CostProfile, FigureTable, ReportGauge, RowKind, RowSubject};
use crate::verdict::{Claim, ClaimFinding, MeasuredFigures, MissingFigure};

/// Published claims about adversaries (S96).
pub const X6: Experiment = Experiment {
    id: "X6",
    title: "Adversaries and the size limit of flowlets",
    question: "Does a size limit stop elephants?",
    published: "S96: with bursts of 20 packets of 1,400 bytes from every 100th, 50th or 10th \
                flow, ending flowlets at 15 KB cuts the median from 101 to 87, 201 to 93, 752 to \
                102 us, and the tail from 678 to 504, 1,500 to 702, 5,200 to 756 us",
    workload: "W-B at 4 Gbit/s plus the adversaries' bursts, P-paper; flowlets that end by \
               timeout only, or also by size",
    matches: &[
        Claim {
            text: "the limit cuts the median by 13 %, 53 % and 86 %, seed by seed, without more \
                   drops",
            test: |f| cuts(f, TIMEOUT, "p50", [("1/100", 0.13), ("1/50", 0.53), ("1/10", 0.86)]),
        },
        Claim {
            text: "the limit cuts the tail (p99) by 25 %, 53 % and 85 %, seed by seed, without \
                   more drops",
            test: |f| cuts(f, TIMEOUT, "p99", [("1/100", 0.25), ("1/50", 0.53), ("1/10", 0.85)]),
        },
        Claim {
            text: "it cuts the tail by as much from that with a timeout tuned for it",
            test: |f| {
                cuts(f, &tuned_row(TIMEOUT, "p99"), "p99", [("1/100", 0.25), ("1/50", 0.53), ("1/10", 0.85)])
            },
        },
    ],
    beats: &[
        Claim {
            text: "if flowlets stay with units that are not full, p99 with every 10th flow an \
                   adversary is at most 1.2 times that of published flowlets without one, seed by \
                   seed, and below theirs with one, without more drops",
            test: |f| {
                let ours = row(STAYS, "1/10");
                let calm = at_most_of(f, &ours, &row(SIZE, "none"), "p99", 1.2)?;
                Ok(ClaimFinding::all([calm, faster(f, &ours, &row(SIZE, "1/10"), "p99", 1e3)?]))
            },
        },
        Claim {
            text: "its p99 is also below that with a timeout tuned for it, without more drops",
            test: |f| faster(f, &row(STAYS, "1/10"), &row(&tuned_row(TIMEOUT, "p99"), "1/10"), "p99", 1e3),
        },
    ],
    checks: &[],
    real: &[],
    summary: OverviewRow {
        published: "median cut by 13 to 86 %",
        found: "no effect; p99 {0|plus: flowlets stay, 1/10|p99} against {0|timeout and size, \
                1/10|p99} when flowlets stay",
        caveat: "our medians are already at 0.44 us",
    },
    measure,
    picture: Picture::Charts(charts),
};

const GAUGES: &[&ReportGauge] = &[
    &gauges::P50,
    &gauges::P75,
    &gauges::P99,
    &gauges::UNITS,
    &gauges::PULLS,
    &gauges::FLOWLETS,
    &gauges::DROPPED,
];

/// Of how many flows one is an adversary; none: none is.
const EVERY: [Option<u32>; 4] = [None, Some(100), Some(50), Some(10)];

const SIZE: &str = "timeout and size";
const OURS: [&str; 5] = [PREDICTED, ALARM, STAYS, PUSHED, BOTH];

fn row(manner: &str, every: &str) -> String {
    format!("{manner}, {every}")
}

fn cuts(
    f: &MeasuredFigures<'_>,
    from: &str,
    metric: &str,
    least: [(&str, f64); 3],
) -> Result<ClaimFinding, MissingFigure> {
    let judge = |(every, cut): (&str, f64)| {
        let (with, without) = (f.get(&row(SIZE, every), metric)?, f.get(&row(from, every), metric)?);
        let left = with.over(without);
        let holds = left.as_ref().is_some_and(|left| left.is_at_most(1.0 - cut));
        let shown = left.map_or_else(|| "-".to_owned(), |left| show(&left, 1.0, ""));
        let left =
            ClaimFinding::new(holds, format!("{every}: {shown} is left, asked is at most {:.2}", 1.0 - cut));
        Ok(ClaimFinding::all([left, drops_no_more(f, 0, &row(SIZE, every), &row(from, every))?]))
    };
    let findings: Result<Vec<_>, _> = least.into_iter().map(judge).collect();
    Ok(ClaimFinding::all(findings?))
}

fn measure(lab: &mut Lab<'_>) -> Measured {
    let base = adversary_flowlets(lab.length());
    let tuned = tuning::subjects("X6", &base).into_iter().flat_map(|tuned| attacks(&tuned));
    let all: Vec<RowSubject> = subjects(&base).into_iter().chain(tuned).collect();
    let by_quota = FigureTable::measure(lab, "latency at the unit", CostProfile::Paper, GAUGES, &all);
    let by_quota =
        [("1/100", [101e3, 677.9e3], [87e3, 504.4e3]), ("1/50", [201.2e3, 1.5e6], [93e3, 702.4e3])]
            .into_iter()
            .chain([("1/10", [752e3, 5.2e6], [102e3, 756.2e3])])
            .flat_map(|(every, timeout, size)| [(row(TIMEOUT, every), timeout), (row(SIZE, every), size)])
            .fold(by_quota, |table, (row, [p50, p99])| table.paper(&row, "p50", p50).paper(&row, "p99", p99));
    let title = "sensitivity: strict servers of 1 Gbit/s in place of quotas";
    let servers = FigureTable::measure(lab, title, CostProfile::Paper, GAUGES, &subjects(&strict(base)));
    Measured {
        tables: vec![by_quota, servers],
        notes: [
            "An adversary sends 20 packets in addition to each of its bursts, within 20 us of the \
             trace's natural time: at 4 Gbit/s faster than any unit. Demand and units grow with \
             them."
                .to_owned(),
            "The timeout is tuned with every tenth flow an adversary and used for the other \
             cases."
                .to_owned(),
        ]
        .into_iter()
        .chain(tuning::notes("X6"))
        .collect(),
    }
}

fn subjects(base: &ScenarioText) -> Vec<RowSubject> {
    let published = [
        (TIMEOUT, RowKind::Baseline, base.clone().with("dispatcher.size_max", "none")),
        (SIZE, RowKind::Faithful, base.clone()),
    ];
    let ours = OURS.map(|mode| (mode, RowKind::Plus, in_mode(base, mode).setup));
    let manners = published.into_iter().chain(ours);
    manners.flat_map(|(manner, kind, setup)| attacks(&RowSubject::new(manner, kind, setup))).collect()
}

/// A manner without an adversary, and with some.
fn attacks(manner: &RowSubject) -> [RowSubject; 4] {
    let RowSubject { name, kind, setup } = manner;
    EVERY.map(|every| match every {
        None => RowSubject::new(row(name, "none"), *kind, setup.clone()),
        Some(every) => {
            RowSubject::new(row(name, &format!("1/{every}")), *kind, attacked(setup.clone(), every))
        }
    })
}

/// Charts with the axes of the published figure.
fn charts(tables: &[FigureTable]) -> Vec<FigureChart> {
    const PLACES: [(&str, &str); 3] =
        [("1/100", "every 100th flow"), ("1/50", "every 50th flow"), ("1/10", "every 10th flow")];
    let Some(table) = tables.first() else { return Vec::new() };
    let chart = |(metric, title): (&str, &str)| FigureChart {
        title: title.to_owned(),
        x: ChartAxis::names("flows that are adversaries", PLACES.map(|(_, name)| name)),
        y: ChartAxis::logarithmic("latency at the unit, us"),
        series: [TIMEOUT, SIZE, STAYS]
            .map(|manner| {
                let rows = (0..).zip(PLACES).map(|(at, (every, _))| (f64::from(at), row(manner, every)));
                series_at(table, (manner, ChartMark::Bars), (metric, 1e3), rows)
            })
            .into(),
    };
    [("p50", "median"), ("p99", "tail (99th percentile)")].map(chart).into()
}
