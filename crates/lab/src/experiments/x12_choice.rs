//! X12: what it costs to give a flowlet to a unit. Measured, not simulated.

use std::hint::black_box;
use std::time::Instant;

use packet::{FlowHasher, FlowKey, split_mix};
use protocol::dispatcher::{Config, Dispatcher, DispatcherOutput, PacketArrival};

use super::common::{at_most, series_at, show};
use super::{Experiment, Measured, OverviewRow, Picture};
use crate::chart::{ChartAxis, ChartMark, ChartSeries, FigureChart};
use crate::runs::{Lab, RunLength};
use crate::table::{CostProfile, FigureTable, FigureUnit, RowKind, TableMetric, TableRow};
use crate::verdict::{Claim, ClaimFinding};

/// Published claims about the cost of a choice (S102).
pub const X12: Experiment = Experiment {
    id: "X12",
    title: "Cost of an assignment",
    question: "What does an assignment cost?",
    published: "S102: about 1 us per flowlet",
    workload: "the dispatcher alone, in this process, on this machine: packets of 1,000 flows, of \
               which all or none begin a flowlet, to nearly full units",
    matches: &[Claim {
        text: "at most 1 us per flowlet with 100 units, its packet included",
        test: |f| at_most(f, "router, 100 units", "first packet", 1_000.0, 1.0),
    }],
    beats: &[Claim {
        text: "at most 0.3 us per flowlet with 1,000 units, its packet included, and less than a \
               linear scan",
        test: |f| {
            let limit = at_most(f, "router, 1000 units", "first packet", 300.0, 1.0)?;
            let scan = f.get("linear scan, 1000 units", "choice")?;
            let ours = f.get("router, 1000 units", "choice")?;
            let why = format!(
                "choice and targets {} against a scan of {}",
                show(ours, 1.0, "ns"),
                show(scan, 1.0, "ns")
            );
            Ok(ClaimFinding::all([limit, ClaimFinding::new(ours.is_below(scan), why)]))
        },
    }],
    checks: &[],
    real: &[],
    summary: OverviewRow {
        published: "1 us per flowlet",
        found: "{0|router, 100 units|first packet} with 100 units, {0|router, 1000 units|first \
                packet} with 1,000",
        caveat: "time on one machine",
    },
    measure,
    picture: Picture::Charts(charts),
};

const METRICS: [TableMetric; 4] = [
    TableMetric { name: "later packet", unit: FigureUnit::Ns },
    TableMetric { name: "first packet", unit: FigureUnit::Ns },
    TableMetric { name: "choice", unit: FigureUnit::Ns },
    TableMetric { name: "units with room", unit: FigureUnit::Share },
];

const UNITS: [u16; 3] = [16, 100, 1_000];

/// Number of flows; their packets are routed in turn.
const FLOWS: u32 = 1_000;

/// Capacity of a unit: about twenty mean flowlets at once.
const CAPACITY_BPS: u64 = 160_000_000;

/// T, over which a lone packet counts.
const GAP_NS: u64 = 500_000;

/// Buckets of the load meter: fewer than usual, so that it is soon full.
const BUCKETS: usize = 20;

/// Load of the units, as a share of their capacity. Nearly all are full, and a third to a half of
/// all flowlets find no room and go to the least loaded unit.
const LOAD: f64 = 0.93;

/// Times that each thing is measured, in turn with the others: many short ones, so that most are
/// not disturbed by whatever else the machine does. Seeds do not matter here.
const ROUNDS: usize = 301;

/// Packets of a round for each choice of a linear scan, which takes longer.
const PACKETS_PER_SCAN: u32 = 10;

/// A chart of times by the number of units. The paper has one time, for no number in particular.
fn charts(tables: &[FigureTable]) -> Vec<FigureChart> {
    let Some(table) = tables.first() else { return Vec::new() };
    let series = |(name, row, metric): (&str, &str, &str)| {
        let rows = UNITS.map(|units| (f64::from(units), format!("{row}, {units} units")));
        series_at(table, (name, ChartMark::Line), (metric, 1.0), rows)
    };
    let published = UNITS.map(|units| (f64::from(units), 1e3));
    let published = ChartSeries::new("published, for a flowlet", ChartMark::Reference, published);
    let measured = [
        ("first packet of a flowlet", "router", "first packet"),
        ("of that, the choice", "router", "choice"),
        ("choice by a linear scan", "linear scan", "choice"),
        ("later packet", "router", "later packet"),
    ];
    vec![FigureChart {
        title: "time of a packet in the dispatcher".to_owned(),
        x: ChartAxis::logarithmic("units"),
        y: ChartAxis::linear("ns"),
        series: [published].into_iter().chain(measured.map(series)).collect(),
    }]
}

fn measure(lab: &mut Lab<'_>) -> Measured {
    let packets = match lab.length() {
        RunLength::Smoke => 500,
        RunLength::Quick | RunLength::Full => 2_000,
    };
    let mut rows = Vec::new();
    for units in UNITS {
        let (mut later, mut first, mut scans) = (Vec::new(), Vec::new(), Vec::new());
        let (mut keeping, mut cutting) = (Bench::new(units, false), Bench::new(units, true));
        let (mut scan, mut with_room) = (Scan::default(), Vec::new());
        for _ in 0..ROUNDS {
            later.extend(keeping.as_mut().map(|bench| per_item(packets, |n| bench.route(n))));
            first.extend(cutting.as_mut().map(|bench| per_item(packets, |n| bench.route(n))));
            if let Some(bench) = &cutting {
                scan.read(bench);
                with_room.push(scan.share_with_room());
            }
            scans.push(per_item(packets / PACKETS_PER_SCAN, |n| scan.choose(n)));
        }
        let choice = first.iter().zip(&later).map(|(first, later)| first - later).collect();
        rows.push(TableRow::of(
            format!("router, {units} units"),
            RowKind::Faithful,
            vec![later, first, choice, with_room],
        ));
        let scan = vec![Vec::new(), Vec::new(), scans, Vec::new()];
        rows.push(TableRow::of(format!("linear scan, {units} units"), RowKind::Baseline, scan));
    }
    let table = FigureTable {
        title: format!("time of a packet in the dispatcher; intervals over {ROUNDS} rounds in turn"),
        profile: CostProfile::Real,
        metrics: METRICS.to_vec(),
        rows,
    };
    Measured {
        tables: vec![table],
        notes: vec![
            "Times are measured on this machine and depend on its other work; figures differ from \
             run to run."
                .to_owned(),
            "For a packet that begins a flowlet, the dispatcher chooses a unit and draws three \
             targets. Choice is the difference to other packets. Keys are given; nothing is \
             parsed."
                .to_owned(),
            "The linear scan only searches all units for the most utilised one with room, with \
             the same loads and flowlets. Units with room: for a flowlet of mean size."
                .to_owned(),
            "`rivulet bench dispatcher-flowlet --units N` measures the same, with packets copied \
             and parsed."
                .to_owned(),
        ],
    }
}

/// Returns nanoseconds per item.
fn per_item(count: u32, run: impl FnOnce(u32)) -> f64 {
    let start = Instant::now();
    run(count);
    start.elapsed().as_nanos() as f64 / f64::from(count)
}

/// A dispatcher with flows.
struct Bench {
    dispatcher: Dispatcher,
    flows: Vec<Flow>,
    next: usize,
    orders: Vec<DispatcherOutput>,
    now_ns: f64,
    /// From a packet to the next.
    step_ns: f64,
}

/// A flow with equal packets.
struct Flow {
    key: FlowKey,
    hash: u64,
    len: u32,
}

impl Bench {
    /// Creates a dispatcher with active units, all nearly full by its traffic. Each packet begins a
    /// flowlet, or none does. `None` if there is no memory.
    fn new(units: u16, cuts: bool) -> Option<Bench> {
        let config = Config {
            gap_ns: if cuts { GAP_NS } else { u64::MAX },
            size_max: if cuts { 1 } else { u64::MAX },
            capacity_bps: CAPACITY_BPS,
            units_min: units,
            units_max: units,
            idle_ns: u64::MAX,
            buckets: BUCKETS,
            flows_max: FLOWS,
            ..Config::default()
        };
        let hasher = FlowHasher::new(1);
        let mut state = 7;
        let flow = |number: u32| {
            let client = (number.to_be_bytes(), 40_000u16.to_be_bytes());
            let key = FlowKey::of_ipv4(client, ([198, 18, 0, 1], 443u16.to_be_bytes()), 6, 0).0;
            // 200 to 1,500 bytes.
            Flow { key, hash: hasher.hash(&key), len: 200 + (split_mix(&mut state) % 1_301) as u32 }
        };
        let flows: Vec<Flow> = (0..FLOWS).map(flow).collect();
        let bits = flows.iter().map(|flow| f64::from(flow.len) * 8.0).sum::<f64>() / f64::from(FLOWS);
        let total_bps = LOAD * f64::from(units) * CAPACITY_BPS as f64;
        let mut bench = Bench {
            dispatcher: Dispatcher::new(config).ok()?,
            flows,
            next: 0,
            orders: Vec::new(),
            now_ns: 1e9,
            step_ns: bits * 1e9 / total_bps,
        };
        // Until the load meter has forgotten how it began.
        let window_ns = BUCKETS as f64 * Config::default().bucket_ns as f64;
        bench.route((1.5 * window_ns / bench.step_ns) as u32);
        Some(bench)
    }

    fn route(&mut self, packets: u32) {
        for _ in 0..packets {
            let Flow { key, hash, len } = &self.flows[self.next];
            self.next = (self.next + 1) % self.flows.len();
            let arrival = PacketArrival { key, hash: *hash, len: *len };
            let now_ns = self.now_ns as u64;
            let _ = black_box(self.dispatcher.handle_packet(now_ns, arrival, &mut self.orders));
            self.now_ns += self.step_ns;
            if now_ns >= self.dispatcher.next_timeout_ns() {
                self.dispatcher.handle_timeout(now_ns, &mut self.orders);
            }
            black_box(&mut self.orders).clear();
        }
    }
}

/// Units' loads in a row, and what flowlets are expected to bring: the same as in a router.
#[derive(Default)]
struct Scan {
    loads: Vec<f32>,
    needs: Vec<f32>,
    next: usize,
}

impl Scan {
    /// As the dispatcher has it now.
    fn read(&mut self, bench: &Bench) {
        let bps = |flow: &Flow| flow.len as f32 * 8e9 / GAP_NS as f32;
        self.loads = bench.dispatcher.units().map(|unit| unit.load_bps).collect();
        self.needs = bench.flows.iter().map(bps).collect();
    }

    /// Share of units that have room for the mean flowlet.
    fn share_with_room(&self) -> f64 {
        let need = self.needs.iter().sum::<f32>() / self.needs.len().max(1) as f32;
        let with_room = self.loads.iter().filter(|&&load| load + need < CAPACITY_BPS as f32).count();
        with_room as f64 / self.loads.len().max(1) as f64
    }

    fn choose(&mut self, times: u32) {
        for _ in 0..times {
            let need = self.needs.get(self.next).copied().unwrap_or_default();
            self.next = if self.next + 1 < self.needs.len() { self.next + 1 } else { 0 };
            let mut best = (None, 0.0);
            for (unit, &load) in self.loads.iter().enumerate() {
                if load + need < CAPACITY_BPS as f32 && load > best.1 {
                    best = (Some(unit), load);
                }
            }
            black_box(best);
        }
    }
}
