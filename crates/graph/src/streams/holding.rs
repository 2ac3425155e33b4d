//! Bytes that cannot be delivered yet.

use nf::MemoryShortage;
use packet::Direction;

use super::held::{BLOCK_LEN, New};
use super::{Half, MemoryOf, Reassembler, doubt};

/// The most out-of-order blocks of a stream, unless its memory is for more.
const BLOCKS_MAX: usize = 1024;
/// Mean length of out-of-order segments below which their number is the limit, not their bytes.
const SEGMENT_LEN_MEAN: usize = BLOCK_LEN / 4;

impl Reassembler {
    /// Keeps bytes that are doubtful; without room, those that may count are taken as they are.
    #[cold]
    pub(super) fn hold_doubtful(&mut self, new: New<'_>, half: &mut Half) {
        self.counters.doubtful += 1;
        if self.insert(new, half) {
            return;
        }
        if new.doubt == doubt::IGNORED {
            self.counters.doubtful_lost += 1;
            return;
        }
        self.held.trust(self.held.head(half.held), doubt::UNLIKELY);
        half.flags &= !(Half::RESET | Half::SUSPECT | Half::ENDED);
        self.hold_apart(New { doubt: doubt::NONE, ..new }, half);
    }

    /// Keeps bytes that do not stand in the packet at hand, even if they are next. Without room,
    /// they are lost.
    #[cold]
    pub(super) fn hold_apart(&mut self, new: New<'_>, half: &mut Half) {
        while !self.insert(new, half) {
            if !self.drop_doubtful(half) {
                self.run_short(MemoryOf::Early, self.held.shortage());
                return;
            }
        }
    }

    /// Keeps bytes that are not next, or that others overlap; they stand `in_payload` bytes into
    /// the packet's payload.
    pub(super) fn hold(&mut self, direction: Direction, new: New<'_>, in_payload: u32, half: &mut Half) {
        let end = new.offset + new.bytes.len() as u64;
        while !self.insert(new, half) {
            if self.drop_doubtful(half) {
                continue;
            }
            // Without room to wait, what is missing is given up, until these bytes have room, or
            // are next.
            self.run_short(MemoryOf::Early, self.held.shortage());
            self.skip_hole(direction, new.offset, half);
            while half.is_open() && (new.offset..end).contains(&half.next) {
                let until =
                    self.held.front(self.held.head(half.held)).map_or(end, |block| end.min(block.offset));
                let start = in_payload + (half.next - new.offset) as u32;
                self.deliver_packet(direction, start, (until - half.next) as u32, half);
                self.deliver_held(direction, half);
            }
            if half.next >= end || !half.is_open() {
                return;
            }
        }
    }

    /// Gives up what is most doubtful; whether anything was.
    pub(super) fn drop_doubtful(&mut self, half: &mut Half) -> bool {
        for doubt in [doubt::IGNORED, doubt::UNLIKELY, doubt::UNSURE] {
            let mut list = self.held.open(half.held, self.owner);
            let bytes = self.held.release_doubtful(&mut list, doubt);
            half.held = self.held.close(list);
            half.held_bytes -= bytes;
            if bytes > 0 {
                self.counters.doubtful_lost += 1;
                return true;
            }
        }
        false
    }

    /// Returns how many more out-of-order bytes a stream may hold.
    pub(super) fn room(&self, half: &Half) -> usize {
        // Each segment walks the list.
        if self.held.lists().blocks(half.held) >= self.blocks_max() {
            return 0;
        }
        self.options.memory_per_stream.saturating_sub(half.held_bytes) as usize
    }

    /// Returns how many out-of-order blocks a stream may hold.
    pub(super) fn blocks_max(&self) -> usize {
        (self.options.memory_per_stream as usize / SEGMENT_LEN_MEAN).max(BLOCKS_MAX)
    }

    /// Adds bytes to those that wait; false if there was no room for all of them.
    pub(super) fn insert(&mut self, new: New<'_>, half: &mut Half) -> bool {
        if half.held != 0 {
            // The other direction of the same flow may have needed a block.
            self.look_for_loss(half);
        }
        if new.bytes.len() > self.room(half) {
            self.held.lists_mut().shortage = MemoryShortage::Share;
            return false;
        }
        let mut list = self.held.open(half.held, self.owner);
        let inserted = self.held.insert(&mut list, new, self.options.policy);
        half.held = self.held.close(list);
        half.held_bytes += inserted.added;
        self.counters.bytes_out_of_order += u64::from(inserted.added);
        self.counters.differing += u64::from(inserted.differ);
        inserted.whole
    }
}
