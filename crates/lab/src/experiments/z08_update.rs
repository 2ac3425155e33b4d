//! Z8: a live update of functions. Measured, not simulated.

use super::common::series_of_rows;
use super::moves::{FAULTS, chain, fault_values, without_faults};
use super::rounds::Rounds;
use super::{Experiment, Measured};
use crate::chart::{ChartAxis, ChartMark, FigureChart};
use crate::hosts::Hosts;
use crate::runs::{Lab, RunLength};
use crate::table::{FigureUnit, RowKind, TableMetric};
use crate::verdict::{Claim, ClaimFinding};

/// Claims about a live update (A38).
pub const Z8: Experiment = Experiment {
    id: "Z8",
    title: "Live update",
    question: "Do flows survive another version of their functions?",
    published: "A38: a live update of an NF is claimed; no figure",
    workload: "a dispatcher and three units, a thread each, over loopback on this machine, and 10,000 \
               flows (300 in smoke runs): all nodes get another policy, unit by unit while the flows \
               send, or by being stopped and started",
    matches: &[Claim {
        text: "nothing is lost, reordered, duplicated or broken",
        test: |f| without_faults(f, UPDATE),
    }],
    beats: &[Claim {
        text: "being stopped and started breaks every flow whose next packet comes from outside",
        test: |f| {
            let fewest = |metric: &str| -> Result<f64, _> {
                Ok(f.get(RESTART, metric)?.values.iter().copied().fold(f64::INFINITY, f64::min))
            };
            let (broken, flows) = (fewest("broken")?, fewest("flows")?);
            Ok(ClaimFinding::new(broken >= flows, format!("{broken} of {flows} flows")))
        },
    }],
    real: &[],
    measure,
};

const METRICS: [TableMetric; 6] = [
    TableMetric { name: "total", unit: FigureUnit::Ns },
    TableMetric { name: "flows", unit: FigureUnit::Count },
    TableMetric { name: "lost", unit: FigureUnit::Count },
    TableMetric { name: "reordered", unit: FigureUnit::Count },
    TableMetric { name: "duplicated", unit: FigureUnit::Count },
    TableMetric { name: "broken", unit: FigureUnit::Count },
];

const UPDATE: &str = "unit by unit";
const RESTART: &str = "stopped and started";
const UNITS: u16 = 3;

fn measure(lab: &mut Lab<'_>) -> Measured {
    let (rounds, flows) = match lab.length() {
        RunLength::Smoke => (1, 300),
        RunLength::Quick => (3, 10_000),
        RunLength::Full => (10, 10_000),
    };
    let mut measured = Rounds::default();
    for _ in 0..rounds {
        for (name, kind) in [(UPDATE, RowKind::Faithful), (RESTART, RowKind::Baseline)] {
            match measure_once(flows, kind) {
                Ok(values) => measured.add(name, kind, &values),
                Err(why) => measured.fail(name, kind, why),
            }
        }
    }
    let table = measured.table("another policy for all nodes", &METRICS);
    let chart = FigureChart {
        title: table.title.clone(),
        x: ChartAxis::names("", ["broken"]),
        y: ChartAxis::linear("flows"),
        series: series_of_rows(&table, &["broken"], 1.0, ChartMark::Bars),
    };
    let notes = [
        "Unit by unit: as `rivulet apply` does; each unit gives its flows away and comes back, which takes \
         about a second each, of which it waits half for packets that are on their way to it.",
        "Stopped and started: nothing arrives in the meantime, so nothing is lost but the states of flows; \
         the time is that of starting. Afterwards the first packet of each flow comes from outside.",
        FAULTS,
        "Sub-flows of Multipath TCP connections stay at one unit: `cargo test -p cluster --test multipath` \
         compares 60 connections of three sub-flows with one machine, and moves them.",
    ];
    Measured { tables: vec![table], charts: vec![chart], notes: notes.map(str::to_owned).into() }
}

fn measure_once(flows: u32, kind: RowKind) -> Result<[f64; METRICS.len()], String> {
    let mut hosts = Hosts::start(UNITS, flows, chain)?;
    let time = hosts.timed(|hosts| {
        match kind {
            RowKind::Baseline => hosts.restart(UNITS, chain)?,
            _ => hosts.update(chain)?,
        }
        hosts.settle();
        Ok(())
    })?;
    let [lost, reordered, duplicated, broken] = fault_values(hosts.faults()?);
    Ok([time.wall_ns, f64::from(flows), lost, reordered, duplicated, broken])
}
