//! Segments that open, refuse or abort a connection, and segments of hosts that disagree about the
//! connection's existence.

use packet::Direction;
use zerocopy::IntoBytes;

use super::segment::{RST, SYN, TcpSegment};
use super::{
    ACKED, BY_REPLY, CUT, ConnectionAttempt, ELSEWHERE, FINISHED, OPENED, RESET, SCALE_MAX, SCALES, SEEN,
    SenderState, TcpTracker, WINDOW_MAX, ack_fits, is_after, is_in_window, note,
};

impl TcpTracker {
    /// Returns whether the connection was reset, or closed by both ends.
    pub fn is_over(&self) -> bool {
        let [a, b] = self.ends;
        (a.flags | b.flags) & RESET != 0 || a.flags & b.flags & FINISHED != 0
    }

    /// Converts version 1 of the state: five words per end, without the SYN's contents.
    pub fn of_version_1(bytes: &[u8]) -> TcpTracker {
        let mut ends = TcpTracker::default();
        for (end, words) in ends.ends.iter_mut().zip(bytes.chunks_exact(20)) {
            *end.as_mut_bytes().first_chunk_mut::<20>().unwrap_or(&mut [0; 20]) =
                words.try_into().unwrap_or([0; 20]);
        }
        // For an unanswered end, derive it from the end of its data.
        let answered = ends.ends.iter().all(|end| end.flags & SEEN != 0);
        for end in ends.ends.iter_mut().filter(|end| !answered && end.flags & SEEN != 0) {
            (end.iss, end.flags) = (end.end.wrapping_sub(1), end.flags | OPENED);
        }
        ends
    }

    /// Handles a segment with SYN or RST, or a segment before both ends were seen.
    #[cold]
    pub(super) fn follow_opening(&mut self, segment: &TcpSegment, direction: Direction) -> bool {
        if segment.has(RST) {
            return self.reset(segment, direction);
        }
        match (segment.has(SYN), segment.ack) {
            (true, None) => self.syn(segment, direction),
            (true, Some(ack)) => self.syn_ack(segment, ack, direction),
            (false, _) => self.early(segment, direction),
        }
    }

    /// Handles a SYN: the first one, its retransmission, a simultaneous one (RFC 9293 3.5), or an
    /// attempt at another connection.
    fn syn(&mut self, segment: &TcpSegment, direction: Direction) -> bool {
        let [mut sender, mut receiver] = self.seen_from(direction);
        let peer_seen = receiver.flags & SEEN != 0;
        if sender.flags & OPENED != 0 && segment.seq == sender.iss {
            if !peer_seen {
                sender.repeat(segment);
                self.set(direction, sender, receiver);
            }
            return true;
        }
        match (sender.flags & SEEN != 0, peer_seen) {
            (true, true) => self.attempt = ConnectionAttempt::new(segment, direction),
            (sent, _) => {
                if sent {
                    // Another attempt. The previous one may still be answered (RFC 9293, figure 9).
                    self.attempt = ConnectionAttempt::of(&sender, direction);
                    receiver = SenderState::default();
                }
                open(&mut sender, &mut receiver, segment);
                self.set(direction, sender, receiver);
            }
        }
        true
    }

    fn syn_ack(&mut self, segment: &TcpSegment, ack: u32, direction: Direction) -> bool {
        let [mut sender, mut receiver] = self.seen_from(direction);
        let is_repeated = sender.flags & OPENED != 0 && segment.seq == sender.iss;
        let answers = receiver.is_answered_by(ack);
        let fits = match (sender.flags & SEEN != 0, receiver.flags & SEEN != 0) {
            (false, false) => {
                pick_up(&mut sender, &mut receiver, segment);
                true
            }
            (true, false) => false, // The peer sent no SYN.
            (false, true) if answers => {
                open(&mut sender, &mut receiver, segment);
                true
            }
            (false, true) => false,
            (true, true) if is_repeated && ack_fits(&sender, &receiver, ack) => {
                note(&mut sender, &mut receiver, segment);
                true
            }
            // The peer has not seen the first SYN-ACK, and its sender forgot it, as with SYN
            // cookies.
            (true, true) if answers && receiver.flags & ACKED == 0 => {
                open(&mut sender, &mut receiver, segment);
                true
            }
            // The beginning was not seen, so a retransmission cannot be recognised.
            (true, true) if sender.flags & OPENED == 0 && is_in_window(&sender, &receiver, segment) => {
                note(&mut sender, &mut receiver, segment);
                true
            }
            (true, true) => false,
        };
        if fits {
            self.set(direction, sender, receiver);
        }
        fits || self.answer_attempt(segment, ack, direction)
    }

    /// Switches to the attempted connection, if this SYN-ACK answers it. The previous connection
    /// stays as an attempt.
    fn answer_attempt(&mut self, segment: &TcpSegment, ack: u32, direction: Direction) -> bool {
        if !self.attempt.is_by(direction.other()) || !self.attempt.is_answered_by(ack) {
            return false;
        }
        let before = self.ends[direction.other().index()];
        let (mut sender, mut receiver) = (SenderState::default(), SenderState::of(&self.attempt));
        open(&mut sender, &mut receiver, segment);
        self.set(direction, sender, receiver);
        self.attempt = ConnectionAttempt::of(&before, direction.other());
        true
    }

    /// Handles a segment without SYN before both ends were seen.
    fn early(&mut self, segment: &TcpSegment, direction: Direction) -> bool {
        let [mut sender, mut receiver] = self.seen_from(direction);
        match (sender.flags & SEEN != 0, receiver.flags & SEEN != 0) {
            (false, false) => pick_up(&mut sender, &mut receiver, segment),
            // Data before the peer's SYN.
            (true, _) => return false,
            // The peer opens a connection while this end has an old one: the peer will reset it
            // (RFC 9293 3.5.1, figures 10 and 11).
            (false, true) => {
                (sender.acked, sender.end) = (segment.ack.unwrap_or(0), segment.end());
                sender.flags |= ELSEWHERE;
            }
        }
        self.set(direction, sender, receiver);
        true
    }

    /// Handles a reset. If it refuses a connection, it acknowledges the SYN (RFC 9293 3.10.7.3).
    /// Any other reset lies in the receiver's window, if known (RFC 5961 3.2), and a reset in
    /// answer to a segment has that segment's acknowledgement number.
    fn reset(&mut self, segment: &TcpSegment, direction: Direction) -> bool {
        let [sender, receiver] = self.seen_from(direction);
        let refuses_attempt = self.attempt.is_by(direction.other())
            && segment.ack.is_some_and(|ack| self.attempt.is_answered_by(ack));
        let aborts_attempt = self.attempt.is_by(direction) && self.attempt.is_answered_by(segment.seq);
        let fits = match (sender.flags & SEEN != 0, receiver.flags & SEEN != 0) {
            (false, false) => true, // It was judged as the first packet of a flow.
            (false, true) => segment.ack.is_some_and(|ack| receiver.is_answered_by(ack)),
            (true, false) => {
                let answers = receiver.flags & ELSEWHERE != 0 && segment.seq == receiver.acked;
                answers || sender.is_answered_by(segment.seq)
            }
            (true, true) => {
                let first =
                    if receiver.flags & ACKED != 0 { receiver.acked } else { sender.end.wrapping_sub(1) };
                !is_after(segment.seq, sender.limit) && !is_after(first, segment.seq)
            }
        };
        if fits || refuses_attempt {
            self.ends[direction.index()].flags |= RESET;
        }
        fits || refuses_attempt || aborts_attempt
    }
}

impl SenderState {
    /// Updates the end with a retransmitted SYN; its data, options and window may differ from the
    /// first SYN's.
    fn repeat(&mut self, segment: &TcpSegment) {
        if is_after(segment.end(), self.end) {
            (self.end, self.limit) = (segment.end(), segment.end());
        }
        if let Some(scale) = segment.scale {
            self.scale = self.scale.max(scale.min(SCALE_MAX));
            self.flags |= SCALES;
        }
        self.window = self.window.max(segment.window.into());
    }

    /// Returns the state of an end that is at this number after it [was not
    /// followed](TcpTracker::lag): it may have sent a window of its peer more, and may repeat one.
    fn found(&self, at: u32, peer: &SenderState) -> SenderState {
        let end = at.wrapping_add(peer.window);
        SenderState {
            end,
            limit: end,
            window: self.window.saturating_mul(2).min(WINDOW_MAX),
            scale: self.scale,
            flags: SEEN | self.flags & (SCALES | FINISHED),
            ..SenderState::default()
        }
    }

    /// Returns the state of an end after the answer to its attempt.
    fn of(attempt: &ConnectionAttempt) -> SenderState {
        SenderState {
            end: attempt.end,
            limit: attempt.end,
            window: attempt.window.into(),
            scale: attempt.scale,
            flags: SEEN | OPENED | attempt.flags & SCALES,
            iss: attempt.iss,
            ..SenderState::default()
        }
    }
}

impl ConnectionAttempt {
    fn new(segment: &TcpSegment, direction: Direction) -> ConnectionAttempt {
        let scales = if segment.scale.is_some() { SCALES } else { 0 };
        ConnectionAttempt {
            iss: segment.seq,
            end: segment.end(),
            window: segment.window,
            scale: segment.scale.unwrap_or(0).min(SCALE_MAX),
            flags: SEEN | scales | by(direction),
        }
    }

    /// Returns the SYN that opened this end's connection; none if it was not seen.
    fn of(end: &SenderState, direction: Direction) -> ConnectionAttempt {
        if end.flags & OPENED == 0 {
            return ConnectionAttempt::default();
        }
        // A SYN carries up to 64 KiB of data; data sent later does not count.
        let len = end.end.wrapping_sub(end.iss);
        ConnectionAttempt {
            iss: end.iss,
            end: if len <= super::CUT_MAX { end.end } else { end.iss.wrapping_add(1) },
            window: end.window.min(u16::MAX.into()) as u16,
            scale: end.scale,
            flags: SEEN | end.flags & SCALES | by(direction),
        }
    }
}

fn by(direction: Direction) -> u8 {
    if direction == Direction::Reply { BY_REPLY } else { 0 }
}

/// Records an end's SYN: the first one, or the answer to the peer's.
fn open(sender: &mut SenderState, receiver: &mut SenderState, segment: &TcpSegment) {
    let answers = receiver.flags & SEEN != 0;
    let offers = if segment.scale.is_some() { SCALES } else { 0 };
    // Data that overtook the SYN-ACK.
    let ahead = sender.end.wrapping_sub(segment.end());
    let overtaken =
        sender.flags & ELSEWHERE != 0 && receiver.is_answered_by(sender.acked) && ahead <= receiver.window;
    *sender = SenderState {
        end: if overtaken { sender.end } else { segment.end() },
        limit: segment.end().wrapping_add(receiver.window),
        scale: segment.scale.unwrap_or(0).min(SCALE_MAX),
        flags: SEEN | OPENED | offers | sender.flags & CUT,
        iss: segment.seq,
        ..SenderState::default()
    };
    if answers && sender.flags & receiver.flags & SCALES == 0 {
        // Scaling needs an offer of both ends (RFC 7323 2.2).
        (sender.scale, receiver.scale) = (0, 0);
    }
    note(sender, receiver, segment);
}

/// Starts in the middle of a connection: accepts the sequence numbers and assumes the largest
/// window, unless the connection was [followed before](TcpTracker::lag).
fn pick_up(sender: &mut SenderState, receiver: &mut SenderState, segment: &TcpSegment) {
    if let (Some(ack), 1.., 1..) = (segment.ack, sender.window, receiver.window) {
        (*sender, *receiver) = (sender.found(segment.end(), receiver), receiver.found(ack, sender));
        return note(sender, receiver, segment);
    }
    let known = |end: u32| SenderState {
        end,
        limit: end.wrapping_add(WINDOW_MAX),
        window: WINDOW_MAX,
        scale: SCALE_MAX,
        flags: SEEN,
        ..SenderState::default()
    };
    *sender = known(segment.end());
    *receiver = known(segment.ack.unwrap_or(0));
    note(sender, receiver, segment);
}
