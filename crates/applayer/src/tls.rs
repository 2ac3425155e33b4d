//! The unencrypted part of TLS and SSL: hellos and certificates (RFC 8446, RFC 5246).
//!
//! [`TlsStream`] parses one direction. It reassembles handshake messages from records, in the
//! caller's [`LineBuffer`](crate::LineBuffer), and reports [`TlsEvent`]s. [`Certificate`] parses a
//! reported certificate on demand.

mod anomaly;
mod certificate;
mod event;
mod hello;
mod ja3;
mod stream;
mod version;

pub use anomaly::TlsAnomaly;
pub use certificate::{ALTERNATIVE_NAMES_MAX, Certificate, Fingerprint, UnreadableCertificate};
pub use event::{Certificates, TlsEvent, TlsSink, message};
pub use hello::{ClientHello, ServerHello};
pub use ja3::{ja3, ja3_hash, ja3s};
pub use stream::TlsStream;
pub use version::ProtocolVersion;

/// Maximum bytes of a handshake message that is parsed whole, and the recommended capacity of the
/// [`LineBuffer`](crate::LineBuffer). The capacity is the limit: a longer message is truncated.
pub const MESSAGE_BYTES_MAX: usize = 16 << 10;

/// Maximum payload of a record (RFC 5246 6.2.3), in bytes; a longer record is not TLS.
pub const RECORD_BYTES_MAX: u16 = (16 << 10) + 2048;
