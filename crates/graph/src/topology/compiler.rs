//! Compiling a policy's graph into a topology.

use std::collections::{BTreeMap, BTreeSet};

use packet::Side;
use policy::{Edge, EdgeDirection, Filter, Node, Policy, PolicyGraph};

use super::branch::{Branch, Target};
use super::{
    AttributePart, BRANCHING_NFS_MAX, EdgeId, EntrySides, ExternalAttributes, FilterReads, Hop, PortNode,
    RouteEnd, Topology, TopologyEdge, TopologyError,
};

/// Compiles the graph of a policy.
pub(super) fn compile(policy: &Policy) -> Result<Topology, TopologyError> {
    let graph = policy.graph();
    let all = || graph.all_edges();
    if all().next().is_none() {
        return Err(TopologyError::Empty);
    }
    // Each node also counts packets that no edge takes.
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
            let edges: Vec<&Edge> = edges.iter().copied().filter(|e| side_of(e.direction) == side).collect();
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
    let (external, parts) = (external_attributes(policy), attribute_parts(policy));
    Ok(Topology { nfs, ports, sides, branches, edges, is_line, reads, external, parts })
}

/// Returns the attributes that travel through each external node.
fn external_attributes(policy: &Policy) -> Vec<ExternalAttributes> {
    let external = policy.externals.iter().map(|node| ExternalAttributes {
        ports: [node.outside, node.inside].map(|port| *policy.ports[port].numbers.start()),
        attributes: policy.travelling(node),
    });
    external.filter(|of| !of.attributes.is_empty()).collect()
}

/// Returns the parts of functions' first attributes.
fn attribute_parts(policy: &Policy) -> Vec<AttributePart> {
    let mut parts = Vec::new();
    for (owner, nf) in policy.nfs.iter().enumerate() {
        let mut first = 0;
        for set in &nf.sets {
            parts.push(AttributePart { owner, name: set.name.clone(), first, bits: set.bits });
            first += u32::from(set.bits);
        }
    }
    parts
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
            (edge, Target { hop: self.hop(edge.to), side: side_of(edge.direction), edge: id })
        });
        Branch::new(&targets.collect::<Vec<_>>())
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
