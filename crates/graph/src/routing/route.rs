//! The routes of flows, in their records.

use std::ops::Range;

use nf::record::{FlowRecords, RecordLayout};
use nf::stage::Stage;
use packet::Side;
use packet::memory::SlotField;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::topology::{Hop, NfSet, RouteEnd};

/// The route of a flow: a part of its record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(crate) struct Route {
    /// Functions on the path of the last packet of the original direction that left.
    pub(super) path: u64,
    /// Functions that have state of the flow.
    pub(super) started: u64,
    /// The port where the flow's first packet entered.
    pub(super) from: u16,
    /// The port that packets of the original direction leave by.
    pub(super) to: u16,
    pub(super) flags: u32,
}

impl Route {
    /// A packet of the original direction has left: path and `to` are known.
    pub(super) const KNOWN: u32 = 1;
    /// There are no edges back.
    pub(super) const ONE_WAY: u32 = 2;

    /// Returns the functions of the path; `None` if no packet has left yet.
    #[inline]
    pub fn path(&self) -> Option<NfSet> {
        (self.flags & Route::KNOWN != 0).then_some(NfSet(self.path))
    }

    pub(super) fn is_one_way(&self) -> bool {
        self.flags & Route::ONE_WAY != 0
    }

    /// Returns the next stop of a packet of this side that has these functions before it.
    pub(super) fn hop(&self, rest: NfSet, side: Side, origin: Side) -> Hop {
        let port = if side == origin { self.to } else { self.from };
        rest.first(side).map_or(Hop::End(RouteEnd::Port(port)), Hop::Stage)
    }
}

/// Reads and changes the routes in flows' records, and the functions' parts that depend on them.
pub(crate) struct Routes {
    part: SlotField<Route>,
    /// For each function, its bytes of a record.
    parts: Vec<Range<usize>>,
    /// For each function, the bits of its attributes.
    tags: Vec<u64>,
    /// For each function, the others that share bytes of a record or bits of attributes with it.
    overlaps: Vec<NfSet>,
}

impl Routes {
    /// Reserves the route's bytes of a record. Returns their offset.
    pub(super) fn reserve(layout: &mut RecordLayout) -> usize {
        let len = size_of::<Route>();
        layout.add(len, len).0
    }

    /// Creates the routes at this offset of records, for functions that have their parts of them.
    /// Returns `None` if the offset does not suit a route.
    pub(super) fn new(start: usize, stages: &[Box<dyn Stage>]) -> Option<Routes> {
        let part = SlotField::at(start)?;
        let bytes = stages.iter().map(|stage| stage.saved_part().map(|part| part.bytes).unwrap_or_default());
        let parts: Vec<Range<usize>> = bytes.collect();
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
        Some(Routes { part, parts, tags, overlaps })
    }

    /// Returns the bytes of a record before the functions' parts.
    pub fn lead_len(&self) -> usize {
        self.part.start() + size_of::<Route>()
    }

    /// Returns the route of a flow.
    #[inline]
    pub fn of(&self, record: u32, records: &FlowRecords) -> Route {
        records.state(record, self.part).copied().unwrap_or_default()
    }

    /// Returns the route of a flow, to be changed.
    #[inline]
    pub(super) fn of_mut<'r>(&self, record: u32, records: &'r mut FlowRecords) -> Option<&'r mut Route> {
        records.state_mut(record, self.part)
    }

    /// Returns the route in the bytes of a saved record.
    fn saved(&self, record: &[u8]) -> Option<Route> {
        let (route, _) = Route::read_from_prefix(record.get(self.part.start()..)?).ok()?;
        Some(route)
    }

    /// Returns true if the path of a flow is known, and has edges back.
    pub fn is_two_way(&self, record: u32, records: &FlowRecords) -> bool {
        let route = self.of(record, records);
        route.path().is_some() && !route.is_one_way()
    }

    /// Returns the functions that have state of a flow.
    #[inline]
    pub fn started(&self, record: u32, records: &FlowRecords) -> NfSet {
        NfSet(self.of(record, records).started)
    }

    /// Returns the functions that have state of a saved flow.
    pub fn saved_started(&self, record: &[u8]) -> NfSet {
        self.saved(record).map_or(NfSet::default(), |route| NfSet(route.started))
    }

    /// Returns the ports at the ends of a saved flow's path: where its first packet entered, and
    /// where packets of that direction leave.
    pub fn saved_ports(&self, record: &[u8]) -> Option<(u16, u16)> {
        self.saved(record).map(|route| (route.from, route.to))
    }

    /// Returns true if a saved route has only functions of this graph.
    pub fn takes(&self, record: &[u8]) -> bool {
        let nfs = self.parts.len() as u32;
        let all = 1_u64.checked_shl(nfs).map_or(u64::MAX, |beyond| beyond - 1);
        self.saved(record).is_some_and(|route| (route.path | route.started) & !all == 0)
    }

    /// Begins the route of a flow with a packet that entered by this port.
    pub fn begin(&self, record: u32, ingress: u16, records: &mut FlowRecords) {
        if let Some(route) = self.of_mut(record, records) {
            *route = Route { from: ingress, ..Route::default() };
        }
    }

    /// Before a function gets the first packet of a flow: returns the functions with state of the
    /// flow that it replaces, for which the flow must end; `None` if it has state of the flow
    /// already.
    #[inline]
    pub fn replaced_by(&self, stage: usize, record: u32, records: &FlowRecords) -> Option<NfSet> {
        let started = self.started(record, records);
        (!started.has(stage)).then(|| NfSet(started.0 & self.overlaps[stage].0))
    }

    /// Gives a function zeroed state of a flow, and removes that of the functions that it replaces.
    /// Returns the bits of its attributes, which are zeroed, too.
    pub fn start(&self, stage: usize, replaced: NfSet, record: u32, records: &mut FlowRecords) -> u64 {
        if let Some(route) = self.of_mut(record, records) {
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
}
