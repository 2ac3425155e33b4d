//! Segments: the parts of a policy's graph that have nothing in common.

use crate::external::ExternalNode;
use crate::pipelet::{EdgeDirection, Node};
use crate::policy::Policy;

/// Limit on the segments of a policy: parts of its graph without common nodes.
pub const SEGMENTS_MAX: usize = 64;

impl Policy {
    /// Returns the external node that a port belongs to, an index in [`Policy::ports`].
    pub fn external_of(&self, port: usize) -> Option<&ExternalNode> {
        self.externals.iter().find(|node| [node.inside, node.outside].contains(&port))
    }

    /// Returns the ports of the text with a path of forward edges to this node, also through other
    /// external nodes, as indices in [`Policy::ports`].
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
    /// keys: two wires may carry the same packets, and a program may return a packet with the same
    /// addresses and ports.
    ///
    /// Ports that edges connect, directly or over NFs, are one segment. Where edges also pass by an
    /// external node, so that they connect its own two ports, each port is a segment.
    ///
    /// A segment has the number of its first port, so that it keeps it when other segments change;
    /// with external nodes, or more ports than there may be segments, they are counted.
    pub fn segments(&self) -> Vec<usize> {
        let parts = Parts::of(self);
        let first = |port: usize| {
            let part = parts.find(port);
            let is_bypassed =
                |node: &ExternalNode| parts.find(node.inside) == part && parts.find(node.outside) == part;
            if self.externals.iter().any(is_bypassed) { port } else { part }
        };
        if self.externals.is_empty() && self.ports.len() <= SEGMENTS_MAX {
            return (0..self.ports.len()).map(first).collect();
        }
        let mut numbers: Vec<usize> = Vec::new();
        let segments = (0..self.ports.len()).map(|port| {
            let segment = first(port);
            numbers.iter().position(|known| *known == segment).unwrap_or_else(|| {
                numbers.push(segment);
                numbers.len() - 1
            })
        });
        segments.collect()
    }
}

impl Policy {
    /// Returns pairs of ports with paths to the same third port, by different NFs with one of this
    /// type on each path. The networks of the two may overlap.
    pub fn ways_apart(&self, nf_type: &str) -> Vec<[usize; 3]> {
        let edges = || self.pipelets.iter().flat_map(|pipelet| &pipelet.edges);
        let forward = || edges().filter(|edge| edge.direction == EdgeDirection::Forward);
        // By port: the NFs and ports on the paths from there.
        let reached = |port: usize| {
            let mut reached = vec![Node::Port(port)];
            let mut at = 0;
            while let Some(&from) = reached.get(at) {
                at += 1;
                if at == 1 || matches!(from, Node::Nf(_)) {
                    for edge in forward().filter(|edge| edge.from == from) {
                        if !reached.contains(&edge.to) {
                            reached.push(edge.to);
                        }
                    }
                }
            }
            reached.split_off(1)
        };
        let is_of_type = |node: &Node| matches!(node, Node::Nf(nf) if self.nfs[*nf].type_name == nf_type);
        let ways: Vec<Vec<Node>> = (0..self.ports.len()).map(reached).collect();
        let ways: Vec<(usize, &Vec<Node>)> =
            ways.iter().enumerate().filter(|(_, way)| way.iter().any(is_of_type)).collect();
        let mut found = Vec::new();
        for (at, (one, way)) in ways.iter().enumerate() {
            for (other, others) in &ways[at + 1..] {
                let common = || way.iter().filter(|node| others.contains(node));
                let end = common().find_map(|node| match node {
                    Node::Port(port) => Some(*port),
                    _ => None,
                });
                if let Some(end) = end.filter(|_| !common().any(is_of_type)) {
                    found.push([*one, *other, end]);
                }
            }
        }
        found
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
