//! The flow table of a unit, by the dispatcher's index.

use std::hash::{Hash, Hasher};
use std::num::NonZeroU32;

use crate::unit::flow_entry::FlowEntry;

/// The entries of flows that the unit knows: few of all indexes, stored close together.
#[derive(Clone, Debug, Default)]
pub(crate) struct FlowTable {
    /// By index.
    handles: Vec<Option<FlowHandle>>,
    entries: Vec<FlowEntry>,
}

/// The unit's own number of a flow's entry: its position plus 1. Numbers are dense, and of this
/// unit only.
#[derive(Clone, Copy, Debug)]
struct FlowHandle(NonZeroU32);

impl FlowHandle {
    #[inline]
    fn position(self) -> usize {
        self.0.get() as usize - 1
    }
}

impl FlowTable {
    /// Prefetches the position of an entry.
    #[inline]
    pub fn prefetch(&self, index: u32) {
        packet::memory::prefetch(self.handles.as_ptr().wrapping_add(index as usize));
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
        let handle = (*self.handles.get(index as usize)?)?;
        self.entries.get(handle.position())
    }

    /// Returns all entries.
    pub fn all(&self) -> impl Iterator<Item = &FlowEntry> {
        self.entries.iter()
    }

    /// Returns an entry to be changed, if the unit knows a flow of this index.
    #[inline]
    pub fn find_mut(&mut self, index: u32) -> Option<&mut FlowEntry> {
        let handle = (*self.handles.get(index as usize)?)?;
        self.entries.get_mut(handle.position())
    }

    /// Returns an entry, which is created if there is none.
    #[inline]
    pub fn get_mut(&mut self, index: u32) -> &mut FlowEntry {
        let position = match self.handles.get(index as usize) {
            Some(Some(handle)) => handle.position(),
            _ => self.add(index),
        };
        &mut self.entries[position]
    }

    #[cold]
    fn add(&mut self, index: u32) -> usize {
        if index as usize >= self.handles.len() {
            self.handles.resize(index as usize + 1, None);
        }
        self.entries.push(FlowEntry::default());
        // There are no more entries than indexes, which are `u32`.
        self.handles[index as usize] = NonZeroU32::new(self.entries.len() as u32).map(FlowHandle);
        self.entries.len() - 1
    }
}

impl Hash for FlowTable {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.entries.hash(state);
    }
}
