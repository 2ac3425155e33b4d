//! The evacuation of draining units, as far as it has come.

use std::collections::BTreeSet;

use crate::message::{FlowId, UnitId};

/// Least number of flows that are copied or move at a time, and the first one.
pub(crate) const COPIES_MIN: u32 = 64;

/// The evacuation of draining units.
pub(crate) struct Evacuation {
    /// Position of the search for their flows.
    pub hand: u32,
    /// Flows whose states are on their way to their next owners, and these.
    pub copied: Vec<(FlowId, UnitId)>,
    /// Of these flows, those whose replicas have not come.
    pub awaited: BTreeSet<FlowId>,
    /// Time of the latest request for a replica.
    pub copied_ns: u64,
    /// Limit on the flows that are copied or move at a time.
    pub copies_max: u32,
}

impl Default for Evacuation {
    fn default() -> Evacuation {
        Evacuation {
            hand: 0,
            copied: Vec::new(),
            awaited: BTreeSet::new(),
            copied_ns: 0,
            copies_max: COPIES_MIN,
        }
    }
}
