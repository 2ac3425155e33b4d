//! The edges that a packet took through a graph with branches, and why.

use std::fmt;

use graph::{EdgeChoice, Topology, TopologyEdge};
use packet::{DropReason, Side};
use runtime::Runner;
use serde::Serialize;

use super::tracer::{PacketOutcome, PacketTrace, TakenEdge};

/// An edge that a packet took, or the node where no edge took it.
#[derive(Serialize)]
pub struct EdgeExplanation {
    /// Name of the node that it leaves.
    pub from: String,
    /// Name of the node that it leads to. Absent if no edge took the packet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// The filter's text in the policy, or another cause.
    why: String,
    /// True if `why` is a filter.
    #[serde(skip)]
    is_filter: bool,
    /// The external program that it leads to, and that is assumed to forward the packet.
    #[serde(skip_serializing_if = "Option::is_none")]
    assumed: Option<String>,
    /// Edges that did not take the packet, where none did.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unmatched: Vec<String>,
    /// Number of the functions that processed the packet before.
    #[serde(skip)]
    pub(super) steps: usize,
}

impl EdgeExplanation {
    /// Explains the edges of a packet; none in a graph without branches.
    pub fn of_packet(trace: &PacketTrace, runner: &Runner) -> Vec<EdgeExplanation> {
        let assembly = runner.assembly();
        let Some(branches) = assembly.graph.branches() else { return Vec::new() };
        let topology = branches.topology();
        let taken = trace.edges.iter();
        let mut edges: Vec<_> = taken.filter_map(|taken| EdgeExplanation::new(taken, topology)).collect();
        let is_unmatched = trace.outcome == PacketOutcome::Dropped(DropReason::PolicyUnmatched);
        if is_unmatched && edges.last().is_none_or(|last| last.to.is_some()) {
            let ingress = trace.arrived.as_ref().map_or(0, |packet| packet.meta().transit.ingress);
            edges.push(EdgeExplanation {
                from: assembly.ports.number(ingress).map_or_else(String::new, |port| port.name.clone()),
                to: None,
                why: "no edges lead back along the flow's path".to_owned(),
                is_filter: false,
                assumed: None,
                unmatched: Vec::new(),
                steps: trace.steps.len(),
            });
        }
        for edge in &mut edges {
            let to = edge.to.as_ref().and_then(|name| assembly.ports.named(name));
            edge.assumed = to.and_then(|port| runner.assumed_node(port.number)).map(str::to_owned);
        }
        edges
    }

    fn new(taken: &TakenEdge, topology: &Topology) -> Option<EdgeExplanation> {
        let all = topology.edges();
        let edge = all.get(usize::from(taken.edge))?;
        let beside = || topology.edges_beside(taken.edge).filter_map(|id| all.get(usize::from(id)));
        let filter = (taken.choice == EdgeChoice::Filters).then(|| filter(edge)).flatten();
        let is_filter = filter.is_some();
        let why = filter.unwrap_or_else(|| match (taken.choice, &edge.to) {
            (_, None) => "no edge takes the packet".to_owned(),
            (EdgeChoice::Route, _) => "the flow's route".to_owned(),
            (EdgeChoice::Filters, _) if beside().count() == 1 => "the only edge".to_owned(),
            (EdgeChoice::Filters, _) => "an edge without a filter".to_owned(),
        });
        let unmatched = match edge.to {
            None => beside().map(written).collect(),
            Some(_) => Vec::new(),
        };
        let (from, to) = (edge.from.clone(), edge.to.clone());
        let (assumed, steps) = (None, taken.steps);
        Some(EdgeExplanation { from, to, why, is_filter, assumed, unmatched, steps })
    }

    /// Returns a path with the filters that decided, `lan [tcp] -> nat -> wan`; `None` in a graph
    /// without branches.
    pub fn path(edges: &[EdgeExplanation]) -> Option<String> {
        let mut path = edges.first()?.from.clone();
        for edge in edges {
            if let Some(filter) = edge.filter() {
                path += &format!(" [{filter}]");
            }
            path += " -> ";
            path += edge.to.as_deref().unwrap_or("(unmatched)");
        }
        Some(path)
    }

    /// Returns the filter that the packet passed here, if that was the cause.
    fn filter(&self) -> Option<&str> {
        self.is_filter.then_some(self.why.as_str())
    }
}

/// Returns an edge in the syntax of policies.
fn written(edge: &TopologyEdge) -> String {
    let to = edge.to.as_deref().unwrap_or("(unmatched)");
    match filter(edge) {
        Some(filter) => format!("{} [{filter}] -> {to}", edge.from),
        None => format!("{} -> {to}", edge.from),
    }
}

/// Returns the text of an edge's filter, with a note if it is read in reverse.
fn filter(edge: &TopologyEdge) -> Option<String> {
    let filter = edge.filter.as_ref()?.split_whitespace().collect::<Vec<_>>().join(" ");
    Some(match edge.side {
        Side::Inside => filter,
        Side::Outside => format!("{filter}, in reverse"),
    })
}

impl fmt::Display for EdgeExplanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let to = self.to.as_deref().unwrap_or("(unmatched)");
        write!(f, "  {} -> {to}: {}", self.from, self.why)?;
        if let Some(node) = &self.assumed {
            write!(f, "; {node} is assumed to forward it")?;
        }
        writeln!(f)?;
        self.unmatched.iter().try_for_each(|edge| writeln!(f, "      not {edge}"))
    }
}
