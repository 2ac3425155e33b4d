//! Y2: what packets cost that are dropped, by where in the chain. Measured, not simulated.

use super::common::{NO_MORE, at_most, at_most_of, bars_of};
use super::rounds::{BATCH, Contender, Rounds, rounds};
use super::{Experiment, Measured, OverviewRow, Picture};
use crate::chart::{ChartAxis, FigureChart};
use crate::paths::{Functions, Player, Tape};
use crate::runs::{Lab, RunLength};
use crate::table::{FigureTable, FigureUnit, RowKind, TableMetric};
use crate::verdict::{Claim, ClaimFinding, MeasuredFigures, MissingFigure};

/// Published claims about dropped packets (B31).
pub const Y2: Experiment = Experiment {
    id: "Y2",
    title: "Early drops",
    question: "Are early drops cheap?",
    published: "B31: a packet that a later function would drop is dropped at once, so only the \
                fast path is left (no figures)",
    workload: "a firewall that drops, as first, second or third function, with two rewriters or \
               two monitors, on this machine; 64-byte packets of 1,024 flows, in batches of 32",
    matches: &[],
    beats: &[
        Claim {
            text: "with rewriters: a packet that the third function drops costs at most a third \
                   of its cost in the plain chain",
            test: |f| at_most(f, &row(CONSOLIDATED, 3, REWRITERS), "x plain", 1.0 / 3.0, 1.0),
        },
        Claim {
            text: "with monitors: the same",
            test: |f| at_most(f, &row(CONSOLIDATED, 3, MONITORS), "x plain", 1.0 / 3.0, 1.0),
        },
        Claim {
            text: "with either, at every place, a drop costs no more than in the plain chain, \
                   round by round",
            test: |f| {
                let all = OTHERS.iter().flat_map(|what| PLACES.map(|place| row(CONSOLIDATED, place, what)));
                let places: Result<Vec<_>, _> =
                    all.map(|row| at_most(f, &row, "x plain", NO_MORE, 1.0)).collect();
                Ok(ClaimFinding::all(places?))
            },
        },
    ],
    checks: &[
        Claim {
            text: "with rewriters: a consolidated chain drops at the same cost, within 5 %, \
                   wherever the firewall is, round by round",
            test: |f| is_the_same_everywhere(f, REWRITERS),
        },
        Claim {
            text: "with monitors, which count the packets that reach them: the same",
            test: |f| is_the_same_everywhere(f, MONITORS),
        },
    ],
    real: &[],
    summary: OverviewRow {
        published: "no figures: only the fast path is left",
        found: "{0|consolidated, 3rd of 3, rewriters|x plain} of the plain chain with rewriters, \
                {0|consolidated, 3rd of 3, monitors|x plain} with monitors",
        caveat: "monitors count what is dropped",
    },
    measure,
    picture: Picture::Charts(charts),
};

const METRICS: [TableMetric; 5] = [
    TableMetric { name: "dropped", unit: FigureUnit::Ns },
    TableMetric { name: "x plain", unit: FigureUnit::Ratio },
    TableMetric { name: "followed rules", unit: FigureUnit::Share },
    TableMetric { name: "never let in", unit: FigureUnit::Ns },
    TableMetric { name: "never x plain", unit: FigureUnit::Ratio },
];

const PLAIN: &str = "plain";
const CONSOLIDATED: &str = "consolidated";

const REWRITERS: &str = "rewriters";
const MONITORS: &str = "monitors";
const OTHERS: [&str; 2] = [REWRITERS, MONITORS];

/// The firewall's place among three.
const PLACES: [u8; 3] = [1, 2, 3];

const FLOWS: u32 = 1_024;

fn row(path: &str, place: u8, others: &str) -> String {
    format!("{path}, {} of 3, {others}", ["1st", "2nd", "3rd"][usize::from(place - 1).min(2)])
}

fn is_the_same_everywhere(f: &MeasuredFigures<'_>, others: &str) -> Result<ClaimFinding, MissingFigure> {
    let first = row(CONSOLIDATED, 1, others);
    let places: Result<Vec<_>, _> = [2, 3]
        .iter()
        .map(|&place| at_most_of(f, &row(CONSOLIDATED, place, others), &first, "dropped", 1.05))
        .collect();
    Ok(ClaimFinding::all(places?))
}

fn functions(place: u8, others: &str) -> Functions {
    PLACES.iter().fold(Functions::new(4 * FLOWS), |functions, &at| match others {
        _ if at == place => functions.with("Firewall", "rules: \"deny udp to any\\nallow\""),
        REWRITERS => functions.with("Rewrite", format!("number: {at}")),
        _ => functions.with("Monitor", "report: []"),
    })
}

fn measure(lab: &mut Lab<'_>) -> Measured {
    let (mut measured, length) = (Rounds::default(), lab.length());
    if let Err(why) = measure_all(&mut measured, length) {
        measured.fail(&row(PLAIN, 1, REWRITERS), RowKind::Baseline, why);
    }
    let table = measured.table("time of a packet that is dropped", &METRICS);
    Measured { tables: vec![table], notes: notes() }
}

fn measure_all(measured: &mut Rounds, length: RunLength) -> Result<(), String> {
    let tape = Tape::passes(FLOWS, LET_IN + DROPPED, 1_000)?;
    let mut player = Player::new(BATCH);
    let mut chains = Vec::new();
    for others in OTHERS {
        for place in PLACES {
            let functions = functions(place, others);
            let contenders = [
                Contender::new(PLAIN, RowKind::Baseline, functions.graph(false)?),
                Contender::new(CONSOLIDATED, RowKind::Faithful, functions.graph(true)?),
            ];
            chains.push((place, others, contenders));
        }
    }
    for _ in 0..rounds(length) {
        for (place, others, contenders) in &mut chains {
            let mut of_round = Vec::new();
            for contender in contenders {
                let (dropped, never_ns) = drop_all(&mut player, contender, &tape, *place)?;
                of_round.push((contender.name, contender.kind, dropped, never_ns));
            }
            let (plain_ns, plain_never_ns) = (of_round[0].2.ns, of_round[0].3);
            for (name, kind, Dropped { ns, followed }, never_ns) in of_round {
                let values = [ns, ns / plain_ns, followed, never_ns, never_ns / plain_never_ns];
                measured.add(&row(name, *place, others), kind, &values);
            }
        }
    }
    Ok(())
}

/// Passes that admit flows before they are blocked, and passes that make rules for blocked flows.
const LET_IN: usize = 8;

/// Measured passes after that.
const DROPPED: usize = 8;

/// Packets that were dropped: nanoseconds for each, and the share that followed rules.
struct Dropped {
    ns: f64,
    followed: f64,
}

/// Packets of flows that were let in before, and then of flows that never were.
///
/// # Errors
/// If one of them is not dropped.
fn drop_all(
    player: &mut Player,
    contender: &mut Contender,
    tape: &Tape,
    place: u8,
) -> Result<(Dropped, f64), String> {
    let (path, firewall) = (&mut *contender.path, usize::from(place - 1));
    let (let_in, recorded) = (LET_IN / 2 * FLOWS as usize, LET_IN * FLOWS as usize);
    path.command(firewall, "rule 1 disable")?;
    player.end_flows(path);
    let passed = player.play(path, tape, 0..let_in);
    path.command(firewall, "rule 1 enable")?;
    let shut_out = player.play(path, tape, let_in..recorded);
    let before = path.followed();
    let dropped = player.play(path, tape, recorded..tape.len());
    let followed = path.followed() - before;
    player.end_flows(path);
    let never = player.play(path, tape, recorded..tape.len());
    if passed.sent != passed.packets || shut_out.sent + dropped.sent + never.sent > 0 {
        return Err("packets leave that must be dropped, or are dropped that must leave".to_owned());
    }
    let followed = followed as f64 / dropped.packets as f64;
    Ok((Dropped { ns: dropped.per_packet(), followed }, never.per_packet()))
}

/// Charts of the firewall's places, as published.
fn charts(tables: &[FigureTable]) -> Vec<FigureChart> {
    let Some(table) = tables.first() else { return Vec::new() };
    let series = |path: &str, others: &str| {
        bars_of(
            table,
            &format!("{path}, {others}"),
            ("dropped", 1.0),
            PLACES.map(|place| row(path, place, others)),
        )
    };
    let all = OTHERS.iter().flat_map(|others| [series(PLAIN, others), series(CONSOLIDATED, others)]);
    vec![FigureChart {
        title: "time of a packet that is dropped".to_owned(),
        x: ChartAxis::names("the firewall's place of 3", PLACES.map(|place| place.to_string())),
        y: ChartAxis::linear("ns"),
        series: all.collect(),
    }]
}

fn notes() -> Vec<String> {
    [
        "Times cover processing only. Flows are allowed first; then a command activates the rule \
         that denies them. The measurement begins after the drop has been recorded.",
        "Monitors count all packets that reach them, also those dropped later, because the result \
         must equal the chain's (B4). This counting is the remaining cost.",
        "Never let in: flows denied from their first packet on. They leave no state, so each \
         packet is a first one, is judged again, and makes no rule.",
    ]
    .map(str::to_owned)
    .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_are_dropped_on_the_fast_path() {
        let tape = Tape::passes(FLOWS, LET_IN + 1, 1_000).unwrap();
        let mut player = Player::new(BATCH);
        for others in OTHERS {
            for place in PLACES {
                let graph = functions(place, others).graph(true).unwrap();
                let mut contender = Contender::new(CONSOLIDATED, RowKind::Faithful, graph);
                let (dropped, _) = drop_all(&mut player, &mut contender, &tape, place).unwrap();
                assert_eq!(dropped.followed, 1.0, "{}", row(CONSOLIDATED, place, others));
            }
        }
    }
}
