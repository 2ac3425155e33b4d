//! The report of a simulation that fails: the faults that it needs, the rule that the first wrong
//! line of its timeline breaks, and the lines of the flow that it is about, before the failure's
//! message.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::fmt::{Debug, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Once};

use crate::message::FlowId;

use super::audit::{endless_wait, first_violation, unfinished};
use super::excerpt::excerpt;
use super::timeline::EventTimeline;

/// Lines of a simulation's timeline that a failure shows.
pub const LINES_SHOWN: usize = 200;

/// Lines of a simulation's timeline that are kept. A longer one has no audit.
const LINES_KEPT: usize = 1 << 19;

/// Flows of which a failure shows the lines, if no line breaks a rule.
const FLOWS_SHOWN: usize = 2;

/// Limit on the runs by which a fault plan is made smaller.
pub const SHRINK_RUNS_MAX: u32 = 32;

thread_local! {
    /// The timeline of the thread's present or last simulation.
    static SIMULATED: RefCell<Option<Arc<EventTimeline>>> = const { RefCell::new(None) };
    /// The thread tries something that may fail.
    static TRIES: Cell<bool> = const { Cell::new(false) };
}

/// Creates the timeline of a simulation of this thread. A later panic of the thread prints its
/// [report] before its message, unless the next simulation has begun.
pub fn simulated_timeline() -> Arc<EventTimeline> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let others = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if !TRIES.get() {
                show();
                others(panic);
            }
        }));
    });
    let timeline = EventTimeline::new(LINES_KEPT);
    SIMULATED.set(Some(Arc::clone(&timeline)));
    timeline
}

/// Returns the timeline of the thread's present or last simulation, if no panic has printed it.
pub fn last_timeline() -> Option<Arc<EventTimeline>> {
    SIMULATED.with_borrow(Clone::clone)
}

/// Prints the report of the thread's last simulation, once.
fn show() {
    // A thread that ends has none any more.
    let timeline = SIMULATED.try_with(|timeline| timeline.try_borrow_mut().ok()?.take());
    if let Ok(Some(timeline)) = timeline {
        eprint!("{}", report(&timeline));
    }
}

/// Returns the report of a simulation that fails: the first violation of a rule, and the lines up
/// to it of the flow that it is about. If no line breaks a rule, the lines of flows with packets
/// that have not come to an end; else the last lines.
pub fn report(timeline: &EventTimeline) -> String {
    let (lines, overwritten) = (timeline.lines(), timeline.overwritten());
    let mut text = String::new();
    // Writing to a string cannot fail.
    if overwritten > 0 {
        let _ = writeln!(text, "{overwritten} earlier lines were not kept.");
        return text + &excerpt(&lines, &BTreeSet::new(), None, LINES_SHOWN);
    }
    if let Some(violation) = first_violation(&lines).or_else(|| endless_wait(&lines)) {
        let _ = writeln!(text, "{violation}");
        let shown = &lines[..=violation.until];
        return text + &excerpt(shown, &violation.flows, Some(violation.line), LINES_SHOWN);
    }
    let open = unfinished(&lines);
    if !open.is_empty() {
        let names: Vec<String> = open.iter().take(FLOWS_SHOWN).map(FlowId::to_string).collect();
        let _ = writeln!(
            text,
            "no line breaks a rule; {} flows have packets that are neither processed nor \
                                dropped nor given up, among them {}",
            open.len(),
            names.join(", ")
        );
    }
    let flows = open.into_iter().take(FLOWS_SHOWN).collect();
    text + &excerpt(&lines, &flows, None, LINES_SHOWN)
}

/// Checks that no line of the thread's last simulation breaks a rule, if all its lines were kept.
///
/// # Panics
///
/// If one does.
#[allow(clippy::panic, reason = "a check fails by panicking")]
pub fn check_timeline() {
    let Some(timeline) = last_timeline().filter(|timeline| timeline.overwritten() == 0) else { return };
    if let Some(violation) = first_violation(&timeline.lines()) {
        panic!("{violation}");
    }
}

/// Returns the outcome, or the message of the panic, which is not printed.
///
/// # Errors
///
/// The message of the panic.
pub fn attempt<R>(run: impl FnOnce() -> R) -> Result<R, String> {
    let before = TRIES.replace(true);
    let outcome = catch_unwind(AssertUnwindSafe(run));
    TRIES.set(before);
    outcome.map_err(|panic| match panic.downcast::<String>() {
        Ok(message) => *message,
        Err(panic) => panic.downcast_ref::<&str>().copied().unwrap_or_default().to_owned(),
    })
}

/// Faults of a simulation that can be removed one by one.
pub trait Faults: Clone + Debug {
    /// Returns these faults without one of them, for each that there is.
    fn without_one(&self) -> Vec<Self>;
}

/// Removes faults as long as the run fails with the others: up to [`SHRINK_RUNS_MAX`] runs. Returns
/// what is left, and the number of runs.
pub fn shrink<F: Faults>(faults: &F, fails: impl Fn(&F) -> bool) -> (F, u32) {
    let (mut faults, mut runs, mut kept) = (faults.clone(), 0, 0);
    while let Some(fewer) = faults.without_one().into_iter().nth(kept).filter(|_| runs < SHRINK_RUNS_MAX) {
        runs += 1;
        match fails(&fewer) {
            true => faults = fewer,
            false => kept += 1,
        }
    }
    (faults, runs)
}

/// Checks a simulation with these faults and its timeline, and returns the outcome. The simulation
/// is the same each time.
///
/// # Panics
///
/// If the check does. Before, this prints the faults that the panic needs; the panic is that of a
/// run with them, and prints its timeline and its message.
#[allow(clippy::panic, reason = "a check fails by panicking")]
pub fn check_with<F: Faults, R>(faults: &F, check: impl Fn(&F) -> R) -> R {
    let check = |faults: &F| {
        let outcome = check(faults);
        check_timeline();
        outcome
    };
    let message = match attempt(|| check(faults)) {
        Ok(outcome) => return outcome,
        Err(message) => message,
    };
    let (fewer, runs) = shrink(faults, |fewer| attempt(|| check(fewer)).is_err());
    eprintln!("faults that are needed, after {runs} runs: {fewer:#?}");
    check(&fewer);
    panic!("not the same each time: {message}");
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Faults for Vec<u32> {
        fn without_one(&self) -> Vec<Vec<u32>> {
            (0..self.len()).map(|at| [&self[..at], &self[at + 1..]].concat()).collect()
        }
    }

    #[test]
    fn a_plan_keeps_the_faults_that_it_needs() {
        let fails = |faults: &Vec<u32>| faults.contains(&3) && faults.contains(&7);
        assert_eq!(shrink(&(0..10).collect(), fails), (vec![3, 7], 10));
        let (left, runs) = shrink(&(0..100).collect(), |faults: &Vec<u32>| faults.len() > 1);
        assert_eq!((left.len(), runs), (100 - SHRINK_RUNS_MAX as usize, SHRINK_RUNS_MAX));
    }

    #[test]
    fn a_failure_shows_the_faults_that_it_needs() {
        let check = |faults: &Vec<u32>| assert!(!faults.contains(&3), "fails with {faults:?}");
        check_with(&vec![1, 2], check);
        assert_eq!(attempt(|| check_with(&vec![1, 3, 2], check)), Err("fails with [3]".to_owned()));
    }
}
