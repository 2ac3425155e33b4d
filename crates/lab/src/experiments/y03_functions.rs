//! Y3: what functions cost that work on their flows' states, one after the other and side by side
//! on two cores. Measured, not simulated; what three cores would do is reckoned, and says so.

use conformance::{TrialStep, Witness};
use runtime::two_cores::TwoCores;

use super::common::{NO_MORE, at_most, series_at};
use super::rounds::{BATCH, Contender, Rounds, rounds};
use super::y03_break_even::{self as break_even, ALONE, IN_GROUPS, NOTHING, Trials};
use super::{Experiment, Measured, OverviewRow, Picture};
use crate::chart::{ChartAxis, ChartMark, FigureChart};
use crate::paths::{Functions, Player, Tape};
use crate::runs::{Lab, RunLength};
use crate::table::{FigureTable, FigureUnit, RowKind, TableMetric};
use crate::verdict::{Claim, ClaimFinding, MeasuredFigures, MissingFigure};

/// Published claims about parallel state functions (B32).
pub const Y3: Experiment = Experiment {
    id: "Y3",
    title: "Parallel state functions",
    question: "Do state functions gain from two cores?",
    published: "B32: 3 state functions in parallel take 59 % less than in sequence",
    workload: "1 to 3 functions that work for about 0.2, 2 or 20 us on a flow's state, on this \
               machine; 64-byte packets of 64 flows, in batches of 32; the length from which two \
               of them are faster on two cores",
    matches: &[Claim {
        text: "3 state functions of 2 us or more take on two cores at most 0.41 of their time in \
               sequence, round by round",
        test: |f| beside_takes(f, 3, 0.41),
    }],
    beats: &[
        Claim {
            text: "in sequence, a consolidated chain takes no more than the plain chain, round by \
                   round, whatever their number and length",
            test: |f| {
                let all = COUNTS.iter().flat_map(|&count| STEPS.map(|steps| row(CONSOLIDATED, count, steps)));
                let rows: Result<Vec<_>, _> =
                    all.map(|row| at_most(f, &row, "x plain", NO_MORE, 1.0)).collect();
                Ok(ClaimFinding::all(rows?))
            },
        },
        Claim {
            text: "two of them are faster on two cores from less than 2 us on, also in batches of \
                   one packet",
            test: |f| Ok(ClaimFinding::all([pays_below(f, IN_GROUPS)?, pays_below(f, ALONE)?])),
        },
    ],
    checks: &[
        Claim {
            text: "2 state functions of 2 us or more take on two cores at most 0.6 of their time \
                   in sequence, round by round; 0.5 is the bound",
            test: |f| beside_takes(f, 2, 0.6),
        },
        Claim {
            text: "3 of them take at most 0.75; two thirds is the bound, because two of them \
                   share a core",
            test: |f| beside_takes(f, 3, 0.75),
        },
        Claim {
            text: "packets and states equal those of the plain chain, packet by packet",
            test: |f| {
                let all = COUNTS.iter().flat_map(|&count| STEPS.map(|steps| row(BESIDE, count, steps)));
                let rows: Result<Vec<_>, _> =
                    all.skip(STEPS.len()).map(|row| at_most(f, &row, "differ", 0.0, 1.0)).collect();
                Ok(ClaimFinding::all(rows?))
            },
        },
    ],
    real: &[],
    summary: OverviewRow {
        published: "59 % less with 3",
        found: "3 take {0|side by side, 3 of 2000 steps|x in order} of their time in sequence on \
                two cores, where 0.41 is published; 2 take {0|side by side, 2 of 2000 steps|x in \
                order}",
        caveat: "two cores: two thirds is the bound for 3",
    },
    measure,
    picture: Picture::Charts(charts),
};

const METRICS: [TableMetric; 5] = [
    TableMetric { name: "packet", unit: FigureUnit::Ns },
    TableMetric { name: "x plain", unit: FigureUnit::Ratio },
    TableMetric { name: "x in order", unit: FigureUnit::Ratio },
    TableMetric { name: "on two cores", unit: FigureUnit::Share },
    TableMetric { name: "differ", unit: FigureUnit::Count },
];

const PLAIN: &str = "plain";
const CONSOLIDATED: &str = "consolidated";
const BESIDE: &str = "side by side";
/// Reckoned, not measured.
const MODEL: &str = "model, not measured: three cores";

const COUNTS: [u8; 3] = [1, 2, 3];

/// Steps of work in a function: a nanosecond or two each.
const STEPS: [u32; 3] = [200, 2_000, 20_000];

const FLOWS: u32 = 64;

/// Passes before anything is measured, and passes that are.
const WARM_UP: usize = 4;
const MEASURED: usize = 2;

fn row(path: &str, count: u8, steps: u32) -> String {
    format!("{path}, {count} of {steps} steps")
}

fn beside_takes(f: &MeasuredFigures<'_>, count: u8, limit: f64) -> Result<ClaimFinding, MissingFigure> {
    let rows: Result<Vec<_>, _> = STEPS[1..]
        .iter()
        .map(|&steps| at_most(f, &row(BESIDE, count, steps), "x in order", limit, 1.0))
        .collect();
    Ok(ClaimFinding::all(rows?))
}

/// Judges whether two cores pay below 2 us.
fn pays_below(f: &MeasuredFigures<'_>, row: &str) -> Result<ClaimFinding, MissingFigure> {
    at_most(&MeasuredFigures(f.0.get(1..).unwrap_or_default()), row, "packet", 2_000.0, 1.0)
}

fn functions(steps: u32, count: u8) -> Functions {
    (0..count)
        .fold(Functions::new(4 * FLOWS), |functions, _| functions.with("Work", format!("rounds: {steps}")))
}

fn measure(lab: &mut Lab<'_>) -> Measured {
    let (mut measured, mut pays, length) = (Rounds::default(), Rounds::default(), lab.length());
    if let Err(why) = measure_all(&mut measured, &mut pays, length) {
        measured.fail(&row(PLAIN, 1, STEPS[0]), RowKind::Baseline, why);
    }
    let table = measured.table("time of a packet in the functions", &METRICS);
    let table = table.paper(&row(BESIDE, 3, STEPS[1]), "x in order", 0.41);
    let pays = pays
        .table("cost of two cores, and the length of a function from which they pay", &break_even::METRICS);
    Measured { tables: vec![table, pays], notes: notes() }
}

/// Chains by number and length of their functions.
struct Chains {
    steps: u32,
    count: u8,
    contenders: Vec<Contender>,
    /// Packets and records that differ between side by side and the plain chain.
    differ: f64,
}

fn measure_all(measured: &mut Rounds, pays: &mut Rounds, length: RunLength) -> Result<(), String> {
    let mut cores = TwoCores::new().map_err(|error| error.to_string())?;
    let _bound = cores.bind();
    let tape = Tape::passes(FLOWS, WARM_UP + MEASURED, 1_000)?;
    let (warm_up, part) = (0..WARM_UP * FLOWS as usize, WARM_UP * FLOWS as usize..tape.len());
    let mut player = Player::new(BATCH);
    let mut chains = Vec::new();
    for steps in STEPS {
        for count in COUNTS {
            chains.push(Chains::new(steps, count, &cores, &tape)?);
        }
    }
    for contender in chains.iter_mut().flat_map(|chains| &mut chains.contenders) {
        player.play(&mut *contender.path, &tape, warm_up.clone());
    }
    let mut trials = Vec::new();
    for of in [(IN_GROUPS, BATCH), (ALONE, 1)] {
        trials.push(Trials::new(of, &functions, &cores, (&tape, warm_up.clone()))?);
    }
    for _ in 0..rounds(length).div_ceil(2) {
        let nothing_ns = break_even::nothing_ns(&mut cores);
        pays.add(NOTHING, RowKind::Bound, &[nothing_ns]);
        for trials in &mut trials {
            trials.round(pays, &mut cores, (&tape, part.clone()));
        }
        let mut one_ns = f64::NAN;
        for chains in &mut chains {
            let ns = chains.round(measured, &mut player, &mut cores, (&tape, part.clone()));
            let [plain_ns, in_order_ns] = ns;
            if chains.count == 1 {
                one_ns = in_order_ns;
            }
            if chains.count == COUNTS[2] {
                // Each on a core of its own: as long as one of them, and two of them are handed
                // over.
                let ns = one_ns + 2.0 * nothing_ns / BATCH as f64;
                let values = [ns, ns / plain_ns, ns / in_order_ns];
                measured.add(&row(MODEL, chains.count, chains.steps), RowKind::Bound, &values);
            }
        }
    }
    Ok(())
}

impl Chains {
    fn new(steps: u32, count: u8, cores: &TwoCores, tape: &Tape) -> Result<Chains, String> {
        let functions = functions(steps, count);
        let mut contenders = vec![
            Contender::new(PLAIN, RowKind::Baseline, functions.graph(false)?),
            Contender::new(CONSOLIDATED, RowKind::Faithful, functions.graph(true)?),
        ];
        let mut differ = f64::NAN;
        if count > 1 {
            contenders.push(Contender::new(
                BESIDE,
                RowKind::Faithful,
                functions.side_by_side(cores.always())?,
            ));
            // Batches with one packet per flow, and with two.
            let batches: Vec<TrialStep> =
                (0..tape.len()).map(|at| TrialStep::Batch(BATCH << (at % 3))).collect();
            let plain = Witness::of(&mut *functions.graph(false)?, tape, &batches, &mut || None);
            let beside =
                Witness::of(&mut *functions.side_by_side(cores.always())?, tape, &batches, &mut || None);
            differ = (beside.other_packets(&plain) + u64::from(!beside.same_state(&plain))) as f64;
        }
        Ok(Chains { steps, count, contenders, differ })
    }

    /// Plays a part of the tape through all in turn; what a packet takes in the plain chain, and
    /// consolidated, in nanoseconds.
    fn round(
        &mut self,
        measured: &mut Rounds,
        player: &mut Player,
        cores: &mut TwoCores,
        (tape, part): (&Tape, std::ops::Range<usize>),
    ) -> [f64; 2] {
        let mut so_far = [f64::NAN; 2];
        for Contender { name, kind, path } in &mut self.contenders {
            let is_beside = *name == BESIDE;
            if is_beside {
                cores.wake();
            }
            let before = cores.taken();
            let ns = player.play(&mut **path, tape, part.clone()).per_packet();
            let taken = (cores.taken() - before) as f64 / part.len().div_ceil(BATCH) as f64;
            match *name {
                PLAIN => so_far[0] = ns,
                CONSOLIDATED => so_far[1] = ns,
                _ => {}
            }
            let [plain_ns, in_order_ns] = so_far;
            let of_beside = |value: f64| if is_beside { value } else { f64::NAN };
            let values = [ns, ns / plain_ns, ns / in_order_ns, of_beside(taken), of_beside(self.differ)];
            measured.add(&row(name, self.count, self.steps), *kind, &values);
        }
        so_far
    }
}

/// Charts with the axes of the published figure.
fn charts(tables: &[FigureTable]) -> Vec<FigureChart> {
    let Some(table) = tables.first() else { return Vec::new() };
    let series = |steps: u32| {
        let rows = (0..).zip(COUNTS).map(|(at, count)| (f64::from(at), row(BESIDE, count, steps)));
        series_at(table, (&format!("{steps} steps"), ChartMark::Bars), ("x in order", 1.0), rows)
    };
    vec![FigureChart {
        title: "state functions on two cores, as a share of their time in sequence".to_owned(),
        x: ChartAxis::names("functions", COUNTS.map(|count| count.to_string())),
        y: ChartAxis::linear("share"),
        series: STEPS.map(series).into(),
    }]
}

fn notes() -> Vec<String> {
    [
        "The published figure is about three functions on three cores. The authors' code runs \
         only the longest function, or all in sequence, so the number of cores is unclear. On our \
         two cores, three equal functions take at least two of their times: a third less, not 59 \
         %.",
        "The model is no measurement. It adds one function in its chain and twice the handover of \
         empty work for 32 packets, without contention for memory and without copies of states.",
        "Side by side: always in parallel. A chain in use does so only if the shorter side takes \
         at least 2 us per group and 0.25 us per packet. On two cores: the share of groups in \
         which the second core did its side. If it is asleep or busy, the first core does both.",
        "Pays from: the length of each of two functions from which two cores are no slower than \
         one, per call (a group of packets) and per packet, interpolated linearly.",
        "Nothing to do: two empty pieces of work, until the second core has finished. Other work \
         on a core delays all of this.",
        "Steps: dependent multiplications. Differ: differing packets and states, in batches with \
         one, two and four packets per flow.",
        "Times cover processing only, of packets after the first of their flow.",
    ]
    .map(str::to_owned)
    .into()
}
