//! The receiver's progress in a stream, from its acknowledgements.

use packet::Direction;

use super::held::Block;
use super::{Half, Reassembler, Segment, Streams, doubt};

impl Reassembler {
    /// Bytes or an end come that nobody doubts; whether they are the first that are said to a side
    /// that was not seen.
    pub(super) fn go_on(segment: &Segment<'_>, streams: &mut Streams) -> bool {
        let from = segment.direction.index();
        if !streams.halves[from].has(Half::BEGUN) {
            streams.halves[from].begin(segment.sequence, segment.intact); // The connection's opening was not seen.
            streams.halves[from].agree(segment);
        }
        let other = &mut streams.halves[1 - from];
        let is_first_said = !other.has(Half::BEGUN | Half::CLAIMED);
        if is_first_said {
            // The other side is not seen, or has not answered yet: then it will tell that this was
            // sent in vain.
            other.base = segment.acknowledgment;
            other.flags |= Half::CLAIMED;
        }
        is_first_said
    }

    /// Nobody may be seen to acknowledge what its sender has sent: none of it is doubtful any more.
    #[cold]
    pub(super) fn trust(&mut self, direction: Direction, half: &mut Half) {
        if half.is_open() {
            self.held.trust(self.held.head(half.held), doubt::IGNORED);
            self.deliver_held(direction, half);
            self.skip_acknowledged(direction, half);
        }
    }

    /// Returns true if the sender of this half has sent what comes before this number.
    pub(super) fn has_sent(&mut self, half: &Half, sequence: u32) -> bool {
        if !half.has(Half::BEGUN) {
            return true; // Who knows.
        }
        match half.distance(sequence) {
            Some(distance @ ..=0) => !half.has(Half::OPENED) || half.next >= distance.unsigned_abs(),
            Some(_) => half.offset(sequence) <= self.sent(half),
            None => {
                self.counters.out_of_window += 1;
                false
            }
        }
    }

    /// Returns the end of the sender's bytes, as far as they were seen; a FIN counts as one byte.
    #[cold]
    pub(super) fn sent(&self, half: &Half) -> u64 {
        let next = half.next + u64::from(half.has(Half::ENDED));
        let lost_until = self.held.lists().lost_until(half.held);
        let bytes = self.held.end(self.held.head(half.held)).unwrap_or(0).max(next).max(lost_until);
        if half.has(Half::CUT) { bytes.max(half.offset(half.fin)) } else { bytes }
    }

    /// The receiver has everything up to here. What of it we have not seen when bytes behind it
    /// wait, we never shall; as long as none wait, it may still come: a capture may have the
    /// acknowledgement before the bytes.
    pub(super) fn acknowledge(&mut self, direction: Direction, sequence: u32, half: &mut Half) {
        if !half.has(Half::BEGUN) {
            return;
        }
        self.forget_sent(sequence, half);
        let Some(distance) = half.distance(sequence) else { return };
        // It may lack bytes that came with the SYN.
        if distance >= 0 || half.has(Half::OPENED) {
            half.flags |= Half::ANSWERED;
        }
        // If it is no more than the end, it is that.
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

    /// Gives up what the receiver has and we have not, as far as bytes wait behind it.
    pub(super) fn skip_acknowledged(&mut self, direction: Direction, half: &mut Half) {
        if !half.has(Half::ACKNOWLEDGED) {
            return;
        }
        let until = half.acknowledged();
        let is_behind = |block: &Block| block.offset < until || block.offset == until && block.doubt == 0;
        while self.held.front(self.held.head(half.held)).is_some_and(is_behind) && half.is_open() {
            self.skip_hole(direction, until, half);
        }
        if half.next >= until {
            half.flags &= !Half::ACKNOWLEDGED;
        }
    }
}
