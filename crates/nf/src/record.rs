//! Flow records: everything that a flow owns, in one run of bytes that moves as it is (A11).
//!
//! A record is a [`Header`] and then each function's state and map, at offsets that the chain lays out. All zero bytes
//! are the state of a flow that has not begun.

use packet::memory::{OutOfMemory, Zeroed, prefetch};
use packet::{Direction, FlowKey, Side};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::connection::Connection;

/// What the chain keeps of each flow, before the functions' states. Two cache lines.
#[derive(Clone, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct Header {
    /// The key that the flow began with.
    pub key: FlowKey,
    /// When its last refreshing packet came.
    pub last_seen_ns: u64,
    /// How long after that it is forgotten.
    pub timeout_ms: u32,
    /// See the `FLAG_` constants of [`Header`].
    pub flags: u8,
    /// What its connection has come to.
    pub connection: Connection,
    /// Counts the changes of the flow's owner (its epoch), modulo 2^16.
    pub epoch: u16,
    /// The key that packets of the flow have once the functions rewrote them, if they do: the alias (DESIGN 3.8).
    pub alias: FlowKey,
    /// Packets of the flow so far, both directions (S58).
    pub clock: u64,
    /// Tags of the flow, which its packets inherit (E4, A29).
    pub tags: u64,
}

impl Header {
    /// The record is in use.
    pub const FLAG_LIVE: u8 = 1;
    /// The first packet's key was reversed into canonical order.
    pub const FLAG_REVERSED: u8 = 2;
    /// There is an alias.
    pub const FLAG_ALIAS: u8 = 4;
    /// A rewritten packet of the original direction has the alias reversed.
    pub const FLAG_ALIAS_REVERSED: u8 = 8;
    /// A packet of the flow was let through.
    pub const FLAG_ACCEPTED: u8 = 16;
    /// Packets of the flow turn back within the chain.
    pub const FLAG_TURNS: u8 = 32;
    /// The flow's first packet came from outside.
    pub const FLAG_FROM_OUTSIDE: u8 = 64;

    /// Whether a flag is set.
    #[inline]
    pub fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// The side that the flow's first packet entered by.
    #[inline]
    pub fn origin(&self) -> Side {
        if self.has(Header::FLAG_FROM_OUTSIDE) { Side::Outside } else { Side::Inside }
    }

    /// Which way a packet with this key goes in the flow, or none if it is not of this flow.
    #[inline]
    pub fn direction_of(&self, key: &FlowKey, reversed: bool) -> Option<Direction> {
        if self.flags & Header::FLAG_LIVE == 0 {
            return None;
        }
        let original = if self.key == *key {
            self.has(Header::FLAG_REVERSED)
        } else if self.has(Header::FLAG_ALIAS) && self.alias == *key {
            self.has(Header::FLAG_ALIAS_REVERSED)
        } else {
            return None;
        };
        Some(if reversed == original { Direction::Original } else { Direction::Reply })
    }

    /// When the flow is forgotten if nothing more comes.
    #[inline]
    pub fn deadline_ns(&self) -> u64 {
        self.last_seen_ns.saturating_add(u64::from(self.timeout_ms) * 1_000_000)
    }
}

/// One cache line of records.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C, align(64))]
struct Line([u8; 64]);

/// Lines of a header.
const HEADER_LINES: usize = size_of::<Header>() / 64;

/// A fixed number of records of equal size.
pub struct Records {
    lines: Zeroed<Line>,
    lines_per_record: usize,
    /// How many of them are prefetched.
    prefetch_lines: usize,
    capacity: u32,
    free: Vec<u32>,
    /// Records below this were used before.
    fresh: u32,
}

impl Records {
    /// Room for `capacity` flows whose functions' states take `state_len` bytes together.
    pub fn new(capacity: u32, state_len: usize) -> Result<Records, OutOfMemory> {
        let lines_per_record = (size_of::<Header>() + state_len).div_ceil(64);
        let lines = Zeroed::new(lines_per_record * capacity as usize)?;
        let free = Vec::with_capacity(capacity as usize);
        let prefetch_lines = lines_per_record.min(PREFETCH_LINES);
        Ok(Records { lines, lines_per_record, prefetch_lines, capacity, free, fresh: 0 })
    }

    /// How many records there can be.
    pub fn capacity(&self) -> u32 {
        self.capacity
    }

    /// How many records are in use.
    pub fn live(&self) -> u32 {
        self.fresh - self.free.len() as u32
    }

    /// The record numbers that were ever in use; those whose header is live are flows.
    pub fn used(&self) -> std::ops::Range<u32> {
        0..self.fresh
    }

    /// Bytes of a record.
    pub fn record_len(&self) -> usize {
        self.lines_per_record * 64
    }

    /// Takes a zeroed record into use, or none if all are.
    pub fn allocate(&mut self) -> Option<u32> {
        if let Some(record) = self.free.pop() {
            self.bytes_mut(record).fill(0);
            return Some(record);
        }
        (self.fresh < self.capacity).then(|| {
            self.fresh += 1;
            self.fresh - 1
        })
    }

    /// Gives a record back. It must be in use, and no table may name it any longer.
    pub fn release(&mut self, record: u32) {
        debug_assert!(self.header(record).has(Header::FLAG_LIVE));
        self.header_mut(record).flags = 0;
        self.free.push(record);
    }

    /// The record's bytes: header, then states.
    #[inline]
    pub fn bytes(&self, record: u32) -> &[u8] {
        self.lines[record as usize * self.lines_per_record..][..self.lines_per_record].as_bytes()
    }

    /// The record's bytes, to be changed.
    #[inline]
    pub fn bytes_mut(&mut self, record: u32) -> &mut [u8] {
        self.lines[record as usize * self.lines_per_record..][..self.lines_per_record].as_mut_bytes()
    }

    /// The record's header.
    ///
    /// # Panics
    /// If there is no such record.
    #[inline(always)]
    #[allow(clippy::expect_used)]
    pub fn header(&self, record: u32) -> &Header {
        let start = record as usize * self.lines_per_record;
        // Proof: a slice of this length has this many elements.
        let lines = self.lines[start..start + HEADER_LINES].first_chunk::<HEADER_LINES>().expect("sliced so");
        zerocopy::transmute_ref!(lines)
    }

    /// The record's header, to be changed.
    ///
    /// # Panics
    /// If there is no such record.
    #[inline(always)]
    pub fn header_mut(&mut self, record: u32) -> &mut Header {
        self.parts_mut(record).0
    }

    /// Header and functions' states at once.
    ///
    /// # Panics
    /// If there is no such record.
    #[inline(always)]
    #[allow(clippy::expect_used)]
    pub fn parts_mut(&mut self, record: u32) -> (&mut Header, &mut [u8]) {
        let start = record as usize * self.lines_per_record;
        let lines = &mut self.lines[start..start + self.lines_per_record];
        // Proof: a record has at least a header's lines (`new`).
        let (header, states) =
            lines.split_first_chunk_mut::<HEADER_LINES>().expect("a record begins with its header");
        (zerocopy::transmute_mut!(header), states.as_mut_bytes())
    }

    /// Asks for the record to be brought into the cache.
    #[inline]
    pub fn prefetch(&self, record: u32) {
        let start = record as usize * self.lines_per_record;
        if let Some(lines) = self.lines.get(start..start + self.lines_per_record) {
            prefetch(&lines[0]);
            for line in &lines[1..self.prefetch_lines] {
                prefetch(line);
            }
        }
    }
}

/// Lines of a record that are prefetched; the processor's own prefetcher follows.
const PREFETCH_LINES: usize = 6;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_two_cache_lines() {
        assert_eq!(size_of::<Header>(), 128);
    }

    #[test]
    fn records_are_bounded_reused_and_zeroed() {
        let mut records = Records::new(2, 10).unwrap();
        assert_eq!(records.record_len(), 192);
        let a = records.allocate().unwrap();
        let b = records.allocate().unwrap();
        assert_eq!(records.allocate(), None);
        records.header_mut(a).flags = Header::FLAG_LIVE;
        records.parts_mut(a).1[3] = 9;
        assert_eq!(records.live(), 2);
        records.release(a);
        let again = records.allocate().unwrap();
        assert_eq!(again, a);
        assert!(records.bytes(again).iter().all(|&byte| byte == 0));
        assert_ne!(a, b);
    }
}
