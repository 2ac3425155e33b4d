//! Messages on their way to the peer: packed into blocks, kept until these are acknowledged.
//!
//! A block holds the messages and fragments of one datagram. It is sent again whole if its datagram
//! is lost. The books are so kept per datagram, not per message.

use std::collections::VecDeque;

use crate::datagram::DATAGRAM_OVERHEAD;
use crate::flow_control::{PART_COST, SendCredit};
use crate::frames::{BLOCK_HEAD, FRAGMENT_HEAD, MESSAGE_HEAD, message_head, push_fragment, push_message};
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
    /// A message that was written to a block in which it does not fit.
    misfit: Vec<u8>,
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
            misfit: Vec::new(),
            numbers: StreamTable::new(),
            credit: SendCredit::new(),
        }
    }

    /// Appends a message; false, without effect, if there is no room.
    #[inline]
    pub(crate) fn push(&mut self, stream: u16, message: &[u8]) -> bool {
        self.append(stream, message) || self.push_to_next(stream, message)
    }

    /// Returns whether [`BlockQueue::write`] has room for a message of this length.
    #[inline]
    pub(crate) fn can_write(&self, len: usize) -> bool {
        // It may begin a block before the length is known.
        self.live + 1 + blocks_of(len, self.capacity) <= self.live_max
    }

    /// Appends a message that `write` appends to the bytes that it gets. There must be room for
    /// `len_max` bytes; false, without effect, if the message is longer.
    #[inline]
    pub(crate) fn write(&mut self, stream: u16, len_max: usize, write: impl FnOnce(&mut Vec<u8>)) -> bool {
        if self.first + self.blocks.len() as u64 == self.next {
            self.begin_block();
        }
        let Some(Block { bytes, cost, .. }) = self.blocks.back_mut() else { return false };
        let start = bytes.len();
        bytes.extend_from_slice(&[0; MESSAGE_HEAD]);
        write(bytes);
        let len = bytes.len() - start - MESSAGE_HEAD;
        if bytes.len() > self.capacity {
            return self.move_to_next(stream, start, len_max);
        }
        if let Some(head) = bytes[start..].first_chunk_mut() {
            *head = message_head(stream, next_number(&mut self.numbers, stream), len);
        }
        *cost += (len as u64 + PART_COST) as u32;
        true
    }

    /// Takes a message from the end of the last block, in which it does not fit, and appends it as
    /// [`BlockQueue::push`] does.
    #[inline(never)]
    fn move_to_next(&mut self, stream: u16, start: usize, len_max: usize) -> bool {
        let Some(Block { bytes, .. }) = self.blocks.back_mut() else { return false };
        let mut misfit = std::mem::take(&mut self.misfit);
        misfit.clear();
        misfit.extend_from_slice(&bytes[start + MESSAGE_HEAD..]);
        bytes.truncate(start);
        bytes.shrink_to(4 * self.capacity); // Blocks keep their buffers, messages may be long.
        let is_appended = misfit.len() <= len_max && self.push_to_next(stream, &misfit);
        if !is_appended && start == 0 {
            self.blocks.pop_back();
            self.live -= 1;
        }
        self.misfit = misfit;
        is_appended
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn written_messages_are_as_pushed_ones(lens in prop::collection::vec(0usize..3_000, 1..60)) {
            let [mut written, mut pushed] = [(); 2].map(|()| BlockQueue::new(1_452, 1 << 20));
            for (at, len) in lens.into_iter().enumerate() {
                let (stream, message) = (at as u16 % 4, vec![at as u8; len]);
                let is_written = written.write(stream, 2_000, |out| out.extend_from_slice(&message));
                prop_assert_eq!(is_written, len <= 2_000);
                prop_assert!(len > 2_000 || pushed.push(stream, &message));
                if at % 8 == 7 {
                    let sent = [&mut written, &mut pushed].map(|queue| {
                        let number = queue.pending();
                        number.map(|number| queue.note_sent(number, at as u64))
                    });
                    prop_assert_eq!(sent[0], sent[1]);
                }
            }
            prop_assert_eq!((written.live, written.next), (pushed.live, pushed.next));
            let blocks = |queue: &BlockQueue| -> Vec<(Vec<u8>, u32)> {
                queue.blocks.iter().map(|block| (block.bytes.clone(), block.cost)).collect()
            };
            prop_assert_eq!(blocks(&written), blocks(&pushed));
        }
    }
}
