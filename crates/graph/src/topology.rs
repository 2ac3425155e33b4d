//! The topology of a graph: which function a packet visits next.
//!
//! Functions are numbered in topological order: packets on forward edges visit them in ascending
//! order, packets on reverse edges in descending order. A packet's side is the direction of its
//! edges: one that entered on a forward edge came from inside.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::RangeInclusive;

use packet::Side;
use policy::{
    Edge, EdgeDirection, Filter, FilterInput, FilterNumberField, FilterTable, Node, Policy, PolicyGraph,
    TravellingAttribute,
};

/// Limit on the functions of a graph with branches: a flow's path has a bit for each.
pub const BRANCHING_NFS_MAX: usize = 64;

/// A set of functions of a graph. A graph without branches may have more than
/// [`BRANCHING_NFS_MAX`]; then [`NfSet::ALL`] has them all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NfSet(pub u64);

impl NfSet {
    /// All functions.
    pub const ALL: NfSet = NfSet(u64::MAX);

    /// Checks if the set has a function.
    #[inline(always)]
    pub fn has(self, stage: usize) -> bool {
        stage >= BRANCHING_NFS_MAX || self.0 >> stage & 1 != 0
    }

    /// Adds a function.
    #[inline(always)]
    pub fn add(&mut self, stage: usize) {
        self.0 |= NfSet::only(stage).0;
    }

    /// Returns the functions that packets of this side visit after `stage`.
    #[inline]
    pub fn after(self, stage: usize, side: Side) -> NfSet {
        let below = NfSet::only(stage).0.wrapping_sub(1);
        match side {
            Side::Inside => NfSet(self.0 & !below & !NfSet::only(stage).0),
            Side::Outside => NfSet(self.0 & below),
        }
    }

    /// Returns the functions that packets of this side have visited behind `stage`.
    #[inline]
    pub fn up_to(self, stage: usize, side: Side) -> NfSet {
        NfSet(self.0 & !self.after(stage, side).0)
    }

    /// Returns the function that packets of this side visit first.
    #[inline]
    pub fn first(self, side: Side) -> Option<usize> {
        let first = match side {
            Side::Inside => self.0.trailing_zeros(),
            Side::Outside => 63_u32.wrapping_sub(self.0.leading_zeros()),
        };
        (self.0 != 0).then_some(first as usize)
    }

    /// Returns the functions in ascending order.
    pub fn iter(self) -> impl Iterator<Item = usize> {
        let mut left = self.0;
        std::iter::from_fn(move || {
            let stage = (left != 0).then(|| left.trailing_zeros() as usize)?;
            left &= left - 1;
            Some(stage)
        })
    }

    fn only(stage: usize) -> NfSet {
        NfSet(1_u64.checked_shl(stage as u32).unwrap_or(0))
    }
}

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
    /// By number of a port, the sides of packets that enter there.
    sides: Vec<EntrySides>,
    /// By function, for packets from inside and from outside.
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
    /// Numbers of the ports where packets come back that take forward edges, and reverse edges.
    pub ports: [u16; 2],
    pub attributes: Vec<TravellingAttribute>,
}

/// The fields that filters read and that may differ between packets of a flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FilterReads {
    /// TCP flags.
    pub tcp_flags: bool,
    /// The DSCP.
    pub dscp: bool,
    /// VLAN identifiers.
    pub vlan: bool,
    /// Attributes.
    pub attributes: bool,
}

impl FilterReads {
    fn add(&mut self, filter: &Filter) {
        match filter {
            Filter::Always(_) | Filter::Address { .. } => {}
            Filter::Not(inner) => self.add(inner),
            Filter::All(parts) | Filter::Any(parts) => parts.iter().for_each(|part| self.add(part)),
            Filter::Number { field: FilterNumberField::Dscp, .. } => self.dscp = true,
            Filter::Number { field: FilterNumberField::Vlan, .. } => self.vlan = true,
            Filter::Number { .. } => {}
            Filter::TcpFlags { .. } => self.tcp_flags = true,
            Filter::Attribute { .. } => self.attributes = true,
        }
    }

    fn or(self, other: FilterReads) -> FilterReads {
        FilterReads {
            tcp_flags: self.tcp_flags || other.tcp_flags,
            dscp: self.dscp || other.dscp,
            vlan: self.vlan || other.vlan,
            attributes: self.attributes || other.attributes,
        }
    }

    /// Returns true if any is read.
    pub fn is_any(self) -> bool {
        self != FilterReads::default()
    }
}

/// A port, or several with one name.
#[derive(Clone, Debug)]
struct PortNode {
    numbers: RangeInclusive<u16>,
    /// The edges of packets that begin a flow.
    entry: Branch,
    /// Those of packets whose side is known.
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

/// The edges that packets of one side take from a node; those of both sides from a port.
#[derive(Clone, Debug, Default)]
struct Branch {
    targets: Vec<Target>,
    /// The first edge to each stop.
    stops: Vec<Target>,
    /// The filters, compiled; none if the first edge takes all packets.
    table: Option<FilterTable>,
    reads: FilterReads,
    /// True if filters read attributes and nothing else.
    is_by_attributes: bool,
    /// Counts packets that no edge takes.
    unmatched: EdgeId,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Target {
    hop: Hop,
    side: Side,
    edge: EdgeId,
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
    /// Compiles the graph of a policy. Functions that no edge reaches or leaves have no place in
    /// it.
    ///
    /// # Errors
    /// If it is empty or exceeds a limit.
    pub fn new(policy: &Policy) -> Result<Topology, TopologyError> {
        let graph = policy.graph();
        let all = || graph.all_edges();
        if all().next().is_none() {
            return Err(TopologyError::Empty);
        }
        // Beside the edges, each node counts packets that none of them takes.
        let nodes = policy.ports.len() + 2 * policy.nfs.len();
        if all().count() + nodes > usize::from(EdgeId::MAX) {
            return Err(TopologyError::TooManyEdges);
        }
        let ids: BTreeMap<*const Edge, EdgeId> = all().map(std::ptr::from_ref).zip(0..).collect();
        let nfs = topological_order(policy, all());
        let is_line = is_line(&graph, policy.ports.len());
        if !is_line && nfs.len() > BRANCHING_NFS_MAX {
            return Err(TopologyError::TooManyNfs(nfs.len()));
        }
        let compiler = Compiler { policy, nfs: &nfs, ids };
        let ports = policy.ports.iter().enumerate().map(|(port, entry)| {
            let edges: Vec<&Edge> = graph.edges(Node::Port(port), None).collect();
            let first = edges.first().map(|edge| edge.direction);
            let side = first.filter(|first| edges.iter().all(|edge| edge.direction == *first)).map(side_of);
            let of_side = |side| {
                let edges: Vec<&Edge> =
                    edges.iter().copied().filter(|e| side_of(e.direction) == side).collect();
                compiler.branch(&edges)
            };
            let entries = [Side::Inside, Side::Outside].map(of_side);
            PortNode { numbers: entry.numbers.clone(), entry: compiler.branch(&edges), entries, side }
        });
        let mut ports: Vec<PortNode> = ports.collect();
        let branches = nfs.iter().map(|&nf| {
            [EdgeDirection::Forward, EdgeDirection::Reverse].map(|direction| {
                let edges: Vec<&Edge> = graph.edges(Node::Nf(nf), Some(direction)).collect();
                compiler.branch(&edges)
            })
        });
        let mut branches: Vec<[Branch; 2]> = branches.collect();
        let mut edges: Vec<TopologyEdge> = all().map(|edge| compiler.describe(edge)).collect();
        let mut unmatched = |name: &str, side| {
            edges.push(TopologyEdge { from: name.to_owned(), to: None, side, filter: None });
            (edges.len() - 1) as EdgeId
        };
        for (port, entry) in ports.iter_mut().zip(&policy.ports) {
            let number = unmatched(&entry.name, port.side.unwrap_or_default());
            port.entry.unmatched = number;
            port.entries.iter_mut().for_each(|entry| entry.unmatched = number);
        }
        for (branches, &nf) in branches.iter_mut().zip(&nfs) {
            for (branch, side) in branches.iter_mut().zip([Side::Inside, Side::Outside]) {
                branch.unmatched = unmatched(&policy.nfs[nf].name, side);
            }
        }
        let reads = branches.iter().flatten().chain(ports.iter().map(|port| &port.entry));
        let reads = reads.fold(FilterReads::default(), |reads, branch| reads.or(branch.reads));
        let last = ports.iter().map(|port| *port.numbers.end()).max().unwrap_or_default();
        let mut sides = vec![EntrySides::Either; usize::from(last) + 1];
        for port in &ports {
            let of_port = port.side.map_or(EntrySides::Either, EntrySides::Only);
            port.numbers.clone().for_each(|number| sides[usize::from(number)] = of_port);
        }
        let external = policy.externals.iter().map(|node| ExternalAttributes {
            ports: [node.outside, node.inside].map(|port| *policy.ports[port].numbers.start()),
            attributes: policy.travelling(node),
        });
        let external = external.filter(|of| !of.attributes.is_empty()).collect();
        let mut parts = Vec::new();
        for (owner, nf) in policy.nfs.iter().enumerate() {
            let mut first = 0;
            for set in &nf.sets {
                parts.push(AttributePart { owner, name: set.name.clone(), first, bits: set.bits });
                first += u32::from(set.bits);
            }
        }
        Ok(Topology { nfs, ports, sides, branches, edges, is_line, reads, external, parts })
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

    /// Returns true if packets of this side may come from a function to a port.
    pub fn reaches(&self, stage: usize, side: Side, port: u16) -> bool {
        let mut behind = self.reach(side)[stage];
        behind.add(stage);
        let end = Hop::End(RouteEnd::Port(self.first_number(port)));
        behind.iter().any(|one| self.branches[one][side as usize].edge_to(end).is_some())
    }

    /// Returns true if packets from a port may come to a function.
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
    /// [`PolicyGraph::all_edges`], then packets that no edge takes. Of several edges between the
    /// same nodes, the later ones have a number: `a -> b #2`.
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

    /// Returns the edges that are tried at the node of an edge for packets like those that take it,
    /// in the order of the text: at a port, those of both directions.
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

    /// Returns the next stop of a packet of this side behind a function, and the edge to it.
    pub fn next(&self, stage: usize, side: Side, packet: &impl FilterInput) -> (Hop, EdgeId) {
        let target = self.branches[stage][side as usize].first(packet, side);
        (target.hop, target.edge)
    }

    /// Returns the fields that filters behind a function read and that may differ between packets
    /// of a flow.
    #[inline]
    pub fn branch_reads(&self, stage: usize, side: Side) -> FilterReads {
        self.branches[stage][side as usize].reads
    }

    /// Returns true if filters behind a function read attributes and nothing else: packets with the
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

    /// Returns the number of the first of the ports that have the name of this one.
    pub fn first_number(&self, port: u16) -> u16 {
        self.port(port).map_or(port, |node| *node.numbers.start())
    }

    /// Returns true if replies find edges all the way back: from the port `to` over the functions
    /// of a path, whose packets have this side, to the port `from`.
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

    /// Returns, for each function, those that a flow which visits it may visit, too: on one path,
    /// or on several between which filters decide that may differ between packets of a flow.
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
        // If one may visit another, that one may visit the first.
        for stage in 0..companions.len() {
            companions[stage].iter().for_each(|other| companions[other].add(stage));
        }
        companions
    }

    /// By function, those that packets of a side may visit behind it.
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

impl Branch {
    fn first(&self, packet: &impl FilterInput, side: Side) -> Target {
        let place = match &self.table {
            Some(table) => table.first(packet),
            None => Some(0),
        };
        let unmatched = Target { hop: Hop::End(RouteEnd::Unmatched), side, edge: self.unmatched };
        place.and_then(|place| self.targets.get(place)).copied().unwrap_or(unmatched)
    }

    fn edge_to(&self, hop: Hop) -> Option<EdgeId> {
        self.stops.iter().find(|stop| stop.hop == hop).map(|stop| stop.edge)
    }
}

/// Compiles the edges of nodes, and numbers them.
struct Compiler<'p> {
    policy: &'p Policy,
    nfs: &'p [usize],
    ids: BTreeMap<*const Edge, EdgeId>,
}

impl Compiler<'_> {
    fn describe(&self, edge: &Edge) -> TopologyEdge {
        let (from, to) = (self.name(edge.from), Some(self.name(edge.to)));
        let filter = edge.filter_span.map(|span| self.policy.report.sources.slice(span).to_owned());
        TopologyEdge { from, to, side: side_of(edge.direction), filter }
    }

    fn branch(&self, edges: &[&Edge]) -> Branch {
        let targets = edges.iter().map(|&edge| {
            let id = self.ids.get(&std::ptr::from_ref(edge)).copied().unwrap_or_default();
            Target { hop: self.hop(edge.to), side: side_of(edge.direction), edge: id }
        });
        let targets: Vec<Target> = targets.collect();
        let mut stops: Vec<Target> = Vec::new();
        for target in &targets {
            if !stops.iter().any(|stop| (stop.hop, stop.side) == (target.hop, target.side)) {
                stops.push(*target);
            }
        }
        let takes_all = edges.first().is_none_or(|edge| edge.filter == Filter::Always(true));
        let filters = edges.iter().map(|edge| &edge.filter);
        let mut reads = FilterReads::default();
        filters.clone().for_each(|filter| reads.add(filter));
        if takes_all {
            reads = FilterReads::default();
        }
        let is_by_attributes = !takes_all && filters.clone().all(reads_attributes_only);
        let table = (!takes_all).then(|| FilterTable::new(filters));
        Branch { targets, stops, table, reads, is_by_attributes, unmatched: 0 }
    }

    fn hop(&self, node: Node) -> Hop {
        match node {
            Node::Nf(nf) => match self.nfs.iter().position(|&of| of == nf) {
                Some(stage) => Hop::Stage(stage),
                None => Hop::End(RouteEnd::Unmatched),
            },
            Node::Port(port) => Hop::End(RouteEnd::Port(*self.policy.ports[port].numbers.start())),
            Node::Drop => Hop::End(RouteEnd::Drop),
        }
    }

    fn name(&self, node: Node) -> String {
        match node {
            Node::Nf(nf) => self.policy.nfs[nf].name.clone(),
            Node::Port(port) => self.policy.ports[port].name.clone(),
            Node::Drop => "Drop".to_owned(),
        }
    }
}

fn reads_attributes_only(filter: &Filter) -> bool {
    match filter {
        Filter::Always(_) | Filter::Attribute { .. } => true,
        Filter::Not(inner) => reads_attributes_only(inner),
        Filter::All(parts) | Filter::Any(parts) => parts.iter().all(reads_attributes_only),
        Filter::Address { .. } | Filter::Number { .. } | Filter::TcpFlags { .. } => false,
    }
}

fn side_of(direction: EdgeDirection) -> Side {
    match direction {
        EdgeDirection::Forward => Side::Inside,
        EdgeDirection::Reverse => Side::Outside,
    }
}

/// Returns true if the graph is a line between two ports: one edge without a filter from each node
/// in each direction, and reverse edges everywhere or nowhere.
fn is_line(graph: &PolicyGraph<'_>, ports: usize) -> bool {
    let (mut forward, mut reverse) = (0, 0);
    for (node, edges) in graph.nodes() {
        let is_plain = |edge: &&Edge| edge.filter == Filter::Always(true) && edge.to != Node::Drop;
        if !edges.iter().all(is_plain) {
            return false;
        }
        let count = |direction| edges.iter().filter(|edge| edge.direction == direction).count();
        let (forth, back) = (count(EdgeDirection::Forward), count(EdgeDirection::Reverse));
        if forth > 1 || back > 1 || matches!(node, Node::Port(_)) && forth + back > 1 {
            return false;
        }
        (forward, reverse) = (forward + forth, reverse + back);
    }
    let used = |port: usize| {
        let targets = graph.nodes().flat_map(|(_, edges)| edges.iter());
        targets.into_iter().any(|edge| [edge.from, edge.to].contains(&Node::Port(port)))
    };
    let entries = graph.nodes().filter(|(node, _)| matches!(node, Node::Port(_)));
    let begins = entries.filter(|(_, edges)| edges[0].direction == EdgeDirection::Forward).count();
    (0..ports).filter(|&port| used(port)).count() == 2 && begins == 1 && (reverse == 0 || reverse == forward)
}

/// Returns the functions on edges in topological order; of several that could come next, the first
/// one of the text.
fn topological_order<'e>(policy: &Policy, edges: impl Iterator<Item = &'e Edge>) -> Vec<usize> {
    let mut used = BTreeSet::new();
    let mut before: Vec<BTreeSet<usize>> = vec![BTreeSet::new(); policy.nfs.len()];
    for edge in edges {
        let (from, to) = match edge.direction {
            EdgeDirection::Forward => (edge.from, edge.to),
            EdgeDirection::Reverse => (edge.to, edge.from),
        };
        used.extend([from, to].iter().filter_map(|node| match node {
            Node::Nf(nf) => Some(*nf),
            Node::Port(_) | Node::Drop => None,
        }));
        if let (Node::Nf(from), Node::Nf(to)) = (from, to) {
            before[to].insert(from);
        }
    }
    let mut order = Vec::with_capacity(used.len());
    // A policy without circles always has one whose predecessors are all placed.
    while let Some(&next) = used.iter().find(|&&nf| before[nf].iter().all(|nf| order.contains(nf))) {
        used.remove(&next);
        order.push(next);
    }
    order
}

#[cfg(test)]
mod tests {
    use policy::{AttributeValue, FilterSide};

    use super::*;

    /// A packet to this TCP port.
    struct To(u16);

    impl FilterInput for To {
        fn address(&self, _: FilterSide) -> Option<std::net::IpAddr> {
            None
        }
        fn number(&self, field: FilterNumberField) -> Option<u64> {
            (field == FilterNumberField::DstPort).then_some(self.0.into())
        }
        fn tcp_flags(&self) -> Option<u8> {
            Some(2)
        }
        fn attribute(&self, _: usize, _: &str) -> Option<AttributeValue<'_>> {
            None
        }
    }

    fn topology(text: &str) -> Topology {
        let policy = Policy::read("test", text, &mut |_: &str| Err(String::new())).unwrap();
        Topology::new(&policy).unwrap()
    }

    const SITE: &str = "Port<0> lan; Port<1> dmz; Port<2> wan; A a; B b; C c;
        pipelet { lan [dst port 80] -> b -> Drop; lan <-> a <-> c <-> wan; lan <-> dmz; }
        pipelet { dmz [tcp flags syn] -> b; }";

    #[test]
    fn first_edge_of_the_text_takes_the_packet() {
        let site = topology(SITE);
        assert_eq!(site.nfs(), [0, 1, 2]);
        assert!(!site.is_line());
        let hop = |port, to| site.enter(port, &To(to)).map(|(side, hop, _)| (side, hop));
        assert_eq!(hop(0, 80), Some((Side::Inside, Hop::Stage(1))));
        assert_eq!(hop(0, 81), Some((Side::Inside, Hop::Stage(0))));
        assert_eq!(hop(2, 80), Some((Side::Outside, Hop::Stage(2))));
        assert_eq!(hop(1, 80), Some((Side::Outside, Hop::End(RouteEnd::Port(0)))));
        assert_eq!(site.next(1, Side::Inside, &To(80)).0, Hop::End(RouteEnd::Drop));
        assert_eq!(site.next(1, Side::Outside, &To(80)).0, Hop::End(RouteEnd::Unmatched));
        assert_eq!(
            [0, 1, 2].map(|port| site.side_of_port(port)),
            [Some(Side::Inside), None, Some(Side::Outside)]
        );
        assert_eq!(site.edges().iter().filter(|edge| edge.to.is_some()).count(), 11);
        let leads = |port| [0, 1, 2].map(|stage| site.leads(port, stage));
        assert_eq!([0, 1, 2].map(leads), [[true, true, true], [false, true, false], [true, false, true]]);
    }

    #[test]
    fn replies_need_edges_all_the_way_back() {
        let site = topology(SITE);
        let mut path = NfSet::default();
        path.add(0);
        path.add(2);
        assert!(site.is_answerable(path, Side::Inside, (0, 2)));
        path.add(1);
        assert!(!site.is_answerable(path, Side::Inside, (0, 2)));
        assert!(site.is_answerable(NfSet::default(), Side::Inside, (0, 1)));
    }

    #[test]
    fn exclusive_functions_are_no_companions() {
        let of = |text| topology(text).companions().iter().map(|set| set.iter().collect()).collect();
        let companions: Vec<Vec<usize>> = of(SITE);
        assert_eq!(companions, [vec![0, 2], vec![1], vec![0, 2]]);
        let by_flags = "Port<0> lan; Port<1> wan; A a; B b;
            pipelet { lan [tcp flags syn] -> a -> wan; lan -> b -> wan; }";
        let companions: Vec<Vec<usize>> = of(by_flags);
        assert_eq!(companions, [vec![0, 1], vec![0, 1]]);
    }

    #[test]
    fn lines_are_recognised() {
        let ports = "Port<0> lan; Port<1> wan; A a; B b;";
        for (text, is_line) in [
            ("lan <-> a <-> b <-> wan;", true),
            ("lan -> a -> b -> wan;", true),
            ("lan <-> wan;", true),
            ("lan -> a <-> b -> wan;", false),
            ("lan [tcp flags syn] -> a -> wan;", false),
            ("lan -> a -> Drop;", false),
            ("lan -> a -> wan; wan -> b -> lan;", false),
        ] {
            assert_eq!(topology(&format!("{ports} pipelet {{ {text} }}")).is_line(), is_line, "{text}");
        }
    }

    #[test]
    fn sets_are_walked_in_either_direction() {
        let mut set = NfSet::default();
        [0, 5, 63].into_iter().for_each(|stage| set.add(stage));
        assert_eq!(set.first(Side::Inside), Some(0));
        assert_eq!(set.first(Side::Outside), Some(63));
        assert_eq!(set.after(0, Side::Inside).first(Side::Inside), Some(5));
        assert_eq!(set.after(63, Side::Outside).first(Side::Outside), Some(5));
        assert_eq!(set.after(63, Side::Inside), NfSet::default());
        assert_eq!(set.up_to(5, Side::Inside).iter().collect::<Vec<_>>(), [0, 5]);
        assert_eq!(set.up_to(5, Side::Outside).iter().collect::<Vec<_>>(), [5, 63]);
        assert_eq!(set.after(0, Side::Outside).first(Side::Outside), None);
        assert!(NfSet::ALL.has(100) && !set.has(4));
    }
}
