//! Journeys: a packet of a known flow goes from stop to stop.

use nf::record::{FlowRecords, RecordHeader};
use nf::stage::Stage;
use packet::{Direction, DropReason, Packet, PacketClass, Side};

use super::fields::PacketFields;
use super::{Route, Routing};
use crate::observer::EdgeChoice;
use crate::topology::{EdgeId, Hop, NfSet, RouteEnd};

/// The path of one packet of a group.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Journey {
    /// Functions that the packet has visited, or will visit if its path is known.
    pub visited: NfSet,
    /// The flow's attributes when it entered.
    pub tags: u64,
    /// True if its path is known in advance.
    pub(super) is_known: bool,
    /// True if filters chose the path: it may differ from the flow's.
    pub(super) is_new: bool,
    /// True if filters are evaluated for the packet where packets of a flow may differ.
    pub(super) asks: bool,
}

impl Journey {
    /// The journey of a packet that has visited these functions.
    pub fn over(visited: NfSet) -> Journey {
        Journey { visited, ..Journey::default() }
    }

    /// The journey of a packet that will visit these functions, of the flow with this header.
    #[inline]
    pub fn known(nfs: NfSet, header: &RecordHeader) -> Journey {
        Journey { visited: nfs, tags: header.tags, is_known: true, is_new: false, asks: false }
    }

    /// A packet of a known path leaves the path after `stage`, by its filters.
    pub(super) fn leave_path(&mut self, stage: usize, side: Side) {
        let (visited, tags) = (self.visited_at(stage, side), self.tags);
        *self = Journey { visited, tags, is_known: false, is_new: true, asks: true };
    }

    /// Returns the functions that a packet of this side has visited when it leaves `stage`.
    pub fn visited_at(&self, stage: usize, side: Side) -> NfSet {
        if self.is_known { self.visited.up_to(stage, side) } else { self.visited }
    }
}

/// The next stop of a packet, and the edge to it, if its flow has one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Heading {
    pub hop: Hop,
    pub edge: Option<EdgeId>,
    pub choice: EdgeChoice,
}

/// A packet that cannot enter: the reason to drop it, and the edge with that reason.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Refusal {
    pub reason: DropReason,
    pub edge: Option<EdgeId>,
}

impl Refusal {
    /// No edge takes the packet.
    pub const UNMATCHED: Refusal = Refusal { reason: DropReason::PolicyUnmatched, edge: None };
}

impl Routing {
    /// Sets the side of a packet that begins a flow, by the first edge that takes it.
    ///
    /// # Errors
    /// The reason to drop it, if no edge takes it, or one to `Drop`.
    pub fn enter(&mut self, packet: &mut Packet, stages: &[Box<dyn Stage>]) -> Result<(), Refusal> {
        let fields = PacketFields { packet, routing: self, stages, started: NfSet::default() };
        let found = self.topology.enter(packet.meta().transit.ingress, &fields);
        let (side, hop, edge) = found.ok_or(Refusal::UNMATCHED)?;
        if let Hop::End(end @ (RouteEnd::Drop | RouteEnd::Unmatched)) = hop {
            self.log.count(Some(edge), packet.len());
            let reason = if end == RouteEnd::Drop { DropReason::Policy } else { DropReason::PolicyUnmatched };
            return Err(Refusal { reason, edge: Some(edge) });
        }
        packet.meta_mut().transit.side = side;
        self.entered = Some((packet.meta().transit.sequence, hop, edge));
        Ok(())
    }

    /// A packet of a group leaves its port. Returns its first stop.
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
        let route = self.routes.of(transit.flow, records);
        let known = route.path().filter(|_| !turns);
        let is_whole = matches!(meta.class, PacketClass::Whole | PacketClass::FirstFragment);
        let is_own = is_whole && meta.protocol == header.key.protocol;
        let is_original = transit.direction == Direction::Original && transit.side == origin;
        let asks = is_own && is_original || known.is_none();
        let is_new = known.is_none();
        let (visited, tags) = (NfSet::default(), header.tags);
        let mut journey = Journey { visited, tags, is_known: false, is_new, asks };
        let follows = known.filter(|_| !asks || !self.topology.entry_reads(transit.ingress).is_any());
        let choice = if follows.is_some() { EdgeChoice::Route } else { EdgeChoice::Filters };
        let (hop, edge) = match follows {
            Some(_) if route.is_one_way() && transit.side != origin => (Hop::End(RouteEnd::Unmatched), None),
            Some(path) => {
                let hop = route.hop(path, transit.side, origin);
                (hop, self.topology.entry_edge_to(transit.ingress, transit.side, self.topology.stop(hop)))
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
        self.log.count(edge, packet.len());
        self.journeys[at] = journey;
        Heading { hop, edge, choice }
    }

    /// A packet of a group passed a function. Returns its next stop.
    pub fn go_on(
        &mut self,
        at: usize,
        packet: &Packet,
        stage: usize,
        records: &FlowRecords,
        stages: &[Box<dyn Stage>],
    ) -> Heading {
        let transit = packet.meta().transit;
        let header = records.header(transit.flow);
        let route = self.routes.of(transit.flow, records);
        let journey = self.journeys[at];
        // On another path, a packet may have been rewritten otherwise.
        let is_on = |path: &NfSet| path.up_to(stage, transit.side) == journey.visited;
        let known = route.path().filter(is_on).filter(|_| !header.has(RecordHeader::FLAG_TURNS));
        let asks = journey.asks && self.topology.branch_reads(stage, transit.side).is_any();
        let follows = known.filter(|_| !asks);
        let choice = if follows.is_some() { EdgeChoice::Route } else { EdgeChoice::Filters };
        let (hop, edge) = match follows {
            Some(path) => {
                let rest = path.after(stage, transit.side);
                let hop = route.hop(rest, transit.side, header.origin());
                (hop, self.topology.edge_to(stage, transit.side, self.topology.stop(hop)))
            }
            None => {
                self.journeys[at].is_new = true;
                let started = NfSet(route.started);
                let fields = PacketFields { packet, routing: self, stages, started };
                let (hop, edge) = self.topology.next(stage, transit.side, &fields);
                (hop, Some(edge))
            }
        };
        self.log.count(edge, packet.len());
        Heading { hop, edge, choice }
    }

    /// A packet of a group is at the end of its path, and leaves by its port. Returns true if the
    /// flow's path has changed.
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
        if self.keepers.are_elsewhere(self.journeys[at].visited) {
            self.keep(packet, header);
        }
        let (turns, origin) = (header.has(RecordHeader::FLAG_TURNS), header.origin());
        let journey = self.journeys[at];
        let defines = journey.asks && journey.is_new && !turns && transit.direction == Direction::Original;
        if !defines {
            return Ok(false);
        }
        let Some(route) = self.routes.of_mut(transit.flow, records) else { return Ok(false) };
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

    /// Returns the next stop of a single packet after a function: along `trail`, the functions that
    /// another packet visited from this port, or by the filters.
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
                (hop, self.topology.edge_to(stage, transit.side, self.topology.stop(hop)))
            }
            None => {
                let started = self.routes.started(transit.flow, records);
                let fields = PacketFields { packet, routing: self, stages, started };
                let (hop, edge) = self.topology.next(stage, transit.side, &fields);
                (hop, Some(edge))
            }
        };
        self.log.count(edge, packet.len());
        Heading { hop, edge, choice }
    }
}
