//! Messages on their way to the caller: each block once, each stream in order.
//!
//! Messages of the [`ORDERED`] stream are in order with all others. A block says how many of them
//! are before it; until those are delivered, it waits. So does, where a message of that stream is
//! in it, the rest of a block before which blocks are missing. All other messages wait for their
//! own stream only.

use std::collections::BTreeMap;

use crate::flow_control::{PART_COST, ReceiveCredit};
use crate::frames::{Malformed, Part, next_part, take_order};
use crate::queue::SliceQueue;
use crate::sending::{BLOCK_PARTS_MAX, BLOCKS_MAX};
use crate::streams::{ORDERED, StreamTable};

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
    /// Blocks that have arrived in part, by number.
    pieces: BTreeMap<u64, Assembly>,
    /// Bytes of all blocks in `pieces`, when complete.
    pieces_bytes: u64,
    /// Blocks that cannot be delivered yet because of the ordered stream, by number.
    waiting: BTreeMap<u64, WaitingBlock>,
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

/// A block, or its rest.
#[derive(Debug)]
struct WaitingBlock {
    /// The messages of the ordered stream that are before it.
    order: u32,
    /// It begins with one of them, and so waits for all before it.
    is_ordered: bool,
    /// The frames. Their cost is received.
    parts: Vec<u8>,
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
            waiting: BTreeMap::new(),
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
        // A block without an order waits for none.
        let order = take_order(&mut parts).unwrap_or_else(|| self.streams.at(ORDERED).next);
        let rest = self.deliver(number, order, parts, false)?;
        if !rest.is_empty() {
            self.put_off(number, order, rest)?;
        }
        if !self.waiting.is_empty() {
            self.resume()?;
        }
        Ok(true)
    }

    /// Delivers what is in a block, up to what has to wait, and returns that. `is_paid`: its cost
    /// is received.
    #[inline]
    fn deliver<'a>(
        &mut self,
        number: u64,
        order: u32,
        mut parts: &'a [u8],
        is_paid: bool,
    ) -> Result<&'a [u8], Malformed> {
        if !self.is_behind(order) {
            return Ok(parts);
        }
        loop {
            let rest = parts;
            let Some((part, _)) = next_part(&mut parts)? else { return Ok(&[]) };
            if let Some((stream, cost)) = part.cost() {
                if stream == ORDERED && !self.is_next(number) {
                    return Ok(rest);
                }
                if !is_paid && !self.credit.receive(cost) {
                    return Err(Malformed);
                }
            }
            match part {
                Part::Message { stream, number, bytes } => self.message(stream, number, bytes)?,
                Part::Fragment { stream, number, total, offset, bytes } => {
                    self.fragment((stream, number), total as usize, offset as usize, bytes)?;
                }
                Part::Order(_) => return Err(Malformed),
                Part::Unknown => {}
            }
        }
    }

    /// Returns whether this many messages of the ordered stream are delivered.
    #[inline]
    fn is_behind(&mut self, order: u32) -> bool {
        self.streams.at(ORDERED).next.wrapping_sub(order) < 1 << 31
    }

    /// Returns whether all blocks before this one are delivered.
    #[inline]
    fn is_next(&self, number: u64) -> bool {
        number < self.blocks.next && self.waiting.first_key_value().is_none_or(|(first, _)| *first > number)
    }

    /// Keeps what is left of a block.
    #[cold]
    fn put_off(&mut self, number: u64, order: u32, rest: &[u8]) -> Result<(), Malformed> {
        let (mut parts, mut first, mut kept) = (rest, None, Vec::new());
        loop {
            let frame = parts;
            let Some((part, _)) = next_part(&mut parts)? else { break };
            // Unknown frames cost nothing, so they are not kept.
            let Some((stream, cost)) = part.cost() else { continue };
            first.get_or_insert(stream);
            kept.extend_from_slice(&frame[..frame.len() - parts.len()]);
            if !self.credit.receive(cost) {
                return Err(Malformed);
            }
        }
        if let Some(stream) = first {
            let waiting = WaitingBlock { order, is_ordered: stream == ORDERED, parts: kept };
            self.waiting.insert(number, waiting);
        }
        Ok(())
    }

    /// Delivers waiting blocks, in order, up to the first that must wait longer.
    #[inline(never)]
    fn resume(&mut self) -> Result<(), Malformed> {
        while let Some((&number, first)) = self.waiting.first_key_value() {
            let (order, is_ordered) = (first.order, first.is_ordered);
            let (is_behind, is_next) = (self.is_behind(order), number < self.blocks.next);
            if is_next && !is_behind {
                return Err(Malformed); // Nothing is missing before it.
            }
            if !is_behind || is_ordered && !is_next {
                return Ok(());
            }
            let parts = self.waiting.remove(&number).map_or(Vec::new(), |first| first.parts);
            let rest = self.deliver(number, order, &parts, true)?;
            if !rest.is_empty() {
                let waiting = WaitingBlock { order, is_ordered: true, parts: rest.to_vec() };
                self.waiting.insert(number, waiting);
            }
        }
        Ok(())
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
        if bytes.len() > self.message_max {
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
        if !is_within || total > self.message_max || bytes.is_empty() {
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

/// The received blocks that the peer may repeat: all below `next`, and some of the [`BLOCKS_MAX`]
/// from there on.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frames::{push_message, push_order};

    #[test]
    fn a_block_that_waits_holds_no_more_than_was_paid_for() {
        let mut inbox = Inbox::new(1 << 20, 1_000);
        let mut block = Vec::new();
        push_order(&mut block, 1);
        push_message(&mut block, 5, 0, b"waits");
        block.extend_from_slice(&[99, 0x40, 0]); // A frame that is not known.
        block.extend_from_slice(&[0; 0x4000]);
        push_message(&mut block, 5, 1, b"waits, too");
        assert_eq!(inbox.receive(2, &block), Ok(true));
        let held: usize = inbox.waiting.values().map(|waiting| waiting.parts.len()).sum();
        assert!(held as u64 <= inbox.held_cost(), "{held} bytes, {} paid for", inbox.held_cost());
        let mut first = Vec::new();
        push_order(&mut first, 0);
        push_message(&mut first, ORDERED, 0, b"first");
        assert_eq!(inbox.receive(1, &first), Ok(true));
        let delivered: Vec<Vec<u8>> = std::iter::from_fn(|| Some(inbox.poll()?.bytes.to_vec())).collect();
        assert_eq!(delivered, [&b"first"[..], b"waits", b"waits, too"]);
    }
}
