//! Routing: the path of each flow through a graph with branches.
//!
//! The first packet of a flow decides at each branch, by the first edge whose filter it passes. Its
//! route (`route`) stands in the flow's record. Later packets of its direction follow the route;
//! only filters over fields that may differ between packets of a flow are evaluated again
//! (`journey`, `fields`). Packets of the other direction take the functions of the route backwards,
//! whatever filters say (E3). The edges of a path that is known in advance are looked up once for
//! many flows (`known_paths`). Packets that functions do not see go past them (`passing`), those of
//! flows with a rule follow it (`rules`). Those behind an external node bring attributes along
//! (`brought`).

mod brought;
mod fields;
mod journey;
mod known_paths;
mod passing;
mod route;
mod rules;

use std::ops::Range;

use nf::record::{FlowRecords, RecordHeader, RecordLayout};
use nf::stage::{PacketTotals, Stage};
use packet::memory::SlotField;
use packet::{Direction, Packet, Side};
use zerocopy::FromBytes;

use crate::Timeouts;
use crate::queue::GROUP_MAX;
use crate::topology::{EdgeId, Hop, NfSet, RouteEnd, Topology};
pub use brought::AttributeField;
use brought::BroughtAttributes;
pub(crate) use journey::{Journey, Refusal};
use known_paths::KnownPaths;
pub(crate) use known_paths::PathId;
pub(crate) use route::Route;

/// Packets and bytes that took an edge.
pub type EdgeCounters = PacketTotals;

/// Takes packets along the edges of a topology.
pub(crate) struct Routing {
    pub topology: Topology,
    part: SlotField<Route>,
    /// By function, those whose bytes of a record or bits of attributes it shares.
    overlaps: Vec<NfSet>,
    /// By function, its bytes of a record.
    parts: Vec<Range<usize>>,
    /// By function, the bits of its attributes.
    tags: Vec<u64>,
    /// Functions that say how long flows are kept, and the timeouts of flows that visit none.
    keepers: NfSet,
    timeouts: Timeouts,
    /// Functions that want streams.
    listeners: NfSet,
    /// True if a filter may decide differently about packets of one flow.
    asks_somewhere: bool,
    known_paths: KnownPaths,
    /// Attributes that packets bring from external nodes, by port.
    brought: Vec<BroughtAttributes>,
    /// By packet of the group that is under way.
    pub journeys: [Journey; GROUP_MAX],
    /// The first stop of the packet that begins a flow.
    entered: Option<(u64, Hop, EdgeId)>,
    /// By edge.
    pub edges: Vec<EdgeCounters>,
    /// The edges of a path that a rule is made for.
    trace: Vec<EdgeId>,
    is_tracing: bool,
}

impl Routing {
    /// Adds the route to the record, then the parts of all functions, those that no flow visits
    /// both of in the same bytes. Attributes that travel through external nodes share their bits
    /// with no others. Returns the next free bit of tags, or the name of the function or external
    /// node whose tags find no room.
    pub fn place(
        topology: Topology,
        stages: &mut [Box<dyn Stage>],
        layout: &mut RecordLayout,
        timeouts: Timeouts,
    ) -> Result<(Routing, u32), &'static str> {
        let len = size_of::<Route>();
        let (start, _) = layout.add(len, len);
        let first = layout.end();
        let companions = topology.companions();
        let travelling = brought::travelling(&topology);
        // The bytes and bits of attributes of functions, where they end.
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
        let parts: Vec<Range<usize>> = stages
            .iter()
            .map(|stage| stage.saved_part().map(|part| part.bytes).unwrap_or_default())
            .collect();
        let tags: Vec<u64> = stages.iter().map(|stage| stage.tags().mask()).collect();
        let overlaps = parts.iter().enumerate().map(|(number, part)| {
            let mut overlap = NfSet::default();
            let shares = |other: usize| {
                let (of_other, shared) = (&parts[other], tags[other] & tags[number]);
                part.start < of_other.end && of_other.start < part.end || shared != 0
            };
            (0..parts.len()).filter(|&other| other != number && shares(other)).for_each(|it| overlap.add(it));
            overlap
        });
        let overlaps = overlaps.collect();
        let mut keepers = NfSet::default();
        let keeps = stages.iter().enumerate().filter(|(_, stage)| stage.descriptor().keeps_flows);
        keeps.for_each(|(number, _)| keepers.add(number));
        let mut listeners = NfSet::default();
        let wants = stages.iter().enumerate().filter(|(_, stage)| stage.descriptor().stream);
        wants.for_each(|(number, _)| listeners.add(number));
        let first_bit = tag_ends.iter().copied().max().unwrap_or_default();
        let (brought, tag_end) = brought::place(&topology, stages, first_bit).ok_or("external node")?;
        if !brought.is_empty() {
            layout.add_tags();
        }
        let routing = Routing {
            brought,
            keepers,
            timeouts,
            listeners,
            part: SlotField::at(start).ok_or("route")?,
            overlaps,
            parts,
            tags,
            asks_somewhere: topology.reads().is_any(),
            known_paths: KnownPaths::new(stages.len()),
            journeys: [Journey::default(); GROUP_MAX],
            entered: None,
            edges: vec![EdgeCounters::default(); topology.edges().len()],
            trace: Vec::with_capacity(stages.len() + 1),
            is_tracing: false,
            topology,
        };
        Ok((routing, tag_end))
    }
}

impl Routing {
    /// Bytes of a record before the functions' parts.
    pub fn lead_len(&self) -> usize {
        self.part.start() + size_of::<Route>()
    }

    /// Returns the route of a flow.
    #[inline]
    pub fn route(&self, record: u32, records: &FlowRecords) -> Route {
        records.state(record, self.part).copied().unwrap_or_default()
    }

    /// Returns true if the path of a flow is known, and has edges back.
    pub fn is_two_way(&self, record: u32, records: &FlowRecords) -> bool {
        let route = self.route(record, records);
        route.path().is_some() && !route.is_one_way()
    }

    /// The functions that have state of a flow.
    #[inline]
    pub fn started(&self, record: u32, records: &FlowRecords) -> NfSet {
        NfSet(self.route(record, records).started)
    }

    /// The functions that have state of a saved flow, from the bytes of its record.
    pub fn saved_started(&self, record: &[u8]) -> NfSet {
        let route = record.get(self.part.start()..).and_then(|bytes| Route::read_from_prefix(bytes).ok());
        route.map_or(NfSet::default(), |(route, _)| NfSet(route.started))
    }

    /// Returns the ports at the ends of a saved flow's path: where its first packet came in, and
    /// where packets of that direction leave.
    pub fn saved_ports(&self, record: &[u8]) -> Option<(u16, u16)> {
        let (route, _) = Route::read_from_prefix(record.get(self.part.start()..)?).ok()?;
        Some((route.from, route.to))
    }

    /// Returns true if the route in the bytes of a saved record names functions of this graph only.
    pub fn takes(&self, record: &[u8]) -> bool {
        let route = record.get(self.part.start()..).and_then(|bytes| Route::read_from_prefix(bytes).ok());
        let nfs = self.topology.nfs().len() as u32;
        let all = 1_u64.checked_shl(nfs).map_or(u64::MAX, |beyond| beyond - 1);
        route.is_some_and(|(route, _)| (route.path | route.started) & !all == 0)
    }

    /// The flow of this record begins with a packet that came in by this port.
    pub fn begin_flow(&self, record: u32, ingress: u16, records: &mut FlowRecords) {
        if let Some(route) = records.state_mut(record, self.part) {
            *route = Route { from: ingress, ..Route::default() };
        }
    }

    /// A function is about to get the first packet of a flow: returns the functions whose state of
    /// the flow it replaces, and which must hear of the flow's end; none if it has state of the
    /// flow already.
    #[inline]
    pub fn replaced_by(&self, stage: usize, record: u32, records: &FlowRecords) -> Option<NfSet> {
        let started = self.started(record, records);
        (!started.has(stage)).then(|| NfSet(started.0 & self.overlaps[stage].0))
    }

    /// It has state of the flow from now on, zeros, and those that it replaces have none. Returns
    /// the bits of its attributes, which are zeros, too.
    pub fn start(&self, stage: usize, replaced: NfSet, record: u32, records: &mut FlowRecords) -> u64 {
        if let Some(route) = records.state_mut(record, self.part) {
            let mut started = NfSet(route.started & !replaced.0);
            started.add(stage);
            route.started = started.0;
        }
        if replaced != NfSet::default() {
            records.clear(record, self.parts[stage].clone());
            records.header_mut(record).tags &= !self.tags[stage];
        }
        self.tags[stage]
    }

    /// Returns the side of packets of a flow's direction.
    #[inline(always)]
    pub fn side_of(header: &RecordHeader, direction: Direction) -> Side {
        match direction {
            Direction::Original => header.origin(),
            Direction::Reply => header.origin().other(),
        }
    }

    /// Returns true if packets of this side may come in by a port.
    #[inline]
    pub fn admits(&self, port: u16, side: Side) -> bool {
        self.topology.side_of_port(port).is_none_or(|of_all| of_all == side)
    }

    /// Returns true if no function of a path says how long flows are kept, but others do.
    fn is_kept_by_timeouts(&self, visited: NfSet) -> bool {
        self.has_keepers() && visited.0 & self.keepers.0 == 0
    }

    /// Returns true if functions say how long flows are kept.
    fn has_keepers(&self) -> bool {
        self.keepers != NfSet::default()
    }

    /// Returns the functions on a flow's path that want streams; none if its path is not known, or
    /// if filters are asked on it.
    #[inline]
    pub fn listeners_of(&self, record: u32, records: &FlowRecords) -> Option<NfSet> {
        let path = self.route(record, records).path().filter(|_| !self.asks_somewhere)?;
        Some(NfSet(path.0 & self.listeners.0))
    }

    /// Returns true if packets that enter by the ports of these may be of both sides.
    #[inline]
    pub fn is_mixed(&self, batch: &[Packet]) -> bool {
        let mut sides = batch.iter().map(|packet| self.topology.side_of_port(packet.meta().transit.ingress));
        let first = sides.next().flatten();
        first.is_none() || sides.any(|side| side != first)
    }

    /// Sets how long a packet keeps its flow that no function keeps.
    pub fn keep(&self, packet: &mut Packet, header: &RecordHeader) {
        let meta = packet.meta_mut();
        if meta.protocol == header.key.protocol {
            meta.transit.keep_ms = self.timeouts.of(meta.protocol, header.connection);
        }
    }

    /// The stop as topologies name it: by the first of several ports with one name.
    fn stop(&self, hop: Hop) -> Hop {
        match hop {
            Hop::End(RouteEnd::Port(port)) => Hop::End(RouteEnd::Port(self.topology.first_number(port))),
            hop => hop,
        }
    }

    #[inline]
    fn count(&mut self, edge: Option<EdgeId>, len: usize) {
        let Some(edge) = edge else { return };
        if self.is_tracing {
            self.trace.push(edge);
        }
        if let Some(counters) = self.edges.get_mut(usize::from(edge)) {
            counters.add(len);
        }
    }

    /// Counts packets on an edge.
    #[inline]
    pub fn count_all(&mut self, edge: EdgeId, load: PacketTotals) {
        if let Some(counters) = self.edges.get_mut(usize::from(edge)) {
            counters.packets += load.packets;
            counters.bytes += load.bytes;
        }
    }
}
