//! What the parser tells its caller.

use crate::http::{Anomaly, Field, Method};

/// Takes the events of one direction, in the order of the bytes that they are about.
pub trait Sink {
    /// Takes one event; what it borrows is gone afterwards.
    fn event(&mut self, event: Event<'_>);
}

impl<F: FnMut(Event<'_>)> Sink for F {
    fn event(&mut self, event: Event<'_>) {
        self(event);
    }
}

/// Something that was found in one direction of a connection.
///
/// A message is told as [`Request`](Self::Request) or [`Response`](Self::Response),
/// [`Header`](Self::Header) any number of times, [`HeadersEnd`](Self::HeadersEnd),
/// [`Body`](Self::Body) and [`Trailer`](Self::Trailer) any number of times, [`End`](Self::End). A
/// message that is cut short lacks what is missing, but not its `End`. Behind the `End` of a
/// response that cannot have a body may come one all the same: [`Anomaly::UnexpectedBody`], then
/// its own events and another `End`. Each byte of a direction is in exactly one event, except for
/// line ends, chunk sizes, blank lines between messages and what a line has beyond its limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event<'a> {
    /// A request begins.
    Request(RequestLine<'a>),
    /// A response begins, an interim one too.
    Response(StatusLine<'a>),
    /// A header.
    Header(Header<'a>),
    /// The headers are complete.
    HeadersEnd(Framing),
    /// A piece of the body, without the chunked coding. Where it is cut depends on how the bytes
    /// arrived.
    Body(&'a [u8]),
    /// What stands behind a chunk's size, from its semicolon on (RFC 9112 7.1.1).
    ChunkExtension(&'a [u8]),
    /// A header behind a chunked body (RFC 9112 7.1.2).
    Trailer(Header<'a>),
    /// The message ends.
    End(End),
    /// From here on this direction is no longer HTTP/1: all that follows is
    /// [`Opaque`](Self::Opaque).
    Switched(Protocol),
    /// Bytes of another protocol. Where they are cut depends on how they arrived.
    Opaque(&'a [u8]),
    /// Bytes that are of no message: garbage between messages, the remains of a message after a
    /// gap.
    Skipped(&'a [u8]),
    /// So many bytes are lost here; how the message goes on is told by the next event.
    Gap(u64),
    /// After a gap or a broken body, the start line that follows was found by searching for one.
    Resynchronised,
    /// Something is wrong with what the event before told.
    Anomaly(Anomaly),
}

/// A request's first line (RFC 9112 3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestLine<'a> {
    /// The line as it came, without its end.
    pub raw: &'a [u8],
    /// The method's name.
    pub name: &'a [u8],
    /// The method.
    pub method: Method,
    /// The target as it came; [`crate::http::uri`] reads it.
    pub target: &'a [u8],
    /// The version as it came: empty for HTTP/0.9.
    pub protocol: &'a [u8],
    /// The version.
    pub version: Version,
    /// Number of the request in its connection: 0, 1, 2... up to 2^32.
    pub number: u32,
}

/// A response's first line (RFC 9112 4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StatusLine<'a> {
    /// The line as it came, without its end; empty for HTTP/0.9.
    pub raw: &'a [u8],
    /// The version as it came.
    pub protocol: &'a [u8],
    /// The version.
    pub version: Version,
    /// The status code as it came.
    pub code: &'a [u8],
    /// The status code; 0 if it is not a number of three digits.
    pub status: u16,
    /// The phrase behind it.
    pub reason: &'a [u8],
    /// Whether another response to the same request follows: 1xx but 101 (RFC 9110 15.2).
    pub interim: bool,
    /// Number of the request that it answers, if that was seen.
    pub answers: Option<u32>,
}

/// A header or a trailer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header<'a> {
    /// The line, with its folds and its end, as it came.
    pub raw: &'a [u8],
    /// The name as it came, without blanks around it.
    pub name: &'a [u8],
    /// The name.
    pub field: Field,
    /// The value without blanks around it; with line ends inside if it is folded, see
    /// [`Header::parts`].
    pub value: &'a [u8],
    /// Whether the value goes over several lines (RFC 9112 5.2).
    pub folded: bool,
}

impl<'a> Header<'a> {
    /// The value's lines without blanks around them: joined by single spaces, they are the value
    /// that is meant (RFC 9112 5.2).
    pub fn parts(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        self.value
            .split(|&b| b == b'\n')
            .map(|part| crate::http::token::trim(part, |b| matches!(b, b' ' | b'\t' | b'\r')))
    }
}

/// How the end of a body is found (RFC 9112 6.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    /// There is no body.
    None,
    /// It has so many bytes.
    Length(u64),
    /// It comes in chunks.
    Chunked,
    /// It goes on until the connection ends.
    UntilClose,
}

/// How a message ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// As it should.
    Complete,
    /// With the connection, before its time.
    Closed,
    /// Unknown: bytes were lost, or its framing broke.
    Lost,
}

/// What follows HTTP/1 on a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// A CONNECT's tunnel (RFC 9110 9.3.6).
    Tunnel,
    /// What the header Upgrade named, such as websocket (RFC 9110 7.8).
    Upgrade,
    /// HTTP/2: with prior knowledge, its preface is the first of the opaque bytes (RFC 9113 3.3);
    /// or because Upgrade named h2c.
    Http2,
}

/// A version of HTTP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// A line without version: HTTP/0.9.
    Http09,
    /// HTTP/1.0.
    Http10,
    /// HTTP/1.1.
    Http11,
    /// Another one, read as HTTP/1.1.
    Other,
}
