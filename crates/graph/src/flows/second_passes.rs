//! Second passes: the records of flows that functions turn back.

use nf::EndReason;
use nf::stage::StageEnv;
use packet::{DropReason, Packet, PacketClass, PacketPool, Parser, parse};

use super::Flows;
use crate::WhenFull;
use crate::flow_table::SecondPass;
use crate::stages::Stages;

impl Flows {
    /// Creates a record for the second pass of this packet's flow, which the function at `stage`
    /// turns back for the first time. Another flow may be evicted if `may_evict`.
    ///
    /// # Errors
    /// If there is no room, or a function panics.
    pub fn begin_second_pass(
        &mut self,
        packet: &Packet,
        (stage, may_evict): (usize, bool),
        parser: &Parser,
        stages: &mut Stages,
        pool: &mut PacketPool,
    ) -> Result<SecondPass, DropReason> {
        let meta = packet.meta();
        let (main, near, direction) = (meta.transit.flow, meta.transit.side, meta.transit.direction);
        if self.is_full() {
            let may_evict = may_evict && self.when_full != WhenFull::RefuseNew;
            let victim = if may_evict { self.table.victim(self.clock.now_ns()) } else { None };
            let victim = victim.filter(|victim| victim.record != main).ok_or(DropReason::FlowTableFull)?;
            self.evict(victim, stages, pool);
        }
        let key = match meta.class {
            PacketClass::IcmpError => parse::portless_key(packet),
            _ => parser.current_key(packet),
        };
        let second =
            self.table.begin_second(packet, key, self.clock.now_ns()).ok_or(DropReason::FlowTableFull)?;
        self.forget_rules(second);
        if self.affinity_groups.is_some() {
            let group = self.table.records.header(main).affinity_group();
            self.table.records.header_mut(second).set_affinity_group(group);
        }
        let pass = SecondPass { main, second, stage: stage as u16, near, direction };
        self.table.passes.add(pass, self.table.records.capacity());
        if self.routing.is_some() {
            return Ok(pass);
        }
        let mut transit = meta.transit;
        (transit.flow, transit.side) = (second, near.other());
        let Stages { all, effects, .. } = stages;
        let mut env = StageEnv { records: &mut self.table.records, effects, buffers: pool };
        let mut has_failed = false;
        for (number, stage) in all.iter_mut().enumerate() {
            if number != usize::from(pass.stage) {
                has_failed |= !stage.flow_start(transit, &mut env);
            }
        }
        if has_failed { Err(DropReason::FunctionPanic) } else { Ok(pass) }
    }

    /// Ends the second pass of a flow that ends, if it has one.
    pub(super) fn end_second_pass(
        &mut self,
        main: u32,
        reason: EndReason,
        stages: &mut Stages,
        pool: &mut PacketPool,
    ) {
        let Some(pass) = self.table.passes.get(main) else { return };
        let (started, is_line) = (self.started(pass.second), self.routing.is_none());
        let is_turning = |number: usize| number == usize::from(pass.stage) && is_line;
        let hears = |number: usize| started.has(number) && !is_turning(number);
        self.end_at(hears, (pass.second, reason), stages, pool);
        if let Some(reassembly) = &mut self.reassembly {
            reassembly.forget(pass.second, &mut self.table.records);
        }
        self.table.forget_second(main);
    }
}
