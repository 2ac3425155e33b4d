//! Models of the ownership protocol (design.md 3) for a model checker (stateright), which visits
//! every state within stated bounds.
//!
//! | model | code that runs in it | checks |
//! |---|---|---|
//! | `tests/handover` | the dispatcher and the units of crate `protocol` | a flow's handover between units, while messages are lost, repeated and overtaken, and units crash: one writer, each packet once, nothing waits forever |
//! | `tests/alias` | the dispatcher of crate `protocol` | an alias is known before the packet that created it leaves: an answer finds its flow |
//! | `tests/lease` | none: it states a rule for holders of a lease | the term fences a holder that was paused: two never act at once |
//!
//! In `crates/protocol/tests/unit/model.rs` a fixed schedule stands for the dispatcher, and units
//! have replicas; here the dispatcher takes part.
//!
//! Each model can break its rules, and a test shows for each property that the checker then finds a
//! violation. `cargo run -p xtask -- planted-bugs` plants bugs in the code itself.
//!
//! The bounds are small by default. `RIVULET_DEEP=1 cargo test --release -p models` uses larger
//! ones.

use std::cell::Cell;
use std::fmt::Debug;
use std::hash::Hash;

use stateright::{Checker, Expectation, HasDiscoveries, Model, Property};

/// Returns true if the environment selects the larger bounds (`RIVULET_DEEP=1`).
pub fn is_deep() -> bool {
    std::env::var_os("RIVULET_DEEP").is_some_and(|value| value == "1")
}

/// Actions in a row, and visits of states, within which a model must have ended.
const DEPTH_MAX: usize = 100;
const VISITS_MAX: usize = 50_000_000;

/// Visits all states of a model, and prints their number.
///
/// # Panics
/// If a state violates a property that must always hold, with the path to it, which is taken again
/// for a timeline ([`is_replaying`]); or if a property that must hold sometimes never does; or if
/// actions have no end.
pub fn explore<M>(name: &str, model: M)
where
    M: Model + Send + Sync + 'static,
    M::State: Hash + Debug + Clone + PartialEq + Send + Sync,
    M::Action: Debug + Clone + PartialEq + Send + Sync,
{
    let checker = model
        .checker()
        .finish_when(HasDiscoveries::AnyFailures)
        .target_max_depth(DEPTH_MAX)
        .target_state_count(VISITS_MAX);
    match is_deep() {
        // Needs less memory.
        true => judge(name, &checker.spawn_dfs().join()),
        // Finds the shortest path to a violation.
        false => judge(name, &checker.spawn_bfs().join()),
    }
}

fn judge<M>(name: &str, checker: &impl Checker<M>)
where
    M: Model + Send + Sync + 'static,
    M::State: Hash + Debug + Clone + PartialEq + Send + Sync,
    M::Action: Debug + Clone + PartialEq + Send + Sync,
{
    let mut found = checker.discoveries();
    let model = checker.model();
    for Property { expectation, name: property, condition } in model.properties() {
        let path = found.remove(property).map(|path| path.into_actions());
        match expectation {
            Expectation::Sometimes => assert!(path.is_some(), "{name}: no state has: {property}"),
            _ => {
                if let Some(path) = &path {
                    replay(model, path, condition);
                }
                assert!(path.is_none(), "{name}: violated: {property}, after {path:?}");
            }
        }
    }
    let (states, depth) = (checker.unique_state_count(), checker.max_depth());
    assert!(depth < DEPTH_MAX && checker.state_count() < VISITS_MAX, "{name}: actions have no end");
    println!("{name}: {states} states, up to {depth} actions");
}

thread_local! {
    static IS_REPLAYING: Cell<bool> = const { Cell::new(false) };
}

/// Returns true if the thread repeats the way to a violation: a state that is created now notes in
/// a timeline what happens.
pub fn is_replaying() -> bool {
    IS_REPLAYING.get()
}

/// Takes these actions again, and asks for the property after the last one, for the timeline.
fn replay<M: Model>(model: &M, path: &[M::Action], property: fn(&M, &M::State) -> bool)
where
    M::Action: Clone,
{
    IS_REPLAYING.set(true);
    let mut state = model.init_states().into_iter().next();
    for action in path {
        state = state.and_then(|state| model.next_state(&state, action.clone()));
    }
    if let Some(state) = state {
        property(model, &state);
    }
    IS_REPLAYING.set(false);
}

/// Visits states of a model that breaks a rule, until one violates the property. Prints the
/// shortest path to it.
///
/// # Panics
/// If no state violates the property.
pub fn find_violation<M>(name: &str, model: M, property: &'static str)
where
    M: Model + Send + Sync + 'static,
    M::State: Hash + Debug + Clone + PartialEq + Send + Sync,
    M::Action: Debug + Clone + PartialEq + Send + Sync,
{
    let until = HasDiscoveries::AllOf([property].into());
    let checker = model.checker().finish_when(until).spawn_bfs().join();
    let mut found = checker.discoveries();
    let others: Vec<&str> = found.keys().copied().filter(|other| *other != property).collect();
    let path = found.remove(property).map(|path| path.into_actions());
    assert!(path.is_some(), "{name}: does not violate: {property}; violates {others:?}");
    println!("{name}: found after {} states: {path:?}", checker.unique_state_count());
}
