//! Pictures of a policy's graph, for people: as text and as SVG.
//!
//! Only forward edges are drawn; an edge with a way back has two heads. Ports where packets enter
//! are on the left, ports where they leave on the right; so a port may be drawn twice.

mod svg;

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::pipelet::{Edge, EdgeDirection, Node};
use crate::policy::Policy;

impl Policy {
    /// Returns the graph as text: each node with its edges, in the order of their tests. `notes`
    /// has texts at the edges, in the order of [`all_edges`](crate::PolicyGraph::all_edges); there
    /// may be fewer.
    pub fn graph_text(&self, notes: &[String]) -> String {
        let drawing = Drawing::new(self, notes);
        let mut text = String::new();
        for (at, drawn) in drawing.nodes.iter().enumerate() {
            let mut edges = drawing.edges.iter().filter(|edge| edge.from == at).peekable();
            if edges.peek().is_none() {
                continue;
            }
            let _ = writeln!(text, "{}", drawn.title());
            while let Some(edge) = edges.next() {
                let corner = if edges.peek().is_some() { '├' } else { '└' };
                let (tail, filter) = (if edge.is_both_ways { "<" } else { "─" }, edge.filter.as_deref());
                let filter = filter.map_or_else(String::new, |filter| format!(" {filter} ─"));
                let note = edge.note.as_ref().map_or_else(String::new, |note| format!("  {note}"));
                let _ = writeln!(text, "  {corner}{tail}─{filter}> {}{note}", drawing.nodes[edge.to].name);
            }
        }
        text
    }

    /// Returns the graph as an SVG image. `notes`: see [`Policy::graph_text`].
    pub fn graph_svg(&self, notes: &[String]) -> String {
        svg::draw(&Drawing::new(self, notes))
    }
}

/// The nodes and edges to draw.
struct Drawing {
    /// In the order of their ranks.
    nodes: Vec<DrawnNode>,
    /// The edges of a node are in the order of their tests.
    edges: Vec<DrawnEdge>,
}

struct DrawnNode {
    name: String,
    /// Type of an NF, or numbers of ports.
    kind: String,
    shape: Shape,
    /// Length of the longest path from a port to here.
    rank: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Shape {
    Port,
    Nf,
    Drop,
}

struct DrawnEdge {
    from: usize,
    to: usize,
    filter: Option<String>,
    /// A text at the edge: of the edge, and of the one back.
    note: Option<String>,
    is_both_ways: bool,
}

/// A node of the drawing: ports where packets enter are other nodes than those where they leave.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum End {
    Entry(usize),
    Inner(Node),
    /// An external node, with two ports drawn as one: an index in [`Policy::externals`].
    External(usize),
}

impl Drawing {
    fn new(policy: &Policy, notes: &[String]) -> Drawing {
        let graph = policy.graph();
        let note = |edge: &Edge| {
            let number = graph.all_edges().position(|other| std::ptr::eq(other, edge))?;
            notes.get(number)
        };
        let edges = graph.all_edges().filter(|edge| edge.direction == EdgeDirection::Forward);
        let edges: Vec<&Edge> = edges.collect();
        let ends = |edge: &Edge| {
            let external = |node| match node {
                Node::Port(port) => {
                    policy.externals.iter().position(|of| [of.inside, of.outside].contains(&port))
                }
                Node::Nf(_) | Node::Drop => None,
            };
            let from = match (edge.from, external(edge.from)) {
                (_, Some(node)) => End::External(node),
                (Node::Port(port), None) => End::Entry(port),
                (other, None) => End::Inner(other),
            };
            (from, external(edge.to).map_or(End::Inner(edge.to), End::External))
        };
        let ranks = ranks(&edges.iter().map(|edge| ends(edge)).collect::<Vec<_>>());
        let mut order: Vec<(usize, End)> = ranks.iter().map(|(end, rank)| (*rank, *end)).collect();
        order.sort_unstable();
        let places: BTreeMap<End, usize> =
            order.iter().enumerate().map(|(at, (_, end))| (*end, at)).collect();
        let nodes = order.iter().map(|&(rank, end)| DrawnNode::new(policy, end, rank)).collect();
        let edges = edges.into_iter().map(|edge| {
            let (from, to) = ends(edge);
            let mut back = graph.edges(edge.to, None);
            let back = back.find(|back| back.to == edge.from && back.span == edge.span);
            DrawnEdge {
                from: places[&from],
                to: places[&to],
                filter: edge.filter_span.map(|span| policy.report.sources.slice(span).to_owned()),
                note: match (note(edge), back.and_then(note)) {
                    (Some(forth), Some(back)) => Some(format!("{forth}, back {back}")),
                    (forth, _) => forth.cloned(),
                },
                is_both_ways: back.is_some(),
            }
        });
        Drawing { nodes, edges: edges.collect() }
    }
}

impl DrawnNode {
    fn new(policy: &Policy, end: End, rank: usize) -> DrawnNode {
        let (name, kind, shape) = match end {
            End::Entry(port) | End::Inner(Node::Port(port)) => {
                let port = &policy.ports[port];
                let (first, last) = (port.numbers.start(), port.numbers.end());
                let kind =
                    if first == last { format!("port {first}") } else { format!("ports {first}-{last}") };
                (port.name.clone(), kind, Shape::Port)
            }
            End::External(node) => {
                let node = &policy.externals[node];
                (node.name.clone(), node.kind.type_name().to_owned(), Shape::Nf)
            }
            End::Inner(Node::Nf(nf)) => {
                (policy.nfs[nf].name.clone(), policy.nfs[nf].type_name.clone(), Shape::Nf)
            }
            End::Inner(Node::Drop) => ("Drop".to_owned(), String::new(), Shape::Drop),
        };
        DrawnNode { name, kind, shape, rank }
    }

    fn title(&self) -> String {
        format!("{} ({})", self.name, self.kind)
    }
}

/// Returns the length of the longest path to each node. Policies have no cycles.
fn ranks(edges: &[(End, End)]) -> BTreeMap<End, usize> {
    let mut incoming: BTreeMap<End, usize> = BTreeMap::new();
    let mut outgoing: BTreeMap<End, Vec<End>> = BTreeMap::new();
    for &(from, to) in edges {
        incoming.entry(from).or_default();
        *incoming.entry(to).or_default() += 1;
        outgoing.entry(from).or_default().push(to);
    }
    let mut ranks: BTreeMap<End, usize> = incoming.keys().map(|end| (*end, 0)).collect();
    let mut free: Vec<End> = incoming.iter().filter(|(_, count)| **count == 0).map(|(end, _)| *end).collect();
    while let Some(from) = free.pop() {
        for to in outgoing.remove(&from).unwrap_or_default() {
            let rank = ranks[&from] + 1;
            ranks.entry(to).and_modify(|known| *known = rank.max(*known));
            if let Some(count) = incoming.get_mut(&to) {
                *count -= 1;
                if *count == 0 {
                    free.push(to);
                }
            }
        }
    }
    ranks
}
