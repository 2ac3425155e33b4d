//! The state of one direction's stream.

use super::{Half, Segment, Streams, WINDOW_MAX};

impl Streams {
    /// Undoubted bytes or an end are sent. Returns true if they are the first ones to a side that
    /// was not seen.
    pub(super) fn go_on(&mut self, segment: &Segment<'_>) -> bool {
        let from = segment.direction.index();
        if !self.halves[from].has(Half::BEGUN) {
            self.halves[from].begin(segment.sequence, segment.intact); // The opening was not seen.
            self.halves[from].agree(segment);
        }
        let other = &mut self.halves[1 - from];
        let is_first = !other.has(Half::BEGUN | Half::CLAIMED);
        if is_first {
            // The other side is not seen, or has not answered yet. Its answer would show that this
            // was sent in vain.
            other.base = segment.acknowledgment;
            other.flags |= Half::CLAIMED;
        }
        is_first
    }

    /// The segment's sender offers to receive more of the other direction's stream.
    pub(super) fn offer(&mut self, segment: &Segment<'_>, scale: u16) {
        let from = segment.direction.index();
        let is_syn = segment.has(Segment::SYN);
        let [own, other] = [from, 1 - from].map(|index| self.halves[index]);
        // Without both SYNs the scale of a window is not known.
        if !other.has(Half::OPENED) || !own.has(Half::OPENED) {
            return;
        }
        let is_scaled = !is_syn && own.has(Half::SCALED) && other.has(Half::SCALED);
        self.halves[1 - from].offer(segment, scale, is_scaled);
    }
}

impl Half {
    /// Its first byte's sequence number is known.
    pub(super) const BEGUN: u32 = 1;
    /// A FIN was in order. Should the receiver acknowledge what is after it, then it was not taken.
    pub(super) const ENDED: u32 = 2;
    /// The connection was reset. Should bytes still be acknowledged, then the hosts did not
    /// heed it: it was forged.
    pub(super) const RESET: u32 = 4;
    /// A reset or a SYN was refused before anything else came, which may have ended the connection.
    pub(super) const SUSPECT: u32 = 8;
    /// The receiver has more than we have.
    pub(super) const ACKNOWLEDGED: u32 = 16;
    /// The receiver has acknowledged its beginning: no SYN begins it again.
    pub(super) const ANSWERED: u32 = 32;
    /// It began with a right checksum: one that is wrong is damaged.
    pub(super) const INTACT: u32 = 64;
    /// It began with a wrong one: hardware behind us puts them in. Else nobody has heeded it.
    pub(super) const DAMAGED: u32 = 128;
    /// It began with its SYN: nothing stands before that.
    pub(super) const OPENED: u32 = 256;
    /// Not begun, but somebody has acknowledged that it begins with the number that stands for the
    /// first one.
    pub(super) const CLAIMED: u32 = 512;
    /// One byte is urgent.
    pub(super) const URGENT: u32 = 1024;
    /// A reset was announced, and nothing came since.
    pub(super) const HUSHED: u32 = 2048;
    /// Behind a reset or an end, its sender has sent another SYN, which nobody has answered yet.
    pub(super) const ATTEMPT: u32 = 4096;
    /// No FIN was seen, but segments that a capture cut.
    pub(super) const CUT: u32 = 8192;
    /// Its sender's segments have timestamps, from the first one on.
    pub(super) const STAMPED: u32 = 1 << 14;
    /// Its SYN had a signature.
    pub(super) const SIGNED: u32 = 1 << 15;
    /// Its SYN has said by how much its windows are shifted.
    pub(super) const SCALED: u32 = 1 << 16;
    /// The receiver's window is known.
    pub(super) const OFFERED: u32 = 1 << 17;
    /// Its sender acknowledges something: it has answered a SYN, or had an answer to its own.
    pub(super) const OVER_SYN: u32 = 1 << 18;
    /// The options that a SYN agreed on.
    pub(super) const AGREED: u32 = Half::STAMPED | Half::SIGNED | Half::SCALED;

    /// Returns true if any of these flags is set.
    pub(super) fn has(&self, flag: u32) -> bool {
        self.flags & flag != 0
    }

    /// Returns true if its end was not reached.
    pub(super) fn is_open(&self) -> bool {
        self.flags & (Half::BEGUN | Half::ENDED) == Half::BEGUN
    }

    /// The sequence number of the next byte.
    pub(super) fn next_sequence(&self) -> u32 {
        self.base.wrapping_add(self.next as u32)
    }

    /// Returns the distance of the sequence number from the next byte's; none if it is in no
    /// window.
    pub(super) fn distance(&self, sequence: u32) -> Option<i64> {
        let distance = i64::from(sequence.wrapping_sub(self.next_sequence()).cast_signed());
        (distance.abs() <= WINDOW_MAX).then_some(distance)
    }

    /// The offset of a sequence number in the window.
    pub(super) fn offset(&self, sequence: u32) -> u64 {
        self.next.saturating_add_signed(self.distance(sequence).unwrap_or(0))
    }

    /// Up to where the receiver is known to have it; 0 if not further than we have.
    pub(super) fn acknowledged(&self) -> u64 {
        if self.has(Half::ACKNOWLEDGED) { self.offset(self.acknowledged) } else { 0 }
    }

    /// A segment up to here was cut by a capture: its sender has sent all of it.
    #[cold]
    pub(super) fn cut(&mut self, until: u32) {
        let is_known = self.has(Half::CUT) && self.offset(self.fin) >= self.offset(until);
        if !is_known && self.distance(until) > Some(0) {
            self.fin = until;
            self.flags |= Half::CUT;
        }
    }

    /// The stream begins with this sequence number, in a segment whose checksum is known to be
    /// right, or wrong, or else is as before. Nothing waits.
    pub(super) fn begin(&mut self, sequence: u32, intact: Option<bool>) {
        let checksum = match intact {
            Some(true) => Half::INTACT,
            Some(false) => Half::DAMAGED,
            None => self.flags & (Half::INTACT | Half::DAMAGED),
        };
        let flags = Half::BEGUN | checksum | self.flags & (Half::OPENED | Half::AGREED);
        let Half { timestamp, scale, .. } = *self;
        *self = Half { base: sequence, flags, timestamp, scale, has: sequence, ..Half::default() };
    }

    /// The same with a SYN.
    pub(super) fn open(&mut self, segment: &Segment<'_>) {
        self.flags &= !Half::AGREED;
        self.begin(segment.first(), segment.intact);
        self.flags |= Half::OPENED;
        self.agree(segment);
    }

    /// Takes the options of the connection's first segment.
    pub(super) fn agree(&mut self, segment: &Segment<'_>) {
        let options = &segment.options;
        if let Some(timestamp) = options.timestamp {
            self.timestamp = timestamp;
            self.flags |= Half::STAMPED;
        }
        if segment.has(Segment::SYN) {
            self.scale = u16::from(options.scale.unwrap_or(0));
            self.flags |= if options.scale.is_some() { Half::SCALED } else { 0 };
            self.flags |= if options.signed || options.authenticated { Half::SIGNED } else { 0 };
        }
    }

    /// Returns true if the receiver takes a timestamp for old (RFC 7323 5.3); Linux does not if it
    /// has taken none but 0.
    pub(super) fn is_old(&self, timestamp: u32) -> bool {
        self.timestamp != 0 && timestamp.wrapping_sub(self.timestamp).cast_signed() < 0
    }

    /// A segment of the other half offers to take more of this one.
    #[inline]
    pub(super) fn offer(&mut self, segment: &Segment<'_>, scale: u16, is_scaled: bool) {
        let window = u32::from(segment.window) << if is_scaled { scale } else { 0 };
        let edge = segment.acknowledgment.wrapping_add(window);
        if !self.has(Half::OFFERED) || edge.wrapping_sub(self.edge).cast_signed() > 0 {
            self.edge = edge;
            self.flags |= Half::OFFERED;
        }
    }

    /// Returns true if it matters if the segment's checksum is right: who once leaves it to
    /// hardware does so always.
    pub(super) fn judges(&self, segment: &Segment<'_>) -> bool {
        self.has(Half::INTACT) || !self.has(Half::BEGUN) || segment.has(Segment::SYN)
    }
}
