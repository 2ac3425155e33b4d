//! What is told of a stream.

use std::fmt;

use super::{Anomaly, ClientHello, ServerHello};
use crate::input::Input;

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

/// Something that was found in one direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event<'a> {
    /// A record begins that is not encrypted, or the first that is.
    Record {
        /// Its content: 20 change of ciphers, 21 alert, 22 handshake, 23 data, 24 heartbeat.
        kind: u8,
        /// Its version.
        version: Version,
        /// Bytes of its payload.
        len: u16,
    },
    /// A client's hello.
    ClientHello(ClientHello<'a>),
    /// A server's hello, or its wish for another hello.
    ServerHello(ServerHello<'a>),
    /// A chain of certificates, of TLS 1.2 or before.
    Certificates(Certificates<'a>),
    /// Any other message of the handshake: [`message`].
    Message(u8),
    /// A client's hello in the form of SSL 2, with the version that it asks for; what follows is
    /// read if that is a later one.
    Ssl2ClientHello(Version),
    /// A server's hello of SSL 2; what follows is not read.
    Ssl2ServerHello(Version),
    /// From here on the direction is encrypted: nothing more is read.
    Encrypted,
    /// Bytes are lost here: nothing more is read.
    Lost,
    /// Something is wrong.
    Anomaly(Anomaly),
}

/// The types of handshake messages that rules ask for, by their numbers (RFC 5246 7.4).
pub mod message {
    /// A client's hello.
    pub const CLIENT_HELLO: u8 = 1;
    /// A server's hello.
    pub const SERVER_HELLO: u8 = 2;
    /// A chain of certificates.
    pub const CERTIFICATE: u8 = 11;
    /// The server's part of the key exchange.
    pub const SERVER_KEY_EXCHANGE: u8 = 12;
    /// The client's part of the key exchange.
    pub const CLIENT_KEY_EXCHANGE: u8 = 16;
}

/// A version as it is sent: 0x0002 SSL 2, 0x0300 SSL 3, 0x0301 TLS 1.0 to 0x0304 TLS 1.3.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Version(pub u16);

impl Version {
    /// SSL 2.
    pub const SSL_2: Self = Self(0x0002);
    /// SSL 3 (RFC 6101).
    pub const SSL_3: Self = Self(0x0300);
    /// TLS 1.0 (RFC 2246).
    pub const TLS_10: Self = Self(0x0301);
    /// TLS 1.1 (RFC 4346).
    pub const TLS_11: Self = Self(0x0302);
    /// TLS 1.2 (RFC 5246).
    pub const TLS_12: Self = Self(0x0303);
    /// TLS 1.3 (RFC 8446).
    pub const TLS_13: Self = Self(0x0304);

    /// Whether it is none, but keeps others from relying on those that there are (RFC 8701).
    pub fn is_grease(self) -> bool {
        self.0 & 0x0f0f == 0x0a0a && self.0 >> 8 == self.0 & 0xff
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::SSL_2 => f.write_str("SSLv2"),
            Self::SSL_3 => f.write_str("SSLv3"),
            Self::TLS_10 => f.write_str("TLS 1.0"),
            Self::TLS_11 => f.write_str("TLS 1.1"),
            Self::TLS_12 => f.write_str("TLS 1.2"),
            Self::TLS_13 => f.write_str("TLS 1.3"),
            Self(other) => write!(f, "0x{other:04x}"),
        }
    }
}

/// A chain of certificates (RFC 5246 7.4.2): the sender's own first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Certificates<'a> {
    list: &'a [u8],
    is_whole: bool,
}

impl<'a> Certificates<'a> {
    /// Reads a message's body, or what there is of it.
    pub fn read(body: &'a [u8]) -> Self {
        let mut input = Input(body);
        let Some(len) = input.u24() else { return Self { list: &[], is_whole: false } };
        // A length of 24 bits fits.
        let list = input.0.get(..len as usize).unwrap_or(input.0);
        let mut chain = Self { list, is_whole: list.len() == body.len() - 3 && list.len() == len as usize };
        chain.is_whole &= chain.iter().map(|der| der.len() + 3).sum::<usize>() == list.len();
        chain
    }

    /// Each certificate as it was sent (DER); one that is cut is left out.
    pub fn iter(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let mut input = Input(self.list);
        std::iter::from_fn(move || {
            let len = input.u24()?;
            input.take(len as usize)
        })
    }

    /// Whether all lengths agree.
    pub fn is_whole(&self) -> bool {
        self.is_whole
    }
}
