//! The packet quoted in an ICMP error: its headers and the key of its flow.

use super::found::{Found, Whole};
use super::network;
use super::transport;
use crate::{Endpoint, FlowKey, PacketClass, Scope};

/// The headers of the packet quoted in an ICMP error.
#[derive(Clone, Copy, Debug)]
pub struct EmbeddedPacket {
    /// Offset of its IP header from the packet's first byte.
    pub l3: usize,
    /// Offset of its transport header.
    pub l4: usize,
    /// Its IP version.
    pub version: u8,
    /// Its transport protocol.
    pub protocol: u8,
    /// Unset for a later fragment, which has no transport header.
    pub has_transport: bool,
}

/// Finds the packet quoted in an ICMP error; `None` if it is too short to identify its flow.
pub fn embedded(data: &[u8], icmp_l4: usize, version: u8) -> Option<EmbeddedPacket> {
    let found =
        network::parse(data, icmp_l4 + 8, version, Whole { complete: false, offloaded: true }).ok()?;
    let has_transport = found.class != PacketClass::LaterFragment;
    // The quotation has at least 8 bytes of the transport header (RFC 792); the ports are in the
    // first 4.
    if has_transport && data.len() < found.l4 + 4 {
        return None;
    }
    Some(EmbeddedPacket { l3: found.l3, l4: found.l4, version, protocol: found.protocol, has_transport })
}

/// Returns the key of the quoted packet's flow, and true if it is reversed. `None` if the ports are
/// not quoted.
#[cold]
pub(super) fn key(data: &[u8], error: &Found, scope: Scope, place: u16) -> Option<(FlowKey, bool)> {
    let quoted = embedded(data.get(..error.end)?, error.l4, error.version)?;
    if !quoted.has_transport {
        return None;
    }
    let (source, destination) = network::addresses(data, quoted.l3, quoted.version);
    let (a, b) = transport::ports(data, quoted.l4, quoted.protocol);
    let (a, b) = (Endpoint::new(source, a), Endpoint::new(destination, b));
    Some(FlowKey::new(a, b, quoted.protocol, quoted.version, scope, place))
}
