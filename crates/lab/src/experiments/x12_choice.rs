//! X12: what it costs to give a flowlet to a unit. Measured, not simulated.

use std::hint::black_box;
use std::time::Instant;

use packet::{FlowHasher, FlowKey, split_mix};
use router::{Arrival, Config, Order, Router};

use super::common::{at_most, show};
use super::{Experiment, Measured};
use crate::chart::{Axis, Chart, Mark, Series};
use crate::runs::{Lab, Length};
use crate::table::{Kind, Metric, Profile, Row, Table, Unit};
use crate::verdict::{Claim, Finding};

/// What is published about the cost of a choice (S102).
pub const X12: Experiment = Experiment {
    id: "X12",
    title: "What it costs to give a flowlet to a unit",
    published: "S102: about 1 us for a flowlet",
    workload: "the router alone, in this process, on whatever runs this: packets of 1,000 flows, of which all or none begin a flowlet",
    matches: &[Claim {
        text: "at most 1 us for a flowlet with 100 units, its packet included",
        test: |f| at_most(f, "router, 100 units", "first packet", 1_000.0, 1.0),
    }],
    beats: &[Claim {
        text: "at most 0.3 us for a flowlet with 1,000 units, its packet included, and less than a linear scan",
        test: |f| {
            let limit = at_most(f, "router, 1000 units", "first packet", 300.0, 1.0)?;
            let scan = f.get("linear scan, 1000 units", "choice")?;
            let ours = f.get("router, 1000 units", "choice")?;
            let why = format!(
                "choice and targets {} against a scan of {}",
                show(ours, 1.0, "ns"),
                show(scan, 1.0, "ns")
            );
            Ok(Finding::all([limit, Finding::new(ours.is_below(scan), why)]))
        },
    }],
    measure,
};

const METRICS: [Metric; 3] = [
    Metric { name: "later packet", unit: Unit::Ns },
    Metric { name: "first packet", unit: Unit::Ns },
    Metric { name: "choice", unit: Unit::Ns },
];

const UNITS: [u16; 3] = [16, 100, 1_000];

/// Flows whose packets are routed in turn.
const FLOWS: u32 = 1_000;

/// Times that each thing is measured, in turn with the others: many short ones, so that most are not disturbed by whatever else
/// the machine does. Seeds do not matter here.
const ROUNDS: usize = 301;

/// Packets of a round for each choice of a linear scan, which takes longer.
const PACKETS_PER_SCAN: u32 = 10;

fn measure(lab: &mut Lab<'_>) -> Measured {
    let packets = match lab.length() {
        Length::Smoke => 500,
        Length::Quick | Length::Full => 2_000,
    };
    let mut rows = Vec::new();
    for units in UNITS {
        let (mut later, mut first, mut scans) = (Vec::new(), Vec::new(), Vec::new());
        let (mut keeping, mut cutting) = (Bench::new(units, false), Bench::new(units, true));
        let mut scan = Scan::new(units);
        for _ in 0..ROUNDS {
            later.extend(keeping.as_mut().map(|bench| per_item(packets, |n| bench.route(n))));
            first.extend(cutting.as_mut().map(|bench| per_item(packets, |n| bench.route(n))));
            scans.push(per_item(packets / PACKETS_PER_SCAN, |n| scan.choose(n)));
        }
        let choice = first.iter().zip(&later).map(|(first, later)| first - later).collect();
        rows.push(Row::of(format!("router, {units} units"), Kind::Faithful, vec![later, first, choice]));
        let scan = vec![Vec::new(), Vec::new(), scans];
        rows.push(Row::of(format!("linear scan, {units} units"), Kind::Baseline, scan));
    }
    let table = Table {
        title: format!("time of a packet in the router; intervals over {ROUNDS} rounds in turn"),
        profile: Profile::Real,
        metrics: METRICS.to_vec(),
        rows,
    };
    let series = |name: &str, metric: &str| {
        let points = (0..).zip(UNITS).filter_map(|(place, units)| {
            Some((f64::from(place), table.get(&format!("{name}, {units} units"), metric)?.median))
        });
        Series::new(format!("{name}, {metric}"), Mark::Bars, points)
    };
    let chart = Chart {
        title: "time of a packet in the router".to_owned(),
        x: Axis::names("units", UNITS.map(|units| units.to_string())),
        y: Axis::linear("ns"),
        series: vec![
            series("router", "later packet"),
            series("router", "first packet"),
            series("linear scan", "choice"),
        ],
    };
    Measured {
        tables: vec![table],
        charts: vec![chart],
        notes: vec![
            "real time, which depends on the machine and on what else it does; figures differ from run to run".to_owned(),
            "a packet that begins a flowlet chooses a unit among all and draws three targets; choice is the difference to one that \
             does not. Keys are at hand: nothing is parsed"
                .to_owned(),
            "the linear scan looks at each unit's load for the most utilised one with room, and does nothing else".to_owned(),
            "`rivulet bench router-flowlet --units N` measures the same with packets that are copied and parsed".to_owned(),
        ],
    }
}

/// Nanoseconds for each of so many.
fn per_item(count: u32, run: impl FnOnce(u32)) -> f64 {
    let start = Instant::now();
    run(count);
    start.elapsed().as_nanos() as f64 / f64::from(count)
}

/// A router with flows.
struct Bench {
    router: Router,
    flows: Vec<(FlowKey, u64)>,
    next: usize,
    orders: Vec<Order>,
    now_ns: u64,
}

impl Bench {
    /// A router with so many units, all active, of which one is nearly enough; each packet begins a flowlet, or none does.
    /// None if there is no memory for it.
    fn new(units: u16, cuts: bool) -> Option<Bench> {
        let config = Config {
            gap_ns: if cuts { Config::default().gap_ns } else { u64::MAX },
            size_max: if cuts { 1 } else { u64::MAX },
            capacity_bps: 10_000_000_000,
            units_min: units,
            units_max: units,
            idle_ns: u64::MAX,
            flows_max: FLOWS,
            ..Config::default()
        };
        let hasher = FlowHasher::new(1);
        let flow = |number: u32| {
            let client = (number.to_be_bytes(), 40_000u16.to_be_bytes());
            let key = FlowKey::of_ipv4(client, ([198, 18, 0, 1], 443u16.to_be_bytes()), 6, 0).0;
            (key, hasher.hash(&key))
        };
        let mut bench = Bench {
            router: Router::new(config).ok()?,
            flows: (0..FLOWS).map(flow).collect(),
            next: 0,
            orders: Vec::new(),
            now_ns: 1_000_000_000,
        };
        bench.route(10 * FLOWS);
        Some(bench)
    }

    fn route(&mut self, packets: u32) {
        for _ in 0..packets {
            let (key, hash) = &self.flows[self.next];
            self.next = (self.next + 1) % self.flows.len();
            let arrival = Arrival { key, hash: *hash, len: 64 };
            let _ = black_box(self.router.route(self.now_ns, arrival, &mut self.orders));
            self.now_ns += 100;
            if self.now_ns >= self.router.due_ns() {
                self.router.advance(self.now_ns, &mut self.orders);
            }
            black_box(&mut self.orders).clear();
        }
    }
}

/// Units' loads in a row.
struct Scan {
    loads: Vec<f32>,
    state: u64,
}

impl Scan {
    fn new(units: u16) -> Scan {
        let mut state = 7;
        let load = |_| (split_mix(&mut state) % 1_000) as f32 * 1.1e-3;
        Scan { loads: (0..units).map(load).collect(), state: 1 }
    }

    fn choose(&mut self, times: u32) {
        for _ in 0..times {
            let need = (split_mix(&mut self.state) % 100) as f32 * 1e-4;
            let mut best = (None, 0.0);
            for (unit, &load) in self.loads.iter().enumerate() {
                if load + need <= 1.0 && load >= best.1 {
                    best = (Some(unit), load);
                }
            }
            black_box(best);
        }
    }
}
