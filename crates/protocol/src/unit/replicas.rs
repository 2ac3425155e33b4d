//! Copies of states: those that other units own, and those that were sent to them last.

use std::{
    hash::{Hash, Hasher},
    mem,
};

use crate::message::{FlowRecord, Targets, Version};

/// Copies of states, of each flow one: of a flow that another unit owns, the newest that came; of
/// one that is owned here, what other units have, if they are to be told only what has changed.
/// Within a number of bytes; the oldest make room.
#[derive(Clone, Debug, Default)]
pub(crate) struct Replicas {
    places: Vec<Place>,
    free: Vec<u32>,
    /// The ones that came first and last, as [`Handle`]s.
    oldest: Handle,
    newest: Handle,
    bytes: usize,
}

/// Where a flow's copy is, from 1; 0: nowhere. It may have been evicted since: whose it is says the
/// place.
pub(crate) type Handle = u32;

/// A place for a copy, and its neighbours in the order of arrival.
#[derive(Clone, Debug, Default)]
struct Place {
    index: u32,
    replica: Option<Replica>,
    older: Handle,
    newer: Handle,
}

/// A copy of a flow's state.
#[derive(Clone, Debug)]
struct Replica {
    version: Version,
    record: FlowRecord,
    /// Other units that have the same, as far as is known.
    elsewhere: Targets,
}

/// Whether a copy was kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kept {
    /// Yes; so many others had to make room for it.
    Yes { evicted: u64 },
    /// No: it is not newer than the one that is here, or alone more than may be kept.
    No,
}

impl Replicas {
    /// Bytes kept, with what each copy takes besides its state.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Keeps a copy if it is newer than the one that is here, and notes which other units have it.
    pub fn keep(
        &mut self,
        (index, handle): (u32, &mut Handle),
        version: Version,
        record: FlowRecord,
        elsewhere: Targets,
        max_bytes: usize,
    ) -> Kept {
        if self.get(index, *handle).is_some_and(|old| version <= old.version) || cost(&record) > max_bytes {
            return Kept::No;
        }
        self.remove(index, handle);
        let mut evicted = 0;
        while self.bytes + cost(&record) > max_bytes && self.oldest != 0 {
            self.take(self.oldest);
            evicted += 1;
        }
        self.bytes += cost(&record);
        *handle = self.append(index, Replica { version, record, elsewhere });
        Kept::Yes { evicted }
    }

    /// The copy of a flow's state, and which other units have it.
    pub fn copy(&self, index: u32, handle: Handle) -> Option<(Version, &FlowRecord, &Targets)> {
        self.get(index, handle).map(|copy| (copy.version, &copy.record, &copy.elsewhere))
    }

    /// It is not known any more which other units have the same.
    pub fn forget_elsewhere(&mut self, index: u32, handle: Handle) {
        if self.get(index, handle).is_some()
            && let Some(replica) = &mut self.places[handle as usize - 1].replica
        {
            replica.elsewhere = Targets::NONE;
        }
    }

    /// Takes out the copy that covers all up to this seq and nothing else. One that covers less
    /// goes, too, unless what has changed since may still come: else it is worth nothing any more.
    pub fn take_exact(
        &mut self,
        index: u32,
        handle: &mut Handle,
        last: u64,
        deltas: bool,
    ) -> Option<(Version, FlowRecord)> {
        let Replica { version, record, .. } = self.get(index, *handle)?;
        let (version, is_exact) = (*version, is_exact(record, last));
        if !is_exact && (deltas || version.seq > last) {
            return None;
        }
        let record = self.remove(index, handle)?;
        is_exact.then_some((version, record))
    }

    /// Takes out the copy of a flow's state. If it was evicted, what is in its place now may be of
    /// the index's next flow: the handle leads nowhere from now on.
    pub fn remove(&mut self, index: u32, handle: &mut Handle) -> Option<FlowRecord> {
        let handle = mem::take(handle);
        self.get(index, handle)?;
        self.take(handle)
    }

    #[inline]
    fn get(&self, index: u32, handle: Handle) -> Option<&Replica> {
        let place = self.places.get((handle as usize).checked_sub(1)?)?;
        place.replica.as_ref().filter(|_| place.index == index)
    }

    fn append(&mut self, index: u32, replica: Replica) -> Handle {
        let place = Place { index, replica: Some(replica), older: self.newest, newer: 0 };
        let handle = match self.free.pop() {
            Some(handle) => {
                self.places[handle as usize - 1] = place;
                handle
            }
            None => {
                self.places.push(place);
                // Each is a index's, and indexes have numbers of so many bits.
                self.places.len() as Handle
            }
        };
        match self.newest {
            0 => self.oldest = handle,
            newest => self.places[newest as usize - 1].newer = handle,
        }
        self.newest = handle;
        handle
    }

    /// Takes out what is in a place, which holds something.
    fn take(&mut self, handle: Handle) -> Option<FlowRecord> {
        let place = &mut self.places[handle as usize - 1];
        let (replica, older, newer) = (place.replica.take()?, place.older, place.newer);
        match older {
            0 => self.oldest = newer,
            older => self.places[older as usize - 1].newer = newer,
        }
        match newer {
            0 => self.newest = older,
            newer => self.places[newer as usize - 1].older = older,
        }
        self.free.push(handle);
        self.bytes -= cost(&replica.record);
        Some(replica.record)
    }
}

/// Whether a state covers all packets up to this seq and nothing else (S60).
pub(crate) fn is_exact(record: &FlowRecord, last: u64) -> bool {
    record.watermark.contiguous == last && record.watermark.is_whole()
}

/// What a copy takes of the memory there is for copies.
fn cost(record: &FlowRecord) -> usize {
    mem::size_of::<Place>() + record.bytes.len()
}

/// In the order of arrival, wherever they are.
impl Hash for Replicas {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let mut handle = self.oldest;
        while let Some(place) = (handle as usize).checked_sub(1).and_then(|at| self.places.get(at)) {
            if let Some(Replica { version, record, elsewhere }) = &place.replica {
                (place.index, version, record.watermark, &record.bytes).hash(state);
                (elsewhere.is_all(), elsewhere.units()).hash(state);
            }
            handle = place.newer;
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::message::{Epoch, Watermark};

    use super::*;

    fn record(contiguous: u64, bytes: usize) -> FlowRecord {
        FlowRecord { watermark: Watermark::up_to(contiguous), bytes: vec![0; bytes] }
    }

    fn keep(
        replicas: &mut Replicas,
        at: (u32, &mut Handle),
        epoch: Epoch,
        record: FlowRecord,
        max: usize,
    ) -> Kept {
        let version = Version { epoch, seq: record.watermark.contiguous };
        replicas.keep(at, version, record, Targets::NONE, max)
    }

    #[test]
    fn who_has_removed_a_copy_does_not_find_another_in_its_place() {
        let (mut replicas, mut evicted, mut others) = (Replicas::default(), 0, [0; 2]);
        let max = cost(&record(1, 10));
        assert_eq!(keep(&mut replicas, (1, &mut evicted), 1, record(1, 10), max), Kept::Yes { evicted: 0 });
        assert_eq!(keep(&mut replicas, (2, &mut others[0]), 1, record(1, 10), max), Kept::Yes { evicted: 1 });
        assert!(replicas.remove(1, &mut evicted).is_none());
        assert_eq!(replicas.remove(2, &mut others[0]), Some(record(1, 10)));
        // The index's next flow.
        assert_eq!(keep(&mut replicas, (1, &mut others[1]), 1, record(2, 10), max), Kept::Yes { evicted: 0 });
        assert!(replicas.remove(1, &mut evicted).is_none());
        assert_eq!(replicas.remove(1, &mut others[1]), Some(record(2, 10)));
    }

    #[test]
    fn the_newest_of_a_flow_is_kept_and_the_oldest_of_all_go() {
        let (mut replicas, mut at) = (Replicas::default(), [0; 6]);
        let max = 3 * cost(&record(0, 10));
        assert_eq!(keep(&mut replicas, (1, &mut at[1]), 1, record(5, 10), max), Kept::Yes { evicted: 0 });
        assert_eq!(keep(&mut replicas, (1, &mut at[1]), 1, record(5, 10), max), Kept::No, "the same again");
        assert_eq!(keep(&mut replicas, (1, &mut at[1]), 1, record(4, 10), max), Kept::No, "an older one");
        assert_eq!(keep(&mut replicas, (2, &mut at[2]), 1, record(1, 10), max), Kept::Yes { evicted: 0 });
        assert_eq!(keep(&mut replicas, (3, &mut at[3]), 1, record(1, 10), max), Kept::Yes { evicted: 0 });
        assert_eq!(
            keep(&mut replicas, (1, &mut at[1]), 2, record(5, 10), max),
            Kept::Yes { evicted: 0 },
            "it takes its own place"
        );
        assert_eq!(replicas.bytes(), max);
        assert_eq!(
            keep(&mut replicas, (4, &mut at[4]), 1, record(1, 11), max),
            Kept::Yes { evicted: 2 },
            "2 and 3 came before 1's newest"
        );
        assert_eq!(keep(&mut replicas, (5, &mut at[5]), 1, record(1, max), max), Kept::No, "too large");
        assert!(
            replicas.take_exact(1, &mut at[1], 4, false).is_none(),
            "newer than what is wanted: it may be of use later"
        );
        assert!(replicas.take_exact(1, &mut at[1], 6, true).is_none(), "stale, but something may rest on it");
        assert!(replicas.take_exact(1, &mut at[1], 6, false).is_none(), "stale (S60)");
        assert!(replicas.remove(1, &mut at[1]).is_none(), "and gone");
        let version = Version { epoch: 1, seq: 1 };
        assert_eq!(replicas.take_exact(4, &mut at[4], 1, false), Some((version, record(1, 11))));
        assert_eq!(replicas.bytes(), 0);
    }
}
