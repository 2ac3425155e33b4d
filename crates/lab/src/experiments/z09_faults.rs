//! Z9: faults at each message of a move.

use super::{Experiment, Measured, OverviewRow, Picture};
use crate::chart::{ChartAxis, ChartMark, ChartSeries, FigureChart};
use crate::move_faults::{FaultyMove, FaultyMoveOutcome, MessageKind, MoveFault};
use crate::runs::Lab;
use crate::table::{CostProfile, FigureTable, FigureUnit, RowKind, TableMetric, TableRow};
use crate::verdict::{Claim, ClaimFinding, MeasuredFigures, MissingFigure};

/// Claims about faults in a move (A18, A40).
pub const Z9: Experiment = Experiment {
    id: "Z9",
    title: "Faults in migration",
    question: "What does a fault in the middle of a move break?",
    published: "A18: no packet is lost. NFActor's released code: the source goes on with its old \
                state if the last response is lost, although the target has processed packets; a \
                flow that is replicated does not migrate",
    workload: "all flows of one unit of three move to the next one, in a simulated cluster of the \
               processes' own code, with links of P-paper: the datagram with the first message of a \
               kind is lost, repeated or late, or its sender, its receiver or the dispatcher crashes",
    matches: &[],
    beats: &[Claim {
        text: "the same holds while flows are replicated",
        test: |f| nothing(f, 1, &["lost updates", "two writers", "orphans", "wrong packets"]),
    }],
    checks: &[
        Claim {
            text: "no update is lost, no flow has two writers, and no record is left over",
            test: |f| nothing(f, 0, &["lost updates", "two writers", "orphans"]),
        },
        Claim {
            text: "no packet is lost, reordered or duplicated, but of flows of a process that crashes",
            test: |f| nothing(f, 0, &["wrong packets"]),
        },
    ],
    real: &[],
    summary: OverviewRow {
        published: "no figures: no packet lost; NFActor's code: an old state after a lost \
                    response, no moves of replicated flows",
        found: "no lost update, second writer, left-over record; a crash costs the flows of its process",
        caveat: "simulated; a dispatcher's crash costs all flows",
    },
    measure,
    picture: Picture::Charts(charts),
};

const METRICS: [TableMetric; 6] = [
    TableMetric { name: "moves", unit: FigureUnit::Count },
    TableMetric { name: "lost updates", unit: FigureUnit::Count },
    TableMetric { name: "two writers", unit: FigureUnit::Count },
    TableMetric { name: "orphans", unit: FigureUnit::Count },
    TableMetric { name: "wrong packets", unit: FigureUnit::Count },
    TableMetric { name: "flows lost", unit: FigureUnit::Count },
];

/// The messages of a move, with their names.
const MESSAGES: [(MessageKind, &str); 6] = [
    (MessageKind::Adopt, "Adopt"),
    (MessageKind::Release, "Release"),
    (MessageKind::FirstPacket, "first packet"),
    (MessageKind::Pull, "Pull"),
    (MessageKind::State, "State"),
    (MessageKind::StateAck, "StateAck"),
];

/// Those of a replica.
const REPLICAS: [(MessageKind, &str); 2] =
    [(MessageKind::Replicate, "Replicate"), (MessageKind::Delta, "Delta")];

/// Faults, with their names; the sender of the first three messages is the dispatcher.
const FAULTS: [(MoveFault, &str); 8] = [
    (MoveFault::Lost, "lost"),
    (MoveFault::Repeated, "repeated"),
    (MoveFault::Late, "late"),
    (MoveFault::SenderBefore, "sender crashes before it leaves"),
    (MoveFault::SenderAfter, "sender crashes after it"),
    (MoveFault::ReceiverBefore, "receiver crashes before it arrives"),
    (MoveFault::ReceiverAfter, "receiver crashes after it"),
    (MoveFault::Dispatcher, "dispatcher crashes"),
];

/// Returns the rows with this many replicas, and their names.
fn rows(copies: u8) -> Vec<(String, FaultyMove)> {
    let replicas = if copies > 0 { &REPLICAS[..] } else { &[] };
    let mut rows = Vec::new();
    for &(message, name) in MESSAGES.iter().chain(replicas) {
        let is_dispatchers =
            matches!(message, MessageKind::Adopt | MessageKind::Release | MessageKind::FirstPacket);
        for (fault, what) in FAULTS {
            let crashes_sender = matches!(fault, MoveFault::SenderBefore | MoveFault::SenderAfter);
            if !(is_dispatchers && crashes_sender) {
                rows.push((format!("{name}: {what}"), FaultyMove { copies, message, fault }));
            }
        }
    }
    rows
}

fn measure(lab: &mut Lab<'_>) -> Measured {
    let table = |title: &str, copies| FigureTable {
        title: title.to_owned(),
        profile: CostProfile::Paper,
        metrics: METRICS.to_vec(),
        rows: rows(copies).iter().map(|(name, case)| run_row(lab, name, case)).collect(),
    };
    let tables = vec![
        table("flows that only their unit has", 0),
        table("flows of which both other units have replicas", 2),
    ];
    let notes = [
        "Each packet leaves with the number of packets that its flow's state has counted, and with the \
         process that has the state. Lost updates: packets whose number is not above that of an earlier \
         one. Two writers: a number from two processes. Orphans: flows in the tables of units that the \
         dispatcher does not know, 1 s after the last packet.",
        "Wrong packets: of flows that no process which crashed had, those that did not leave once, or \
         left after a later one. Flows lost: began again without a state; a crash may cost those of its \
         process, and of a dispatcher all.",
        "A link sends a lost datagram again, so no message is lost for good. `cargo test -p protocol` \
         loses messages between units for good.",
    ];
    Measured { tables, notes: notes.map(str::to_owned).into() }
}

/// A chart of the flows that a crash of a unit costs, by message: the most of its cases.
fn charts(tables: &[FigureTable]) -> Vec<FigureChart> {
    let messages: Vec<&str> = MESSAGES.iter().chain(&REPLICAS).map(|(_, name)| *name).collect();
    let of_message = |table: &FigureTable, message: &str| {
        let crashes = FAULTS.iter().filter(|(fault, _)| *fault != MoveFault::Dispatcher);
        let lost = crashes.filter_map(|(_, what)| table.get(&format!("{message}: {what}"), "flows lost"));
        lost.map(|estimate| estimate.median).reduce(f64::max)
    };
    let names = ["only their unit has them", "two others have replicas"];
    let series = tables.iter().zip(names).map(|(table, name)| {
        let of_messages = (0..).zip(&messages);
        let points =
            of_messages.filter_map(|(at, message)| Some((f64::from(at), of_message(table, message)?)));
        ChartSeries::new(name, ChartMark::Bars, points)
    });
    vec![FigureChart {
        title: "flows that begin again if a unit crashes around a message, at most".to_owned(),
        x: ChartAxis::names("message", messages.iter().copied()),
        y: ChartAxis::linear("flows of 24"),
        series: series.collect(),
    }]
}

fn run_row(lab: &Lab<'_>, name: &str, case: &FaultyMove) -> TableRow {
    let mut values = vec![Vec::new(); METRICS.len()];
    let mut failures = Vec::new();
    for seed in 1..=u64::from(lab.seeds()) {
        match case.run(seed) {
            Ok(outcome) => {
                values.iter_mut().zip(figures(&outcome)).for_each(|(values, figure)| values.push(figure));
            }
            Err(why) => failures.push(why),
        }
    }
    if !failures.is_empty() {
        values.iter_mut().for_each(Vec::clear);
    }
    TableRow { failures, ..TableRow::of(name, RowKind::Faithful, values) }
}

fn figures(outcome: &FaultyMoveOutcome) -> [f64; METRICS.len()] {
    let &FaultyMoveOutcome { moves, lost_updates, two_writers, orphans, wrong_packets, flows_lost } = outcome;
    [moves, lost_updates, two_writers, orphans, wrong_packets, flows_lost].map(|count| count as f64)
}

/// These metrics are 0 in all rows of a table, with every seed.
fn nothing(f: &MeasuredFigures<'_>, table: usize, metrics: &[&str]) -> Result<ClaimFinding, MissingFigure> {
    let rows = rows(if table == 0 { 0 } else { 2 });
    let mut bad = Vec::new();
    for (row, _) in &rows {
        for metric in metrics {
            let most = f.of(table, row, metric)?.values.iter().copied().fold(0.0, f64::max);
            if most > 0.0 {
                bad.push(format!("{row}: up to {most} {metric}"));
            }
        }
    }
    let why =
        if bad.is_empty() { format!("in {} rows, with every seed", rows.len()) } else { bad.join("; ") };
    Ok(ClaimFinding::new(bad.is_empty(), why))
}
