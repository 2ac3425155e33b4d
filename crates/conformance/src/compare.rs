//! Comparison of graphs, trial by trial.

use nf::Registry;
use packet::split_mix;
use serde_json::Value;

use crate::difference::differs;
use crate::{FunctionSpec, GraphForm, GraphTrial, PathDifference, built_in};

/// The extent of the trials.
#[derive(Clone, Debug)]
pub struct CompareOptions {
    /// Least number of packets, in all trials together.
    pub packets: u64,
    /// Seed of the random trials.
    pub seed: u64,
    /// Functions that are combined with the functions under test.
    pub neighbours: Vec<FunctionSpec>,
}

impl Default for CompareOptions {
    /// Returns 100,000 packets and Rivulet's functions: they take some seconds.
    fn default() -> CompareOptions {
        CompareOptions { packets: 100_000, seed: 1, neighbours: built_in() }
    }
}

/// The extent of the trials that were run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Trials: graphs of one to six functions.
    pub trials: u64,
    /// Packets played to each graph and to its twin.
    pub packets: u64,
    /// Packets that took the fast path in consolidated graphs.
    pub followed: u64,
    /// Commands to functions.
    pub commands: u64,
    /// Moves of all flows to another graph.
    pub moves: u64,
}

/// The reason why a comparison ended early.
#[derive(Debug, thiserror::Error)]
pub enum CompareError {
    /// A function cannot be set up, or traffic cannot be made up.
    #[error("{0}")]
    Setup(String),
    /// The graphs differ.
    #[error(transparent)]
    Different(#[from] Box<PathDifference>),
}

/// Limit on graphs in a row that functions refuse to form.
const REFUSED_MAX: u32 = 1_000;

/// Plays random traffic to random graphs, consolidated and plain. Each graph contains at least one
/// of `subjects`, or any neighbour without subjects. `heed` gets the totals after each trial.
///
/// # Errors
/// If a function cannot be set up, or if graphs differ: the difference, and the smallest graph
/// found that shows it.
pub fn compare(
    registry: &Registry<Value>,
    subjects: &[FunctionSpec],
    options: &CompareOptions,
    mut heed: impl FnMut(&Totals),
) -> Result<Totals, CompareError> {
    let under_test = if subjects.is_empty() { options.neighbours.len() } else { subjects.len() };
    let all = [subjects, &options.neighbours].concat();
    for subject in &all {
        GraphTrial::alone(registry, subject).graph(GraphForm::default()).map_err(CompareError::Setup)?;
    }
    let (mut totals, mut refused) = (Totals::default(), 0);
    let mut seed = split_mix(&mut options.seed.clone());
    while totals.packets < options.packets {
        let drawn = GraphTrial::draw(registry, &all, under_test, &mut seed).map_err(CompareError::Setup)?;
        let Some(trial) = drawn else {
            refused += 1;
            if refused == REFUSED_MAX {
                return Err(CompareError::Setup(format!("{REFUSED_MAX} graphs in a row cannot be set up")));
            }
            continue;
        };
        refused = 0;
        match differs(&trial) {
            Ok(followed) => totals.followed += followed,
            Err(what) => return Err(Box::new(PathDifference::smallest(&trial, what)).into()),
        }
        totals.trials += 1;
        totals.packets += trial.tape.len() as u64;
        totals.commands += trial.commands();
        totals.moves += trial.moves();
        heed(&totals);
    }
    Ok(totals)
}
