//! TCP connection tracking by sequence numbers (`tcp: strict`), after G. van Rooij, "Real Stateful
//! TCP Packet Filtering in IP Filter" (2001).
//!
//! For each end the tracker knows the end of its data, and the limit set by the peer's
//! acknowledgements and windows. A segment must lie in between, and must acknowledge data that the
//! peer has sent; a reset must lie in the window proper (RFC 5961 3.2).
//!
//! Besides the tracked connection, one *attempt* is remembered: the last SYN of an end that did not
//! open this connection. A host with a peer that crashed, or itself in TIME-WAIT, answers such a
//! SYN with an acknowledgement of the old connection, with a reset, or with a SYN of its own (RFC
//! 9293 3.5.1 and 3.10.7.4, RFC 5961 4, RFC 6191). Only the answer shows which: until a SYN-ACK
//! acknowledges the attempt, the old connection's numbers hold.
//!
//! [`TcpTracker::follow`] checks the segments of an open connection; `opening` handles all others.

use packet::Direction;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

mod opening;
mod segment;

pub use segment::TcpSegment;
use segment::{FIN, RST, SYN};

/// Both ends of a connection, by direction, and an attempt at another one. All zeros: nothing seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct TcpTracker {
    ends: [SenderState; 2],
    attempt: ConnectionAttempt,
}

/// State of one end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct SenderState {
    /// Sequence number after the last one sent.
    end: u32,
    /// Sequence number after the last one permitted by the peer.
    limit: u32,
    /// Sequence number after the last one acknowledged.
    acked: u32,
    /// Largest window offered, in bytes.
    window: u32,
    /// Window scale shift (RFC 7323 2.3).
    scale: u8,
    /// Bits: [`SEEN`] and following.
    flags: u8,
    spare: [u8; 2],
    /// Initial sequence number, if `OPENED`.
    iss: u32,
}

/// A SYN of an end that did not open the tracked connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct ConnectionAttempt {
    iss: u32,
    /// Sequence number after the SYN and its data.
    end: u32,
    window: u16,
    scale: u8,
    /// Bits: [`SEEN`], `SCALES`, `BY_REPLY`.
    flags: u8,
}

/// The end sent a segment.
const SEEN: u8 = 1;
/// The end offered window scaling.
const SCALES: u8 = 2;
/// The end sent a FIN.
const FINISHED: u8 = 4;
/// The end sent a valid reset.
const RESET: u8 = 8;
/// The end acknowledged data.
const ACKED: u8 = 16;
/// The end's SYN was seen.
const OPENED: u8 = 32;
/// A fragment was seen: the end may have sent more than is known.
const CUT: u8 = 64;
/// The end did not open this connection, but sent a segment of another one; `acked` and `end` are
/// that segment's.
const ELSEWHERE: u8 = 128;
/// The attempt is from the end of the reply direction.
const BY_REPLY: u8 = 4;

/// Minimum distance that an acknowledgement may lag: an unscaled window and a segment.
const ACK_BACK: u32 = 66_000;

/// Maximum payload of a fragmented datagram.
const CUT_MAX: u32 = 65_535;

/// Maximum window scale shift (RFC 7323 2.3).
const SCALE_MAX: u8 = 14;

/// Window assumed for a connection without a visible beginning: the maximum.
const WINDOW_MAX: u32 = 0xffff << SCALE_MAX;

impl TcpTracker {
    /// Updates the tracker with a segment that fits the connection. Returns whether it fits.
    pub fn follow(&mut self, segment: &TcpSegment, direction: Direction) -> bool {
        let [mut sender, mut receiver] = self.seen_from(direction);
        if sender.flags & receiver.flags & SEEN == 0 || segment.has(SYN | RST) {
            return self.follow_opening(segment, direction);
        }
        if !is_in_window(&sender, &receiver, segment) {
            return false;
        }
        note(&mut sender, &mut receiver, segment);
        self.set(direction, sender, receiver);
        // An end that continues the connection has no attempt at another one.
        if self.attempt.is_by(direction) {
            self.attempt = ConnectionAttempt::default();
        }
        true
    }

    /// Updates the tracker with the first fragment of a segment. It is not checked, because its
    /// length is unknown.
    pub fn follow_fragment(&mut self, segment: &TcpSegment, direction: Direction) {
        let [sender, _] = self.seen_from(direction);
        if sender.flags & SEEN != 0 && !is_after(segment.seq, sender.limit) {
            self.ends[direction.index()].flags |= CUT;
        }
    }

    /// Notes that segments have passed that were not followed: the next one shows where the ends
    /// are. Until then each may have sent what the other end's window permits.
    pub fn lag(&mut self) {
        if self.is_over() {
            return;
        }
        let is_known = self.ends.iter().all(|end| end.flags & SEEN != 0 && end.window > 0);
        match is_known {
            true => self.ends.iter_mut().for_each(|end| end.flags &= SCALES | FINISHED),
            false => self.ends = <[SenderState; 2]>::default(),
        }
        self.attempt = ConnectionAttempt::default();
    }

    fn seen_from(&self, direction: Direction) -> [SenderState; 2] {
        [self.ends[direction.index()], self.ends[direction.other().index()]]
    }

    fn set(&mut self, direction: Direction, sender: SenderState, receiver: SenderState) {
        self.ends[direction.index()] = sender;
        self.ends[direction.other().index()] = receiver;
    }
}

impl ConnectionAttempt {
    fn is_by(&self, direction: Direction) -> bool {
        self.flags & SEEN != 0 && (self.flags & BY_REPLY != 0) == (direction == Direction::Reply)
    }

    /// Returns whether `ack` acknowledges the SYN, with or without its data.
    fn is_answered_by(&self, ack: u32) -> bool {
        acknowledges_opening(ack, self.iss, self.end)
    }
}

impl SenderState {
    /// Returns whether `ack` acknowledges the SYN, with or without its data.
    fn is_answered_by(&self, ack: u32) -> bool {
        self.flags & OPENED != 0 && acknowledges_opening(ack, self.iss, self.end)
    }
}

/// Checks RFC 9293 3.10.7.3, ISS < SEG.ACK =< SND.NXT: the SYN alone, or with all or part of its
/// data (RFC 7413 4.2).
fn acknowledges_opening(ack: u32, iss: u32, end: u32) -> bool {
    is_after(ack, iss) && !is_after(ack, end)
}

fn is_in_window(sender: &SenderState, receiver: &SenderState, segment: &TcpSegment) -> bool {
    // A zero window probe starts one number earlier (RFC 9293 3.8.4, 3.8.6.1).
    let begins = !is_after(segment.seq, sender.limit);
    let is_recent = !is_after(sender.end.wrapping_sub(receiver.window.max(1)), segment.end());
    begins && is_recent && segment.ack.is_none_or(|ack| ack_fits(sender, receiver, ack))
}

/// Checks RFC 5961 5.2: SND.UNA - MAX.SND.WND =< SEG.ACK =< SND.NXT.
fn ack_fits(sender: &SenderState, receiver: &SenderState, ack: u32) -> bool {
    let back = ACK_BACK.max(sender.window);
    let unacknowledged = if sender.flags & ACKED != 0 { sender.acked } else { receiver.end };
    let more = if receiver.flags & CUT != 0 { CUT_MAX } else { 0 };
    !is_after(ack, receiver.end.wrapping_add(more)) && !is_after(unacknowledged.wrapping_sub(back), ack)
}

/// Updates both ends with a valid segment.
fn note(sender: &mut SenderState, receiver: &mut SenderState, segment: &TcpSegment) {
    let scale = if segment.has(SYN) { 0 } else { sender.scale };
    let window = u32::from(segment.window) << scale;
    sender.window = sender.window.max(window);
    if is_after(segment.end(), sender.end) {
        sender.end = segment.end();
    }
    if segment.has(FIN) {
        sender.flags |= FINISHED;
    }
    if let Some(ack) = segment.ack {
        if sender.flags & ACKED == 0 || is_after(ack, sender.acked) {
            sender.acked = ack;
        }
        sender.flags |= ACKED;
        if receiver.flags & CUT != 0 && is_after(ack, receiver.end) {
            receiver.end = ack;
        }
        // A zero window may be probed with one byte (RFC 9293 3.8.6.1).
        let limit = ack.wrapping_add(window.max(1));
        if receiver.flags & SEEN != 0 && is_after(limit, receiver.limit) {
            receiver.limit = limit;
        }
    }
}

/// Returns whether sequence number `a` is after `b` (RFC 9293 3.4).
fn is_after(a: u32, b: u32) -> bool {
    a.wrapping_sub(b) as i32 > 0
}

#[cfg(test)]
mod tests;
