//! Routing: the path of each flow through a graph with branches.
//!
//! The first packet of a flow takes, at each branch, the first edge with a filter that it passes.
//! The flow's record has its route (`route`). Later packets of this direction follow the route;
//! only filters over fields that may differ between packets of a flow are evaluated again
//! (`journey`, `fields`). Packets of the other direction visit the functions of the route in
//! reverse, whatever the filters (E3). The edges of a path that is known in advance are looked up
//! once for many flows (`known_paths`) and counted (`edge_log`). Packets that functions do not see
//! bypass them (`passing`), those of flows with a rule follow it (`rules`). Packets from an
//! external node bring attributes (`brought`). Flows on a path without a function that sets
//! timeouts get the graph's (`keepers`).

mod brought;
mod edge_log;
mod fields;
mod journey;
mod keepers;
mod known_paths;
mod passing;
mod route;
mod rules;

use nf::record::{FlowRecords, RecordHeader, RecordLayout};
use nf::stage::{PacketTotals, Stage};
use packet::{Direction, Packet, Side};

use crate::Timeouts;
use crate::queue::GROUP_MAX;
use crate::topology::{EdgeId, Hop, NfSet, Topology};
pub use brought::AttributeField;
use brought::Brought;
use edge_log::EdgeLog;
pub(crate) use journey::{Journey, Refusal};
use keepers::Keepers;
pub(crate) use known_paths::{KnownPaths, PathId};
use route::{Route, Routes};

/// Packets and bytes that took an edge.
pub type EdgeCounters = PacketTotals;

/// Takes packets along the edges of a topology.
pub(crate) struct Routing {
    topology: Topology,
    routes: Routes,
    keepers: Keepers,
    /// Functions that subscribe to streams.
    listeners: NfSet,
    /// True if a filter may decide differently about packets of one flow.
    asks_somewhere: bool,
    known_paths: KnownPaths,
    brought: Brought,
    /// For each packet of the current group.
    journeys: [Journey; GROUP_MAX],
    /// The first stop of the packet that begins a flow.
    entered: Option<(u64, Hop, EdgeId)>,
    log: EdgeLog,
}

impl Routing {
    /// Adds the route to the record, then the parts of all functions. Functions that no flow visits
    /// both of may share bytes. Attributes that travel through external nodes share their bits with
    /// no others. Returns the next free bit of tags.
    ///
    /// # Errors
    /// The name of the function or external node without room for its tags.
    pub fn place(
        topology: Topology,
        stages: &mut [Box<dyn Stage>],
        layout: &mut RecordLayout,
        timeouts: Timeouts,
    ) -> Result<(Routing, u32), &'static str> {
        let start = Routes::reserve(layout);
        let first_bit = place_parts(&topology, stages, layout)?;
        let mut listeners = NfSet::default();
        let listens = stages.iter().enumerate().filter(|(_, stage)| stage.descriptor().stream);
        listens.for_each(|(number, _)| listeners.add(number));
        let (brought, tag_end) = Brought::place(&topology, stages, first_bit).ok_or("external node")?;
        if !brought.is_empty() {
            layout.add_tags();
        }
        let routing = Routing {
            routes: Routes::new(start, stages).ok_or("route")?,
            keepers: Keepers::new(stages, timeouts),
            listeners,
            asks_somewhere: topology.reads().is_any(),
            known_paths: KnownPaths::new(stages.len()),
            brought,
            journeys: [Journey::default(); GROUP_MAX],
            entered: None,
            log: EdgeLog::new(topology.edges().len(), stages.len()),
            topology,
        };
        Ok((routing, tag_end))
    }

    /// Returns the topology.
    #[inline]
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// Returns the routes in flows' records.
    #[inline]
    pub fn routes(&self) -> &Routes {
        &self.routes
    }

    /// Returns the counters of edges.
    pub fn edges(&self) -> &[EdgeCounters] {
        self.log.counters()
    }

    /// Counts packets on an edge.
    #[inline]
    pub fn count_all(&mut self, edge: EdgeId, load: PacketTotals) {
        self.log.count_all(edge, load);
    }

    /// Returns the paths that are known in advance.
    #[inline]
    pub fn known_paths(&self) -> &KnownPaths {
        &self.known_paths
    }

    /// Returns the attributes that packets bring from external nodes.
    #[inline]
    pub fn brought(&self) -> &Brought {
        &self.brought
    }

    /// Returns the journeys of the group's packets.
    #[inline]
    pub fn journeys(&self) -> &[Journey] {
        &self.journeys
    }

    /// Replaces the journey of the group's packet `at`. Returns the previous one.
    pub fn replace_journey(&mut self, at: usize, journey: Journey) -> Journey {
        std::mem::replace(&mut self.journeys[at], journey)
    }

    /// The group's packet `at` visits a function.
    #[inline]
    pub fn visit(&mut self, at: usize, stage: usize) {
        self.journeys[at].visited.add(stage);
    }

    /// Returns the side of packets of a flow's direction.
    #[inline(always)]
    pub fn side_of(header: &RecordHeader, direction: Direction) -> Side {
        match direction {
            Direction::Original => header.origin(),
            Direction::Reply => header.origin().other(),
        }
    }

    /// Returns true if packets of this side may enter by a port.
    #[inline]
    pub fn admits(&self, port: u16, side: Side) -> bool {
        self.topology.side_of_port(port).is_none_or(|of_all| of_all == side)
    }

    /// Returns the functions on a flow's path that subscribe to streams; `None` if its path is not
    /// known, or if filters on it are evaluated.
    #[inline]
    pub fn listeners_of(&self, record: u32, records: &FlowRecords) -> Option<NfSet> {
        let path = self.routes.of(record, records).path().filter(|_| !self.asks_somewhere)?;
        Some(NfSet(path.0 & self.listeners.0))
    }

    /// Returns true if packets that enter by the ports of these may be of both sides.
    #[inline]
    pub fn is_mixed(&self, batch: &[Packet]) -> bool {
        let mut sides = batch.iter().map(|packet| self.topology.side_of_port(packet.meta().transit.ingress));
        let first = sides.next().flatten();
        first.is_none() || sides.any(|side| side != first)
    }

    /// Sets the timeout of a packet's flow, which no function sets.
    pub fn keep(&self, packet: &mut Packet, header: &RecordHeader) {
        self.keepers.keep(packet, header);
    }
}

/// Places the parts of functions in records and in tags. Returns the first free bit of tags.
///
/// # Errors
/// The name of the function without room for its tags.
fn place_parts(
    topology: &Topology,
    stages: &mut [Box<dyn Stage>],
    layout: &mut RecordLayout,
) -> Result<u32, &'static str> {
    let first = layout.end();
    let (companions, travelling) = (topology.companions(), brought::travelling(topology));
    // The end of each function's bytes, and of its bits of attributes.
    let (mut ends, mut tag_ends): (Vec<usize>, Vec<u32>) = (Vec::new(), Vec::new());
    for (number, stage) in stages.iter_mut().enumerate() {
        let before = companions[number].iter().filter_map(|other| ends.get(other).copied());
        layout.go_to(before.max().unwrap_or(first));
        let shares_none = |other: &usize| {
            companions[number].has(*other) || travelling.has(*other) || travelling.has(number)
        };
        let before = (0..number).filter(shares_none).filter_map(|other| tag_ends.get(other).copied());
        let (name, tag_bit) = (stage.descriptor().name, before.max().unwrap_or_default());
        tag_ends.push(stage.place(number as u16, layout, tag_bit).ok_or(name)?);
        ends.push(layout.end());
    }
    Ok(tag_ends.into_iter().max().unwrap_or_default())
}
