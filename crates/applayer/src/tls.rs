//! What TLS and SSL say before they are encrypted: hellos and certificates (RFC 8446, RFC 5246).
//!
//! [`Stream`] reads one direction: it puts handshake messages together over records, in a
//! [`Line`](crate::Line) of the caller's, and tells [`Event`]s. [`Certificate`] reads a certificate
//! that was told, if somebody asks.

mod anomaly;
mod certificate;
mod event;
mod hello;
mod stream;

pub use anomaly::Anomaly;
pub use certificate::{ALTERNATIVE_NAMES_MAX, Certificate, Fingerprint, UnreadableCertificate};
pub use event::{Certificates, Event, Sink, Version, message};
pub use hello::{ClientHello, ServerHello};
pub use stream::Stream;

/// Longest handshake message that is read whole, in bytes, and so the room that a
/// [`Line`](crate::Line) should have. The line's capacity is the limit: of a longer message, its
/// beginning is read.
pub const MESSAGE_BYTES_MAX: usize = 16 << 10;

/// Longest payload of a record (RFC 5246 6.2.3), in bytes; a longer one is no TLS.
pub const RECORD_BYTES_MAX: u16 = (16 << 10) + 2048;
