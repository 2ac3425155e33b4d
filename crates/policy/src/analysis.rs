//! Checks of a policy's graph, each shown with a packet that is its witness.
//!
//! The graph is walked along all paths from each port. A path's conditions are the filters of its
//! edges, and the negated filters of the edges that were tried before them. A search over the
//! values of header fields and attributes shows whether a packet meets them.
//!
//! Replies take their flow's path backwards, whatever the filters say. So reverse edges matter here
//! where packets enter, as one may take packets before a forward edge does; and a `<->` may be
//! meant for packets of new flows in reverse: if no order of the edges makes its forward edge
//! useful.

pub(crate) mod formula;
mod solver;
mod witness;

use std::collections::{BTreeMap, BTreeSet};

use formula::{Formula, History};
use solver::{Search, Solver};

pub use formula::FilterField;

use crate::ast::FilterSide;
use crate::diagnostic::Diagnostic;
use crate::external::TagCarrier;
use crate::filter::{Fields, Filter, FilterAddressSet};
use crate::graph::PolicyGraph;
use crate::pipelet::{Edge, EdgeDirection, Node};
use crate::policy::Policy;
use crate::source::Span;
use crate::suggest::similar;

/// Limit on the steps from node to node that an analysis follows.
pub const PATH_STEPS_MAX: usize = 20_000;

/// Facts about an NF that its type determines.
#[derive(Clone, Debug, Default)]
pub struct NfFacts {
    /// Attributes that it sets.
    pub attributes: Vec<String>,
    /// Fields that it may write.
    pub writes: Vec<FilterField>,
    /// Sources of the forward packets that it lets pass, and the place that names them; `None` for
    /// all.
    pub sources: Option<(FilterAddressSet, Span)>,
}

/// The addresses at a port that its configuration states.
#[derive(Clone, Debug, Default)]
pub struct PortFacts {
    /// Addresses of hosts at the port.
    pub behind: FilterAddressSet,
    /// Addresses of no host at the port: packets from them are forged.
    pub elsewhere: FilterAddressSet,
}

/// The result of an analysis.
#[derive(Clone, Debug)]
pub struct Analysis {
    /// Warnings and errors, in no particular order.
    pub diagnostics: Vec<Diagnostic>,
    /// False if the policy has too many paths or conditions: then some faults may be missing.
    pub is_complete: bool,
}

impl Policy {
    /// Analyses the graph of a policy. `facts` has those of each of [`Policy::nfs`], and `ports`
    /// those of each of [`Policy::ports`].
    ///
    /// Finds edges that no packet takes, packets that no edge takes, attributes that are read
    /// before they are set or that nothing sets, ports without a way for answers, and NFs that drop
    /// packets from a port's hosts.
    pub fn analyse(&self, facts: &[NfFacts], ports: &[PortFacts]) -> Analysis {
        let graph = self.graph();
        let mut analyser = Analyser {
            policy: self,
            graph: &graph,
            facts,
            ports,
            solver: Solver::new(),
            steps: 0,
            is_complete: true,
            edges: BTreeMap::new(),
            reverse: BTreeSet::new(),
            unmatched: BTreeMap::new(),
            early: BTreeMap::new(),
            one_way: BTreeMap::new(),
            strangers: BTreeMap::new(),
        };
        for port in 0..self.ports.len() {
            if graph.edges(Node::Port(port), Some(EdgeDirection::Forward)).next().is_some() {
                analyser.visit(&Visit::at_port(port, self.owners_at(port)));
            }
        }
        let is_untaken = |state: &EdgeState<'_>| matches!(state, EdgeState::Untaken { .. });
        if analyser.edges.values().any(is_untaken) {
            for port in 0..self.ports.len() {
                analyser.visit_in_reverse(&Visit::at_port(port, self.owners_at(port)));
            }
        }
        analyser.diagnostics()
    }
}

struct Analyser<'p> {
    policy: &'p Policy,
    graph: &'p PolicyGraph<'p>,
    facts: &'p [NfFacts],
    ports: &'p [PortFacts],
    solver: Solver,
    steps: usize,
    is_complete: bool,
    /// Edges of visited nodes.
    edges: BTreeMap<EdgeId, EdgeState<'p>>,
    /// The `<->` on the paths of new flows' packets to a port, or to `Drop`, in reverse.
    reverse: BTreeSet<Span>,
    /// Nodes where a packet finds no edge, with the packet.
    unmatched: BTreeMap<Node, Fields>,
    /// Reads of attributes: true if a visit came after the NF that sets it.
    early: BTreeMap<(EdgeId, String), (bool, &'p Edge)>,
    /// Edges without a way back, by the ports of the path, with a packet that takes it.
    one_way: BTreeMap<(usize, usize), (&'p Edge, Fields)>,
    /// Packets from a port's hosts that an NF drops, by port and NF.
    strangers: BTreeMap<(usize, usize), Fields>,
}

/// An edge: its source and position. Both edges of a `<->` have one position.
type EdgeId = (Node, Span);

/// The result of the visits to an edge.
enum EdgeState<'p> {
    /// A packet takes it.
    Taken,
    /// No packet takes it so far. A packet that passes its filter may be taken by an edge before.
    Untaken { edge: &'p Edge, hidden: Option<(&'p Edge, Fields)>, is_pointless: bool },
}

/// A node on a path, and the conditions on packets that come there.
#[derive(Clone)]
struct Visit<'p> {
    port: usize,
    node: Node,
    direction: Option<EdgeDirection>,
    history: History,
    conditions: Vec<Formula>,
    /// The first edge on the path without an edge back.
    one_way: Option<&'p Edge>,
}

impl Visit<'_> {
    /// Creates a visit to a port. Its packets may have the attributes of these NFs and external
    /// nodes.
    fn at_port(port: usize, owners: Vec<usize>) -> Self {
        Visit {
            port,
            node: Node::Port(port),
            direction: None,
            history: History { nfs: owners, ..History::default() },
            conditions: Vec::new(),
            one_way: None,
        }
    }
}

impl<'p> Analyser<'p> {
    fn visit(&mut self, visit: &Visit<'p>) {
        let edges: Vec<&Edge> = self.graph.edges(visit.node, visit.direction).collect();
        if edges.is_empty() {
            return; // Reported with the policy's other warnings.
        }
        let mut conditions = visit.conditions.clone();
        for (at, &edge) in edges.iter().enumerate() {
            self.note_attributes(visit, edge, &edge.filter);
            self.steps += 1;
            if self.steps > PATH_STEPS_MAX {
                self.is_complete = false;
                return;
            }
            if edge.direction == EdgeDirection::Reverse {
                conditions.push(visit.history.formula(&edge.filter, false));
                continue;
            }
            conditions.push(visit.history.formula(&edge.filter, true));
            match self.search(&conditions) {
                Search::Found(packet) => {
                    self.edges.insert((edge.from, edge.span), EdgeState::Taken);
                    self.follow(visit, edge, conditions.clone(), *packet);
                }
                Search::Impossible => self.note_untaken(visit, edge, &edges[..at]),
                Search::GaveUp => self.is_complete = false,
            }
            conditions.pop();
            conditions.push(visit.history.formula(&edge.filter, false));
        }
        conditions.extend(self.is_from_port(visit));
        match self.search(&conditions) {
            Search::Found(packet) => {
                self.unmatched.entry(visit.node).or_insert(*packet);
            }
            Search::Impossible => {}
            Search::GaveUp => self.is_complete = false,
        }
    }

    /// Returns the condition that the packet's source may be at its port, if some addresses cannot
    /// be: packets from them are forged. `None` if an NF may have written the source.
    fn is_from_port(&self, visit: &Visit<'p>) -> Option<Formula> {
        let elsewhere = &self.ports.get(visit.port)?.elsewhere;
        let is_written = visit.history.writes.contains_key(&FilterField::Address(FilterSide::Src));
        let is_known = *elsewhere != FilterAddressSet::default() && !is_written;
        let filter = Filter::Address { side: FilterSide::Src, set: elsewhere.complement() };
        is_known.then(|| visit.history.formula(&filter, true))
    }

    /// Follows packets of new flows on reverse edges, and returns whether one gets to a port or to
    /// `Drop`.
    fn visit_in_reverse(&mut self, visit: &Visit<'p>) -> bool {
        let edges: Vec<&Edge> = self.graph.edges(visit.node, visit.direction).collect();
        let mut conditions = visit.conditions.clone();
        let mut gets_out = false;
        for edge in edges {
            self.steps += 1;
            if self.steps > PATH_STEPS_MAX {
                self.is_complete = false;
                return gets_out;
            }
            if edge.direction == EdgeDirection::Reverse {
                conditions.push(visit.history.formula(&edge.filter, true));
                let is_taken = match self.search(&conditions) {
                    Search::Found(_) => match edge.to {
                        Node::Port(_) | Node::Drop => true,
                        Node::Nf(nf) => {
                            self.visit_in_reverse(&self.beyond(visit, edge, nf, conditions.clone()))
                        }
                    },
                    Search::Impossible => false,
                    // It may be.
                    Search::GaveUp => {
                        self.is_complete = false;
                        true
                    }
                };
                if is_taken {
                    self.reverse.insert(edge.span);
                    gets_out = true;
                }
                conditions.pop();
            }
            conditions.push(visit.history.formula(&edge.filter, false));
        }
        gets_out
    }

    /// Returns the visit to the NF at the end of an edge.
    fn beyond(&self, visit: &Visit<'p>, edge: &'p Edge, nf: usize, conditions: Vec<Formula>) -> Visit<'p> {
        let mut history = visit.history.clone();
        history.nfs.push(nf);
        for &field in self.facts.get(nf).map_or(&[][..], |facts| &facts.writes) {
            *history.writes.entry(field).or_default() += 1;
        }
        let (port, node, direction) = (visit.port, edge.to, Some(edge.direction));
        Visit { port, node, direction, history, conditions, one_way: visit.one_way }
    }

    fn search(&mut self, conditions: &[Formula]) -> Search {
        self.solver.search(&conditions.iter().collect::<Vec<_>>())
    }

    /// Visits the target of an edge that this packet takes.
    fn follow(&mut self, visit: &Visit<'p>, edge: &'p Edge, conditions: Vec<Formula>, packet: Fields) {
        let one_way = visit.one_way.or_else(|| (!self.has_way_back(edge)).then_some(edge));
        match edge.to {
            Node::Drop => {}
            Node::Port(port) => {
                if let Some(edge) = one_way {
                    self.one_way.entry((visit.port, port)).or_insert((edge, packet));
                }
            }
            Node::Nf(nf) => {
                self.note_strangers(visit, nf, &conditions);
                self.visit(&Visit { one_way, ..self.beyond(visit, edge, nf, conditions) });
            }
        }
    }

    /// Returns whether the edge is one of a `<->`.
    fn has_way_back(&self, edge: &Edge) -> bool {
        self.graph.edges(edge.to, None).any(|back| back.to == edge.from && back.span == edge.span)
    }

    /// Notes that no packet of this visit takes the edge, and which earlier edge takes the packets
    /// that pass its filter.
    fn note_untaken(&mut self, visit: &Visit<'p>, edge: &'p Edge, before: &[&'p Edge]) {
        let id = (edge.from, edge.span);
        if self.edges.contains_key(&id) {
            return;
        }
        let mut conditions = visit.conditions.clone();
        conditions.push(visit.history.formula(&edge.filter, true));
        let hidden = before.iter().find_map(|&first| {
            conditions.push(visit.history.formula(&first.filter, true));
            let found = self.search(&conditions);
            conditions.pop();
            match found {
                Search::Found(packet) => Some((first, *packet)),
                _ => None,
            }
        });
        // Moved up, it would take all packets of the edge that is taken now.
        let is_pointless = match &hidden {
            None => true,
            Some((first, _)) if first.direction == EdgeDirection::Reverse => false,
            Some((first, _)) => {
                conditions.pop();
                conditions.push(visit.history.formula(&first.filter, true));
                conditions.push(visit.history.formula(&edge.filter, false));
                matches!(self.search(&conditions), Search::Impossible)
            }
        };
        self.edges.insert(id, EdgeState::Untaken { edge, hidden, is_pointless });
    }

    /// Notes a packet from a port's host that reaches an NF and is dropped there for its source.
    /// Ignores sources that an earlier NF may have written.
    fn note_strangers(&mut self, visit: &Visit<'p>, nf: usize, conditions: &[Formula]) {
        let expected = self.facts.get(nf).and_then(|facts| facts.sources.as_ref());
        let (Some((expected, _)), Some(port)) = (expected, self.ports.get(visit.port)) else { return };
        let is_written = visit.history.writes.contains_key(&FilterField::Address(FilterSide::Src));
        if is_written || self.strangers.contains_key(&(visit.port, nf)) {
            return;
        }
        let set = port.behind.intersection(&expected.complement());
        let mut conditions = conditions.to_vec();
        conditions.push(visit.history.formula(&Filter::Address { side: FilterSide::Src, set }, true));
        match self.search(&conditions) {
            Search::Found(packet) => drop(self.strangers.insert((visit.port, nf), *packet)),
            Search::Impossible => {}
            Search::GaveUp => self.is_complete = false,
        }
    }

    /// Notes whether the attributes that a filter reads may be set already.
    fn note_attributes(&mut self, visit: &Visit<'p>, edge: &'p Edge, filter: &'p Filter) {
        match filter {
            Filter::Not(inner) => self.note_attributes(visit, edge, inner),
            Filter::All(parts) | Filter::Any(parts) => {
                parts.iter().for_each(|part| self.note_attributes(visit, edge, part));
            }
            Filter::Attribute { nfs, name, .. } => {
                let is_set = nfs.iter().any(|nf| visit.history.nfs.contains(nf));
                let owner = nfs.first().map_or("", |nf| self.policy.owner_name(*nf));
                let read = ((edge.from, edge.span), format!("{owner}.{name}"));
                self.early.entry(read).or_insert((false, edge)).0 |= is_set;
            }
            _ => {}
        }
    }

    fn name(&self, node: Node) -> &'p str {
        match node {
            Node::Port(port) => &self.policy.ports[port].name,
            Node::Nf(nf) => &self.policy.nfs[nf].name,
            Node::Drop => "Drop",
        }
    }

    fn diagnostics(mut self) -> Analysis {
        let mut diagnostics = self.unknown_attributes();
        for ((_, read), (is_set, edge)) in &self.early {
            if !is_set {
                let message = format!("`{read}` is never set where this filter reads it");
                let owner = read.split('.').next().unwrap_or_default();
                let travel = match self.policy.externals.iter().find(|node| node.tags == TagCarrier::None) {
                    None => String::new(),
                    Some(node) => format!("; attributes travel through `{}` only with `tags`", node.name),
                };
                diagnostics.push(
                    Diagnostic::warning(message, edge.span)
                        .help(format!("packets must pass `{owner}` before this edge{travel}")),
                );
            }
        }
        for state in std::mem::take(&mut self.edges).into_values() {
            let EdgeState::Untaken { edge, hidden, is_pointless } = state else { continue };
            let is_of_use = self.reverse.contains(&edge.span);
            if is_of_use && is_pointless {
                continue;
            }
            diagnostics.push(match hidden {
                Some((first, packet)) => Diagnostic::warning("no packet takes this edge", edge.span)
                    .remark(if is_of_use { "taken in reverse only" } else { "never taken" })
                    .label(
                        first.span,
                        format!("takes its packets: {}", witness::describe(&packet, self.policy)),
                    )
                    .help("the first edge in the text whose filter holds is taken; move this edge up"),
                None => {
                    let message =
                        format!("no packet that reaches `{}` passes this filter", self.name(edge.from));
                    Diagnostic::warning(message, edge.span)
                }
            });
        }
        for (node, packet) in &self.unmatched {
            let name = self.name(*node);
            let message = format!("packets at `{name}` that no edge takes are dropped (`policy-unmatched`)");
            let span = self.graph.edges(*node, None).last().map(|edge| edge.span);
            let Some(span) = span else { continue };
            diagnostics.push(
                Diagnostic::warning(message, span)
                    .remark(format!("for example {}", witness::describe(packet, self.policy)))
                    .help(format!("write `{name} -> Drop` after the other edges if they shall be dropped")),
            );
        }
        for ((from, to), (edge, packet)) in &self.one_way {
            let (from, to) = (self.name(Node::Port(*from)), self.name(Node::Port(*to)));
            let message = format!("packets from `{from}` to `{to}` cannot be answered: this edge is one-way");
            diagnostics.push(
                Diagnostic::warning(message, edge.span)
                    .remark(format!("for example {}", witness::describe(packet, self.policy)))
                    .help("write `<->` if replies shall pass"),
            );
        }
        for (&(port, nf), packet) in &self.strangers {
            let Some((_, span)) = self.facts.get(nf).and_then(|facts| facts.sources.as_ref()) else {
                continue;
            };
            let (port, nf) = (self.name(Node::Port(port)), self.name(Node::Nf(nf)));
            let message = format!("`{nf}` drops packets from addresses behind `{port}` that this lacks");
            diagnostics.push(
                Diagnostic::warning(message, *span)
                    .remark(format!("for example {}", witness::describe(packet, self.policy)))
                    .help(format!("name the prefixes of `{port}` here, or keep the others off by a filter")),
            );
        }
        Analysis { diagnostics, is_complete: self.is_complete }
    }

    /// Returns an error for each attribute that no instance sets, wherever it is read.
    fn unknown_attributes(&self) -> Vec<Diagnostic> {
        let mut unknown = BTreeMap::new();
        for (_, edges) in self.graph.nodes() {
            for &edge in edges {
                self.find_unknown(edge, &edge.filter, &mut unknown);
            }
        }
        unknown.into_values().collect()
    }

    fn find_unknown(&self, edge: &Edge, filter: &Filter, unknown: &mut BTreeMap<(Span, String), Diagnostic>) {
        match filter {
            Filter::Not(inner) => self.find_unknown(edge, inner, unknown),
            Filter::All(parts) | Filter::Any(parts) => {
                parts.iter().for_each(|part| self.find_unknown(edge, part, unknown));
            }
            Filter::Attribute { nfs, name, .. } => {
                let set_by_program = nfs.iter().filter_map(|nf| self.policy.nfs.get(*nf));
                if set_by_program.flat_map(|nf| &nf.sets).any(|set| set.name == *name) {
                    return;
                }
                let known =
                    || nfs.iter().filter_map(|nf| self.facts.get(*nf)).flat_map(|facts| &facts.attributes);
                if nfs.iter().any(|nf| self.facts.get(*nf).is_none()) || known().any(|known| known == name) {
                    return;
                }
                let owner = nfs.first().map_or("", |nf| self.policy.owner_name(*nf));
                let error = Diagnostic::error(format!("`{owner}` has no attribute `{name}`"), edge.span);
                let near = similar(name, known().map(String::as_str));
                let error = match near {
                    Some(near) => error.help(format!("did you mean `{owner}.{near}`?")),
                    None if known().next().is_none() => error.help(format!("`{owner}` sets no attributes")),
                    None => error.help(format!(
                        "it sets {}",
                        known().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
                    )),
                };
                unknown.insert((edge.span, name.clone()), error);
            }
            _ => {}
        }
    }
}
