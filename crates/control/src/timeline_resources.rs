//! The timeline of a flow, as clients see it.

use cluster::remote::UnitTimelines;
use protocol::trace::{FlowTimeline, TimelineRow};
use runtime::timeline::LINES_KEPT;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::flow_id;

/// Limit on the lines of an answer: the last ones.
pub const TIMELINE_LINES_MAX: usize = 1000;

/// The last events of a flow, and of units since the first of them, at the dispatcher and at all
/// units.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Timeline)]
pub struct TimelineResource {
    /// Lines, by time, those of a node in the order of its events; the last 1000.
    pub lines: Vec<TimelineLineResource>,
    /// Lines of all flows that each thread of a dispatcher or unit keeps, at most.
    pub lines_kept: u64,
    /// Lines of all flows that later ones have replaced: the flow's first ones may be among them.
    pub overwritten: u64,
    /// Nodes of units that have not answered.
    #[serde(default)]
    pub missing: Vec<MissingTimeline>,
}

/// A node without lines.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = MissingTimeline)]
pub struct MissingTimeline {
    /// Its name.
    #[schema(example = "unit-1")]
    pub node: String,
    /// The reason.
    #[schema(example = "no answer within 1 s")]
    pub reason: String,
}

/// An event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = TimelineLine)]
pub struct TimelineLineResource {
    /// Time of the dispatcher's clock, in seconds; that of units is behind by up to the delay of
    /// their links.
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
    /// Creates the resource of a flow, out of the lines of the dispatcher's process and those of
    /// units at nodes.
    pub(crate) fn of(own: FlowTimeline, units: UnitTimelines) -> TimelineResource {
        let UnitTimelines { timelines, missing } = units;
        let all = std::iter::once(own).chain(timelines).collect();
        let FlowTimeline { rows, overwritten } = FlowTimeline::merged(all, TIMELINE_LINES_MAX);
        let missing = missing.into_iter();
        TimelineResource {
            lines: rows.into_iter().map(TimelineLineResource::of).collect(),
            lines_kept: LINES_KEPT as u64,
            overwritten,
            missing: missing
                .map(|(node, reason)| MissingTimeline { node, reason: reason.to_owned() })
                .collect(),
        }
    }
}

impl TimelineLineResource {
    fn of(row: TimelineRow) -> TimelineLineResource {
        TimelineLineResource {
            time: row.time(),
            role: row.role.to_string(),
            flow: row.place.flow.map(flow_id::to_text),
            epoch: row.place.epoch,
            seq: row.place.seq,
            host: row.host,
            pending: row.pending,
            event: row.event,
            details: row.details,
        }
    }
}
