//! The edges of a graph with branches: function by function in topological order, each over the
//! packets of a group that visit it.

use nf::Verdict;
use nf::stage::PacketTotals;
use packet::{Direction, DropReason, Packet, Side};

use super::BatchRun;
use super::traversal::{GroupCrossing, PacketOrigin, Traversal};
use crate::observer::EdgeChoice;
use crate::queue::GROUP_MAX;
use crate::routing::{PathId, Refusal, Routing};
use crate::topology::{BRANCHING_NFS_MAX, EdgeId, Hop, NfSet, RouteEnd};

/// The verdict that a function sees for packets of the group that do not visit it.
const ELSEWHERE: Verdict = Verdict::Drop(DropReason::Internal);

/// Packets of a group on one known path, a bit for each.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KnownGroup {
    path: PathId,
    nfs: NfSet,
    /// The packets not dropped, turned back or sent elsewhere so far.
    packets: u64,
    /// The packets for which filters are evaluated.
    asking: u64,
    load: PacketTotals,
    /// The number of functions that they have visited.
    visited: usize,
}

impl KnownGroup {
    fn visits(&self, stage: usize) -> bool {
        self.nfs.0 >> stage & 1 != 0
    }

    /// A function dropped or turned back packets, or changed lengths.
    fn leave_behind(&mut self, packets: &[Packet], verdicts: &[Verdict]) {
        self.keep_only(forwarded(self.packets, verdicts), packets);
    }

    /// Keeps only these packets in the group, and adds up their lengths.
    fn keep_only(&mut self, kept: u64, packets: &[Packet]) {
        self.packets = kept;
        self.load = PacketTotals::default();
        bits(self.packets).for_each(|at| self.load.add(packets[at].len()));
    }
}

/// The packets without a known path that visit each function next, a bit for each.
struct NextStops {
    packets: [u64; BRANCHING_NFS_MAX],
    /// Functions with such packets.
    stages: NfSet,
}

impl NextStops {
    fn add(&mut self, stage: usize, at: usize) {
        self.packets[stage] |= 1 << at;
        self.stages.add(stage);
    }

    /// Takes the packets that visit a function.
    fn take(&mut self, stage: usize) -> u64 {
        self.stages = NfSet(self.stages.0 & !(1 << stage));
        std::mem::take(&mut self.packets[stage])
    }
}

/// The verdicts of a group, as shown to a function that only some of its packets visit.
struct OwnVerdicts {
    all: [Verdict; GROUP_MAX],
    /// The packets that it sees as forwarded, a bit for each.
    forwarded: u64,
}

impl OwnVerdicts {
    /// Shows these packets to the function as forwarded, and no others.
    fn show(&mut self, here: u64) {
        for at in bits(self.forwarded ^ here) {
            self.all[at] = if here >> at & 1 != 0 { Verdict::Forward } else { ELSEWHERE };
        }
        self.forwarded = here;
    }
}

impl BatchRun<'_, '_> {
    /// Reports the edge that a packet took to the observer, if there is one.
    #[inline(always)]
    pub(super) fn observe_edge(&mut self, edge: Option<EdgeId>, choice: EdgeChoice, packet: &Packet) {
        if let (Some(observer), Some(edge)) = (&mut self.observer, edge) {
            observer.edge(edge, choice, packet);
        }
    }
}

impl Traversal {
    /// Sets the side of a packet: of one that begins a flow, to that of its first edge; of one of a
    /// known flow, to that of its direction.
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
        // It entered where packets of the other direction do. Functions decide, as on a line.
        transit.side = transit.side.other();
        let is_two_way = routing.routes().is_two_way(record, &self.flows.table.records);
        if is_two_way { Ok(()) } else { Err(Refusal::UNMATCHED) }
    }

    /// Sends a packet that functions do not see along the edges with filters that it passes.
    pub fn send_unjudged(&mut self, mut packet: Packet, run: &mut BatchRun<'_, '_>) {
        if let Some(routing) = &mut self.flows.routing {
            let taken = |edge, packet: &Packet| run.observe_edge(Some(edge), EdgeChoice::Filters, packet);
            if let Err(reason) = routing.pass_by(&mut packet, &self.stages.all, taken) {
                return self.exit.drop_packet(packet, reason, run);
            }
        }
        self.exit.send(packet, run);
    }

    /// Returns the next function of a single packet after `stage`, along the edges. At the end of
    /// its path, its port or the reason to drop it is set.
    pub(super) fn follow_edge(
        &mut self,
        stage: usize,
        packet: &mut Packet,
        verdict: &mut Verdict,
        run: &mut BatchRun<'_, '_>,
    ) -> Option<usize> {
        let routing = self.flows.routing.as_mut()?;
        // Answers to it take its path in reverse.
        routing.visit(0, stage);
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

/// A group on its way along the edges.
pub(super) struct EdgeRun<'t> {
    traversal: &'t mut Traversal,
    /// The packets by known path.
    known: &'t mut Vec<KnownGroup>,
    stops: NextStops,
    side: Side,
}

impl<'t> EdgeRun<'t> {
    /// Begins with packets of this side. `known`: memory that is reused.
    #[inline]
    pub fn new(traversal: &'t mut Traversal, known: &'t mut Vec<KnownGroup>, side: Side) -> EdgeRun<'t> {
        known.clear();
        let stops = NextStops { packets: [0; BRANCHING_NFS_MAX], stages: NfSet::default() };
        EdgeRun { traversal, known, stops, side }
    }

    /// Takes the packets of a crossing along the edges, function by function.
    pub fn cross(
        mut self,
        crossing: &mut GroupCrossing,
        packets: &mut [Packet],
        verdicts: &mut [Verdict],
        run: &mut BatchRun<'_, '_>,
    ) {
        let side = self.side;
        // A packet of a flow that turns back is a group of its own.
        let pass = match packets {
            [packet] => self.traversal.flows.table.passes.get(packet.meta().transit.flow),
            _ => None,
        };
        self.set_out(pass.is_none(), packets, verdicts, run);
        let mut ahead = self.known.iter().fold(NfSet::default(), |ahead, group| NfSet(ahead.0 | group.nfs.0));
        let mut own = OwnVerdicts { all: [ELSEWHERE; GROUP_MAX], forwarded: 0 };
        while let Some(stage) = NfSet(ahead.0 | self.stops.stages.0).first(side) {
            ahead = NfSet(ahead.0 & !(1 << stage));
            let mut walking = self.stops.take(stage);
            if walking != 0 {
                if let (Some(_), [packet]) = (pass, &mut *packets) {
                    self.traversal.enter_pass(packet, stage, PacketOrigin::Arrived);
                }
                walking = self.start_flows(stage, walking, packets, verdicts, run);
            }
            let (mut here, mut load) = (walking, PacketTotals::default());
            bits(walking).for_each(|at| load.add(packets[at].len()));
            for group in self.known.iter().filter(|group| group.visits(stage)) {
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
                if !self.traversal.take_through(stage, crossing, packets, seen, run) {
                    if !is_all {
                        bits(here).for_each(|at| verdicts[at] = own.all[at]);
                        own.forwarded = forwarded(here, &own.all);
                    }
                    let left = self.known.iter_mut().filter(|group| group.visits(stage));
                    left.for_each(|group| group.leave_behind(packets, verdicts));
                }
            }
            self.leave_known(stage, packets, verdicts);
            if walking != 0 {
                self.leave(stage, walking, packets, verdicts, run);
            }
        }
        if let (Some(pass), [packet]) = (pass, &mut *packets) {
            packet.meta_mut().transit.flow = pass.main;
        }
        self.arrive_known(packets);
        self.traversal.flows.forget_rules_of_tagged(side, packets);
    }

    /// The packets of a crossing leave their ports: those on known paths in groups, each other one
    /// for its first stop.
    fn set_out(
        &mut self,
        may_know: bool,
        packets: &mut [Packet],
        verdicts: &mut [Verdict],
        run: &mut BatchRun<'_, '_>,
    ) {
        let Some(routing) = &mut self.traversal.flows.routing else { return };
        let may_know = may_know && run.observer.is_none() && routing.begin_group();
        let side = self.side;
        for at in 0..packets.len() {
            if !verdicts[at].is_forward() || packets[at].meta().transit.side != side {
                continue;
            }
            let Some(routing) = &mut self.traversal.flows.routing else { break };
            let records = &self.traversal.flows.table.records;
            if may_know && let Some((path, asks)) = routing.foresee(at, &mut packets[at], records) {
                let group = match self.known.iter_mut().rev().find(|group| group.path == path) {
                    Some(group) => group,
                    None => {
                        let (nfs, load) = (routing.known_paths().path(path).0, PacketTotals::default());
                        self.known.push_mut(KnownGroup { path, nfs, packets: 0, asking: 0, load, visited: 0 })
                    }
                };
                group.packets |= 1 << at;
                group.asking |= u64::from(asks) << at;
                group.load.add(packets[at].len());
                continue;
            }
            let heading = routing.set_out(at, &packets[at], records, &self.traversal.stages.all);
            run.observe_edge(heading.edge, heading.choice, &packets[at]);
            self.head_for(heading.hop, at, &mut packets[at], &mut verdicts[at]);
        }
        if let Some(routing) = &mut self.traversal.flows.routing {
            for group in &*self.known {
                routing.count_all(routing.known_paths().path(group.path).1, group.load);
            }
        }
    }

    /// Packets on known paths leave a function. Those that filters send elsewhere leave their
    /// groups.
    fn leave_known(&mut self, stage: usize, packets: &mut [Packet], verdicts: &mut [Verdict]) {
        for number in 0..self.known.len() {
            if !self.known[number].visits(stage) {
                continue;
            }
            let asking = self.known[number].packets & self.known[number].asking;
            if asking != 0 {
                self.ask_known(stage, number, packets, verdicts);
            }
            let group = &mut self.known[number];
            let Some(routing) = &mut self.traversal.flows.routing else { return };
            if let Some(edge) = routing.known_paths().edge(group.path, group.visited) {
                routing.count_all(edge, group.load);
            }
            group.visited += 1;
        }
    }

    /// Evaluates the filters after a function for the packets of a group that need it.
    fn ask_known(&mut self, stage: usize, number: usize, packets: &mut [Packet], verdicts: &mut [Verdict]) {
        let group = self.known[number];
        let Some(routing) = &self.traversal.flows.routing else { return };
        if !routing.known_paths().asks_after(group.path, stage) {
            return;
        }
        let (known, mut last, mut left) = (routing.known_paths().edge(group.path, group.visited), None, 0);
        for at in bits(group.packets & group.asking) {
            let Some(routing) = &mut self.traversal.flows.routing else { return };
            let records = &self.traversal.flows.table.records;
            let (hop, edge) =
                routing.ask(stage, &packets[at], records, &self.traversal.stages.all, &mut last);
            if Some(edge) != known {
                routing.leave_path(at, &packets[at], stage, edge);
                self.head_for(hop, at, &mut packets[at], &mut verdicts[at]);
                left |= 1 << at;
            }
        }
        if left != 0 {
            self.known[number].keep_only(group.packets & !left, packets);
        }
    }

    /// Packets on known paths arrive at their ports.
    fn arrive_known(&mut self, packets: &mut [Packet]) {
        let Some(routing) = &self.traversal.flows.routing else { return };
        for group in self.known.iter().filter(|group| routing.known_paths().is_kept_by_timeouts(group.path)) {
            for at in bits(group.packets) {
                let header = self.traversal.flows.table.records.header(packets[at].meta().transit.flow);
                routing.keep(&mut packets[at], header);
            }
        }
    }

    /// Packets without a known path leave a function for their next stop.
    fn leave(
        &mut self,
        stage: usize,
        here: u64,
        packets: &mut [Packet],
        verdicts: &mut [Verdict],
        run: &mut BatchRun<'_, '_>,
    ) {
        for at in bits(here) {
            if !verdicts[at].is_forward() {
                continue;
            }
            let Some(routing) = &mut self.traversal.flows.routing else { return };
            let records = &self.traversal.flows.table.records;
            let heading = routing.go_on(at, &packets[at], stage, records, &self.traversal.stages.all);
            run.observe_edge(heading.edge, heading.choice, &packets[at]);
            self.head_for(heading.hop, at, &mut packets[at], &mut verdicts[at]);
        }
    }

    /// A packet leaves for its next stop. At the end of its path, its port or the reason to drop it
    /// is set.
    fn head_for(&mut self, hop: Hop, at: usize, packet: &mut Packet, verdict: &mut Verdict) {
        let end = match hop {
            Hop::Stage(stage) => return self.stops.add(stage, at),
            Hop::End(end) => end,
        };
        let Some(routing) = &mut self.traversal.flows.routing else { return };
        let record = packet.meta().transit.flow;
        match routing.arrive(at, packet, end, &mut self.traversal.flows.table.records) {
            Ok(false) => {}
            Ok(true) => {
                // Functions on the new path may rewrite the flow differently.
                packet.meta_mut().transit.relearn_alias = true;
                self.traversal.flows.forget_rules(record);
            }
            Err(reason) => *verdict = Verdict::Drop(reason),
        }
    }

    /// Notifies a function of the flows with their first packet there. Returns the packets that it
    /// will get.
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
            let Traversal { flows, stages, .. } = &mut *self.traversal;
            if !flows.start_at(stage, &mut packets[at], stages, run.pool) {
                verdicts[at] = Verdict::Drop(DropReason::FunctionPanic);
                going &= !(1 << at);
            }
            if let Some(routing) = &mut self.traversal.flows.routing {
                routing.visit(at, stage);
            }
        }
        going
    }
}

/// Returns the packets that are forwarded.
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
