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
    /// When its last refreshing packet came.
    pub last_seen_ns: u64,
    /// Packets of the flow so far, both directions (S58).
    pub clock: u64,
    /// How long after `last_seen_ns` it is forgotten.
    pub timeout_ms: u32,
    /// See the `FLAG_` constants of [`Header`].
    pub flags: u8,
    /// What its connection has come to.
    pub connection: Connection,
    /// Counts the changes of the flow's owner (its epoch), modulo 2^16.
    pub epoch: u16,
    /// The key that the flow began with.
    pub key: FlowKey,
    /// The key that packets of the flow have once the functions rewrote them, if they do: the alias (DESIGN 3.8).
    pub alias: FlowKey,
    /// Tags of the flow, which its packets inherit (E4, A29).
    pub tags: u64,
}

/// A packet in the original direction of a flow without a scope finds all that it needs in the first line.
const _: () = assert!(std::mem::offset_of!(Header, key) + std::mem::offset_of!(FlowKey, scope) == 64);

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
    /// The key has a scope.
    pub const FLAG_SCOPED: u8 = 128;

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
        let original = if self.has_key(key) {
            self.has(Header::FLAG_REVERSED)
        } else if self.has_alias(key) {
            self.has(Header::FLAG_ALIAS_REVERSED)
        } else {
            return None;
        };
        Some(if reversed == original { Direction::Original } else { Direction::Reply })
    }

    /// Whether this is the flow's alias. A call of its own, so that its words do not take registers from the common case.
    #[inline(never)]
    fn has_alias(&self, key: &FlowKey) -> bool {
        self.has(Header::FLAG_ALIAS) && self.alias == *key
    }

    /// Whether this is the flow's key. The second line is read only if there is a scope to compare.
    #[inline(always)]
    fn has_key(&self, key: &FlowKey) -> bool {
        let scoped = self.has(Header::FLAG_SCOPED) || !key.scope.is_none();
        self.key.equals_without_scope(key) && (!scoped || self.key.scope == key.scope)
    }

    /// Sets the flow's key; a packet with it is `reversed` in the original direction.
    pub fn set_key(&mut self, key: FlowKey, reversed: bool) {
        self.key = key;
        self.flags &= !(Header::FLAG_REVERSED | Header::FLAG_SCOPED);
        if reversed {
            self.flags |= Header::FLAG_REVERSED;
        }
        if !key.scope.is_none() {
            self.flags |= Header::FLAG_SCOPED;
        }
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

/// Lines of a record that are prefetched at most; the processor's own prefetcher follows.
const PREFETCH_MAX: usize = 8;

/// How records are laid out: where each function's bytes stand, and which lines most packets touch.
#[derive(Clone, Debug, Default)]
pub struct Layout {
    /// Bytes behind the header.
    len: usize,
    /// Lines behind the header that most packets touch, ascending.
    hot: Vec<usize>,
    /// Whether most packets touch the header's second line, too.
    tags: bool,
}

impl Layout {
    /// Adds `len` bytes, of which most packets touch the first `hot_len`, and says where behind the header they begin. They
    /// begin a line if that lets packets touch one line less.
    pub fn add(&mut self, len: usize, hot_len: usize) -> usize {
        let spans = |offset: usize| (offset + hot_len).div_ceil(64) - offset / 64;
        let next_line = self.len.next_multiple_of(64);
        let offset = if hot_len > 0 && spans(next_line) < spans(self.len) { next_line } else { self.len };
        self.len = offset + len;
        if hot_len > 0 {
            self.hot.extend(HEADER_LINES + offset / 64..HEADER_LINES + (offset + hot_len).div_ceil(64));
            self.hot.dedup();
        }
        offset
    }

    /// Most packets need the flow's tags, too.
    pub fn add_tags(&mut self) {
        self.tags = true;
    }
}

/// A fixed number of records of equal size.
pub struct Records {
    lines: Zeroed<Line>,
    lines_per_record: usize,
    /// Those of its lines behind the header that are prefetched; then zeros.
    hot: [usize; PREFETCH_MAX],
    /// Whether the header's second line is.
    tags: bool,
    capacity: u32,
    free: Vec<u32>,
    /// Records below this were used before.
    fresh: u32,
}

impl Records {
    /// Room for `capacity` flows with records of this layout.
    pub fn new(capacity: u32, layout: Layout) -> Result<Records, OutOfMemory> {
        let lines_per_record = (size_of::<Header>() + layout.len).div_ceil(64);
        let lines = Zeroed::new(lines_per_record * capacity as usize)?;
        let free = Vec::with_capacity(capacity as usize);
        let mut hot = [0; PREFETCH_MAX];
        hot.iter_mut().zip(layout.hot).for_each(|(line, hot)| *line = hot);
        Ok(Records { lines, lines_per_record, hot, tags: layout.tags, capacity, free, fresh: 0 })
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
        let lines = &self.lines[record as usize * self.lines_per_record..];
        // Proof: a record has at least a header's lines (`new`).
        zerocopy::transmute_ref!(
            lines.first_chunk::<HEADER_LINES>().expect("a record begins with its header")
        )
    }

    /// The record's header, to be changed.
    ///
    /// # Panics
    /// If there is no such record.
    #[inline(always)]
    #[allow(clippy::expect_used)]
    pub fn header_mut(&mut self, record: u32) -> &mut Header {
        let lines = &mut self.lines[record as usize * self.lines_per_record..];
        // Proof: a record has at least a header's lines (`new`).
        zerocopy::transmute_mut!(
            lines.first_chunk_mut::<HEADER_LINES>().expect("a record begins with its header")
        )
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

    /// Asks for what most packets touch of the header to be brought into the cache.
    #[inline]
    pub fn prefetch_header(&self, record: u32) {
        let first = self.lines.as_ptr().wrapping_add(record as usize * self.lines_per_record);
        prefetch(first);
        if self.tags {
            prefetch(first.wrapping_add(1));
        }
    }

    /// Asks for what most packets touch of the functions' states. A step of its own: a processor has only so many requests
    /// to memory open, and those of a batch are many.
    #[inline]
    pub fn prefetch_states(&self, record: u32) {
        let first = self.lines.as_ptr().wrapping_add(record as usize * self.lines_per_record);
        for &line in self.hot.iter().take_while(|&&line| line != 0) {
            prefetch(first.wrapping_add(line));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_two_cache_lines() {
        assert_eq!(size_of::<Header>(), 128);
    }

    #[test]
    fn what_packets_touch_does_not_straddle_lines_without_need() {
        let mut layout = Layout::default();
        assert_eq!(layout.add(96, 40), 0);
        assert_eq!(layout.add(64, 64), 128);
        assert_eq!(layout.add(24, 0), 192);
        assert_eq!(layout.add(56, 16), 216);
        assert_eq!(layout.hot, [2, 4, 5]);
    }

    #[test]
    fn records_are_bounded_reused_and_zeroed() {
        let mut layout = Layout::default();
        layout.add(10, 10);
        let mut records = Records::new(2, layout).unwrap();
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
