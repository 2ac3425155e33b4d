//! The timeline of a flow, as clients see it.

use protocol::message::FlowId;
use protocol::trace::{EventTimeline, TimelineLine};
use runtime::timeline::LINES_KEPT;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::flow_id;

/// Limit on the lines of an answer: the last ones.
pub const TIMELINE_LINES_MAX: usize = 1000;

/// The last events of a flow, and of units since the first of them, in the process of the
/// dispatcher.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Timeline)]
pub struct TimelineResource {
    /// Lines, the oldest first; up to 1000.
    pub lines: Vec<TimelineLineResource>,
    /// Lines of all flows that the process keeps, at most.
    pub lines_kept: u64,
    /// Lines of all flows that later ones have replaced: the flow's first ones may be among them.
    pub overwritten: u64,
}

/// An event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = TimelineLine)]
pub struct TimelineLineResource {
    /// Time of the dispatcher, in seconds.
    #[schema(example = "1796083200.000120001")]
    pub time: String,
    /// The host.
    pub host: String,
    /// The dispatcher, or the unit.
    #[schema(example = "unit 0")]
    pub role: String,
    /// The flow; absent for an event of a unit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "17.0")]
    pub flow: Option<String>,
    /// The number of the flow's owner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epoch: Option<u32>,
    /// The packet, or the last one that a message or state covers or demands.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seq: Option<u64>,
    /// Packets that wait at the unit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pending: Option<u64>,
    /// The kind of event.
    #[schema(example = "owner-changed")]
    pub event: String,
    /// Further details as text.
    #[schema(example = "from unit 0, to unit 1")]
    pub details: String,
}

impl TimelineResource {
    /// Creates the resource of a flow.
    pub(crate) fn of(timeline: &EventTimeline, flow: FlowId) -> TimelineResource {
        let lines = timeline.lines_of(flow, TIMELINE_LINES_MAX);
        TimelineResource {
            lines: lines.iter().map(TimelineLineResource::of).collect(),
            lines_kept: LINES_KEPT as u64,
            overwritten: timeline.overwritten(),
        }
    }
}

impl TimelineLineResource {
    fn of(line: &TimelineLine) -> TimelineLineResource {
        TimelineLineResource {
            time: line.time(),
            host: line.host.clone(),
            role: line.role.to_string(),
            flow: line.place.flow.map(flow_id::to_text),
            epoch: line.place.epoch,
            seq: line.place.seq,
            pending: line.pending.map(|pending| pending as u64),
            event: line.event.name().to_owned(),
            details: line.event.to_string(),
        }
    }
}
