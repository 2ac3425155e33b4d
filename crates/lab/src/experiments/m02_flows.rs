//! M2: the time of moving 10,000 flows, per flow. Measured, not simulated.

use super::common::at_most;
use super::moves::{FAULTS, chain, fault_values, without_faults};
use super::rounds::Rounds;
use super::{Experiment, Measured, OverviewRow, Picture};
use crate::hosts::{Hosts, TimeSpent};
use crate::runs::{Lab, RunLength};
use crate::table::{FigureUnit, RowKind, TableMetric};
use crate::verdict::Claim;

/// Claims about the time per flow, against NFActor's later version.
pub const M2: Experiment = Experiment {
    id: "M2",
    title: "Moving 10,000 flows",
    question: "What does each of 10,000 moving flows take?",
    published: "A33, later version: 1.5 us a flow, on 20 cores",
    workload: "a dispatcher and two units, a thread each, over loopback on this machine: 10,000 flows \
               move from unit to unit while they send",
    matches: &[],
    beats: &[],
    checks: &[
        Claim {
            text: "a flow takes at most 1.5 us",
            test: |f| at_most(f, MOVE, "of a flow", 1_500.0, 1_000.0),
        },
        Claim { text: "nothing is lost, reordered, duplicated or broken", test: |f| without_faults(f, MOVE) },
        Claim {
            text: "a flow takes at most 1 us",
            test: |f| at_most(f, MOVE, "of a flow", 1_000.0, 1_000.0),
        },
    ],
    real: &[],
    summary: OverviewRow {
        published: "another paper: 1.5 us each, on 20 cores",
        found: "{0|the move alone|of a flow} each, {0|the move alone|CPU of a flow} of processor \
                time; {0|the move alone|lost} lost",
        caveat: "the same; five encrypted messages a flow",
    },
    measure,
    picture: Picture::None("one time, against one that is published"),
};

const METRICS: [TableMetric; 6] = [
    TableMetric { name: "of a flow", unit: FigureUnit::Ns },
    TableMetric { name: "CPU of a flow", unit: FigureUnit::Ns },
    TableMetric { name: "lost", unit: FigureUnit::Count },
    TableMetric { name: "reordered", unit: FigureUnit::Count },
    TableMetric { name: "duplicated", unit: FigureUnit::Count },
    TableMetric { name: "broken", unit: FigureUnit::Count },
];

const PACKET: &str = "a packet of each flow";
const BOTH: &str = "a move and a packet of each flow";
const MOVE: &str = "the move alone";

const FLOWS: u32 = 10_000;

fn measure(lab: &mut Lab<'_>) -> Measured {
    let rounds = match lab.length() {
        RunLength::Smoke => 1,
        RunLength::Quick => 11,
        RunLength::Full => 41,
    };
    let mut measured = Rounds::default();
    if let Err(why) = measure_all(&mut measured, rounds) {
        measured.fail(MOVE, RowKind::Faithful, why);
    }
    let table = measured.table("time of 10,000 flows, per flow", &METRICS);
    let table = table.paper(MOVE, "of a flow", 1_500.0);
    let notes = [
        "A round moves all flows by commands of 256 each, between which 64 packets arrive, then sends \
         a packet of each flow, and ends when all packets have left: each waits for its flow's state. \
         The move alone is that without a round of packets of flows that stay, measured in turn.",
        "CPU: of dispatcher and both units, all in one process. A second of two busy CPUs has two \
         seconds of it.",
        "Five messages a flow, each encrypted and in a stream that is acknowledged, and a state that \
         is saved, restored and looked up.",
        FAULTS,
    ];
    Measured { tables: vec![table], notes: notes.map(str::to_owned).into() }
}

fn measure_all(measured: &mut Rounds, rounds: u32) -> Result<(), String> {
    let mut hosts = Hosts::start(2, FLOWS, chain)?;
    let flows = hosts.flows()?;
    let mut owner = flows.first().ok_or("there are no flows")?.owner;
    let ids: Vec<_> = flows.iter().map(|flow| flow.flow).collect();
    let extra = ids.len().div_ceil(256) as u32 * 64;
    for _ in 0..rounds {
        let packets = hosts.timed(|hosts| {
            hosts.send_some(extra);
            hosts.round();
            Ok(())
        })?;
        owner.0 ^= 1;
        let both = hosts.timed(|hosts| {
            hosts.migrate(&ids, owner)?;
            hosts.round();
            Ok(())
        })?;
        let [lost, reordered, duplicated, broken] = fault_values(hosts.faults()?);
        let per_flow = |time: TimeSpent| [time.wall_ns, time.cpu_ns].map(|ns| ns / f64::from(FLOWS));
        let ([packet, packet_cpu], [whole, whole_cpu]) = (per_flow(packets), per_flow(both));
        let none = f64::NAN;
        measured.add(PACKET, RowKind::Bound, &[packet, packet_cpu, none, none, none, none]);
        measured.add(BOTH, RowKind::Faithful, &[whole, whole_cpu, none, none, none, none]);
        let alone = [whole - packet, whole_cpu - packet_cpu, lost, reordered, duplicated, broken];
        measured.add(MOVE, RowKind::Faithful, &alone);
    }
    Ok(())
}
