//! The receiver's progress in a stream, from its acknowledgements.

use packet::Direction;

use super::TcpStreams;
use crate::streams::held::Block;
use crate::streams::{Half, doubt};

impl TcpStreams {
    /// Trusts all bytes of a stream: its acknowledgements may not be visible here.
    #[cold]
    pub(super) fn trust(&mut self, direction: Direction, half: &mut Half) {
        if half.is_open() {
            self.early.trust(half, doubt::IGNORED);
            self.deliver_held(direction, half);
            self.skip_acknowledged(direction, half);
        }
    }

    /// Returns true if the stream's sender has sent everything before this sequence number.
    pub(super) fn has_sent(&mut self, half: &Half, sequence: u32) -> bool {
        if !half.has(Half::BEGUN) {
            return true; // It is unknown.
        }
        match half.distance(sequence) {
            Some(distance @ ..=0) => !half.has(Half::OPENED) || half.next >= distance.unsigned_abs(),
            Some(_) => half.offset(sequence) <= self.end_of_sent(half),
            None => {
                self.current.counters.out_of_window += 1;
                false
            }
        }
    }

    /// Returns the end of the sender's bytes that were seen; a FIN counts as one byte.
    #[cold]
    fn end_of_sent(&self, half: &Half) -> u64 {
        let next = half.next + u64::from(half.has(Half::ENDED));
        let lost_until = self.early.lost_until(half);
        let bytes = self.early.end(half).unwrap_or(0).max(next).max(lost_until);
        if half.has(Half::CUT) { bytes.max(half.offset(half.fin)) } else { bytes }
    }

    /// The receiver has everything before this sequence number. Missing bytes before queued ones
    /// will never arrive. While none are queued they may: a capture may have the acknowledgement
    /// before the bytes.
    pub(super) fn acknowledge(&mut self, direction: Direction, sequence: u32, half: &mut Half) {
        if !half.has(Half::BEGUN) {
            return;
        }
        self.sent.forget(sequence, half, self.current.owner());
        let Some(distance) = half.distance(sequence) else { return };
        // Bytes of the SYN may be missing.
        if distance >= 0 || half.has(Half::OPENED) {
            half.flags |= Half::ANSWERED;
        }
        // It acknowledges no more than the end.
        if distance <= i64::from(half.has(Half::ENDED)) {
            return;
        }
        half.flags &= !(Half::ENDED | Half::RESET | Half::SUSPECT);
        if half.offset(half.acknowledged) < half.offset(sequence) || !half.has(Half::ACKNOWLEDGED) {
            half.acknowledged = sequence;
            half.flags |= Half::ACKNOWLEDGED;
        }
        self.skip_acknowledged(direction, half);
        if half.is_open() {
            self.deliver_held(direction, half);
        }
    }

    /// Announces gaps that the receiver has acknowledged, before queued bytes.
    pub(super) fn skip_acknowledged(&mut self, direction: Direction, half: &mut Half) {
        if !half.has(Half::ACKNOWLEDGED) {
            return;
        }
        let until = half.acknowledged();
        let is_behind = |block: &Block| block.offset < until || block.offset == until && block.doubt == 0;
        while self.early.front(half).is_some_and(is_behind) && half.is_open() {
            self.skip_hole(direction, until, half);
        }
        if half.next >= until {
            half.flags &= !Half::ACKNOWLEDGED;
        }
    }
}
