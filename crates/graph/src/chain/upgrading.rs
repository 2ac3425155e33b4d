//! Flows from a chain of the same functions in other versions: what an update brings over.

use nf::UpgradeError;
use nf::stage::SavedPart;

use super::Chain;
use crate::RestoreError;

/// How a chain's flows are saved ([`Chain::save_flow`]): what a chain with other versions of its
/// functions has to know to take them over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SavedLayout {
    fingerprint: u64,
    record_len: usize,
    /// What stands before the functions' parts: the header, and what TCP streams need.
    lead_len: usize,
    parts: Vec<SavedPart>,
}

impl SavedLayout {
    /// Bytes of a record.
    pub(super) fn record_len(&self) -> usize {
        self.record_len
    }

    /// Whether it is that of the same functions in the same order, whatever their versions.
    fn is_of_same(&self, other: &SavedLayout) -> bool {
        let functions = |layout: &SavedLayout| -> Vec<_> {
            layout.parts.iter().map(|part| (part.name, part.tag_bits)).collect()
        };
        self.lead_len == other.lead_len && functions(self) == functions(other)
    }
}

impl Chain {
    /// How its flows are saved.
    pub fn saved_layout(&self) -> SavedLayout {
        SavedLayout {
            fingerprint: self.fingerprint,
            record_len: self.record_len(),
            lead_len: self.lead_len,
            parts: self.stages.iter().filter_map(|stage| stage.saved_part()).collect(),
        }
    }

    /// Flows that a chain with other versions of the functions saved are taken over, too, from now
    /// on: each function brings its states over ([`nf::NetworkFunction::upgrade`]).
    ///
    /// # Errors
    /// If it is a chain of other functions, or in another order.
    pub fn accept_states_of(&mut self, other: SavedLayout) -> Result<(), RestoreError> {
        if !other.is_of_same(&self.saved_layout()) {
            return Err(RestoreError::OtherChain);
        }
        self.other_versions.push(other);
        Ok(())
    }

    /// The chain that wrote this fingerprint, if its flows are taken over.
    pub(super) fn other_version(&self, fingerprint: &[u8]) -> Option<&SavedLayout> {
        self.other_versions.iter().find(|other| other.fingerprint.to_le_bytes() == fingerprint)
    }

    /// A record of this chain, of one that the other chain saved.
    pub(super) fn upgrade(&self, other: &SavedLayout, saved: &[u8]) -> Result<Vec<u8>, UpgradeError> {
        let mut record = vec![0; self.record_len()];
        record[..self.lead_len].copy_from_slice(&saved[..self.lead_len]);
        for (stage, from) in self.stages.iter().zip(&other.parts) {
            if let Some(to) = stage.saved_part() {
                stage.upgrade(from, &saved[from.bytes.clone()], &mut record[to.bytes])?;
            }
        }
        Ok(record)
    }
}
