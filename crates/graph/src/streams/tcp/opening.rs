//! Opening and resetting connections: which SYNs hosts heed, which of several attempts to open
//! they take, and which resets.

use nf::stream::StreamPieceKind;
use packet::DropReason;

use super::TcpStreams;
use crate::streams::{Half, Segment, Streams};

impl TcpStreams {
    /// Begins a stream with a SYN. Returns false if hosts ignore the SYN.
    pub(super) fn open(&mut self, segment: &Segment<'_>, streams: &mut Streams) -> bool {
        let from = segment.direction.index();
        let first = segment.sequence.wrapping_add(1);
        let [original, reply] = streams.halves;
        let half = streams.halves[from];
        if !half.has(Half::BEGUN) {
            streams.halves[from].open(segment);
            let in_vain = half.has(Half::CLAIMED) && half.base != first;
            self.choose(segment, in_vain, streams);
            return true;
        }
        if half.has(Half::DAMAGED) && segment.intact == Some(true) {
            // Hosts send none like those before.
            self.restart(segment, streams);
            return true;
        }
        let other = &streams.halves[1 - from];
        // Any of its SYNs may be answered. If one were remembered, another could hide the one that
        // a host took.
        let is_of_another = |number| number != other.base || half.base != first;
        if other.has(Half::ATTEMPT) && segment.acknowledged().is_some_and(is_of_another) {
            self.restart(segment, streams);
            return true;
        }
        let over = original.has(Half::ENDED | Half::RESET) || reply.has(Half::ENDED | Half::RESET);
        if half.base == first && !(over && half.next > 0) {
            self.choose(segment, false, streams);
            return true; // The same one again.
        }
        // Nobody answered yet, so it is another attempt; or the connection has ended, and the ports
        // are used again (RFC 9293 3.6.1). To any other one, hosts answer by what they have, and go
        // on (RFC 5961 4.2); of two answers to one SYN, the first counts.
        let is_closed = original.has(Half::ENDED) && reply.has(Half::ENDED);
        if over && !is_closed && other.has(Half::BEGUN) {
            // A reset may be forged, the other half continues after one end, and this SYN may be
            // forged, too: another connection begins once it is answered.
            if segment.has(Segment::ACK) {
                self.current.counters.refused += 1;
            } else {
                streams.halves[from].flags |= Half::ATTEMPT;
            }
            return false;
        }
        let is_second = other.has(Half::ANSWERED) && segment.acknowledged() == Some(other.base);
        let is_attempt = self.is_empty(&half) && !half.has(Half::ANSWERED) && !is_second;
        if !over && !is_attempt {
            self.current.counters.refused += 1;
            self.suspect(from, streams);
            return false;
        }
        if over {
            self.restart(segment, streams);
        } else {
            self.release(&mut streams.halves[from]);
            streams.halves[from].open(segment);
            self.choose(segment, false, streams);
        }
        true
    }

    /// Of several attempts to open, a SYN/ACK shows which one its sender took, until it is
    /// acknowledged itself. Bytes that came before it were sent `in_vain` if they acknowledge
    /// another one; so were those of attempts that were not taken.
    fn choose(&mut self, segment: &Segment<'_>, in_vain: bool, streams: &mut Streams) {
        let from = segment.direction.index();
        let (half, mut other) = (streams.halves[from], streams.halves[1 - from]);
        let Some(acknowledged) = segment.acknowledged() else { return };
        if half.has(Half::ANSWERED) || !other.has(Half::BEGUN) || other.base == acknowledged && !in_vain {
            return;
        }
        if !self.is_empty(&other) {
            if in_vain || !self.has_sent(&other, acknowledged) {
                self.restart(segment, streams);
            }
        } else if !self.has_sent(&other, acknowledged) {
            self.release(&mut other);
            other.begin(acknowledged, None);
            streams.halves[1 - from] = other;
        }
    }

    /// All bytes so far belong to no connection, or to one that has ended: another one begins with
    /// this SYN.
    fn restart(&mut self, segment: &Segment<'_>, streams: &mut Streams) {
        let from = segment.direction.index();
        self.forget(streams);
        let other = std::mem::take(&mut streams.halves[1 - from]);
        streams.halves[from] = Half::default();
        streams.halves[from].open(segment);
        match segment.acknowledged() {
            Some(acknowledged) => {
                if other.has(Half::BEGUN) {
                    streams.halves[1 - from] = other;
                    streams.halves[1 - from].begin(acknowledged, None);
                }
                self.pieces.add(segment.direction.other(), 0, StreamPieceKind::Restart);
            }
            None => self.pieces.add(segment.direction, 0, StreamPieceKind::Restart),
        }
    }

    /// A reset, if it is where a host would heed it: exactly at the next byte, or after all that
    /// waits (RFC 5961 3.2, and Linux), or in answer to a SYN, which it acknowledges (RFC 9293
    /// 3.10.7.3). Whatever it is, from then on bytes count once they are acknowledged.
    pub(super) fn reset(&mut self, segment: &Segment<'_>, streams: &mut Streams) {
        let from = segment.direction.index();
        let (half, other) = (&streams.halves[from], &streams.halves[1 - from]);
        let heeded = if half.has(Half::BEGUN) {
            let after = self.early.end(half).map(|end| end - half.next);
            half.distance(segment.sequence)
                .is_some_and(|distance| distance == 0 || distance > 0 && after == Some(distance as u64))
        } else {
            !other.has(Half::BEGUN)
                || segment.acknowledged().is_some_and(|sequence| other.distance(sequence) == Some(0))
        };
        if !heeded {
            self.current.counters.refused += 1;
            self.suspect(from, streams);
            return;
        }
        for direction in [segment.direction, segment.direction.other()] {
            let half = &mut streams.halves[direction.index()];
            if !half.has(Half::ENDED | Half::HUSHED) {
                self.pieces.add(direction, half.next, StreamPieceKind::Reset);
            }
            half.flags |= Half::RESET | Half::HUSHED;
        }
    }

    /// A SYN or a reset was refused. Before its sender has sent anything else, such a one may end a
    /// connection that is not established yet: then bytes count once they are acknowledged.
    fn suspect(&mut self, from: usize, streams: &mut Streams) {
        if self.is_empty(&streams.halves[from]) {
            if self.current.options().inline {
                return self.current.keep_out(DropReason::StreamIgnored);
            }
            for half in &mut streams.halves {
                half.flags |= Half::SUSPECT;
            }
        }
    }

    /// Returns true if nothing of it came yet, but for what is doubtful.
    fn is_empty(&self, half: &Half) -> bool {
        let has_come = Half::ENDED | Half::ACKNOWLEDGED;
        half.next == 0 && !half.has(has_come) && self.early.list(half).all(|block| block.doubt > 0)
    }
}
