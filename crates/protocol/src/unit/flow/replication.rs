//! Replicas of a flow's state at units that may be its next owners: whole, or as deltas.

use crate::message::{Epoch, FlowRecord, FromPeer, ReplicaTargets, StateDelta, UnitId, Version};

use super::{Context, State};
use crate::unit::{Engine, replicas::Kept};

/// The replicas of a flow that were sent, and where the next ones go.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct Replication {
    /// The seq that the targets' last replicas cover.
    copied: u64,
    /// Targets of the next replica, as the last packet has them (S54).
    targets: ReplicaTargets,
    /// The seq that the last replica covers, of all that were sent in this epoch.
    copied_anywhere: u64,
}

impl Replication {
    pub fn new() -> Replication {
        Replication { copied: 0, targets: ReplicaTargets::NONE, copied_anywhere: 0 }
    }

    /// Begins an epoch with a state that covers this seq.
    pub fn begin(&mut self, seq: u64) {
        (self.copied, self.copied_anywhere) = (seq, 0);
    }

    /// Returns the targets of the next replica.
    #[inline]
    pub fn targets(&self) -> &ReplicaTargets {
        &self.targets
    }

    /// Sets the targets of the next replica.
    #[inline]
    pub fn set_targets(&mut self, targets: ReplicaTargets) {
        self.targets = targets;
    }

    /// Returns true if targets lack what a state up to this seq has.
    pub fn has_news(&self, seq: u64) -> bool {
        seq > self.copied && self.targets != ReplicaTargets::NONE
    }

    /// Sends replicas to the targets (S51, S54).
    pub fn copy_ahead<E: Engine>(&mut self, state: State, cx: &mut Context<'_, E>) {
        let (flow, epoch, record) = (cx.flow, state.epoch, cx.record(state.mark));
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
    pub fn copy_to<E: Engine>(&mut self, to: UnitId, state: State, cx: &mut Context<'_, E>) {
        let (flow, epoch, record) = (cx.flow, state.epoch, cx.record(state.mark));
        let version = Version { epoch, seq: record.watermark.contiguous };
        match state.mark.contiguous > self.copied_anywhere {
            true => cx.keep_copy(version, record.clone(), ReplicaTargets::of_distinct([to].into_iter())),
            false => _ = cx.replicas.remove(flow.index, &mut cx.copy),
        }
        self.copied_anywhere = state.mark.contiguous;
        cx.send_copy(to, FromPeer::Replicate { flow, epoch, record, is_reported: true });
    }

    /// Sends deltas against the version that a target has, or against the empty state, whichever is
    /// smaller; whole states where no delta is smaller.
    fn copy_changes<E: Engine>(&self, epoch: Epoch, record: FlowRecord, cx: &mut Context<'_, E>) {
        let flow = cx.flow;
        let version = Version { epoch, seq: record.watermark.contiguous };
        let since = |base, old: &[u8]| StateDelta::of((base, old), (version, &record.bytes));
        let since_beginning = since(Version::BEGINNING, &[]);
        let known = cx.replicas.copy(flow.index, cx.copy).and_then(|(base, old, elsewhere)| {
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
        cx.keep_copy(version, record, self.targets);
    }

    /// Returns what determines the unit's behaviour, to be hashed.
    pub fn summary(&self) -> (bool, &[UnitId], u64, u64) {
        (self.targets.is_all(), self.targets.units(), self.copied, self.copied_anywhere)
    }
}

impl<E: Engine> Context<'_, E> {
    /// Keeps the version that other units have, as the base of later deltas.
    fn keep_copy(&mut self, version: Version, record: FlowRecord, elsewhere: ReplicaTargets) {
        let (index, max_bytes) = (self.flow.index, self.config.replica_bytes_max);
        match self.replicas.keep((index, &mut self.copy), version, record, elsewhere, max_bytes) {
            Kept::Yes { evicted } => self.counters.replicas_evicted += evicted,
            Kept::No => _ = self.replicas.remove(index, &mut self.copy),
        }
    }

    /// Keeps an accepted replica as a base of deltas if it came from the previous owner, which has
    /// it, too.
    pub(super) fn keep_taken(
        &mut self,
        version: Version,
        record: FlowRecord,
        (epoch, previous): (Epoch, UnitId),
    ) {
        if self.config.deltas && version.epoch.checked_add(1) == Some(epoch) {
            self.keep_copy(version, record, ReplicaTargets::of_distinct([previous].into_iter()));
        }
    }

    /// Sends the whole state of a version, of the epoch that the unit owns, to a unit that lacks a
    /// delta's base, unless a later version exists.
    pub fn send_whole(&mut self, version: Version, owned: Option<Epoch>, unit: UnitId) {
        let is_owner = owned.is_some_and(|epoch| epoch == version.epoch);
        let copy = self.replicas.copy(self.flow.index, self.copy);
        let Some((_, record, _)) = copy.filter(|&(last, ..)| is_owner && last == version) else {
            self.counters.messages_stale += 1;
            return;
        };
        let record = record.clone();
        let (flow, epoch) = (self.flow, version.epoch);
        self.send_copy(unit, FromPeer::Replicate { flow, epoch, record, is_reported: false });
    }

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
