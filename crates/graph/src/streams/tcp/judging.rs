//! The doubt about a segment, and the options that its receiver takes from it.

use super::TcpStreams;
use crate::streams::{Half, Segment, Streams, Urgent, doubt};

impl TcpStreams {
    /// Returns the doubt that the receiver takes a segment, apart from its checksum and what it
    /// acknowledges.
    pub(super) fn doubt(&mut self, segment: &Segment<'_>, streams: &Streams) -> u8 {
        let from = segment.direction.index();
        let (half, other) = (&streams.halves[from], &streams.halves[1 - from]);
        let options = &segment.options;
        let is_syn = segment.has(Segment::SYN);
        if segment.ignored {
            return doubt::IGNORED;
        }
        // Until its SYN is answered, a host takes nothing but a SYN or a reset (RFC 9293 3.10.7.3).
        let has_only_asked = other.has(Half::OPENED) && !other.has(Half::OVER_SYN | Half::ANSWERED);
        if has_only_asked
            && !half.has(Half::BEGUN | Half::CLAIMED)
            && !segment.has(Segment::SYN | Segment::RST)
        {
            self.current.counters.refused += 1;
            return doubt::IGNORED;
        }
        // Signatures are agreed on if both SYNs had one.
        let agreed = half.has(Half::SIGNED) && other.has(Half::SIGNED);
        if !is_syn
            && other.has(Half::OPENED)
            && if options.signed { !other.has(Half::SIGNED) } else { agreed }
        {
            self.current.counters.ignored += 1;
            return doubt::IGNORED;
        }
        let is_stamped = half.has(Half::STAMPED) && other.has(Half::STAMPED);
        if let Some(timestamp) = options.timestamp
            && is_stamped
            && !segment.has(Segment::RST | Segment::SYN)
            && half.is_old(timestamp)
        {
            self.current.counters.old += 1;
            return doubt::IGNORED;
        }
        // Most hosts drop the bytes of a SYN (RFC 7413). In line they count at once anyway,
        // because a host may take them from this very packet: should it ask for them again, they
        // must be the same.
        let is_early = is_syn && !self.current.options().inline;
        // Some drop what is authenticated without their asking.
        if is_early || options.authenticated && !segment.has(Segment::RST) && !other.has(Half::SIGNED) {
            return doubt::UNLIKELY;
        }
        if segment.has(Segment::RST) {
            return doubt::NONE;
        }
        if half.has(Half::OFFERED)
            && let Some(distance) = half.distance(half.edge)
            && let Some(first) = half.distance(segment.first())
            && first + i64::from(segment.len) > distance.max(0)
            && segment.len > 0
        {
            self.current.counters.beyond_window += 1;
            return if first >= distance.max(0) { doubt::IGNORED } else { doubt::UNLIKELY };
        }
        // Without acknowledgements, a reset would hide what follows.
        let is_over = half.has(Half::RESET | Half::SUSPECT) && half.has(Half::ANSWERED);
        let is_unsure = half.has(Half::ENDED) || is_over;
        if is_unsure { doubt::UNSURE } else { doubt::NONE }
    }

    /// Notes what the receiver takes from a segment that it does not ignore.
    pub(super) fn note_options(&mut self, segment: &Segment<'_>, half: &mut Half) {
        if let Some(timestamp) = segment.options.timestamp
            && half.has(Half::STAMPED)
            && timestamp != half.timestamp
            && half.distance(segment.first()).is_some_and(|distance| distance <= 0)
            && !half.is_old(timestamp)
        {
            half.timestamp = timestamp;
        }
        if segment.has(Segment::URG)
            && self.current.options().urgent == Urgent::OutOfBand
            && half.taken < u16::MAX
        {
            // It points to the byte after the urgent one (RFC 6093).
            let urgent = segment.sequence.wrapping_add(u32::from(segment.urgent.saturating_sub(1)));
            let is_later = !half.has(Half::URGENT) || half.offset(urgent) > half.offset(half.urgent);
            if half.distance(urgent) >= Some(0) && is_later {
                half.urgent = urgent;
                half.flags |= Half::URGENT;
            }
        }
    }
}
