//! Y3: what functions cost that work on their flows' states, one after the other. Measured, not simulated.

use std::hint::spin_loop;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use super::common::{NO_MORE, at_most};
use super::rounds::{BATCH, Contender, Rounds, point, rounds};
use super::{Experiment, Measured};
use crate::chart::{Axis, Chart, Mark, Series};
use crate::paths::{Functions, Player, Tape};
use crate::runs::{Lab, Length};
use crate::table::{Kind, Metric, Table, Unit};
use crate::verdict::{Claim, Finding};

/// What is published about state functions that run side by side (B32).
pub const Y3: Experiment = Experiment {
    id: "Y3",
    title: "State functions, one after the other",
    published: "B32: 3 state functions side by side take 59 % less than one after the other",
    workload: "1 to 3 functions that work for some 0.2, 2 or 20 us on a flow's state, and do nothing else, on whatever runs this; 64-byte packets of 64 flows, \
               32 at once; and what it takes to hand something to another core and to get it back",
    matches: &[Claim {
        text: "3 state functions of 2 us, consolidated, take at most 41 % of what they take in the plain chain: what side by side, on cores of their \
               own, is published to save",
        test: |f| at_most(f, &row(CONSOLIDATED, 3, STEPS[1]), "x plain", 0.41, 1.0),
    }],
    beats: &[
        Claim {
            text: "one after the other, consolidated, they take no more than in the plain chain, round by round, however many and long they are",
            test: |f| {
                let all = COUNTS.iter().flat_map(|&count| STEPS.map(|steps| row(CONSOLIDATED, count, steps)));
                let rows: Result<Vec<_>, _> =
                    all.map(|row| at_most(f, &row, "x plain", NO_MORE, 1.0)).collect();
                Ok(Finding::all(rows?))
            },
        },
        Claim {
            text: "another core has it and gives it back within 2 us: what a function must take at least for that to pay",
            test: |f| at_most(f, HANDED_OVER, "packet", 2_000.0, 1.0),
        },
    ],
    real: &[],
    measure,
};

const METRICS: [Metric; 2] =
    [Metric { name: "packet", unit: Unit::Ns }, Metric { name: "x plain", unit: Unit::Ratio }];

const PLAIN: &str = "plain";
const CONSOLIDATED: &str = "consolidated";
const HANDED_OVER: &str = "to another core and back";

const COUNTS: [u8; 3] = [1, 2, 3];

/// Steps of work in a function: some 3 ns each.
const STEPS: [u32; 3] = [64, 640, 6_400];

const FLOWS: u32 = 64;

fn row(path: &str, count: u8, steps: u32) -> String {
    format!("{path}, {count} of {steps} steps")
}

fn measure(lab: &mut Lab<'_>) -> Measured {
    let (mut measured, length) = (Rounds::default(), lab.length());
    if let Err(why) = measure_all(&mut measured, length) {
        measured.fail(&row(PLAIN, 1, STEPS[0]), Kind::Baseline, why);
    }
    let table = measured.table("time of a packet in the functions", &METRICS);
    let table = table.paper(&row(CONSOLIDATED, 3, STEPS[1]), "x plain", 0.41);
    let charts = vec![chart(&table)];
    Measured { tables: vec![table], charts, notes: notes() }
}

fn measure_all(measured: &mut Rounds, length: Length) -> Result<(), String> {
    let tape = Tape::passes(FLOWS, WARM_UP + 2, 1_000)?;
    let mut player = Player::new(BATCH);
    let mut chains = Vec::new();
    for steps in STEPS {
        for count in COUNTS {
            let functions = (0..count).fold(Functions::new(4 * FLOWS), |functions, _| {
                functions.with("Work", format!("rounds: {steps}"))
            });
            let mut contenders = [
                Contender::new(PLAIN, Kind::Baseline, functions.chain(false)?),
                Contender::new(CONSOLIDATED, Kind::Faithful, functions.chain(true)?),
            ];
            for contender in &mut contenders {
                player.play(&mut *contender.path, &tape, 0..WARM_UP * FLOWS as usize);
            }
            chains.push((steps, count, contenders));
        }
    }
    for _ in 0..rounds(length).div_ceil(2) {
        for (steps, count, contenders) in &mut chains {
            let mut plain_ns = f64::NAN;
            for contender in contenders {
                let part = WARM_UP * FLOWS as usize..tape.len();
                let ns = player.play(&mut *contender.path, &tape, part).per_packet();
                if contender.name == PLAIN {
                    plain_ns = ns;
                }
                measured.add(&row(contender.name, *count, *steps), contender.kind, &[ns, ns / plain_ns]);
            }
        }
        measured.add(HANDED_OVER, Kind::Bound, &[handed_over_ns()]);
    }
    Ok(())
}

/// Passes before anything is measured.
const WARM_UP: usize = 4;

/// Times that something is handed over in a row.
const TURNS: u64 = 1_000;

/// What it takes for another core to see that something is there for it, and for this one to see that it is done: nanoseconds. Both
/// wait without sleeping.
fn handed_over_ns() -> f64 {
    let (given, done) = (AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for turn in 1..=TURNS {
                while given.load(Ordering::Acquire) < turn {
                    spin_loop();
                }
                done.store(turn, Ordering::Release);
            }
        });
        let mut start = Instant::now();
        for turn in 1..=TURNS {
            if turn == TURNS / 10 {
                start = Instant::now(); // The other one runs by now.
            }
            given.store(turn, Ordering::Release);
            while done.load(Ordering::Acquire) < turn {
                spin_loop();
            }
        }
        start.elapsed().as_nanos() as f64 / (TURNS - TURNS / 10) as f64
    })
}

fn chart(table: &Table) -> Chart {
    let series = |path: &str, steps: u32| {
        let points = (0..)
            .zip(COUNTS)
            .filter_map(|(place, count)| point(table, &row(path, count, steps), "packet", f64::from(place)));
        Series::new(format!("{path}, {steps} steps"), Mark::Bars, points)
    };
    Chart {
        title: "time of a packet in functions that work".to_owned(),
        x: Axis::names("functions", COUNTS.map(|count| count.to_string())),
        y: Axis::logarithmic("ns"),
        series: STEPS.iter().flat_map(|&steps| [series(PLAIN, steps), series(CONSOLIDATED, steps)]).collect(),
    }
}

fn notes() -> Vec<String> {
    [
        "state functions of several network functions run one after the other here, as in the authors' own fast path on BESS: there is no way to run them side by side on \
         several cores, so that what is published about that is not matched, and is not simulated either",
        "with two cores, three equal functions side by side would take two of their times: a third less, and not 59 %",
        "steps: multiplications that wait for one another. To another core and back: through one word of memory, with both cores waiting for it without \
         sleeping; where something else runs on one of them, it takes as long as that",
        "real time, of processing only, of packets behind the first ones of their flows",
    ]
    .map(str::to_owned)
    .into()
}
