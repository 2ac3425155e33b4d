//! Copies of states that other units own.

use std::{
    hash::{Hash, Hasher},
    mem,
};

use proto::{Epoch, FlowRecord};

/// Copies of states that other units own: the newest of each flow, within a number of bytes. The oldest make room.
#[derive(Clone, Debug, Default)]
pub(crate) struct Replicas {
    places: Vec<Place>,
    free: Vec<u32>,
    /// The ones that came first and last, as [`Handle`]s.
    oldest: Handle,
    newest: Handle,
    bytes: usize,
}

/// Where a flow's copy is, from 1; 0: nowhere. It may have been evicted since: whose it is says the place.
pub(crate) type Handle = u32;

/// A place for a copy, and its neighbours in the order of arrival.
#[derive(Clone, Debug, Default)]
struct Place {
    slot: u32,
    replica: Option<Replica>,
    older: Handle,
    newer: Handle,
}

/// A copy of a flow's state.
#[derive(Clone, Debug)]
struct Replica {
    epoch: Epoch,
    record: FlowRecord,
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

    /// Keeps a copy if it is newer than the one that is here.
    pub fn keep(
        &mut self,
        (slot, handle): (u32, &mut Handle),
        epoch: Epoch,
        record: FlowRecord,
        max_bytes: usize,
    ) -> Kept {
        let age = |epoch: Epoch, record: &FlowRecord| (epoch, record.watermark.contiguous);
        let is_newer = |old: &Replica| age(old.epoch, &old.record) < age(epoch, &record);
        if !self.get(slot, *handle).is_none_or(is_newer) || cost(&record) > max_bytes {
            return Kept::No;
        }
        self.remove(slot, handle);
        let mut evicted = 0;
        while self.bytes + cost(&record) > max_bytes && self.oldest != 0 {
            self.take(self.oldest);
            evicted += 1;
        }
        self.bytes += cost(&record);
        *handle = self.append(slot, Replica { epoch, record });
        Kept::Yes { evicted }
    }

    /// Takes out the copy that covers all up to this clock and nothing else. One that covers less goes, too: it is worth
    /// nothing any more.
    pub fn take_exact(&mut self, slot: u32, handle: &mut Handle, last: u64) -> Option<FlowRecord> {
        if self.get(slot, *handle)?.record.watermark.contiguous > last {
            return None;
        }
        let record = self.remove(slot, handle)?;
        is_exact(&record, last).then_some(record)
    }

    /// Takes out the copy of a flow's state. If it was evicted, what is in its place now may be of the slot's next flow: the
    /// handle leads nowhere from now on.
    pub fn remove(&mut self, slot: u32, handle: &mut Handle) -> Option<FlowRecord> {
        let handle = mem::take(handle);
        self.get(slot, handle)?;
        self.take(handle)
    }

    #[inline]
    fn get(&self, slot: u32, handle: Handle) -> Option<&Replica> {
        let place = self.places.get((handle as usize).checked_sub(1)?)?;
        place.replica.as_ref().filter(|_| place.slot == slot)
    }

    fn append(&mut self, slot: u32, replica: Replica) -> Handle {
        let place = Place { slot, replica: Some(replica), older: self.newest, newer: 0 };
        let handle = match self.free.pop() {
            Some(handle) => {
                self.places[handle as usize - 1] = place;
                handle
            }
            None => {
                self.places.push(place);
                // Each is a slot's, and slots have numbers of so many bits.
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

/// Whether a state covers all packets up to this clock and nothing else (S60).
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
            if let Some(Replica { epoch, record }) = &place.replica {
                (place.slot, epoch, record.watermark, &record.bytes).hash(state);
            }
            handle = place.newer;
        }
    }
}

#[cfg(test)]
mod tests {
    use proto::Watermark;

    use super::*;

    fn record(contiguous: u64, bytes: usize) -> FlowRecord {
        FlowRecord { watermark: Watermark::up_to(contiguous), bytes: vec![0; bytes] }
    }

    #[test]
    fn who_has_removed_a_copy_does_not_find_another_in_its_place() {
        let (mut replicas, mut evicted, mut others) = (Replicas::default(), 0, [0; 2]);
        let max = cost(&record(1, 10));
        assert_eq!(replicas.keep((1, &mut evicted), 1, record(1, 10), max), Kept::Yes { evicted: 0 });
        assert_eq!(replicas.keep((2, &mut others[0]), 1, record(1, 10), max), Kept::Yes { evicted: 1 });
        assert!(replicas.remove(1, &mut evicted).is_none());
        assert_eq!(replicas.remove(2, &mut others[0]), Some(record(1, 10)));
        // The slot's next flow.
        assert_eq!(replicas.keep((1, &mut others[1]), 1, record(2, 10), max), Kept::Yes { evicted: 0 });
        assert!(replicas.remove(1, &mut evicted).is_none());
        assert_eq!(replicas.remove(1, &mut others[1]), Some(record(2, 10)));
    }

    #[test]
    fn the_newest_of_a_flow_is_kept_and_the_oldest_of_all_go() {
        let (mut replicas, mut at) = (Replicas::default(), [0; 6]);
        let max = 3 * cost(&record(0, 10));
        assert_eq!(replicas.keep((1, &mut at[1]), 1, record(5, 10), max), Kept::Yes { evicted: 0 });
        assert_eq!(replicas.keep((1, &mut at[1]), 1, record(5, 10), max), Kept::No, "the same again");
        assert_eq!(replicas.keep((1, &mut at[1]), 1, record(4, 10), max), Kept::No, "an older one");
        assert_eq!(replicas.keep((2, &mut at[2]), 1, record(1, 10), max), Kept::Yes { evicted: 0 });
        assert_eq!(replicas.keep((3, &mut at[3]), 1, record(1, 10), max), Kept::Yes { evicted: 0 });
        assert_eq!(
            replicas.keep((1, &mut at[1]), 2, record(5, 10), max),
            Kept::Yes { evicted: 0 },
            "it takes its own place"
        );
        assert_eq!(replicas.bytes(), max);
        assert_eq!(
            replicas.keep((4, &mut at[4]), 1, record(1, 11), max),
            Kept::Yes { evicted: 2 },
            "2 and 3 came before 1's newest"
        );
        assert_eq!(replicas.keep((5, &mut at[5]), 1, record(1, max), max), Kept::No, "too large");
        assert!(
            replicas.take_exact(1, &mut at[1], 4).is_none(),
            "newer than what is wanted: it may be of use later"
        );
        assert!(replicas.take_exact(1, &mut at[1], 6).is_none(), "stale (S60)");
        assert!(replicas.remove(1, &mut at[1]).is_none(), "and gone");
        assert_eq!(replicas.take_exact(4, &mut at[4], 1), Some(record(1, 11)));
        assert_eq!(replicas.bytes(), 0);
    }
}
