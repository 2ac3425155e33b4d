//! Parsers of application protocols for passive traffic inspection.
//!
//! - [`detect`]: detects the protocol from the first bytes of either direction;
//! - [`http`]: parses requests and responses of a connection;
//! - [`dns`]: parses names, types and flags of a message;
//! - [`tls`]: parses hellos and certificates in one direction of a stream;
//! - [`ssh`]: parses the identification string of one direction;
//! - [`ftp`]: finds commands that name a third party's address;
//! - [`smtp`]: finds mails among a client's commands.
//!
//! The parsers have no clock and do no I/O. Only [`tls::Certificate`] allocates. States have a
//! fixed layout and can be copied as bytes: all zeros is the initial state, and any bytes are a
//! valid one. Segmentation does not change the result, and no input panics. // A29
//!
//! ```
//! use applayer::detect::{AppProtocol, Detection, Detector, FlowPorts};
//! use applayer::ExchangeSide;
//!
//! let (mut detector, ports) = (Detector::default(), FlowPorts { client: 40_000, server: 8022 });
//! assert_eq!(detector.stream(ExchangeSide::Response, 0, b"SS", ports), Detection::Unknown);
//! assert_eq!(
//!     detector.stream(ExchangeSide::Response, 2, b"H-2.0-x\r\n", ports),
//!     Detection::Known(AppProtocol::Ssh)
//! );
//! ```

#![forbid(unsafe_code)]

pub mod detect;
pub mod dns;
pub mod ftp;
pub mod http;
mod input;
pub mod smtp;
pub mod ssh;
pub mod starttls;
pub mod tls;

/// The line buffers and the sides of a connection. All parsers share those of the HTTP parser, so
/// one buffer serves a flow of any protocol.
pub use http::{ExchangeSide, FixedLineBuffer, LineBuffer};
