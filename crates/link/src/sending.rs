//! Messages on their way to the peer: packed into blocks, kept until these are acknowledged.
//!
//! A block holds the messages and fragments of one datagram. It is sent again whole if its datagram
//! is lost. The books are so kept per datagram, not per message.

use std::collections::VecDeque;

use crate::datagram::DATAGRAM_OVERHEAD;
use crate::flow_control::{PART_COST, SendCredit};
use crate::frames::{BLOCK_HEAD, FRAGMENT_HEAD, MESSAGE_HEAD, push_fragment, push_message};
use crate::streams::StreamTable;

/// Distance from the oldest block that is not acknowledged to the newest one sent, at most.
pub const BLOCKS_MAX: u64 = 16_384;

/// Buffers of acknowledged blocks that are kept for new ones.
const SPARE_MAX: usize = 256;

/// No datagram: the block waits to be sent.
const UNSENT: u64 = 0;

/// The blocks of a link that the peer has not acknowledged.
#[derive(Debug)]
pub(crate) struct BlockQueue {
    /// Bytes of a block, at most.
    capacity: usize,
    /// Blocks with bytes, at most.
    live_max: usize,
    live: usize,
    blocks: VecDeque<Block>,
    /// Number of the first block in `blocks`.
    first: u64,
    /// Number of the next block to send for the first time.
    next: u64,
    /// Blocks to send again, oldest loss first.
    lost: VecDeque<u64>,
    spare: Vec<Vec<u8>>,
    numbers: StreamTable<u32>,
    credit: SendCredit,
}

#[derive(Debug)]
struct Block {
    bytes: Vec<u8>,
    cost: u32,
    is_acked: bool,
    /// The datagram that carried it last; [`UNSENT`] if it must be sent.
    datagram: u64,
}

/// Returns the bytes of a block that fits a datagram.
pub(crate) const fn block_capacity(mtu: usize) -> usize {
    mtu - DATAGRAM_OVERHEAD - BLOCK_HEAD
}

/// Returns the number of blocks that a message may need, at most.
pub(crate) const fn blocks_of(len: usize, capacity: usize) -> usize {
    // Only the first and the last fragment are shorter than a block.
    len / (capacity - FRAGMENT_HEAD) + 2
}

/// Takes the next number of a stream.
#[inline]
fn next_number(numbers: &mut StreamTable<u32>, stream: u16) -> u32 {
    let next = numbers.at(stream);
    let number = *next;
    *next = number.wrapping_add(1);
    number
}

impl BlockQueue {
    pub(crate) fn new(mtu: usize, send_buffer: usize) -> BlockQueue {
        let capacity = block_capacity(mtu);
        BlockQueue {
            capacity,
            live_max: send_buffer / capacity,
            live: 0,
            blocks: VecDeque::new(),
            first: 1,
            next: 1,
            lost: VecDeque::new(),
            spare: Vec::new(),
            numbers: StreamTable::new(),
            credit: SendCredit::new(),
        }
    }

    /// Appends a message; false, without effect, if there is no room.
    #[inline]
    pub(crate) fn push(&mut self, stream: u16, message: &[u8]) -> bool {
        self.append(stream, message) || self.push_to_next(stream, message)
    }

    /// Appends a message to the last block; false if it has no room.
    #[inline]
    fn append(&mut self, stream: u16, message: &[u8]) -> bool {
        let is_open = self.first + self.blocks.len() as u64 > self.next;
        let Some(block) = self.blocks.back_mut().filter(|_| is_open) else { return false };
        if block.bytes.len() + MESSAGE_HEAD + message.len() > self.capacity {
            return false;
        }
        push_message(&mut block.bytes, stream, next_number(&mut self.numbers, stream), message);
        block.cost += (message.len() as u64 + PART_COST) as u32;
        true
    }

    /// Appends a message for which the last block has no room, if there are blocks left.
    #[inline(never)]
    fn push_to_next(&mut self, stream: u16, message: &[u8]) -> bool {
        if self.live + blocks_of(message.len(), self.capacity) > self.live_max {
            return false;
        }
        // A message that fits a block is divided if an eighth of a block were left empty.
        let fits = MESSAGE_HEAD + message.len() <= self.capacity;
        if !fits || self.room() > self.capacity / 8 + FRAGMENT_HEAD {
            self.push_fragments(stream, message);
            return true;
        }
        self.begin_block();
        self.append(stream, message)
    }

    /// Returns the room of the last block, if it has not been sent.
    #[inline]
    fn room(&self) -> usize {
        match self.blocks.back() {
            Some(block) if self.first + self.blocks.len() as u64 > self.next => {
                self.capacity - block.bytes.len()
            }
            _ => 0,
        }
    }

    fn push_fragments(&mut self, stream: u16, message: &[u8]) {
        let number = next_number(&mut self.numbers, stream);
        let mut offset = 0;
        while offset < message.len() {
            if self.room() <= self.capacity / 8 + FRAGMENT_HEAD {
                self.begin_block();
            }
            let len = (self.room() - FRAGMENT_HEAD).min(message.len() - offset);
            if let Some(block) = self.blocks.back_mut() {
                push_fragment(&mut block.bytes, (stream, number), message, offset, len);
                block.cost += (len as u64 + PART_COST) as u32;
            }
            offset += len;
        }
    }

    fn begin_block(&mut self) {
        let bytes = self.spare.pop().unwrap_or_default();
        self.live += 1;
        self.blocks.push_back(Block { bytes, cost: 0, is_acked: false, datagram: UNSENT });
    }

    /// Notes the peer's grant.
    #[inline]
    pub(crate) fn note_grant(&mut self, granted: u64) {
        self.credit.note_grant(granted);
    }

    /// Returns whether a block may be sent, the congestion window aside.
    #[inline]
    pub(crate) fn has_pending(&self) -> bool {
        !self.lost.is_empty() || self.next_new().is_some()
    }

    /// Returns the number of blocks that were not sent yet, or are sent again.
    #[inline]
    pub(crate) fn unsent(&self) -> u64 {
        self.first + self.blocks.len() as u64 - self.next + self.lost.len() as u64
    }

    /// Returns whether no message waits for its acknowledgement.
    pub(crate) fn is_idle(&self) -> bool {
        self.live == 0
    }

    /// Returns the number of the block to send now: the oldest lost one, or a new one as far as the
    /// peer has granted it.
    #[inline]
    pub(crate) fn pending(&mut self) -> Option<u64> {
        while let Some(&number) = self.lost.front() {
            if self.block(number).is_some_and(|block| !block.is_acked) {
                return Some(number);
            }
            self.lost.pop_front();
        }
        self.next_new()
    }

    #[inline]
    fn next_new(&self) -> Option<u64> {
        let block = self.blocks.get((self.next - self.first) as usize)?;
        (self.next < self.first + BLOCKS_MAX && self.credit.covers(block.cost.into())).then_some(self.next)
    }

    /// Returns whether a quarter of the blocks is free.
    pub(crate) fn has_room(&self) -> bool {
        self.live <= self.live_max - self.live_max / 4
    }

    /// Returns the oldest block that was sent and is not acknowledged, for a probe.
    pub(crate) fn oldest_sent(&self) -> Option<u64> {
        (self.first < self.next).then_some(self.first)
    }

    /// Returns a block's bytes.
    #[inline]
    pub(crate) fn bytes(&self, number: u64) -> &[u8] {
        self.block(number).map_or(&[], |block| &block.bytes)
    }

    /// Notes that a datagram carries the block; returns whether it was sent before.
    #[inline]
    pub(crate) fn note_sent(&mut self, number: u64, datagram: u64) -> bool {
        if self.lost.front() == Some(&number) {
            self.lost.pop_front();
        }
        let is_new = number == self.next;
        let Some(block) = self.block_mut(number) else { return true };
        block.datagram = datagram;
        let cost = block.cost.into();
        if is_new {
            self.next += 1;
            self.credit.spend(cost);
        }
        !is_new
    }

    /// Notes that the peer has the block; returns whether that is news.
    #[inline]
    pub(crate) fn note_acked(&mut self, number: u64) -> bool {
        let Some(block) = self.block_mut(number) else { return false };
        if std::mem::replace(&mut block.is_acked, true) {
            return false;
        }
        let mut bytes = std::mem::take(&mut block.bytes);
        if self.spare.len() < SPARE_MAX {
            bytes.clear();
            self.spare.push(bytes);
        }
        self.live -= 1;
        while self.blocks.front().is_some_and(|block| block.is_acked) {
            self.blocks.pop_front();
            self.first += 1;
        }
        true
    }

    /// Notes that the datagram that carried the block is lost. If a later one carries it as well,
    /// that one decides.
    pub(crate) fn note_lost(&mut self, number: u64, datagram: u64) {
        if let Some(block) = self.block_mut(number)
            && !block.is_acked
            && block.datagram == datagram
        {
            block.datagram = UNSENT;
            self.lost.push_back(number);
        }
    }

    #[inline]
    fn block(&self, number: u64) -> Option<&Block> {
        self.blocks.get(number.checked_sub(self.first)? as usize)
    }

    #[inline]
    fn block_mut(&mut self, number: u64) -> Option<&mut Block> {
        self.blocks.get_mut(number.checked_sub(self.first)? as usize)
    }
}
