//! The parts of a unit that a flow uses while it handles an event.

use crate::message::{Stamp, UnitId};

use super::FlowPool;
use crate::unit::{
    Config, Counters, DropCause, Engine, Outbox,
    pending::PacketSlab,
    replicas::{Handle, Replicas},
};

/// The parts of a unit that a flow uses while it handles an event.
pub(crate) struct Context<'a, E: Engine> {
    pub now_ns: u64,
    pub config: &'a Config,
    pub engine: &'a mut E,
    pub counters: &'a mut Counters,
    pub replicas: &'a mut Replicas,
    /// The flow's replica among them.
    pub copy: Handle,
    /// Pending packets of all flows.
    pub slab: &'a mut PacketSlab<E::Packet>,
    pub spare: &'a mut FlowPool,
    pub out: &'a mut Outbox<E::Packet>,
}

impl<E: Engine> Context<'_, E> {
    /// Returns the unit's number.
    pub fn id(&self) -> UnitId {
        self.config.id
    }

    /// Drops a packet, and counts it under this reason.
    pub fn drop(&mut self, reason: DropCause, stamp: Stamp, packet: E::Packet) {
        self.counters.drop(reason);
        self.out.dropped.push((reason, stamp, packet));
    }
}
