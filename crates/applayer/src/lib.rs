//! Parsers of application protocols, for inspection of traffic that passes by.
//!
//! - [`detect`]: the protocol, from the first bytes of either direction;
//! - [`http`]: requests and responses of a connection;
//! - [`dns`]: names, types and flags of a message;
//! - [`tls`]: hellos and certificates of a direction's stream;
//! - [`ssh`]: the greeting of a direction;
//! - [`ftp`]: commands that name somebody else's address.
//!
//! Nothing here has a clock or does I/O, and only [`tls::Certificate`] allocates. States have a
//! fixed layout and can be moved as bytes: all zero is a fresh one, any bytes are a valid one. How
//! a stream's bytes are cut into pieces changes nothing, and no bytes lead to a panic. // A29
//!
//! ```
//! use applayer::detect::{Application, Detector, Ports, Verdict};
//! use applayer::Side;
//!
//! let (mut detector, ports) = (Detector::default(), Ports { client: 40_000, server: 8022 });
//! assert_eq!(detector.stream(Side::Response, 0, b"SS", ports), Verdict::Unknown);
//! assert_eq!(detector.stream(Side::Response, 2, b"H-2.0-x\r\n", ports), Verdict::Known(Application::Ssh));
//! ```

#![forbid(unsafe_code)]

pub mod detect;
pub mod dns;
pub mod ftp;
pub mod http;
mod input;
pub mod ssh;
pub mod starttls;
pub mod tls;

/// The store for what is not complete yet, and the directions of a connection: those of the HTTP
/// parser, so that one store serves a flow whatever it speaks.
pub use http::{FixedLine, Line, Side};
