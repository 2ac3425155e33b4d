//! The header of a datagram. The crate's page has its layout.

use crate::keys::TAG_LEN;

/// The version of the wire layout.
pub const VERSION: u8 = 1;

/// Length of a datagram's header.
pub const HEADER_LEN: usize = 18;

/// Bytes of a datagram that are not frames.
pub const DATAGRAM_OVERHEAD: usize = HEADER_LEN + TAG_LEN;

/// Length of the longest datagram: the payload of UDP over IPv4.
pub const DATAGRAM_MAX: usize = 65_507;

/// A datagram's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) version: u8,
    pub(crate) phase: u8,
    pub(crate) connection: u64,
    pub(crate) number: u64,
}

impl Header {
    /// Reads a header; none if the bytes are too few.
    #[inline]
    pub(crate) fn parse(bytes: &[u8]) -> Option<Header> {
        let (&[version, phase], rest) = bytes.split_first_chunk()?;
        let (&connection, rest) = rest.split_first_chunk()?;
        let (&number, _) = rest.split_first_chunk()?;
        let (connection, number) = (u64::from_be_bytes(connection), u64::from_be_bytes(number));
        Some(Header { version, phase, connection, number })
    }

    #[inline]
    pub(crate) fn write(self, out: &mut [u8; HEADER_LEN]) {
        out[..2].copy_from_slice(&[self.version, self.phase]);
        out[2..10].copy_from_slice(&self.connection.to_be_bytes());
        out[10..].copy_from_slice(&self.number.to_be_bytes());
    }
}

/// Returns the connection id of a datagram; none if it is too short. A socket with several links
/// selects the link with this [`PeerLink::receive_id`](crate::PeerLink::receive_id). Nothing about
/// the datagram is verified.
#[must_use]
pub fn connection_of(datagram: &[u8]) -> Option<u64> {
    Header::parse(datagram).map(|header| header.connection)
}
