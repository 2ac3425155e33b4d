//! Events that the parser reports.

use crate::http::{FieldName, HttpAnomaly, Method};

/// A receiver of the events of one direction, in stream order.
pub trait HttpSink {
    /// Handles one event. Borrowed data is valid during the call only.
    fn event(&mut self, event: HttpEvent<'_>);
}

impl<F: FnMut(HttpEvent<'_>)> HttpSink for F {
    fn event(&mut self, event: HttpEvent<'_>) {
        self(event);
    }
}

/// An event of one direction of a connection.
///
/// The events of a message are [`Request`](Self::Request) or [`Response`](Self::Response), any
/// number of [`Header`](Self::Header), [`HeadersEnd`](Self::HeadersEnd), any number of
/// [`Body`](Self::Body) and [`Trailer`](Self::Trailer), and [`End`](Self::End). A truncated message
/// lacks the missing parts, but always has an `End`. A response that must not have a body may have
/// one after its `End`: [`HttpAnomaly::UnexpectedBody`], its own events and another `End`. Each
/// byte of a direction is in exactly one event. Exceptions are line endings, chunk sizes, blank
/// lines between messages and the truncated part of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HttpEvent<'a> {
    /// A request begins.
    Request(RequestLine<'a>),
    /// A response begins, possibly an interim one.
    Response(StatusLine<'a>),
    /// A header.
    Header(HeaderLine<'a>),
    /// The headers are complete.
    HeadersEnd(Framing),
    /// A piece of the body, without the chunked coding. Its boundaries depend on segmentation.
    Body(&'a [u8]),
    /// A chunk extension, from its semicolon on (RFC 9112 7.1.1).
    ChunkExtension(&'a [u8]),
    /// A header after a chunked body (RFC 9112 7.1.2).
    Trailer(HeaderLine<'a>),
    /// The message ends.
    End(MessageEnd),
    /// From here on this direction is no longer HTTP/1: the rest is [`Opaque`](Self::Opaque).
    Switched(SwitchedProtocol),
    /// Bytes of another protocol. Their boundaries depend on segmentation.
    Opaque(&'a [u8]),
    /// Bytes outside any message: garbage between messages, or the rest of a message after a gap.
    Skipped(&'a [u8]),
    /// The number of bytes lost here. The next event shows how the message continues.
    Gap(u64),
    /// After a gap or a broken body, the parser found the next start line by searching.
    Resynchronised,
    /// An anomaly of the previous event.
    Anomaly(HttpAnomaly),
}

/// A request line (RFC 9112 3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestLine<'a> {
    /// The raw line, without its line ending.
    pub raw: &'a [u8],
    /// The raw method.
    pub name: &'a [u8],
    /// The method.
    pub method: Method,
    /// The raw target; [`crate::http::uri`] parses it.
    pub target: &'a [u8],
    /// The raw version: empty for HTTP/0.9.
    pub protocol: &'a [u8],
    /// The version.
    pub version: HttpVersion,
    /// Number of the request in its connection, from 0, modulo 2^32.
    pub number: u32,
}

/// A status line (RFC 9112 4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StatusLine<'a> {
    /// The raw line, without its line ending; empty for HTTP/0.9.
    pub raw: &'a [u8],
    /// The raw version.
    pub protocol: &'a [u8],
    /// The version.
    pub version: HttpVersion,
    /// The raw status code.
    pub code: &'a [u8],
    /// The status code; 0 if it is not three digits.
    pub status: u16,
    /// The reason phrase.
    pub reason: &'a [u8],
    /// True for an interim response, 1xx except 101 (RFC 9110 15.2).
    pub interim: bool,
    /// Number of the request that it answers, if known.
    pub answers: Option<u32>,
}

/// A header or a trailer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeaderLine<'a> {
    /// The raw line, with its folds and its line ending.
    pub raw: &'a [u8],
    /// The raw name, without surrounding blanks.
    pub name: &'a [u8],
    /// The name.
    pub field: FieldName,
    /// The value without surrounding blanks. A folded value contains line endings, see
    /// [`HeaderLine::parts`].
    pub value: &'a [u8],
    /// True if the value spans several lines (RFC 9112 5.2).
    pub folded: bool,
}

impl<'a> HeaderLine<'a> {
    /// Returns the lines of the value without surrounding blanks. Joined by single spaces they are
    /// the unfolded value (RFC 9112 5.2).
    pub fn parts(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        self.value
            .split(|&b| b == b'\n')
            .map(|part| crate::http::token::trim(part, |b| matches!(b, b' ' | b'\t' | b'\r')))
    }
}

/// The framing of a body (RFC 9112 6.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    /// There is no body.
    None,
    /// It has this many bytes.
    Length(u64),
    /// It is chunked.
    Chunked,
    /// It extends to the end of the connection.
    UntilClose,
}

/// The end of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MessageEnd {
    /// Complete.
    Complete,
    /// The connection ended first.
    Closed,
    /// Unknown: bytes were lost, or the framing broke.
    Lost,
}

/// The protocol that follows HTTP/1 on a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SwitchedProtocol {
    /// The tunnel of a CONNECT (RFC 9110 9.3.6).
    Tunnel,
    /// The protocol in Upgrade, such as websocket (RFC 9110 7.8).
    Upgrade,
    /// HTTP/2, either with prior knowledge, so that the preface is the first of the opaque bytes
    /// (RFC 9113 3.3), or by Upgrade to h2c.
    Http2,
}

/// A version of HTTP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HttpVersion {
    /// A line without a version: HTTP/0.9.
    Http09,
    /// HTTP/1.0.
    Http10,
    /// HTTP/1.1.
    Http11,
    /// Another version, parsed as HTTP/1.1.
    Other,
}
