//! The packet that an ICMP error quotes: where its headers are, and the key of its flow.

use super::network::{self, Found, Whole};
use super::transport;
use crate::{Endpoint, FlowKey, PacketClass, Scope};

/// Where the packet that an ICMP error quotes has its headers: IP header, transport header,
/// version, protocol.
#[derive(Clone, Copy, Debug)]
pub struct EmbeddedPacket {
    /// Where its IP header begins, from the packet's first byte.
    pub l3: usize,
    /// Where its transport header begins.
    pub l4: usize,
    /// Its IP version.
    pub version: u8,
    /// Its transport protocol.
    pub protocol: u8,
    /// Whether it has a transport header: false for a later fragment.
    pub has_transport: bool,
}

/// Finds the packet that an ICMP error quotes; none if it is too short to tell its flow.
pub fn embedded(data: &[u8], icmp_l4: usize, version: u8) -> Option<EmbeddedPacket> {
    let found =
        network::parse(data, icmp_l4 + 8, version, Whole { complete: false, offloaded: true }).ok()?;
    let has_transport = found.class != PacketClass::LaterFragment;
    // The quotation holds at least 8 bytes of the transport header (RFC 792); the ports are in the
    // first 4.
    if has_transport && data.len() < found.l4 + 4 {
        return None;
    }
    Some(EmbeddedPacket { l3: found.l3, l4: found.l4, version, protocol: found.protocol, has_transport })
}

/// The key of the quoted packet's flow and whether it is reversed; none if the quotation does not
/// tell its ports.
#[cold]
pub(super) fn key(data: &[u8], error: &Found, scope: Scope, tenant: u16) -> Option<(FlowKey, bool)> {
    let quoted = embedded(data.get(..error.end)?, error.l4, error.version)?;
    if !quoted.has_transport {
        return None;
    }
    let (source, destination) = network::addresses(data, quoted.l3, quoted.version);
    let (a, b) = transport::ports(data, quoted.l4, quoted.protocol);
    let (a, b) = (Endpoint::new(source, a), Endpoint::new(destination, b));
    Some(FlowKey::new(a, b, quoted.protocol, quoted.version, scope, tenant))
}
