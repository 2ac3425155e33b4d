//! Delivery of bytes, gaps and ends to functions.

use std::cmp::Ordering;

use nf::stream::StreamPieceKind;
use packet::{Direction, DropReason};

use super::TcpStreams;
use crate::streams::held::New;
use crate::streams::span::Span;
use crate::streams::{Half, Segment, doubt};

impl TcpStreams {
    /// Receives bytes or a FIN of a stream that has begun.
    pub(super) fn receive(&mut self, segment: &Segment<'_>, doubt: u8, half: &mut Half) {
        let direction = segment.direction;
        let Some(distance) = half.distance(segment.first()) else {
            self.current.counters.out_of_window += 1;
            return self.current.keep_out(DropReason::StreamIgnored);
        };
        if half.has(Half::CUT) && half.distance(half.fin) <= Some(0) {
            half.flags ^= Half::CUT; // It has arrived there.
        }
        // Bytes before the stream's next one are retransmitted, or before its beginning.
        let before = (-distance).max(0) as u64;
        let start = if distance < 0 { half.next } else { half.next + distance as u64 };
        let skip = before.min(segment.payload.len() as u64);
        self.current.counters.bytes_retransmitted += skip;
        let bytes = &segment.payload[skip as usize..];
        let fin = segment.first().wrapping_add(segment.len);
        // Hosts ignore a FIN before bytes that were received, a second one, and that of a SYN.
        let ends = segment.has(Segment::FIN)
            && !segment.has(Segment::SYN)
            && half.distance(fin) >= Some(i64::from(half.has(Half::ENDED)));
        if !ends && segment.payload.len() < segment.len as usize {
            half.cut(fin);
        }
        let end = start + bytes.len() as u64;
        let follows = self.early.front(half).is_none_or(|block| end <= block.offset);
        let span = if doubt > doubt::NONE && start == half.next {
            Span::AT_ONCE
        } else {
            let until = half.offset(fin) + u64::from(ends);
            Span { from: start.saturating_sub(before), until }
        };
        let new = New { offset: start, bytes, span, doubt, fin: false };
        let is_plain = doubt == doubt::NONE && !segment.apart;
        if half.held != 0 && self.early.misses(start, half, &mut self.current) {
            return;
        }
        if is_plain && start == half.next && follows && !half.has(Half::URGENT) {
            self.deliver_packet(direction, skip as u32, bytes.len() as u32, half);
        } else if doubt > doubt::NONE {
            self.hold_doubtful(new, half);
        } else if self.current.refuses_when_full()
            && !self.early.can_hold(&new, ends, half, &mut self.current)
        {
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
                self.current.counters.gave_up += u64::from(!self.early.insert(fin, half, &mut self.current));
            }
        }
        self.deliver_held(direction, half);
        self.skip_acknowledged(direction, half);
    }

    /// Announces a gap up to the first queued bytes, at most up to `until`, and delivers what
    /// follows.
    pub(super) fn skip_hole(&mut self, direction: Direction, until: u64, half: &mut Half) {
        let hole = self.early.front(half).map_or(until, |block| until.min(block.offset));
        if hole > half.next {
            let len = hole - half.next;
            self.pieces.add(direction, half.next, StreamPieceKind::Gap { len });
            self.current.counters.gaps += 1;
            self.current.counters.bytes_missing += len;
            half.next = hole;
        }
        self.deliver_held(direction, half);
    }

    /// Delivers bytes of the current packet.
    pub(super) fn deliver_packet(&mut self, direction: Direction, start: u32, len: u32, half: &mut Half) {
        if len > 0 {
            self.pieces.add(direction, half.next, StreamPieceKind::InPacket { start, len });
            self.current.counters.bytes += u64::from(len);
            half.next += u64::from(len);
            half.flags &= !Half::HUSHED;
        }
    }

    /// Delivers queued bytes that are next, and the stream's end if that is next.
    pub(super) fn deliver_held(&mut self, direction: Direction, half: &mut Half) {
        while half.is_open()
            && let Some(&block) = self.early.front(half)
            && block.offset <= half.next
        {
            if block.doubt > doubt::NONE {
                let until = half.acknowledged();
                if until <= half.next && block.end() > half.next {
                    break;
                }
                if block.fin && until != half.next + 1 && block.end() > half.next {
                    // There are bytes in its place.
                    self.early.pop(half, self.current.owner());
                    continue;
                }
                self.early.part_front(until.max(half.next), half, self.current.owner());
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
                    Ordering::Greater => self.early.part_front(urgent, half, self.current.owner()),
                }
            }
            let Some((number, block)) = self.early.pop_kept(half, self.current.owner()) else { break };
            if block.fin {
                self.early.free(number);
                if block.offset == half.next {
                    self.finish(direction, half);
                }
                continue;
            }
            self.pieces.keep_block(number);
            let skip = half.next - block.offset;
            if let Some(len @ 1..) = block.end().checked_sub(half.next) {
                let start = self.early.place(number) + skip as usize;
                self.pieces.add(direction, half.next, StreamPieceKind::Buffered { start, len: len as u32 });
                self.current.counters.bytes += len;
                half.next += len;
                half.flags &= !Half::HUSHED;
            }
        }
    }

    /// Takes the next byte, which is urgent and at the front of the queue, out of the stream: the
    /// host reads it elsewhere.
    #[cold]
    fn take_out(&mut self, half: &mut Half) {
        self.early.take_out(half.next, half, self.current.owner());
        half.base = half.base.wrapping_add(1);
        half.taken += 1;
        half.flags &= !Half::URGENT;
        self.current.counters.urgent += 1;
    }

    /// Ends the stream. Hosts discard what is queued after its end; if they did not accept the end,
    /// these bytes count.
    pub(super) fn finish(&mut self, direction: Direction, half: &mut Half) {
        self.pieces.add(direction, half.next, StreamPieceKind::Finished);
        self.early.suspect(half, doubt::UNSURE);
        half.flags |= Half::ENDED;
    }

    /// Removes all queued and unacknowledged bytes of a stream.
    pub(super) fn release(&mut self, half: &mut Half) {
        self.early.release(half);
        self.sent.release(half);
    }
}
