//! Checks of pipelets: all nodes are known, and there is no cycle.

use std::collections::BTreeMap;

use super::{Checker, NamedKind};
use crate::ast::{Arrow, EdgeChain, File, Name, PolicyItem};
use crate::diagnostic::Diagnostic;
use crate::external::ExternalNode;
use crate::filter::Filter;
use crate::pipelet::{Edge, EdgeDirection, Node, Pipelet};
use crate::source::Span;

impl Checker<'_, '_> {
    pub(super) fn pipelets(&mut self, file: &File) -> Vec<Pipelet> {
        let mut names: BTreeMap<&str, Span> = BTreeMap::new();
        let mut result = Vec::new();
        for item in &file.items {
            let PolicyItem::Pipelet { keyword, name, chains } = item else { continue };
            if let Some(name) = name
                && let Some(first) = names.insert(&name.node, name.span)
            {
                let error =
                    Diagnostic::error(format!("two pipelets have the name `{}`", name.node), name.span);
                self.report.push(error.label(first, "the first one"));
            }
            let span = name.as_ref().map_or(keyword.span, |n| n.span);
            let edges: Vec<Edge> = chains.iter().flat_map(|chain| self.chain(chain)).collect();
            result.push(Pipelet { name: name.as_ref().map(|n| n.node.clone()), edges, span });
        }
        let edges: Vec<Edge> =
            result.iter().flat_map(|pipelet: &Pipelet| pipelet.edges.iter().cloned()).collect();
        self.check_circle(&edges);
        result
    }

    /// Warns of statements that are probably mistakes.
    pub(super) fn warn_of_pipelet(&mut self, pipelet: &Pipelet) {
        if pipelet.edges.is_empty() {
            self.report.push(Diagnostic::warning("the pipelet is empty", pipelet.span));
        }
        self.warn_repeated(&pipelet.edges);
        self.warn_ends(&pipelet.edges);
    }

    /// Returns the edges of one statement.
    fn chain(&mut self, chain: &EdgeChain) -> Vec<Edge> {
        let names = || chain.hops.iter().map(|h| &h.node).chain([&chain.last]);
        let nodes: Vec<Option<NamedNode>> = names().map(|name| self.node(name)).collect();
        for (name, node) in names().zip(&nodes).skip(1).take(chain.hops.len() - 1) {
            if matches!(node, Some(NamedNode::Inner(Node::Port(_)))) {
                let error = Diagnostic::error(
                    format!("the port `{}` is in the middle of a statement", name.node),
                    name.span,
                );
                self.report.push(error.help("packets leave at a port; write two statements"));
            }
        }
        let mut edges = Vec::new();
        for (at, hop) in chain.hops.iter().enumerate() {
            let filter = hop.filter.as_ref().map_or(Filter::Always(true), |f| self.filter(f));
            let filter_span = hop.filter.as_ref().map(|filter| filter.span);
            let both = hop.arrow.node == Arrow::Both;
            let target = names().nth(at + 1).filter(|n| Self::is_drop(n) && both);
            if let Some(name) = Self::is_drop(&hop.node).then_some(&hop.node).or(target) {
                let error = Diagnostic::error("`Drop` cannot be a source: no packets leave it", name.span);
                self.report.push(if both { error.help("write `->`") } else { error });
                continue;
            }
            let (Some(from), Some(to)) = (nodes[at], nodes[at + 1]) else { continue };
            let span = hop.arrow.span;
            if both {
                let direction = EdgeDirection::Reverse;
                let (from, to) = (self.source(to, direction), self.target(from, direction));
                let filter = filter.mirrored();
                edges.push(Edge { from, to, filter, filter_span, direction, span });
            }
            let direction = EdgeDirection::Forward;
            let (from, to) = (self.source(from, direction), self.target(to, direction));
            edges.push(Edge { from, to, filter, filter_span, direction, span });
        }
        // Forward edges in order, then reverse edges in theirs.
        let (mut forth, back): (Vec<Edge>, Vec<Edge>) =
            edges.into_iter().partition(|e| e.direction == EdgeDirection::Forward);
        forth.extend(back.into_iter().rev());
        forth
    }

    fn source(&self, node: NamedNode, direction: EdgeDirection) -> Node {
        match node {
            NamedNode::Inner(node) => node,
            NamedNode::External(at) => self.externals[at].source(direction),
        }
    }

    fn target(&self, node: NamedNode, direction: EdgeDirection) -> Node {
        match node {
            NamedNode::Inner(node) => node,
            NamedNode::External(at) => self.externals[at].target(direction),
        }
    }

    fn node(&mut self, name: &Name) -> Option<NamedNode> {
        if Self::is_drop(name) {
            return Some(NamedNode::Inner(Node::Drop));
        }
        self.used.insert(name.node.clone());
        match self.names.get(&name.node).map(|n| n.what) {
            Some(NamedKind::Port(at)) => Some(NamedNode::Inner(Node::Port(at))),
            Some(NamedKind::Nf(at)) => Some(NamedNode::Inner(Node::Nf(at))),
            Some(NamedKind::External(at)) => Some(NamedNode::External(at)),
            Some(NamedKind::Value) => {
                let message = format!("`{}` is a value, not a port or NF", name.node);
                self.report.push(Diagnostic::error(message, name.span));
                None
            }
            None => {
                let pick = |what| what != NamedKind::Value;
                self.unknown("port or NF", &name.node, name.span, pick, &["Drop"]);
                None
            }
        }
    }

    fn warn_repeated(&mut self, edges: &[Edge]) {
        let mut seen: BTreeMap<(Node, Node, EdgeDirection), Vec<&Edge>> = BTreeMap::new();
        for edge in edges {
            let same = seen.entry((edge.from, edge.to, edge.direction)).or_default();
            if let Some(first) = same.iter().find(|e| e.filter == edge.filter) {
                let warning = Diagnostic::warning("duplicate edge", edge.span);
                self.report.push(warning.label(first.span, "the first one"));
            } else if same.len() < COMPARED_MAX {
                same.push(edge);
            }
        }
    }

    /// Rejects cycles of forward edges between NFs and external nodes, across pipelets. Reverse
    /// edges are mirrored forward edges, so they have none either, and ports end every path. A
    /// pipelet is a DAG (E2).
    fn check_circle(&mut self, edges: &[Edge]) {
        let forward = edges.iter().filter(|e| e.direction == EdgeDirection::Forward);
        let inner: Vec<(usize, usize, Span)> =
            forward.filter_map(|e| Some((self.inner(e.from)?, self.inner(e.to)?, e.span))).collect();
        if inner.is_empty() {
            return;
        }
        let Some(circle) = circle(self.nfs.len() + self.externals.len(), &inner) else { return };
        let mut names: Vec<&str> = circle.iter().map(|edge| self.inner_name(inner[*edge].0)).collect();
        names.push(names[0]);
        let shown = if names.len() > SHOWN_MAX {
            [&names[..SHOWN_MAX / 2], &["..."], &names[names.len() - SHOWN_MAX / 2..]].concat()
        } else {
            names
        };
        let last = circle[circle.len() - 1];
        let error = Diagnostic::error(format!("packets would loop: {}", shown.join(" -> ")), inner[last].2);
        let error = circle[..circle.len() - 1]
            .iter()
            .take(SHOWN_MAX)
            .fold(error.remark("this edge closes the loop"), |error, edge| error.label(inner[*edge].2, ""));
        self.report.push(error);
    }

    /// Numbers the nodes that packets pass: NFs, then external nodes.
    fn inner(&self, node: Node) -> Option<usize> {
        match node {
            Node::Nf(nf) => Some(nf),
            Node::Port(port) => {
                let is_own = |node: &ExternalNode| [node.inside, node.outside].contains(&port);
                self.externals.iter().position(is_own).map(|at| self.nfs.len() + at)
            }
            Node::Drop => None,
        }
    }

    /// Returns the name of a node by the number that [`Checker::inner`] gives it.
    fn inner_name(&self, at: usize) -> &str {
        let nf = self.nfs.get(at).map(|nf| nf.name.as_str());
        nf.unwrap_or_else(|| &self.externals[at - self.nfs.len()].name)
    }

    /// Warns of NFs and external nodes that packets do not reach or do not leave.
    fn warn_ends(&mut self, edges: &[Edge]) {
        let mut ways: BTreeMap<usize, (Option<Span>, Option<Span>)> = BTreeMap::new();
        for edge in edges {
            if let Some(from) = self.inner(edge.from) {
                ways.entry(from).or_default().1.get_or_insert(edge.span);
            }
            if let Some(to) = self.inner(edge.to) {
                ways.entry(to).or_default().0.get_or_insert(edge.span);
            }
        }
        for (node, way) in ways {
            let name = self.inner_name(node);
            let warning = match way {
                (Some(span), None) => {
                    Diagnostic::warning(format!("packets forwarded by `{name}` have no next node"), span)
                        .help(format!("write `{name} -> ...`, or `{name} -> Drop` to drop them"))
                }
                (None, Some(span)) => {
                    Diagnostic::warning(format!("no packet reaches `{name}` in this pipelet"), span)
                }
                _ => continue,
            };
            self.report.push(warning);
        }
    }
}

/// A node as a statement names it.
#[derive(Clone, Copy)]
enum NamedNode {
    /// A node of the graph.
    Inner(Node),
    /// An external node: two ports.
    External(usize),
}

/// Limit on the edges between the same nodes that a further one is compared with.
const COMPARED_MAX: usize = 16;
/// Limit on the nodes of a cycle that a message names.
const SHOWN_MAX: usize = 10;

/// Returns the edges of a cycle as indices, in order; `None` if there is none. An edge is (from,
/// to, _).
fn circle(nodes: usize, edges: &[(usize, usize, Span)]) -> Option<Vec<usize>> {
    let mut incoming = vec![0usize; nodes];
    let mut outgoing = vec![Vec::new(); nodes];
    for (edge, (from, to, _)) in edges.iter().enumerate() {
        incoming[*to] += 1;
        outgoing[*from].push(edge);
    }
    let mut free: Vec<usize> = (0..nodes).filter(|node| incoming[*node] == 0).collect();
    while let Some(node) = free.pop() {
        for edge in &outgoing[node] {
            let to = edges[*edge].1;
            incoming[to] -= 1;
            if incoming[to] == 0 {
                free.push(to);
            }
        }
    }
    // Every remaining node has an edge from another remaining one: walking backwards must repeat a
    // node.
    let mut into = vec![None; nodes];
    for (edge, (from, to, _)) in edges.iter().enumerate() {
        if incoming[*from] > 0 {
            into[*to] = Some(edge);
        }
    }
    let mut node = (0..nodes).find(|node| incoming[*node] > 0)?;
    let mut passed = vec![None; nodes];
    let mut way = Vec::new();
    while passed[node].is_none() {
        passed[node] = Some(way.len());
        let edge = into[node]?;
        way.push(edge);
        node = edges[edge].0;
    }
    let mut circle = way.split_off(passed[node]?);
    circle.reverse();
    // The edge written last closes the cycle.
    let last = circle.iter().enumerate().max_by_key(|(_, edge)| **edge).map_or(0, |(at, _)| at);
    let length = circle.len();
    circle.rotate_left((last + 1) % length);
    Some(circle)
}
