//! Counters of edges, and the edges of a single packet.

use nf::stage::PacketTotals;

use super::EdgeCounters;
use crate::topology::EdgeId;

/// Counts the packets on each edge, and traces one packet.
pub(super) struct EdgeLog {
    /// For each edge.
    counters: Vec<EdgeCounters>,
    /// The edges of the packet of a cached rule.
    trace: Vec<EdgeId>,
    is_tracing: bool,
}

impl EdgeLog {
    /// Creates the counters of n edges, for paths over up to `nfs` functions.
    pub fn new(edges: usize, nfs: usize) -> EdgeLog {
        EdgeLog {
            counters: vec![EdgeCounters::default(); edges],
            trace: Vec::with_capacity(nfs + 1),
            is_tracing: false,
        }
    }

    /// Returns the counters, by edge.
    pub fn counters(&self) -> &[EdgeCounters] {
        &self.counters
    }

    /// Counts a packet of this length on an edge, if it took one.
    #[inline]
    pub fn count(&mut self, edge: Option<EdgeId>, len: usize) {
        let Some(edge) = edge else { return };
        if self.is_tracing {
            self.trace.push(edge);
        }
        if let Some(counters) = self.counters.get_mut(usize::from(edge)) {
            counters.add(len);
        }
    }

    /// Counts packets on an edge.
    #[inline]
    pub fn count_all(&mut self, edge: EdgeId, load: PacketTotals) {
        if let Some(counters) = self.counters.get_mut(usize::from(edge)) {
            counters.packets += load.packets;
            counters.bytes += load.bytes;
        }
    }

    /// Traces the next packet.
    pub fn begin_trace(&mut self) {
        self.trace.clear();
        self.is_tracing = true;
    }

    /// Ends the trace, and returns the packet's edges.
    pub fn end_trace(&mut self) -> &[EdgeId] {
        self.is_tracing = false;
        &self.trace
    }

    /// Returns true if a packet is traced.
    #[inline]
    pub fn is_tracing(&self) -> bool {
        self.is_tracing
    }

    /// Replaces the trace by the edges of a path; `None` if one of them does not exist.
    pub fn trace_path(&mut self, edges: impl Iterator<Item = Option<EdgeId>>) -> Option<&[EdgeId]> {
        self.trace.clear();
        for edge in edges {
            self.trace.push(edge?);
        }
        Some(&self.trace)
    }
}
