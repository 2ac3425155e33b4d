//! The graph of the calling thread.

use graph::{Datagram, FlowLookup, Graph, Options};
use packet::{DropReason, FlowKey, Packet, PacketPool};

use crate::batch::Core;
use crate::units_error::ElasticError;

/// The graph of the calling thread, its buffers, and packets that leave.
pub struct LocalGraph {
    /// The graph.
    pub graph: Box<Graph>,
    /// Buffers.
    pub pool: PacketPool,
    /// Packets that leave.
    pub out: Vec<Packet>,
}

impl LocalGraph {
    /// Creates a placeholder for the time that the real one is elsewhere.
    ///
    /// # Errors
    /// If there is no memory for tables.
    pub fn placeholder(like: &Graph) -> Result<LocalGraph, ElasticError> {
        let nothing = Graph::new(Vec::new(), Options { flows_max: 1, ..*like.options() })?;
        Ok(LocalGraph { graph: Box::new(nothing), pool: PacketPool::new(0), out: Vec::new() })
    }

    /// Swaps it with that of the calling thread.
    pub fn swap(&mut self, core: &mut Core<'_>) {
        std::mem::swap(&mut self.graph, core.graph);
        std::mem::swap(&mut self.out, core.out);
        std::mem::swap(&mut self.pool, core.pool);
    }

    pub(crate) fn flow_of(&mut self, packet: &mut Packet) -> FlowLookup {
        self.graph.flow_of(packet, &mut self.pool)
    }

    pub(crate) fn process_aside(&mut self, packet: Packet) {
        self.graph.process_without_flow(packet, &mut self.out, &mut self.pool);
    }

    /// Drops a packet.
    pub fn drop_packet(&mut self, packet: Packet, reason: DropReason) {
        self.graph.classifier_mut().discard(packet, reason, &mut self.pool);
    }

    /// Notes that later fragments follow this first one to another dispatcher.
    pub(crate) fn learn_elsewhere(&mut self, packet: &Packet, waited: &mut Vec<Packet>) {
        self.graph.classifier_mut().learn_elsewhere(packet, waited);
    }

    pub(crate) fn learn_first(
        &mut self,
        datagram: Datagram,
        passed: Option<(FlowKey, bool)>,
        at_ns: u64,
        waited: &mut Vec<Packet>,
    ) {
        self.graph.classifier_mut().learn_first(datagram, passed, at_ns, waited);
    }
}
