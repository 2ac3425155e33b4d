//! Packets of a flow that other units have: of which only the headers come here, to bring the
//! flow's state to where it would be if the packets themselves had.
//!
//! So several units can have a flow's packets in turn, each with the state that a single unit would
//! have had, if what the functions keep of a flow follows from headers ([`Graph::recomputes`]).

use nf::Verdict;
use packet::{DropReason, Packet, PacketClass, PacketPool};

use super::Graph;
use crate::cache::rule_key;
use crate::pipeline::Pipeline;

/// A packet is no history of a flow that is here, or cannot be parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a packet that another unit has is of no flow that is here")]
pub struct NoHistory;

/// Returns how many bytes of a packet, from the first one on, a [replay](Graph::replay) needs of
/// it: its headers, or, if they are not of the commonest shape, all. None if it can be no history:
/// it does not say itself which flow it is of. It must have been parsed.
pub fn history_len(packet: &Packet) -> Option<usize> {
    let meta = packet.meta();
    match meta.class {
        PacketClass::Whole if meta.is_plain() => Some(usize::from(meta.payload)),
        PacketClass::NotIp | PacketClass::LaterFragment => None,
        _ => Some(packet.len()),
    }
}

impl Graph {
    /// Returns true if flows' states follow from their packets' headers, whatever else there is in
    /// the graph: then units that have them in common may [replay](Graph::replay) what others
    /// process. A flow's first packet is always processed where the flow begins.
    pub fn recomputes(&self) -> bool {
        self.pipeline.stages.all.iter().all(|stage| stage.recomputes())
    }

    /// Changes a flow's state as this packet does, or its first [`history_len`] bytes, and nothing
    /// else: another unit has it, counts it and lets out what comes of it. Other flows' time goes
    /// on when the graph processes packets, or is [advanced](Graph::handle_timeout). The metadata
    /// must be as for [`Graph::process`], with the length on the wire that the packet had.
    ///
    /// # Errors
    /// If its flow is not here.
    pub fn replay(&mut self, packet: &mut Packet, pool: &mut PacketPool) -> Result<(), NoHistory> {
        let parser = self.classifier.parser();
        parser.parse(packet).map_err(|_| NoHistory)?;
        let flows = &mut self.pipeline.flows;
        flows.now_ns = flows.now_ns.max(packet.meta().transit.timestamp_ns);
        flows.settled_ns = flows.settled_ns.max(packet.meta().transit.timestamp_ns);
        let meta = packet.meta_mut();
        let (record, direction) = flows.table.find(meta.hash, &meta.key, meta.reversed).ok_or(NoHistory)?;
        (meta.transit.flow, meta.transit.direction) = (record, direction);
        flows.table.join(meta);
        if rule_key(flows.table.records.header(record), packet).is_none() {
            flows.forget_rules(record);
        }
        let verdict = self.pipeline.replay(packet, parser, pool);
        let Pipeline { flows, stages, .. } = &mut self.pipeline;
        if verdict == Verdict::Drop(DropReason::FunctionPanic) {
            flows.note_failed(record);
        }
        flows.end_failed(stages, pool);
        if !matches!(verdict, Verdict::Drop(_)) {
            // That it may not have its alias was said where the packet is.
            let _ = flows.accept(record, packet, parser, stages, pool);
        }
        Ok(())
    }
}
