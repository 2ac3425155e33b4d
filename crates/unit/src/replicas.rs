//! Copies of states that other units own.

use std::{
    collections::BTreeMap,
    hash::{Hash, Hasher},
    mem,
};

use proto::{Epoch, FlowRecord};

/// Copies of states that other units own: the newest of each flow, within a number of bytes. The oldest make room.
#[derive(Clone, Debug, Default)]
pub(crate) struct Replicas {
    by_slot: BTreeMap<u32, Replica>,
    /// Slots, by when their copies came.
    order: BTreeMap<u64, u32>,
    arrivals: u64,
    bytes: usize,
}

/// A copy of a flow's state.
#[derive(Clone, Debug)]
struct Replica {
    epoch: Epoch,
    record: FlowRecord,
    arrival: u64,
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
    pub fn keep(&mut self, slot: u32, epoch: Epoch, record: FlowRecord, max_bytes: usize) -> Kept {
        let age = |epoch: Epoch, record: &FlowRecord| (epoch, record.watermark.contiguous);
        let is_newer = |old: &Replica| age(old.epoch, &old.record) < age(epoch, &record);
        if !self.by_slot.get(&slot).is_none_or(is_newer) || cost(&record) > max_bytes {
            return Kept::No;
        }
        self.remove(slot);
        let mut evicted = 0;
        while self.bytes + cost(&record) > max_bytes {
            let Some((_, &oldest)) = self.order.first_key_value() else { break };
            self.remove(oldest);
            evicted += 1;
        }
        self.arrivals += 1;
        self.bytes += cost(&record);
        self.order.insert(self.arrivals, slot);
        self.by_slot.insert(slot, Replica { epoch, record, arrival: self.arrivals });
        Kept::Yes { evicted }
    }

    /// Takes out the copy that covers all up to this clock and nothing else. One that covers less goes, too: it is worth
    /// nothing any more.
    pub fn take_exact(&mut self, slot: u32, last: u64) -> Option<FlowRecord> {
        let replica = self.by_slot.get(&slot)?;
        if replica.record.watermark.contiguous > last {
            return None;
        }
        let record = self.remove(slot)?;
        is_exact(&record, last).then_some(record)
    }

    /// Takes out the copy of a flow's state.
    pub fn remove(&mut self, slot: u32) -> Option<FlowRecord> {
        let replica = self.by_slot.remove(&slot)?;
        self.order.remove(&replica.arrival);
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
    mem::size_of::<Replica>() + record.bytes.len()
}

/// In the order of arrival, whatever the numbers of the arrivals.
impl Hash for Replicas {
    fn hash<H: Hasher>(&self, state: &mut H) {
        for slot in self.order.values() {
            let Some(replica) = self.by_slot.get(slot) else { continue };
            (slot, replica.epoch, replica.record.watermark, &replica.record.bytes).hash(state);
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
    fn the_newest_of_a_flow_is_kept_and_the_oldest_of_all_go() {
        let mut replicas = Replicas::default();
        let max = 3 * cost(&record(0, 10));
        assert_eq!(replicas.keep(1, 1, record(5, 10), max), Kept::Yes { evicted: 0 });
        assert_eq!(replicas.keep(1, 1, record(5, 10), max), Kept::No, "the same again");
        assert_eq!(replicas.keep(1, 1, record(4, 10), max), Kept::No, "an older one");
        assert_eq!(replicas.keep(2, 1, record(1, 10), max), Kept::Yes { evicted: 0 });
        assert_eq!(replicas.keep(3, 1, record(1, 10), max), Kept::Yes { evicted: 0 });
        assert_eq!(
            replicas.keep(1, 2, record(5, 10), max),
            Kept::Yes { evicted: 0 },
            "it takes its own place"
        );
        assert_eq!(replicas.bytes(), max);
        assert_eq!(
            replicas.keep(4, 1, record(1, 11), max),
            Kept::Yes { evicted: 2 },
            "2 and 3 came before 1's newest"
        );
        assert_eq!(replicas.keep(5, 1, record(1, max), max), Kept::No, "too large");
        assert!(replicas.take_exact(1, 4).is_none(), "newer than what is wanted: it may be of use later");
        assert!(replicas.take_exact(1, 6).is_none(), "stale (S60)");
        assert!(replicas.remove(1).is_none(), "and gone");
        assert_eq!(replicas.take_exact(4, 1), Some(record(1, 11)));
        assert_eq!(replicas.bytes(), 0);
    }
}
