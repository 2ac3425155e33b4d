//! The subject of an event.

use std::fmt;

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

/// Writes what is known.
impl fmt::Display for FlowPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.flow {
            Some(flow) => write!(f, "{flow}")?,
            None => f.write_str("no flow")?,
        }
        self.epoch.iter().try_for_each(|epoch| write!(f, ", epoch {epoch}"))?;
        self.seq.iter().try_for_each(|seq| write!(f, ", packet {seq}"))
    }
}
