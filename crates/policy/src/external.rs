//! External nodes: programs of others in the graph of a policy (E2, E15).
//!
//! An external node is two ports that the runtime makes itself. Forward edges into `squid` end at
//! its port `squid.inside`, and those out of it begin at `squid.outside`; reverse edges the other
//! way round. So a path ends at the program, and a new one begins behind it.

use crate::pipelet::{EdgeDirection, Node};
use crate::policy::Policy;
use crate::source::Span;
use crate::value::Value;

/// Limit on the segments of a policy: parts of its graph between external nodes.
pub const SEGMENTS_MAX: usize = 64;

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
    /// Its port towards the inside: an index in [`Policy::ports`].
    pub inside: usize,
    /// Its port towards the outside: an index in [`Policy::ports`].
    pub outside: usize,
}

/// The way packets reach the program of an external node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExternalKind {
    /// An unmodified program, in a network namespace of its own behind veth pairs.
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

impl Policy {
    /// Returns the external node that a port belongs to, an index in [`Policy::ports`].
    pub fn external_of(&self, port: usize) -> Option<&ExternalNode> {
        self.externals.iter().find(|node| [node.inside, node.outside].contains(&port))
    }

    /// Returns the ports of the text whose packets come to this node on forward edges, as indices in
    /// [`Policy::ports`]; also through other external nodes.
    pub fn ports_before(&self, node: &ExternalNode) -> Vec<usize> {
        let edges = || self.pipelets.iter().flat_map(|pipelet| &pipelet.edges);
        let mut reached = vec![Node::Port(node.inside)];
        let mut at = 0;
        while let Some(&to) = reached.get(at) {
            at += 1;
            let direct = edges().filter(|edge| edge.direction == EdgeDirection::Forward && edge.to == to);
            let through = self.externals.iter().filter(|node| Node::Port(node.outside) == to);
            let through = through.map(|node| Node::Port(node.inside));
            for from in direct.map(|edge| edge.from).chain(through) {
                if !reached.contains(&from) {
                    reached.push(from);
                }
            }
        }
        let ports = reached.into_iter().filter_map(|node| match node {
            Node::Port(port) if self.external_of(port).is_none() => Some(port),
            _ => None,
        });
        ports.collect()
    }

    /// Returns the segment of each of [`Policy::ports`]. Flows of different segments have different
    /// keys, because a program may return a packet with the same addresses and ports.
    ///
    /// Ports that edges connect, directly or over NFs, are one segment. Where edges also pass by an
    /// external node, so that they connect its own two ports, each port is a segment.
    pub fn segments(&self) -> Vec<usize> {
        if self.externals.is_empty() {
            return vec![0; self.ports.len()];
        }
        let parts = Parts::of(self);
        let mut numbers: Vec<usize> = Vec::new();
        let segments = (0..self.ports.len()).map(|port| {
            let part = parts.find(port);
            let is_bypassed =
                |node: &ExternalNode| parts.find(node.inside) == part && parts.find(node.outside) == part;
            let segment = if self.externals.iter().any(is_bypassed) { port } else { part };
            numbers.iter().position(|known| *known == segment).unwrap_or_else(|| {
                numbers.push(segment);
                numbers.len() - 1
            })
        });
        segments.collect()
    }
}

/// The connected parts of a graph, each named by one of its nodes: ports first, then NFs.
struct Parts {
    parents: Vec<usize>,
}

impl Parts {
    fn of(policy: &Policy) -> Parts {
        let ports = policy.ports.len();
        let mut parts = Parts { parents: (0..ports + policy.nfs.len()).collect() };
        let place = |node| match node {
            Node::Port(port) => Some(port),
            Node::Nf(nf) => Some(ports + nf),
            Node::Drop => None,
        };
        for edge in policy.pipelets.iter().flat_map(|pipelet| &pipelet.edges) {
            if let (Some(from), Some(to)) = (place(edge.from), place(edge.to)) {
                let (from, to) = (parts.find(from), parts.find(to));
                parts.parents[from.max(to)] = from.min(to);
            }
        }
        parts
    }

    fn find(&self, mut node: usize) -> usize {
        while self.parents[node] != node {
            node = self.parents[node];
        }
        node
    }
}
