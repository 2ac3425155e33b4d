//! `[state]`: the place of flows' states.

use serde::Deserialize;

use values::Nanos;

/// The place of flows' states.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct State {
    /// At units, or in a store.
    #[serde(rename = "where")]
    pub place: StatePlace,
    /// Service time of the store per request, one at a time.
    pub store_time: Nanos,
    /// With `store`: a flowlet's first packet waits for the state even if the unit has owned the
    /// flow all the time (S94).
    pub reread: bool,
}

/// The place of flows' states (S93).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StatePlace {
    /// At the units, with replicas at the targets that the dispatcher chooses.
    Unit,
    /// At the units; the next owner pulls them.
    Reactive,
    /// In a store: read when a flowlet begins, written when the flow falls silent, or leaves (S94).
    Store,
    /// In a store: read before each packet, and written before it leaves.
    StoreNaive,
}

impl StatePlace {
    /// Returns true for a store.
    pub fn is_store(self) -> bool {
        matches!(self, StatePlace::Store | StatePlace::StoreNaive)
    }
}

impl Default for State {
    fn default() -> State {
        State { place: StatePlace::Unit, store_time: Nanos(1_000), reread: true }
    }
}
