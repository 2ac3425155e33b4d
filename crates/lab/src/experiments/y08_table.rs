//! Y8: flows with and without room in the table. Counted, not timed.

use std::hint::black_box;

use packet::{Packet, PacketPool, Side, split_mix};

use super::common::{at_most, below, series_at};
use super::rounds::{BATCH, Rounds};
use super::{Experiment, Measured, OverviewRow, Picture};
use crate::chart::{ChartAxis, ChartMark, FigureChart};
use crate::paths::{Functions, Path};
use crate::runs::{Lab, RunLength};
use crate::table::{FigureTable, FigureUnit, RowKind, TableMetric};
use crate::verdict::{Claim, ClaimFinding};

/// Published claims about the flow table (B9), and the behaviour of the authors' code when two
/// flows collide in it.
pub const Y8: Experiment = Experiment {
    id: "Y8",
    title: "Flows beyond the table",
    question: "What happens beyond the table's capacity?",
    published: "B9: flow identifiers of 20 bits, about a million flows (no figures); in the \
                authors' code a flow overwrites another one in its slot",
    workload: "2^16 to 2^21 flows, one packet of each flow per round, in random order; a chain of \
               two monitors with room for 2^20 flows, and a table of 999,983 slots in which the \
               last flow wins; no times are measured",
    matches: &[],
    beats: &[Claim {
        text: "with a table filled to 80 %, less than 1 % of packets leave the fast path",
        test: |f| at_most(f, &row(OURS, FILLED), "slow path", 0.01, 0.01),
    }],
    checks: &[Claim {
        text: "with 2^16 to 2^20 flows, fewer packets leave the fast path than with overwritten \
               slots",
        test: |f| {
            let rows = f.0.iter().flat_map(|table| &table.rows).map(|row| row.name.as_str());
            let ours =
                rows.filter_map(|name| name.strip_prefix(OURS)).filter(|flows| !flows.ends_with(BEYOND));
            let all: Result<Vec<_>, _> = ours
                .map(|flows| {
                    below(f, &format!("{OURS}{flows}"), &format!("{SLOTS}{flows}"), "slow path", 0.01)
                })
                .collect();
            Ok(ClaimFinding::all(all?))
        },
    }],
    real: &[],
    summary: OverviewRow {
        published: "no figures: flows overwrite each other",
        found: "{0|plus: rules beside records, 838860 flows|slow path} leave the fast path at 80 % \
                fill, {0|overwritten slots, 838860 flows|slow path} with overwriting",
        caveat: "",
    },
    measure,
    picture: Picture::Charts(charts),
};

const METRICS: [TableMetric; 2] = [
    TableMetric { name: "slow path", unit: FigureUnit::Share },
    TableMetric { name: "flows live", unit: FigureUnit::Count },
];

const OURS: &str = "plus: rules beside records";
const SLOTS: &str = "overwritten slots";

/// Flows that there is room for.
const FLOWS_MAX: u32 = 1 << 20;

/// 80 % of them.
const FILLED: u32 = FLOWS_MAX / 5 * 4;

/// Slots of the authors' table: the largest prime below a million.
const SLOT_COUNT: u64 = 999_983;

/// Suffix of rows with more flows than there is room for.
const BEYOND: &str = " 2097152 flows";

fn row(what: &str, flows: u32) -> String {
    format!("{what}, {flows} flows")
}

/// Rounds that make rules, and rounds that count.
const WARM_UP: u64 = 4;
const COUNTED: u64 = 1;

/// Numbers of flows.
const SIZES: [u32; 5] = [1 << 16, 1 << 18, FILLED, FLOWS_MAX, 1 << 21];

fn measure(lab: &mut Lab<'_>) -> Measured {
    let mut measured = Rounds::default();
    let sizes: &[u32] = match lab.length() {
        RunLength::Smoke => &[1 << 16, FILLED],
        RunLength::Quick | RunLength::Full => &SIZES,
    };
    for &flows in sizes {
        for seed in 1..=u64::from(lab.seeds()).min(lab.length().pick(2, 5)) {
            let (slow, live) = match ours(flows, seed) {
                Ok(counted) => counted,
                Err(why) => {
                    measured.fail(&row(OURS, flows), RowKind::Plus, why);
                    continue;
                }
            };
            measured.add(&row(OURS, flows), RowKind::Plus, &[slow, live]);
            let (slow, live) = slots(flows, seed);
            measured.add(&row(SLOTS, flows), RowKind::Faithful, &[slow, live]);
        }
    }
    let table = measured.table("packets that leave the fast path, once every flow has been seen", &METRICS);
    Measured { tables: vec![table], notes: notes() }
}

/// The flows' numbers, each once in every round, in an order of the round's own.
fn order(flows: u32, seed: u64, round: u64) -> impl Iterator<Item = u32> {
    let mut state = seed << 32 | round;
    let start = split_mix(&mut state) % u64::from(flows);
    let step = loop {
        let step = split_mix(&mut state) % u64::from(flows);
        if is_coprime(step, u64::from(flows)) {
            break step;
        }
    };
    (0..u64::from(flows)).map(move |number| ((start + number * step) % u64::from(flows)) as u32)
}

fn is_coprime(a: u64, b: u64) -> bool {
    if b == 0 { a == 1 } else { is_coprime(b, a % b) }
}

/// A chain with room for 2^20 flows: the share of packets that walk, and the flows at the end.
fn ours(flows: u32, seed: u64) -> Result<(f64, f64), String> {
    let mut graph =
        Functions::new(FLOWS_MAX).with("Monitor", "report: []").with("Monitor", "report: []").graph(true)?;
    let mut pool = PacketPool::new(4 * BATCH);
    let (mut batch, mut out) = (Vec::with_capacity(BATCH), Vec::with_capacity(2 * BATCH));
    let mut before = 0;
    let mut at_ns = 1_700_000_000_000_000_000;
    for round in 0..WARM_UP + COUNTED {
        if round == WARM_UP {
            before = graph.followed();
        }
        let mut numbers = order(flows, seed, round).peekable();
        while numbers.peek().is_some() {
            for number in numbers.by_ref().take(BATCH) {
                at_ns += 100;
                batch.extend(packet(number, at_ns, &mut pool));
            }
            Path::process(&mut graph, &mut batch, &mut out, &mut pool);
            pool.give_all(&mut out);
            graph.clear();
        }
    }
    let followed = graph.followed() - before;
    let live = graph.counters().flows_live;
    Ok((1.0 - followed as f64 / (COUNTED * u64::from(flows)) as f64, live as f64))
}

/// A packet by UDP of the flow with this number.
fn packet(flow: u32, at_ns: u64, pool: &mut PacketPool) -> Option<Packet> {
    let mut frame = [0; 60];
    frame[..14].copy_from_slice(&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0]);
    frame[14..24].copy_from_slice(&[0x45, 0, 0, 46, 0, 0, 0x40, 0, 64, 17]);
    frame[26] = 10;
    frame[27..30].copy_from_slice(&(flow / 64).to_be_bytes()[1..]);
    frame[30..34].copy_from_slice(&[198, 18, 0, 1]);
    frame[34..36].copy_from_slice(&(1_024 + (flow % 64) as u16).to_be_bytes());
    frame[36..40].copy_from_slice(&[0, 80, 0, 26]);
    let mut packet = pool.take(&frame)?;
    let transit = &mut packet.meta_mut().transit;
    (transit.timestamp_ns, transit.side) = (at_ns, Side::Inside);
    Some(packet)
}

/// Slots that flows overwrite: the share of packets that find another flow's, or none, and the
/// flows at the end.
fn slots(flows: u32, seed: u64) -> (f64, f64) {
    let mut slots = vec![u32::MAX; SLOT_COUNT as usize];
    let mut missed = 0u64;
    for round in 0..WARM_UP + COUNTED {
        for number in order(flows, seed, round) {
            let mut hashed = seed << 32 | u64::from(number);
            let slot = &mut slots[(split_mix(&mut hashed) % SLOT_COUNT) as usize];
            if *slot != number {
                *slot = number;
                missed += u64::from(round >= WARM_UP);
            }
        }
    }
    let live = black_box(&slots).iter().filter(|&&number| number != u32::MAX).count();
    (missed as f64 / (COUNTED * u64::from(flows)) as f64, live as f64)
}

/// Charts of the tables.
fn charts(tables: &[FigureTable]) -> Vec<FigureChart> {
    let Some(table) = tables.first() else { return Vec::new() };
    let series = |what: &str| {
        let rows = SIZES.map(|flows| (f64::from(flows), row(what, flows)));
        series_at(table, (what, ChartMark::Line), ("slow path", 0.01), rows)
    };
    vec![FigureChart {
        title: "packets that leave the fast path".to_owned(),
        x: ChartAxis::logarithmic("flows; the table has room for 2^20"),
        y: ChartAxis::linear("%"),
        series: vec![series(OURS), series(SLOTS)],
    }]
}

fn notes() -> Vec<String> {
    [
        "Ours: rules stand beside flow records, one per direction, and end with them. In a full \
         table, a new flow evicts another one. All packets on the slow path count: first packets \
         and recorded ones.",
        "Overwritten slots: a hash of the flow determines the slot, which holds its latest flow. \
         Keys are compared, so no packet gets another flow's rule. This follows the description \
         of the authors' code, whose hash is unknown; ours is a good one.",
        "Seeds determine the order of flows and the hash. Shares are of the last of 5 rounds, \
         with one packet per flow each. With more flows than room, this is the worst order for \
         eviction by age.",
        "Memory: 384 bytes per flow for rules, and the monitors' records; about 800 MB for 2^20 \
         flows.",
    ]
    .map(str::to_owned)
    .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flow_comes_once_a_round() {
        for round in 0..3 {
            let mut numbers: Vec<u32> = order(1_000, 1, round).collect();
            numbers.sort_unstable();
            assert!(numbers.into_iter().eq(0..1_000));
        }
    }

    #[test]
    fn few_flows_stay_on_the_fast_path() {
        let (slow, live) = ours(5_000, 1).unwrap();
        assert_eq!((slow, live), (0.0, 5_000.0));
        let (slow, live) = slots(5_000, 1);
        assert!(slow < 0.02 && live > 4_900.0, "{slow} {live}");
    }
}
