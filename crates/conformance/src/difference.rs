//! A difference, and the smallest graph that shows it.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::{Fork, GraphForm, GraphTrial, LineShape, TrialStep};

/// A graph that differs between [forms](GraphForm).
#[derive(Clone, Debug)]
pub struct PathDifference {
    /// Its functions with their configurations, from the inside to the outside.
    pub functions: Vec<String>,
    /// Its branches, if it is no line.
    pub fork: Option<Fork>,
    /// The steps before the difference.
    pub steps: Vec<String>,
    /// The difference from the plain graph.
    pub what: String,
}

impl PathDifference {
    /// Reduces a trial with this difference: removes functions and steps as long as graphs still
    /// differ.
    pub(crate) fn smallest(trial: &GraphTrial<'_>, what: String) -> PathDifference {
        let (mut trial, mut what) = (trial.clone(), what);
        let mut function = 0;
        while function < trial.functions.len() && trial.functions.len() > 1 {
            let less = trial.without(function);
            match differs(&less) {
                Err(other) => (trial, what) = (less, other),
                Ok(_) => function += 1,
            }
        }
        // The shortest sequence of first steps that shows it, by bisection.
        let (mut same, mut other) = (0, trial.steps.len());
        while same + 1 < other {
            let count = same.midpoint(other);
            let mut less = trial.clone();
            less.steps.truncate(count);
            match differs(&less) {
                Err(found) => (other, what) = (count, found),
                Ok(_) => same = count,
            }
        }
        trial.steps.truncate(other);
        // Then each step between packets.
        let mut step = 0;
        while step < trial.steps.len() {
            let mut less = trial.clone();
            let is_between = !matches!(less.steps.remove(step), TrialStep::Batch(_));
            match is_between.then(|| differs(&less)) {
                Some(Err(found)) => (trial, what) = (less, found),
                _ => step += 1,
            }
        }
        PathDifference {
            functions: trial.functions.iter().map(ToString::to_string).collect(),
            fork: trial.fork,
            steps: trial.steps.iter().map(ToString::to_string).collect(),
            what,
        }
    }
}

impl fmt::Display for PathDifference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "this graph is not the same in all forms:")?;
        self.functions.iter().try_for_each(|function| writeln!(f, "  {function}"))?;
        if let Some(Fork { functions, filter }) = self.fork {
            writeln!(f, "where packets of `{filter}` visit the first {functions}, and others the others")?;
        }
        writeln!(f, "after: {}", self.steps.join(", "))?;
        write!(f, "{}", self.what)
    }
}

impl std::error::Error for PathDifference {}

/// Returns the number of packets on the fast path, or the difference.
pub(crate) fn differs(trial: &GraphTrial<'_>) -> Result<u64, String> {
    let run = |form: GraphForm| {
        let ran = catch_unwind(AssertUnwindSafe(|| trial.run(form)));
        ran.unwrap_or_else(|cause| Err(format!("the {form} graph panics: {}", text(&*cause))))
    };
    let mut plain = run(GraphForm::default())?;
    let consolidated = GraphForm { consolidates: true, ..GraphForm::default() };
    let witness = run(consolidated)?;
    if let Some(what) = witness.difference(&plain, consolidated) {
        return Err(what);
    }
    if trial.fork.is_some() {
        return Ok(witness.followed);
    }
    // Its records have their states at other offsets.
    plain.forget_states();
    for shape in [LineShape::Routed, LineShape::Branch] {
        for consolidates in [false, true] {
            let form = GraphForm { consolidates, shape };
            let mut routed = run(form)?;
            routed.forget_states();
            if let Some(what) = routed.difference(&plain, form) {
                return Err(what);
            }
        }
    }
    Ok(witness.followed)
}

fn text(cause: &(dyn std::any::Any + Send)) -> &str {
    let text = cause.downcast_ref::<&str>().copied();
    text.or_else(|| cause.downcast_ref::<String>().map(String::as_str)).unwrap_or("no reason given")
}
