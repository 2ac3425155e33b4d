//! Branches: the edges that packets take from a node.

use packet::Side;
use policy::{Edge, Filter, FilterInput, FilterTable};

use super::filter_reads::{FilterReads, reads_attributes_only};
use super::{EdgeId, Hop, RouteEnd};

/// The edges that packets of one side take from a node; those of both sides from a port.
#[derive(Clone, Debug, Default)]
pub(super) struct Branch {
    pub(super) targets: Vec<Target>,
    /// The first edge to each stop.
    stops: Vec<Target>,
    /// The filters, compiled; none if the first edge takes all packets.
    table: Option<FilterTable>,
    pub(super) reads: FilterReads,
    /// True if filters read attributes and nothing else.
    pub(super) is_by_attributes: bool,
    /// Counts packets that no edge takes.
    pub(super) unmatched: EdgeId,
}

/// An edge, by where it leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) hop: Hop,
    pub(super) side: Side,
    pub(super) edge: EdgeId,
}

impl Branch {
    /// Creates the branch of these edges, with the target of each.
    pub fn new(edges: &[(&Edge, Target)]) -> Branch {
        let targets: Vec<Target> = edges.iter().map(|(_, target)| *target).collect();
        let mut stops: Vec<Target> = Vec::new();
        for target in &targets {
            if !stops.iter().any(|stop| (stop.hop, stop.side) == (target.hop, target.side)) {
                stops.push(*target);
            }
        }
        let takes_all = edges.first().is_none_or(|(edge, _)| edge.filter == Filter::Always(true));
        let filters = edges.iter().map(|(edge, _)| &edge.filter);
        let mut reads = FilterReads::default();
        filters.clone().for_each(|filter| reads.add(filter));
        if takes_all {
            reads = FilterReads::default();
        }
        let is_by_attributes = !takes_all && filters.clone().all(reads_attributes_only);
        let table = (!takes_all).then(|| FilterTable::new(filters));
        Branch { targets, stops, table, reads, is_by_attributes, unmatched: 0 }
    }

    /// Returns the first edge that takes a packet of this side.
    pub fn first(&self, packet: &impl FilterInput, side: Side) -> Target {
        let place = match &self.table {
            Some(table) => table.first(packet),
            None => Some(0),
        };
        let unmatched = Target { hop: Hop::End(RouteEnd::Unmatched), side, edge: self.unmatched };
        place.and_then(|place| self.targets.get(place)).copied().unwrap_or(unmatched)
    }

    /// Returns the first edge to a stop.
    pub fn edge_to(&self, hop: Hop) -> Option<EdgeId> {
        self.stops.iter().find(|stop| stop.hop == hop).map(|stop| stop.edge)
    }
}
