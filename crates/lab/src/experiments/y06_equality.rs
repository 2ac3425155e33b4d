//! Y6: what comes of a consolidated chain is what comes of the plain one. Compared, not timed.

use conformance::{GraphForm, GraphTrial, LineShape, TrialStep, Witness, built_in};

use super::rounds::Rounds;
use super::{Experiment, Measured, OverviewRow, Picture};
use crate::paths::{Path, Player, Shortcut, differing};
use crate::runs::{Lab, RunLength};
use crate::table::{FigureUnit, RowKind, TableMetric};
use crate::verdict::{Claim, ClaimFinding};

const PLAIN: GraphForm = GraphForm { consolidates: false, shape: LineShape::Line };
const CONSOLIDATED: GraphForm = GraphForm { consolidates: true, shape: LineShape::Line };

/// Claims about consolidation (B4).
pub const Y6: Experiment = Experiment {
    id: "Y6",
    title: "Equality of results",
    question: "Is the result the same?",
    published: "B4: the result equals the original chain's (no figures)",
    workload: "chains of 1 to 6 random functions; conversations by TCP, UDP and ICMP with resets, \
               fragments, IPv6 and malformed packets, in batches of 1 to 70 packets of a dozen \
               flows, with commands and moves of flows; each also played through the plain chain",
    matches: &[],
    beats: &[],
    checks: &[Claim {
        text: "no packet, alert, report, counter, shared state or flow record differs",
        test: |f| {
            let [packets, states] =
                ["packets that differ", "runs whose state differs"].map(|metric| f.get(OURS, metric));
            let (packets, states) = (packets?, states?);
            let all = f.get(OURS, "packets")?.values.iter().sum::<f64>();
            let why = format!(
                "{} packets, {} states of runs differ, of {all} packets",
                packets.median, states.median
            );
            Ok(ClaimFinding::new(packets.is_at_most(0.0) && states.is_at_most(0.0), why))
        },
    }],
    real: &[],
    summary: OverviewRow {
        published: "no figures: equal to the original",
        found: "{0|consolidated|packets that differ} packets differ, {0|consolidated|runs whose \
                state differs} runs",
        caveat: "",
    },
    measure,
    picture: Picture::None("nothing may differ, and a synthesis is there to show that differences are found"),
};

const METRICS: [TableMetric; 5] = [
    TableMetric { name: "runs", unit: FigureUnit::Count },
    TableMetric { name: "packets", unit: FigureUnit::Count },
    TableMetric { name: "followed", unit: FigureUnit::Share },
    TableMetric { name: "packets that differ", unit: FigureUnit::Count },
    TableMetric { name: "runs whose state differs", unit: FigureUnit::Count },
];

const OURS: &str = "consolidated";
const SYNTHESIS: &str = "synthesis";

fn measure(lab: &mut Lab<'_>) -> Measured {
    let mut measured = Rounds::default();
    let runs = match lab.length() {
        RunLength::Smoke => 5,
        RunLength::Quick => 100,
        RunLength::Full => 150,
    };
    for seed in 1..=u64::from(lab.seeds()) {
        match compare(runs, seed) {
            Ok([ours, synthesis]) => {
                measured.add(OURS, RowKind::Faithful, &ours);
                measured.add(SYNTHESIS, RowKind::Baseline, &synthesis);
            }
            Err(why) => measured.fail(OURS, RowKind::Faithful, why),
        }
    }
    let table = measured.table("what is other than with the plain chain", &METRICS);
    Measured { tables: vec![table], notes: notes() }
}

/// Plays runs through both chains, and through a synthesis, which knows no events. Returns the
/// values of both rows.
fn compare(runs: u32, seed: u64) -> Result<[[f64; 5]; 2], String> {
    let (registry, functions) = (functions::registry(), built_in());
    let mut seed = seed << 32;
    let mut rows = [[0.0; 5], [0.0, 0.0, 0.0, 0.0, f64::NAN]];
    while rows[0][0] < f64::from(runs) {
        let Some(trial) = GraphTrial::draw(&registry, &functions, functions.len(), &mut seed)? else {
            continue;
        };
        let (plain, consolidated) = (trial.run(PLAIN)?, trial.run(CONSOLIDATED)?);
        let mut synthesis = Shortcut::synthesis(Box::new(trial.graph(PLAIN)?));
        let other = other_packets(&mut synthesis, &trial, &plain);
        let followed = [consolidated.followed, synthesis.followed()];
        for ((row, followed), differ) in
            rows.iter_mut().zip(followed).zip([consolidated.other_packets(&plain), other])
        {
            row[0] += 1.0;
            row[1] += trial.tape.len() as f64;
            row[2] += followed as f64;
            row[3] += differ as f64;
        }
        rows[0][4] += f64::from(u8::from(!consolidated.same_state(&plain)));
    }
    rows.iter_mut().for_each(|row| row[2] /= row[1]);
    Ok(rows)
}

/// Returns the number of packets that differ between a path without movable flows and the plain
/// chain.
fn other_packets(path: &mut dyn Path, trial: &GraphTrial<'_>, plain: &Witness) -> u64 {
    let (mut sent, mut at) = (Vec::new(), 0);
    for step in &trial.steps {
        match step {
            // What a function refuses it refuses in the plain chain, too.
            TrialStep::Command(function, command) => drop(path.command(*function, command)),
            TrialStep::Batch(len) => {
                let part = at..(at + len).min(trial.tape.len());
                at = part.end;
                sent.extend(Player::new(*len).sent(path, &trial.tape, part).into_iter().flatten());
            }
            TrialStep::Move => {}
        }
    }
    let expected = plain.sent.iter().map(|(_, side, bytes)| (*side, bytes.clone())).collect();
    differing(&[sent], &[expected])
}

fn notes() -> Vec<String> {
    [
        "Nothing is timed: the same seeds give the same figures on every machine.",
        "Functions: all but vpn and re, which stand alone; most with several configurations. \
         Commands remove and restore servers, rules and addresses, and at times all flows move to \
         another graph. Packets from outside answer those of the plain graph; one in fifty has a \
         changed byte. Flows end by FIN and RST or, in tables of 5, for others. `rivulet nf \
         check` does the same, with more packets and also for your own functions.",
        "Compared: packets, their order, sides and bytes; alerts in order; numbers of events; all \
         counters, sets, pools and meters; flow reports; the bytes of all flow records, or their \
         headers with growing buffers.",
        "Synthesis: a table of header actions, learned from packets, without events and state. \
         The comparison finds its errors.",
        "Flow identifiers cannot collide here, because a rule belongs to its flow's record.",
    ]
    .map(str::to_owned)
    .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_differs_and_a_table_without_events_does() {
        let [ours, synthesis] = compare(30, 7).unwrap();
        assert_eq!((ours[3], ours[4]), (0.0, 0.0));
        assert!(ours[2] > 0.1, "{} took the fast path", ours[2]);
        assert!(synthesis[3] > 0.0, "the comparison finds differences");
    }
}
