//! Rules to be shown to people: what `rivulet explain` tells of a flow's packets to come.

use nf::EventCondition;
use packet::{Direction, DropReason, End, Endpoint, OuterHeaders, Tag, TagKind};

use super::FlowCache;
use super::program::Step;

/// What packets do that follow a flow's rule: its program with the flow's own values, and what ends
/// it (B5 to B7).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleView {
    /// What is done with them, in order.
    pub steps: Vec<RuleStep>,
    /// Functions' events that end it, with their functions' places in the chain. It ends with its
    /// flow, too, and with every packet that has to walk.
    pub events: Vec<(usize, EventCondition)>,
}

/// A step of a rule. Functions are named by their places in the chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RuleStep {
    /// The function only counts the packet.
    Pass(usize),
    /// The state functions of the next so many steps may run side by side.
    Together(usize),
    /// Of the function, these state functions run.
    Functions(usize, Vec<u16>),
    /// The function sees every packet: it processes it.
    Process(usize),
    /// The packet gets this DSCP.
    SetDscp(u8),
    /// The packet gets these ends, and both checksums what that adds to them.
    SetEnds(Vec<(End, Endpoint)>),
    /// The function's outer headers are put before it, if it is in no tunnel and its IP packet has
    /// no more bytes than this: longer ones walk.
    Encap(usize, OuterHeaders, u16),
    /// The function's VLAN tag or MPLS label is put before it, if there is room for it in its link
    /// layer: others walk.
    PushTag(usize, Tag),
    /// The function takes so many bytes of outer headers off: off packets that come in the same;
    /// others walk.
    Decap(usize, usize),
    /// The function takes the outermost tag of this kind off: off packets that come with the same;
    /// others walk.
    PopTag(usize, TagKind),
    /// The function's outer headers, or its tag, of so many bytes, are not put before it, since
    /// another one takes them away.
    Cancelled(usize, usize),
    /// The function, which has counted it, drops it.
    Drop(usize, DropReason),
}

impl FlowCache {
    /// The rule for packets of one direction of a flow, by the number of its record, that are like
    /// the last one that was recorded; none if there is no such rule.
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
            })
        });
        Some(RuleView { steps: steps.collect(), events: rules.events(record, direction).collect() })
    }
}
