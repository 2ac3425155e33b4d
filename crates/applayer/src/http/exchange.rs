//! The state of a connection: two halves, and the requests that wait for an answer.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::http::reader::Reader;
use crate::http::{Line, Sink};

/// Most requests whose method is remembered until they are answered. Further ones are taken as
/// ordinary (no HEAD, no CONNECT) and told with
/// [`Anomaly::PipelineFull`](crate::http::Anomaly::PipelineFull).
pub const PIPELINE_MAX: usize = 32;

/// The directions of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// From client to server.
    Request,
    /// From server to client.
    Response,
}

/// The parser's state of one connection: bytes of fixed layout, movable as they are; all zero is a
/// fresh one.
///
/// Each direction's bytes are given in their order, in pieces of any size; how they are cut does
/// not change what is told, except for where pieces of bodies and opaque bytes end. The directions
/// are given in the order of their arrival: a response's framing depends on its request's method.
/// Any bytes of this type are a state: a wrong one leads to wrong events, never to a panic.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct Exchange {
    pub(crate) requests: Half,
    pub(crate) responses: Half,
    pub(crate) outstanding: Outstanding,
}

impl Exchange {
    /// Takes bytes that the client sent.
    pub fn request(&mut self, bytes: &[u8], line: &mut impl Line, sink: &mut impl Sink) {
        self.reader(Side::Request, sink).take(bytes, line);
    }

    /// Takes bytes that the client sent, up to where both directions are another protocol's
    /// ([`Exchange::is_switched`]), and says how many those are.
    pub fn request_until_switched(
        &mut self,
        bytes: &[u8],
        line: &mut impl Line,
        sink: &mut impl Sink,
    ) -> usize {
        let mut used = 0;
        while used < bytes.len() && !self.is_switched() {
            used += self.reader(Side::Request, sink).take_some(&bytes[used..], line);
        }
        used
    }

    /// Takes bytes that the server sent.
    pub fn response(&mut self, bytes: &[u8], line: &mut impl Line, sink: &mut impl Sink) {
        self.reader(Side::Response, sink).take(bytes, line);
    }

    /// So many bytes of a direction are lost: what its line holds is given up, the end of the body
    /// is found if it can be; else the next start line is searched for.
    pub fn gap(&mut self, side: Side, len: u64, line: &mut impl Line, sink: &mut impl Sink) {
        self.reader(side, sink).lose(len, line);
    }

    /// The caller no longer has what was kept of a direction's line, or not all of it: what is left
    /// is skipped, and the next start line is searched for, as after a gap.
    pub fn lose_line(&mut self, side: Side, line: &mut impl Line, sink: &mut impl Sink) {
        let mut reader = self.reader(side, sink);
        reader.half.clear(flag::LINE_CUT | flag::LINE_ENDED);
        reader.lose(1, line);
    }

    /// A direction has come to its end. Bytes that come nevertheless are told as skipped.
    pub fn end(&mut self, side: Side, line: &mut impl Line, sink: &mut impl Sink) {
        self.reader(side, sink).close(line);
    }

    /// The state of a direction.
    pub fn half(&self, side: Side) -> &Half {
        match side {
            Side::Request => &self.requests,
            Side::Response => &self.responses,
        }
    }

    /// Whether both directions are another protocol's from their next byte on: the server said so,
    /// and the client has come to the place from where that holds.
    pub fn is_switched(&self) -> bool {
        let client = match self.requests.phase() {
            Phase::Opaque => true,
            Phase::Start | Phase::Search => self.requests.has(flag::TO_ANY),
            _ => false,
        };
        client && self.responses.phase() == Phase::Opaque
    }

    /// Requests that wait for their answer.
    pub fn unanswered(&self) -> u32 {
        self.outstanding.len()
    }

    fn reader<'a, S: Sink>(&'a mut self, side: Side, sink: &'a mut S) -> Reader<'a, S> {
        let (half, other) = match side {
            Side::Request => (&mut self.requests, &mut self.responses),
            Side::Response => (&mut self.responses, &mut self.requests),
        };
        Reader { side, half, other, outstanding: &mut self.outstanding, sink }
    }
}

/// The state of one direction.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct Half {
    /// Bytes that are left of a body or a chunk.
    pub(crate) remaining: u64,
    /// The value of Content-Length.
    pub(crate) content_length: u64,
    /// A hash of the authority in the request's target.
    pub(crate) authority: u64,
    /// The anomalies that were told of this message, as bits.
    pub(crate) told: u64,
    /// What is known of the message and of the connection: [`flag`].
    pub(crate) flags: u32,
    /// Bytes of the message's head so far.
    pub(crate) head_bytes: u32,
    pub(crate) messages: u32,
    pub(crate) anomalies: u32,
    pub(crate) repeated: u32,
    /// Headers of the message so far.
    pub(crate) headers: u16,
    /// The response's status.
    pub(crate) status: u16,
    /// A [`Phase`].
    pub(crate) phase: u8,
    /// How far the body so far is like a request's line: [`crate::http::opening`].
    pub(crate) opening: u8,
    /// How much of a framing header's name the line without colon before this one is:
    /// [`crate::http::head`].
    pub(crate) name_part: u8,
    pub(crate) reserved: [u8; 5],
}

const _: () = assert!(size_of::<Half>() <= 64);

impl Half {
    /// Messages that began in this direction, up to 2^32.
    pub fn messages(&self) -> u32 {
        self.messages
    }

    /// Anomalies that were told in this direction, up to 2^32.
    pub fn anomalies(&self) -> u32 {
        self.anomalies
    }

    /// Anomalies that were not told, because their kind had been told of the same message; up to
    /// 2^32.
    pub fn repeated_anomalies(&self) -> u32 {
        self.repeated
    }

    /// Whether the direction is between two messages.
    pub fn is_idle(&self) -> bool {
        self.phase() == Phase::Start
    }

    /// Whether the direction speaks another protocol now.
    pub fn is_opaque(&self) -> bool {
        self.phase() == Phase::Opaque
    }

    pub(crate) fn phase(&self) -> Phase {
        Phase::ALL.get(usize::from(self.phase)).copied().unwrap_or(Phase::Start)
    }

    pub(crate) fn enter(&mut self, phase: Phase) {
        self.phase = phase as u8;
    }

    pub(crate) fn has(&self, flag: u32) -> bool {
        self.flags & flag != 0
    }

    pub(crate) fn set(&mut self, flag: u32) {
        self.flags |= flag;
    }

    pub(crate) fn clear(&mut self, flag: u32) {
        self.flags &= !flag;
    }

    /// Forgets the message that was.
    pub(crate) fn begin(&mut self) {
        self.flags &= flag::OF_CONNECTION;
        self.told = 0;
        self.headers = 0;
        self.name_part = 0;
        self.head_bytes = 0;
        self.content_length = 0;
        self.authority = 0;
        self.messages = self.messages.saturating_add(1);
    }
}

/// Where in a direction the next byte stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Phase {
    /// Before or inside of a start line.
    Start,
    /// Inside of a head, behind the start line.
    Headers,
    /// Inside of a body of known length.
    Body,
    /// Inside of a body that the connection's end ends.
    BodyUntilClose,
    /// Before or inside of a line with a chunk's size.
    ChunkSize,
    /// Inside of a chunk's data.
    ChunkData,
    /// Behind a chunk's data.
    ChunkEnd,
    /// Behind the last chunk.
    Trailers,
    /// In another protocol.
    Opaque,
    /// Somewhere: a start line is searched for.
    Search,
    /// Behind the end.
    Closed,
}

impl Phase {
    const ALL: [Self; 11] = [
        Self::Start,
        Self::Headers,
        Self::Body,
        Self::BodyUntilClose,
        Self::ChunkSize,
        Self::ChunkData,
        Self::ChunkEnd,
        Self::Trailers,
        Self::Opaque,
        Self::Search,
        Self::Closed,
    ];

    /// Whether a message has begun and not ended.
    pub(crate) fn is_in_message(self) -> bool {
        !matches!(self, Self::Start | Self::Opaque | Self::Search | Self::Closed)
    }

    /// Whether a line that begins with a blank goes on with the one before it (RFC 9112 5.2).
    pub(crate) fn folds(self) -> bool {
        matches!(self, Self::Headers | Self::Trailers)
    }
}

/// Bits of [`Half::flags`].
pub(crate) mod flag {
    // Of the message.
    pub(crate) const HTTP_10: u32 = 1;
    pub(crate) const HTTP_11: u32 = 1 << 1;
    pub(crate) const LENGTH: u32 = 1 << 2;
    pub(crate) const TRANSFER_ENCODING: u32 = 1 << 3;
    /// The last transfer coding is chunked.
    pub(crate) const CHUNKED: u32 = 1 << 4;
    pub(crate) const HOST: u32 = 1 << 5;
    /// The target has an authority.
    pub(crate) const AUTHORITY: u32 = 1 << 6;
    pub(crate) const CLOSE: u32 = 1 << 7;
    pub(crate) const KEEP_ALIVE: u32 = 1 << 8;
    pub(crate) const UPGRADE: u32 = 1 << 9;
    /// The request is a CONNECT; the response answers one.
    pub(crate) const CONNECT: u32 = 1 << 10;
    /// The response answers a HEAD.
    pub(crate) const HEAD: u32 = 1 << 11;
    /// The response is 101 to a request that asked for it.
    pub(crate) const ASKED: u32 = 1 << 12;
    /// The request has no version.
    pub(crate) const SIMPLE: u32 = 1 << 13;
    /// The request expects 100 (Continue).
    pub(crate) const EXPECTS: u32 = 1 << 14;
    /// The start line ends with CR LF.
    pub(crate) const CR_LF: u32 = 1 << 15;
    /// There is a content coding.
    pub(crate) const CODED: u32 = 1 << 31;
    /// The header Upgrade names h2c.
    pub(crate) const H2C: u32 = 1 << 30;
    /// The response cannot have a body, but its headers announce one, which may follow.
    pub(crate) const MAY_GO_ON: u32 = 1 << 29;
    /// The response cannot have a body, and its headers announce none: lines that follow it may be
    /// one.
    pub(crate) const MAY_BE_LOOSE: u32 = 1 << 28;
    /// They are.
    pub(crate) const LOOSE: u32 = 1 << 27;

    // Of the line that is being gathered.
    /// The line has more bytes than were kept.
    pub(crate) const LINE_CUT: u32 = 1 << 16;
    /// The line is complete unless the next byte is a blank.
    pub(crate) const LINE_ENDED: u32 = 1 << 17;

    // Of the connection.
    /// A last message was announced and has ended.
    pub(crate) const AFTER_LAST: u32 = 1 << 18;
    /// Bytes of messages' heads were lost: requests and responses may not match.
    pub(crate) const LOSSY: u32 = 1 << 19;
    /// A CONNECT waits for its answer.
    pub(crate) const CONNECTING: u32 = 1 << 20;
    /// The answer to CONNECT was no: a tunnel that was assumed is none.
    pub(crate) const REFUSED: u32 = 1 << 21;
    /// Behind this message the tunnel begins, ...
    pub(crate) const TO_TUNNEL: u32 = 1 << 22;
    /// ... the protocol that was agreed upon, ...
    pub(crate) const TO_UPGRADE: u32 = 1 << 23;
    /// ... or HTTP/2.
    pub(crate) const TO_HTTP2: u32 = 1 << 24;
    pub(crate) const TO_ANY: u32 = TO_TUNNEL | TO_UPGRADE | TO_HTTP2;

    pub(crate) const OF_CONNECTION: u32 = u32::MAX << 16 & !(CODED | H2C | MAY_GO_ON | MAY_BE_LOOSE | LOOSE);
}

/// What of a request its response's framing depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asked {
    Ordinary,
    Head,
    Connect,
    /// HTTP/0.9.
    Simple,
}

/// The requests that wait for an answer: a queue of [`PIPELINE_MAX`] entries of four bits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct Outstanding {
    /// The oldest in the low bits of the first word.
    entries: [u64; 2],
    /// Requests that did not fit: behind those of the queue.
    untracked: u32,
    /// Entries that are used.
    used: u32,
    /// Number of the next request.
    next: u32,
    reserved: [u8; 4],
}

/// The bit of an entry that says that the request asked for an upgrade.
const WANTS_UPGRADE: u64 = 4;

impl Outstanding {
    pub(crate) fn len(&self) -> u32 {
        self.used().saturating_add(self.untracked)
    }

    /// Number of the next request.
    pub(crate) fn next_number(&self) -> u32 {
        self.next
    }

    /// Appends a request; whether it could be remembered.
    pub(crate) fn push(&mut self, asked: Asked) -> bool {
        self.next = self.next.wrapping_add(1);
        let at = self.used();
        // Order is kept: nothing is remembered behind what is not.
        if at as usize == PIPELINE_MAX || self.untracked > 0 {
            self.untracked = self.untracked.saturating_add(1);
            return false;
        }
        let entry = asked as u64;
        self.entries[(at / 16) as usize] &= !(0xf << (at % 16 * 4));
        self.entries[(at / 16) as usize] |= entry << (at % 16 * 4);
        self.used = at + 1;
        true
    }

    /// The newest request asks for an upgrade. One that is answered already is not touched.
    pub(crate) fn newest_wants_upgrade(&mut self) {
        let Some(at) = self.used().checked_sub(1).filter(|_| self.untracked == 0) else { return };
        self.entries[(at / 16) as usize] |= WANTS_UPGRADE << (at % 16 * 4);
    }

    /// The oldest request: what it asked, whether it wants an upgrade, its number.
    pub(crate) fn oldest(&self) -> Option<(Asked, bool, u32)> {
        if self.len() == 0 {
            return None;
        }
        let number = self.next.wrapping_sub(self.len());
        if self.used() == 0 {
            return Some((Asked::Ordinary, false, number));
        }
        let asked = match self.entries[0] & 3 {
            0 => Asked::Ordinary,
            1 => Asked::Head,
            2 => Asked::Connect,
            _ => Asked::Simple,
        };
        Some((asked, self.entries[0] & WANTS_UPGRADE != 0, number))
    }

    /// The oldest request is answered.
    pub(crate) fn pop(&mut self) {
        if self.used() == 0 {
            self.untracked = self.untracked.saturating_sub(1);
            return;
        }
        self.entries[0] = self.entries[0] >> 4 | self.entries[1] << 60;
        self.entries[1] >>= 4;
        self.used = self.used() - 1;
    }

    /// Forgets all but the newest request: answers to the others were lost.
    pub(crate) fn keep_newest(&mut self) {
        while self.used() > 0 && self.len() > 1 {
            self.pop();
        }
        self.untracked = self.untracked.min(1);
    }

    /// Entries that are used, in the face of any bytes.
    fn used(&self) -> u32 {
        self.used.min(PIPELINE_MAX as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::{Event, FixedLine};

    #[test]
    fn requests_are_answered_in_their_order() {
        let mut queue = Outstanding::default();
        let kinds = [Asked::Ordinary, Asked::Head, Asked::Connect, Asked::Simple];
        for i in 0..PIPELINE_MAX {
            assert!(queue.push(kinds[i % 4]));
        }
        queue.newest_wants_upgrade();
        assert!(!queue.push(Asked::Head));
        assert_eq!(queue.len(), PIPELINE_MAX as u32 + 1);
        for i in 0..PIPELINE_MAX {
            assert_eq!(queue.oldest(), Some((kinds[i % 4], i + 1 == PIPELINE_MAX, i as u32)));
            queue.pop();
        }
        assert!(!queue.push(Asked::Head), "behind one that is not remembered");
        assert_eq!(queue.oldest(), Some((Asked::Ordinary, false, 32)));
        queue.pop();
        queue.pop();
        assert_eq!(queue.oldest(), None);
        assert!(queue.push(Asked::Head));
        assert_eq!(queue.oldest(), Some((Asked::Head, false, 34)));
    }

    #[test]
    fn the_newest_is_kept() {
        let mut queue = Outstanding::default();
        queue.push(Asked::Connect);
        queue.push(Asked::Head);
        queue.keep_newest();
        assert_eq!(queue.oldest(), Some((Asked::Head, false, 1)));
    }

    #[test]
    fn a_client_is_followed_to_the_switch_and_no_further() {
        let cases = [
            ("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\na", "bPRI", 1),
            ("GET / HTTP/1.1\r\nHost: x\r\n", "\r\nPRI", 2),
            ("\n", "PRI", 0),
        ];
        for (begun, rest, used) in cases {
            let mut exchange = Exchange::default();
            let mut lines = [FixedLine::<99>::default(), FixedLine::default()];
            let sink = &mut |_: Event<'_>| {};
            exchange.request(begun.as_bytes(), &mut lines[0], sink);
            exchange.response(b"HTTP/1.1 101 Up\r\n\r\n", &mut lines[1], sink);
            assert_eq!(exchange.request_until_switched(rest.as_bytes(), &mut lines[0], sink), used);
            assert!(exchange.is_switched());
        }
    }

    #[test]
    fn a_client_that_is_searched_for_a_start_line_switches_at_once() {
        let mut exchange = Exchange::default();
        let mut lines = [FixedLine::<99>::default(), FixedLine::default()];
        let sink = &mut |_: Event<'_>| {};
        exchange.gap(Side::Request, 1, &mut lines[0], sink);
        exchange.response(b"HTTP/1.1 101 Up\r\n\r\n", &mut lines[1], sink);
        assert!(exchange.is_switched());
    }
}
