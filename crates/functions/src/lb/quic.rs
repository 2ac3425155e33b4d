//! QUIC: routing by connection ID to the server that issued it (RFC 8999, RFC 9000 5.1 and 17,
//! draft-ietf-quic-load-balancers).
//!
//! A client's address and port may change within a connection; its packets then seem to begin
//! another flow. The destination connection ID identifies the server in one of two ways: it
//! contains the server's ID, or it was seen in the clear in the server's first packets. A client
//! that migrates on purpose uses a connection ID that was exchanged under encryption; then only
//! server IDs help.

use nf::{Context, Meters};

use super::config::{ServerAffinity, ServerConfig};

/// Maximum length of a connection ID of versions 1 and 2 (RFC 9000 17.2).
pub const CID_MAX: usize = 20;

/// Maximum number of remembered connection IDs. A new one replaces the oldest that was unused for
/// [`FORGET_NS`].
pub const CONNECTIONS_MAX: u32 = 65_536;

/// Minimum time without lookups, in nanoseconds, before a connection ID may be forgotten.
pub const FORGET_NS: u64 = 600_000_000_000;

/// Bytes of a short header's connection ID to hash, if no server has revealed the length of its
/// IDs.
const CID_LEN: usize = 8;

/// Index of the meter table in the descriptor.
const CONNECTIONS: usize = 0;

/// The unencrypted part of a QUIC packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuicPacket<'p> {
    /// Long header, during connection setup.
    Long {
        /// Destination connection ID.
        destination: &'p [u8],
        /// Source connection ID.
        source: &'p [u8],
    },
    /// Short header: the destination connection ID and the bytes after it. Only the server knows
    /// the ID's length.
    Short(&'p [u8]),
}

impl<'p> QuicPacket<'p> {
    /// Reads a UDP payload; none if it cannot be QUIC.
    pub fn read(payload: &'p [u8]) -> Option<QuicPacket<'p>> {
        let (&first, rest) = payload.split_first()?;
        if first & 0x80 == 0 {
            return (!rest.is_empty()).then_some(QuicPacket::Short(rest));
        }
        let (_version, rest) = rest.split_at_checked(4)?;
        let (destination, rest) = connection_id(rest)?;
        let (source, _) = connection_id(rest)?;
        Some(QuicPacket::Long { destination, source })
    }
}

fn connection_id(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (&len, rest) = bytes.split_first()?;
    (usize::from(len) <= CID_MAX).then(|| rest.split_at_checked(len.into())).flatten()
}

/// The servers of a service by server ID.
#[derive(Clone, Debug, Default)]
pub struct ServerIds {
    len: usize,
    /// Sorted by ID.
    servers: Vec<(Box<[u8]>, u16)>,
}

impl ServerIds {
    /// Collects the IDs of a service's servers, which are numbered from `first`.
    pub fn of(servers: &[ServerConfig], first: usize) -> ServerIds {
        let mut servers: Vec<(Box<[u8]>, u16)> = (first..)
            .zip(servers)
            .filter_map(|(number, server)| Some((server.quic_id.as_ref()?.0.clone(), number as u16)))
            .collect();
        servers.sort_unstable();
        ServerIds { len: servers.first().map_or(0, |(id, _)| id.len()), servers }
    }

    /// Returns the server that this connection ID names, in the clear after the first byte.
    fn find(&self, cid: &[u8]) -> Option<u16> {
        // 0b111: the server could not encode its ID (draft 3.2).
        if self.len == 0 || cid.first()? >> 5 == 0b111 {
            return None;
        }
        let id = cid.get(1..=self.len)?;
        let at = self.servers.binary_search_by(|(own, _)| (**own).cmp(id)).ok()?;
        Some(self.servers[at].1)
    }
}

/// Route of a flow's first packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuicRoute {
    /// Continues a connection of this server.
    Server(u16),
    /// Begins a connection, or continues an unknown one: hash this instead of the ports.
    Key {
        /// Words of the connection ID.
        words: [u64; 3],
        /// True if the packet continues a connection.
        goes_on: bool,
    },
}

/// Returns the route of a client's packet to service `service`; none if it is not QUIC.
pub fn route(payload: &[u8], service: u16, ids: &ServerIds, context: &mut Context<'_>) -> Option<QuicRoute> {
    let (cid, goes_on) = match QuicPacket::read(payload)? {
        QuicPacket::Long { destination, .. } => (destination, false),
        QuicPacket::Short(rest) => (rest, true),
    };
    if let Some(server) = ids.find(cid) {
        return Some(QuicRoute::Server(server));
    }
    let now_ns = context.now_ns();
    let known = context.meters(CONNECTIONS);
    let lens = if goes_on { lens(known, service) } else { 1 << cid.len() };
    let lens = (1..=CID_MAX).filter(|len| lens >> len & 1 == 1);
    let found =
        lens.clone().filter_map(|len| cid.get(..len)).find_map(|cid| find(known, service, cid, now_ns));
    if let Some(server) = found {
        return Some(QuicRoute::Server(server));
    }
    let len = if goes_on { lens.min().unwrap_or(CID_LEN).min(cid.len()) } else { cid.len() };
    Some(QuicRoute::Key { words: words(&cid[..len]), goes_on })
}

/// Learns the connection ID that a server issues in this packet. Returns false once there is
/// nothing more to learn.
pub fn learn(payload: &[u8], service: u16, server: u16, context: &mut Context<'_>) -> bool {
    let Some(QuicPacket::Long { source, .. }) = QuicPacket::read(payload) else { return false };
    if source.is_empty() {
        return true;
    }
    let now_ns = context.now_ns();
    let known = context.meters(CONNECTIONS);
    if let Some(lens) = known.of(&lens_key(service), now_ns, u64::MAX) {
        lens[0] |= 1 << source.len();
    }
    if let Some(value) = known.of(&key(service, source), now_ns, FORGET_NS) {
        value[0] = u64::from(server) + 1;
    }
    true
}

fn find(known: &mut Meters, service: u16, cid: &[u8], now_ns: u64) -> Option<u16> {
    let key = key(service, cid);
    known.get(&key)?;
    // It is in use, so others are forgotten first.
    let &mut [server, ..] = known.of(&key, now_ns, FORGET_NS)?;
    server.checked_sub(1).map(|server| server as u16)
}

/// Returns the lengths of the connection IDs that the service's servers issued, as a bitmap.
fn lens(known: &Meters, service: u16) -> u64 {
    known.get(&lens_key(service)).map_or(0, |&[lens, ..]| lens)
}

fn lens_key(service: u16) -> [u64; 4] {
    [u64::from(service) | 1 << 32, 0, 0, 0]
}

fn key(service: u16, cid: &[u8]) -> [u64; 4] {
    let [a, b, c] = words(cid);
    [u64::from(service) | (cid.len() as u64) << 16, a, b, c]
}

fn words(cid: &[u8]) -> [u64; 3] {
    let mut bytes = [0; 24];
    bytes[..cid.len()].copy_from_slice(cid); // At most 20 bytes: callers truncate it.
    let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| bytes[at + i]));
    [word(0), word(8), word(16)]
}

/// Returns whether any service follows connection IDs.
pub fn is_wanted(affinities: impl IntoIterator<Item = ServerAffinity>) -> bool {
    affinities.into_iter().any(|affinity| affinity == ServerAffinity::Quic)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_read_as_far_as_they_are_in_the_clear() {
        let initial = [&[0xc3, 0, 0, 0, 1, 4, 1, 2, 3, 4, 2, 8, 9][..], &[0; 40]].concat();
        let want = QuicPacket::Long { destination: &[1, 2, 3, 4], source: &[8, 9] };
        assert_eq!(QuicPacket::read(&initial), Some(want));
        assert_eq!(QuicPacket::read(&[0x40, 7, 7]), Some(QuicPacket::Short(&[7, 7])));
        for short in 0..13 {
            let cut = QuicPacket::read(&initial[..short]);
            assert!(cut.is_none(), "{short}: {cut:?}");
        }
        let long_id = [&[0xc3, 0, 0, 0, 1, 21][..], &[0; 60]].concat();
        assert_eq!(QuicPacket::read(&long_id), None);
        assert_eq!((QuicPacket::read(&[]), QuicPacket::read(&[0x40])), (None, None));
    }

    #[test]
    fn words_tell_connection_ids_apart() {
        let of = |len: usize| key(1, &[7; CID_MAX][..len]);
        let all: std::collections::BTreeSet<_> = (0..=CID_MAX).map(of).chain([lens_key(1)]).collect();
        assert_eq!(all.len(), CID_MAX + 2);
    }
}
