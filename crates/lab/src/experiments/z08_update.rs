//! Z8: a live update of functions. Measured, not simulated.

use super::common::show;
use super::moves::{FAULTS, fault_values, without_faults};
use super::rounds::Rounds;
use super::z08_versions::{REFUSED, first, next};
use super::{Experiment, Measured, OverviewRow, Picture};
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
               flows (300 in smoke runs): all nodes get another version, unit by unit while the flows \
               send, or by being stopped and started: a firewall with other rules, which refuse 256 \
               of the flows, and a count with another state",
    matches: &[],
    beats: &[],
    checks: &[
        Claim {
            text: "nothing is lost, reordered, duplicated or broken",
            test: |f| without_faults(f, UPDATE),
        },
        Claim {
            text: "no flow passes that the new rules refuse",
            test: |f| {
                let passed = f.get(UPDATE, "refused that pass")?;
                let why =
                    format!("{} of {}", show(passed, 1.0, ""), show(f.get(UPDATE, "refused")?, 1.0, ""));
                Ok(ClaimFinding::new(passed.is_at_most(0.0), why))
            },
        },
        Claim {
            text: "being stopped and started breaks every flow whose next packet comes from outside",
            test: |f| {
                let fewest = |metric: &str| -> Result<f64, _> {
                    Ok(f.get(RESTART, metric)?.values.iter().copied().fold(f64::INFINITY, f64::min))
                };
                let (broken, flows) = (fewest("broken")?, fewest("flows")?);
                Ok(ClaimFinding::new(broken >= flows, format!("{broken} of {flows} flows")))
            },
        },
    ],
    real: &[],
    summary: OverviewRow {
        published: "no figures: a live update is claimed",
        found: "{0|unit by unit|broken} of {0|unit by unit|flows} flows broken, {0|unit by \
                unit|lost} packets lost, in {0|unit by unit|total}; stopped and started, \
                {0|stopped and started|broken}",
        caveat: "threads on two processors; both versions are in one program",
    },
    measure,
    picture: Picture::None("flows are broken or not"),
};

const METRICS: [TableMetric; 8] = [
    TableMetric { name: "total", unit: FigureUnit::Ns },
    TableMetric { name: "flows", unit: FigureUnit::Count },
    TableMetric { name: "lost", unit: FigureUnit::Count },
    TableMetric { name: "reordered", unit: FigureUnit::Count },
    TableMetric { name: "duplicated", unit: FigureUnit::Count },
    TableMetric { name: "broken", unit: FigureUnit::Count },
    TableMetric { name: "refused", unit: FigureUnit::Count },
    TableMetric { name: "refused that pass", unit: FigureUnit::Count },
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
    let table = measured.table("another version for all nodes", &METRICS);
    let notes = [
        "Unit by unit: as `rivulet apply` does; each unit gives its flows away and comes back, which takes \
         about a second each, of which it waits half for packets that are on their way to it.",
        "The other version: a firewall with another rule in front, and a count of packets whose state has \
         other fields, which the new version makes from the old ones. The count drops a packet if its \
         state has not counted all earlier packets of the flow. Both versions are in one program, as \
         threads share one; processes with other programs are not updated here.",
        "Flows: those that the new rules allow; lost and broken are of these. Refused: those that they do \
         not allow. Each of these sends once more after the update, and gets a reply.",
        "Stopped and started: nothing arrives in the meantime, so nothing is lost but the states of flows; \
         the time is that of starting. Afterwards the first packet of each flow comes from outside.",
        FAULTS,
        "Sub-flows of Multipath TCP connections stay at one unit: `cargo test -p cluster --test multipath` \
         compares 60 connections of three sub-flows with one machine, and moves them.",
    ];
    Measured { tables: vec![table], notes: notes.map(str::to_owned).into() }
}

fn measure_once(flows: u32, kind: RowKind) -> Result<[f64; METRICS.len()], String> {
    let mut hosts = Hosts::start_to_update(UNITS, flows, [first, next])?;
    let time = hosts.timed(|hosts| {
        match kind {
            RowKind::Baseline => hosts.restart(UNITS, next, REFUSED)?,
            _ => hosts.update(next, REFUSED)?,
        }
        hosts.settle();
        Ok(())
    })?;
    if kind != RowKind::Baseline {
        // Each flow shows its state once more.
        hosts.round();
    }
    let faults = hosts.faults()?;
    let [lost, reordered, duplicated, broken] = fault_values(faults);
    let refused = f64::from(REFUSED.end.min(flows).saturating_sub(REFUSED.start));
    let allowed = f64::from(flows) - refused;
    Ok([time.wall_ns, allowed, lost, reordered, duplicated, broken, refused, faults.passed as f64])
}
