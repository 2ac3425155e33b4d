//! The state of a connection: two directions, and the unanswered requests.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::http::reader::DirectionParser;
use crate::http::{HttpSink, LineBuffer};

/// Maximum unanswered requests whose method is remembered. Further ones are taken as ordinary
/// (neither HEAD nor CONNECT) and reported as
/// [`HttpAnomaly::PipelineFull`](crate::http::HttpAnomaly::PipelineFull).
pub const PIPELINE_MAX: usize = 32;

/// A direction of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExchangeSide {
    /// Client to server.
    Request,
    /// Server to client.
    Response,
}

/// The parser state of one connection, of fixed layout: it can be copied as bytes, and all zeros is
/// the initial state.
///
/// The bytes of each direction must come in order, in pieces of any size. Segmentation changes only
/// the boundaries of body and opaque events. The directions must come in order of arrival: a
/// response's framing depends on its request's method. Any bytes are a valid state: a wrong one
/// leads to wrong events, never to a panic.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct Exchange {
    pub(crate) requests: DirectionState,
    pub(crate) responses: DirectionState,
    pub(crate) outstanding: UnansweredRequests,
}

impl Exchange {
    /// Parses bytes from the client.
    pub fn request(&mut self, bytes: &[u8], line: &mut impl LineBuffer, sink: &mut impl HttpSink) {
        self.reader(ExchangeSide::Request, sink).take(bytes, line);
    }

    /// Parses bytes from the client up to the point where both directions have switched protocols
    /// ([`Exchange::is_switched`]), and returns their number.
    pub fn request_until_switched(
        &mut self,
        bytes: &[u8],
        line: &mut impl LineBuffer,
        sink: &mut impl HttpSink,
    ) -> usize {
        let mut used = 0;
        while used < bytes.len() && !self.is_switched() {
            used += self.reader(ExchangeSide::Request, sink).take_some(&bytes[used..], line);
        }
        used
    }

    /// Parses bytes from the server.
    pub fn response(&mut self, bytes: &[u8], line: &mut impl LineBuffer, sink: &mut impl HttpSink) {
        self.reader(ExchangeSide::Response, sink).take(bytes, line);
    }

    /// Handles `len` lost bytes of a direction: discards its partial line, and finds the end of the
    /// body if possible; otherwise it searches for the next start line.
    pub fn gap(
        &mut self,
        side: ExchangeSide,
        len: u64,
        line: &mut impl LineBuffer,
        sink: &mut impl HttpSink,
    ) {
        self.reader(side, sink).lose(len, line);
    }

    /// Handles the loss of a direction's line buffer, whole or in part: skips the rest, and
    /// searches for the next start line, as after a gap.
    pub fn lose_line(&mut self, side: ExchangeSide, line: &mut impl LineBuffer, sink: &mut impl HttpSink) {
        let mut reader = self.reader(side, sink);
        reader.half.clear(flag::LINE_CUT | flag::LINE_ENDED);
        reader.lose(1, line);
    }

    /// Handles the end of a direction. Later bytes are reported as skipped.
    pub fn end(&mut self, side: ExchangeSide, line: &mut impl LineBuffer, sink: &mut impl HttpSink) {
        self.reader(side, sink).close(line);
    }

    /// Returns the state of a direction.
    pub fn direction(&self, side: ExchangeSide) -> &DirectionState {
        match side {
            ExchangeSide::Request => &self.requests,
            ExchangeSide::Response => &self.responses,
        }
    }

    /// Returns whether both directions have switched protocols from their next byte on: the server
    /// accepted, and the client has reached that point.
    pub fn is_switched(&self) -> bool {
        let client = match self.requests.phase() {
            Phase::Opaque => true,
            Phase::Start | Phase::Search => self.requests.has(flag::TO_ANY),
            _ => false,
        };
        client && self.responses.phase() == Phase::Opaque
    }

    /// Returns the number of unanswered requests.
    pub fn unanswered(&self) -> u32 {
        self.outstanding.len()
    }

    fn reader<'a, S: HttpSink>(&'a mut self, side: ExchangeSide, sink: &'a mut S) -> DirectionParser<'a, S> {
        let (half, other) = match side {
            ExchangeSide::Request => (&mut self.requests, &mut self.responses),
            ExchangeSide::Response => (&mut self.responses, &mut self.requests),
        };
        DirectionParser { side, half, other, outstanding: &mut self.outstanding, sink }
    }
}

/// The state of one direction.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct DirectionState {
    /// Remaining bytes of a body or chunk.
    pub(crate) remaining: u64,
    /// The value of Content-Length.
    pub(crate) content_length: u64,
    /// Hash of the authority in the request target.
    pub(crate) authority: u64,
    /// Bits of the anomalies reported for this message.
    pub(crate) reported: u64,
    /// Facts of the message and the connection: [`flag`].
    pub(crate) flags: u32,
    /// Bytes of the message head so far.
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
    /// Progress of matching the body against a request line: [`crate::http::opening`].
    pub(crate) opening: u8,
    /// Progress of matching the previous line without a colon against a framing header's name:
    /// [`crate::http::head`].
    pub(crate) name_part: u8,
    pub(crate) reserved: [u8; 5],
}

const _: () = assert!(size_of::<DirectionState>() <= 64);

impl DirectionState {
    /// Returns the number of messages begun in this direction, modulo 2^32.
    pub fn messages(&self) -> u32 {
        self.messages
    }

    /// Returns the number of anomalies reported in this direction, modulo 2^32.
    pub fn anomalies(&self) -> u32 {
        self.anomalies
    }

    /// Returns the number of anomalies suppressed as repetitions within their message, modulo 2^32.
    pub fn repeated_anomalies(&self) -> u32 {
        self.repeated
    }

    /// Returns whether the direction is between two messages.
    pub fn is_idle(&self) -> bool {
        self.phase() == Phase::Start
    }

    /// Returns whether the direction has switched to another protocol.
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

    /// Resets the state of the message.
    pub(crate) fn begin(&mut self) {
        self.flags &= flag::OF_CONNECTION;
        self.reported = 0;
        self.headers = 0;
        self.name_part = 0;
        self.head_bytes = 0;
        self.content_length = 0;
        self.authority = 0;
        self.messages = self.messages.saturating_add(1);
    }
}

/// The position of the next byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Phase {
    /// Before or within a start line.
    Start,
    /// Within a head, after the start line.
    Headers,
    /// Within a body of known length.
    Body,
    /// Within a body that extends to the end of the connection.
    BodyUntilClose,
    /// Before or within a chunk-size line.
    ChunkSize,
    /// Within chunk data.
    ChunkData,
    /// After chunk data.
    ChunkEnd,
    /// After the last chunk.
    Trailers,
    /// In another protocol.
    Opaque,
    /// Unknown: searching for a start line.
    Search,
    /// After the end.
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

    /// Returns whether a message has begun and not ended.
    pub(crate) fn is_in_message(self) -> bool {
        !matches!(self, Self::Start | Self::Opaque | Self::Search | Self::Closed)
    }

    /// Returns whether a line that begins with a blank continues the previous one (RFC 9112 5.2).
    pub(crate) fn folds(self) -> bool {
        matches!(self, Self::Headers | Self::Trailers)
    }
}

/// Bits of [`DirectionState::flags`].
pub(crate) mod flag {
    // Of the message.
    pub(crate) const HTTP_10: u32 = 1;
    pub(crate) const HTTP_11: u32 = 1 << 1;
    pub(crate) const LENGTH: u32 = 1 << 2;
    pub(crate) const TRANSFER_ENCODING: u32 = 1 << 3;
    /// The last transfer coding is chunked.
    pub(crate) const CHUNKED: u32 = 1 << 4;
    pub(crate) const HOST: u32 = 1 << 5;
    /// The target contains an authority.
    pub(crate) const AUTHORITY: u32 = 1 << 6;
    pub(crate) const CLOSE: u32 = 1 << 7;
    pub(crate) const KEEP_ALIVE: u32 = 1 << 8;
    pub(crate) const UPGRADE: u32 = 1 << 9;
    /// The request is a CONNECT, or the response answers one.
    pub(crate) const CONNECT: u32 = 1 << 10;
    /// The response answers a HEAD.
    pub(crate) const HEAD: u32 = 1 << 11;
    /// The response is a 101 to a request with Upgrade.
    pub(crate) const ASKED: u32 = 1 << 12;
    /// The request has no version.
    pub(crate) const SIMPLE: u32 = 1 << 13;
    /// The request expects 100 (Continue).
    pub(crate) const EXPECTS: u32 = 1 << 14;
    /// The start line ends with CR LF.
    pub(crate) const CR_LF: u32 = 1 << 15;
    /// The message has a content coding.
    pub(crate) const CODED: u32 = 1 << 31;
    /// Upgrade names h2c.
    pub(crate) const H2C: u32 = 1 << 30;
    /// The response must not have a body, but its headers announce one, which may follow.
    pub(crate) const MAY_GO_ON: u32 = 1 << 29;
    /// The response must not have a body, and its headers announce none: lines after it may be one.
    pub(crate) const MAY_BE_LOOSE: u32 = 1 << 28;
    /// Lines after the response are its body.
    pub(crate) const LOOSE: u32 = 1 << 27;

    // Of the current line.
    /// The line is longer than the buffer holds.
    pub(crate) const LINE_CUT: u32 = 1 << 16;
    /// The line is complete unless the next byte is a blank.
    pub(crate) const LINE_ENDED: u32 = 1 << 17;

    // Of the connection.
    /// The announced last message has ended.
    pub(crate) const AFTER_LAST: u32 = 1 << 18;
    /// Bytes of message heads were lost: requests and responses may not match.
    pub(crate) const LOSSY: u32 = 1 << 19;
    /// A CONNECT is unanswered.
    pub(crate) const CONNECTING: u32 = 1 << 20;
    /// The CONNECT was refused: there is no tunnel.
    pub(crate) const REFUSED: u32 = 1 << 21;
    /// After this message the tunnel begins.
    pub(crate) const TO_TUNNEL: u32 = 1 << 22;
    /// After this message the agreed protocol begins.
    pub(crate) const TO_UPGRADE: u32 = 1 << 23;
    /// After this message HTTP/2 begins.
    pub(crate) const TO_HTTP2: u32 = 1 << 24;
    pub(crate) const TO_ANY: u32 = TO_TUNNEL | TO_UPGRADE | TO_HTTP2;

    pub(crate) const OF_CONNECTION: u32 = u32::MAX << 16 & !(CODED | H2C | MAY_GO_ON | MAY_BE_LOOSE | LOOSE);
}

/// The kind of a request, as far as its response's framing depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RequestKind {
    Ordinary,
    Head,
    Connect,
    /// HTTP/0.9.
    Simple,
}

/// The unanswered requests: a queue of [`PIPELINE_MAX`] entries of four bits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct UnansweredRequests {
    /// The oldest entry is in the low bits of the first word.
    entries: [u64; 2],
    /// Requests that did not fit, after those in the queue.
    untracked: u32,
    /// Entries in use.
    used: u32,
    /// Number of the next request.
    next: u32,
    reserved: [u8; 4],
}

/// Entry bit: the request has Upgrade.
const WANTS_UPGRADE: u64 = 4;

impl UnansweredRequests {
    pub(crate) fn len(&self) -> u32 {
        self.used().saturating_add(self.untracked)
    }

    /// Returns the number of the next request.
    pub(crate) fn next_number(&self) -> u32 {
        self.next
    }

    /// Appends a request; returns false if the queue is full.
    pub(crate) fn push(&mut self, asked: RequestKind) -> bool {
        self.next = self.next.wrapping_add(1);
        let at = self.used();
        // Order is kept: nothing is remembered after an untracked request.
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

    /// Marks the newest request as asking for an upgrade, unless it has been answered.
    pub(crate) fn newest_wants_upgrade(&mut self) {
        let Some(at) = self.used().checked_sub(1).filter(|_| self.untracked == 0) else { return };
        self.entries[(at / 16) as usize] |= WANTS_UPGRADE << (at % 16 * 4);
    }

    /// Returns the oldest request: its kind, whether it has Upgrade, its number.
    pub(crate) fn oldest(&self) -> Option<(RequestKind, bool, u32)> {
        if self.len() == 0 {
            return None;
        }
        let number = self.next.wrapping_sub(self.len());
        if self.used() == 0 {
            return Some((RequestKind::Ordinary, false, number));
        }
        let asked = match self.entries[0] & 3 {
            0 => RequestKind::Ordinary,
            1 => RequestKind::Head,
            2 => RequestKind::Connect,
            _ => RequestKind::Simple,
        };
        Some((asked, self.entries[0] & WANTS_UPGRADE != 0, number))
    }

    /// Removes the oldest request, which was answered.
    pub(crate) fn pop(&mut self) {
        if self.used() == 0 {
            self.untracked = self.untracked.saturating_sub(1);
            return;
        }
        self.entries[0] = self.entries[0] >> 4 | self.entries[1] << 60;
        self.entries[1] >>= 4;
        self.used = self.used() - 1;
    }

    /// Removes all but the newest request, because responses were lost.
    pub(crate) fn keep_newest(&mut self) {
        while self.used() > 0 && self.len() > 1 {
            self.pop();
        }
        self.untracked = self.untracked.min(1);
    }

    /// Returns the entries in use; valid for any state.
    fn used(&self) -> u32 {
        self.used.min(PIPELINE_MAX as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::{FixedLineBuffer, HttpEvent};

    #[test]
    fn requests_are_answered_in_their_order() {
        let mut queue = UnansweredRequests::default();
        let kinds = [RequestKind::Ordinary, RequestKind::Head, RequestKind::Connect, RequestKind::Simple];
        for i in 0..PIPELINE_MAX {
            assert!(queue.push(kinds[i % 4]));
        }
        queue.newest_wants_upgrade();
        assert!(!queue.push(RequestKind::Head));
        assert_eq!(queue.len(), PIPELINE_MAX as u32 + 1);
        for i in 0..PIPELINE_MAX {
            assert_eq!(queue.oldest(), Some((kinds[i % 4], i + 1 == PIPELINE_MAX, i as u32)));
            queue.pop();
        }
        assert!(!queue.push(RequestKind::Head), "behind one that is not remembered");
        assert_eq!(queue.oldest(), Some((RequestKind::Ordinary, false, 32)));
        queue.pop();
        queue.pop();
        assert_eq!(queue.oldest(), None);
        assert!(queue.push(RequestKind::Head));
        assert_eq!(queue.oldest(), Some((RequestKind::Head, false, 34)));
    }

    #[test]
    fn the_newest_is_kept() {
        let mut queue = UnansweredRequests::default();
        queue.push(RequestKind::Connect);
        queue.push(RequestKind::Head);
        queue.keep_newest();
        assert_eq!(queue.oldest(), Some((RequestKind::Head, false, 1)));
    }

    #[test]
    fn client_bytes_are_parsed_up_to_the_protocol_switch() {
        let cases = [
            ("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\na", "bPRI", 1),
            ("GET / HTTP/1.1\r\nHost: x\r\n", "\r\nPRI", 2),
            ("\n", "PRI", 0),
        ];
        for (begun, rest, used) in cases {
            let mut exchange = Exchange::default();
            let mut lines = [FixedLineBuffer::<99>::default(), FixedLineBuffer::default()];
            let sink = &mut |_: HttpEvent<'_>| {};
            exchange.request(begun.as_bytes(), &mut lines[0], sink);
            exchange.response(b"HTTP/1.1 101 Up\r\n\r\n", &mut lines[1], sink);
            assert_eq!(exchange.request_until_switched(rest.as_bytes(), &mut lines[0], sink), used);
            assert!(exchange.is_switched());
        }
    }

    #[test]
    fn a_client_in_resynchronisation_switches_protocol_at_once() {
        let mut exchange = Exchange::default();
        let mut lines = [FixedLineBuffer::<99>::default(), FixedLineBuffer::default()];
        let sink = &mut |_: HttpEvent<'_>| {};
        exchange.gap(ExchangeSide::Request, 1, &mut lines[0], sink);
        exchange.response(b"HTTP/1.1 101 Up\r\n\r\n", &mut lines[1], sink);
        assert!(exchange.is_switched());
    }
}
