//! An incremental, passive HTTP/1 parser for requests and responses, valid or not.
//!
//! Input is in order and in pieces of any size, as TCP delivers it. [`Exchange`] holds the parser
//! state of both directions in a fixed layout that can be copied as bytes, and reports to an
//! [`HttpSink`]. Only an incomplete line is copied, to a [`LineBuffer`] of the caller's. The parser
//! has no clock, does not allocate and does no I/O.
//!
//! ```
//! use applayer::http::{Exchange, FixedLineBuffer, HttpEvent};
//!
//! let (mut exchange, mut line) = (Exchange::default(), FixedLineBuffer::<1024>::default());
//! let mut targets = Vec::new();
//! for piece in ["GET /a HT", "TP/1.1\r\nHost: example.org\r\n\r\nGET /b HTTP/1.1\r\n"] {
//!     exchange.request(piece.as_bytes(), &mut line, &mut |event: HttpEvent<'_>| {
//!         if let HttpEvent::Request(request) = event {
//!             targets.push(request.target.to_vec());
//!         }
//!     });
//! }
//! assert_eq!(targets, [b"/a", b"/b"]);
//! ```
//!
//! The parser never stops. It reports an [`HttpAnomaly`] where a message violates RFC 9110 or RFC
//! 9112, or where servers are known to disagree. Each anomaly documents its section and how parsing
//! continues. For example, RFC 9112 6.3 decides between Content-Length and Transfer-Encoding. //
//! A29
//!
//! The parser does not decode content codings such as gzip: it reports their header and the encoded
//! body.

#![forbid(unsafe_code)]

mod anomaly;
mod chunk;
mod direction;
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
mod unanswered;
pub mod uri;

pub use anomaly::{HttpAnomalies, HttpAnomaly};
pub use direction::{DirectionState, ExchangeSide};
pub use event::{
    Framing, HeaderLine, HttpEvent, HttpSink, HttpVersion, MessageEnd, RequestLine, StatusLine,
    SwitchedProtocol,
};
pub use exchange::Exchange;
pub use field::FieldName;
pub use line::{CAPACITY_MIN, FixedLineBuffer, LineBuffer};
pub use method::Method;
pub use unanswered::PIPELINE_MAX;

/// Maximum headers and trailers of a message before [`HttpAnomaly::TooManyHeaders`] is reported;
/// further ones are parsed too.
pub const HEADER_MAX: u16 = 128;

/// Maximum bytes of start line, headers and trailers together before [`HttpAnomaly::HeadTooLong`]
/// is reported; further ones are parsed too.
pub const HEAD_BYTES_MAX: u32 = 64 << 10;
