//! Routing: the path of each flow through a graph with branches.
//!
//! The first packet of a flow decides at each branch, by the first edge whose filter it passes. Its
//! route stands in the flow's record. Later packets of its direction follow the route; only filters
//! over fields that may differ between packets of a flow are evaluated again. Packets of the other
//! direction take the functions of the route backwards, whatever filters say (E3).

use std::net::IpAddr;
use std::ops::Range;

use nf::Verdict;
use nf::record::{FlowRecords, RecordHeader, RecordLayout};
use nf::stage::{PacketTotals, Stage};
use packet::memory::SlotField;
use packet::parse::protocol;
use packet::{Direction, DropReason, Packet, PacketClass, Side, TagKind, parse};
use policy::{FilterInput, FilterNumberField, FilterSide, Scalar};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::Timeouts;
use crate::cache::TakenPath;
use crate::observer::EdgeChoice;
use crate::queue::GROUP_MAX;
use crate::topology::{EdgeId, Hop, NfSet, RouteEnd, Topology};

/// The route of a flow: a part of its record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(crate) struct Route {
    /// Functions of the path that the last packet of the original direction which left has taken.
    path: u64,
    /// Functions that have state of the flow.
    pub started: u64,
    /// The port that the flow's first packet came in by.
    pub from: u16,
    /// The port that packets of the original direction leave by.
    to: u16,
    flags: u32,
}

impl Route {
    /// A packet of the original direction has left: path and `to` are known.
    const KNOWN: u32 = 1;
    /// There are no edges back.
    const ONE_WAY: u32 = 2;

    /// Returns the functions of the path; none if no packet has left yet.
    #[inline]
    pub fn path(&self) -> Option<NfSet> {
        (self.flags & Route::KNOWN != 0).then_some(NfSet(self.path))
    }

    fn is_one_way(&self) -> bool {
        self.flags & Route::ONE_WAY != 0
    }
}

/// The way of one packet of a group.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Journey {
    /// Functions that the packet has visited.
    pub visited: NfSet,
    /// The flow's attributes at its beginning.
    pub tags: u64,
    /// True if filters were asked on the way: it may be another one than the flow's.
    is_new: bool,
    /// True if the packet's filters are asked where packets of a flow may differ.
    asks: bool,
    /// The flow's path and the port at its end, if no filter is asked on it.
    sure: Option<(NfSet, u16)>,
}

/// The next stop of a packet, and the edge to it; no edge if its flow has none.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Heading {
    pub hop: Hop,
    pub edge: Option<EdgeId>,
    pub choice: EdgeChoice,
}

/// A packet that cannot enter: the reason to drop it, and the edge that says so.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Refusal {
    pub reason: DropReason,
    pub edge: Option<EdgeId>,
}

/// Packets and bytes that took an edge.
pub type EdgeCounters = PacketTotals;

/// Takes packets along the edges of a topology.
pub(crate) struct Routing {
    pub topology: Topology,
    part: SlotField<Route>,
    /// By function, those whose bytes of a record it shares.
    overlaps: Vec<NfSet>,
    /// By function, its bytes of a record.
    parts: Vec<Range<usize>>,
    /// Functions that say how long flows are kept, and the timeouts of flows that visit none.
    keepers: NfSet,
    timeouts: Timeouts,
    /// True if a filter may decide differently about packets of one flow.
    asks_somewhere: bool,
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
    /// both of in the same bytes. Returns the next free bit of tags, or the name of the function
    /// whose tags find no room.
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
        let mut ends: Vec<usize> = Vec::with_capacity(stages.len());
        let mut tag_bit = 0;
        for (number, stage) in stages.iter_mut().enumerate() {
            let before = companions[number].iter().filter_map(|other| ends.get(other).copied());
            layout.go_to(before.max().unwrap_or(first));
            let name = stage.descriptor().name;
            tag_bit = stage.place(number as u16, layout, tag_bit).ok_or(name)?;
            ends.push(layout.end());
        }
        let parts: Vec<Range<usize>> = stages
            .iter()
            .map(|stage| stage.saved_part().map(|part| part.bytes).unwrap_or_default())
            .collect();
        let overlaps = parts.iter().enumerate().map(|(number, part)| {
            let mut overlap = NfSet::default();
            let shares = |other: &Range<usize>| part.start < other.end && other.start < part.end;
            let others = parts.iter().enumerate().filter(|(of, other)| *of != number && shares(other));
            others.for_each(|(other, _)| overlap.add(other));
            overlap
        });
        let overlaps = overlaps.collect();
        let mut keepers = NfSet::default();
        let keeps = stages.iter().enumerate().filter(|(_, stage)| stage.descriptor().keeps_flows);
        keeps.for_each(|(number, _)| keepers.add(number));
        let routing = Routing {
            keepers,
            timeouts,
            part: SlotField::at(start).ok_or("route")?,
            overlaps,
            parts,
            asks_somewhere: topology.reads().is_any(),
            journeys: [Journey::default(); GROUP_MAX],
            entered: None,
            edges: vec![EdgeCounters::default(); topology.edges().len()],
            trace: Vec::with_capacity(stages.len() + 1),
            is_tracing: false,
            topology,
        };
        Ok((routing, tag_bit))
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

    /// It has state of the flow from now on, zeros, and those that it replaces have none.
    pub fn start(&self, stage: usize, replaced: NfSet, record: u32, records: &mut FlowRecords) {
        if let Some(route) = records.state_mut(record, self.part) {
            let mut started = NfSet(route.started & !replaced.0);
            started.add(stage);
            route.started = started.0;
        }
        if replaced != NfSet::default() {
            records.clear(record, self.parts[stage].clone());
        }
    }

    /// Sets the side of a packet that begins a flow, by the first edge that takes it.
    ///
    /// # Errors
    /// The reason to drop it, if no edge does, or one to `Drop`.
    pub fn enter(&mut self, packet: &mut Packet, stages: &[Box<dyn Stage>]) -> Result<(), Refusal> {
        let fields = PacketFields { packet, routing: self, stages, started: NfSet::default() };
        let found = self.topology.enter(packet.meta().transit.ingress, &fields);
        let (side, hop, edge) = found.ok_or(Refusal::UNMATCHED)?;
        if let Hop::End(end @ (RouteEnd::Drop | RouteEnd::Unmatched)) = hop {
            self.count(Some(edge), packet.len());
            let reason = if end == RouteEnd::Drop { DropReason::Policy } else { DropReason::PolicyUnmatched };
            return Err(Refusal { reason, edge: Some(edge) });
        }
        packet.meta_mut().transit.side = side;
        self.entered = Some((packet.meta().transit.sequence, hop, edge));
        Ok(())
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

    /// A packet of a group sets out: it is at its port.
    pub fn set_out(
        &mut self,
        at: usize,
        packet: &Packet,
        records: &FlowRecords,
        stages: &[Box<dyn Stage>],
    ) -> Heading {
        let (meta, transit) = (packet.meta(), packet.meta().transit);
        let header = records.header(transit.flow);
        let (origin, turns) = (header.origin(), header.has(RecordHeader::FLAG_TURNS));
        let route = self.route(transit.flow, records);
        let known = route.path().filter(|_| !turns);
        let is_whole = matches!(meta.class, PacketClass::Whole | PacketClass::FirstFragment);
        let is_own = is_whole && meta.protocol == header.key.protocol;
        let is_original = transit.direction == Direction::Original && transit.side == origin;
        let asks = is_own && is_original || known.is_none();
        let is_new = known.is_none();
        let (visited, tags) = (NfSet::default(), header.tags);
        let mut journey = Journey { visited, tags, is_new, asks, sure: None };
        let follows = known.filter(|_| !asks || !self.topology.entry_reads(transit.ingress).is_any());
        let choice = if follows.is_some() { EdgeChoice::Route } else { EdgeChoice::Filters };
        let (hop, edge) = match follows {
            Some(_) if route.is_one_way() && transit.side != origin => (Hop::End(RouteEnd::Unmatched), None),
            Some(path) => {
                let port = if transit.side == origin { route.to } else { route.from };
                journey.sure = (!asks || !self.asks_somewhere).then_some((path, port));
                let hop = route.hop(path, transit.side, origin);
                (hop, self.topology.entry_edge_to(transit.ingress, transit.side, self.stop(hop)))
            }
            None => {
                journey.is_new = true;
                let entered = self.entered.take().filter(|&(sequence, ..)| sequence == transit.sequence);
                let found = entered.map(|(_, hop, edge)| (hop, edge)).or_else(|| {
                    let started = NfSet(route.started);
                    let fields = PacketFields { packet, routing: self, stages, started };
                    self.topology.enter_from(transit.ingress, transit.side, &fields)
                });
                match found {
                    Some((hop, edge)) => (hop, Some(edge)),
                    None => (Hop::End(RouteEnd::Unmatched), None),
                }
            }
        };
        self.count(edge, packet.len());
        self.journeys[at] = journey;
        Heading { hop, edge, choice }
    }

    /// A packet of a group passed a function: returns its next stop.
    pub fn go_on(
        &mut self,
        at: usize,
        packet: &Packet,
        stage: usize,
        records: &FlowRecords,
        stages: &[Box<dyn Stage>],
    ) -> Heading {
        if let Some((path, port)) = self.journeys[at].sure {
            let side = packet.meta().transit.side;
            let next = path.after(stage, side).first(side);
            let hop = next.map_or(Hop::End(RouteEnd::Port(port)), Hop::Stage);
            let edge = self.topology.edge_to(stage, side, self.stop(hop));
            self.count(edge, packet.len());
            return Heading { hop, edge, choice: EdgeChoice::Route };
        }
        let transit = packet.meta().transit;
        let header = records.header(transit.flow);
        let route = self.route(transit.flow, records);
        let journey = self.journeys[at];
        // A packet that came another way may have been rewritten otherwise.
        let is_on = |path: &NfSet| path.up_to(stage, transit.side) == journey.visited;
        let known = route.path().filter(is_on).filter(|_| !header.has(RecordHeader::FLAG_TURNS));
        let asks = journey.asks && self.topology.branch_reads(stage, transit.side).is_any();
        let follows = known.filter(|_| !asks);
        let choice = if follows.is_some() { EdgeChoice::Route } else { EdgeChoice::Filters };
        let (hop, edge) = match follows {
            Some(path) => {
                let rest = path.after(stage, transit.side);
                let hop = route.hop(rest, transit.side, header.origin());
                (hop, self.topology.edge_to(stage, transit.side, self.stop(hop)))
            }
            None => {
                self.journeys[at].is_new = true;
                let started = NfSet(route.started);
                let fields = PacketFields { packet, routing: self, stages, started };
                let (hop, edge) = self.topology.next(stage, transit.side, &fields);
                (hop, Some(edge))
            }
        };
        self.count(edge, packet.len());
        Heading { hop, edge, choice }
    }

    /// A packet of a group is at the end of its path, and leaves by its port. Returns true if the
    /// flow has another path from now on.
    ///
    /// # Errors
    /// The reason to drop it.
    pub fn arrive(
        &mut self,
        at: usize,
        packet: &mut Packet,
        end: RouteEnd,
        records: &mut FlowRecords,
    ) -> Result<bool, DropReason> {
        let port = match end {
            RouteEnd::Port(port) => port,
            RouteEnd::Drop => return Err(DropReason::Policy),
            RouteEnd::Unmatched => return Err(DropReason::PolicyUnmatched),
        };
        packet.meta_mut().transit.egress = port;
        let transit = packet.meta().transit;
        let header = records.header(transit.flow);
        self.keep(self.journeys[at].visited, packet, header);
        let (turns, origin) = (header.has(RecordHeader::FLAG_TURNS), header.origin());
        let journey = self.journeys[at];
        let defines = journey.asks && journey.is_new && !turns && transit.direction == Direction::Original;
        if !defines {
            return Ok(false);
        }
        let Some(route) = records.state_mut(transit.flow, self.part) else { return Ok(false) };
        let is_same = route.path() == Some(journey.visited) && route.to == port;
        if is_same {
            return Ok(false);
        }
        let had_path = route.path().is_some();
        (route.path, route.to) = (journey.visited.0, port);
        let is_answerable = self.topology.is_answerable(journey.visited, origin, (route.from, port));
        route.flags = Route::KNOWN | if is_answerable { 0 } else { Route::ONE_WAY };
        Ok(had_path)
    }

    /// Returns the next stop of a packet that is alone, behind a function: along `trail`, the
    /// functions that another packet visited from this port, or by the filters.
    pub fn next(
        &mut self,
        packet: &Packet,
        stage: usize,
        trail: Option<(NfSet, u16)>,
        records: &FlowRecords,
        stages: &[Box<dyn Stage>],
    ) -> Heading {
        let transit = packet.meta().transit;
        let choice = if trail.is_some() { EdgeChoice::Route } else { EdgeChoice::Filters };
        let (hop, edge) = match trail {
            Some((visited, port)) => {
                let next = visited.after(stage, transit.side).first(transit.side);
                let hop = next.map_or(Hop::End(RouteEnd::Port(port)), Hop::Stage);
                (hop, self.topology.edge_to(stage, transit.side, self.stop(hop)))
            }
            None => {
                let started = self.started(transit.flow, records);
                let fields = PacketFields { packet, routing: self, stages, started };
                let (hop, edge) = self.topology.next(stage, transit.side, &fields);
                (hop, Some(edge))
            }
        };
        self.count(edge, packet.len());
        Heading { hop, edge, choice }
    }

    /// Takes a packet along the edges, past the functions: its port is set. `taken` gets the edges.
    ///
    /// # Errors
    /// The reason to drop it.
    pub fn pass_by(
        &mut self,
        packet: &mut Packet,
        stages: &[Box<dyn Stage>],
        mut taken: impl FnMut(EdgeId, &Packet),
    ) -> Result<(), DropReason> {
        if let Err(Refusal { reason, edge }) = self.enter(packet, stages) {
            edge.iter().for_each(|edge| taken(*edge, packet));
            return Err(reason);
        }
        let Some((_, hop, edge)) = self.entered.take() else { return Err(DropReason::Internal) };
        self.pass_along((hop, edge), packet, stages, taken)
    }

    /// Takes a packet that the function at `stage` made to a port, past the others: to the one that
    /// `trail` ends at, if it goes back, or along the edges. Observers do not hear of it.
    ///
    /// # Errors
    /// The reason to drop it.
    pub fn pass_behind(
        &mut self,
        stage: usize,
        trail: Option<(NfSet, u16)>,
        packet: &mut Packet,
        stages: &[Box<dyn Stage>],
    ) -> Result<(), DropReason> {
        if let Some((_, port)) = trail {
            packet.meta_mut().transit.egress = port;
            return Ok(());
        }
        let fields = PacketFields { packet, routing: self, stages, started: NfSet::default() };
        let first = self.topology.next(stage, packet.meta().transit.side, &fields);
        self.pass_along(first, packet, stages, |_, _| {})
    }

    fn pass_along(
        &mut self,
        (mut hop, mut edge): (Hop, EdgeId),
        packet: &mut Packet,
        stages: &[Box<dyn Stage>],
        mut taken: impl FnMut(EdgeId, &Packet),
    ) -> Result<(), DropReason> {
        loop {
            self.count(Some(edge), packet.len());
            taken(edge, packet);
            match hop {
                Hop::Stage(stage) => {
                    let fields = PacketFields { packet, routing: self, stages, started: NfSet::default() };
                    (hop, edge) = self.topology.next(stage, packet.meta().transit.side, &fields);
                }
                Hop::End(RouteEnd::Port(port)) => {
                    packet.meta_mut().transit.egress = port;
                    return Ok(());
                }
                Hop::End(RouteEnd::Drop) => return Err(DropReason::Policy),
                Hop::End(RouteEnd::Unmatched) => return Err(DropReason::PolicyUnmatched),
            }
        }
    }

    /// Packets on the fast path take their flow's route: their ports are set.
    pub fn follow(
        &mut self,
        side: Side,
        packets: &mut [Packet],
        verdicts: &[Verdict],
        records: &FlowRecords,
    ) {
        for (at, (packet, verdict)) in packets.iter_mut().zip(verdicts).enumerate() {
            let transit = &mut packet.meta_mut().transit;
            if *verdict == Verdict::Forward && transit.side == side {
                let route = self.route(transit.flow, records);
                let header = records.header(transit.flow);
                let visited = NfSet(route.path);
                self.journeys[at] = Journey { visited, tags: header.tags, ..Journey::default() };
                let is_onward = side == header.origin();
                transit.egress = if is_onward { route.to } else { route.from };
                self.keep(visited, packet, header);
            }
        }
    }

    /// Sets how long a packet keeps its flow, if no function on its path says so.
    fn keep(&self, visited: NfSet, packet: &mut Packet, header: &RecordHeader) {
        let meta = packet.meta_mut();
        let has_keeper = visited.0 & self.keepers.0 != 0;
        if self.keepers != NfSet::default() && !has_keeper && meta.protocol == header.key.protocol {
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

    /// The path of the next packet is noted.
    pub fn trace_next(&mut self) {
        self.trace.clear();
        self.is_tracing = true;
    }

    /// Returns the path of the packet that was traced, with this verdict.
    pub fn taken(&mut self, verdict: Verdict) -> TakenPath<'_> {
        self.is_tracing = false;
        let drop = match verdict {
            Verdict::Drop(reason @ (DropReason::Policy | DropReason::PolicyUnmatched)) => Some(reason),
            _ => None,
        };
        TakenPath { stages: self.journeys[0].visited, edges: &self.trace, drop, reads: self.topology.reads() }
    }

    /// Returns the path that a packet of a known flow will take; none if filters decide.
    pub fn expected(&mut self, packet: &Packet, records: &FlowRecords) -> Option<TakenPath<'_>> {
        let transit = packet.meta().transit;
        let header = records.header(transit.flow);
        let (side, origin) = (transit.side, header.origin());
        let route = self.route(transit.flow, records);
        let path = route.path().filter(|_| !header.has(RecordHeader::FLAG_TURNS))?;
        let asks = transit.direction == Direction::Original && side == origin;
        let entry = self.topology.entry_reads(transit.ingress);
        let behind = || path.iter().any(|stage| self.topology.branch_reads(stage, side).is_any());
        if asks && (entry.is_any() || behind()) || side != origin && route.is_one_way() {
            return None;
        }
        self.trace.clear();
        let mut rest = path;
        let mut hop = route.hop(rest, side, origin);
        self.trace.push(self.topology.entry_edge_to(transit.ingress, side, self.stop(hop))?);
        while let Hop::Stage(stage) = hop {
            rest = rest.after(stage, side);
            hop = route.hop(rest, side, origin);
            self.trace.push(self.topology.edge_to(stage, side, self.stop(hop))?);
        }
        Some(TakenPath { stages: path, edges: &self.trace, drop: None, reads: self.topology.reads() })
    }
}

impl Refusal {
    /// No edge takes the packet.
    pub const UNMATCHED: Refusal = Refusal { reason: DropReason::PolicyUnmatched, edge: None };
}

impl Route {
    /// Returns the next stop of a packet of this side that has these functions before it.
    fn hop(&self, rest: NfSet, side: Side, origin: Side) -> Hop {
        let port = if side == origin { self.to } else { self.from };
        rest.first(side).map_or(Hop::End(RouteEnd::Port(port)), Hop::Stage)
    }
}

/// A packet on its way, as filters see it.
struct PacketFields<'a> {
    packet: &'a Packet,
    routing: &'a Routing,
    stages: &'a [Box<dyn Stage>],
    /// The functions that have state of its flow.
    started: NfSet,
}

impl FilterInput for PacketFields<'_> {
    fn address(&self, side: FilterSide) -> Option<IpAddr> {
        if self.packet.meta().class == PacketClass::NotIp {
            return None;
        }
        let (source, destination) = parse::ends(self.packet);
        Some(match side {
            FilterSide::Src => source.addr.ip(),
            FilterSide::Dst => destination.addr.ip(),
        })
    }

    fn number(&self, field: FilterNumberField) -> Option<u64> {
        let meta = self.packet.meta();
        let is_ip = meta.class != PacketClass::NotIp;
        let has_ports = matches!(meta.class, PacketClass::Whole | PacketClass::FirstFragment)
            && matches!(meta.protocol, protocol::TCP | protocol::UDP | protocol::SCTP);
        match field {
            FilterNumberField::SrcPort => has_ports.then(|| parse::ends(self.packet).0.port.into()),
            FilterNumberField::DstPort => has_ports.then(|| parse::ends(self.packet).1.port.into()),
            FilterNumberField::Proto => is_ip.then_some(meta.protocol.into()),
            FilterNumberField::Vlan => self.packet.tag(TagKind::Vlan).map(|tag| tag.id().into()),
            FilterNumberField::Tenant => Some(meta.key.tenant.into()),
            FilterNumberField::Dscp => self.packet.dscp().map(u64::from),
        }
    }

    fn tcp_flags(&self) -> Option<u8> {
        let meta = self.packet.meta();
        (meta.protocol == protocol::TCP && meta.class == PacketClass::Whole).then_some(meta.tcp_flags)
    }

    fn attribute(&self, nf: usize, name: &str) -> Option<Scalar> {
        let stage = self.routing.topology.nfs().iter().position(|&of| of == nf)?;
        if !self.started.has(stage) {
            return None;
        }
        let stage = &self.stages[stage];
        let attributes = stage.descriptor().attributes;
        let place = attributes.iter().position(|attribute| attribute.name == name)?;
        let value = stage.tags().get(self.packet.meta().transit.tags, place);
        Some(match attributes[place].values.get(usize::from(value)) {
            Some(text) => Scalar::Text((*text).to_owned()),
            None => Scalar::Number(value.into()),
        })
    }
}
