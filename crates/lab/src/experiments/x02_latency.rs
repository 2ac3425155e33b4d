//! X2: how long packets take, by mode and by load.

use super::bases;
use super::common::{
    ALARM, BOTH, FLOW, FLOWLET, FOLLOWS, NO_MORE, PACKET, RSS, SMART_50, SMART_100, STAYS, TUNED_FLOW_MODES,
    as_fast_as, at, at_load, at_most, at_most_of, drops_no_more, faster, faster_than_all, here, in_modes,
    paper, percentile_boxes, series_at, show, strict, tuned_for, up_and_down,
};
use super::x01_tracking::subjects;
use super::{Experiment, Measured, OverviewRow, Picture, tuning};
use crate::chart::{ChartAxis, ChartMark, FigureChart};
use crate::gauges;
use crate::runs::{Lab, RunLength};
use crate::statistics::Estimate;
use crate::table::{CostProfile, FigureTable, ReportGauge};
use crate::verdict::{Claim, ClaimFinding, MeasuredFigures, MissingFigure};

/// Published claims about latency (S90, S91, S104, S105).
pub const X2: Experiment = Experiment {
    id: "X2",
    title: "Latency by mode",
    question: "What latency does each mode cost?",
    published: "S90, of a NAT: p75 275.4 ms with flows, 64.5 and 41.1 ms with smart flows every 100 and 50 ms (19.6K, 4.6K and \
                2.9K times as much as with flowlets: about 14 us); flowlets: p50 5 us, p99 2.8 ms",
    workload: "W-B at 1 to 10 Gbit/s, P-paper, all modes; the same with demand scaled; the same with strict servers",
    matches: &[
        Claim {
            text: "p75: flowlets below smart flows every 50 ms, below smart flows every 100 ms, \
                   below flows; each drops no more packets than the next",
            test: |f| {
                let order = [FLOWLET, SMART_50, SMART_100, FLOW];
                let pairs = order.windows(2).map(|pair| faster(f, pair[0], pair[1], "p75", 1e6));
                Ok(ClaimFinding::all(pairs.collect::<Result<Vec<_>, _>>()?))
            },
        },
        Claim {
            text: "flowlets: p50 at most 5 us, and no packets dropped",
            test: |f| as_fast_as(f, FLOWLET, "p50", 5e3, 1e3),
        },
        Claim {
            text: "flowlets: p75 at most 14 us, and no packets dropped",
            test: |f| as_fast_as(f, FLOWLET, "p75", 14e3, 1e3),
        },
        Claim {
            text: "flowlets: p99 at most 2.8 ms, and no packets dropped",
            test: |f| as_fast_as(f, FLOWLET, "p99", 2.8e6, 1e6),
        },
        Claim {
            text: "at the load where flows are closest to the published p75 of 275.4 ms (within a \
                   factor of 2), flows and smart flows every 100 and 50 ms have 19.6K, 4.6K and \
                   2.9K times the flowlets' p75, and flowlets drop no more packets",
            test: ratios,
        },
        Claim {
            text: "p75: flowlets below flows and smart flows tuned for it, without more drops",
            test: |f| faster_than_all(f, FLOWLET, &tuned_for("p75", &TUNED_FLOW_MODES), "p75", 1e6),
        },
        Claim {
            text: "p99: flowlets below flows and smart flows tuned for it, without more drops",
            test: |f| faster_than_all(f, FLOWLET, &tuned_for("p99", &TUNED_FLOW_MODES), "p99", 1e6),
        },
        Claim {
            text: "flows and smart flows every 100 and 50 ms, otherwise tuned for p75, have \
                   19.6K, 4.6K and 2.9K times the flowlets' p75, and flowlets drop no more \
                   packets",
            test: tuned_ratios,
        },
    ],
    beats: &[
        Claim {
            text: "if units follow demand and flowlets stay, p99 is at most 1.4 ms and below that \
                   of flowlets, without more drops, at no more than 1.02 times the unit-seconds, \
                   seed by seed",
            test: beats,
        },
        Claim {
            text: "its p99 is below that of flowlets, flows, smart flows, packets in turn and RSS \
                   buckets, each tuned for it, on units started as published and on units that \
                   follow demand, without more drops",
            test: |f| faster_than_all(f, BOTH, &tuned_for("p99", &TUNED), "p99", 1e6),
        },
    ],
    checks: &[],
    real: &[],
    summary: OverviewRow {
        published: "NAT: p75 14 us with flowlets, 275 ms with flows; p99 2.8 ms",
        found: "p75 {0|flowlet|p75} against {0|flow|p75}; p99 {0|flowlet|p99}, {0|plus: follows, \
                and flowlets stay|p99} when flowlets stay",
        caveat: "some readings of the paper were chosen with the result in sight; one tuned \
                 baseline is as good (p99 1.0 us)",
    },
    measure,
    picture: Picture::Charts(charts),
};

const GAUGES: &[&ReportGauge] = &[
    &gauges::P1,
    &gauges::P25,
    &gauges::P50,
    &gauges::P75,
    &gauges::P99,
    &gauges::P99_9,
    &gauges::UNIT_SECONDS,
    &gauges::DROPPED,
];

const SWEEP_GAUGES: &[&ReportGauge] =
    &[&gauges::P50, &gauges::P75, &gauges::P99, &gauges::UNIT_SECONDS, &gauges::DROPPED];

/// Modes of the sweep over loads.
const SWEEP_MODES: [&str; 4] = [FLOWLET, FLOW, SMART_100, SMART_50];

/// Modes with strict servers.
const SERVER_MODES: [&str; 8] = [FLOWLET, FLOW, SMART_100, SMART_50, ALARM, FOLLOWS, STAYS, BOTH];

/// All baselines that are tuned.
const TUNED: [&str; 9] = [
    FLOWLET,
    "flow",
    "smart-flow",
    PACKET,
    "rss",
    "following flow",
    "following smart-flow",
    "following packet",
    "following rss",
];

/// The demand of X1, times these; 1 is in both.
const LOADS_FULL: [f64; 5] = [0.25, 0.5, 1.0, 1.5, 2.0];
const LOADS_QUICK: [f64; 2] = [0.5, 1.0];

/// Returns the length of runs for the other tables, which explain the first one: one second.
fn aside(length: RunLength) -> RunLength {
    if length == RunLength::Full { RunLength::Quick } else { length }
}

/// Published p75 of flow mode (S90).
const FLOW_P75_NS: f64 = 275.4e6;

/// Published ratios of flow modes' p75 to that of flowlets (S90).
const PUBLISHED: [(&str, f64); 3] = [(FLOW, 19.6e3), (SMART_100, 4.6e3), (SMART_50, 2.9e3)];

/// The table of the sweep.
const SWEEP: usize = 1;

fn ratios(f: &MeasuredFigures<'_>) -> Result<ClaimFinding, MissingFigure> {
    let distance = |load: f64| {
        let flow = f.of(SWEEP, &at_load(FLOW, load), "p75").ok()?;
        Some((load, (flow.median / FLOW_P75_NS).ln().abs()))
    };
    let nearest = LOADS_FULL.into_iter().filter_map(distance).min_by(|a, b| a.1.total_cmp(&b.1));
    let Some((load, _)) = nearest.filter(|&(_, distance)| distance <= std::f64::consts::LN_2) else {
        return Ok(ClaimFinding::new(false, "flows come nowhere near 275.4 ms in this sweep"));
    };
    let flowlet = f.of(SWEEP, &at_load(FLOWLET, load), "p75")?;
    let judge = |(mode, least): (&str, f64)| {
        let ratio = times(mode, f.of(SWEEP, &at_load(mode, load), "p75")?, flowlet, least);
        let dropped = drops_no_more(f, SWEEP, &at_load(FLOWLET, load), &at_load(mode, load))?;
        Ok(ClaimFinding::all([ratio, dropped]))
    };
    let findings: Result<Vec<_>, _> = PUBLISHED.into_iter().map(judge).collect();
    let finding = ClaimFinding::all(findings?);
    Ok(ClaimFinding { why: format!("at {load} times the demand: {}", finding.why), ..finding })
}

fn tuned_ratios(f: &MeasuredFigures<'_>) -> Result<ClaimFinding, MissingFigure> {
    let flowlet = f.get(FLOWLET, "p75")?;
    let judge = |(row, least): (&String, f64)| {
        let ratio = times(row, f.get(row, "p75")?, flowlet, least);
        Ok(ClaimFinding::all([ratio, drops_no_more(f, 0, FLOWLET, row)?]))
    };
    let rows = tuned_for("p75", &PUBLISHED.map(|(mode, _)| mode));
    let findings: Result<Vec<_>, _> = rows.iter().zip(PUBLISHED.map(|(_, least)| least)).map(judge).collect();
    Ok(ClaimFinding::all(findings?))
}

/// Judges a row's figure to be at least `least` times that of flowlets, seed by seed.
fn times(name: &str, theirs: &Estimate, flowlet: &Estimate, least: f64) -> ClaimFinding {
    let ratio = theirs.over(flowlet);
    let holds = ratio.as_ref().is_some_and(|ratio| ratio.is_at_least(least));
    let shown = ratio.map_or_else(|| "-".to_owned(), |ratio| show(&ratio, 1e3, "K"));
    ClaimFinding::new(holds, format!("{name} {shown} against {} K", least / 1e3))
}

fn beats(f: &MeasuredFigures<'_>) -> Result<ClaimFinding, MissingFigure> {
    Ok(ClaimFinding::all([
        at_most(f, BOTH, "p99", 1.4e6, 1e6)?,
        faster(f, BOTH, FLOWLET, "p99", 1e6)?,
        at_most_of(f, BOTH, FLOWLET, "unit-seconds", NO_MORE)?,
    ]))
}

fn measure(lab: &mut Lab<'_>) -> Measured {
    let length = lab.length();
    let setup = bases::tracking(aside(length));
    let by_mode =
        FigureTable::measure(lab, "latency at the unit", CostProfile::Paper, GAUGES, &subjects("X2", length))
            .with_ratio("p75 x flowlet", "p75", FLOWLET)
            .paper(FLOWLET, "p50", 5e3)
            .paper(FLOWLET, "p75", 14e3)
            .paper(FLOWLET, "p99", 2.8e6)
            .paper(FLOW, "p75", FLOW_P75_NS)
            .paper(SMART_100, "p75", 64.5e6)
            .paper(SMART_50, "p75", 41.1e6)
            .paper(FLOW, "p75 x flowlet", 19.6e3)
            .paper(SMART_100, "p75 x flowlet", 4.6e3)
            .paper(SMART_50, "p75 x flowlet", 2.9e3);
    let loads: &[f64] = length.pick(&LOADS_QUICK[..], &LOADS_FULL[..]);
    let at_loads: Vec<_> = loads
        .iter()
        .flat_map(|&load| at(load, in_modes(&up_and_down(paper(), "W-B", load, aside(length)), &SWEEP_MODES)))
        .collect();
    let sweep = FigureTable::measure(lab, "the same, by load", CostProfile::Paper, SWEEP_GAUGES, &at_loads);
    let servers = FigureTable::measure(
        lab,
        "sensitivity: strict servers of 1 Gbit/s in place of quotas",
        CostProfile::Paper,
        GAUGES,
        &in_modes(&strict(setup.clone()), &SERVER_MODES),
    )
    .with_ratio("p75 x flowlet", "p75", FLOWLET);
    let measured_here = FigureTable::measure(
        lab,
        "a NAT's packet as measured here, links and quotas as published",
        CostProfile::Here,
        GAUGES,
        &in_modes(&here(setup), length.pick(&SWEEP_MODES[..2], &SWEEP_MODES[..])),
    )
    .with_ratio("p75 x flowlet", "p75", FLOWLET);
    Measured {
        tables: vec![by_mode, sweep, servers, measured_here],
        notes: [
            "All tables but the first measure the first second of the workload, whatever its \
             length."
                .to_owned(),
            "Packets of the first 100 ms do not count. Percentiles come from a histogram with \
             three digits."
                .to_owned(),
            "P-here: 69 ns per packet, measured by `rivulet bench nat --flows 100k` (median, \
             machine not quiet)."
                .to_owned(),
            "Quotas are inferred from the papers (decision 13). A strict server takes 11.5 us for \
             a single packet of 1434 bytes."
                .to_owned(),
            "Waiting times of flows depend on the duration of overload, so judge by the sweep, \
             not by one point."
                .to_owned(),
        ]
        .into_iter()
        .chain(tuning::notes("X2"))
        .collect(),
    }
}

/// Charts with the axes of the published figure.
fn charts(tables: &[FigureTable]) -> Vec<FigureChart> {
    let [by_mode, sweep, ..] = tables else { return Vec::new() };
    let modes = [
        (FLOW, "flows"),
        (SMART_100, "smart flows, 100 ms"),
        (SMART_50, "smart flows, 50 ms"),
        (FLOWLET, "flowlets"),
        (PACKET, "packets in turn"),
        (RSS, "RSS, 128 buckets"),
        (FOLLOWS, "ours: follows demand"),
        (BOTH, "ours: follows, flowlets stay"),
    ];
    let series = |mode: &&str| {
        let rows = LOADS_FULL.map(|load| (load, at_load(mode, load)));
        series_at(sweep, (mode, ChartMark::Line), ("p75", 1e3), rows)
    };
    let by_load = FigureChart {
        title: "75th percentile by load".to_owned(),
        x: ChartAxis::linear("demand, as a multiple of that of X1"),
        y: ChartAxis::logarithmic("75th percentile of latency, us"),
        series: SWEEP_MODES.iter().map(series).collect(),
    };
    vec![percentile_boxes("latency by mode (NAT)", by_mode, &modes), by_load]
}
