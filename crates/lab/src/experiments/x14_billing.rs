//! X14: what is paid, and by whom.

use std::collections::HashMap;
use std::sync::Arc;

use protocol::metering::Interval;
use sim::workload::Packets;
use sim::{Report, Scenario};

use super::bases;
use super::common::{FLOWLET, bars_of, in_mode, show};
use super::{Experiment, Measured, OverviewRow, Picture};
use crate::chart::{ChartAxis, FigureChart};
use crate::gauges;
use crate::runs::Lab;
use crate::table::{CostProfile, FigureTable, FigureUnit, RowKind, TableCell, TableMetric, TableRow};
use crate::verdict::{Claim, ClaimFinding};

/// Claims about bills (S83, S84).
pub const X14: Experiment = Experiment {
    id: "X14",
    title: "Prices",
    question: "Does the tenant pay for the work?",
    published: "S83, S84: tenants pay per packet, perhaps also per flowlet; competitive with \
                virtual machines (no figures)",
    workload: "W-B at 1 to 10 Gbit/s, P-paper; work includes handovers of states, at the price of \
               full units",
    matches: &[],
    beats: &[Claim {
        text: "the tariff for packets and flowlets covers the units' cost in every interval, and \
               so in more intervals than an equally expensive tariff per packet",
        test: |f| {
            let (ours, theirs) = (f.get(MIXED, "intervals covered")?, f.get(DEARER, "intervals covered")?);
            let why = format!("{} against {}", show(ours, 0.01, "%"), show(theirs, 0.01, "%"));
            Ok(ClaimFinding::new(ours.is_at_least(1.0) && theirs.is_below(ours), why))
        },
    }],
    checks: &[Claim {
        text: "per packet, a tenant pays within 5 % of the price of the units' work with packets \
               and states",
        test: |f| {
            let found = f.get(PER_PACKET, "paid x work")?;
            let holds = found.is_at_least(0.95) && found.is_at_most(1.05);
            Ok(ClaimFinding::new(holds, show(found, 1.0, "")))
        },
    }],
    real: &[],
    summary: OverviewRow {
        published: "no figures",
        found: "{0|per packet|paid x work} of the price of the work",
        caveat: "price set on another seed",
    },
    measure,
    picture: Picture::Charts(charts),
};

const METRICS: [TableMetric; 4] = [
    TableMetric { name: "paid x work", unit: FigureUnit::Ratio },
    TableMetric { name: "paid x packets' work", unit: FigureUnit::Ratio },
    TableMetric { name: "not paid", unit: FigureUnit::Share },
    TableMetric { name: "intervals covered", unit: FigureUnit::Share },
];

const PER_PACKET: &str = "per packet";
const DEARER: &str = "per packet, as much in all";
const MIXED: &str = "plus: per packet and flowlet";

/// The seed that prices are set with; no row is measured with it (R2).
const TUNING_SEED: u64 = 1_000_001;

/// Share of units' cost that flowlets must earn; packets earn the rest.
const FLOWLETS_SHARE: f64 = 0.1;

/// Price of a function service's smallest instance relative to a whole processor: 128 of 1,769 MB.
const SMALLEST_INSTANCE: f64 = 128.0 / 1_769.0;

/// Bytes of a message without its state: Ethernet, IPv4, UDP, Geneve, and what it says.
const MESSAGE_BYTES: u64 = 64;

/// Prices in seconds of a unit.
#[derive(Clone, Copy, Debug, Default)]
struct Prices {
    packet: f64,
    flowlet: f64,
}

/// Resources used by a run, in seconds of a unit.
struct Account {
    /// Of each interval: the work with packets, the units' time, packets, flowlets.
    intervals: Vec<[f64; 4]>,
    /// Additional time for states and late packets.
    handovers: f64,
    /// As many units as the busiest interval needs, all the time.
    peak: f64,
    /// As few units as can hold each interval's demand.
    packed: f64,
}

impl Account {
    fn of(report: &Report) -> Account {
        let intervals = gauges::intervals(report);
        let seconds = |interval: &Interval| interval.length_ns as f64 * 1e-9;
        let work = |interval: &Interval| {
            interval.demand_bps / (interval.provisioned_bps / interval.units) * seconds(interval)
        };
        let packed = gauges::oracle(intervals);
        let most = packed.iter().map(|interval| interval.units).fold(0.0, f64::max);
        let of = |e: &Interval| [work(e), e.unit_seconds, e.processed as f64, e.flowlets as f64];
        let packets_work: f64 = intervals.iter().map(work).sum();
        let handovers = handovers_share(report) * packets_work;
        Account {
            intervals: intervals.iter().map(of).collect(),
            handovers,
            peak: most * intervals.iter().map(seconds).sum::<f64>(),
            packed: packed.iter().map(|interval| interval.unit_seconds).sum(),
        }
    }

    fn sum(&self, column: usize) -> f64 {
        self.intervals.iter().map(|interval| interval[column]).sum()
    }

    /// With packets alone.
    fn packets_work(&self) -> f64 {
        self.sum(0)
    }

    /// All that units had to do.
    fn work(&self) -> f64 {
        self.packets_work() + self.handovers
    }

    fn cost(&self) -> f64 {
        self.sum(1)
    }

    /// Returns the revenue from packets and flowlets.
    fn revenue(&self, prices: Prices) -> f64 {
        self.sum(2) * prices.packet + self.sum(3) * prices.flowlet
    }

    /// Returns the share of intervals that cover the cost of units.
    fn covered(&self, prices: Prices) -> f64 {
        let is_covered = |&&[_, cost, packets, flowlets]: &&[f64; 4]| {
            packets * prices.packet + flowlets * prices.flowlet >= cost
        };
        self.intervals.iter().filter(is_covered).count() as f64 / self.intervals.len().max(1) as f64
    }

    /// Returns the figures of a tenant who pays this amount.
    fn figures(&self, paid: f64, covered: f64) -> [f64; 4] {
        [paid / self.work(), paid / self.packets_work(), 1.0 - paid / self.cost(), covered]
    }
}

/// Returns the time for states and late packets relative to that for packets. A message costs its
/// bytes at sender and receiver; a late packet passes one more unit.
fn handovers_share(report: &Report) -> f64 {
    let state = &report.state;
    let messages = state.replicas + state.moved + state.pulls;
    let bytes = 2 * (state.replica_bytes + state.moved_bytes + messages * MESSAGE_BYTES);
    let late = state.forwarded as f64 / report.workload.packets.max(1) as f64;
    late + bytes as f64 / report.workload.bytes.max(1) as f64
}

/// A chart of all tariffs.
fn charts(tables: &[FigureTable]) -> Vec<FigureChart> {
    let Some(table) = tables.first() else { return Vec::new() };
    let tariffs = table.rows.iter().map(|row| row.name.as_str());
    let series =
        |(name, metric): (&str, TableMetric)| bars_of(table, name, (metric.name, 1.0), tariffs.clone());
    let [work, packets_work, ..] = METRICS;
    let series = [("of all work", work), ("of the packets' work alone", packets_work)].map(series);
    vec![FigureChart {
        title: "what a tenant pays".to_owned(),
        x: ChartAxis::names("tariff", tariffs.clone()),
        y: ChartAxis::linear("paid, as a multiple of the price"),
        series: series.into(),
    }]
}

fn measure(lab: &mut Lab<'_>) -> Measured {
    let setup = in_mode(&bases::tracking(lab.length()), FLOWLET).setup;
    let tuning = lab.run_seed(&setup, TUNING_SEED);
    let runs = lab.run(&[&setup]).pop().unwrap_or_default();
    let failures: Vec<String> = runs.iter().chain([&tuning]).filter_map(|run| run.clone().err()).collect();
    let reports: Vec<Arc<Report>> = runs.into_iter().filter_map(Result::ok).collect();
    let accounts: Vec<Account> = reports.iter().map(|report| Account::of(report)).collect();
    let [packet, dearer, mixed] = tuning.as_ref().map_or([Prices::default(); 3], |r| prices(&Account::of(r)));
    let text = setup.to_string();
    let flow_seconds: Vec<f64> = reports.iter().map(|report| flow_seconds(&text, report.seed)).collect();

    let rows = [
        tariff(PER_PACKET, RowKind::Faithful, &accounts, |a, _| {
            a.figures(a.revenue(packet), a.covered(packet))
        }),
        tariff(DEARER, RowKind::Baseline, &accounts, |a, _| a.figures(a.revenue(dearer), a.covered(dearer))),
        tariff(MIXED, RowKind::Plus, &accounts, |a, _| a.figures(a.revenue(mixed), a.covered(mixed))),
        tariff("machines, by the second", RowKind::Baseline, &accounts, |a, _| no_intervals(a, a.packed)),
        tariff("machines, by the hour", RowKind::Baseline, &accounts, |a, _| no_intervals(a, a.peak)),
        tariff("functions, per flow", RowKind::Baseline, &accounts, |a, i| {
            no_intervals(a, flow_seconds.get(i).map_or(f64::NAN, |s| s * SMALLEST_INSTANCE))
        }),
    ];
    let mut table = FigureTable {
        title: "what a tenant pays".to_owned(),
        profile: CostProfile::Paper,
        metrics: METRICS.to_vec(),
        rows: rows.into(),
    };
    for row in &mut table.rows {
        row.scenario.clone_from(&text);
        if !failures.is_empty() {
            row.cells = vec![TableCell::default(); METRICS.len()];
        }
    }
    if let Some(row) = table.rows.first_mut() {
        row.failures = failures;
    }
    Measured {
        tables: vec![table],
        notes: vec![
            format!(
                "Prices are set with seed {TUNING_SEED}, which no experiment measures. Per \
                 packet: all work is paid, handovers included. With flowlets: packets pay for all \
                 of the units' time, flowlets a tenth more. `{DEARER}`: packets pay for both. The \
                 price of a packet's own work alone covers 0.88 of all work."
            ),
            format!(
                "Work is counted in bits, like quotas: those of packets, again for late packets \
                 that were sent on, and those of messages with states and requests, at sender and \
                 receiver, plus {MESSAGE_BYTES} bytes each. The simulator counts messages, but \
                 they cost units no time."
            ),
            "Not paid: the share of the units' time that the tenant's payment does not cover. \
             Below 0, the provider earns."
                .to_owned(),
            "Machines are priced at their best: the fewest for each interval's demand, by the \
             second; those for the busiest interval, by the hour."
                .to_owned(),
            "Functions per flow: an instance per flow from its first to its last packet, waiting \
             included, of the smallest size (128 of 1,769 MB of a processor)."
                .to_owned(),
        ],
    }
}

/// The tariff for packets, by what they have units do; one for packets that brings as much as the
/// third; and that for packets and flowlets.
fn prices(tuning: &Account) -> [Prices; 3] {
    let per_packet = |paid: f64| Prices { packet: paid / tuning.sum(2).max(1.0), flowlet: 0.0 };
    let flowlet = FLOWLETS_SHARE * tuning.cost() / tuning.sum(3).max(1.0);
    [
        per_packet(tuning.work()),
        per_packet((1.0 + FLOWLETS_SHARE) * tuning.cost()),
        Prices { flowlet, ..per_packet(tuning.cost()) },
    ]
}

/// A tenant who pays for time pays the provider of units nothing, so there is nothing to cover.
fn no_intervals(account: &Account, paid: f64) -> [f64; 4] {
    let [work, packets_work, ..] = account.figures(paid, 0.0);
    [work, packets_work, f64::NAN, f64::NAN]
}

fn tariff(
    name: &str,
    kind: RowKind,
    accounts: &[Account],
    figures: impl Fn(&Account, usize) -> [f64; 4],
) -> TableRow {
    let seeds: Vec<[f64; 4]> = accounts.iter().enumerate().map(|(i, account)| figures(account, i)).collect();
    let column = |i: usize| seeds.iter().map(|seed| seed[i]).collect();
    TableRow::of(name, kind, (0..METRICS.len()).map(column).collect())
}

/// Time from the first to the last packet of each flow, added up, in seconds; the warm-up does not
/// count.
fn flow_seconds(text: &str, seed: u64) -> f64 {
    let Ok(scenario) = Scenario::parse(text) else { return f64::NAN };
    let (from_ns, to_ns) = (scenario.run.interval.0, scenario.run.time.0);
    let mut flows: HashMap<u32, (u64, u64)> = HashMap::new();
    for packet in Packets::new(&scenario.workload, seed).take_while(|packet| packet.time_ns < to_ns) {
        if packet.time_ns >= from_ns {
            let times = flows.entry(packet.flow).or_insert((packet.time_ns, packet.time_ns));
            times.1 = packet.time_ns;
        }
    }
    // Whole numbers: their sum does not depend on the order.
    flows.values().map(|(first, last)| last - first).sum::<u64>() as f64 * 1e-9
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_adds_up() {
        let interval = |demand_bps, units, processed, flowlets| Interval {
            length_ns: 1_000_000_000,
            demand_bps,
            units,
            provisioned_bps: units * 1e9,
            unit_seconds: units,
            processed,
            flowlets,
            ..Interval::default()
        };
        let intervals = [interval(1.5e9, 4.0, 1_000, 10), interval(0.5e9, 2.0, 3_000, 30)];
        let account = Account {
            intervals: intervals
                .iter()
                .map(|e| [e.demand_bps * 1e-9, e.unit_seconds, e.processed as f64, e.flowlets as f64])
                .collect(),
            handovers: 0.5,
            peak: 4.0,
            packed: 3.0,
        };
        let [packets, dearer, mixed] = prices(&account);
        assert!((account.revenue(packets) - account.work()).abs() < 1e-9);
        assert!((account.revenue(mixed) - 1.1 * account.cost()).abs() < 1e-9);
        assert!((account.revenue(dearer) - account.revenue(mixed)).abs() < 1e-9);
        assert_eq!(account.covered(mixed), 0.5);
        let [work, packets_work, unpaid, _] = account.figures(3.0, 0.0);
        assert_eq!((work, packets_work, unpaid), (1.2, 1.5, 0.5));
    }
}
