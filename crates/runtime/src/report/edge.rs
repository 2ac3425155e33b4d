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

/// Returns the edges of a graph by name; of several between the same nodes, the later ones of the
/// text have a number: `a -> b #2`.
pub(super) fn of_all(graph: &Graph) -> BTreeMap<String, EdgeReport> {
    let mut edges = BTreeMap::new();
    let Some((topology, counted)) = graph.topology() else { return edges };
    for (edge, counted) in topology.edges().iter().zip(counted) {
        if edge.to.is_none() && counted.packets == 0 {
            continue;
        }
        let name = edge.to_string();
        let names = (2..).map(|number| format!("{name} #{number}"));
        let mut names = std::iter::once(name.clone()).chain(names);
        if let Some(name) = names.find(|name| !edges.contains_key(name)) {
            edges.insert(name, EdgeReport { packets: counted.packets, bytes: counted.bytes });
        }
    }
    edges
}
