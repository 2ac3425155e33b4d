//! Accepting flows, and their aliases: the keys of their packets after the functions.

use nf::record::RecordHeader;
use nf::{Connection, EndReason};
use packet::{Direction, DropReason, FlowKey, Packet, PacketClass, PacketPool, Parser, Side};

use super::{FlowChange, Flows};
use crate::flow_table::AliasHolder;
use crate::stages::Stages;

impl Flows {
    /// Accepts a packet that passed: refreshes its flow, and learns a new alias.
    pub fn accept(
        &mut self,
        record: u32,
        packet: &Packet,
        parser: &Parser,
        stages: &mut Stages,
        pool: &mut PacketPool,
    ) -> Result<(), DropReason> {
        let meta = packet.meta();
        let known = self.table.records.header(record).has(RecordHeader::FLAG_ACCEPTED);
        if known && !meta.transit.relearn_alias {
            self.table.refresh(record, self.clock.settled_ns(), meta.transit.keep_ms);
            return Ok(());
        }
        if !self.learn_alias(packet, !known, parser, stages, pool) {
            return Err(DropReason::AliasConflict);
        }
        self.table.refresh(record, self.clock.settled_ns(), meta.transit.keep_ms);
        if !known {
            self.table.records.header_mut(record).flags |= RecordHeader::FLAG_ACCEPTED;
            self.table.watch(record);
        }
        Ok(())
    }

    /// Learns the key of the flow's packets after the functions from one of them. Returns false if
    /// another flow has it.
    fn learn_alias(
        &mut self,
        packet: &Packet,
        begins: bool,
        parser: &Parser,
        stages: &mut Stages,
        pool: &mut PacketPool,
    ) -> bool {
        let meta = packet.meta();
        if !self.table.joining.has_aliases
            || meta.transit.direction != Direction::Original
            || !matches!(meta.class, PacketClass::Whole | PacketClass::FirstFragment)
        {
            return true;
        }
        let (mut key, reversed) = parser.current_key(packet);
        self.places.leave(&mut key, &meta.transit);
        let record = meta.transit.flow;
        let other = match self.set_alias(record, key, reversed) {
            Ok(()) => return true,
            Err(AliasHolder::Elsewhere) => return false,
            Err(AliasHolder::ByFlow(other)) => other,
        };
        let at_ns = self.clock.settled_ns();
        let may_evict = begins && meta.transit.side == Side::Inside;
        if self.table.records.header(other).has_expired(at_ns) {
            self.end_in_time(other, stages, pool);
        } else if may_evict && self.gives_way(other) {
            self.end(other, EndReason::Evicted, stages, pool);
        } else {
            return false;
        }
        self.set_alias(record, key, reversed).is_ok()
    }

    /// Gives a flow an alias, or returns its holder.
    fn set_alias(&mut self, record: u32, key: FlowKey, reversed: bool) -> Result<(), AliasHolder> {
        // A flow without accepted packets has no rules.
        if self.table.records.header(record).has(RecordHeader::FLAG_ACCEPTED) {
            self.forget_rules(record);
        }
        self.table.set_alias(record, key, reversed)?;
        if let Some(handle) = self.table.handles.of(record) {
            let hash = self.table.hash(&key);
            self.changes.push(FlowChange::Alias { handle, key, hash });
        }
        Ok(())
    }

    /// Returns true if an outside host opened the flow and got no answer: then an inside host's new
    /// flow may take its key. Otherwise an outside host could block a NAT's ports by sending to
    /// them first.
    fn gives_way(&self, record: u32) -> bool {
        let header = self.table.records.header(record);
        let unanswered =
            matches!(header.connection, Connection::NEW | Connection::UNREPLIED | Connection::SYN_SENT);
        unanswered && header.origin() == Side::Outside
    }
}
