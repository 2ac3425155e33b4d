//! D1: the time of draining a unit. Measured, not simulated.

use super::common::at_most;
use super::moves::{FAULTS, chain, fault_values, without_faults};
use super::rounds::Rounds;
use super::{Experiment, Measured, OverviewRow, Picture};
use crate::hosts::Hosts;
use crate::runs::{Lab, RunLength};
use crate::table::{FigureUnit, RowKind, TableMetric};
use crate::verdict::Claim;

/// Claims about a drain.
pub const D1: Experiment = Experiment {
    id: "D1",
    title: "Draining a unit",
    question: "How long does it take to drain a unit?",
    published: "a load balancer of a cloud (AWS GWLB) waits 350 s for flows to end",
    workload: "a dispatcher and two units, a thread each, over loopback on this machine: the unit \
               that has 100,000 flows is drained while they send (2,000 in smoke runs)",
    matches: &[],
    beats: &[],
    checks: &[
        Claim {
            text: "nothing is lost, reordered, duplicated or broken",
            test: |f| without_faults(f, DRAIN),
        },
        Claim { text: "it takes less than 350 s", test: |f| at_most(f, DRAIN, "total", 350e9, 1e9) },
        Claim { text: "it takes less than a second", test: |f| at_most(f, DRAIN, "total", 1e9, 1e9) },
    ],
    real: &[],
    summary: OverviewRow {
        published: "another system (AWS GWLB): flows have 350 s to end",
        found: "{0|drain|total} for 100,000 flows, {0|drain|lost} packets lost, {0|drain|broken} \
                flows broken",
        caveat: "the other one waits, and moves nothing",
    },
    measure,
    picture: Picture::None("one time, against one that is published"),
};

const METRICS: [TableMetric; 7] = [
    TableMetric { name: "total", unit: FigureUnit::Ns },
    TableMetric { name: "CPU", unit: FigureUnit::Ns },
    TableMetric { name: "of a flow", unit: FigureUnit::Ns },
    TableMetric { name: "lost", unit: FigureUnit::Count },
    TableMetric { name: "reordered", unit: FigureUnit::Count },
    TableMetric { name: "duplicated", unit: FigureUnit::Count },
    TableMetric { name: "broken", unit: FigureUnit::Count },
];

const DRAIN: &str = "drain";

fn measure(lab: &mut Lab<'_>) -> Measured {
    let (rounds, flows) = match lab.length() {
        RunLength::Smoke => (1, 2_000),
        RunLength::Quick => (3, 100_000),
        RunLength::Full => (10, 100_000),
    };
    let mut measured = Rounds::default();
    for _ in 0..rounds {
        match measure_once(flows) {
            Ok(values) => measured.add(DRAIN, RowKind::Faithful, &values),
            Err(why) => measured.fail(DRAIN, RowKind::Faithful, why),
        }
    }
    let table = measured.table("drain of a unit that has all flows", &METRICS);
    let table = table.paper(DRAIN, "total", 350e9);
    let notes = [
        "From the command until the unit has given all flows away and has stopped, seen in steps of \
         50 ms, and all packets have left; flows go on sending, 64 packets between two polls. Then each \
         flow sends once more.",
        "CPU: of dispatcher and both units, with the packets that they process in that time.",
        FAULTS,
    ];
    Measured { tables: vec![table], notes: notes.map(str::to_owned).into() }
}

fn measure_once(flows: u32) -> Result<[f64; METRICS.len()], String> {
    let mut hosts = Hosts::start(2, flows, chain)?;
    let time = hosts.timed(|hosts| {
        hosts.drain()?;
        hosts.settle();
        Ok(())
    })?;
    hosts.round();
    let [lost, reordered, duplicated, broken] = fault_values(hosts.faults()?);
    let of_flow = time.wall_ns / f64::from(flows);
    Ok([time.wall_ns, time.cpu_ns, of_flow, lost, reordered, duplicated, broken])
}
