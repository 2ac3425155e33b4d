//! What a flow needs of its unit while something happens to it.

use crate::message::{Stamp, UnitId};

use crate::unit::{
    Config, Counters, DropCause, Engine, Outbox,
    flow::FlowPool,
    pending::PacketSlab,
    replicas::{Handle, Replicas},
};

/// What a flow needs of its unit while something happens to it.
pub(crate) struct Context<'a, E: Engine> {
    pub now_ns: u64,
    pub config: &'a Config,
    pub engine: &'a mut E,
    pub counters: &'a mut Counters,
    pub replicas: &'a mut Replicas,
    /// Where among them the flow's is.
    pub copy: Handle,
    /// Where packets of all flows wait.
    pub slab: &'a mut PacketSlab<E::Packet>,
    pub spare: &'a mut FlowPool,
    pub out: &'a mut Outbox<E::Packet>,
}

impl<E: Engine> Context<'_, E> {
    /// Which unit this is.
    pub fn id(&self) -> UnitId {
        self.config.id
    }

    /// Drops a packet, and says why.
    pub fn drop(&mut self, reason: DropCause, stamp: Stamp, packet: E::Packet) {
        self.counters.drop(reason);
        self.out.dropped.push((reason, stamp, packet));
    }
}
