//! Growing buffers of flows, for data of unknown length such as an incomplete message (S21).
//!
//! They are the third part of a flow's state, after the fixed-layout state and the map, and bounded
//! like these.

use packet::memory::OutOfMemory;

use crate::BufferSpec;
use crate::record::RecordHeader;

mod supply;

use supply::Supply;
pub use supply::{BUFFER_SHARE_PERCENT, MemoryShortage};

/// A buffer taken out of its flow to be worked with, see [`crate::Context::take_buffer`].
///
/// It grows up to the descriptor's limit and the memory that the instance has left.
#[derive(Debug, Default)]
pub struct FlowBuffer {
    bytes: Vec<u8>,
    /// Limit on its bytes.
    len_max: usize,
    /// Bytes refused because it was full.
    refused: u64,
    /// The shortage that limits it, if its own maximum length does not.
    short: Option<MemoryShortage>,
    /// Its content was evicted.
    was_evicted: bool,
}

impl FlowBuffer {
    /// Returns the content.
    #[inline]
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the content for overwriting.
    #[inline]
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        &mut self.bytes
    }

    /// Returns a buffer of no flow that takes up to `len_max` bytes, as working memory.
    pub fn with_room(len_max: usize) -> FlowBuffer {
        FlowBuffer { len_max, ..FlowBuffer::default() }
    }

    /// Returns the limit on its bytes.
    pub fn capacity(&self) -> usize {
        self.len_max
    }

    /// Checks if its content was evicted in favour of other buffers before it was taken.
    #[inline]
    pub fn was_evicted(&self) -> bool {
        self.was_evicted
    }

    /// Checks if it refused bytes since it was taken.
    #[inline]
    pub fn has_refused(&self) -> bool {
        self.refused > 0
    }

    /// Appends as many bytes as fit and returns their number. The others are counted as refused.
    pub fn push(&mut self, bytes: &[u8]) -> usize {
        let taken = bytes.len().min(self.len_max.saturating_sub(self.bytes.len()));
        self.refused += (bytes.len() - taken) as u64;
        self.bytes.extend_from_slice(&bytes[..taken]);
        taken
    }

    /// Swaps the content with other bytes without copying, then truncates it to the limit.
    pub fn exchange(&mut self, others: &mut Vec<u8>) {
        std::mem::swap(&mut self.bytes, others);
        self.refused += self.bytes.len().saturating_sub(self.len_max) as u64;
        self.bytes.truncate(self.len_max);
    }

    /// Removes the first `len` bytes, or all if there are fewer.
    pub fn consume(&mut self, len: usize) {
        self.bytes.drain(..len.min(self.bytes.len()));
    }

    /// Truncates the content to `len` bytes.
    pub fn truncate(&mut self, len: usize) {
        self.bytes.truncate(len);
    }

    /// Removes all bytes.
    pub fn clear(&mut self) {
        self.bytes.clear();
    }
}

/// The buffers of all flows of an instance. A flow's record holds their numbers; 0 is an empty one,
/// which takes no memory.
pub struct Buffers {
    spec: &'static BufferSpec,
    kept: Vec<Kept>,
    /// Unused numbers of `kept`.
    free: Vec<u32>,
    /// Unused vectors with memory, by buffer index: the next content is likely of similar length.
    spare: Vec<Vec<Vec<u8>>>,
    /// Bytes of memory in `spare`.
    spare_bytes: usize,
    /// Bytes of memory in `kept` beyond what lengths explain (see [`excess`]), and the limit on
    /// them.
    excess: usize,
    excess_max: usize,
    /// Limit on the bytes of all buffers.
    memory: usize,
    /// Bytes that `kept` may still grow.
    room: usize,
    refused: u64,
    /// From this much room on, a buffer may have its full length.
    plenty: usize,
    supply: Supply,
}

/// A stored buffer of a flow.
struct Kept {
    bytes: Vec<u8>,
    /// Amount charged to the source's account while the connection is open.
    charged: u32,
    account: u16,
    /// Saturating count of uses by its flow, for eviction.
    uses: u8,
    /// The connection was not open when last charged, or the buffer is empty.
    is_weak: bool,
    /// Its content was evicted.
    is_lost: bool,
}

impl Default for Kept {
    fn default() -> Kept {
        Kept { bytes: Vec::new(), charged: 0, account: 0, uses: 0, is_weak: true, is_lost: false }
    }
}

/// Length that marks an evicted buffer in saved states.
const LOST: u32 = u32::MAX;

/// Bytes per buffer number in flow records, at the end of an NF's part.
const NUMBER_LEN: usize = 4;

/// Limit on the bytes of memory kept for reuse.
const SPARE_BYTES_MAX: usize = 8 << 20;
/// Divisor of memory for the total excess allowed.
const EXCESS_PART: usize = 8;
/// Memory that a short buffer may have without excess.
const SLACK_BYTES: usize = 256;

/// Returns the memory that a buffer's length does not explain: growing takes up to twice the
/// length.
#[inline]
fn excess(bytes: &Vec<u8>) -> usize {
    bytes.capacity().saturating_sub(2 * bytes.len() + SLACK_BYTES)
}

impl BufferSpec {
    /// No buffers.
    pub(crate) const NONE: BufferSpec = BufferSpec { count: 0, len_max: 0, memory: 0 };

    /// Returns the bytes that the buffer numbers take in the record.
    pub(crate) const fn numbers_len(&self) -> usize {
        self.count * NUMBER_LEN
    }
}

impl Buffers {
    /// Returns buffers of `memory` bytes, with a share of `percent` per source.
    pub(crate) fn new(
        spec: &'static BufferSpec,
        memory: usize,
        percent: u8,
        seed: u64,
    ) -> Result<Buffers, OutOfMemory> {
        let supply = Supply::new(memory, spec.count, percent, seed)?;
        Ok(Buffers {
            spec,
            kept: Vec::new(),
            free: Vec::new(),
            spare: vec![Vec::new(); spec.count],
            spare_bytes: 0,
            excess: 0,
            excess_max: memory / EXCESS_PART,
            memory,
            room: memory,
            refused: 0,
            plenty: supply.plenty(spec.count, spec.len_max),
            supply,
        })
    }

    /// Returns the bytes in all buffers.
    pub fn used_bytes(&self) -> usize {
        self.memory - self.room
    }

    /// Returns the bytes refused, by a buffer's limit or by the common one.
    pub fn refused_bytes(&self) -> u64 {
        self.refused
    }

    /// Returns the content of the buffer with this number.
    pub(crate) fn get(&self, number: &[u8]) -> &[u8] {
        self.index(number).and_then(|at| self.kept.get(at)).map_or(&[], |kept| &kept.bytes)
    }

    /// Appends each of a flow's buffers, preceded by its length.
    pub(crate) fn save(&self, numbers: &[u8], out: &mut Vec<u8>) {
        for number in numbers.chunks_exact(NUMBER_LEN).take(self.spec.count) {
            let is_lost =
                self.index(number).and_then(|at| self.kept.get(at)).is_some_and(|kept| kept.is_lost);
            let bytes = self.get(number);
            let len = if is_lost { LOST } else { bytes.len() as u32 };
            out.extend_from_slice(&len.to_le_bytes());
            out.extend_from_slice(bytes);
        }
    }

    /// Fills a flow's buffers from their saved form and returns the bytes after it. The existing
    /// numbers belong to the flow's previous instance and are discarded.
    pub(crate) fn restore<'b>(
        &mut self,
        numbers: &mut [u8],
        header: &RecordHeader,
        mut saved: &'b [u8],
    ) -> Option<&'b [u8]> {
        numbers.fill(0);
        for buffer in 0..self.spec.count {
            let (len, rest) = saved.split_first_chunk()?;
            let len = u32::from_le_bytes(*len);
            let was_lost = len == LOST;
            let (bytes, rest) = rest.split_at_checked(if was_lost { 0 } else { len as usize })?;
            saved = rest;
            let mut taken = self.take(numbers, buffer, header);
            let is_whole = taken.push(bytes) == bytes.len();
            if !is_whole {
                taken.clear();
            }
            self.give(numbers, buffer, taken, header);
            if was_lost || !is_whole {
                // The flow must learn of the loss.
                let at = self.vacant();
                self.kept[at].is_lost = true;
                number_of(numbers, buffer).copy_from_slice(&(at as u32 + 1).to_le_bytes());
            }
        }
        Some(saved)
    }

    /// Takes a buffer out of its flow.
    pub(crate) fn take(&mut self, numbers: &mut [u8], buffer: usize, header: &RecordHeader) -> FlowBuffer {
        let at = self.index(number_of(numbers, buffer));
        let mut was_evicted = false;
        let bytes = match at.and_then(|at| self.kept.get_mut(at)) {
            Some(kept) => {
                if kept.is_lost {
                    (kept.is_lost, was_evicted) = (false, true);
                    self.supply.note(MemoryShortage::Evicted);
                }
                self.excess -= excess(&kept.bytes);
                std::mem::take(&mut kept.bytes)
            }
            None => self.spare(buffer),
        };
        self.room += bytes.len();
        if self.room < self.plenty {
            return FlowBuffer { was_evicted, ..self.ration(numbers, at, bytes, header) };
        }
        FlowBuffer { bytes, len_max: self.spec.len_max, refused: 0, short: None, was_evicted }
    }

    /// Stores a buffer in its flow.
    pub(crate) fn give(
        &mut self,
        numbers: &mut [u8],
        buffer: usize,
        bytes: FlowBuffer,
        header: &RecordHeader,
    ) {
        let FlowBuffer { mut bytes, refused, short, .. } = bytes;
        if refused > 0 {
            self.refused += refused;
            short.into_iter().for_each(|kind| self.supply.note(kind));
        }
        let number = number_of(numbers, buffer);
        let at = self.index(number);
        // A taken buffer is empty here. Otherwise the stored content is replaced.
        if let Some(before) =
            at.and_then(|at| self.kept.get_mut(at)).map(|kept| std::mem::take(&mut kept.bytes))
        {
            self.room += before.len();
            self.excess -= excess(&before);
            self.reuse(buffer, before);
        }
        if bytes.is_empty() {
            if let Some(at) = at {
                self.vacate(at);
                number.fill(0);
            }
            return self.reuse(buffer, bytes);
        }
        // The length is charged, so the memory must not be much larger.
        let in_excess = excess(&bytes);
        if in_excess > self.excess_max - self.excess {
            bytes.shrink_to_fit();
        } else {
            self.excess += in_excess;
        }
        self.room = self.room.saturating_sub(bytes.len());
        let at = at.unwrap_or_else(|| self.vacant());
        number.copy_from_slice(&(at as u32 + 1).to_le_bytes());
        let kept = &mut self.kept[at];
        kept.bytes = bytes;
        kept.use_again();
        self.supply.charge(at, kept, header);
    }

    /// Frees the buffers of a flow that ended.
    pub(crate) fn release(&mut self, numbers: &mut [u8]) {
        for buffer in 0..self.spec.count {
            let number = number_of(numbers, buffer);
            let Some(at) = self.index(number) else { continue };
            number.fill(0);
            let bytes = self.kept.get_mut(at).map(|kept| std::mem::take(&mut kept.bytes)).unwrap_or_default();
            self.room += bytes.len();
            self.excess -= excess(&bytes);
            self.vacate(at);
            self.reuse(buffer, bytes);
        }
    }

    fn index(&self, number: &[u8]) -> Option<usize> {
        let number = u32::from_le_bytes(number.try_into().ok()?);
        (number as usize).checked_sub(1).filter(|&at| at < self.kept.len())
    }

    fn vacant(&mut self) -> usize {
        if let Some(at) = self.free.pop() {
            return at as usize;
        }
        self.kept.push(Kept::default());
        self.kept.len() - 1
    }

    /// Frees the number of an empty buffer.
    fn vacate(&mut self, at: usize) {
        if let Some(kept) = self.kept.get_mut(at) {
            self.supply.discharge(at, kept);
            *kept = Kept::default();
            self.free.push(at as u32);
        }
    }

    /// Returns memory for a buffer.
    fn spare(&mut self, buffer: usize) -> Vec<u8> {
        let bytes = self.spare.get_mut(buffer).and_then(Vec::pop).unwrap_or_default();
        self.spare_bytes -= bytes.capacity();
        bytes
    }

    /// Keeps a buffer's memory for reuse.
    fn reuse(&mut self, buffer: usize, mut bytes: Vec<u8>) {
        let spare_bytes = self.spare_bytes + bytes.capacity();
        if let Some(spare) = self.spare.get_mut(buffer)
            && bytes.capacity() > 0
            && spare_bytes <= SPARE_BYTES_MAX
        {
            self.spare_bytes = spare_bytes;
            bytes.clear();
            spare.push(bytes);
        }
    }
}

/// Returns the bytes of a buffer's number among a flow's numbers.
pub(crate) fn number_of(numbers: &mut [u8], buffer: usize) -> &mut [u8] {
    numbers.get_mut(buffer * NUMBER_LEN..).and_then(|rest| rest.get_mut(..NUMBER_LEN)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use zerocopy::FromZeros;

    use super::*;
    use crate::Connection;

    static SPEC: BufferSpec = BufferSpec { count: 2, len_max: 8, memory: 20 };

    /// Returns the header of a flow with an open connection.
    fn header() -> RecordHeader {
        let mut header = RecordHeader::new_zeroed();
        header.connection = Connection::ESTABLISHED;
        header
    }

    fn buffers() -> Buffers {
        Buffers::new(&SPEC, SPEC.memory, 100, 7).unwrap()
    }

    fn append(buffers: &mut Buffers, numbers: &mut [u8], buffer: usize, bytes: &[u8]) -> usize {
        let mut taken = buffers.take(numbers, buffer, &header());
        let len = taken.push(bytes);
        buffers.give(numbers, buffer, taken, &header());
        len
    }

    #[test]
    fn buffer_holds_its_content_until_its_flow_ends() {
        let mut buffers = buffers();
        let mut numbers = [0; 8];
        assert_eq!(append(&mut buffers, &mut numbers, 1, b"abc"), 3);
        assert_eq!(append(&mut buffers, &mut numbers, 1, b"defghi"), 5);
        assert_eq!(buffers.get(number_of(&mut numbers, 1)), b"abcdefgh");
        assert_eq!(buffers.get(number_of(&mut numbers, 0)), b"");
        assert_eq!((buffers.used_bytes(), buffers.refused_bytes()), (8, 1));
        buffers.release(&mut numbers);
        assert_eq!((buffers.used_bytes(), numbers), (0, [0; 8]));
        append(&mut buffers, &mut numbers, 0, b"x");
        assert_eq!(buffers.kept.len(), 1);
    }

    #[test]
    fn buffers_move_with_their_flow() {
        let (mut here, mut there) = (buffers(), buffers());
        let mut numbers = [0; 8];
        append(&mut here, &mut [0; 8], 0, b"other");
        append(&mut here, &mut numbers, 1, b"abc");
        let mut saved = Vec::new();
        here.save(&numbers, &mut saved);
        saved.push(9);
        assert_eq!(there.restore(&mut numbers, &header(), &saved), Some(&[9][..]));
        assert_eq!(there.get(number_of(&mut numbers, 1)), b"abc");
        assert_eq!(there.used_bytes(), 3);
        for len in 0..saved.len() - 1 {
            assert_eq!(there.restore(&mut numbers, &header(), &saved[..len]), None, "{len} bytes");
        }
    }

    #[test]
    fn total_memory_is_bounded() {
        let mut buffers = buffers();
        let mut flows = [[0; 8]; 4];
        let taken: Vec<usize> = flows.iter_mut().map(|flow| append(&mut buffers, flow, 0, &[7; 8])).collect();
        assert_eq!(taken, [8, 6, 3, 1]);
        assert!(buffers.used_bytes() <= SPEC.memory);
        assert_eq!(buffers.refused_bytes(), 14);
    }

    #[test]
    fn stored_buffer_replaces_the_previous_one() {
        let mut buffers = buffers();
        let mut numbers = [0; 8];
        append(&mut buffers, &mut numbers, 0, b"abcdef");
        let mut other = FlowBuffer { len_max: 8, ..FlowBuffer::default() };
        other.push(b"xy");
        buffers.give(&mut numbers, 0, other, &header());
        assert_eq!((buffers.get(number_of(&mut numbers, 0)), buffers.used_bytes()), (&b"xy"[..], 2));
        buffers.give(&mut numbers, 0, FlowBuffer::default(), &header());
        assert_eq!((numbers, buffers.used_bytes()), ([0; 8], 0));
    }

    #[test]
    fn empty_buffer_takes_no_memory() {
        let mut buffers = buffers();
        let mut numbers = [0; 8];
        append(&mut buffers, &mut numbers, 0, b"abc");
        let mut buffer = buffers.take(&mut numbers, 0, &header());
        buffer.consume(2);
        assert_eq!(buffer.as_slice(), b"c");
        buffer.consume(9);
        buffers.give(&mut numbers, 0, buffer, &header());
        assert_eq!((numbers, buffers.used_bytes(), buffers.spare[0].len()), ([0; 8], 0, 1));
    }

    #[test]
    fn memory_is_reused_for_the_same_buffer() {
        let mut buffers = buffers();
        let mut numbers = [0; 8];
        append(&mut buffers, &mut numbers, 1, b"abc");
        let memory = buffers.get(number_of(&mut numbers, 1)).as_ptr();
        buffers.release(&mut numbers);
        append(&mut buffers, &mut numbers, 0, b"abc");
        assert_ne!(buffers.get(number_of(&mut numbers, 0)).as_ptr(), memory);
        append(&mut buffers, &mut numbers, 1, b"abc");
        assert_eq!((buffers.get(number_of(&mut numbers, 1)).as_ptr(), buffers.spare_bytes), (memory, 0));
    }
    static LARGE: BufferSpec = BufferSpec { count: 2, len_max: 64 << 10, memory: 16 << 20 };

    /// Asserts that the buffers' memory is bounded by their charge and the allowed excess.
    fn assert_is_bounded(buffers: &Buffers) {
        let of_all = |bytes: fn(&Vec<u8>) -> usize| buffers.kept.iter().map(|kept| bytes(&kept.bytes)).sum();
        let (capacity, in_excess): (usize, usize) = (of_all(Vec::capacity), of_all(excess));
        let slack = buffers.kept.len() * SLACK_BYTES + LARGE.memory / EXCESS_PART;
        assert!(capacity <= 2 * buffers.used_bytes() + slack, "{capacity} bytes");
        assert_eq!(buffers.excess, in_excess);
    }

    #[test]
    fn memory_follows_the_charge() {
        let mut buffers = Buffers::new(&LARGE, LARGE.memory, 100, 7).unwrap();
        let mut flows = [[0; 8]; 100];
        for flow in &mut flows {
            append(&mut buffers, flow, 0, &[7; 60 << 10]);
            let mut buffer = buffers.take(flow, 0, &header());
            buffer.push(b"rest");
            buffer.consume(60 << 10);
            buffers.give(flow, 0, buffer, &header());
            assert_eq!(buffers.get(number_of(flow, 0)), b"rest");
            let mut buffer = buffers.take(flow, 1, &header());
            buffer.push(&[8; 60 << 10]);
            buffer.truncate(3);
            buffers.give(flow, 1, buffer, &header());
            assert_is_bounded(&buffers);
        }
        assert_eq!(buffers.used_bytes(), 100 * 7);
        for flow in &mut flows {
            buffers.give(flow, 0, FlowBuffer::default(), &header());
            buffers.release(flow);
        }
        assert_eq!((buffers.used_bytes(), buffers.excess), (0, 0));
    }

    #[test]
    fn memory_of_long_buffers_is_not_reused_for_short_ones() {
        let mut buffers = Buffers::new(&LARGE, LARGE.memory, 100, 7).unwrap();
        let mut flows = [[0; 8]; 100];
        flows.iter_mut().for_each(|flow| _ = append(&mut buffers, flow, 0, &[7; 60 << 10]));
        flows.iter_mut().for_each(|flow| buffers.release(flow));
        flows.iter_mut().for_each(|flow| _ = append(&mut buffers, flow, 0, b"short"));
        assert_is_bounded(&buffers);
    }
}
