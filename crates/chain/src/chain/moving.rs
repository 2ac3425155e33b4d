//! Flows on their way between units: everything that a flow owns, as one run of bytes (A11, DESIGN 3).
//!
//! What flows share does not move with one of them: items of pools that it holds stay taken where they were taken, and the
//! members of sets, meters and counters stay where they were noted.

use nf::UpgradeError;
use nf::record::Layout;
use nf::stage::{Env, Stage};
use packet::{FlowKey, Pool, split_mix};

use super::{Chain, SavedLayout};
use crate::streams;

/// A flow could not be taken over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RestoreError {
    /// The bytes are not what [`Chain::save_flow`] wrote.
    #[error("the saved flow is damaged")]
    Damaged,
    /// They were written by a chain of other functions, or of other versions of them.
    #[error("the saved flow is that of another chain")]
    OtherChain,
    /// A flow with its key or its alias is here already.
    #[error("a flow with the key or the alias of the saved one is here already")]
    Known,
    /// The flow table is full.
    #[error("the flow table is full")]
    TableFull,
    /// A function cannot read its state, which is of another version.
    #[error(transparent)]
    Upgrade(#[from] UpgradeError),
    /// Its TCP streams could not be taken over.
    #[error(transparent)]
    Streams(#[from] streams::RestoreError),
}

/// What a saved flow begins with: which chain it is of, and how long what follows is that the functions keep beside the record.
const PREFIX_LEN: usize = 8 + 4;

impl Chain {
    /// The flow with this key, or with this alias.
    pub fn flow(&self, hash: u64, key: &FlowKey, reversed: bool) -> Option<u32> {
        self.flows.find(hash, key, reversed).map(|(record, _)| record)
    }

    /// Adds everything that a flow owns to `out`: the record, what its functions keep beside it, its TCP streams with all that
    /// waits in them. It stays as it is.
    ///
    /// # Panics
    /// If there is no such flow.
    pub fn save_flow(&mut self, record: u32, out: &mut Vec<u8>) {
        assert!(self.flows.is_live(record), "a record without a flow is saved");
        let begin = out.len();
        out.extend_from_slice(&self.fingerprint.to_le_bytes());
        out.extend_from_slice(&[0; PREFIX_LEN - 8]);
        out.extend_from_slice(self.flows.records.bytes(record).unwrap_or_default());
        let beside = out.len();
        for stage in &mut self.stages {
            stage.save_buffers(record, &mut self.flows.records, out);
        }
        let beside_len = (out.len() - beside) as u32;
        out[begin + 8..begin + PREFIX_LEN].copy_from_slice(&beside_len.to_le_bytes());
        self.save_streams(record, out);
    }

    /// Takes a saved flow over, and says which record it has here. If that fails, nothing of it is kept.
    ///
    /// A flow of the same key or alias that is here already is not touched. If the table is full, another flow goes only where
    /// the chain's options say so.
    pub fn restore_flow(&mut self, saved: &[u8], pool: &mut Pool) -> Result<u32, RestoreError> {
        let (prefix, rest) = saved.split_at_checked(PREFIX_LEN).ok_or(RestoreError::Damaged)?;
        let (fingerprint, beside_len) = prefix.split_at(8);
        let beside_len = beside_len.iter().rev().fold(0, |len, &byte| len << 8 | usize::from(byte));
        let other = match fingerprint == self.fingerprint.to_le_bytes() {
            true => None,
            false => Some(self.other_version(fingerprint).ok_or(RestoreError::OtherChain)?),
        };
        let record_len = other.map_or(self.flows.records.record_len(), SavedLayout::record_len);
        let (bytes, rest) = rest.split_at_checked(record_len).ok_or(RestoreError::Damaged)?;
        let (beside, saved_streams) = rest.split_at_checked(beside_len).ok_or(RestoreError::Damaged)?;
        let upgraded = other.map(|other| self.upgrade(other, bytes)).transpose()?;
        let bytes = upgraded.as_deref().unwrap_or(bytes);
        self.flows.check(bytes)?;
        if self.flows.records.live() >= self.flows.records.capacity() && !self.make_room(pool) {
            return Err(RestoreError::TableFull);
        }
        let record = self.flows.take_over(bytes)?;
        let restored = self.restore_beside(record, beside, saved_streams);
        if let Err(error) = restored {
            self.forget_flow(record);
            return Err(error);
        }
        self.counters.flows_moved_in += 1;
        self.counters.flows_peak = self.counters.flows_peak.max(self.live());
        let mut env = Env { records: &mut self.flows.records, effects: &mut self.effects, buffers: pool };
        for stage in &mut self.stages {
            stage.flow_moved(record, self.now_ns, &mut env);
        }
        Ok(record)
    }

    /// A flow has gone elsewhere: it is forgotten here, which is not its end. What it holds of pools stays held.
    ///
    /// # Panics
    /// If there is no such flow.
    pub fn release_flow(&mut self, record: u32) {
        assert!(self.flows.is_live(record), "a record without a flow is released");
        self.counters.flows_moved_out += 1;
        self.forget_flow(record);
    }

    fn forget_flow(&mut self, record: u32) {
        for stage in &mut self.stages {
            stage.release_buffers(record, &mut self.flows.records);
        }
        if let Some(subscribed) = &mut self.subscribed {
            subscribed.forget(record, &mut self.flows.records);
        }
        self.flows.remove(record);
    }

    fn restore_beside(&mut self, record: u32, beside: &[u8], streams: &[u8]) -> Result<(), RestoreError> {
        // The record still names what held its bytes where it comes from. So each part is gone through, whatever became of the
        // one before it: then it names what is here, or nothing.
        let records = &mut self.flows.records;
        let mut rest = Some(beside);
        for stage in &mut self.stages {
            let left = stage.restore_buffers(record, records, rest.unwrap_or_default());
            rest = rest.and(left);
        }
        let restored = match &mut self.subscribed {
            Some(subscribed) => subscribed.restore(record, records, streams).map_err(RestoreError::from),
            None if streams.is_empty() => Ok(()),
            None => Err(RestoreError::Damaged),
        };
        if rest == Some(&[][..]) { restored } else { Err(RestoreError::Damaged) }
    }
}

/// Which chain this is, by its functions, their versions, and its records' size.
pub(super) fn fingerprint(stages: &[Box<dyn Stage>], layout: &Layout) -> u64 {
    let mut state = layout.len() as u64;
    for stage in stages {
        let descriptor = stage.descriptor();
        for byte in descriptor.name.bytes().chain(descriptor.state_version.to_le_bytes()) {
            state = split_mix(&mut (state ^ u64::from(byte)));
        }
    }
    state
}
