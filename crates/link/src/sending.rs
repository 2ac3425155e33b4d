//! Messages on their way to the peer: packed into blocks, kept until these are acknowledged.
//!
//! A block holds the messages and fragments of one datagram. It is sent again whole if its datagram
//! is lost. The books are so kept per datagram, not per message. Where datagrams have become
//! smaller since a block was formed, it is sent in parts that fit every path.

use std::collections::VecDeque;

use crate::datagram::DATAGRAM_OVERHEAD;
use crate::flow_control::{PART_COST, SendCredit};
use crate::frames::{
    BLOCK_HEAD, FRAGMENT_HEAD, MESSAGE_HEAD, ORDER_LEN, PIECE_HEAD, message_head, push_block, push_fragment,
    push_message, push_order, push_piece,
};
use crate::streams::{ORDERED, StreamTable};

/// Distance from the oldest block that is not acknowledged to the newest one sent, at most.
pub const BLOCKS_MAX: u64 = 16_384;

/// Parts of a block, at most.
pub const BLOCK_PARTS_MAX: usize = 64;

/// Buffers of acknowledged blocks that are kept for new ones.
const SPARE_MAX: usize = 256;

/// No datagram: the block was not sent yet.
const UNSENT: u64 = 0;
/// No datagram: the last one is lost.
const LOST: u64 = u64::MAX;

/// The blocks of a link that the peer has not acknowledged.
#[derive(Debug)]
pub(crate) struct BlockQueue {
    /// Bytes of a block, at most.
    capacity: usize,
    /// Bytes of a part of a block that does not fit a datagram any more.
    part_len: usize,
    /// Bytes of blocks, each counted as full, at most.
    live_max: usize,
    live: usize,
    blocks: VecDeque<Block>,
    /// Number of the first block in `blocks`.
    first: u64,
    /// Number of the next block to send for the first time.
    next: u64,
    /// Blocks to send again, oldest loss first, and parts of blocks.
    lost: VecDeque<Piece>,
    spare: Vec<Vec<u8>>,
    /// A message that did not fit the block to which it was written.
    misfit: Vec<u8>,
    numbers: StreamTable<u32>,
    credit: SendCredit,
}

#[derive(Debug)]
struct Block {
    bytes: Vec<u8>,
    cost: u32,
    /// Bytes that it counts in the send buffer.
    capacity: u32,
    is_acked: bool,
    /// The datagram that carries it, or [`UNSENT`] or [`LOST`].
    datagram: u64,
    parts: Option<Parts>,
}

/// The parts of a divided block, a bit each.
#[derive(Clone, Copy, Debug, Default)]
struct Parts {
    acked: u64,
    sent: u64,
    /// Those in the queue of losses.
    queued: u64,
}

/// A block, or a part of it, as a datagram carries it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) block: u64,
    part: u8,
}

/// In place of a part's number: the block is whole.
const WHOLE: u8 = u8::MAX;

impl Piece {
    pub(crate) fn whole(block: u64) -> Piece {
        Piece { block, part: WHOLE }
    }

    fn bit(self) -> u64 {
        1 << (self.part % 64)
    }
}

/// Returns the bytes of a block that fits a datagram.
pub(crate) const fn block_capacity(mtu: usize) -> usize {
    mtu - DATAGRAM_OVERHEAD - BLOCK_HEAD
}

/// Returns the bytes of a part of a block that fits a datagram.
pub(crate) const fn part_capacity(mtu: usize) -> usize {
    mtu - DATAGRAM_OVERHEAD - PIECE_HEAD
}

/// Returns the number of blocks that a message may need, at most.
pub(crate) const fn blocks_of(len: usize, capacity: usize) -> usize {
    // Only the first and the last fragment are shorter than a block.
    len / (capacity - ORDER_LEN - FRAGMENT_HEAD) + 2
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
    /// Begins with datagrams of the length that every path carries.
    pub(crate) fn new(mtu_base: usize, send_buffer: usize) -> BlockQueue {
        BlockQueue {
            capacity: block_capacity(mtu_base),
            part_len: part_capacity(mtu_base),
            live_max: send_buffer,
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

    /// Forms blocks for datagrams of this length from now on.
    pub(crate) fn set_datagram(&mut self, mtu: usize) {
        self.capacity = block_capacity(mtu);
        if self.is_open()
            && let Some(block) = self.blocks.back_mut()
        {
            let grown = self.capacity.saturating_sub(block.capacity as usize);
            block.capacity += grown as u32;
            self.live += grown;
        }
    }

    /// Returns whether the last block has not been sent.
    #[inline]
    fn is_open(&self) -> bool {
        self.first + self.blocks.len() as u64 > self.next
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
        self.live + (1 + blocks_of(len, self.capacity)) * self.capacity <= self.live_max
    }

    /// Appends a message that `write` appends to the bytes that it gets. There must be room for
    /// `len_max` bytes; false, without effect, if the message is longer.
    #[inline]
    pub(crate) fn write(&mut self, stream: u16, len_max: usize, write: impl FnOnce(&mut Vec<u8>)) -> bool {
        if !self.is_open() {
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

    /// Moves a message that does not fit from the end of the last block to the next one, as
    /// [`BlockQueue::push`] would append it.
    #[inline(never)]
    fn move_to_next(&mut self, stream: u16, start: usize, len_max: usize) -> bool {
        let Some(Block { bytes, .. }) = self.blocks.back_mut() else { return false };
        let mut misfit = std::mem::take(&mut self.misfit);
        misfit.clear();
        misfit.extend_from_slice(&bytes[start + MESSAGE_HEAD..]);
        bytes.truncate(start);
        bytes.shrink_to(4 * self.capacity); // Blocks keep their buffers, messages may be long.
        let is_appended = misfit.len() <= len_max && self.push_to_next(stream, &misfit);
        if !is_appended && start == ORDER_LEN {
            let begun = self.blocks.pop_back();
            self.live -= begun.map_or(0, |block| block.capacity as usize);
        }
        self.misfit = misfit;
        is_appended
    }

    /// Appends a message to the last block; false if it has no room.
    #[inline]
    fn append(&mut self, stream: u16, message: &[u8]) -> bool {
        let is_open = self.is_open();
        let Some(block) = self.blocks.back_mut().filter(|_| is_open) else { return false };
        if block.bytes.len() + MESSAGE_HEAD + message.len() > self.capacity {
            return false;
        }
        push_message(&mut block.bytes, stream, next_number(&mut self.numbers, stream), message);
        block.cost += (message.len() as u64 + PART_COST) as u32;
        true
    }

    /// Appends a message that does not fit the last block to a new one, if there are blocks left.
    #[inline(never)]
    fn push_to_next(&mut self, stream: u16, message: &[u8]) -> bool {
        if self.live + blocks_of(message.len(), self.capacity) * self.capacity > self.live_max {
            return false;
        }
        // A message that fits a block is divided if an eighth of a block were left empty.
        let fits = ORDER_LEN + MESSAGE_HEAD + message.len() <= self.capacity;
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
            Some(block) if self.is_open() => self.capacity.saturating_sub(block.bytes.len()),
            _ => 0,
        }
    }

    fn push_fragments(&mut self, stream: u16, message: &[u8]) {
        let number = *self.numbers.at(stream);
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
        // Counted last: a block that begins within the message must not wait for its end.
        next_number(&mut self.numbers, stream);
    }

    fn begin_block(&mut self) {
        let mut bytes = self.spare.pop().unwrap_or_default();
        push_order(&mut bytes, *self.numbers.at(ORDERED));
        self.live += self.capacity;
        let capacity = self.capacity as u32;
        self.blocks.push_back(Block {
            bytes,
            cost: 0,
            capacity,
            is_acked: false,
            datagram: UNSENT,
            parts: None,
        });
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

    /// Returns what to send now: the oldest lost block or part, or a new block within the peer's
    /// grant. A block that does not fit a datagram is divided.
    #[inline]
    pub(crate) fn pending(&mut self) -> Option<Piece> {
        loop {
            while let Some(&piece) = self.lost.front() {
                if self.is_acked(piece) {
                    self.lost.pop_front();
                } else if piece.part == WHOLE && self.is_oversized(piece.block) {
                    self.lost.pop_front();
                    self.divide(piece.block);
                } else {
                    return Some(piece);
                }
            }
            let number = self.next_new()?;
            if !self.is_oversized(number) {
                return Some(Piece::whole(number));
            }
            self.begin(number);
            self.divide(number);
        }
    }

    #[inline]
    fn is_acked(&self, piece: Piece) -> bool {
        self.block(piece.block).is_none_or(|block| {
            let acked = block.parts.map_or(0, |parts| parts.acked);
            block.is_acked || piece.part != WHOLE && acked & piece.bit() != 0
        })
    }

    #[inline]
    fn is_oversized(&self, number: u64) -> bool {
        self.block(number).is_some_and(|block| block.bytes.len() > self.capacity)
    }

    /// Has the parts of a block sent next, unless it is divided already.
    fn divide(&mut self, number: u64) {
        let part_len = self.part_len;
        let Some(block) = self.block_mut(number).filter(|block| block.parts.is_none()) else { return };
        let count = block.bytes.len().div_ceil(part_len).min(BLOCK_PARTS_MAX);
        let queued = u64::MAX >> (BLOCK_PARTS_MAX - count);
        block.parts = Some(Parts { queued, ..Parts::default() });
        for part in (0..count).rev() {
            self.lost.push_front(Piece { block: number, part: part as u8 });
        }
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

    /// Returns the oldest block that was sent and is not acknowledged, or a part of it, for a
    /// probe.
    pub(crate) fn oldest_sent(&mut self) -> Option<Piece> {
        let number = (self.first < self.next).then_some(self.first)?;
        if !self.is_oversized(number) {
            return Some(Piece::whole(number));
        }
        match self.block(number)?.parts {
            Some(parts) => Some(Piece { block: number, part: parts.acked.trailing_ones() as u8 }),
            None => {
                self.divide(number);
                self.lost.front().copied()
            }
        }
    }

    /// Returns the bytes of a datagram that a piece takes.
    #[inline]
    pub(crate) fn len(&self, piece: Piece) -> usize {
        let len = self.block(piece.block).map_or(0, |block| block.bytes.len());
        match piece.part {
            WHOLE => BLOCK_HEAD + len,
            part => PIECE_HEAD + self.part_len.min(len.saturating_sub(usize::from(part) * self.part_len)),
        }
    }

    /// Appends the frame of a piece.
    #[inline]
    pub(crate) fn write_piece(&self, piece: Piece, out: &mut Vec<u8>) {
        let Some(block) = self.block(piece.block) else { return };
        if piece.part == WHOLE {
            return push_block(out, piece.block, &block.bytes);
        }
        let offset = usize::from(piece.part) * self.part_len;
        push_piece(out, piece.block, &block.bytes, offset, self.len(piece) - PIECE_HEAD);
    }

    /// Notes that a datagram carries the piece; returns whether it was sent before.
    #[inline]
    pub(crate) fn note_sent(&mut self, piece: Piece, datagram: u64) -> bool {
        if self.lost.front() == Some(&piece) {
            self.lost.pop_front();
        }
        let is_new = piece.block == self.next;
        let Some(block) = self.block_mut(piece.block) else { return true };
        if piece.part != WHOLE
            && let Some(parts) = &mut block.parts
        {
            let was_sent = block.datagram != UNSENT || parts.sent & piece.bit() != 0;
            parts.sent |= piece.bit();
            parts.queued &= !piece.bit();
            return was_sent;
        }
        block.datagram = datagram;
        if is_new {
            self.begin(piece.block);
        }
        !is_new
    }

    /// Notes that the next block is sent for the first time.
    #[inline]
    fn begin(&mut self, number: u64) {
        let cost = self.block(number).map_or(0, |block| block.cost.into());
        self.next += 1;
        self.credit.spend(cost);
    }

    /// Notes that the peer has the piece; returns whether that completes the block.
    #[inline]
    pub(crate) fn note_acked(&mut self, piece: Piece) -> bool {
        let part_len = self.part_len;
        let Some(block) = self.block_mut(piece.block) else { return false };
        if piece.part != WHOLE {
            let Some(parts) = &mut block.parts else { return false };
            parts.acked |= piece.bit();
            if (parts.acked.trailing_ones() as usize) < block.bytes.len().div_ceil(part_len) {
                return false;
            }
        }
        if std::mem::replace(&mut block.is_acked, true) {
            return false;
        }
        let (mut bytes, capacity) = (std::mem::take(&mut block.bytes), block.capacity as usize);
        if self.spare.len() < SPARE_MAX {
            bytes.clear();
            self.spare.push(bytes);
        }
        self.live -= capacity;
        while self.blocks.front().is_some_and(|block| block.is_acked) {
            self.blocks.pop_front();
            self.first += 1;
        }
        true
    }

    /// Notes that the datagram that carried the piece is lost. If a later one carries the block as
    /// well, that one decides; so do the parts of a block that has been divided since.
    pub(crate) fn note_lost(&mut self, piece: Piece, datagram: u64) {
        if self.is_acked(piece) {
            return;
        }
        let Some(block) = self.block_mut(piece.block) else { return };
        let must_send = match (&mut block.parts, piece.part) {
            (None, _) => block.datagram == datagram,
            (Some(_), WHOLE) => false,
            (Some(parts), _) => parts.queued & piece.bit() == 0,
        };
        if !must_send {
            return;
        }
        if piece.part != WHOLE
            && let Some(parts) = &mut block.parts
        {
            parts.queued |= piece.bit();
        } else {
            block.datagram = LOST;
        }
        self.lost.push_back(piece);
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
