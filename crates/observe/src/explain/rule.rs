//! The cached rule that later packets like an explained one follow.

use std::fmt;

use graph::{RuleStep, RuleView, Topology};
use nf::{Cause, EventCondition};
use packet::{End, TagKind};
use serde::Serialize;

/// A cached rule with the names of its functions.
#[derive(Serialize)]
pub struct RuleExplanation {
    steps: Vec<StepExplanation>,
    events: Vec<EventExplanation>,
}

#[derive(Serialize)]
#[serde(tag = "does", rename_all = "snake_case")]
enum StepExplanation {
    /// The state functions of the next `count` steps may run in parallel.
    Together { count: usize },
    /// The packet is counted.
    Pass { function: String },
    /// State functions run.
    StateFunctions { function: String, ids: Vec<u16> },
    /// The function processes every packet.
    Process { function: String },
    /// The DSCP is written.
    SetDscp { dscp: u8 },
    /// Endpoints are written.
    SetEnds {
        #[serde(skip_serializing_if = "Option::is_none")]
        source: Option<String>,
        #[serde(skip_serializing_if = "Option::is_none")]
        destination: Option<String>,
    },
    /// Outer headers are added, if the packet is in no tunnel and its IP packet has up to `len_max`
    /// bytes; other packets take the slow path.
    Encap { function: String, destination: String, header_len: usize, len_max: u16 },
    /// A VLAN tag or MPLS label is pushed, if the link layer has room for it; other packets take
    /// the slow path.
    Push { function: String, tag: String },
    /// Outer headers are removed, if they are the same ones; other packets take the slow path.
    Decap { function: String, header_len: usize },
    /// A VLAN tag or MPLS label is popped, if it is the same; other packets take the slow path.
    Pop { function: String, kind: &'static str },
    /// Outer headers or a tag are not added, because a later function removes them.
    Cancelled { function: String, header_len: usize },
    /// The packet is dropped.
    Drop { function: String, reason: &'static str },
    /// The packet takes an edge of the graph.
    Edge { edge: String },
    /// The packet is dropped at the end of its path.
    DropAtEnd { reason: &'static str },
}

#[derive(Serialize)]
struct EventExplanation {
    function: String,
    id: u16,
    argument: u64,
    /// Trigger of the event: `command` or `packet`.
    cause: &'static str,
}

impl RuleExplanation {
    /// Explains a rule of a graph with functions of these names.
    pub fn new(rule: &RuleView, names: &[String], topology: Option<&Topology>) -> RuleExplanation {
        let name = |stage: usize| names.get(stage).cloned().unwrap_or_default();
        let steps = rule.steps.iter().map(|step| match *step {
            RuleStep::Together(count) => StepExplanation::Together { count },
            RuleStep::Pass(stage) => StepExplanation::Pass { function: name(stage) },
            RuleStep::Functions(stage, ref ids) => {
                StepExplanation::StateFunctions { function: name(stage), ids: ids.clone() }
            }
            RuleStep::Process(stage) => StepExplanation::Process { function: name(stage) },
            RuleStep::SetDscp(dscp) => StepExplanation::SetDscp { dscp },
            RuleStep::SetEnds(ref writes) => {
                let to = |end: End| writes.iter().find(|write| write.0 == end).map(|(_, to)| to.to_string());
                StepExplanation::SetEnds { source: to(End::Source), destination: to(End::Destination) }
            }
            RuleStep::Encap(stage, ref outer, len_max) => StepExplanation::Encap {
                function: name(stage),
                destination: outer.destination().to_string(),
                header_len: outer.header_len(),
                len_max,
            },
            RuleStep::PushTag(stage, tag) => {
                StepExplanation::Push { function: name(stage), tag: tag.to_string() }
            }
            RuleStep::Decap(stage, header_len) => {
                StepExplanation::Decap { function: name(stage), header_len }
            }
            RuleStep::PopTag(stage, kind) => StepExplanation::Pop {
                function: name(stage),
                kind: match kind {
                    TagKind::Vlan => "tag",
                    TagKind::Label => "label",
                },
            },
            RuleStep::Cancelled(stage, header_len) => {
                StepExplanation::Cancelled { function: name(stage), header_len }
            }
            RuleStep::Drop(stage, reason) => {
                StepExplanation::Drop { function: name(stage), reason: reason.name() }
            }
            RuleStep::Edge(edge) => {
                let edge = topology.and_then(|topology| topology.edges().get(usize::from(edge)));
                let edge = edge.map(ToString::to_string).unwrap_or_default();
                StepExplanation::Edge { edge }
            }
            RuleStep::DropAtEnd(reason) => StepExplanation::DropAtEnd { reason: reason.name() },
        });
        let events =
            rule.events.iter().map(|&(stage, EventCondition { id, argument, cause })| EventExplanation {
                function: name(stage),
                id,
                argument,
                cause: match cause {
                    Cause::Command => "command",
                    Cause::Packet => "packet",
                },
            });
        RuleExplanation { steps: steps.collect(), events: events.collect() }
    }
}

impl fmt::Display for RuleExplanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "  cached rule for similar packets")?;
        for step in &self.steps {
            writeln!(f, "      {step}")?;
        }
        for EventExplanation { function, id, argument, cause } in &self.events {
            writeln!(f, "      until event {id} ({argument}) of {function}, triggered by a {cause}")?;
        }
        Ok(())
    }
}

impl fmt::Display for StepExplanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StepExplanation::Together { count } => write!(f, "the next {count} may run in parallel"),
            StepExplanation::Pass { function } => write!(f, "{function}: counted"),
            StepExplanation::StateFunctions { function, ids } => {
                let ids: Vec<_> = ids.iter().map(u16::to_string).collect();
                write!(f, "{function}: state function {}", ids.join(", "))
            }
            StepExplanation::Process { function } => write!(f, "{function}: processes every packet"),
            StepExplanation::SetDscp { dscp } => write!(f, "set DSCP to {dscp}"),
            StepExplanation::SetEnds { source, destination } => {
                let ends = [("source", source), ("destination", destination)];
                let set = ends.iter().filter_map(|(end, to)| Some(format!("set {end} to {}", to.as_ref()?)));
                f.write_str(&set.collect::<Vec<_>>().join(", "))
            }
            StepExplanation::Encap { function, destination, header_len, len_max } => write!(
                f,
                "{function}: encap with {header_len} bytes of headers to {destination}, up to {len_max} bytes"
            ),
            StepExplanation::Push { function, tag } => write!(f, "{function}: push {tag}"),
            StepExplanation::Decap { function, header_len } => {
                write!(f, "{function}: decap of {header_len} bytes of headers, if they are the same")
            }
            StepExplanation::Pop { function, kind } => {
                write!(f, "{function}: pop a {kind}, if it is the same")
            }
            StepExplanation::Cancelled { function, header_len } => {
                write!(f, "{function}: encap with {header_len} bytes of headers, cancelled by a later decap")
            }
            StepExplanation::Drop { function, reason } => write!(f, "{function}: drop: {reason}"),
            StepExplanation::Edge { edge } => f.write_str(edge),
            StepExplanation::DropAtEnd { reason } => write!(f, "drop: {reason}"),
        }
    }
}
