//! The entries of the dispatcher's table, as far as a unit knows flows of them.

use std::hash::{Hash, Hasher};

use crate::unit::flow_entry::FlowEntry;

/// The entries of which a unit knows flows: few of all that there are, so that they lie close
/// together.
#[derive(Clone, Debug, Default)]
pub(crate) struct FlowTable {
    /// By the entry's number, where it is, from 1; 0: nothing is known.
    positions: Vec<u32>,
    entries: Vec<FlowEntry>,
}

impl FlowTable {
    /// Where a entry is is on its way to the cache.
    #[inline]
    pub fn prefetch(&self, index: u32) {
        packet::memory::prefetch(self.positions.as_ptr().wrapping_add(index as usize));
    }

    /// A entry is on its way to the cache, if anything is known of it.
    #[inline]
    pub fn prefetch_entry(&self, index: u32) {
        if let Some(entry) = self.get(index) {
            packet::memory::prefetch_all(entry);
        }
    }

    /// A entry; none if nothing is known of it.
    #[inline]
    pub fn get(&self, index: u32) -> Option<&FlowEntry> {
        let position = self.positions.get(index as usize)?.checked_sub(1)?;
        self.entries.get(position as usize)
    }

    /// All entries of which anything is known.
    pub fn all(&self) -> impl Iterator<Item = &FlowEntry> {
        self.entries.iter()
    }

    /// A entry, to be changed; none if nothing is known of it.
    #[inline]
    pub fn find_mut(&mut self, index: u32) -> Option<&mut FlowEntry> {
        let position = self.positions.get(index as usize)?.checked_sub(1)?;
        self.entries.get_mut(position as usize)
    }

    /// A entry.
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
        // Not more than there are numbers of entries.
        self.positions[index as usize] = self.entries.len() as u32;
        self.entries.len() - 1
    }
}

impl Hash for FlowTable {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.entries.hash(state);
    }
}
