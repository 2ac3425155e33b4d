//! Replicas of states: of flows that other units own, and of those sent to other units.

use std::{
    hash::{Hash, Hasher},
    mem,
};

use crate::message::{FlowRecord, ReplicaTargets, Version};

/// Replicas, one per flow: for a flow of another unit, the newest received; for a flow owned here,
/// the version that other units have, if they get deltas. Bounded in bytes; the oldest are evicted.
#[derive(Clone, Debug, Default)]
pub(crate) struct Replicas {
    places: Vec<Place>,
    free: Vec<u32>,
    /// The oldest and the newest place.
    oldest: Handle,
    newest: Handle,
    bytes: usize,
}

/// Place of a flow's replica plus 1; 0 if there is none. The replica may have been evicted since:
/// the place knows the flow.
pub(crate) type Handle = u32;

/// A place for a replica, with its neighbours in the order of arrival.
#[derive(Clone, Debug, Default)]
struct Place {
    index: u32,
    replica: Option<Replica>,
    older: Handle,
    newer: Handle,
}

/// A replica of a flow's state.
#[derive(Clone, Debug)]
struct Replica {
    version: Version,
    record: FlowRecord,
    /// Other units that are known to have the same version.
    elsewhere: ReplicaTargets,
}

/// The outcome of an attempt to keep a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kept {
    /// It was kept, and this many others were evicted.
    Yes { evicted: u64 },
    /// It is not newer than the present one, or too large by itself.
    No,
}

impl Replicas {
    /// Returns the bytes kept, with the overhead of each replica.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Keeps a replica if it is newer than the present one, and notes the other units that have it.
    pub fn keep(
        &mut self,
        (index, handle): (u32, &mut Handle),
        version: Version,
        record: FlowRecord,
        elsewhere: ReplicaTargets,
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

    /// Returns the replica of a flow's state, and the other units that have it.
    pub fn copy(&self, index: u32, handle: Handle) -> Option<(Version, &FlowRecord, &ReplicaTargets)> {
        self.get(index, handle).map(|copy| (copy.version, &copy.record, &copy.elsewhere))
    }

    /// Forgets which other units have the same version.
    pub fn forget_elsewhere(&mut self, index: u32, handle: Handle) {
        if self.get(index, handle).is_some()
            && let Some(replica) = &mut self.places[handle as usize - 1].replica
        {
            replica.elsewhere = ReplicaTargets::NONE;
        }
    }

    /// Takes out the replica that covers exactly the packets up to this seq (S60). A replica that
    /// covers less stays: changes to it may arrive.
    pub fn take_exact(
        &mut self,
        index: u32,
        handle: &mut Handle,
        last: u64,
    ) -> Option<(Version, FlowRecord)> {
        let Replica { version, record, .. } = self.get(index, *handle)?;
        let version = is_exact(record, last).then_some(*version)?;
        Some((version, self.remove(index, handle)?))
    }

    /// Takes out the replica of a flow's state, and clears the handle: after an eviction, the place
    /// may have a replica of the index's next flow.
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
                // At most one per index, which is a `u32`.
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

    /// Takes a replica out of its place.
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

/// Returns true if a state covers exactly the packets up to this seq (S60).
pub(crate) fn is_exact(record: &FlowRecord, last: u64) -> bool {
    record.watermark.contiguous == last && record.watermark.is_whole()
}

/// Returns the bytes that a replica counts for.
fn cost(record: &FlowRecord) -> usize {
    mem::size_of::<Place>() + record.bytes.len()
}

/// In the order of arrival.
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
        replicas.keep(at, version, record, ReplicaTargets::NONE, max)
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
            replicas.take_exact(1, &mut at[1], 4).is_none(),
            "newer than what is wanted: it may be of use later"
        );
        assert!(replicas.take_exact(1, &mut at[1], 6).is_none(), "stale (S60)");
        assert_eq!(replicas.remove(1, &mut at[1]), Some(record(5, 10)), "but changes to it may come");
        let version = Version { epoch: 1, seq: 1 };
        assert_eq!(replicas.take_exact(4, &mut at[4], 1), Some((version, record(1, 11))));
        assert_eq!(replicas.bytes(), 0);
    }
}
