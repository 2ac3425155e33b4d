//! An incremental HTTP/1 parser for what passes by: requests and responses as they are, right or
//! wrong.
//!
//! Bytes come in their order and in pieces of any size, as TCP delivers them; [`Exchange`] keeps
//! where in a message each direction of a connection is, in bytes of fixed layout that can be
//! moved, and tells a [`Sink`] what it finds. Only a line that is not complete yet is copied, to a
//! [`Line`] of the caller's. There is no clock, no allocation, no I/O.
//!
//! ```
//! use applayer::http::{Event, Exchange, FixedLine};
//!
//! let (mut exchange, mut line) = (Exchange::default(), FixedLine::<1024>::default());
//! let mut targets = Vec::new();
//! for piece in ["GET /a HT", "TP/1.1\r\nHost: example.org\r\n\r\nGET /b HTTP/1.1\r\n"] {
//!     exchange.request(piece.as_bytes(), &mut line, &mut |event: Event<'_>| {
//!         if let Event::Request(request) = event {
//!             targets.push(request.target.to_vec());
//!         }
//!     });
//! }
//! assert_eq!(targets, [b"/a", b"/b"]);
//! ```
//!
//! The parser never stops. What the standard (RFC 9110, RFC 9112) forbids, or what servers are
//! known to read in different ways, is told as an [`Anomaly`], each with its section and with how
//! the parser goes on: where Content-Length and Transfer-Encoding contradict each other, for
//! example, RFC 9112 6.3 decides. // A29
//!
//! Content codings (gzip and others) are not undone: their header is told, and the body as it came.

#![forbid(unsafe_code)]

mod anomaly;
mod chunk;
mod event;
mod exchange;
mod field;
mod gather;
mod head;
mod line;
mod method;
mod opening;
mod reader;
mod start;
mod token;
pub mod uri;

pub use anomaly::{Anomalies, Anomaly};
pub use event::{End, Event, Framing, Header, Protocol, RequestLine, Sink, StatusLine, Version};
pub use exchange::{Exchange, Half, PIPELINE_MAX, Side};
pub use field::Field;
pub use line::{CAPACITY_MIN, FixedLine, Line};
pub use method::Method;

/// Most headers and trailers of a message before [`Anomaly::TooManyHeaders`] is told; further ones
/// are read as well.
pub const HEADER_MAX: u16 = 128;

/// Most bytes of a message's start line, headers and trailers together before
/// [`Anomaly::HeadTooLong`] is told; further ones are read as well.
pub const HEAD_BYTES_MAX: u32 = 64 << 10;
