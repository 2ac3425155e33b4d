//! The fast path of reassembly: the next segment in order of a connection that is in no doubt,
//! while nothing waits.
//!
//! Most segments are of this kind, and the general path would change nothing (Van Jacobson's header
//! prediction).

use packet::Direction;

use super::TcpStreams;
use crate::streams::{Half, Segment, Streams, WINDOW_MAX};

/// Segment flags that need the general path.
const ASKS: u8 = Segment::FIN | Segment::SYN | Segment::RST | Segment::URG;

/// Stream flags that need the general path.
const UNSETTLED: u32 = Half::ENDED
    | Half::RESET
    | Half::SUSPECT
    | Half::ACKNOWLEDGED
    | Half::CLAIMED
    | Half::URGENT
    | Half::ATTEMPT
    | Half::CUT
    | Half::SIGNED;

impl Half {
    /// Returns true if the stream has begun and nothing about it is in doubt.
    #[inline(always)]
    fn is_settled(&self) -> bool {
        self.flags & (Half::BEGUN | UNSETTLED) == Half::BEGUN
    }
}

impl TcpStreams {
    /// Takes the segment if it is the expected one, with the result of the general path. Returns
    /// false, and changes nothing, if it is another.
    #[inline(always)]
    pub(super) fn take_expected(&mut self, segment: &Segment<'_>, streams: &mut Streams) -> bool {
        let [original, reply] = &mut streams.halves;
        let (half, other) = match segment.direction {
            Direction::Original => (original, reply),
            Direction::Reply => (reply, original),
        };
        let is_usual = segment.flags & (ASKS | Segment::ACK) == Segment::ACK
            && !(segment.ignored | segment.apart | segment.options.signed | segment.options.authenticated)
            && segment.intact != Some(false)
            && segment.payload.len() == segment.len as usize;
        let is_settled = half.is_settled() && other.is_settled() && half.held == 0;
        let next = half.next_sequence();
        if !is_usual || !is_settled || segment.sequence != next || self.current.options().inline {
            return false;
        }
        // It acknowledges only what was sent.
        let behind = other.next_sequence().wrapping_sub(segment.acknowledgment).cast_signed();
        let is_opened = half.flags & other.flags & Half::OPENED != 0;
        let most =
            if other.has(Half::OPENED) { other.next.min(WINDOW_MAX as u64) } else { WINDOW_MAX as u64 };
        if behind < 0 || u64::from(behind.unsigned_abs()) > most {
            return false;
        }
        // It fits into the receiver's window.
        let room = half.edge.wrapping_sub(next).cast_signed();
        if half.has(Half::OFFERED) && i64::from(room) < i64::from(segment.len) {
            return false;
        }
        if let Some(timestamp) = segment.options.timestamp
            && half.has(Half::STAMPED)
        {
            if half.is_old(timestamp) {
                return false;
            }
            half.timestamp = timestamp;
        }
        if segment.acknowledgment.wrapping_sub(other.has).cast_signed() > 0 {
            other.has = segment.acknowledgment;
        }
        if behind == 0 || other.has(Half::OPENED) {
            other.flags |= Half::ANSWERED;
        }
        if is_opened {
            other.offer(segment, half.scale, half.flags & other.flags & Half::SCALED != 0);
        }
        self.deliver_packet(segment.direction, 0, segment.len, half);
        true
    }
}
