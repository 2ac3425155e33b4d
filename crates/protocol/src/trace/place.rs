//! The subject of an event.

use crate::message::{Epoch, FlowId};

/// The subject of an event: a flow, an epoch of it, and a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowPlace {
    /// The flow; `None` for an event of a unit.
    pub flow: Option<FlowId>,
    /// The epoch.
    pub epoch: Option<Epoch>,
    /// The packet; the last one that a message, a state or a tombstone covers.
    pub seq: Option<u64>,
}

impl FlowPlace {
    /// No flow.
    pub const NONE: FlowPlace = FlowPlace { flow: None, epoch: None, seq: None };

    /// Creates the place of a packet, or of a state that covers it.
    pub fn new(flow: FlowId, epoch: Epoch, seq: u64) -> FlowPlace {
        FlowPlace { flow: Some(flow), epoch: Some(epoch), seq: Some(seq) }
    }

    /// Creates the place of a flow.
    pub fn of(flow: FlowId) -> FlowPlace {
        FlowPlace { flow: Some(flow), ..FlowPlace::NONE }
    }
}
