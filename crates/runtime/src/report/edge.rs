//! Edges of a graph with branches.

use std::collections::BTreeMap;

use graph::Graph;
use serde::Serialize;
use telemetry::record;

record! {
    /// Packets and bytes that took an edge of the policy's graph, `a -> b`, or that no edge of a
    /// node took, `a -> (unmatched)`.
    #[derive(Clone, Copy, Debug, Default, Serialize)]
    pub struct EdgeReport [edge] {
        /// Packets that took an edge.
        pub packets: u64 = counter("edge_packets"),
        /// Bytes that took an edge.
        pub bytes: u64 = counter("edge_bytes"),
    }
}

/// Returns the edges of a graph by their names in [`graph::Topology::edge_names`]; those to nowhere
/// only if packets took them.
pub(super) fn of_all(graph: &Graph) -> BTreeMap<String, EdgeReport> {
    of_edges(graph, |goes_on, packets| goes_on || packets > 0)
}

/// Returns the reports of all edges.
pub(super) fn of_all_edges(graph: &Graph) -> BTreeMap<String, EdgeReport> {
    of_edges(graph, |_, _| true)
}

fn of_edges(graph: &Graph, is_shown: impl Fn(bool, u64) -> bool) -> BTreeMap<String, EdgeReport> {
    let mut edges: BTreeMap<String, EdgeReport> = BTreeMap::new();
    let Some(branches) = graph.branches() else { return edges };
    let topology = branches.topology();
    let named = topology.edges().iter().zip(topology.edge_names());
    for ((edge, name), counted) in named.zip(branches.counters()) {
        if !is_shown(edge.to.is_some(), counted.packets) {
            continue;
        }
        let report = edges.entry(name).or_default();
        report.packets += counted.packets;
        report.bytes += counted.bytes;
    }
    edges
}
