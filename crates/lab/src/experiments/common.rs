//! Profiles, workloads, modes and claims that several experiments share.

use runtime::elastic::UnitsConfig;

use crate::chart::{ChartAxis, ChartMark, ChartSeries, FigureChart};
use crate::runs::RunLength;
use crate::setup::{ScenarioText, toml};
use crate::statistics::Estimate;
use crate::table::{FigureTable, RowKind, RowSubject};
use crate::verdict::{ClaimFinding, MeasuredFigures, MissingFigure};

/// The rate of the workload over time, in ms and Gbit/s: 1 to 10 Gbit/s, up and down (R5).
const CURVE: [(u32, f64); 19] = [
    (0, 1.0),
    (300, 2.0),
    (700, 8.0),
    (1_000, 5.0),
    (1_400, 3.0),
    (1_800, 9.0),
    (2_200, 10.0),
    (2_600, 4.0),
    (3_000, 2.0),
    (3_500, 6.0),
    (4_000, 5.0),
    (4_400, 9.0),
    (4_900, 3.0),
    (5_400, 4.0),
    (5_800, 10.0),
    (6_300, 6.0),
    (6_800, 1.0),
    (7_300, 5.0),
    (8_000, 2.0),
];

/// Packets that a unit may hold: more than ever wait, as no limit is published.
const HELD_MAX: u32 = 1 << 22;

/// Costs from the papers: units of 1 Gbit/s by quota; 0.44 us for a packet of a NAT (S93); a round
/// trip of 130 us to fetch a state, and 160 us for a copy to arrive (S64). Settings that the papers
/// leave open fit their results best ([decision
/// 23](../../../../docs/decisions/0023-readings-of-the-published-algorithm.md)): the time to
/// measure a flowlet's rate over, the condition for draining units, their fill, and the limit on
/// pending packets.
pub fn paper() -> ScenarioText {
    ScenarioText::new()
        .with("units.capacity", "1Gbps")
        .with("units.count", "1..40")
        .with("units.packet_cost", "440ns")
        .with("units.service", "quota")
        .with("units.quota_period", "100ms")
        .with("dispatcher.rate_over", "window")
        .with("dispatcher.idle", "50ms")
        .with("dispatcher.drain_when", "one_is_below")
        .with("dispatcher.capacity", "980Mbps")
        .with("units.pending_max", HELD_MAX)
        .with("units.pending_per_flow_max", HELD_MAX)
        .with("links.copy_time", "160us")
        .with("links.dispatcher_to_unit", toml("{ latency = \"65us\" }"))
        .with("links.unit_to_unit", toml("{ latency = \"65us\" }"))
        .with("links.unit_to_store", toml("{ latency = \"65us\" }"))
        .with("links.unit_to_router", toml("{ latency = \"65us\" }"))
}

/// The same with what a packet of a NAT takes where Rivulet was built: 69 ns with 100,000 flows, as
/// `rivulet bench nat --flows 100k` measured it. Links and the quota are not measured: they stay as
/// published.
pub fn here(setup: ScenarioText) -> ScenarioText {
    setup.with("units.packet_cost", "69ns")
}

/// The same with units that take each packet's bits at their capacity.
pub fn strict(setup: ScenarioText) -> ScenarioText {
    setup.without("units.service").without("units.quota_period").without("units.packet_cost")
}

/// A trace with a rate that rises and falls, times `scale`: all of it, or its first second.
pub fn up_and_down(setup: ScenarioText, trace: &str, scale: f64, length: RunLength) -> ScenarioText {
    let points = CURVE.map(|(ms, gbps)| format!("[\"{ms}ms\", \"{}Mbps\"]", (gbps * scale * 1e3).round()));
    let curve = toml(format!("[{}]", points.join(", ")));
    let setup = made_up(setup, trace).with("workload.trace.curve", curve);
    timed(setup, length, 1_000, 8_000)
}

/// A trace at one rate, for `quick` or `full` milliseconds.
pub fn flat(
    setup: ScenarioText,
    trace: &str,
    rate: &str,
    length: RunLength,
    quick: u32,
    full: u32,
) -> ScenarioText {
    let curve = toml(format!("[[\"0s\", \"{rate}\"]]"));
    let setup = made_up(setup, trace).with("workload.trace.curve", curve);
    timed(setup, length, quick, full)
}

/// This trace, with bursts as long as TCP's windows.
fn made_up(setup: ScenarioText, trace: &str) -> ScenarioText {
    setup.with("workload.trace.profile", trace).with("workload.trace.bursts", "windows")
}

/// So long, with a warm-up of one interval: 100 ms, the time over which load is measured.
fn timed(setup: ScenarioText, length: RunLength, quick: u32, full: u32) -> ScenarioText {
    let (time, interval) = match length {
        RunLength::Smoke => (40, 10),
        RunLength::Quick => (quick, 100),
        RunLength::Full => (full, 100),
    };
    let ms = |ms: u32| format!("{ms}ms");
    setup.with("run.time", ms(time)).with("run.interval", ms(interval)).with("run.warm_up", ms(interval))
}

/// The published system: flowlets.
pub const FLOWLET: &str = "flowlet";
/// Flows for all of their life: "vanilla".
pub const FLOW: &str = "flow";
/// Flows, moved every 100 ms if their unit is overloaded.
pub const SMART_100: &str = "smart-flow:100ms";
/// Every 50 ms.
pub const SMART_50: &str = "smart-flow:50ms";
/// Packets in turn.
pub const PACKET: &str = "packet";
/// Buckets of flows, moved every 100 ms such that units are loaded alike.
pub const RSS: &str = "rss:128:100ms";
/// Flowlets, and states go only to the unit that would be chosen now.
pub const PREDICTED: &str = "plus: predicted target";
/// Flowlets, and the router fills units to 9/10 only.
pub const HEADROOM: &str = "plus: headroom of 10 %";
/// Flowlets, and the last 5 ms of load count on their own, too.
pub const ALARM: &str = "plus: fast alarm";
/// Flowlets, and they stay with their units as long as these are not full.
pub const STAYS: &str = "plus: flowlets stay";
/// Same, but states are copied only from nearly full units, to the least loaded one.
pub const FEW_COPIES: &str = "plus: flowlets stay, few copies";
/// Flowlets, and states are copied before a cut by size.
pub const PUSHED: &str = "plus: pushed before a cut";
/// Flowlets, and the number of units follows total demand.
pub const FOLLOWS: &str = "plus: follows demand";
/// Both, with a tenth more units: the defaults of `rivulet run`.
pub const BOTH: &str = "plus: follows, and flowlets stay";

/// The baselines that assign flows.
pub const FLOW_MODES: [&str; 3] = [FLOW, SMART_100, SMART_50];

/// The same as sweeps have them: smart flows with any period.
pub const TUNED_FLOW_MODES: [&str; 2] = ["flow", "smart-flow"];

/// The row of a baseline with the settings that are best by a metric.
pub fn tuned_row(baseline: &str, metric: &str) -> String {
    format!("{baseline}, tuned for {metric}")
}

/// The rows of baselines that are tuned for a metric.
pub fn tuned_for(metric: &str, baselines: &[&str]) -> Vec<String> {
    baselines.iter().map(|baseline| tuned_row(baseline, metric)).collect()
}

/// This scenario in each of these modes.
pub fn in_modes(setup: &ScenarioText, modes: &[&str]) -> Vec<RowSubject> {
    modes.iter().map(|mode| in_mode(setup, mode)).collect()
}

/// This scenario in the mode of this name.
pub fn in_mode(setup: &ScenarioText, mode: &str) -> RowSubject {
    let setup = setup.clone();
    let (kind, setup) = match mode {
        FLOWLET => (RowKind::Faithful, setup.with("dispatcher.mode", FLOWLET)),
        PREDICTED => (RowKind::Plus, predicted(setup.with("dispatcher.mode", FLOWLET))),
        HEADROOM => {
            let setup = setup.with("dispatcher.mode", FLOWLET).with("dispatcher.capacity", "900Mbps");
            (RowKind::Plus, setup)
        }
        ALARM => (RowKind::Plus, setup.with("dispatcher.mode", FLOWLET).with("dispatcher.alarm_buckets", 10)),
        STAYS => (RowKind::Plus, stays(setup.with("dispatcher.mode", FLOWLET))),
        FEW_COPIES => (RowKind::Plus, few_copies(setup.with("dispatcher.mode", FLOWLET))),
        PUSHED => (RowKind::Plus, setup.with("dispatcher.mode", FLOWLET).with("dispatcher.push_at", 0.9)),
        FOLLOWS => (RowKind::Plus, setup.with("dispatcher.mode", FLOWLET).with("dispatcher.follow_at", 1.0)),
        BOTH => {
            let UnitsConfig { follow_at, stay_below, .. } = UnitsConfig::default();
            let shares = [("dispatcher.follow_at", follow_at), ("dispatcher.stay_below", stay_below)];
            let with = |setup: ScenarioText, (key, share): (_, Option<f32>)| match share {
                Some(share) => setup.with(key, toml(share.to_string())),
                None => setup,
            };
            let setup = setup.without("dispatcher.capacity").with("dispatcher.mode", FLOWLET);
            (RowKind::Plus, shares.into_iter().fold(setup, with))
        }
        mode => (RowKind::Baseline, setup.with("dispatcher.mode", mode)),
    };
    RowSubject::new(mode, kind, setup)
}

fn stays(setup: ScenarioText) -> ScenarioText {
    setup.with("dispatcher.stay_below", 0.95)
}

/// Flowlets stay, and states are copied only from nearly full units, to the least loaded one.
pub fn few_copies(setup: ScenarioText) -> ScenarioText {
    let few = stays(setup).with("dispatcher.copy_from", 0.8);
    few.with("dispatcher.targets", "least_loaded").with("dispatcher.targets_count", 1)
}

/// States go to the one unit that would be chosen now.
pub fn predicted(setup: ScenarioText) -> ScenarioText {
    setup.with("dispatcher.targets", "predicted").with("dispatcher.targets_count", 1)
}

/// The same rows under other names: `mode at load`.
pub fn at(load: f64, subjects: Vec<RowSubject>) -> impl Iterator<Item = RowSubject> {
    subjects.into_iter().map(move |subject| RowSubject { name: at_load(&subject.name, load), ..subject })
}

/// The name of a row at a load.
pub fn at_load(mode: &str, load: f64) -> String {
    format!("{mode} at {load}")
}

/// A figure with its interval, after division by `per`.
pub fn show(estimate: &Estimate, per: f64, unit: &str) -> String {
    let Estimate { median, low, high, values } = estimate;
    let digits = |value: f64| number(value / per);
    let unit = if unit.is_empty() { String::new() } else { format!(" {unit}") };
    match values.len() {
        1 => format!("{}{unit}", digits(*median)),
        _ => format!("{} [{}, {}]{unit}", digits(*median), digits(*low), digits(*high)),
    }
}

/// A number with about three digits.
pub fn number(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 0.1 => format!("{value:.2}"),
        _ => format!("{value:.4}"),
    }
}

/// All of a row's interval is at or below this.
pub fn at_most(
    f: &MeasuredFigures<'_>,
    row: &str,
    metric: &str,
    limit: f64,
    per: f64,
) -> Result<ClaimFinding, MissingFigure> {
    let found = f.get(row, metric)?;
    let why = format!("{row} {metric} {} against {}", show(found, per, ""), number(limit / per));
    Ok(ClaimFinding::new(found.is_at_most(limit), why))
}

/// All of a row's interval is at or above this.
pub fn at_least(
    f: &MeasuredFigures<'_>,
    row: &str,
    metric: &str,
    limit: f64,
    per: f64,
) -> Result<ClaimFinding, MissingFigure> {
    let found = f.get(row, metric)?;
    let why = format!("{row} {metric} {} against {}", show(found, per, ""), number(limit / per));
    Ok(ClaimFinding::new(found.is_at_least(limit), why))
}

/// One row is below another, and the intervals do not overlap.
pub fn below(
    f: &MeasuredFigures<'_>,
    low: &str,
    high: &str,
    metric: &str,
    per: f64,
) -> Result<ClaimFinding, MissingFigure> {
    let (a, b) = (f.get(low, metric)?, f.get(high, metric)?);
    let why = format!("{metric}: {low} {}, {high} {}", show(a, per, ""), show(b, per, ""));
    Ok(ClaimFinding::new(a.is_below(b), why))
}

/// The first row's metric is below that of each of the others.
pub fn below_all(
    f: &MeasuredFigures<'_>,
    low: &str,
    others: &[impl AsRef<str>],
    metric: &str,
    per: f64,
) -> Result<ClaimFinding, MissingFigure> {
    let findings = others.iter().map(|high| below(f, low, high.as_ref(), metric, per));
    Ok(ClaimFinding::all(findings.collect::<Result<Vec<_>, _>>()?))
}

/// Largest ratio, seed by seed, that counts as no increase: chance alone causes a few hundredths.
pub const NO_MORE: f64 = 1.02;

/// Of a metric, one row has at most this share of what another one has, seed by seed, with the
/// whole interval.
pub fn at_most_of(
    f: &MeasuredFigures<'_>,
    row: &str,
    base: &str,
    metric: &str,
    limit: f64,
) -> Result<ClaimFinding, MissingFigure> {
    let share = f.get(row, metric)?.over(f.get(base, metric)?);
    let holds = share.as_ref().is_some_and(|share| share.is_at_most(limit));
    let shown = share.map_or_else(|| "-".to_owned(), |share| show(&share, 1.0, ""));
    Ok(ClaimFinding::new(
        holds,
        format!("{row} has {shown} of the {metric} of {base}, asked is at most {limit}"),
    ))
}

/// With no seed does one row drop more packets than another: what drops packets is not fast.
pub fn drops_no_more(
    f: &MeasuredFigures<'_>,
    table: usize,
    row: &str,
    against: &str,
) -> Result<ClaimFinding, MissingFigure> {
    let (ours, theirs) = (f.of(table, row, "dropped")?, f.of(table, against, "dropped")?);
    let holds = ours.values.iter().zip(&theirs.values).all(|(ours, theirs)| ours <= theirs);
    let why = format!("{row} drops {}, {against} {}", show(ours, 1.0, ""), show(theirs, 1.0, ""));
    Ok(ClaimFinding::new(holds, why))
}

/// A row drops nothing.
pub fn drops_nothing(f: &MeasuredFigures<'_>, row: &str) -> Result<ClaimFinding, MissingFigure> {
    let dropped = f.get(row, "dropped")?;
    Ok(ClaimFinding::new(dropped.is_at_most(0.0), format!("drops {}", show(dropped, 1.0, ""))))
}

/// All of a row's interval is at or below this, and it drops nothing.
pub fn as_fast_as(
    f: &MeasuredFigures<'_>,
    row: &str,
    metric: &str,
    limit: f64,
    per: f64,
) -> Result<ClaimFinding, MissingFigure> {
    Ok(ClaimFinding::all([at_most(f, row, metric, limit, per)?, drops_nothing(f, row)?]))
}

/// One row's latency is below another's, and the intervals do not overlap; and it drops no more.
pub fn faster(
    f: &MeasuredFigures<'_>,
    low: &str,
    high: &str,
    metric: &str,
    per: f64,
) -> Result<ClaimFinding, MissingFigure> {
    Ok(ClaimFinding::all([below(f, low, high, metric, per)?, drops_no_more(f, 0, low, high)?]))
}

/// The same against each of several rows.
pub fn faster_than_all(
    f: &MeasuredFigures<'_>,
    low: &str,
    others: &[impl AsRef<str>],
    metric: &str,
    per: f64,
) -> Result<ClaimFinding, MissingFigure> {
    let findings = others.iter().map(|high| faster(f, low, high.as_ref(), metric, per));
    Ok(ClaimFinding::all(findings.collect::<Result<Vec<_>, _>>()?))
}

/// Medians of these metrics, a series for each row.
pub fn series_of_rows(table: &FigureTable, metrics: &[&str], per: f64, mark: ChartMark) -> Vec<ChartSeries> {
    let series = |name: &str| {
        let medians = (0..).zip(metrics).filter_map(|(place, metric)| {
            let estimate = table.get(name, metric)?;
            Some((f64::from(place), estimate.median / per))
        });
        ChartSeries::new(name, mark, medians)
    };
    table.rows.iter().map(|row| series(&row.name)).collect()
}

/// Medians of a metric, divided by `per`, at the places of rows, with the published values.
pub fn series_at(
    table: &FigureTable,
    (name, mark): (&str, ChartMark),
    (metric, per): (&str, f64),
    rows: impl IntoIterator<Item = (f64, String)>,
) -> ChartSeries {
    let rows: Vec<(f64, String)> = rows.into_iter().collect();
    let measured = rows.iter().filter_map(|(x, row)| Some((*x, table.get(row, metric)?.median / per)));
    let published = rows.iter().filter_map(|(x, row)| Some((*x, table.published(row, metric)? / per)));
    ChartSeries::new(name, mark, measured).published(published)
}

/// Bars of a metric, divided by `per`: one for each row, from left to right, with the published
/// values.
pub fn bars_of<R: Into<String>>(
    table: &FigureTable,
    name: &str,
    (metric, per): (&str, f64),
    rows: impl IntoIterator<Item = R>,
) -> ChartSeries {
    let rows = (0..).zip(rows).map(|(at, row)| (f64::from(at), row.into()));
    series_at(table, (name, ChartMark::Bars), (metric, per), rows)
}

/// The 1st, 25th, 50th, 75th and 99th percentiles of rows, in microseconds, by names for them; rows
/// that are not there are left out.
pub fn percentile_boxes(title: &str, table: &FigureTable, rows: &[(&str, &str)]) -> FigureChart {
    const METRICS: [&str; 5] = ["p1", "p25", "p50", "p75", "p99"];
    let rows: Vec<_> = rows.iter().filter(|(row, _)| table.get(row, METRICS[0]).is_some()).collect();
    let of = |get: &dyn Fn(&str, &str) -> Option<f64>| -> Vec<(f64, f64)> {
        let at = |(x, (row, _)): (u32, &&(&str, &str))| {
            METRICS
                .iter()
                .filter_map(|metric| Some((f64::from(x), get(row, metric)? / 1e3)))
                .collect::<Vec<_>>()
        };
        (0..).zip(&rows).flat_map(at).collect()
    };
    let measured = of(&|row, metric| Some(table.get(row, metric)?.median));
    let published = of(&|row, metric| table.published(row, metric));
    FigureChart {
        title: title.to_owned(),
        x: ChartAxis::names(
            "box: 25th to 75th percentile and median; whiskers: 1st and 99th",
            rows.iter().map(|(_, name)| *name),
        ),
        y: ChartAxis::logarithmic("latency at the unit, us"),
        series: vec![ChartSeries::new("measured", ChartMark::Boxes, measured).published(published)],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::{CostProfile, FigureUnit, TableMetric, TableRow};

    #[test]
    fn a_claim_has_to_be_shown() {
        let metric = |name| TableMetric { name, unit: FigureUnit::Count };
        let row = |name: &str, cost: [f64; 3], dropped: [f64; 3]| {
            TableRow::of(name, RowKind::Plus, vec![cost.to_vec(), dropped.to_vec()])
        };
        let tables = [FigureTable {
            title: String::new(),
            profile: CostProfile::Paper,
            metrics: vec![metric("cost"), metric("dropped")],
            rows: vec![
                row("theirs", [5.0, 6.0, 8.0], [0.0, 7.0, 0.0]),
                row("same", [5.0, 6.0, 8.0], [0.0, 7.0, 0.0]),
                // Its interval overlaps with theirs; but it costs more with one seed, and drops
                // more with another.
                row("vague", [4.0, 6.0, 9.0], [0.0, 1.0, 1.0]),
            ],
        }];
        let f = MeasuredFigures(&tables);
        let no_more = |row| at_most_of(&f, row, "theirs", "cost", NO_MORE).unwrap().holds;
        assert_eq!([no_more("same"), no_more("vague")], [true, false]);
        let drops = |row| drops_no_more(&f, 0, row, "theirs").unwrap().holds;
        assert_eq!([drops("same"), drops("vague")], [true, false]);
        assert!(!drops_nothing(&f, "same").unwrap().holds);
    }
}
