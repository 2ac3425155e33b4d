//! Flow records: all state of a flow in one run of bytes that can be moved as is (A11).
//!
//! A record is a [`RecordHeader`] followed by each NF's state and map, at offsets laid out by the
//! graph. All zero bytes are the state of a new flow.

use std::ops::Range;

use packet::memory::{ColumnMut, LINE, OutOfMemory, SlotArray, SlotField};
use packet::{Addr, Direction, FlowKey, Side, Transit};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::affinity::AffinityGroup;
use crate::connection::Connection;
use crate::sources::source_of;

/// The graph's own state of a flow, in front of the NFs' states. Two cache lines.
#[derive(Clone, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct RecordHeader {
    /// Time of the last packet that refreshed the flow.
    pub last_seen_ns: u64,
    /// Packets of the flow so far, both directions (S58).
    pub seq: u64,
    /// Time after `last_seen_ns` at which the flow expires.
    pub timeout_ms: u32,
    /// The `FLAG_` constants of [`RecordHeader`].
    pub flags: u8,
    /// State of the connection.
    pub connection: Connection,
    /// Affinity group of the flow, plus 1; 0 for none.
    pub group: u16,
    /// The key that the flow began with.
    pub key: FlowKey,
    /// The alias: the key of the flow's packets after all rewrites, if any (design.md 3.8).
    pub alias: FlowKey,
    /// Tags of the flow, inherited by its packets (E4, A29).
    pub tags: u64,
}

/// A packet in the original direction of a flow without a scope needs only the first cache line.
const _: () = assert!(std::mem::offset_of!(RecordHeader, key) + std::mem::offset_of!(FlowKey, scope) == 64);

impl RecordHeader {
    /// The record is in use.
    pub const FLAG_LIVE: u8 = 1;
    /// The first packet's key was reversed into canonical order.
    pub const FLAG_REVERSED: u8 = 2;
    /// There is an alias.
    pub const FLAG_ALIAS: u8 = 4;
    /// A rewritten packet of the original direction has the alias reversed.
    pub const FLAG_ALIAS_REVERSED: u8 = 8;
    /// A packet of the flow was forwarded.
    pub const FLAG_ACCEPTED: u8 = 16;
    /// Packets of the flow turn back within the graph. A record with this flag that is not live
    /// belongs to a flow's second pass.
    pub const FLAG_TURNS: u8 = 32;
    /// The flow's first packet entered at the outside.
    pub const FLAG_FROM_OUTSIDE: u8 = 64;
    /// The key has a scope.
    pub const FLAG_SCOPED: u8 = 128;

    /// Returns the flow's affinity group.
    pub fn affinity_group(&self) -> Option<AffinityGroup> {
        self.group.checked_sub(1).map(AffinityGroup)
    }

    /// Sets the flow's affinity group.
    pub fn set_affinity_group(&mut self, group: Option<AffinityGroup>) {
        self.group = group.map_or(0, |group| group.0 + 1); // Groups are few: `AFFINITY_GROUPS_MAX`.
    }

    /// Checks a flag.
    #[inline]
    pub fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// Returns the side that the flow's first packet entered by.
    #[inline]
    pub fn origin(&self) -> Side {
        if self.has(RecordHeader::FLAG_FROM_OUTSIDE) { Side::Outside } else { Side::Inside }
    }

    /// Returns the flow's initiator; of an IPv6 address, its first 64 bits.
    pub fn source(&self) -> Addr {
        source_of(self.key.ends(self.has(RecordHeader::FLAG_REVERSED)).0.addr)
    }

    /// Returns the direction of a packet with this key, or `None` if it is of another flow.
    #[inline]
    pub fn direction_of(&self, key: &FlowKey, reversed: bool) -> Option<Direction> {
        self.direction_if_common(key, reversed).or_else(|| self.direction_if_any(key, reversed))
    }

    /// Returns the direction in the common case, without touching the second cache line: the packet
    /// has the flow's own key, packets do not turn back, and neither has a scope. `None` otherwise.
    #[inline(always)]
    pub fn direction_if_common(&self, key: &FlowKey, reversed: bool) -> Option<Direction> {
        const FLAGS: u8 = RecordHeader::FLAG_LIVE | RecordHeader::FLAG_SCOPED | RecordHeader::FLAG_TURNS;
        let common = self.flags & FLAGS == RecordHeader::FLAG_LIVE
            && self.key.equals_without_scope(key)
            && key.scope.is_none();
        common.then(|| self.direction(reversed, RecordHeader::FLAG_REVERSED))
    }

    /// Returns the direction in all cases. These are not that rare (replies to rewritten packets,
    /// tagged ones), but marked cold so that saving registers for this call costs the common case
    /// nothing.
    #[cold]
    #[inline(never)]
    pub fn direction_if_any(&self, key: &FlowKey, reversed: bool) -> Option<Direction> {
        if !self.has(RecordHeader::FLAG_LIVE) {
            None
        } else if self.key == *key {
            Some(self.direction(reversed, RecordHeader::FLAG_REVERSED))
        } else if self.has(RecordHeader::FLAG_ALIAS) && self.alias == *key {
            Some(self.direction(reversed, RecordHeader::FLAG_ALIAS_REVERSED))
        } else {
            None
        }
    }

    /// Checks if packets of this direction enter by this side, in a flow that crosses from side to
    /// side.
    #[inline]
    pub fn comes_from(&self, side: Side, direction: Direction) -> bool {
        (side == self.origin()) == (direction == Direction::Original)
    }

    /// Returns the direction of a packet that is `reversed`; `original` is the flag that is set if
    /// packets of the original direction are.
    #[inline(always)]
    fn direction(&self, reversed: bool, original: u8) -> Direction {
        if reversed == self.has(original) { Direction::Original } else { Direction::Reply }
    }

    /// Sets the flow's key; original-direction packets with it are `reversed`.
    pub fn set_key(&mut self, key: FlowKey, reversed: bool) {
        self.key = key;
        self.flags &= !(RecordHeader::FLAG_REVERSED | RecordHeader::FLAG_SCOPED);
        if reversed {
            self.flags |= RecordHeader::FLAG_REVERSED;
        }
        if !key.scope.is_none() {
            self.flags |= RecordHeader::FLAG_SCOPED;
        }
    }

    /// Checks if the flow's deadline has passed.
    #[inline(always)]
    pub fn has_expired(&self, now_ns: u64) -> bool {
        now_ns.saturating_sub(self.last_seen_ns) > u64::from(self.timeout_ms) * 1_000_000
    }

    /// Returns the transit data for calls that have no packet.
    pub fn transit(&self, record: u32, now_ns: u64) -> Transit {
        Transit {
            timestamp_ns: now_ns,
            seq: self.seq,
            flow: record,
            side: self.origin(),
            phase: self.connection.phase(),
            ..Transit::default()
        }
    }

    /// Returns the time at which the flow expires.
    #[inline]
    pub fn deadline_ns(&self) -> u64 {
        self.last_seen_ns.saturating_add(u64::from(self.timeout_ms) * 1_000_000)
    }
}

/// Cache lines of a record to prefetch, at most [`CacheLines::MAX`]; the hardware prefetcher
/// follows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheLines {
    /// Their offsets, then zeros (the header's).
    starts: [u16; CacheLines::MAX],
}

impl CacheLines {
    /// Limit on the lines. Others are omitted, as are those beyond 16-bit offsets.
    pub const MAX: usize = 8;

    /// Returns the lines of these bytes of a record.
    fn of(bytes: Range<usize>) -> CacheLines {
        let mut lines = CacheLines::default();
        let all = bytes.start / LINE..bytes.end.div_ceil(LINE);
        all.map_while(|line| u16::try_from(line * LINE).ok()).for_each(|start| lines.push(start));
        lines
    }

    /// Adds the missing lines of `others`.
    pub fn add(&mut self, others: CacheLines) {
        others.starts().for_each(|start| self.push(start));
    }

    fn push(&mut self, start: u16) {
        if !self.starts.contains(&start)
            && let Some(free) = self.starts.iter_mut().find(|free| **free == 0)
        {
            *free = start;
        }
    }

    #[inline(always)]
    fn starts(self) -> impl Iterator<Item = u16> {
        self.starts.into_iter().take_while(|&start| start != 0)
    }
}

/// The layout of records: each NF's bytes, and the lines that most packets touch.
#[derive(Clone, Debug)]
pub struct RecordLayout {
    /// Length of a record so far, header included.
    len: usize,
    /// Offset of the next bytes.
    end: usize,
    /// Lines after the header that most packets touch.
    hot: CacheLines,
    /// Set if most packets touch the header's second line.
    tags: bool,
}

impl Default for RecordLayout {
    fn default() -> RecordLayout {
        let len = size_of::<RecordHeader>();
        RecordLayout { len, end: len, hot: CacheLines::default(), tags: false }
    }
}

impl RecordLayout {
    /// Adds `len` bytes; most packets touch the first `hot_len`. Returns their offset and the cache
    /// lines of the first `hot_len`. The bytes start a new line if that saves packets a line.
    pub fn add(&mut self, len: usize, hot_len: usize) -> (usize, CacheLines) {
        let count = |start: usize| (start + hot_len).div_ceil(LINE) - start / LINE;
        let next_line = self.end.next_multiple_of(LINE);
        let start = if hot_len > 0 && count(next_line) < count(self.end) { next_line } else { self.end };
        self.end = start + len;
        self.len = self.len.max(self.end);
        let lines = if hot_len > 0 { CacheLines::of(start..start + hot_len) } else { CacheLines::default() };
        self.hot.add(lines);
        (start, lines)
    }

    /// Returns the offset of the next bytes.
    pub fn end(&self) -> usize {
        self.end
    }

    /// Adds the next bytes from this offset on, which is that of bytes that other flows use (see
    /// [`RecordLayout::end`]).
    pub fn go_to(&mut self, end: usize) {
        self.end = end;
    }

    /// Returns the length of a record.
    #[allow(clippy::len_without_is_empty, reason = "a record has a header, at least")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns the lines after the header touched by packets that run through all NFs.
    pub fn lines(&self) -> CacheLines {
        self.hot
    }

    /// Declares that most packets need the flow's tags.
    pub fn add_tags(&mut self) {
        self.tags = true;
    }
}

/// A fixed number of records of equal size.
pub struct FlowRecords {
    slots: SlotArray<RecordHeader>,
    /// Set if the header's second line is prefetched.
    tags: bool,
    free: Vec<u32>,
    /// Records below this were used before.
    fresh: u32,
}

/// An NF's state in all records, with their headers.
pub type States<'r, T> = ColumnMut<'r, RecordHeader, T>;

impl FlowRecords {
    /// Returns space for `capacity` flows with records of this layout.
    ///
    /// # Errors
    /// Memory lacks.
    pub fn new(capacity: u32, layout: RecordLayout) -> Result<FlowRecords, OutOfMemory> {
        let slots = SlotArray::new(capacity, layout.len)?;
        let free = Vec::with_capacity(capacity as usize);
        Ok(FlowRecords { slots, tags: layout.tags, free, fresh: 0 })
    }

    /// Returns the limit on the records.
    pub fn capacity(&self) -> u32 {
        self.slots.count()
    }

    /// Returns the number of records in use.
    pub fn live(&self) -> u32 {
        self.fresh - self.free.len() as u32
    }

    /// Returns the record numbers ever used. Those with a live header are flows.
    pub fn used(&self) -> Range<u32> {
        0..self.fresh
    }

    /// Returns the length of a record.
    pub fn record_len(&self) -> usize {
        self.slots.slot_len()
    }

    /// Takes a zeroed record into use, or returns `None` if all are in use.
    pub fn allocate(&mut self) -> Option<u32> {
        if let Some(record) = self.free.pop() {
            self.slots.bytes_mut(record)?.fill(0);
            return Some(record);
        }
        (self.fresh < self.capacity()).then(|| {
            self.fresh += 1;
            self.fresh - 1
        })
    }

    /// Overwrites an allocated record with one from elsewhere. Does nothing if the length differs.
    pub fn load(&mut self, record: u32, bytes: &[u8]) {
        if let Some(own) = self.slots.bytes_mut(record).filter(|own| own.len() == bytes.len()) {
            own.copy_from_slice(bytes);
        }
    }

    /// Copies a range of bytes of another table's record into one here. Does nothing if either
    /// range is out of bounds.
    #[inline]
    pub fn copy(&mut self, record: u32, from: &FlowRecords, of: u32, bytes: Range<usize>) {
        let there = from.slots.bytes(of).and_then(|there| there.get(bytes.clone()));
        let here = self.slots.bytes_mut(record).and_then(|here| here.get_mut(bytes));
        if let (Some(here), Some(there)) = (here, there) {
            here.copy_from_slice(there);
        }
    }

    /// Zeroes a range of bytes of a record. Does nothing if it is out of bounds.
    pub fn clear(&mut self, record: u32, bytes: Range<usize>) {
        if let Some(bytes) = self.slots.bytes_mut(record).and_then(|record| record.get_mut(bytes)) {
            bytes.fill(0);
        }
    }

    /// Frees a record. It must be in use, and no table may refer to it any more.
    pub fn release(&mut self, record: u32) {
        debug_assert!(self.header(record).flags != 0);
        self.header_mut(record).flags = 0;
        self.free.push(record);
    }

    /// Returns the record's bytes, header then states. `None` if there is no such record.
    pub fn bytes(&self, record: u32) -> Option<&[u8]> {
        self.slots.bytes(record)
    }

    /// Returns the record's header.
    ///
    /// # Panics
    /// If there is no such record.
    #[inline(always)]
    #[allow(clippy::expect_used)] // Panics like an index out of bounds.
    pub fn header(&self, record: u32) -> &RecordHeader {
        self.slots.head(record).expect("a record that was allocated")
    }

    /// Returns the record's header for writing.
    ///
    /// # Panics
    /// If there is no such record.
    #[inline(always)]
    #[allow(clippy::expect_used)] // Panics like an index out of bounds.
    pub fn header_mut(&mut self, record: u32) -> &mut RecordHeader {
        self.slots.head_mut(record).expect("a record that was allocated")
    }

    /// Returns the record's header; `None` if there is no such record.
    #[inline]
    pub fn find_header(&self, record: u32) -> Option<&RecordHeader> {
        self.slots.head(record)
    }

    /// Returns the record's header for writing; `None` if there is no such record.
    #[inline(always)]
    pub fn find_header_mut(&mut self, record: u32) -> Option<&mut RecordHeader> {
        self.slots.head_mut(record)
    }

    /// Returns an NF's state in a record; `None` if the record or the state does not exist.
    #[inline(always)]
    pub fn state<T: FromBytes + IntoBytes + Immutable>(
        &self,
        record: u32,
        state: SlotField<T>,
    ) -> Option<&T> {
        self.slots.get(record, state)
    }

    /// Returns an NF's state in a record for writing.
    #[inline(always)]
    pub fn state_mut<T: FromBytes + IntoBytes>(
        &mut self,
        record: u32,
        state: SlotField<T>,
    ) -> Option<&mut T> {
        self.slots.get_mut(record, state)
    }

    /// Returns an NF's state in all records for writing, together with their headers and the bytes
    /// after the state. `None` if the layout has no such state.
    #[inline]
    pub fn states_mut<T: FromBytes + IntoBytes>(&mut self, state: SlotField<T>) -> Option<States<'_, T>> {
        self.slots.column_mut(state)
    }

    /// Prefetches the lines of the header that most packets touch.
    #[inline]
    pub fn prefetch_header(&self, record: u32) {
        self.slots.prefetch(record, 0);
        if self.tags {
            self.slots.prefetch(record, LINE);
        }
    }

    /// Prefetches lines of NFs' states. A separate step: the processor limits the requests in
    /// flight, and a batch has many.
    #[inline(always)]
    pub fn prefetch_states(&self, record: u32, lines: CacheLines) {
        for start in lines.starts {
            if start == 0 {
                break;
            }
            self.slots.prefetch(record, usize::from(start));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_is_two_cache_lines() {
        assert_eq!(size_of::<RecordHeader>(), 128);
    }

    #[test]
    fn hot_bytes_do_not_straddle_lines_needlessly() {
        let mut layout = RecordLayout::default();
        let mut add = |len, hot_len| {
            let (start, lines) = layout.add(len, hot_len);
            (start, lines.starts().collect::<Vec<_>>())
        };
        assert_eq!(add(96, 40), (128, vec![128]));
        assert_eq!(add(64, 64), (256, vec![256]));
        assert_eq!(add(24, 0), (320, vec![]));
        assert_eq!(add(56, 16), (344, vec![320]));
        assert_eq!(add(300, 100), (400, vec![384, 448]));
        assert_eq!(layout.lines().starts().collect::<Vec<_>>(), [128, 256, 320, 384, 448]);
    }

    #[test]
    fn cache_lines_are_unique_and_bounded() {
        let mut lines = CacheLines::of(70..200);
        lines.add(CacheLines::of(100..300));
        assert_eq!(lines.starts().collect::<Vec<_>>(), [64, 128, 192, 256]);
        lines.add(CacheLines::of(64..10_000));
        assert_eq!(lines.starts().collect::<Vec<_>>(), [64, 128, 192, 256, 320, 384, 448, 512]);
        let last = u16::MAX / 64 * 64;
        let beyond = usize::from(last)..100_000;
        assert_eq!(CacheLines::of(beyond).starts().collect::<Vec<_>>(), [last]);
    }

    #[test]
    fn records_are_bounded_reused_and_zeroed() {
        let mut layout = RecordLayout::default();
        let state = SlotField::<[u8; 10]>::at(layout.add(10, 10).0).unwrap();
        let mut records = FlowRecords::new(2, layout).unwrap();
        assert_eq!(records.record_len(), 192);
        let a = records.allocate().unwrap();
        let b = records.allocate().unwrap();
        assert_eq!(records.allocate(), None);
        records.header_mut(a).flags = RecordHeader::FLAG_LIVE;
        let mut states = records.states_mut(state).unwrap();
        let (_, bytes, rest) = states.at(a).unwrap();
        (bytes[3], rest[53]) = (9, 9);
        assert_eq!(records.state(a, state).unwrap()[3], 9);
        assert_eq!(records.live(), 2);
        records.release(a);
        let again = records.allocate().unwrap();
        assert_eq!(again, a);
        assert!(records.bytes(again).unwrap().iter().all(|&byte| byte == 0));
        assert_ne!(a, b);
    }
}
