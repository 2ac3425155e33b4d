//! The topology of a graph: which function a packet visits next.
//!
//! Functions are numbered in topological order: packets on forward edges visit them in ascending
//! order, packets on reverse edges in descending order. A packet's side is the direction of its
//! edges: inside if it entered on a forward edge.

mod branch;
mod compiler;
mod filter_reads;
mod nf_set;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::ops::RangeInclusive;

use packet::Side;
use policy::{FilterInput, Policy, TravellingAttribute};

use branch::Branch;
pub use filter_reads::FilterReads;
pub use nf_set::NfSet;

/// Limit on the functions of a graph with branches: a flow's path has a bit for each.
pub const BRANCHING_NFS_MAX: usize = 64;

/// The next stop of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hop {
    /// A function.
    Stage(usize),
    /// The end of its path.
    End(RouteEnd),
}

/// The end of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouteEnd {
    /// The packet leaves by a port; of several ports with one name, this is the first one's number.
    Port(u16),
    /// The policy's `Drop`.
    Drop,
    /// No edge takes the packet.
    Unmatched,
}

/// An edge, by its place in [`Topology::edges`].
pub type EdgeId = u16;

/// An edge of a topology, for reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopologyEdge {
    /// The name of the node that it leaves.
    pub from: String,
    /// The name of the node that it reaches, or `Drop`; none stands for the packets that no edge
    /// takes.
    pub to: Option<String>,
    /// The side of packets that take it.
    pub side: Side,
    /// Its filter as it stands in the policy; none takes all packets.
    pub filter: Option<String>,
}

impl fmt::Display for TopologyEdge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} -> {}", self.from, self.to.as_deref().unwrap_or("(unmatched)"))
    }
}

/// The nodes and edges of a policy, compiled.
#[derive(Clone, Debug)]
pub struct Topology {
    nfs: Vec<usize>,
    ports: Vec<PortNode>,
    /// For each port, the sides of packets that enter there.
    sides: Vec<EntrySides>,
    /// For each function, for packets from inside and from outside.
    branches: Vec<[Branch; 2]>,
    edges: Vec<TopologyEdge>,
    is_line: bool,
    reads: FilterReads,
    external: Vec<ExternalAttributes>,
    parts: Vec<AttributePart>,
}

/// A part of a function's first attribute, which filters read as an attribute of its own.
#[derive(Clone, Debug)]
struct AttributePart {
    owner: usize,
    name: String,
    first: u32,
    bits: u8,
}

/// The attributes that travel through an external node.
#[derive(Clone, Debug)]
pub(crate) struct ExternalAttributes {
    /// Numbers of the ports where packets return on forward edges, and on reverse edges.
    pub ports: [u16; 2],
    pub attributes: Vec<TravellingAttribute>,
}

/// A port, or several with one name.
#[derive(Clone, Debug)]
struct PortNode {
    numbers: RangeInclusive<u16>,
    /// The edges of packets that begin a flow.
    entry: Branch,
    /// The edges of packets with a known side.
    entries: [Branch; 2],
    /// The side of packets that enter here, if it is the same for all.
    side: Option<Side>,
}

/// The sides of packets that enter by a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EntrySides {
    Either,
    Only(Side),
}

/// A topology cannot be made of a policy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TopologyError {
    /// Too many functions for a graph with branches.
    #[error("a graph with branches may have up to {BRANCHING_NFS_MAX} functions; this one has {0}")]
    TooManyNfs(usize),
    /// Too many edges.
    #[error("a graph may have up to {max} edges", max = EdgeId::MAX)]
    TooManyEdges,
    /// No packet can enter.
    #[error("the policy has no pipelet, so packets have no path")]
    Empty,
}

impl Topology {
    /// Compiles the graph of a policy. Functions without edges have no place in it.
    ///
    /// # Errors
    /// If it is empty or exceeds a limit.
    pub fn new(policy: &Policy) -> Result<Topology, TopologyError> {
        compiler::compile(policy)
    }

    /// Returns the lowest bit in a function's first attribute, and the bits, of an attribute that
    /// is a part of it.
    pub(crate) fn attribute_part(&self, owner: usize, name: &str) -> Option<(u32, u8)> {
        let part = self.parts.iter().find(|of| of.owner == owner && of.name == name)?;
        Some((part.first, part.bits))
    }

    /// Returns the attributes that travel through each external node.
    pub(crate) fn external_attributes(&self) -> &[ExternalAttributes] {
        &self.external
    }

    /// Returns the functions in topological order, as indices in [`Policy::nfs`].
    pub fn nfs(&self) -> &[usize] {
        &self.nfs
    }

    /// Returns the place of a function, which is an index in [`Policy::nfs`], in topological order.
    #[inline]
    pub fn stage_of(&self, nf: usize) -> Option<usize> {
        self.nfs.iter().position(|of| *of == nf)
    }

    /// Returns true if all packets take one path between two ports, or back.
    pub fn is_line(&self) -> bool {
        self.is_line
    }

    /// Returns the side of a port of a line; none if the line does not end there.
    pub fn side_of_line(&self, port: u16) -> Option<Side> {
        let is_end = |side: Side| {
            let ends = self.branches.iter().map(|branches| &branches[side as usize]);
            let entries = self.ports.iter().map(|port| &port.entries[side as usize]);
            let first = self.first_number(port);
            ends.chain(entries).any(|branch| branch.edge_to(Hop::End(RouteEnd::Port(first))).is_some())
        };
        let enters =
            |side: Side| !self.port(port).is_none_or(|it| it.entries[side as usize].targets.is_empty());
        if enters(Side::Inside) || is_end(Side::Outside) {
            Some(Side::Inside)
        } else {
            (enters(Side::Outside) || is_end(Side::Inside)).then_some(Side::Outside)
        }
    }

    /// Returns true if an edge leaves or reaches a port.
    pub fn is_used(&self, port: u16) -> bool {
        self.side_of_line(port).is_some()
    }

    /// Returns true if packets of this side may reach a port after a function.
    pub fn reaches(&self, stage: usize, side: Side, port: u16) -> bool {
        let mut behind = self.reach(side)[stage];
        behind.add(stage);
        let end = Hop::End(RouteEnd::Port(self.first_number(port)));
        behind.iter().any(|one| self.branches[one][side as usize].edge_to(end).is_some())
    }

    /// Returns true if packets from a port may reach a function.
    pub fn leads(&self, port: u16, stage: usize) -> bool {
        let Some(node) = self.port(port) else { return false };
        [Side::Inside, Side::Outside].into_iter().any(|side| {
            let reach = self.reach(side);
            node.entries[side as usize].targets.iter().any(|target| match target.hop {
                Hop::Stage(first) => first == stage || reach[first].has(stage),
                Hop::End(_) => false,
            })
        })
    }

    /// Returns a name for each edge, in the order of their identifiers: that of the policy's
    /// [`policy::PolicyGraph::all_edges`], then packets that no edge takes. Of several edges between
    /// the same nodes, the later ones have a number: `a -> b #2`.
    pub fn edge_names(&self) -> Vec<String> {
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        let numbered = self.edges.iter().map(|edge| {
            let name = edge.to_string();
            let count = counts.entry(name.clone()).or_default();
            *count += 1;
            // Packets that no edge takes count together, whichever side they are from.
            if *count == 1 || edge.to.is_none() { name } else { format!("{name} #{count}") }
        });
        numbered.collect()
    }

    /// Returns the edges, in the order of their identifiers.
    pub fn edges(&self) -> &[TopologyEdge] {
        &self.edges
    }

    /// Returns the edges that are tried at the node of an edge for the packets that may take it, in
    /// the order of the text: at a port, those of both directions.
    pub fn edges_beside(&self, edge: EdgeId) -> impl Iterator<Item = EdgeId> {
        let mut all = self.ports.iter().map(|port| &port.entry).chain(self.branches.iter().flatten());
        let is_of = |branch: &&Branch| {
            branch.unmatched == edge || branch.targets.iter().any(|target| target.edge == edge)
        };
        all.find(is_of).into_iter().flat_map(|branch| branch.targets.iter().map(|target| target.edge))
    }

    /// Returns the fields that filters read and that may differ between packets of a flow.
    pub fn reads(&self) -> FilterReads {
        self.reads
    }

    /// Returns the first edge that takes a packet that enters by this port: the side of its
    /// direction, the next stop and the edge. None if there is no such port.
    pub fn enter(&self, port: u16, packet: &impl FilterInput) -> Option<(Side, Hop, EdgeId)> {
        let node = self.port(port)?;
        let target = node.entry.first(packet, node.side.unwrap_or_default());
        Some((target.side, target.hop, target.edge))
    }

    /// Returns the first edge of this side that takes a packet which enters by this port.
    pub fn enter_from(&self, port: u16, side: Side, packet: &impl FilterInput) -> Option<(Hop, EdgeId)> {
        let target = self.port(port)?.entries[side as usize].first(packet, side);
        Some((target.hop, target.edge))
    }

    /// Returns the side of all packets that enter by a port, if it is the same for all.
    #[inline]
    pub fn side_of_port(&self, port: u16) -> Option<Side> {
        match self.sides.get(usize::from(port)) {
            Some(EntrySides::Only(side)) => Some(*side),
            _ => None,
        }
    }

    /// Returns true if the filters at a port may decide differently about packets of one flow.
    pub fn entry_reads(&self, port: u16) -> FilterReads {
        self.port(port).map(|port| port.entry.reads).unwrap_or_default()
    }

    /// Returns the next stop of a packet of this side after a function, and the edge to it.
    pub fn next(&self, stage: usize, side: Side, packet: &impl FilterInput) -> (Hop, EdgeId) {
        let target = self.branches[stage][side as usize].first(packet, side);
        (target.hop, target.edge)
    }

    /// Returns the fields that filters after a function read and that may differ between packets of
    /// a flow.
    #[inline]
    pub fn branch_reads(&self, stage: usize, side: Side) -> FilterReads {
        self.branches[stage][side as usize].reads
    }

    /// Returns true if filters after a function read attributes and nothing else: packets with the
    /// same ones take the same edge.
    #[inline]
    pub fn is_by_attributes(&self, stage: usize, side: Side) -> bool {
        self.branches[stage][side as usize].is_by_attributes
    }

    /// Returns the first edge from a function to this stop.
    pub fn edge_to(&self, stage: usize, side: Side, hop: Hop) -> Option<EdgeId> {
        self.branches[stage][side as usize].edge_to(hop)
    }

    /// Returns the first edge of this side from a port to this stop.
    pub fn entry_edge_to(&self, port: u16, side: Side, hop: Hop) -> Option<EdgeId> {
        self.port(port)?.entries[side as usize].edge_to(hop)
    }

    /// Returns the number of the first port with this port's name.
    pub fn first_number(&self, port: u16) -> u16 {
        self.port(port).map_or(port, |node| *node.numbers.start())
    }

    /// Returns the canonical stop: of several ports with one name, the first.
    pub(crate) fn stop(&self, hop: Hop) -> Hop {
        match hop {
            Hop::End(RouteEnd::Port(port)) => Hop::End(RouteEnd::Port(self.first_number(port))),
            hop => hop,
        }
    }

    /// Returns true if replies have edges all the way back: from the port `to` over the functions
    /// of a path with packets of this side, to the port `from`.
    pub fn is_answerable(&self, path: NfSet, side: Side, (from, to): (u16, u16)) -> bool {
        let (back, mut left) = (side.other(), path);
        let end = Hop::End(RouteEnd::Port(self.first_number(from)));
        let Some(first) = left.first(back) else {
            return self.entry_edge_to(to, back, end).is_some();
        };
        let mut at = first;
        if self.entry_edge_to(to, back, Hop::Stage(at)).is_none() {
            return false;
        }
        loop {
            left = left.after(at, back);
            let Some(next) = left.first(back) else { return self.edge_to(at, back, end).is_some() };
            if self.edge_to(at, back, Hop::Stage(next)).is_none() {
                return false;
            }
            at = next;
        }
    }

    /// Returns, for each function, the other functions that its flows may visit: on one path, or on
    /// several if filters may differ between packets of a flow.
    pub fn companions(&self) -> Vec<NfSet> {
        let reach = [Side::Inside, Side::Outside].map(|side| self.reach(side));
        let mut companions = vec![NfSet::default(); self.nfs.len()];
        for (stage, companion) in companions.iter_mut().enumerate() {
            companion.add(stage);
            reach.iter().for_each(|reach| companion.0 |= reach[stage].0);
        }
        for (stage, branches) in self.branches.iter().enumerate() {
            for (branch, reach) in branches.iter().zip(&reach) {
                if branch.reads.is_any() {
                    let all = reach[stage];
                    all.iter().for_each(|one| companions[one].0 |= all.0);
                }
            }
        }
        for port in self.ports.iter().filter(|port| port.entry.reads.is_any()) {
            let mut all = NfSet::default();
            for target in &port.entry.targets {
                if let Hop::Stage(first) = target.hop {
                    all.add(first);
                    all.0 |= reach[target.side as usize][first].0;
                }
            }
            all.iter().for_each(|one| companions[one].0 |= all.0);
        }
        // The relation is symmetric.
        for stage in 0..companions.len() {
            companions[stage].iter().for_each(|other| companions[other].add(stage));
        }
        companions
    }

    /// Returns, for each function, the functions that packets of a side may visit after it.
    fn reach(&self, side: Side) -> Vec<NfSet> {
        let count = self.nfs.len();
        let mut reach = vec![NfSet::default(); count];
        for step in 0..count {
            // The last ones first.
            let stage = if side == Side::Inside { count - 1 - step } else { step };
            for target in &self.branches[stage][side as usize].targets {
                if let Hop::Stage(next) = target.hop {
                    let behind = reach[next];
                    reach[stage].0 |= behind.0;
                    reach[stage].add(next);
                }
            }
        }
        reach
    }

    fn port(&self, number: u16) -> Option<&PortNode> {
        self.ports.iter().find(|port| port.numbers.contains(&number))
    }
}
