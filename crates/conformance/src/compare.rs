//! Trial after trial.

use nf::Registry;
use packet::split_mix;
use serde_json::Value;

use crate::difference::differs;
use crate::{Difference, Subject, Trial, built_in};

/// The extent of the trials.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Packets at least, in all trials together.
    pub packets: u64,
    /// The same seed gives the same trials.
    pub seed: u64,
    /// Functions that stand beside those under test.
    pub neighbours: Vec<Subject>,
}

impl Default for Plan {
    /// A hundred thousand packets, and the functions that Rivulet has: some seconds.
    fn default() -> Plan {
        Plan { packets: 100_000, seed: 1, neighbours: built_in() }
    }
}

/// The extent of the trials that were run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Trials: graphs of one to six functions.
    pub trials: u64,
    /// Packets that were played to each graph and to its twin.
    pub packets: u64,
    /// Packets that followed rules in the consolidated ones.
    pub followed: u64,
    /// Commands of operators.
    pub commands: u64,
    /// Times that all flows went to another graph.
    pub moves: u64,
}

/// Why a comparison ended early.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// A function cannot be set up, or traffic not be made up.
    #[error("{0}")]
    Setup(String),
    /// The graphs differ.
    #[error(transparent)]
    Different(#[from] Box<Difference>),
}

/// Chains in a row that functions refuse to form; then they are taken not to form any.
const REFUSED_MAX: u32 = 1_000;

/// Plays random traffic to random graphs, each of which has one of `subjects` at least,
/// consolidated and plain; `heed` hears after each trial what has been tried. Without subjects, any
/// neighbour will do.
///
/// # Errors
/// If a function cannot be set up, or if anything differs: what it is, and the smallest graph that
/// was found to show it.
pub fn compare(
    registry: &Registry<Value>,
    subjects: &[Subject],
    plan: &Plan,
    mut heed: impl FnMut(&Totals),
) -> Result<Totals, Failure> {
    let under_test = if subjects.is_empty() { plan.neighbours.len() } else { subjects.len() };
    let all = [subjects, &plan.neighbours].concat();
    for subject in &all {
        Trial::alone(registry, subject).graph(true).map_err(Failure::Setup)?;
    }
    let (mut totals, mut refused) = (Totals::default(), 0);
    let mut seed = split_mix(&mut plan.seed.clone());
    while totals.packets < plan.packets {
        let drawn = Trial::draw(registry, &all, under_test, &mut seed).map_err(Failure::Setup)?;
        let Some(trial) = drawn else {
            refused += 1;
            if refused == REFUSED_MAX {
                return Err(Failure::Setup(format!("{REFUSED_MAX} graphs in a row cannot be set up")));
            }
            continue;
        };
        refused = 0;
        match differs(&trial) {
            Ok(followed) => totals.followed += followed,
            Err(what) => return Err(Box::new(Difference::smallest(&trial, what)).into()),
        }
        totals.trials += 1;
        totals.packets += trial.tape.len() as u64;
        totals.commands += trial.commands();
        totals.moves += trial.moves();
        heed(&totals);
    }
    Ok(totals)
}
