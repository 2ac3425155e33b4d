//! Turning back: packets that a function sends back to the side that they came from.

use nf::record::RecordHeader;
use nf::stage::{PacketTotals, StageEnv};
use nf::{EndReason, Verdict};
use packet::{Direction, DropReason, FlowKey, Packet, PacketClass, PacketPool, Side, parse};
use zerocopy::FromBytes;

use super::{Chain, Run};
use crate::cache::FlowCache;
use crate::passes::Pass;
use crate::{RestoreError, WhenFull};

/// Packets that come to a function a second time, or that a function made.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Traveller {
    /// One that arrived: it counts in the flow of its second pass, and brings bytes to the streams
    /// there.
    Arrived,
    /// One that a function made: it counts in no flow.
    GeneratedPacket,
}

impl Chain {
    /// The function at `stage` turned the packet, a group of its own now, back: it goes through the
    /// functions that it passed, in reverse, as a packet from the other side, with the record of
    /// its other pass. Its flow's packets go alone from now on.
    pub(super) fn turn_back(
        &mut self,
        packet: &mut [Packet],
        verdict: &mut [Verdict],
        stage: usize,
        traveller: Traveller,
        run: &mut Run<'_, '_>,
    ) {
        self.cache.iter_mut().for_each(FlowCache::stop_recording);
        let record = packet[0].meta().transit.flow;
        let pass = match self.flows.passes.get(record) {
            Some(pass) => Ok(pass),
            None => self.begin_second_pass(&packet[0], stage, run),
        };
        let pass = match pass {
            Ok(pass) => pass,
            Err(reason) => return verdict[0] = Verdict::Drop(reason),
        };
        self.flows.records.header_mut(pass.main).flags |= RecordHeader::FLAG_TURNS;
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
        traveller: Traveller,
        run: &mut Run<'_, '_>,
    ) -> Option<usize> {
        let side = packet[0].meta().transit.side;
        let (mut next, mut assembled) = (stage, false);
        loop {
            next = match side {
                Side::Inside if next + 1 < self.stages.len() => next + 1,
                Side::Outside if next > 0 => next - 1,
                _ => return None,
            };
            self.enter_pass(&mut packet[0], next, traveller);
            if traveller == Traveller::Arrived
                && !assembled
                && self.stages[next].descriptor().stream
                && let Some(subscribed) = &mut self.subscribed
            {
                subscribed.assemble(side, packet, verdict, &mut self.flows.records, &mut self.effects);
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
    pub(super) fn enter_pass(&mut self, packet: &mut Packet, stage: usize, traveller: Traveller) {
        let meta = packet.meta_mut();
        let Some(pass) = self.flows.passes.get(meta.transit.flow) else { return };
        let record = pass.record_at(stage, meta.transit.side, meta.transit.direction);
        if record == meta.transit.flow {
            return;
        }
        meta.transit.flow = record;
        let header = self.flows.records.header_mut(record);
        if record == pass.second && traveller == Traveller::Arrived {
            // How long the flow is kept, and whether it moves, is a matter of both passes.
            let (keep_ms, relearn_alias) = (meta.transit.keep_ms, meta.transit.relearn_alias);
            self.joining.join(meta, header);
            (meta.transit.keep_ms, meta.transit.relearn_alias) = (keep_ms, relearn_alias);
        } else {
            meta.transit.seq = header.seq;
            meta.transit.phase = header.connection.phase();
            meta.transit.tags = if self.joining.tags { header.tags } else { 0 };
        }
    }

    /// Makes a record for the second pass of the flow that this packet is of, which is turned back
    /// for the first time.
    ///
    /// # Errors
    /// If there is no room, or a function panics.
    fn begin_second_pass(
        &mut self,
        packet: &Packet,
        stage: usize,
        run: &mut Run<'_, '_>,
    ) -> Result<Pass, DropReason> {
        let meta = packet.meta();
        let (main, near, direction) = (meta.transit.flow, meta.transit.side, meta.transit.direction);
        if self.is_full() {
            // Others of a group may be of the flow that goes.
            let may_evict = run.is_alone && self.options.when_full != WhenFull::RefuseNew;
            let victim = if may_evict { self.flows.victim() } else { None };
            let victim = victim.filter(|victim| victim.record != main).ok_or(DropReason::FlowTableFull)?;
            self.evict(victim, run.pool);
        }
        let key = match meta.class {
            PacketClass::IcmpError => parse::portless_key(packet),
            _ => self.classifier.parser().current_key(packet),
        };
        let second = self.flows.begin_second(packet, key, self.now_ns).ok_or(DropReason::FlowTableFull)?;
        self.forget_rules(second);
        let pass = Pass { main, second, stage: stage as u16, near, direction };
        self.flows.passes.add(pass, self.flows.records.capacity());
        let mut transit = meta.transit;
        (transit.flow, transit.side) = (second, near.other());
        let mut env =
            StageEnv { records: &mut self.flows.records, effects: &mut self.effects, buffers: run.pool };
        let mut has_failed = false;
        for (number, stage) in self.stages.iter_mut().enumerate() {
            if number != usize::from(pass.stage) {
                has_failed |= !stage.flow_start(transit, &mut env);
            }
        }
        if has_failed { Err(DropReason::FunctionPanic) } else { Ok(pass) }
    }

    /// The flow with this record ends, and with it its second pass, if it has one.
    pub(super) fn end_second_pass(&mut self, main: u32, reason: EndReason, pool: &mut PacketPool) {
        let Some(pass) = self.flows.passes.get(main) else { return };
        let mut env =
            StageEnv { records: &mut self.flows.records, effects: &mut self.effects, buffers: pool };
        for (number, stage) in self.stages.iter_mut().enumerate() {
            if number != usize::from(pass.stage) {
                stage.flow_end(pass.second, reason, self.now_ns, &mut env);
            }
        }
        if let Some(subscribed) = &mut self.subscribed {
            subscribed.forget(pass.second, &mut self.flows.records);
        }
        self.flows.forget_second(main);
    }
}

impl crate::flows::Flows {
    /// Makes a record for the second pass of the flow of this packet, which a function has just
    /// turned back; `key` is the one that it has now.
    pub fn begin_second(
        &mut self,
        packet: &Packet,
        (key, reversed): (FlowKey, bool),
        now_ns: u64,
    ) -> Option<u32> {
        let record = self.records.allocate()?;
        let meta = packet.meta();
        let is_original = meta.transit.direction == Direction::Original;
        let header = self.records.header_mut(record);
        header.flags = RecordHeader::FLAG_TURNS;
        header.set_key(key, reversed == is_original);
        // The first packet of a second pass comes from the other side.
        if (meta.transit.side == Side::Inside) == is_original {
            header.flags |= RecordHeader::FLAG_FROM_OUTSIDE;
        }
        header.last_seen_ns = now_ns;
        Some(record)
    }

    /// Makes a record of the bytes of a second pass's record that was elsewhere.
    pub fn take_second_over(&mut self, bytes: &[u8], pass: Pass) -> Result<u32, RestoreError> {
        let Ok((header, _)) = RecordHeader::read_from_prefix(bytes) else {
            return Err(RestoreError::Damaged);
        };
        let is_second = header.has(RecordHeader::FLAG_TURNS) && !header.has(RecordHeader::FLAG_LIVE);
        if bytes.len() != self.records.record_len() || !is_second {
            return Err(RestoreError::Damaged);
        }
        let second = self.records.allocate().ok_or(RestoreError::TableFull)?;
        self.records.load(second, bytes);
        self.passes.add(Pass { second, ..pass }, self.records.capacity());
        Ok(second)
    }

    /// The flow has no second pass any more.
    pub fn forget_second(&mut self, main: u32) {
        if let Some(second) = self.passes.remove(main) {
            self.records.release(second);
        }
    }
}
