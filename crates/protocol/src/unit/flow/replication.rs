//! Replicas of a flow's state at units that may be its next owners: whole, or as deltas.

use crate::message::{Epoch, FlowRecord, FromPeer, ReplicaTargets, StateDelta, UnitId, Version};

use super::{Context, Flow};
use crate::unit::{
    Engine,
    ownership::StateSource,
    replicas::{Kept, is_exact},
};

impl Flow {
    /// Sends replicas to the targets (S51, S54).
    pub(super) fn copy_ahead<E: Engine>(&mut self, cx: &mut Context<'_, E>) {
        let Some(state) = self.state else { return };
        let (flow, epoch, record) = (self.id, state.epoch, self.record(cx));
        (self.copied, self.copied_anywhere) = (state.mark.contiguous, state.mark.contiguous);
        if cx.config.deltas {
            return self.copy_changes(epoch, record, cx);
        }
        if self.targets.is_all() {
            return cx.send_to_all(FromPeer::Replicate { flow, epoch, record, is_reported: false });
        }
        let mut units = self.targets.units().iter().copied().filter(|&unit| unit != cx.config.id);
        let Some(last) = units.next_back() else { return };
        for unit in units {
            let record = record.clone();
            cx.send_copy(unit, FromPeer::Replicate { flow, epoch, record, is_reported: false });
        }
        cx.send_copy(last, FromPeer::Replicate { flow, epoch, record, is_reported: false });
    }

    /// Sends a replica to the unit that is about to be the owner, and keeps the version: the state
    /// itself can then be sent as changes to it. Not if replicas of the version have been sent
    /// before: the state may have changed since, without a packet, and a unit keeps its first one.
    pub fn copy_to<E: Engine>(&mut self, to: UnitId, cx: &mut Context<'_, E>) {
        let Some(state) = self.state else { return };
        let (flow, epoch, record) = (self.id, state.epoch, self.record(cx));
        let version = Version { epoch, seq: record.watermark.contiguous };
        match state.mark.contiguous > self.copied_anywhere {
            true => self.keep(version, record.clone(), ReplicaTargets::of_distinct([to].into_iter()), cx),
            false => _ = cx.replicas.remove(self.id.index, &mut cx.copy),
        }
        self.copied_anywhere = state.mark.contiguous;
        cx.send_copy(to, FromPeer::Replicate { flow, epoch, record, is_reported: true });
    }

    /// Sends deltas against the version that a target has, or against the empty state, whichever is
    /// smaller; whole states where no delta is smaller.
    fn copy_changes<E: Engine>(&self, epoch: Epoch, record: FlowRecord, cx: &mut Context<'_, E>) {
        let (flow, index) = (self.id, self.id.index);
        let version = Version { epoch, seq: record.watermark.contiguous };
        let since = |base, old: &[u8]| StateDelta::of((base, old), (version, &record.bytes));
        let since_beginning = since(Version::BEGINNING, &[]);
        let known = cx.replicas.copy(index, cx.copy).and_then(|(base, old, elsewhere)| {
            let is_any = elsewhere.is_all() || !elsewhere.units().is_empty();
            let delta = is_any.then(|| since(base, &old.bytes))??;
            Some((*elsewhere, delta))
        });
        let message = |has: &dyn Fn(&ReplicaTargets) -> bool| {
            let since_copy = known.as_ref().filter(|(elsewhere, _)| has(elsewhere)).map(|(_, delta)| delta);
            match since_copy.into_iter().chain(&since_beginning).min_by_key(|delta| delta.len()) {
                Some(delta) => {
                    FromPeer::Delta { flow, epoch, watermark: record.watermark, delta: delta.clone() }
                }
                None => FromPeer::Replicate { flow, epoch, record: record.clone(), is_reported: false },
            }
        };
        if self.targets.is_all() {
            cx.send_to_all(message(&ReplicaTargets::is_all));
        }
        for &unit in self.targets.units().iter().filter(|&&unit| unit != cx.config.id) {
            cx.send_copy(unit, message(&|elsewhere| elsewhere.contains(unit)));
        }
        self.keep(version, record, self.targets, cx);
    }

    /// Keeps the version that other units have, as the base of later deltas.
    fn keep<E: Engine>(
        &self,
        version: Version,
        record: FlowRecord,
        elsewhere: ReplicaTargets,
        cx: &mut Context<'_, E>,
    ) {
        let (index, max_bytes) = (self.id.index, cx.config.replica_bytes_max);
        match cx.replicas.keep((index, &mut cx.copy), version, record, elsewhere, max_bytes) {
            Kept::Yes { evicted } => cx.counters.replicas_evicted += evicted,
            Kept::No => _ = cx.replicas.remove(index, &mut cx.copy),
        }
    }

    /// Keeps an accepted replica as a base of deltas if it came from the previous owner, which has
    /// it, too.
    pub(super) fn keep_taken<E: Engine>(
        &self,
        version: Version,
        record: FlowRecord,
        (epoch, previous): (Epoch, UnitId),
        cx: &mut Context<'_, E>,
    ) {
        if cx.config.deltas && version.epoch.checked_add(1) == Some(epoch) {
            self.keep(version, record, ReplicaTargets::of_distinct([previous].into_iter()), cx);
        }
    }

    /// Sends the whole state of a version to a unit that lacks a delta's base, unless a later
    /// version exists.
    pub fn send_whole<E: Engine>(&self, version: Version, unit: UnitId, cx: &mut Context<'_, E>) {
        let is_owner = self.owned().is_some_and(|(epoch, _)| epoch == version.epoch);
        let copy = cx.replicas.copy(self.id.index, cx.copy).filter(|&(last, ..)| is_owner && last == version);
        let Some((_, record, _)) = copy else {
            cx.counters.messages_stale += 1;
            return;
        };
        let record = record.clone();
        let (flow, epoch) = (self.id, version.epoch);
        cx.send_copy(unit, FromPeer::Replicate { flow, epoch, record, is_reported: false });
    }

    /// Uses an arriving replica if it is the awaited state (S53); returns it otherwise.
    pub fn replica<E: Engine>(
        &mut self,
        version: Version,
        record: FlowRecord,
        cx: &mut Context<'_, E>,
    ) -> Option<FlowRecord> {
        let found = self.ownerships.iter().rev().find_map(|ownership| match ownership.start {
            StateSource::From { previous, last }
                if ownership.epoch > version.epoch && is_exact(&record, last) =>
            {
                Some((ownership.epoch, previous))
                    .filter(|_| previous != cx.id() && !self.is_past(ownership.epoch))
            }
            _ => None,
        });
        let Some((epoch, previous)) = found.filter(|_| self.restore(&record.bytes, cx).is_ok()) else {
            return Some(record);
        };
        cx.counters.overtaken_by_replica += 1;
        self.take(epoch, record.watermark, cx);
        self.keep_taken(version, record, (epoch, previous), cx);
        cx.out.to_units.push((previous, FromPeer::StateAck { flow: self.id, epoch }));
        self.pump(cx);
        None
    }
}

impl<E: Engine> Context<'_, E> {
    fn send_copy(&mut self, unit: UnitId, message: FromPeer) {
        self.count_copy(&message);
        self.out.to_units.push((unit, message));
    }

    fn send_to_all(&mut self, message: FromPeer) {
        self.count_copy(&message);
        self.out.to_all.push(message);
    }

    fn count_copy(&mut self, message: &FromPeer) {
        self.counters.replicas_sent += 1;
        self.counters.replica_bytes_sent += message.state_bytes().unwrap_or(0) as u64;
        self.counters.deltas_sent += u64::from(matches!(message, FromPeer::Delta { .. }));
    }
}
