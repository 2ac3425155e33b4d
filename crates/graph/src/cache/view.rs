//! Cached rules for display: the forecast of `rivulet explain` for a flow's packets.

use nf::EventCondition;
use packet::{Direction, DropReason, End, Endpoint, OuterHeaders, Tag, TagKind};

use super::FlowCache;
use super::program::Step;
use crate::topology::EdgeId;

/// A flow's cached rule: the program with the flow's own values, and the events that end it (B5 to
/// B7).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleView {
    /// The steps, in order.
    pub steps: Vec<RuleStep>,
    /// The events that end the rule, with their functions' positions in the graph. The rule also
    /// ends with its flow, and with every packet that takes the slow path.
    pub events: Vec<(usize, EventCondition)>,
}

/// A step of a cached rule. Functions are named by their positions in the graph.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RuleStep {
    /// The function only counts the packet.
    Pass(usize),
    /// The state functions of the next n steps may run in parallel.
    Together(usize),
    /// These state functions of the function run.
    Functions(usize, Vec<u16>),
    /// The function processes the packet itself: it must see every packet.
    Process(usize),
    /// The packet gets this DSCP.
    SetDscp(u8),
    /// The packet gets these endpoints; both checksums are adjusted.
    SetEnds(Vec<(End, Endpoint)>),
    /// The packet gets the function's outer headers. Packets that are in a tunnel, or longer than
    /// this, take the slow path.
    Encap(usize, OuterHeaders, u16),
    /// The function's VLAN tag or MPLS label is pushed. Packets without room for it take the slow
    /// path.
    PushTag(usize, Tag),
    /// The function removes n bytes of outer headers. Packets with other outer headers take the
    /// slow path.
    Decap(usize, usize),
    /// The function pops the outermost tag of this kind. Packets with other tags take the slow
    /// path.
    PopTag(usize, TagKind),
    /// The function's outer headers or tag, of n bytes, are left out, since a later function would
    /// remove them.
    Cancelled(usize, usize),
    /// The function counts the packet and drops it.
    Drop(usize, DropReason),
    /// The packet takes this edge.
    Edge(EdgeId),
    /// The packet is dropped at the end of its path.
    DropAtEnd(DropReason),
}

impl FlowCache {
    /// Returns the current rule for packets of one direction of a flow, by its record's number.
    pub fn rule_of(&self, record: u32, direction: Direction) -> Option<RuleView> {
        let rules = &self.rules;
        let (rule, program) = rules.current(record, direction)?;
        let outer = rules.outer(record, direction).copied().unwrap_or_default();
        let steps = self.programs.steps(program).iter().filter_map(|step| {
            Some(match *step {
                Step::Together(count) => RuleStep::Together(count),
                Step::Pass(stage) => RuleStep::Pass(stage),
                Step::Functions(stage, ref functions) => {
                    RuleStep::Functions(stage, functions.as_slice().to_vec())
                }
                Step::Process(stage) => RuleStep::Process(stage),
                Step::SetDscp(dscp) => RuleStep::SetDscp(dscp),
                Step::Rewrite { .. } => RuleStep::SetEnds(rule.ends.writes().collect()),
                Step::Encap(stage) => RuleStep::Encap(stage, outer, rule.len_max),
                Step::PushTag(stage, tag) => RuleStep::PushTag(stage, tag),
                Step::Decap(stage, len) => RuleStep::Decap(stage, len),
                Step::PopTag(stage, kind) => RuleStep::PopTag(stage, kind),
                Step::Cancelled(stage, layer) => RuleStep::Cancelled(stage, layer.len()),
                Step::Restored(_) => return None,
                Step::Drop(stage, reason) => RuleStep::Drop(stage, reason),
                Step::Edge(edge) => RuleStep::Edge(edge),
                Step::DropAtEnd(reason) => RuleStep::DropAtEnd(reason),
            })
        });
        Some(RuleView { steps: steps.collect(), events: rules.events(record, direction).collect() })
    }
}
