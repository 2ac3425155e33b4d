//! M1: the wait of a moving flow's packets. Measured, not simulated.

use super::common::{at_most, bars_of};
use super::moves::{FAULTS, chain, fault_values, without_faults};
use super::rounds::Rounds;
use super::{Experiment, Measured, OverviewRow, Picture};
use crate::chart::{ChartAxis, FigureChart};
use crate::hosts::Hosts;
use crate::runs::{Lab, RunLength};
use crate::statistics::median;
use crate::table::{FigureTable, FigureUnit, RowKind, TableMetric};
use crate::verdict::{Claim, ClaimFinding, MeasuredFigures, MissingFigure};

/// Claims about the wait of packets, against HA/TCP.
pub const M1: Experiment = Experiment {
    id: "M1",
    title: "Wait of a moving flow",
    question: "How long do packets of a moving flow wait?",
    published: "another system (HA/TCP): 38 us",
    workload: "a dispatcher and two units, a thread each, over loopback on this machine: a flow \
               among 100 others moves from unit to unit, and then sends 16 packets, in a burst with \
               others or one by one; its state is copied before or not, and the copy may be one \
               packet behind",
    matches: &[],
    beats: &[],
    checks: &[
        Claim { text: "the longest wait of its packets is at most 38 us", test: |f| waits_at_most(f, 38e3) },
        Claim {
            text: "nothing is lost, reordered, duplicated or broken",
            test: |f| {
                let rows = [MOVES_IN_BURST, MOVES, COPIED_IN_BURST, COPIED, CHANGED_IN_BURST, CHANGED];
                let findings = rows.map(|row| without_faults(f, row));
                Ok(ClaimFinding::all(findings.into_iter().collect::<Result<Vec<_>, _>>()?))
            },
        },
        Claim { text: "the longest wait is at most 15 us", test: |f| waits_at_most(f, 15e3) },
    ],
    real: &[],
    summary: OverviewRow {
        published: "another system (HA/TCP): 38 us",
        found: "{0|in a burst, the flow moves|longest wait} in a burst, {0|one by one, the flow \
                moves|longest wait} one by one; copied before, no longer than a flow that stays",
        caveat: "three threads on two virtual CPUs",
    },
    measure,
    picture: Picture::Charts(charts),
};

const METRICS: [TableMetric; 7] = [
    TableMetric { name: "longest wait", unit: FigureUnit::Ns },
    TableMetric { name: "first wait", unit: FigureUnit::Ns },
    TableMetric { name: "longest time", unit: FigureUnit::Ns },
    TableMetric { name: "lost", unit: FigureUnit::Count },
    TableMetric { name: "reordered", unit: FigureUnit::Count },
    TableMetric { name: "duplicated", unit: FigureUnit::Count },
    TableMetric { name: "broken", unit: FigureUnit::Count },
];

const STAYS_IN_BURST: &str = "in a burst, the flow stays";
const MOVES_IN_BURST: &str = "in a burst, the flow moves";
const STAYS: &str = "one by one, the flow stays";
const MOVES: &str = "one by one, the flow moves";
const COPIED_IN_BURST: &str = "in a burst, copied before it moves";
const COPIED: &str = "one by one, copied before it moves";
const CHANGED_IN_BURST: &str = "in a burst, a packet after the copy";
const CHANGED: &str = "one by one, a packet after the copy";

const FLOWS: u32 = 101;
const PACKETS: u32 = 16;

/// The longest wait is at most this, in bursts and one by one.
fn waits_at_most(f: &MeasuredFigures<'_>, limit_ns: f64) -> Result<ClaimFinding, MissingFigure> {
    let findings = [MOVES_IN_BURST, MOVES].map(|row| at_most(f, row, "longest wait", limit_ns, 1e3));
    Ok(ClaimFinding::all(findings.into_iter().collect::<Result<Vec<_>, _>>()?))
}

/// A chart of the longest wait.
fn charts(tables: &[FigureTable]) -> Vec<FigureChart> {
    let Some(table) = tables.first() else { return Vec::new() };
    let ways = [
        ("the flow stays", [STAYS_IN_BURST, STAYS]),
        ("it moves", [MOVES_IN_BURST, MOVES]),
        ("copied before it moves", [COPIED_IN_BURST, COPIED]),
        ("a packet after the copy", [CHANGED_IN_BURST, CHANGED]),
    ];
    let series = |(name, rows): (&str, [&str; 2])| bars_of(table, name, ("longest wait", 1e3), rows);
    vec![FigureChart {
        title: "longest wait of a packet".to_owned(),
        x: ChartAxis::names("packets", ["in a burst", "one by one"]),
        y: ChartAxis::linear("us"),
        series: ways.map(series).into(),
    }]
}

fn measure(lab: &mut Lab<'_>) -> Measured {
    let (rounds, moves) = match lab.length() {
        RunLength::Smoke => (1, 10),
        RunLength::Quick => (5, 100),
        RunLength::Full => (10, 100),
    };
    let mut measured = Rounds::default();
    if let Err(why) = measure_all(&mut measured, rounds, moves) {
        measured.fail(MOVES, RowKind::Faithful, why);
    }
    let table = measured.table(format!("16 packets, medians of {moves} moves"), &METRICS);
    let table = table.paper(MOVES, "longest wait", 38e3);
    let notes = [
        "Time: from the dispatcher's port in to its port out, over two links with encryption. \
         Dispatcher and units are three threads on two virtual CPUs, and wait for each other.",
        "Wait: a packet's time beyond the median of the packets at its place while the flow stays. \
         The longest of 16 has chance in it: the row of a flow that stays shows how much. The first \
         packet waits for the state, later ones at most behind it.",
        "A move is an operator's command, answered between two batches; all 16 packets come after it. \
         Packets with and without a move take turns.",
        "Copied: with pre-copy, as `rivulet migrate` moves flows. The new owner goes on at once if no \
         packet has come since; otherwise it asks for what has changed.",
        "In a burst, three packets of other flows follow each packet of the flow, and packets wait for \
         up to 0.1 ms until they fill a datagram. One by one, nothing waits for others, but the \
         threads of units have to wake up.",
        FAULTS,
    ];
    Measured { tables: vec![table], notes: notes.map(str::to_owned).into() }
}

fn measure_all(measured: &mut Rounds, rounds: u32, moves: u32) -> Result<(), String> {
    let mut hosts = Hosts::start(2, FLOWS, chain)?;
    // So that flow 0 has the most packets.
    hosts.send(0);
    hosts.settle();
    let flows = hosts.flows()?;
    let first = flows.iter().max_by_key(|flow| flow.packets).ok_or("there are no flows")?;
    let (flow, mut owner) = (first.flow, first.owner);
    for _ in 0..rounds {
        for (stays_row, rows) in [
            (STAYS_IN_BURST, [MOVES_IN_BURST, COPIED_IN_BURST, CHANGED_IN_BURST]),
            (STAYS, [MOVES, COPIED, CHANGED]),
        ] {
            let is_burst = stays_row == STAYS_IN_BURST;
            let (mut stays, mut moved) = (Vec::new(), [const { Vec::new() }; 3]);
            for _ in 0..moves {
                for (row, times) in rows.iter().zip(&mut moved) {
                    stays.push(hosts.times_ns(PACKETS, is_burst)?);
                    owner.0 ^= 1;
                    if ![MOVES_IN_BURST, MOVES].contains(row) {
                        hosts.copy(flow, owner)?;
                    }
                    if [CHANGED_IN_BURST, CHANGED].contains(row) {
                        hosts.send(0);
                        hosts.settle();
                    }
                    hosts.migrate(&[flow], owner)?;
                    times.push(hosts.times_ns(PACKETS, is_burst)?);
                }
            }
            let usual = usual_ns(&stays);
            let none = f64::NAN;
            let [longest, first, time] = medians_ns(&stays, &usual);
            measured.add(stays_row, RowKind::Bound, &[longest, first, time, none, none, none, none]);
            let [lost, reordered, duplicated, broken] = fault_values(hosts.faults()?);
            for (row, times) in rows.into_iter().zip(&moved) {
                let [longest, first, time] = medians_ns(times, &usual);
                let figures = [longest, first, time, lost, reordered, duplicated, broken];
                measured.add(row, RowKind::Faithful, &figures);
            }
        }
    }
    Ok(())
}

/// Returns the medians of the longest wait, of the first packet's wait, and of the longest time.
fn medians_ns(bursts: &[Vec<f64>], usual: &[f64]) -> [f64; 3] {
    let longest = |times: &mut dyn Iterator<Item = f64>| times.fold(0.0, f64::max);
    let waits = |times: &[f64]| times.iter().zip(usual).map(|(time, usual)| time - usual).collect::<Vec<_>>();
    let of = |figure: &dyn Fn(&[f64]) -> f64| {
        median(&mut bursts.iter().map(|times| figure(times)).collect::<Vec<_>>())
    };
    [
        of(&|times| longest(&mut waits(times).into_iter())),
        of(&|times| waits(times).first().copied().unwrap_or_default()),
        of(&|times| longest(&mut times.iter().copied())),
    ]
}

/// Returns the median time at each place of a burst.
fn usual_ns(bursts: &[Vec<f64>]) -> Vec<f64> {
    let at = |place: usize| bursts.iter().filter_map(|times| times.get(place).copied()).collect::<Vec<_>>();
    (0..PACKETS as usize).map(|place| median(&mut at(place))).collect()
}
