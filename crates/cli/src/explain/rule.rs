//! The rule that a flow's next packets follow that are like one that was told of.

use std::fmt;

use graph::{RuleStep, RuleView};
use nf::{Cause, EventCondition};
use packet::{End, TagKind};
use serde::Serialize;

/// A rule, its functions by their names in the policy.
#[derive(Serialize)]
pub struct RuleStory {
    steps: Vec<StepStory>,
    events: Vec<EventStory>,
}

#[derive(Serialize)]
#[serde(tag = "does", rename_all = "snake_case")]
enum StepStory {
    /// The state functions of the next so many steps may run side by side.
    Together { count: usize },
    /// It is counted, and goes on.
    Pass { function: String },
    /// State functions run.
    StateFunctions { function: String, ids: Vec<u16> },
    /// The function sees every packet.
    Process { function: String },
    /// The DSCP is written.
    SetDscp { dscp: u8 },
    /// Ends are written.
    SetEnds {
        #[serde(skip_serializing_if = "Option::is_none")]
        source: Option<String>,
        #[serde(skip_serializing_if = "Option::is_none")]
        destination: Option<String>,
    },
    /// Outer headers are put before it, if it is in no tunnel and its IP packet has no more than
    /// `len_max` bytes; others walk.
    Wrap { function: String, destination: String, header_len: usize, len_max: u16 },
    /// A VLAN tag or MPLS label is put before it, if there is room for it in its link layer; others
    /// walk.
    Tag { function: String, tag: String },
    /// It is taken out of its tunnel, if it came in the same outer headers; others walk.
    TakeOut { function: String, header_len: usize },
    /// A VLAN tag or MPLS label is taken away, if it came with the same; others walk.
    Untag { function: String, kind: &'static str },
    /// Outer headers, or a tag, are not put before it, since another function takes them away.
    Cancelled { function: String, header_len: usize },
    /// It is dropped.
    Drop { function: String, reason: &'static str },
}

#[derive(Serialize)]
struct EventStory {
    function: String,
    id: u16,
    argument: u64,
    /// What it may come by: `command` or `packet`.
    cause: &'static str,
}

impl RuleStory {
    /// The story of a rule of a chain whose functions have these names.
    pub fn new(rule: &RuleView, names: &[String]) -> RuleStory {
        let name = |stage: usize| names.get(stage).cloned().unwrap_or_default();
        let steps = rule.steps.iter().map(|step| match *step {
            RuleStep::Together(count) => StepStory::Together { count },
            RuleStep::Pass(stage) => StepStory::Pass { function: name(stage) },
            RuleStep::Functions(stage, ref ids) => {
                StepStory::StateFunctions { function: name(stage), ids: ids.clone() }
            }
            RuleStep::Process(stage) => StepStory::Process { function: name(stage) },
            RuleStep::SetDscp(dscp) => StepStory::SetDscp { dscp },
            RuleStep::SetEnds(ref writes) => {
                let to = |end: End| writes.iter().find(|write| write.0 == end).map(|(_, to)| to.to_string());
                StepStory::SetEnds { source: to(End::Source), destination: to(End::Destination) }
            }
            RuleStep::Wrap(stage, ref outer, len_max) => StepStory::Wrap {
                function: name(stage),
                destination: outer.destination().to_string(),
                header_len: outer.header_len(),
                len_max,
            },
            RuleStep::Tag(stage, tag) => StepStory::Tag { function: name(stage), tag: tag.to_string() },
            RuleStep::TakeOut(stage, header_len) => StepStory::TakeOut { function: name(stage), header_len },
            RuleStep::Untag(stage, kind) => StepStory::Untag {
                function: name(stage),
                kind: match kind {
                    TagKind::Vlan => "tag",
                    TagKind::Label => "label",
                },
            },
            RuleStep::Cancelled(stage, header_len) => {
                StepStory::Cancelled { function: name(stage), header_len }
            }
            RuleStep::Drop(stage, reason) => StepStory::Drop { function: name(stage), reason: reason.name() },
        });
        let events = rule.events.iter().map(|&(stage, EventCondition { id, argument, cause })| EventStory {
            function: name(stage),
            id,
            argument,
            cause: match cause {
                Cause::Command => "command",
                Cause::Packet => "packet",
            },
        });
        RuleStory { steps: steps.collect(), events: events.collect() }
    }
}

impl fmt::Display for RuleStory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "  rule for packets like it")?;
        for step in &self.steps {
            writeln!(f, "      {step}")?;
        }
        for EventStory { function, id, argument, cause } in &self.events {
            writeln!(f, "      until event {id} ({argument}) of {function}, by a {cause}")?;
        }
        Ok(())
    }
}

impl fmt::Display for StepStory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StepStory::Together { count } => write!(f, "the next {count} may run side by side"),
            StepStory::Pass { function } => write!(f, "{function}: counted"),
            StepStory::StateFunctions { function, ids } => {
                let ids: Vec<_> = ids.iter().map(u16::to_string).collect();
                write!(f, "{function}: state function {}", ids.join(", "))
            }
            StepStory::Process { function } => write!(f, "{function}: sees every packet"),
            StepStory::SetDscp { dscp } => write!(f, "set DSCP to {dscp}"),
            StepStory::SetEnds { source, destination } => {
                let ends = [("source", source), ("destination", destination)];
                let set = ends.iter().filter_map(|(end, to)| Some(format!("set {end} to {}", to.as_ref()?)));
                f.write_str(&set.collect::<Vec<_>>().join(", "))
            }
            StepStory::Wrap { function, destination, header_len, len_max } => write!(
                f,
                "{function}: put {header_len} bytes of headers before it, to {destination}, if it has no more than {len_max}"
            ),
            StepStory::Tag { function, tag } => write!(f, "{function}: put {tag} before it"),
            StepStory::TakeOut { function, header_len } => {
                write!(f, "{function}: take {header_len} bytes of headers away, if it came in the same")
            }
            StepStory::Untag { function, kind } => {
                write!(f, "{function}: take a {kind} away, if it came with the same")
            }
            StepStory::Cancelled { function, header_len } => {
                write!(
                    f,
                    "{function}: {header_len} bytes of headers, which are taken away again, are not put before it"
                )
            }
            StepStory::Drop { function, reason } => write!(f, "{function}: drop: {reason}"),
        }
    }
}
