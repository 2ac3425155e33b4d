//! The state of a connection: two directions, and the unanswered requests.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::http::direction::{DirectionState, ExchangeSide, Phase, flag};
use crate::http::reader::DirectionParser;
use crate::http::unanswered::UnansweredRequests;
use crate::http::{HttpSink, LineBuffer};

/// The parser state of one connection, of fixed layout: it can be copied as bytes, and all zeros is
/// the initial state.
///
/// Pass the bytes of each direction in order, in pieces of any size. Segmentation changes only the
/// boundaries of body and opaque events. Pass the directions in order of arrival: a response's
/// framing depends on its request's method. Any bytes are a valid state: a wrong one leads to wrong
/// events, never to a panic.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::{FixedLineBuffer, HttpEvent};

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
