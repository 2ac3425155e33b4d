//! The flows of a table by their handles: the dispatcher's own numbers of flows.
//!
//! A router that numbers flows before the graph sees them may have one number for a flow that the
//! graph has ended and begun again. So a handle may have several flows, though nearly all have one.

/// Flows of a table by their handles. Touches no memory for a graph without handles.
pub(crate) struct FlowHandles {
    /// For each handle, its newest flow's record.
    first: Vec<u32>,
    /// For each record.
    of: Vec<Link>,
}

/// A record's handle, and its place among the records of the handle.
#[derive(Clone, Copy)]
struct Link {
    handle: u32,
    /// The next record of the same handle.
    next: u32,
}

/// No handle, or no record.
const NONE: u32 = u32::MAX;

impl FlowHandles {
    /// Creates the handles of a table of n records.
    pub fn new(records: u32) -> FlowHandles {
        FlowHandles { first: Vec::with_capacity(records as usize), of: Vec::with_capacity(records as usize) }
    }

    /// Gives a record without a handle this one.
    pub fn add(&mut self, handle: u32, record: u32) {
        let first = entry(&mut self.first, handle, NONE);
        let next = std::mem::replace(first, record);
        *entry(&mut self.of, record, Link { handle: NONE, next: NONE }) = Link { handle, next };
    }

    /// Detaches the record from its handle; returns the handle.
    pub fn remove(&mut self, record: u32) -> Option<u32> {
        let link = self.of.get_mut(record as usize)?;
        let Link { handle, next } = std::mem::replace(link, Link { handle: NONE, next: NONE });
        let first = self.first.get_mut(handle as usize)?;
        if *first == record {
            *first = next;
            return Some(handle);
        }
        let mut at = *first;
        while let Some(link) = self.of.get_mut(at as usize) {
            if link.next == record {
                link.next = next;
                break;
            }
            at = link.next;
        }
        Some(handle)
    }

    /// Returns the handle's newest record: nearly always the only one.
    #[inline]
    pub fn newest(&self, handle: u32) -> Option<u32> {
        self.first.get(handle as usize).copied().filter(|&record| record != NONE)
    }

    /// Returns the handle's records, the newest first.
    pub fn records(&self, handle: u32) -> impl Iterator<Item = u32> + '_ {
        std::iter::successors(self.newest(handle), |&record| {
            self.of.get(record as usize).map(|link| link.next).filter(|&next| next != NONE)
        })
    }

    /// Returns the handle of a record.
    pub fn of(&self, record: u32) -> Option<u32> {
        self.of.get(record as usize).map(|link| link.handle).filter(|&handle| handle != NONE)
    }
}

fn entry<T: Clone>(table: &mut Vec<T>, number: u32, empty: T) -> &mut T {
    let at = number as usize;
    if table.len() <= at {
        table.resize(at + 1, empty);
    }
    &mut table[at]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn records(handles: &FlowHandles, handle: u32) -> Vec<u32> {
        handles.records(handle).collect()
    }

    #[test]
    fn a_home_has_the_records_that_were_added_and_not_removed() {
        let mut handles = FlowHandles::new(10);
        assert_eq!((handles.remove(4), handles.of(4)), (None, None));
        for (handle, record) in [(7, 0), (7, 3), (2, 1), (7, 9)] {
            handles.add(handle, record);
        }
        assert_eq!(records(&handles, 7), [9, 3, 0]);
        assert_eq!((records(&handles, 2), records(&handles, 5)), (vec![1], vec![]));
        assert_eq!(handles.remove(3), Some(7));
        assert_eq!(handles.remove(3), None);
        assert_eq!(records(&handles, 7), [9, 0]);
        assert_eq!(handles.remove(9), Some(7));
        handles.add(2, 9);
        assert_eq!((records(&handles, 7), records(&handles, 2)), (vec![0], vec![9, 1]));
        assert_eq!((handles.remove(0), handles.of(9)), (Some(7), Some(2)));
        assert!(records(&handles, 7).is_empty());
    }
}
