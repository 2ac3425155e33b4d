//! Events of a TLS stream.

use super::{ClientHello, ProtocolVersion, ServerHello, TlsAnomaly};
use crate::input::Input;

/// A receiver of the events of one direction, in stream order.
pub trait TlsSink {
    /// Handles one event. Borrowed data is valid during the call only.
    fn event(&mut self, event: TlsEvent<'_>);
}

impl<F: FnMut(TlsEvent<'_>)> TlsSink for F {
    fn event(&mut self, event: TlsEvent<'_>) {
        self(event);
    }
}

/// An event of one direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TlsEvent<'a> {
    /// An unencrypted record, or the first encrypted one, begins.
    Record {
        /// Content type: 20 change_cipher_spec, 21 alert, 22 handshake, 23 application_data, 24
        /// heartbeat.
        kind: u8,
        /// Its version.
        version: ProtocolVersion,
        /// Payload length in bytes.
        len: u16,
    },
    /// A ClientHello.
    ClientHello(ClientHello<'a>),
    /// A ServerHello or HelloRetryRequest.
    ServerHello(ServerHello<'a>),
    /// A certificate chain, of TLS 1.2 or earlier.
    Certificates(Certificates<'a>),
    /// Any other handshake message, by type: [`message`].
    Message(u8),
    /// An SSL 2 ClientHello with the version that it requests. Parsing continues if that is a later
    /// version.
    Ssl2ClientHello(ProtocolVersion),
    /// An SSL 2 ServerHello; parsing stops.
    Ssl2ServerHello(ProtocolVersion),
    /// The direction is encrypted from here on; parsing stops.
    Encrypted,
    /// Bytes were lost here; parsing stops.
    Lost,
    /// A violation of the standards.
    Anomaly(TlsAnomaly),
}

/// The handshake message types that rules refer to (RFC 5246 7.4).
pub mod message {
    /// ClientHello.
    pub const CLIENT_HELLO: u8 = 1;
    /// ServerHello.
    pub const SERVER_HELLO: u8 = 2;
    /// Certificate.
    pub const CERTIFICATE: u8 = 11;
    /// ServerKeyExchange.
    pub const SERVER_KEY_EXCHANGE: u8 = 12;
    /// ClientKeyExchange.
    pub const CLIENT_KEY_EXCHANGE: u8 = 16;
}

/// A certificate chain (RFC 5246 7.4.2), the sender's own first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Certificates<'a> {
    list: &'a [u8],
    is_whole: bool,
}

impl<'a> Certificates<'a> {
    /// Parses the body of a message, possibly partial.
    pub fn read(body: &'a [u8]) -> Self {
        let mut input = Input(body);
        let Some(len) = input.u24() else { return Self { list: &[], is_whole: false } };
        // A length of 24 bits fits.
        let list = input.0.get(..len as usize).unwrap_or(input.0);
        let mut chain = Self { list, is_whole: list.len() == body.len() - 3 && list.len() == len as usize };
        chain.is_whole &= chain.iter().map(|der| der.len() + 3).sum::<usize>() == list.len();
        chain
    }

    /// Returns each whole certificate as sent (DER).
    pub fn iter(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let mut input = Input(self.list);
        std::iter::from_fn(move || {
            let len = input.u24()?;
            input.take(len as usize)
        })
    }

    /// Returns whether all lengths agree.
    pub fn is_whole(&self) -> bool {
        self.is_whole
    }
}
