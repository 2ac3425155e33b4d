//! Bytes that cannot be delivered yet.

use packet::Direction;

use super::TcpStreams;
use crate::streams::held::New;
use crate::streams::{Half, MemoryOf, doubt};

impl TcpStreams {
    /// Queues doubtful bytes. Without room, those that may count are taken as undoubted.
    #[cold]
    pub(super) fn hold_doubtful(&mut self, new: New<'_>, half: &mut Half) {
        self.current.counters.doubtful += 1;
        if self.early.insert(new, half, &mut self.current) {
            return;
        }
        if new.doubt == doubt::IGNORED {
            self.current.counters.doubtful_lost += 1;
            return;
        }
        self.early.trust(half, doubt::UNLIKELY);
        half.flags &= !(Half::RESET | Half::SUSPECT | Half::ENDED);
        self.hold_apart(New { doubt: doubt::NONE, ..new }, half);
    }

    /// Queues bytes that are not in the current packet, even if they are next. Without room, they
    /// are lost.
    #[cold]
    pub(super) fn hold_apart(&mut self, new: New<'_>, half: &mut Half) {
        while !self.early.insert(new, half, &mut self.current) {
            if !self.early.drop_doubtful(half, &mut self.current) {
                self.current.run_short(MemoryOf::Early, self.early.shortage());
                return;
            }
        }
    }

    /// Queues bytes that are not next, or that overlap others; they begin `in_payload` bytes into
    /// the packet's payload.
    pub(super) fn hold(&mut self, direction: Direction, new: New<'_>, in_payload: u32, half: &mut Half) {
        let end = new.offset + new.bytes.len() as u64;
        while !self.early.insert(new, half, &mut self.current) {
            if self.early.drop_doubtful(half, &mut self.current) {
                continue;
            }
            // Without room, the gap before them is announced, until they have room or are next.
            self.current.run_short(MemoryOf::Early, self.early.shortage());
            self.skip_hole(direction, new.offset, half);
            while half.is_open() && (new.offset..end).contains(&half.next) {
                let until = self.early.front(half).map_or(end, |block| end.min(block.offset));
                let start = in_payload + (half.next - new.offset) as u32;
                self.deliver_packet(direction, start, (until - half.next) as u32, half);
                self.deliver_held(direction, half);
            }
            if half.next >= end || !half.is_open() {
                return;
            }
        }
    }
}
