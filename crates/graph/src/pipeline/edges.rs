//! Along the edges of a graph with branches: function by function in topological order, each over
//! those packets of a group that come to it.

use nf::Verdict;
use nf::stage::PacketTotals;
use packet::{Direction, DropReason, Packet, Side};

use super::crossing::GroupCrossing;
use super::turning::PacketOrigin;
use super::{BatchRun, Pipeline};
use crate::observer::EdgeChoice;
use crate::queue::GROUP_MAX;
use crate::routing::{PathId, Refusal, Routing};
use crate::topology::{BRANCHING_NFS_MAX, EdgeId, Hop, NfSet, RouteEnd};

/// The verdict that a function finds for packets of the group that do not come to it.
const ELSEWHERE: Verdict = Verdict::Drop(DropReason::Internal);

/// Packets of a group, a bit for each, that take one known path.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KnownGroup {
    path: PathId,
    nfs: NfSet,
    /// Those not dropped or turned back so far, nor sent elsewhere.
    packets: u64,
    /// Those whose filters are asked.
    asking: u64,
    load: PacketTotals,
    /// The number of functions that they have visited.
    visited: usize,
}

impl KnownGroup {
    fn visits(&self, stage: usize) -> bool {
        self.nfs.0 >> stage & 1 != 0
    }

    /// A function dropped or turned back some, or changed their lengths.
    fn leave_behind(&mut self, packets: &[Packet], verdicts: &[Verdict]) {
        self.keep_only(forwarded(self.packets, verdicts), packets);
    }

    /// All but these packets left the group, or lengths changed.
    fn keep_only(&mut self, kept: u64, packets: &[Packet]) {
        self.packets = kept;
        self.load = PacketTotals::default();
        bits(self.packets).for_each(|at| self.load.add(packets[at].len()));
    }
}

/// The packets of a group whose path is not known, a bit for each, that come to each function next.
struct NextStops {
    packets: [u64; BRANCHING_NFS_MAX],
    /// Functions that some come to.
    stages: NfSet,
}

impl NextStops {
    fn add(&mut self, stage: usize, at: usize) {
        self.packets[stage] |= 1 << at;
        self.stages.add(stage);
    }

    /// Takes the packets that come to a function.
    fn take(&mut self, stage: usize) -> u64 {
        self.stages = NfSet(self.stages.0 & !(1 << stage));
        std::mem::take(&mut self.packets[stage])
    }
}

/// The verdicts of a group, as shown to a function that not all of its packets come to.
struct OwnVerdicts {
    all: [Verdict; GROUP_MAX],
    /// The packets that it sees as forwarded, a bit for each.
    forwarded: u64,
}

impl OwnVerdicts {
    /// These packets come to the function, and no others.
    fn show(&mut self, here: u64) {
        for at in bits(self.forwarded ^ here) {
            self.all[at] = if here >> at & 1 != 0 { Verdict::Forward } else { ELSEWHERE };
        }
        self.forwarded = here;
    }
}

impl BatchRun<'_, '_> {
    /// The observer, if there is one, hears of the edge that a packet took.
    #[inline(always)]
    pub(super) fn observe_edge(&mut self, edge: Option<EdgeId>, choice: EdgeChoice, packet: &Packet) {
        if let (Some(observer), Some(edge)) = (&mut self.observer, edge) {
            observer.edge(edge, choice, packet);
        }
    }
}

impl Pipeline {
    /// A packet that begins a flow gets the side of the edge that it enters by, one of a known flow
    /// that of its direction.
    ///
    /// # Errors
    /// If no edge takes it.
    #[inline]
    pub(super) fn enter(
        &mut self,
        packet: &mut Packet,
        found: Option<(u32, Direction)>,
    ) -> Result<(), Refusal> {
        let Some(routing) = &mut self.flows.routing else { return Ok(()) };
        let Some((record, direction)) = found else { return routing.enter(packet, &self.stages.all) };
        let transit = &mut packet.meta_mut().transit;
        transit.side = match self.flows.table.passes.get(record) {
            Some(pass) => pass.near,
            None => Routing::side_of(self.flows.table.records.header(record), direction),
        };
        if routing.admits(transit.ingress, transit.side) {
            return Ok(());
        }
        // It came in where packets of the other direction do. Functions judge that, as on a line.
        transit.side = transit.side.other();
        let is_two_way = routing.is_two_way(record, &self.flows.table.records);
        if is_two_way { Ok(()) } else { Err(Refusal::UNMATCHED) }
    }

    /// Sends a packet on that functions do not see: along the edges whose filters it passes.
    pub fn send_unjudged(&mut self, mut packet: Packet, run: &mut BatchRun<'_, '_>) {
        if let Some(routing) = &mut self.flows.routing {
            let taken = |edge, packet: &Packet| run.observe_edge(Some(edge), EdgeChoice::Filters, packet);
            if let Err(reason) = routing.pass_by(&mut packet, &self.stages.all, taken) {
                return self.drop_packet(packet, reason, run);
            }
        }
        self.send(packet, run);
    }

    /// Takes the packets of a crossing along the edges, function by function.
    pub(super) fn cross_edges(
        &mut self,
        crossing: &mut GroupCrossing,
        packets: &mut [Packet],
        verdicts: &mut [Verdict],
        run: &mut BatchRun<'_, '_>,
    ) {
        let side = crossing.side;
        // A packet of a flow that turns back is alone.
        let pass = match packets {
            [packet] => self.flows.table.passes.get(packet.meta().transit.flow),
            _ => None,
        };
        let mut stops = NextStops { packets: [0; BRANCHING_NFS_MAX], stages: NfSet::default() };
        let mut known = self.set_out(side, pass.is_none(), packets, verdicts, &mut stops, run);
        let mut ahead = known.iter().fold(NfSet::default(), |ahead, group| NfSet(ahead.0 | group.nfs.0));
        let mut own = OwnVerdicts { all: [ELSEWHERE; GROUP_MAX], forwarded: 0 };
        while let Some(stage) = NfSet(ahead.0 | stops.stages.0).first(side) {
            ahead = NfSet(ahead.0 & !(1 << stage));
            let mut walking = stops.take(stage);
            if walking != 0 {
                if let (Some(_), [packet]) = (pass, &mut *packets) {
                    self.enter_pass(packet, stage, PacketOrigin::Arrived);
                }
                walking = self.start_flows(stage, walking, packets, verdicts, run);
            }
            let (mut here, mut load) = (walking, PacketTotals::default());
            bits(walking).for_each(|at| load.add(packets[at].len()));
            for group in known.iter().filter(|group| group.visits(stage)) {
                here |= group.packets;
                load.packets += group.load.packets;
                load.bytes += group.load.bytes;
            }
            if here != 0 {
                crossing.load = load;
                let is_all = here.count_ones() as usize == packets.len();
                let seen = if is_all {
                    &mut *verdicts
                } else {
                    own.show(here);
                    &mut own.all[..packets.len()]
                };
                if !self.take_through(stage, crossing, packets, seen, run) {
                    if !is_all {
                        bits(here).for_each(|at| verdicts[at] = own.all[at]);
                        own.forwarded = forwarded(here, &own.all);
                    }
                    let left = known.iter_mut().filter(|group| group.visits(stage));
                    left.for_each(|group| group.leave_behind(packets, verdicts));
                }
            }
            self.leave_known(stage, &mut known, packets, verdicts, &mut stops);
            if walking != 0 {
                self.leave(stage, walking, packets, verdicts, &mut stops, run);
            }
        }
        if let (Some(pass), [packet]) = (pass, &mut *packets) {
            packet.meta_mut().transit.flow = pass.main;
        }
        self.arrive_known(known, packets);
        self.forget_rules_of_tagged(side, packets);
    }

    /// The packets of a crossing leave their ports: those whose path is known in groups, the others
    /// for their first stop.
    fn set_out(
        &mut self,
        side: Side,
        may_know: bool,
        packets: &mut [Packet],
        verdicts: &mut [Verdict],
        stops: &mut NextStops,
        run: &mut BatchRun<'_, '_>,
    ) -> Vec<KnownGroup> {
        let Some(routing) = &mut self.flows.routing else { return Vec::new() };
        let may_know = may_know && run.observer.is_none() && routing.begin_group();
        let mut known = std::mem::take(&mut self.known_groups);
        known.clear();
        for at in 0..packets.len() {
            if !verdicts[at].is_forward() || packets[at].meta().transit.side != side {
                continue;
            }
            let Some(routing) = &mut self.flows.routing else { break };
            let records = &self.flows.table.records;
            if may_know && let Some((path, asks)) = routing.foresee(at, &mut packets[at], records) {
                let group = match known.iter_mut().rev().find(|group| group.path == path) {
                    Some(group) => group,
                    None => {
                        let (nfs, load) = (routing.known_path(path).0, PacketTotals::default());
                        known.push_mut(KnownGroup { path, nfs, packets: 0, asking: 0, load, visited: 0 })
                    }
                };
                group.packets |= 1 << at;
                group.asking |= u64::from(asks) << at;
                group.load.add(packets[at].len());
                continue;
            }
            let heading = routing.set_out(at, &packets[at], records, &self.stages.all);
            run.observe_edge(heading.edge, heading.choice, &packets[at]);
            self.head_for(heading.hop, at, &mut packets[at], &mut verdicts[at], stops);
        }
        if let Some(routing) = &mut self.flows.routing {
            for group in &known {
                routing.count_all(routing.known_path(group.path).1, group.load);
            }
        }
        known
    }

    /// Packets of known paths leave a function. Those that filters send elsewhere leave their
    /// groups.
    fn leave_known(
        &mut self,
        stage: usize,
        known: &mut [KnownGroup],
        packets: &mut [Packet],
        verdicts: &mut [Verdict],
        stops: &mut NextStops,
    ) {
        for group in known.iter_mut().filter(|group| group.visits(stage)) {
            let asking = group.packets & group.asking;
            if asking != 0 {
                self.ask_known(stage, group, asking, packets, verdicts, stops);
            }
            let Some(routing) = &mut self.flows.routing else { return };
            if let Some(edge) = routing.known_edge(group.path, group.visited) {
                routing.count_all(edge, group.load);
            }
            group.visited += 1;
        }
    }

    /// Asks the filters behind a function about these packets of a group.
    fn ask_known(
        &mut self,
        stage: usize,
        group: &mut KnownGroup,
        asking: u64,
        packets: &mut [Packet],
        verdicts: &mut [Verdict],
        stops: &mut NextStops,
    ) {
        let Some(routing) = &self.flows.routing else { return };
        if !routing.asks_behind(group.path, stage) {
            return;
        }
        let (known, mut last, mut left) = (routing.known_edge(group.path, group.visited), None, 0);
        for at in bits(asking) {
            let Some(routing) = &mut self.flows.routing else { return };
            let records = &self.flows.table.records;
            let (hop, edge) = routing.ask(stage, &packets[at], records, &self.stages.all, &mut last);
            if Some(edge) != known {
                routing.leave_path(at, &packets[at], stage, edge);
                self.head_for(hop, at, &mut packets[at], &mut verdicts[at], stops);
                left |= 1 << at;
            }
        }
        if left != 0 {
            group.keep_only(group.packets & !left, packets);
        }
    }

    /// Packets of known paths are at their ports.
    fn arrive_known(&mut self, known: Vec<KnownGroup>, packets: &mut [Packet]) {
        let Some(routing) = &self.flows.routing else { return };
        for group in known.iter().filter(|group| routing.is_known_kept_by_timeouts(group.path)) {
            for at in bits(group.packets) {
                let header = self.flows.table.records.header(packets[at].meta().transit.flow);
                routing.keep(&mut packets[at], header);
            }
        }
        self.known_groups = known;
    }

    /// Packets whose path is not known leave a function for their next stop.
    fn leave(
        &mut self,
        stage: usize,
        here: u64,
        packets: &mut [Packet],
        verdicts: &mut [Verdict],
        stops: &mut NextStops,
        run: &mut BatchRun<'_, '_>,
    ) {
        for at in bits(here) {
            if !verdicts[at].is_forward() {
                continue;
            }
            let Some(routing) = &mut self.flows.routing else { return };
            let records = &self.flows.table.records;
            let heading = routing.go_on(at, &packets[at], stage, records, &self.stages.all);
            run.observe_edge(heading.edge, heading.choice, &packets[at]);
            self.head_for(heading.hop, at, &mut packets[at], &mut verdicts[at], stops);
        }
    }

    /// A packet goes on to its next stop. At the end of its path, its port or the reason to drop it
    /// is known.
    fn head_for(
        &mut self,
        hop: Hop,
        at: usize,
        packet: &mut Packet,
        verdict: &mut Verdict,
        stops: &mut NextStops,
    ) {
        let end = match hop {
            Hop::Stage(stage) => return stops.add(stage, at),
            Hop::End(end) => end,
        };
        let Some(routing) = &mut self.flows.routing else { return };
        let record = packet.meta().transit.flow;
        match routing.arrive(at, packet, end, &mut self.flows.table.records) {
            Ok(false) => {}
            Ok(true) => {
                // Functions on the new path may rewrite the flow differently.
                packet.meta_mut().transit.relearn_alias = true;
                self.flows.forget_rules(record);
            }
            Err(reason) => *verdict = Verdict::Drop(reason),
        }
    }

    /// A function hears of the flows that these packets are the first ones of to come to it.
    /// Returns those that go on.
    fn start_flows(
        &mut self,
        stage: usize,
        here: u64,
        packets: &mut [Packet],
        verdicts: &mut [Verdict],
        run: &mut BatchRun<'_, '_>,
    ) -> u64 {
        let mut going = here;
        for at in bits(here) {
            if !self.flows.start_at(stage, &mut packets[at], &mut self.stages, run.pool) {
                verdicts[at] = Verdict::Drop(DropReason::FunctionPanic);
                going &= !(1 << at);
            }
            if let Some(routing) = &mut self.flows.routing {
                routing.journeys[at].visited.add(stage);
            }
        }
        going
    }

    /// Returns the next function that one packet comes to behind `stage`, along the edges. At the
    /// end of its path, its port or the reason to drop it is known.
    pub(super) fn follow_edge(
        &mut self,
        stage: usize,
        packet: &mut Packet,
        verdict: &mut Verdict,
        run: &mut BatchRun<'_, '_>,
    ) -> Option<usize> {
        let routing = self.flows.routing.as_mut()?;
        // Answers to it go back the way that it came.
        routing.journeys[0].visited.add(stage);
        let heading = routing.next(packet, stage, run.trail, &self.flows.table.records, &self.stages.all);
        run.observe_edge(heading.edge, heading.choice, packet);
        match heading.hop {
            Hop::Stage(next) => return Some(next),
            Hop::End(RouteEnd::Port(port)) => packet.meta_mut().transit.egress = port,
            Hop::End(RouteEnd::Drop) => *verdict = Verdict::Drop(DropReason::Policy),
            Hop::End(RouteEnd::Unmatched) => *verdict = Verdict::Drop(DropReason::PolicyUnmatched),
        }
        None
    }
}

/// Returns those of these packets that go on.
fn forwarded(of: u64, verdicts: &[Verdict]) -> u64 {
    bits(of).filter(|&at| verdicts[at].is_forward()).fold(0, |set, at| set | 1 << at)
}

/// Returns the places of bits, in ascending order.
fn bits(mut set: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let at = (set != 0).then(|| set.trailing_zeros() as usize)?;
        set &= set - 1;
        Some(at)
    })
}
