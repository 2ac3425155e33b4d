//! External nodes: programs of others in the graph of a policy (E2, E15).
//!
//! An external node is two ports that the runtime makes itself. Forward edges into `squid` end at
//! its port `squid.inside`, and those out of it begin at `squid.outside`; reverse edges the other
//! way round. So a path ends at the program, and a new one begins after it. Attributes of packets
//! travel to the program and back by a tag, if the node has a carrier for it (E24).

use crate::pipelet::{EdgeDirection, Node, NodeAttribute};
use crate::source::Span;
use crate::value::Value;

/// A program of others that packets pass, as a node of the graph.
#[derive(Clone, Debug, PartialEq)]
pub struct ExternalNode {
    /// Name of the node.
    pub name: String,
    /// The way packets reach the program.
    pub kind: ExternalKind,
    /// An object, empty if there is none.
    pub config: Value,
    /// Position of the name.
    pub span: Span,
    /// Its port towards the inside: an index in [`Policy::ports`](crate::Policy::ports).
    pub inside: usize,
    /// Its port towards the outside: an index in [`Policy::ports`](crate::Policy::ports).
    pub outside: usize,
    /// The carrier of attributes to the program and back.
    pub tags: TagCarrier,
    /// Attributes that the program sets.
    pub sets: Vec<NodeAttribute>,
}

/// The carrier of attributes to the program of an external node and back (E24).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TagCarrier {
    /// Attributes do not travel.
    #[default]
    None,
    /// A VLAN tag (IEEE 802.1Q).
    Vlan,
    /// An option of a Geneve header (RFC 8926).
    Geneve,
}

impl TagCarrier {
    /// All carriers.
    pub const ALL: [TagCarrier; 3] = [TagCarrier::None, TagCarrier::Vlan, TagCarrier::Geneve];

    /// Returns the carrier's name in a policy.
    pub fn name(self) -> &'static str {
        match self {
            TagCarrier::None => "none",
            TagCarrier::Vlan => "vlan",
            TagCarrier::Geneve => "geneve",
        }
    }
}

/// The way packets reach the program of an external node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExternalKind {
    /// An unmodified program, connected by veth pairs, in a network namespace of its own.
    Legacy,
    /// A program that shares packet memory with Rivulet: memif.
    Native,
}

impl ExternalKind {
    /// The types that the language reserves for external nodes.
    pub const TYPES: [&'static str; 2] = ["Legacy", "Native"];

    pub(crate) fn of_type(name: &str) -> Option<ExternalKind> {
        match name {
            "Legacy" => Some(ExternalKind::Legacy),
            "Native" => Some(ExternalKind::Native),
            _ => None,
        }
    }

    /// Returns the type's name in a policy.
    pub fn type_name(self) -> &'static str {
        match self {
            ExternalKind::Legacy => "Legacy",
            ExternalKind::Native => "Native",
        }
    }
}

impl ExternalNode {
    /// Returns the port where an edge of this direction that leaves the node begins.
    pub(crate) fn source(&self, direction: EdgeDirection) -> Node {
        Node::Port(match direction {
            EdgeDirection::Forward => self.outside,
            EdgeDirection::Reverse => self.inside,
        })
    }

    /// Returns the port where an edge of this direction that reaches the node ends.
    pub(crate) fn target(&self, direction: EdgeDirection) -> Node {
        Node::Port(match direction {
            EdgeDirection::Forward => self.inside,
            EdgeDirection::Reverse => self.outside,
        })
    }
}
