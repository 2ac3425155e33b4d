//! Break-even length of state functions on two cores: the cost of a handover between cores, and the
//! minimum length that pays.

use std::hint::spin_loop;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use graph::Beside;
use runtime::two_cores::TwoCores;

use super::rounds::Rounds;
use crate::paths::{Functions, Path, Player, Tape};
use crate::table::{FigureUnit, RowKind, TableMetric};

/// Its metrics.
pub const METRICS: [TableMetric; 3] = [
    TableMetric { name: "each time", unit: FigureUnit::Ns },
    TableMetric { name: "packet", unit: FigureUnit::Ns },
    TableMetric { name: "on two cores", unit: FigureUnit::Share },
];

/// Two pieces of work with nothing in them.
pub const NOTHING: &str = "nothing to do, side by side";
/// Minimum length of two functions that are faster side by side, in groups of
/// [`super::rounds::BATCH`].
pub const IN_GROUPS: &str = "pays from: 32 packets at once";
/// Same for single packets.
pub const ALONE: &str = "pays from: each packet alone";

/// Lengths of the functions tried, shortest first. The longest takes more than the 2 us of the
/// claim, to show whether even that gains nothing.
const STEPS: [u32; 8] = [0, 16, 64, 160, 320, 640, 1_280, 5_120];

/// Times that something is handed over in a row.
const TURNS: u64 = 1_000;

/// Returns the time of two empty pieces of work on two cores until both are done, in nanoseconds.
/// This core waits for the other to begin, as it has nothing else to do.
pub fn nothing_ns(cores: &mut TwoCores) -> f64 {
    cores.wake();
    let begun = AtomicU64::new(0);
    let start = Instant::now();
    for turn in 1..=TURNS {
        // Not for ever: the other core may have gone to sleep.
        let mut here =
            || (0..TURNS).take_while(|_| begun.load(Ordering::Acquire) < turn).for_each(|_| spin_loop());
        cores.run(&mut here, &mut || begun.store(turn, Ordering::Release));
    }
    start.elapsed().as_nanos() as f64 / TURNS as f64
}

/// Chains of two functions of each length, in sequence and in parallel, over groups of packets.
pub struct Trials {
    row: &'static str,
    batch_len: usize,
    player: Player,
    chains: Vec<[Box<dyn Path>; 2]>,
}

impl Trials {
    /// Their flows begin with this part of the tape.
    ///
    /// # Errors
    /// If there is no memory for them.
    pub fn new(
        (row, batch_len): (&'static str, usize),
        functions: &dyn Fn(u32, u8) -> Functions,
        cores: &TwoCores,
        (tape, warm_up): (&Tape, Range<usize>),
    ) -> Result<Trials, String> {
        let mut player = Player::new(batch_len);
        let mut chains = Vec::new();
        for steps in STEPS {
            let functions = functions(steps, 2);
            let mut pair: [Box<dyn Path>; 2] =
                [Box::new(functions.graph(true)?), Box::new(functions.side_by_side(cores.always())?)];
            for path in &mut pair {
                player.play(&mut **path, tape, warm_up.clone());
            }
            chains.push(pair);
        }
        Ok(Trials { row, batch_len, player, chains })
    }

    /// Plays a part of the tape through each in turn, and adds the minimum length that paid.
    pub fn round(
        &mut self,
        measured: &mut Rounds,
        cores: &mut TwoCores,
        (tape, part): (&Tape, Range<usize>),
    ) {
        let (mut trials, mut shortest_ns, mut taken) = (Vec::new(), None, 0);
        for [in_order, beside] in &mut self.chains {
            let in_order_ns = self.player.play(&mut **in_order, tape, part.clone()).per_packet();
            cores.wake();
            let before = cores.taken();
            let beside_ns = self.player.play(&mut **beside, tape, part.clone()).per_packet();
            taken += cores.taken() - before;
            let function_ns = (in_order_ns - *shortest_ns.get_or_insert(in_order_ns)) / 2.0;
            trials.push((function_ns, in_order_ns - beside_ns));
        }
        let pays_ns = pays_from(&trials);
        let handed_over = (part.len().div_ceil(self.batch_len) * self.chains.len()) as f64;
        let values = [pays_ns * self.batch_len as f64, pays_ns, taken as f64 / handed_over];
        measured.add(self.row, RowKind::Faithful, &values);
    }
}

/// Returns the length above which all trials gain something, interpolated between two trials. If
/// the longest gains nothing, returns its length, which is too short.
fn pays_from(trials: &[(f64, f64)]) -> f64 {
    let gains = |&(_, gain): &(f64, f64)| gain >= 0.0;
    match trials.iter().rposition(|trial| !gains(trial)) {
        None => 0.0,
        Some(at) => {
            let (length, gain) = trials[at];
            let Some(&(longer, more)) = trials.get(at + 1) else { return length };
            length + (longer - length) * -gain / (more - gain)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_pays_where_gains_begin() {
        assert_eq!(pays_from(&[(0.0, -30.0), (10.0, -20.0), (50.0, 20.0), (90.0, 60.0)]), 30.0);
        assert_eq!(pays_from(&[(0.0, -30.0), (10.0, 1.0), (50.0, -20.0), (90.0, 20.0)]), 70.0, "one is luck");
        assert_eq!(pays_from(&[(0.0, -30.0), (40.0, -1.0)]), 40.0);
        assert_eq!(pays_from(&[(0.0, 1.0), (40.0, 30.0)]), 0.0);
    }
}
