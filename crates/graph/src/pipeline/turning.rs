//! Packets that a function turns back to the side where they entered.

use nf::Verdict;
use nf::record::RecordHeader;
use nf::stage::PacketTotals;
use packet::{DropReason, Packet, Side};

use super::BatchRun;
use super::traversal::{PacketOrigin, Traversal};
use crate::cache::FlowCache;
use crate::routing::Journey;

impl Traversal {
    /// Takes a packet, a group of its own, that the function at `stage` turned back through the
    /// functions that it passed, in reverse, as a packet from the other side, with the record of
    /// its second pass. Its flow's packets are groups of their own from now on.
    pub(super) fn turn_back(
        &mut self,
        packet: &mut [Packet],
        verdict: &mut [Verdict],
        stage: usize,
        traveller: PacketOrigin,
        run: &mut BatchRun<'_, '_>,
    ) {
        self.flows.cache.iter_mut().for_each(FlowCache::stop_recording);
        let record = packet[0].meta().transit.flow;
        let pass = match self.flows.table.passes.get(record) {
            Some(pass) => Ok(pass),
            None => {
                // Other packets of the group may belong to the evicted flow.
                let (how, stages) = ((stage, run.is_alone), &mut self.stages);
                self.flows.begin_second_pass(&packet[0], how, &run.parser, stages, run.pool)
            }
        };
        let pass = match pass {
            Ok(pass) => pass,
            Err(reason) => return verdict[0] = Verdict::Drop(reason),
        };
        self.flows.table.records.header_mut(pass.main).flags |= RecordHeader::FLAG_TURNS;
        run.trail = None;
        let transit = &mut packet[0].meta_mut().transit;
        transit.side = transit.side.other();
        verdict[0] = Verdict::Forward;
        if self.cross_behind(stage, packet, verdict, traveller, run).is_some() {
            verdict[0] = Verdict::Drop(DropReason::Internal); // A packet turns once.
        }
        if verdict[0] == Verdict::Forward {
            verdict[0] = Verdict::TurnBack; // It is through: no other function gets it.
        }
        packet[0].meta_mut().transit.flow = pass.main;
    }

    /// Takes one packet through the functions after `stage`, as seen from its side. Returns the
    /// function that turned it back.
    pub(super) fn cross_behind(
        &mut self,
        stage: usize,
        packet: &mut [Packet],
        verdict: &mut [Verdict],
        traveller: PacketOrigin,
        run: &mut BatchRun<'_, '_>,
    ) -> Option<usize> {
        let side = packet[0].meta().transit.side;
        let journey =
            self.flows.routing.as_mut().map(|routing| routing.replace_journey(0, Journey::default()));
        let (mut at, mut assembled) = (stage, false);
        while verdict[0] == Verdict::Forward
            && let Some(next) = self.next_behind(at, &mut packet[0], &mut verdict[0], run)
        {
            at = next;
            self.enter_pass(&mut packet[0], at, traveller);
            if !self.flows.start_at(at, &mut packet[0], &mut self.stages, run.pool) {
                verdict[0] = Verdict::Drop(DropReason::FunctionPanic);
                break;
            }
            if traveller == PacketOrigin::Arrived
                && !assembled
                && let Some(reassembly) = &mut self.flows.reassembly
                && reassembly.is_wanted_by(at)
            {
                let (records, effects) = (&mut self.flows.table.records, &mut self.stages.effects);
                reassembly.assemble((at, side), packet, verdict, records, effects);
                assembled = true;
            }
            let load = PacketTotals::by_side(packet, verdict)[side as usize];
            self.run_stage(at, side, load, packet, verdict, assembled, run);
        }
        if let (Some(routing), Some(journey)) = (&mut self.flows.routing, journey) {
            routing.replace_journey(0, journey);
        }
        (verdict[0] == Verdict::TurnBack).then_some(at)
    }

    /// Returns the next function of the packet after `stage`; `None` at the end.
    fn next_behind(
        &mut self,
        stage: usize,
        packet: &mut Packet,
        verdict: &mut Verdict,
        run: &mut BatchRun<'_, '_>,
    ) -> Option<usize> {
        if self.flows.routing.is_some() {
            return self.follow_edge(stage, packet, verdict, run);
        }
        match packet.meta().transit.side {
            Side::Inside => Some(stage + 1).filter(|next| *next < self.stages.all.len()),
            Side::Outside => stage.checked_sub(1),
        }
    }

    /// Gives a packet before this function the record of its pass, if its flow turns back.
    #[inline]
    pub(super) fn enter_pass(&mut self, packet: &mut Packet, stage: usize, traveller: PacketOrigin) {
        let meta = packet.meta_mut();
        let Some(pass) = self.flows.table.passes.get(meta.transit.flow) else { return };
        let record = pass.record_at(stage, meta.transit.side, meta.transit.direction);
        if record == meta.transit.flow {
            return;
        }
        meta.transit.flow = record;
        let header = self.flows.table.records.header_mut(record);
        if record == pass.second && traveller == PacketOrigin::Arrived {
            // The timeout and a new alias are those of both passes.
            let (keep_ms, relearn_alias) = (meta.transit.keep_ms, meta.transit.relearn_alias);
            self.flows.table.joining.join(meta, header);
            (meta.transit.keep_ms, meta.transit.relearn_alias) = (keep_ms, relearn_alias);
        } else {
            meta.transit.seq = header.seq;
            meta.transit.phase = header.connection.phase();
            meta.transit.tags = if self.flows.table.joining.tags { header.tags } else { 0 };
        }
    }
}
