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

/// Returns the edges of a graph by their names in [`graph::Topology::edge_names`].
pub(super) fn of_all(graph: &Graph) -> BTreeMap<String, EdgeReport> {
    let mut edges: BTreeMap<String, EdgeReport> = BTreeMap::new();
    let Some((topology, counted)) = graph.topology() else { return edges };
    for ((edge, name), counted) in topology.edges().iter().zip(topology.edge_names()).zip(counted) {
        if edge.to.is_none() && counted.packets == 0 {
            continue;
        }
        let report = edges.entry(name).or_default();
        report.packets += counted.packets;
        report.bytes += counted.bytes;
    }
    edges
}
