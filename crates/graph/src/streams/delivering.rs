//! Bytes, gaps and ends, as functions are given them.

use std::cmp::Ordering;

use nf::stream::{StreamPiece, StreamPieceKind};
use packet::{Direction, DropReason};

use super::held::{Block, New};
use super::span::Span;
use super::{Half, Reassembler, Segment, doubt};

impl Reassembler {
    /// Bytes, or a FIN, of a stream that has begun.
    pub(super) fn receive(&mut self, segment: &Segment<'_>, doubt: u8, half: &mut Half) {
        let direction = segment.direction;
        let Some(distance) = half.distance(segment.first()) else {
            self.counters.out_of_window += 1;
            return self.keep_out(DropReason::StreamIgnored);
        };
        if half.has(Half::CUT) && half.distance(half.fin) <= Some(0) {
            half.flags ^= Half::CUT; // We are there.
        }
        // Of what begins before the stream does, the part before it is of no use.
        let before = (-distance).max(0) as u64;
        let start = if distance < 0 { half.next } else { half.next + distance as u64 };
        let skip = before.min(segment.payload.len() as u64);
        self.counters.bytes_retransmitted += skip;
        let bytes = &segment.payload[skip as usize..];
        let fin = segment.first().wrapping_add(segment.len);
        // A FIN that stands before what was received already is not heeded; nor is one twice, or
        // one of a SYN.
        let ends = segment.has(Segment::FIN)
            && !segment.has(Segment::SYN)
            && half.distance(fin) >= Some(i64::from(half.has(Half::ENDED)));
        if !ends && segment.payload.len() < segment.len as usize {
            half.cut(fin);
        }
        let end = start + bytes.len() as u64;
        let follows = self.held.front(self.held.head(half.held)).is_none_or(|block| end <= block.offset);
        let span = if doubt > doubt::NONE && start == half.next {
            Span::AT_ONCE
        } else {
            let until = half.offset(fin) + u64::from(ends);
            Span { from: start.saturating_sub(before), until }
        };
        let new = New { offset: start, bytes, span, doubt, fin: false };
        let is_plain = doubt == doubt::NONE && !segment.apart;
        if half.held != 0 && self.misses(start, half) {
            return;
        }
        if is_plain && start == half.next && follows && !half.has(Half::URGENT) {
            self.deliver_packet(direction, skip as u32, bytes.len() as u32, half);
        } else if doubt > doubt::NONE {
            self.hold_doubtful(new, half);
        } else if self.refuses_when_full() && !self.can_hold(&new, ends, half) {
            return;
        } else if segment.apart {
            self.hold_apart(new, half);
        } else {
            self.hold(direction, new, skip as u32, half);
        }
        if ends {
            let offset = half.offset(fin);
            if is_plain && offset == half.next {
                self.finish(direction, half);
            } else {
                let fin = New { offset, bytes: &[0], span, doubt, fin: true };
                self.counters.gave_up += u64::from(!self.insert(fin, half));
            }
        }
        self.deliver_held(direction, half);
        self.skip_acknowledged(direction, half);
    }

    /// Gives up what is missing up to the bytes that wait, at most up to `until`; delivers what
    /// then is next.
    pub(super) fn skip_hole(&mut self, direction: Direction, until: u64, half: &mut Half) {
        let hole = self.held.front(self.held.head(half.held)).map_or(until, |block| until.min(block.offset));
        if hole > half.next {
            let len = hole - half.next;
            self.note(direction, half.next, StreamPieceKind::Gap { len });
            self.counters.gaps += 1;
            self.counters.bytes_missing += len;
            half.next = hole;
        }
        self.deliver_held(direction, half);
    }

    /// Bytes of the packet at hand are next.
    pub(super) fn deliver_packet(&mut self, direction: Direction, start: u32, len: u32, half: &mut Half) {
        if len > 0 {
            self.note(direction, half.next, StreamPieceKind::InPacket { start, len });
            self.counters.bytes += u64::from(len);
            half.next += u64::from(len);
            half.flags &= !Half::HUSHED;
        }
    }

    /// Delivers what waits and now is next, and the stream's end if that is next.
    pub(super) fn deliver_held(&mut self, direction: Direction, half: &mut Half) {
        while half.is_open()
            && let Some(&block) = self.held.front(self.held.head(half.held))
            && block.offset <= half.next
        {
            if block.doubt > doubt::NONE {
                let until = half.acknowledged();
                if until <= half.next && block.end() > half.next {
                    break;
                }
                if block.fin && until != half.next + 1 && block.end() > half.next {
                    // Bytes stand in its place.
                    self.pop(half);
                    continue;
                }
                self.part_front(until.max(half.next), half);
            }
            if half.has(Half::URGENT) && block.end() > half.next && !block.fin {
                let urgent = half.offset(half.urgent);
                match urgent.cmp(&half.next) {
                    // It was in a gap.
                    Ordering::Less => half.flags &= !Half::URGENT,
                    Ordering::Equal => {
                        self.take_out(half);
                        continue;
                    }
                    Ordering::Greater => self.part_front(urgent, half),
                }
            }
            let Some((number, block)) = self.pop_kept(half) else { break };
            if block.fin {
                self.held.release(number);
                if block.offset == half.next {
                    self.finish(direction, half);
                }
                continue;
            }
            self.delivered.push(number);
            let skip = half.next - block.offset;
            if let Some(len @ 1..) = block.end().checked_sub(half.next) {
                let start = self.held.place(number) + skip as usize;
                self.note(direction, half.next, StreamPieceKind::Buffered { start, len: len as u32 });
                self.counters.bytes += len;
                half.next += len;
                half.flags &= !Half::HUSHED;
            }
        }
    }

    /// Takes the block at the front off the list; its bytes are still needed.
    pub(super) fn pop_kept(&mut self, half: &mut Half) -> Option<(u32, Block)> {
        let mut list = self.held.open(half.held, self.owner);
        let popped = self.held.pop(&mut list);
        half.held = self.held.close(list);
        let (number, block) = popped?;
        half.held_bytes -= block.len;
        Some((number, block))
    }

    /// Parts the block at the front, if it goes on behind this offset within it.
    pub(super) fn part_front(&mut self, at: u64, half: &mut Half) {
        let list = self.held.open(half.held, self.owner);
        half.held_bytes -= self.held.part_front(list, at);
        half.held = self.held.close(list);
    }

    /// Takes the block at the front off the list, and forgets it.
    pub(super) fn pop(&mut self, half: &mut Half) {
        if let Some((number, _)) = self.pop_kept(half) {
            self.held.release(number);
        }
    }

    /// The next byte, which is at the front of what waits, is urgent: the host reads it beside the
    /// stream.
    #[cold]
    pub(super) fn take_out(&mut self, half: &mut Half) {
        let before = self.held.front(self.held.head(half.held)).map_or(0, |block| block.len);
        let is_empty = self.held.take_out(self.held.head(half.held), half.next);
        let after = self.held.front(self.held.head(half.held)).map_or(0, |block| block.len);
        half.held_bytes -= before - after;
        half.base = half.base.wrapping_add(1);
        half.taken += 1;
        half.flags &= !Half::URGENT;
        self.counters.urgent += 1;
        if is_empty {
            self.pop(half);
        }
    }

    /// The stream's end is next. Hosts forget what waits behind it; should they not have taken it,
    /// that counts.
    pub(super) fn finish(&mut self, direction: Direction, half: &mut Half) {
        self.note(direction, half.next, StreamPieceKind::Finished);
        self.held.suspect(self.held.head(half.held), doubt::UNSURE);
        half.flags |= Half::ENDED;
    }

    /// Gives back what waits.
    pub(super) fn release(&mut self, half: &mut Half) {
        self.held.forget(half.held);
        (half.held, half.held_bytes) = (0, 0);
        self.release_sent(half);
    }

    pub(super) fn note(&mut self, direction: Direction, offset: u64, what: StreamPieceKind) {
        self.pieces.push(StreamPiece { direction, offset, what });
    }
}
