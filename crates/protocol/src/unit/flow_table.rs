//! The flow table of a unit, by the dispatcher's index.

use std::hash::{Hash, Hasher};

use crate::unit::flow_entry::FlowEntry;

/// The entries of flows that the unit knows: few of all indexes, stored close together.
#[derive(Clone, Debug, Default)]
pub(crate) struct FlowTable {
    /// By index, the entry's position plus 1; 0 if there is none.
    positions: Vec<u32>,
    entries: Vec<FlowEntry>,
}

impl FlowTable {
    /// Prefetches the position of an entry.
    #[inline]
    pub fn prefetch(&self, index: u32) {
        packet::memory::prefetch(self.positions.as_ptr().wrapping_add(index as usize));
    }

    /// Prefetches an entry.
    #[inline]
    pub fn prefetch_entry(&self, index: u32) {
        if let Some(entry) = self.get(index) {
            packet::memory::prefetch_all(entry);
        }
    }

    /// Returns an entry, if the unit knows a flow of this index.
    #[inline]
    pub fn get(&self, index: u32) -> Option<&FlowEntry> {
        let position = self.positions.get(index as usize)?.checked_sub(1)?;
        self.entries.get(position as usize)
    }

    /// Returns all entries.
    pub fn all(&self) -> impl Iterator<Item = &FlowEntry> {
        self.entries.iter()
    }

    /// Returns an entry to be changed, if the unit knows a flow of this index.
    #[inline]
    pub fn find_mut(&mut self, index: u32) -> Option<&mut FlowEntry> {
        let position = self.positions.get(index as usize)?.checked_sub(1)?;
        self.entries.get_mut(position as usize)
    }

    /// Returns an entry, which is created if there is none.
    #[inline]
    pub fn get_mut(&mut self, index: u32) -> &mut FlowEntry {
        let position = match self.positions.get(index as usize) {
            Some(position) if *position > 0 => *position as usize - 1,
            _ => self.add(index),
        };
        &mut self.entries[position]
    }

    #[cold]
    fn add(&mut self, index: u32) -> usize {
        if index as usize >= self.positions.len() {
            self.positions.resize(index as usize + 1, 0);
        }
        self.entries.push(FlowEntry::default());
        // There are no more entries than indexes, which are `u32`.
        self.positions[index as usize] = self.entries.len() as u32;
        self.entries.len() - 1
    }
}

impl Hash for FlowTable {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.entries.hash(state);
    }
}
