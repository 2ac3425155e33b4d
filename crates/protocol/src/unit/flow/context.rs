//! The parts of a unit that a flow uses while it handles an event.

use telemetry::event;

use crate::message::{
    Epoch, FlowId, FlowRecord, FromPeer, FromUnit, RefuseReason, Stamp, StateDelta, UnitId, Version,
    Watermark,
};

use super::FlowPool;
use crate::unit::{
    Config, Counters, DropCause, Engine, Outbox,
    pending::PacketSlab,
    replicas::{Handle, Replicas},
};

/// The parts of a unit that a flow uses while it handles an event.
pub(crate) struct Context<'a, E: Engine> {
    pub now_ns: u64,
    /// The flow.
    pub flow: FlowId,
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

    /// Returns true if what came at this time has waited for too long for something earlier.
    pub fn has_waited(&self, since_ns: u64) -> bool {
        since_ns.saturating_add(self.config.reorder_timeout_ns) <= self.now_ns
    }

    /// Drops a packet, and counts it under this reason.
    pub fn drop(&mut self, reason: DropCause, stamp: Stamp, packet: E::Packet) {
        self.counters.drop(reason);
        self.out.dropped.push((reason, stamp, packet));
    }

    /// Returns the flow's state, which covers the packets of `mark`.
    pub fn record(&mut self, mark: Watermark) -> FlowRecord {
        let mut bytes = Vec::new();
        self.engine.save(self.flow, &mut bytes);
        FlowRecord { watermark: mark, bytes }
    }

    /// Passes a state to the engine; no bytes stand for a new flow, in place of a state that is
    /// `here`.
    ///
    /// # Errors
    ///
    /// The engine's reason if it refuses the state. Nothing has changed.
    pub fn restore(&mut self, bytes: &[u8], is_here: bool) -> Result<(), RefuseReason> {
        if !bytes.is_empty() {
            return self.engine.restore(self.now_ns, self.flow, bytes);
        }
        if is_here {
            self.engine.forget(self.now_ns, self.flow, false);
        }
        Ok(())
    }

    /// Notifies the dispatcher that the state that an epoch begins with is here, if it asks.
    pub fn report_arrival(&mut self, epoch: Epoch) {
        if self.config.has_groups && epoch > 1 {
            self.out.to_dispatcher.push(FromUnit::Arrived { flow: self.flow, epoch });
        }
    }

    /// Asks a unit for the state that an epoch begins with.
    pub fn pull(&mut self, from: UnitId, epoch: Epoch, last: u64) {
        self.counters.pulls_sent += 1;
        event::handover_asked(&self.flow, epoch.into(), &from);
        let pull = self.pull_of(epoch, last, false);
        self.out.to_units.push((from, pull));
    }

    /// Asks a unit once more for the state that an epoch begins with.
    pub fn pull_again(&mut self, from: UnitId, epoch: Epoch, last: u64) {
        self.counters.pulls_retransmitted += 1;
        let pull = self.pull_of(epoch, last, true);
        self.out.to_units.push((from, pull));
    }

    /// Returns this unit's request for the state that an epoch begins with.
    fn pull_of(&self, epoch: Epoch, last: u64, again: bool) -> FromPeer {
        let has = self.replicas.copy(self.flow.index, self.copy).map(|(version, ..)| version);
        FromPeer::Pull { flow: self.flow, epoch, owner: self.id(), last, again, has }
    }

    /// Sends the state that an epoch begins with to its owner: as changes to the owner's replica,
    /// if that is known here, and they are smaller.
    pub fn send_state(&mut self, owner: UnitId, has: Option<Version>, epoch: Epoch, record: FlowRecord) {
        let flow = self.flow;
        let message = match has.and_then(|base| self.changes_since((owner, base), epoch, &record)) {
            Some(delta) => FromPeer::Changes { flow, epoch, watermark: record.watermark, delta },
            None => FromPeer::State { flow, epoch, record },
        };
        self.counters.states_sent += 1;
        event::handover_answered(&flow, epoch.into(), &owner);
        self.counters.state_bytes_sent += message.state_bytes().unwrap_or(0) as u64;
        self.out.to_units.push((owner, message));
    }

    /// Returns the difference between the state that an epoch begins with and the replica of its
    /// owner, if that is known here, and the difference is smaller.
    fn changes_since(
        &self,
        (owner, base): (UnitId, Version),
        epoch: Epoch,
        record: &FlowRecord,
    ) -> Option<StateDelta> {
        let (version, old, elsewhere) = self.replicas.copy(self.flow.index, self.copy)?;
        let begins = Version::beginning(epoch, record.watermark);
        let is_the_same = version == base && elsewhere.contains(owner);
        if is_the_same { StateDelta::of((base, &old.bytes), (begins, &record.bytes)) } else { None }
    }

    /// Acknowledges the state that an epoch begins with.
    pub fn acknowledge(&mut self, to: UnitId, epoch: Epoch) {
        self.out.to_units.push((to, FromPeer::StateAck { flow: self.flow, epoch }));
    }
}
