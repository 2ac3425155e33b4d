//! Messages on their way to the caller: each block once, each stream in order.

use std::collections::BTreeMap;

use crate::flow_control::{PART_COST, ReceiveCredit};
use crate::frames::{Malformed, Part, next_part};
use crate::queue::SliceQueue;
use crate::sending::{BLOCK_PARTS_MAX, BLOCKS_MAX};
use crate::streams::StreamTable;

/// A message for the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamMessage<'a> {
    /// The stream.
    pub stream: u16,
    /// The message.
    pub bytes: &'a [u8],
}

/// Received messages, complete and incomplete.
#[derive(Debug)]
pub(crate) struct Inbox {
    blocks: BlockWindow,
    /// Blocks of which some parts have arrived, by number.
    pieces: BTreeMap<u64, Assembly>,
    /// Bytes of all blocks in `pieces`, when complete.
    pieces_bytes: u64,
    streams: StreamTable<StreamIn>,
    /// Complete messages that wait for an earlier one of their stream.
    held: BTreeMap<(u16, u32), Vec<u8>>,
    partial: BTreeMap<(u16, u32), Partial>,
    /// Bytes of all messages in `partial`, when complete.
    partial_bytes: u64,
    /// In-order messages, each with its stream. A message costs its bytes and one `PART_COST`.
    ready: SliceQueue<u16>,
    credit: ReceiveCredit,
    window: u64,
    message_max: usize,
}

#[derive(Clone, Copy, Debug, Default)]
struct StreamIn {
    next: u32,
    held: u32,
}

#[derive(Debug)]
struct Partial {
    bytes: Vec<u8>,
    missing: usize,
}

/// A block that arrives in parts.
#[derive(Debug)]
struct Assembly {
    bytes: Vec<u8>,
    missing: usize,
    /// The offsets of the parts that have arrived.
    offsets: Vec<u16>,
}

impl Inbox {
    pub(crate) fn new(window: u64, message_max: usize) -> Inbox {
        Inbox {
            blocks: BlockWindow::new(),
            pieces: BTreeMap::new(),
            pieces_bytes: 0,
            streams: StreamTable::new(),
            held: BTreeMap::new(),
            partial: BTreeMap::new(),
            partial_bytes: 0,
            ready: SliceQueue::new(),
            credit: ReceiveCredit::new(window),
            window,
            message_max,
        }
    }

    /// Takes in a block; returns whether it is new. An error is the peer's fault: the block is
    /// malformed, or was not granted.
    #[inline]
    pub(crate) fn receive(&mut self, number: u64, mut parts: &[u8]) -> Result<bool, Malformed> {
        if !self.blocks.insert(number)? {
            return Ok(false);
        }
        if !self.pieces.is_empty()
            && let Some(assembly) = self.pieces.remove(&number)
        {
            self.pieces_bytes -= assembly.bytes.len() as u64;
        }
        while let Some((part, _)) = next_part(&mut parts)? {
            match part {
                Part::Message { stream, number, bytes } => self.message(stream, number, bytes)?,
                Part::Fragment { stream, number, total, offset, bytes } => {
                    self.fragment((stream, number), total as usize, offset as usize, bytes)?;
                }
                Part::Unknown => {}
            }
        }
        Ok(true)
    }

    /// Takes in a part of a block; returns whether it is new.
    pub(crate) fn receive_piece(
        &mut self,
        number: u64,
        total: usize,
        offset: u16,
        bytes: &[u8],
    ) -> Result<bool, Malformed> {
        if !self.blocks.is_new(number)? {
            return Ok(false);
        }
        let (start, end) = (usize::from(offset), usize::from(offset) + bytes.len());
        if bytes.is_empty() || end > total {
            return Err(Malformed);
        }
        if !self.pieces.contains_key(&number) {
            // Blocks are shorter than their cost, and the peer sends what was granted only.
            self.pieces_bytes += total as u64;
            if self.pieces_bytes > self.window {
                return Err(Malformed);
            }
            let assembly = Assembly { bytes: vec![0; total], missing: total, offsets: Vec::new() };
            self.pieces.insert(number, assembly);
        }
        let assembly = self.pieces.get_mut(&number).ok_or(Malformed)?;
        if assembly.offsets.contains(&offset) {
            return Ok(false);
        }
        let is_valid = assembly.bytes.len() == total && assembly.missing >= bytes.len();
        if !is_valid || assembly.offsets.len() >= BLOCK_PARTS_MAX {
            return Err(Malformed);
        }
        assembly.offsets.push(offset);
        assembly.bytes[start..end].copy_from_slice(bytes);
        assembly.missing -= bytes.len();
        if assembly.missing == 0 {
            let whole = std::mem::take(&mut assembly.bytes);
            self.pieces_bytes -= total as u64;
            self.pieces.remove(&number);
            self.receive(number, &whole)?;
        }
        Ok(true)
    }

    #[inline]
    fn message(&mut self, stream: u16, number: u32, bytes: &[u8]) -> Result<(), Malformed> {
        if bytes.len() > self.message_max || !self.credit.receive(bytes.len() as u64 + PART_COST) {
            return Err(Malformed);
        }
        let state = self.streams.at(stream);
        if number != state.next {
            return self.hold((stream, number), bytes.to_vec());
        }
        state.next = number.wrapping_add(1);
        let is_awaited = state.held > 0;
        self.ready.push(stream, bytes);
        if is_awaited {
            self.release(stream);
        }
        Ok(())
    }

    fn fragment(
        &mut self,
        (stream, number): (u16, u32),
        total: usize,
        offset: usize,
        bytes: &[u8],
    ) -> Result<(), Malformed> {
        let is_within = offset.checked_add(bytes.len()).is_some_and(|end| end <= total);
        let is_valid = is_within && total <= self.message_max && !bytes.is_empty();
        if !is_valid || !self.credit.receive(bytes.len() as u64 + PART_COST) {
            return Err(Malformed);
        }
        let key = (stream, number);
        if self.partial.contains_key(&key) {
            self.credit.consume(PART_COST);
        } else {
            // A sender finishes a message before it begins the next, so all but one of the
            // incomplete ones are within the window.
            self.partial_bytes += total as u64;
            if self.partial_bytes > self.window + self.message_max as u64 {
                return Err(Malformed);
            }
            let mut bytes = self.ready.take_buffer();
            bytes.resize(total, 0);
            self.partial.insert(key, Partial { bytes, missing: total });
        }
        let partial = self.partial.get_mut(&key).ok_or(Malformed)?;
        if partial.bytes.len() != total || partial.missing < bytes.len() {
            return Err(Malformed);
        }
        partial.bytes[offset..offset + bytes.len()].copy_from_slice(bytes);
        partial.missing -= bytes.len();
        if partial.missing > 0 {
            return Ok(());
        }
        let whole = self.partial.remove(&key).map(|partial| partial.bytes).ok_or(Malformed)?;
        self.partial_bytes -= total as u64;
        let state = self.streams.at(stream);
        if number != state.next {
            return self.hold(key, whole);
        }
        state.next = number.wrapping_add(1);
        self.ready.push_owned(stream, whole);
        self.release(stream);
        Ok(())
    }

    /// Keeps a message until the earlier ones of its stream are here.
    fn hold(&mut self, key: (u16, u32), bytes: Vec<u8>) -> Result<(), Malformed> {
        let state = self.streams.at(key.0);
        let is_ahead = key.1.wrapping_sub(state.next) < 1 << 31;
        if !is_ahead || self.held.insert(key, bytes).is_some() {
            return Err(Malformed);
        }
        state.held += 1;
        Ok(())
    }

    /// Moves to the caller the messages that waited for the one before.
    fn release(&mut self, stream: u16) {
        let state = self.streams.at(stream);
        while state.held > 0
            && let Some(bytes) = self.held.remove(&(stream, state.next))
        {
            state.next = state.next.wrapping_add(1);
            state.held -= 1;
            self.ready.push_owned(stream, bytes);
        }
    }

    /// Returns whether there is a message for the caller.
    #[inline]
    pub(crate) fn is_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Takes the next message for the caller.
    #[inline]
    pub(crate) fn poll(&mut self) -> Option<StreamMessage<'_>> {
        let (stream, bytes) = self.ready.pop()?;
        self.credit.consume(PART_COST + bytes.len() as u64);
        Some(StreamMessage { stream, bytes })
    }

    #[inline]
    pub(crate) fn credit(&mut self) -> &mut ReceiveCredit {
        &mut self.credit
    }

    /// Returns the cost of all messages held.
    pub(crate) fn held_cost(&self) -> u64 {
        self.credit.held()
    }
}

/// The blocks received, as far as the peer may repeat them: all below `next`, and some of the
/// [`BLOCKS_MAX`] from there on.
#[derive(Debug)]
struct BlockWindow {
    next: u64,
    words: Box<[u64; WORDS]>,
}

const WORDS: usize = (BLOCKS_MAX / 64) as usize;

impl BlockWindow {
    fn new() -> BlockWindow {
        BlockWindow { next: 1, words: Box::new([0; WORDS]) }
    }

    /// Returns whether a block has not been noted. An error means that no peer sends it yet.
    fn is_new(&self, number: u64) -> Result<bool, Malformed> {
        match number.checked_sub(self.next) {
            None => Ok(false),
            Some(ahead) if ahead >= BLOCKS_MAX => Err(Malformed),
            Some(_) => Ok(self.words[number as usize / 64 % WORDS] & 1 << (number % 64) == 0),
        }
    }

    /// Notes a block; returns whether it is new. An error means that no peer sends it yet.
    #[inline]
    fn insert(&mut self, number: u64) -> Result<bool, Malformed> {
        let Some(ahead) = number.checked_sub(self.next) else { return Ok(false) };
        if ahead >= BLOCKS_MAX {
            return Err(Malformed);
        }
        if self.flip(number, true) {
            return Ok(false);
        }
        while self.flip(self.next, false) {
            self.next += 1;
        }
        Ok(true)
    }

    /// Sets or clears a bit; returns its value before.
    #[inline]
    fn flip(&mut self, number: u64, value: bool) -> bool {
        let (word, bit) = (&mut self.words[number as usize / 64 % WORDS], 1 << (number % 64));
        let before = *word & bit != 0;
        *word = if value { *word | bit } else { *word & !bit };
        before
    }
}
