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
use crate::routing::{Refusal, Routing};
use crate::topology::{BRANCHING_NFS_MAX, EdgeId, Hop, NfSet, RouteEnd};

/// The verdict that a function finds for packets of the group that do not come to it.
const ELSEWHERE: Verdict = Verdict::Drop(DropReason::Internal);

/// The packets of a group, a bit for each, that come to each function next.
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

    /// Takes the function that comes first for packets of this side.
    fn take(&mut self, side: Side) -> Option<(usize, u64)> {
        let stage = self.stages.first(side)?;
        self.stages = NfSet(self.stages.0 & !(1 << stage));
        Some((stage, std::mem::take(&mut self.packets[stage])))
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

    /// Takes the packets of a crossing along the edges.
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
        for at in 0..packets.len() {
            if verdicts[at] != Verdict::Forward || packets[at].meta().transit.side != side {
                continue;
            }
            let Some(routing) = &mut self.flows.routing else { return };
            let heading = routing.set_out(at, &packets[at], &self.flows.table.records, &self.stages.all);
            run.observe_edge(heading.edge, heading.choice, &packets[at]);
            self.head_for(heading.hop, at, &mut packets[at], &mut verdicts[at], &mut stops);
        }
        while let Some((stage, here)) = stops.take(side) {
            if let (Some(_), [packet]) = (pass, &mut *packets) {
                self.enter_pass(packet, stage, PacketOrigin::Arrived);
            }
            let here = self.start_flows(stage, here, packets, verdicts, run);
            if let Some(routing) = &mut self.flows.routing {
                bits(here).for_each(|at| routing.journeys[at].visited.add(stage));
            }
            self.visit(stage, here, crossing, packets, verdicts, run);
            for at in bits(here) {
                if verdicts[at] != Verdict::Forward {
                    continue;
                }
                let Some(routing) = &mut self.flows.routing else { return };
                let records = &self.flows.table.records;
                let heading = routing.go_on(at, &packets[at], stage, records, &self.stages.all);
                run.observe_edge(heading.edge, heading.choice, &packets[at]);
                self.head_for(heading.hop, at, &mut packets[at], &mut verdicts[at], &mut stops);
            }
        }
        if let (Some(pass), [packet]) = (pass, &mut *packets) {
            packet.meta_mut().transit.flow = pass.main;
        }
        self.forget_rules_of_tagged(side, packets);
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
        packets: &[Packet],
        verdicts: &mut [Verdict],
        run: &mut BatchRun<'_, '_>,
    ) -> u64 {
        let mut going = here;
        for at in bits(here) {
            if !self.flows.start_at(stage, &packets[at], &mut self.stages, run.pool) {
                verdicts[at] = Verdict::Drop(DropReason::FunctionPanic);
                going &= !(1 << at);
            }
        }
        going
    }

    /// Takes those of the packets through a function that come to it.
    fn visit(
        &mut self,
        stage: usize,
        here: u64,
        crossing: &mut GroupCrossing,
        packets: &mut [Packet],
        verdicts: &mut [Verdict],
        run: &mut BatchRun<'_, '_>,
    ) {
        if here == 0 {
            return;
        }
        let mut own = [ELSEWHERE; GROUP_MAX];
        crossing.load = PacketTotals::default();
        for at in bits(here) {
            own[at] = verdicts[at];
            crossing.load.add(packets[at].len());
        }
        let own = &mut own[..packets.len()];
        self.take_through(stage, crossing, packets, own, run);
        bits(here).for_each(|at| verdicts[at] = own[at]);
    }

    /// Takes one packet along the edges behind `stage`, until one function turns it back: says
    /// which one, if one does.
    pub(super) fn cross_edges_behind(
        &mut self,
        stage: usize,
        packet: &mut [Packet],
        verdict: &mut [Verdict],
        traveller: PacketOrigin,
        run: &mut BatchRun<'_, '_>,
    ) -> Option<usize> {
        let (side, trail) = (packet[0].meta().transit.side, run.trail);
        let (mut at, mut assembled) = (stage, false);
        // Answers to it go back the way that it came.
        let journey = std::mem::take(&mut self.flows.routing.as_mut()?.journeys[0]);
        let turned = loop {
            self.flows.routing.as_mut()?.journeys[0].visited.add(at);
            let records = &self.flows.table.records;
            let routing = self.flows.routing.as_mut()?;
            let heading = routing.next(&packet[0], at, trail, records, &self.stages.all);
            run.observe_edge(heading.edge, heading.choice, &packet[0]);
            at = match heading.hop {
                Hop::Stage(next) => next,
                Hop::End(RouteEnd::Port(port)) => {
                    packet[0].meta_mut().transit.egress = port;
                    break None;
                }
                Hop::End(RouteEnd::Drop) => {
                    verdict[0] = Verdict::Drop(DropReason::Policy);
                    break None;
                }
                Hop::End(RouteEnd::Unmatched) => {
                    verdict[0] = Verdict::Drop(DropReason::PolicyUnmatched);
                    break None;
                }
            };
            self.enter_pass(&mut packet[0], at, traveller);
            if !self.flows.start_at(at, &packet[0], &mut self.stages, run.pool) {
                verdict[0] = Verdict::Drop(DropReason::FunctionPanic);
                break None;
            }
            if traveller == PacketOrigin::Arrived
                && !assembled
                && self.stages.all[at].descriptor().stream
                && let Some(reassembly) = &mut self.flows.reassembly
            {
                let records = &mut self.flows.table.records;
                reassembly.assemble(side, packet, verdict, records, &mut self.stages.effects);
                assembled = true;
            }
            let load = PacketTotals::by_side(packet, verdict)[side as usize];
            self.run_stage(at, side, load, packet, verdict, assembled, run);
            match verdict[0] {
                Verdict::TurnBack => break Some(at),
                Verdict::Drop(_) => break None,
                Verdict::Forward => {}
            }
        };
        self.flows.routing.as_mut()?.journeys[0] = journey;
        turned
    }
}

/// Returns the places of bits, in ascending order.
fn bits(mut set: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let at = (set != 0).then(|| set.trailing_zeros() as usize)?;
        set &= set - 1;
        Some(at)
    })
}
