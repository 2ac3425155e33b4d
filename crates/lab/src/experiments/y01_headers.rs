//! Y1: what chains of functions cost that change headers. Measured, not simulated.

use super::common::{at_most, below, series_at};
use super::rounds::{BATCH, Contender, Rounds, differences, rounds};
use super::{Experiment, Measured, OverviewRow, Picture};
use crate::chart::{ChartAxis, ChartMark, FigureChart};
use crate::paths::{Functions, Fused, Player, Shortcut, Tape};
use crate::runs::{Lab, RunLength};
use crate::table::{FigureTable, FigureUnit, RowKind, TableMetric};
use crate::verdict::{Claim, ClaimFinding, MeasuredFigures, MissingFigure};

/// Published claims about chains of header actions (B30).
pub const Y1: Experiment = Experiment {
    id: "Y1",
    title: "Consolidated header actions",
    question: "What does consolidation save?",
    published: "B30: later packets take 40.9 % less with 2 functions, 57.7 % less with 3; \
                consolidation costs more with 1 function and for first packets",
    workload: "1 to 8 functions that rewrite destinations, on this machine: rewriters, which do \
               nothing else, and load balancers; 64-byte packets of 1,024 flows, in batches of 32",
    matches: &[
        Claim {
            text: "2 load balancers: later packets take at most 59.1 % of the time of separate \
                   functions",
            test: |f| share_at_most(f, BALANCERS, 2, "x apart", 0.591),
        },
        Claim {
            text: "3 load balancers: at most 42.3 %",
            test: |f| share_at_most(f, BALANCERS, 3, "x apart", 0.423),
        },
    ],
    beats: &[
        Claim {
            text: "1 load balancer: later packets take at most 5 % more than in the plain chain",
            test: |f| share_at_most(f, BALANCERS, 1, "x plain", 1.05),
        },
        Claim {
            text: "3 load balancers: later packets take at most 36 % of the time of separate \
                   functions, 64 % less",
            test: |f| share_at_most(f, BALANCERS, 3, "x apart", 0.36),
        },
        Claim {
            text: "2 and 3 rewriters, 2 and 3 load balancers: later packets take less than in the \
                   plain chain, which also parses and looks up once",
            test: |f| {
                let pairs = [(REWRITERS, 2), (REWRITERS, 3), (BALANCERS, 2), (BALANCERS, 3)];
                let findings: Result<Vec<_>, _> = pairs
                    .iter()
                    .map(|&(what, count)| {
                        below(f, &row(CONSOLIDATED, count, what), &row(PLAIN, count, what), "later", 1.0)
                    })
                    .collect();
                Ok(ClaimFinding::all(findings?))
            },
        },
    ],
    // Rewriters write a constant, which no function of the paper does.
    checks: &[
        Claim {
            text: "2 rewriters: later packets take at most 59.1 % of the time of separate \
                   functions",
            test: |f| share_at_most(f, REWRITERS, 2, "x apart", 0.591),
        },
        Claim {
            text: "3 rewriters: at most 42.3 %",
            test: |f| share_at_most(f, REWRITERS, 3, "x apart", 0.423),
        },
        Claim {
            text: "1 rewriter: later packets take at most 5 % more than in the plain chain",
            test: |f| share_at_most(f, REWRITERS, 1, "x plain", 1.05),
        },
        Claim {
            text: "3 rewriters: later packets take at most 36 % of the time of separate \
                   functions, 64 % less",
            test: |f| share_at_most(f, REWRITERS, 3, "x apart", 0.36),
        },
    ],
    real: &[],
    summary: OverviewRow {
        published: "40.9 % less with 2 functions, 57.7 % with 3",
        found: "load balancers take {0|consolidated, 2 load balancers|x apart} and \
                {0|consolidated, 3 load balancers|x apart} of separate functions' time, where 0.59 \
                and 0.42 are published; {0|consolidated, 2 load balancers|x plain} and \
                {0|consolidated, 3 load balancers|x plain} of our plain chain's",
        caveat: "functions that write a constant take {0|consolidated, 2 rewriters|x apart} and \
                 {0|consolidated, 3 rewriters|x apart}",
    },
    measure,
    picture: Picture::Charts(charts),
};

const METRICS: [TableMetric; 7] = [
    TableMetric { name: "first", unit: FigureUnit::Ns },
    TableMetric { name: "second", unit: FigureUnit::Ns },
    TableMetric { name: "third", unit: FigureUnit::Ns },
    TableMetric { name: "fourth", unit: FigureUnit::Ns },
    TableMetric { name: "later", unit: FigureUnit::Ns },
    TableMetric { name: "x plain", unit: FigureUnit::Ratio },
    TableMetric { name: "x apart", unit: FigureUnit::Ratio },
];

const APART: &str = "apart";
const PLAIN: &str = "plain";
const CONSOLIDATED: &str = "consolidated";
const STATIC: &str = "synthesis";

const REWRITERS: &str = "rewriters";
const BALANCERS: &str = "load balancers";

const COUNTS: [u8; 5] = [1, 2, 3, 4, 8];

const FLOWS: u32 = 1_024;

/// Packets of each flow that are its first ones: one is new, and rules are made for the next.
const FIRST: usize = 4;

/// Later packets of each flow.
const LATER: usize = 8;

fn row(path: &str, count: u8, what: &str) -> String {
    format!("{path}, {count} {what}")
}

fn share_at_most(
    f: &MeasuredFigures<'_>,
    what: &str,
    count: u8,
    metric: &str,
    limit: f64,
) -> Result<ClaimFinding, MissingFigure> {
    at_most(f, &row(CONSOLIDATED, count, what), metric, limit, 1.0)
}

fn functions(what: &str, count: u8) -> Functions {
    (1..=count).fold(Functions::new(4 * FLOWS), |functions, number| match what {
        REWRITERS => functions.with("Rewrite", format!("number: {number}")),
        _ => functions.with("LB", balancer(number)),
    })
}

/// Each has one service, the server of the one before, and one server.
fn balancer(number: u8) -> String {
    format!(
        "services: [ {{ name: s, vip: 198.18.0.{number}, port: 80, protocol: udp, servers: [{{ name: t, address: 198.18.0.{} }}] }} ]",
        number + 1
    )
}

fn contenders(what: &str, count: u8) -> Result<Vec<Contender>, String> {
    let functions = functions(what, count);
    let synthesis = match what {
        REWRITERS => Contender::new(STATIC, RowKind::Baseline, Fused::new(count)),
        _ => Contender::new(STATIC, RowKind::Baseline, Shortcut::synthesis(functions.graph(false)?)),
    };
    Ok(vec![
        Contender::new(PLAIN, RowKind::Baseline, functions.graph(false)?),
        Contender::new(APART, RowKind::Baseline, functions.apart()?),
        Contender::new(CONSOLIDATED, RowKind::Faithful, functions.graph(true)?),
        synthesis,
    ])
}

fn measure(lab: &mut Lab<'_>) -> Measured {
    let (mut measured, length) = (Rounds::default(), lab.length());
    if let Err(why) = measure_all(&mut measured, length) {
        measured.fail(&row(PLAIN, 1, REWRITERS), RowKind::Baseline, why);
    }
    let table = measured.table("time of a packet in the functions, by its number in its flow", &METRICS);
    let table = [(2, 0.591), (3, 0.423)].into_iter().fold(table, |table, (count, share)| {
        table.paper(&row(CONSOLIDATED, count, BALANCERS), "x apart", share)
    });
    Measured { tables: vec![table], notes: notes() }
}

fn measure_all(measured: &mut Rounds, length: RunLength) -> Result<(), String> {
    let tape = Tape::passes(FLOWS, FIRST + LATER, 1_000)?;
    let mut player = Player::new(BATCH);
    let mut chains = Vec::new();
    for what in [REWRITERS, BALANCERS] {
        for count in COUNTS {
            let mut contenders = contenders(what, count)?;
            let differ = differences(&mut player, &mut contenders, &tape);
            for (contender, differ) in contenders.iter().zip(differ).filter(|(_, differ)| *differ > 0) {
                let why = format!("{differ} packets differ from those of the plain chain");
                measured.fail(&row(contender.name, count, what), contender.kind, why);
            }
            chains.push((what, count, contenders));
        }
    }
    for _ in 0..rounds(length) {
        for (what, count, contenders) in &mut chains {
            measure_round(measured, &mut player, &tape, (what, *count), contenders);
        }
    }
    Ok(())
}

fn measure_round(
    measured: &mut Rounds,
    player: &mut Player,
    tape: &Tape,
    (what, count): (&str, u8),
    contenders: &mut [Contender],
) {
    let flows = FLOWS as usize;
    let mut of_round = Vec::new();
    for Contender { name, kind, path } in contenders {
        let path = &mut **path;
        player.end_flows(path);
        let firsts = (0..FIRST).map(|pass| pass * flows..(pass + 1) * flows);
        let mut values: Vec<f64> = firsts.map(|pass| player.play(path, tape, pass).per_packet()).collect();
        values.push(player.play(path, tape, FIRST * flows..tape.len()).per_packet());
        of_round.push((*name, *kind, values));
    }
    let later = |name: &str| of_round.iter().find(|row| row.0 == name).map_or(f64::NAN, |row| row.2[FIRST]);
    let (plain, apart) = (later(PLAIN), later(APART));
    for (name, kind, mut values) in of_round {
        values.extend([values[FIRST] / plain, values[FIRST] / apart]);
        measured.add(&row(name, count, what), kind, &values);
    }
}

/// Charts with the axes of the published figure.
fn charts(tables: &[FigureTable]) -> Vec<FigureChart> {
    let Some(table) = tables.first() else { return Vec::new() };
    let series = |path: &str, what: &str, (metric, name): (&str, &str)| {
        let rows = (0..).zip(COUNTS).map(|(at, count)| (f64::from(at), row(path, count, what)));
        series_at(table, (name, ChartMark::Bars), (metric, 1.0), rows)
    };
    let functions = || ChartAxis::names("functions", COUNTS.map(|count| count.to_string()));
    let of = |what: &str| FigureChart {
        title: format!("{what}: time of later packets"),
        x: functions(),
        y: ChartAxis::linear("ns"),
        series: [APART, PLAIN, CONSOLIDATED].map(|path| series(path, what, ("later", path))).into(),
    };
    let shares = FigureChart {
        title: "later packets, as a share of the time of separate functions".to_owned(),
        x: functions(),
        y: ChartAxis::linear("share"),
        series: [BALANCERS, REWRITERS].map(|what| series(CONSOLIDATED, what, ("x apart", what))).into(),
    };
    vec![shares, of(BALANCERS), of(REWRITERS)]
}

fn notes() -> Vec<String> {
    [
        "Times are measured on this machine and depend on its other work. They cover processing \
         only: packets stay in their buffers and are not sent. CPU cycles are proportional.",
        "Apart: each function has its own chain, which parses and looks up each packet again, as \
         in the paper's baseline. Plain: one chain, which parses and looks up once. `x plain` and \
         `x apart` are ratios of later packets, round by round.",
        "Rewriters only set one destination, the same for all packets. Load balancers also know \
         flows, count packets by server, and translate replies.",
        "Synthesis: for rewriters, code by hand that parses and writes the last destination; for \
         load balancers, a table of header actions by flow, learned from one run of the plain \
         graph, which counts packets and bytes. Neither keeps, ends or moves flows, or knows \
         commands.",
        "First: the flow's first packet, on the slow path. Functions predict their actions, and \
         the second packet follows the resulting rule.",
        "A chain of one function has no rules, because its slow path is as short.",
        "Before the measurement, all packets sent are compared with those of the plain chain.",
    ]
    .map(str::to_owned)
    .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_ways_send_the_same() {
        let tape = Tape::passes(40, 9, 1_000).unwrap();
        let mut player = Player::new(BATCH);
        for what in [REWRITERS, BALANCERS] {
            let mut contenders = contenders(what, 3).unwrap();
            assert_eq!(differences(&mut player, &mut contenders, &tape), [0; 4], "{what}");
            let sent = player.play(&mut *contenders[0].path, &tape, 0..tape.len());
            assert_eq!((sent.packets, sent.sent), (360, 360));
            // The first packet of each flow takes the slow path, and so do its others in the same
            // batch.
            let followed = contenders[2].path.followed();
            assert!(followed >= 7 * 40, "{what}: {followed}");
        }
    }
}
