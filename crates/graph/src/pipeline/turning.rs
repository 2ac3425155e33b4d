//! Turning back: packets that a function sends back to the side that they came from.

use nf::Verdict;
use nf::record::RecordHeader;
use nf::stage::PacketTotals;
use packet::{DropReason, Packet, Side};

use super::{BatchRun, Pipeline};
use crate::cache::FlowCache;

/// Packets that come to a function a second time, or that a function made.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum PacketOrigin {
    /// One that arrived: it counts in the flow of its second pass, and brings bytes to the streams
    /// there.
    Arrived,
    /// One that a function made: it counts in no flow.
    GeneratedPacket,
}

impl Pipeline {
    /// The function at `stage` turned the packet, a group of its own now, back: it goes through the
    /// functions that it passed, in reverse, as a packet from the other side, with the record of
    /// its other pass. Its flow's packets go alone from now on.
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
                // Others of a group may be of the flow that goes.
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
            verdict[0] = Verdict::TurnBack; // It is through: none of the others has to see it.
        }
        packet[0].meta_mut().transit.flow = pass.main;
    }

    /// Takes one packet through the functions behind `stage`, as seen from the side that it comes
    /// from, until one turns it back: says which one, if one does.
    pub(super) fn cross_behind(
        &mut self,
        stage: usize,
        packet: &mut [Packet],
        verdict: &mut [Verdict],
        traveller: PacketOrigin,
        run: &mut BatchRun<'_, '_>,
    ) -> Option<usize> {
        if self.flows.routing.is_some() {
            return self.cross_edges_behind(stage, packet, verdict, traveller, run);
        }
        let side = packet[0].meta().transit.side;
        let (mut next, mut assembled) = (stage, false);
        loop {
            next = match side {
                Side::Inside if next + 1 < self.stages.all.len() => next + 1,
                Side::Outside if next > 0 => next - 1,
                _ => return None,
            };
            self.enter_pass(&mut packet[0], next, traveller);
            if traveller == PacketOrigin::Arrived
                && !assembled
                && let Some(reassembly) = &mut self.flows.reassembly
                && reassembly.is_wanted_by(next)
            {
                let (records, effects) = (&mut self.flows.table.records, &mut self.stages.effects);
                reassembly.assemble((next, side), packet, verdict, records, effects);
                assembled = true;
            }
            let load = PacketTotals::by_side(packet, verdict)[side as usize];
            self.run_stage(next, side, load, packet, verdict, assembled, run);
            if verdict[0] == Verdict::TurnBack {
                return Some(next);
            }
        }
    }

    /// The packet is about to come to this function: it gets the record of its pass, if its flow
    /// turns back.
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
            // How long the flow is kept, and whether it moves, is a matter of both passes.
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
