//! A cache of the most recent payloads of all flows, found by fingerprints of their parts.
//!
//! Payloads lie one after the other in a ring; new ones overwrite the oldest. A fingerprint leads
//! to a position in the latest payload noted with it while that payload is in the ring. The cache
//! belongs to one instance, or is shared by instances on several threads (see
//! [`crate::SharedHandle`]). Each machine has its own.

use packet::memory::{OutOfMemory, Zeroed};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Length in bytes of the longest payload that is kept.
pub const CACHED_PAYLOAD_MAX: usize = u16::MAX as usize;

/// Fingerprints that compete for one cache line.
const WAYS: usize = 4;

/// Bytes in front of each payload: its length, and a flag for forgotten ones.
const HEAD: usize = 4;

/// A ring of payloads, with fingerprints of their parts.
pub struct PayloadCache {
    name: &'static str,
    ring: Zeroed<u8>,
    buckets: Zeroed<[Slot; WAYS]>,
    /// Start of the next payload, in bytes since the beginning.
    head: u64,
    /// Payloads that start before this were overwritten.
    tail: u64,
    kept_bytes: u64,
    displaced: u64,
}

/// A fingerprint and the position that it leads to.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
struct Slot {
    /// Start of the payload, in bytes since the beginning; 0 if the slot is free.
    payload: u64,
    /// The compared part of the fingerprint.
    tag: u32,
    /// The byte of the payload.
    offset: u32,
}

/// A position in a cached payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CachedPayload<'a> {
    /// The whole payload.
    pub payload: &'a [u8],
    /// The byte that the fingerprint was noted with.
    pub offset: usize,
}

impl PayloadCache {
    /// Returns a cache for `bytes` of payload, at least [`CACHED_PAYLOAD_MAX`], each payload taking
    /// four bytes more. Fingerprints are rounded up to whole cache lines, at least one.
    ///
    /// # Errors
    /// There is not enough memory.
    pub fn new(name: &'static str, bytes: usize, fingerprints: usize) -> Result<PayloadCache, OutOfMemory> {
        Ok(PayloadCache {
            name,
            ring: Zeroed::new(bytes.max(CACHED_PAYLOAD_MAX + HEAD))?,
            buckets: Zeroed::new(fingerprints.div_ceil(WAYS).max(1))?,
            head: 1,
            tail: 1,
            kept_bytes: 0,
            displaced: 0,
        })
    }

    /// Returns the name in the descriptor.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Returns the size of the ring in bytes.
    pub fn capacity(&self) -> usize {
        self.ring.len()
    }

    /// Returns all memory in use, in bytes.
    pub fn memory(&self) -> usize {
        self.ring.len() + self.buckets.len() * size_of::<[Slot; WAYS]>()
    }

    /// Returns the bytes of all payloads kept since the start.
    pub fn kept_bytes(&self) -> u64 {
        self.kept_bytes
    }

    /// Returns the number of fingerprints displaced while their payload was still cached. A new
    /// fingerprint displaces the oldest of its cache line.
    pub fn displaced(&self) -> u64 {
        self.displaced
    }

    /// Stores a payload and returns its handle for [`PayloadCache::note`]. `None` if it is longer
    /// than [`CACHED_PAYLOAD_MAX`].
    #[inline]
    pub fn keep(&mut self, payload: &[u8]) -> Option<u64> {
        let head = u16::try_from(payload.len()).ok()?.to_le_bytes();
        let (len, capacity) = (HEAD + payload.len(), self.ring.len() as u64);
        let mut at = self.head;
        let behind = capacity - at % capacity;
        if (len as u64) > behind {
            at += behind; // A payload is not split: the rest of the ring stays unused this time.
        }
        let (head_at, rest) = self.ring[(at % capacity) as usize..][..len].split_at_mut(HEAD);
        head_at.copy_from_slice(&[head[0], head[1], 1, 0]);
        rest.copy_from_slice(payload);
        self.head = at + len as u64;
        self.tail = self.tail.max(self.head.saturating_sub(capacity));
        self.kept_bytes += payload.len() as u64;
        Some(at)
    }

    /// Makes a fingerprint lead to a byte of a stored payload, replacing its previous target.
    #[inline]
    pub fn note(&mut self, fingerprint: u64, payload: u64, offset: u16) {
        let (bucket, tag) = self.place(fingerprint);
        let tail = self.tail;
        let slots = &mut self.buckets[bucket];
        let at = slots.iter().position(|slot| slot.payload != 0 && slot.tag == tag).unwrap_or_else(|| {
            let oldest = (1..WAYS).fold(0, |a, b| if slots[b].payload < slots[a].payload { b } else { a });
            self.displaced += u64::from(slots[oldest].payload >= tail);
            oldest
        });
        slots[at] = Slot { payload, tag, offset: offset.into() };
    }

    /// Returns the position that a fingerprint leads to. In rare cases it was noted with another
    /// fingerprint: the caller must compare.
    #[inline]
    pub fn find(&self, fingerprint: u64) -> Option<CachedPayload<'_>> {
        let (bucket, tag) = self.place(fingerprint);
        let slot = self.buckets[bucket].iter().find(|slot| slot.payload >= self.tail && slot.tag == tag)?;
        let at = (slot.payload % self.ring.len() as u64) as usize;
        let &[low, high, is_here, _] = self.ring.get(at..)?.first_chunk()?;
        let payload = self.ring.get(at + HEAD..)?.get(..usize::from(u16::from_le_bytes([low, high])))?;
        (is_here == 1).then_some(CachedPayload { payload, offset: slot.offset as usize })
    }

    /// Forgets the payload that a fingerprint leads to, for all its fingerprints. Returns false if
    /// there was none.
    pub fn forget(&mut self, fingerprint: u64) -> bool {
        let (bucket, tag) = self.place(fingerprint);
        let tail = self.tail;
        let Some(slot) = self.buckets[bucket].iter_mut().find(|s| s.payload >= tail && s.tag == tag) else {
            return false;
        };
        let at = (slot.payload % self.ring.len() as u64) as usize;
        slot.payload = 0;
        self.ring.get_mut(at + 2).is_some_and(|is_here| std::mem::take(is_here) == 1)
    }

    /// Forgets all payloads.
    pub fn clear(&mut self) {
        self.tail = self.head;
    }

    /// Returns the fingerprint's cache line and the part that is compared.
    #[inline]
    fn place(&self, fingerprint: u64) -> (usize, u32) {
        // Fingerprints may have bits in common, so they are mixed first.
        let mixed = packet::split_mix(&mut { fingerprint });
        let bucket = ((mixed >> 32) * self.buckets.len() as u64) >> 32;
        (bucket as usize, mixed as u32)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    fn contents(fingerprints: usize) -> PayloadCache {
        PayloadCache::new("payloads", 0, fingerprints).unwrap()
    }

    #[test]
    fn fingerprint_leads_to_its_latest_payload() {
        let mut contents = contents(64);
        let first = contents.keep(b"one").unwrap();
        contents.note(7, first, 1);
        assert_eq!(contents.find(7), Some(CachedPayload { payload: b"one", offset: 1 }));
        let second = contents.keep(b"two").unwrap();
        contents.note(7, second, 2);
        contents.note(8, first, 0);
        assert_eq!(contents.find(7), Some(CachedPayload { payload: b"two", offset: 2 }));
        assert_eq!(contents.find(9), None);
        assert!(contents.forget(7) && !contents.forget(7));
        assert_eq!((contents.find(7), contents.find(8).is_some()), (None, true));
        contents.clear();
        assert_eq!(contents.find(8), None);
        assert_eq!((contents.kept_bytes(), contents.displaced()), (6, 0));
    }

    #[test]
    fn forgotten_payload_has_no_fingerprints() {
        let mut contents = contents(64);
        let kept = contents.keep(b"payload").unwrap();
        (0..9).for_each(|fingerprint| contents.note(fingerprint, kept, 0));
        assert!(contents.forget(3));
        assert!((0..9).all(|fingerprint| contents.find(fingerprint).is_none()));
    }

    #[test]
    fn payloads_over_the_limit_are_not_kept() {
        assert!(contents(4).keep(&[0; CACHED_PAYLOAD_MAX]).is_some());
        assert!(contents(4).keep(&[0; CACHED_PAYLOAD_MAX + 1]).is_none());
    }

    #[test]
    fn zero_fingerprints_round_up_to_one_line() {
        let mut contents = contents(0);
        assert_eq!(contents.find(7), None);
        let kept = contents.keep(b"payload").unwrap();
        contents.note(7, kept, 3);
        assert_eq!(contents.find(7), Some(CachedPayload { payload: b"payload", offset: 3 }));
    }

    proptest! {
        /// Compared with a list: everything found was stored, and the latest payloads are found
        /// unless cache lines overflow.
        #[test]
        fn cache_behaves_like_a_list(lens in prop::collection::vec((0usize..40_000, any::<u8>()), 1..60), few in any::<bool>()) {
            let mut contents = contents(if few { 8 } else { 4_096 });
            let mut list: VecDeque<(u64, Vec<u8>)> = VecDeque::new();
            for (number, (len, byte)) in (0u64..).zip(lens) {
                let payload = vec![byte; len];
                let kept = contents.keep(&payload).unwrap();
                contents.note(number, kept, number as u16);
                list.push_back((number, payload));
                // Payloads are not split, so up to the length of one may be unused.
                while list.iter().map(|(_, payload)| payload.len() + HEAD).sum::<usize>() > contents.capacity() {
                    list.pop_front();
                }
                for (number, payload) in &list {
                    if let Some(found) = contents.find(*number) {
                        prop_assert_eq!(found, CachedPayload { payload, offset: *number as usize });
                    }
                }
                let (last, payload) = list.back().unwrap();
                prop_assert_eq!(contents.find(*last).unwrap().payload, payload);
                let gone = list.iter().filter(|(number, _)| contents.find(*number).is_none());
                let gone: usize = gone.map(|(_, payload)| HEAD + payload.len()).sum();
                prop_assert!(few || gone <= 2 * (40_000 + HEAD), "{gone} bytes were overwritten too early");
            }
            prop_assert!(few || contents.displaced() == 0);
        }
    }
}
