//! Known paths: the edges of a path are looked up once for the packets of many flows.

use std::ops::Range;

use nf::record::{FlowRecords, RecordHeader};
use nf::stage::Stage;
use packet::{Direction, Packet, PacketClass, Side, Transit};

use super::fields::PacketFields;
use super::{Journey, Routing};
use crate::queue::GROUP_MAX;
use crate::topology::{EdgeId, Hop, NfSet, RouteEnd};

/// Limit on the known paths. When there are more, all are looked up again.
const KNOWN_PATHS_MAX: usize = 192;
const _: () = assert!(KNOWN_PATHS_MAX > GROUP_MAX && KNOWN_PATHS_MAX < u8::MAX as usize);

/// Places of the index, a power of two.
const INDEX_LEN: usize = 512;

/// A known path, by its place. Valid until the next group.
pub(crate) type PathId = u8;

/// No path, in the index.
const NONE: PathId = PathId::MAX;

/// The functions between two ports that packets of a side visit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PathKey {
    nfs: NfSet,
    ingress: u16,
    egress: u16,
    side: Side,
}

/// A path with existing edges.
#[derive(Debug)]
struct KnownPath {
    key: PathKey,
    /// The edge from the port.
    entry: EdgeId,
    /// The places of the edges after its functions, in the order of visits.
    edges: Range<usize>,
    /// True if filters at its port may decide differently about packets of one flow.
    asks_at_port: bool,
    /// Its functions after which filters may.
    asking: NfSet,
    /// True if none of its functions sets flows' timeouts, but others do.
    is_kept_by_timeouts: bool,
}

/// The answer of filters that read attributes and nothing else.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FilterAnswer {
    tags: u64,
    started: NfSet,
    next: (Hop, EdgeId),
}

/// Known paths, and an index of them.
#[derive(Debug)]
pub(crate) struct KnownPaths {
    all: Vec<KnownPath>,
    /// Edges of all paths.
    edges: Vec<EdgeId>,
    index: Box<[PathId; INDEX_LEN]>,
}

impl KnownPaths {
    /// Creates an empty table, for a graph of n functions.
    pub fn new(functions: usize) -> KnownPaths {
        KnownPaths {
            all: Vec::with_capacity(KNOWN_PATHS_MAX),
            edges: Vec::with_capacity(KNOWN_PATHS_MAX * functions),
            index: Box::new([NONE; INDEX_LEN]),
        }
    }

    /// Makes room for the paths of a group.
    fn reserve_group(&mut self) {
        if self.all.len() > KNOWN_PATHS_MAX - GROUP_MAX {
            self.all.clear();
            self.edges.clear();
            self.index.fill(NONE);
        }
    }

    /// Returns the place of a path, or the free place of the index where it belongs.
    #[inline]
    fn find(&self, key: &PathKey) -> Result<PathId, usize> {
        let ports = u64::from(key.ingress) << 17 | u64::from(key.egress) << 1 | key.side as u64;
        let hash = (key.nfs.0.rotate_left(32) ^ ports).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut at = (hash >> 55) as usize % INDEX_LEN;
        // The index is never full.
        loop {
            match self.all.get(usize::from(self.index[at])) {
                Some(known) if known.key == *key => return Ok(self.index[at]),
                Some(_) => at = (at + 1) % INDEX_LEN,
                None => return Err(at),
            }
        }
    }

    /// Returns the functions of a known path, and the edge that leads to it from its port.
    #[inline]
    pub fn path(&self, id: PathId) -> (NfSet, EdgeId) {
        let known = &self.all[usize::from(id)];
        (known.key.nfs, known.entry)
    }

    /// Returns the edge of a known path after the function that it visits after `visited` others.
    #[inline]
    pub fn edge(&self, id: PathId, visited: usize) -> Option<EdgeId> {
        let KnownPath { edges, .. } = &self.all[usize::from(id)];
        self.edges[edges.clone()].get(visited).copied()
    }

    /// Returns true if filters after this function of a known path may decide differently about
    /// packets of one flow.
    #[inline]
    pub fn asks_after(&self, id: PathId, stage: usize) -> bool {
        self.all[usize::from(id)].asking.has(stage)
    }

    /// Returns true if [`Routing::keep`] sets the timeouts of flows on a known path.
    #[inline]
    pub fn is_kept_by_timeouts(&self, id: PathId) -> bool {
        self.all[usize::from(id)].is_kept_by_timeouts
    }
}

impl Routing {
    /// Begins a group: the known paths of the last one are no longer valid. Returns false if the
    /// edges of its packet must be traced one by one.
    #[inline]
    pub fn begin_group(&mut self) -> bool {
        self.known_paths.reserve_group();
        !self.log.is_tracing()
    }

    /// Returns the path that packet `at` of a group will take unless a function drops it or turns
    /// it back, or a filter sends it elsewhere. There is one if its flow has a path, no filter is
    /// evaluated at its port, and all functions of the path have state of the flow. Sets the
    /// packet's port. Also returns true if filters on the path must be evaluated
    /// ([`Routing::ask`]).
    #[inline]
    pub fn foresee(
        &mut self,
        at: usize,
        packet: &mut Packet,
        records: &FlowRecords,
    ) -> Option<(PathId, bool)> {
        let (meta, transit) = (packet.meta(), packet.meta().transit);
        let header = records.header(transit.flow);
        let route = self.routes.of(transit.flow, records);
        let (side, is_onward) = (transit.side, transit.side == header.origin());
        let may_ask = self.asks_somewhere
            && is_onward
            && transit.direction == Direction::Original
            && matches!(meta.class, PacketClass::Whole | PacketClass::FirstFragment)
            && meta.protocol == header.key.protocol;
        let nfs = route.path()?;
        let has_started = nfs.0 & !route.started == 0;
        let is_blocked = route.is_one_way() && !is_onward;
        if !has_started || is_blocked || header.has(RecordHeader::FLAG_TURNS) {
            return None;
        }
        let egress = if is_onward { route.to } else { route.from };
        let key = PathKey { nfs, ingress: transit.ingress, egress, side };
        let id = match self.known_paths.find(&key) {
            Ok(id) => id,
            Err(place) => self.get_to_know(key, place)?,
        };
        let mut asks = false;
        if may_ask {
            let known = &self.known_paths.all[usize::from(id)];
            if known.asks_at_port {
                return None;
            }
            asks = known.asking != NfSet::default();
        }
        packet.meta_mut().transit.egress = egress;
        self.journeys[at] = Journey::known(nfs, header);
        Some((id, asks))
    }

    /// Evaluates the filters after the function at `stage` for a packet of a known path. Returns
    /// its next stop, and the edge to it. `last`: the last answer for a packet of the group.
    #[inline]
    pub fn ask(
        &self,
        stage: usize,
        packet: &Packet,
        records: &FlowRecords,
        stages: &[Box<dyn Stage>],
        last: &mut Option<FilterAnswer>,
    ) -> (Hop, EdgeId) {
        let Transit { flow, side, tags, .. } = packet.meta().transit;
        let started = self.routes.started(flow, records);
        if let Some(last) = last
            && (last.tags, last.started) == (tags, started)
        {
            return last.next;
        }
        let fields = PacketFields { packet, routing: self, stages, started };
        let next = self.topology.next(stage, side, &fields);
        *last = self.topology.is_by_attributes(stage, side).then_some(FilterAnswer { tags, started, next });
        next
    }

    /// Packet `at` of a known path took an edge after `stage` that leaves the path.
    #[cold]
    pub fn leave_path(&mut self, at: usize, packet: &Packet, stage: usize, edge: EdgeId) {
        self.journeys[at].leave_path(stage, packet.meta().transit.side);
        self.log.count(Some(edge), packet.len());
    }

    #[cold]
    fn get_to_know(&mut self, key: PathKey, place: usize) -> Option<PathId> {
        let PathKey { nfs, ingress, egress, side } = key;
        let end = self.topology.stop(Hop::End(RouteEnd::Port(egress)));
        let hop = |rest: NfSet| rest.first(side).map_or(end, Hop::Stage);
        let entry = self.topology.entry_edge_to(ingress, side, hop(nfs))?;
        let (start, mut rest) = (self.known_paths.edges.len(), nfs);
        while let Some(stage) = rest.first(side) {
            rest = rest.after(stage, side);
            let Some(edge) = self.topology.edge_to(stage, side, hop(rest)) else {
                self.known_paths.edges.truncate(start);
                return None;
            };
            self.known_paths.edges.push(edge);
        }
        let edges = start..self.known_paths.edges.len();
        let is_kept_by_timeouts = self.keepers.are_elsewhere(nfs);
        let asks_at_port = self.topology.entry_reads(ingress).is_any();
        let mut asking = NfSet::default();
        let asks = |stage: &usize| self.topology.branch_reads(*stage, side).is_any();
        nfs.iter().filter(asks).for_each(|stage| asking.add(stage));
        let id = PathId::try_from(self.known_paths.all.len()).ok().filter(|id| *id != NONE)?;
        self.known_paths.all.push(KnownPath { key, entry, edges, asks_at_port, asking, is_kept_by_timeouts });
        self.known_paths.index[place] = id;
        Some(id)
    }
}
