//! Following a TCP connection by its sequence numbers (`tcp: strict`), after G. van Rooij, "Real
//! Stateful TCP Packet Filtering in IP Filter" (2001).
//!
//! Of each end it is known how far it has sent and how far its peer's acknowledgements and windows
//! let it send. A segment must lie in between, and must acknowledge what the peer has sent; a reset
//! must lie in the window proper (RFC 5961 3.2).
//!
//! Beside the connection that is followed, one *attempt* is remembered: the last SYN of an end that
//! did not open this connection. A host whose peer crashed, or waits in TIME-WAIT, answers such a
//! SYN with an acknowledgement of the old connection, with a reset, or with a SYN of its own (RFC
//! 9293 3.5.1 and 3.10.7.4, RFC 5961 4, RFC 6191). Only the answer says which: until a SYN-ACK
//! acknowledges the attempt, the old connection's numbers hold.
//!
//! [`TcpTracker::follow`] checks the segments of an open connection; [`opening`] has all others.

use packet::Direction;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

mod opening;
mod segment;

pub use segment::Segment;
use segment::{FIN, RST, SYN};

/// Both ends of a connection, by direction, and an attempt at another one. All zeros: nothing seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct TcpTracker {
    ends: [SenderState; 2],
    attempt: ConnectionAttempt,
}

/// What is known of one end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct SenderState {
    /// After the last sequence number that it sent.
    end: u32,
    /// After the last one that its peer lets it send.
    limit: u32,
    /// After the last one of its peer that it acknowledged.
    acked: u32,
    /// The largest window that it offered, in bytes.
    window: u32,
    /// Shift of its windows (RFC 7323 2.3).
    scale: u8,
    /// See [`SEEN`] and the following.
    flags: u8,
    spare: [u8; 2],
    /// Its initial sequence number, if `OPENED`.
    iss: u32,
}

/// A SYN of an end that did not open the connection that is followed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct ConnectionAttempt {
    iss: u32,
    /// After its SYN and the data in it.
    end: u32,
    window: u16,
    scale: u8,
    /// [`SEEN`], and perhaps `SCALES`, `BY_REPLY`.
    flags: u8,
}

/// A segment was seen.
const SEEN: u8 = 1;
/// It offered to scale windows.
const SCALES: u8 = 2;
/// It sent a FIN.
const FINISHED: u8 = 4;
/// It sent a valid reset.
const RESET: u8 = 8;
/// It acknowledged something.
const ACKED: u8 = 16;
/// Its SYN was seen.
const OPENED: u8 = 32;
/// A fragment of it was seen, so that it may have sent more than is known.
const CUT: u8 = 64;
/// It has not opened this connection, but sent a segment of another one: `acked` and `end` are that
/// segment's.
const ELSEWHERE: u8 = 128;
/// An attempt of the reply direction's end.
const BY_REPLY: u8 = 4;

/// How far back an acknowledgement may be at least: a window without scaling and a segment.
const ACK_BACK: u32 = 66_000;

/// The most that one datagram in fragments carries.
const CUT_MAX: u32 = 65_535;

/// The largest shift (RFC 7323 2.3).
const SCALE_MAX: u8 = 14;

/// The window taken for granted in a connection whose beginning was not seen: the largest there is.
const WINDOW_MAX: u32 = 0xffff << SCALE_MAX;

impl TcpTracker {
    /// Takes a segment into account if it fits the connection; whether it does.
    pub fn follow(&mut self, segment: &Segment, direction: Direction) -> bool {
        let [mut sender, mut receiver] = self.seen_from(direction);
        if sender.flags & receiver.flags & SEEN == 0 || segment.has(SYN | RST) {
            return self.follow_opening(segment, direction);
        }
        if !is_in_window(&sender, &receiver, segment) {
            return false;
        }
        note(&mut sender, &mut receiver, segment);
        self.set(direction, sender, receiver);
        // An end that goes on with the connection makes no attempt at another one.
        if self.attempt.is_by(direction) {
            self.attempt = ConnectionAttempt::default();
        }
        true
    }

    /// Takes the first fragment of a segment into account. Its length is unknown, so it cannot be
    /// checked.
    pub fn follow_fragment(&mut self, segment: &Segment, direction: Direction) {
        let [sender, _] = self.seen_from(direction);
        if sender.flags & SEEN != 0 && !is_after(segment.seq, sender.limit) {
            self.ends[direction.index()].flags |= CUT;
        }
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

    /// Whether this acknowledges its SYN, and perhaps data in it.
    fn is_answered_by(&self, ack: u32) -> bool {
        acknowledges_opening(ack, self.iss, self.end)
    }
}

impl SenderState {
    /// Whether this acknowledges its SYN, and perhaps data in it.
    fn is_answered_by(&self, ack: u32) -> bool {
        self.flags & OPENED != 0 && acknowledges_opening(ack, self.iss, self.end)
    }
}

/// RFC 9293 3.10.7.3: ISS < SEG.ACK =< SND.NXT, so the SYN alone or with all or part of its data
/// (RFC 7413 4.2).
fn acknowledges_opening(ack: u32, iss: u32, end: u32) -> bool {
    is_after(ack, iss) && !is_after(ack, end)
}

fn is_in_window(sender: &SenderState, receiver: &SenderState, segment: &Segment) -> bool {
    // A closed window is probed from one number further back (RFC 9293 3.8.4, 3.8.6.1).
    let begins = !is_after(segment.seq, sender.limit);
    let is_recent = !is_after(sender.end.wrapping_sub(receiver.window.max(1)), segment.end());
    begins && is_recent && segment.ack.is_none_or(|ack| ack_fits(sender, receiver, ack))
}

/// RFC 5961 5.2: SND.UNA - MAX.SND.WND =< SEG.ACK =< SND.NXT.
fn ack_fits(sender: &SenderState, receiver: &SenderState, ack: u32) -> bool {
    let back = ACK_BACK.max(sender.window);
    let unacknowledged = if sender.flags & ACKED != 0 { sender.acked } else { receiver.end };
    let more = if receiver.flags & CUT != 0 { CUT_MAX } else { 0 };
    !is_after(ack, receiver.end.wrapping_add(more)) && !is_after(unacknowledged.wrapping_sub(back), ack)
}

/// Notes what a valid segment says.
fn note(sender: &mut SenderState, receiver: &mut SenderState, segment: &Segment) {
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
        // A closed window may be probed with a byte (RFC 9293 3.8.6.1).
        let limit = ack.wrapping_add(window.max(1));
        if receiver.flags & SEEN != 0 && is_after(limit, receiver.limit) {
            receiver.limit = limit;
        }
    }
}

/// Whether one sequence number is after another (RFC 9293 3.4).
fn is_after(a: u32, b: u32) -> bool {
    a.wrapping_sub(b) as i32 > 0
}

#[cfg(test)]
mod tests;
