//! The graph of a policy: its pipelets, merged.
//!
//! All pipelets share their nodes. The edges of a node are tried in the order of the text, across
//! pipelets, and a packet takes the first one with a filter that it passes (E2, E3). A packet that
//! entered on a forward edge takes forward edges only, and likewise in reverse.

use std::collections::BTreeMap;

use crate::filter::Fields;
use crate::pipelet::{Edge, EdgeDirection, Node};
use crate::policy::Policy;

/// The merged pipelets of a policy.
#[derive(Clone, Debug)]
pub struct PolicyGraph<'p> {
    /// Edges of each node, in the order of their tests.
    edges: BTreeMap<Node, Vec<&'p Edge>>,
}

/// The nodes that a packet visits, and its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PacketPath {
    /// NFs in order, as indices in [`Policy::nfs`].
    pub nfs: Vec<usize>,
    /// The end.
    pub end: PathEnd,
}

/// The end of a packet's path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathEnd {
    /// It leaves by a port: an index in [`Policy::ports`].
    Port(usize),
    /// It reaches `Drop`.
    Drop,
    /// No edge of a node takes it.
    Unmatched(Node),
}

impl Policy {
    /// Returns the graph of all pipelets.
    pub fn graph(&self) -> PolicyGraph<'_> {
        let mut edges: BTreeMap<Node, Vec<&Edge>> = BTreeMap::new();
        for edge in self.pipelets.iter().flat_map(|pipelet| &pipelet.edges) {
            edges.entry(edge.from).or_default().push(edge);
        }
        // Both edges of a `<->` have its position; they leave different nodes.
        edges.values_mut().for_each(|edges| edges.sort_by_key(|edge| edge.span));
        PolicyGraph { edges }
    }
}

impl<'p> PolicyGraph<'p> {
    /// Returns the edges out of a node, in the order of their tests: at a port, where packets
    /// enter, edges of both directions.
    pub fn edges(&self, node: Node, direction: Option<EdgeDirection>) -> impl Iterator<Item = &'p Edge> + '_ {
        let edges = self.edges.get(&node).into_iter().flatten().copied();
        edges.filter(move |edge| direction.is_none_or(|direction| edge.direction == direction))
    }

    /// Returns all nodes that edges leave, and their edges.
    pub fn nodes(&self) -> impl Iterator<Item = (Node, &[&'p Edge])> {
        self.edges.iter().map(|(node, edges)| (*node, edges.as_slice()))
    }

    /// Returns all edges, in one order: by the nodes that they leave, then by the text.
    pub fn all_edges(&self) -> impl Iterator<Item = &'p Edge> + '_ {
        self.edges.values().flatten().copied()
    }

    /// Walks a packet from a port through the graph. This is the reference for every compiled form.
    ///
    /// `direction` is that of a known flow; the first packet of a flow may take edges of both.
    /// `process` applies an NF to the packet, and returns false if the packet ends there.
    pub fn walk(
        &self,
        (port, direction): (usize, Option<EdgeDirection>),
        packet: &mut Fields,
        mut process: impl FnMut(usize, &mut Fields) -> bool,
    ) -> PacketPath {
        let (mut nfs, mut at, mut direction) = (Vec::new(), Node::Port(port), direction);
        loop {
            let Some(edge) = self.edges(at, direction).find(|edge| edge.filter.matches(packet)) else {
                return PacketPath { nfs, end: PathEnd::Unmatched(at) };
            };
            (at, direction) = (edge.to, Some(edge.direction));
            match at {
                Node::Port(port) => return PacketPath { nfs, end: PathEnd::Port(port) },
                Node::Drop => return PacketPath { nfs, end: PathEnd::Drop },
                Node::Nf(nf) => {
                    nfs.push(nf);
                    if !process(nf, packet) {
                        return PacketPath { nfs, end: PathEnd::Drop };
                    }
                }
            }
        }
    }
}
