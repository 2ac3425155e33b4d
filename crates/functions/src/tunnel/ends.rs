//! Outer headers of a tunnel: written before outgoing packets, and recognised on received ones.

use std::net::IpAddr;

use packet::parse::protocol;
use packet::{Addr, DropReason, OuterHeaders};
use values::ConfigError;

use super::config::{Config, EncapProtocol, OuterDscp, StationMac, UdpChecksum};
use crate::headers::{InnerHeader, OuterPayload};

/// UDP port of VXLAN (RFC 7348 5).
pub const VXLAN_PORT: u16 = 4789;

/// UDP port of Geneve (RFC 8926 3.3).
pub const GENEVE_PORT: u16 = 6081;

/// Length of the longest outer headers: IPv6, UDP, VXLAN or Geneve, and Ethernet.
pub const HEADERS_MAX: usize = 40 + UDP_LEN + VIRTUAL_LEN + ETHERNET_LEN;

/// Minimum of [`Config::mtu`]: the longest headers plus IPv6's minimum MTU (RFC 8200 5).
pub const MTU_MIN: u16 = 1280 + HEADERS_MAX as u16;

const UDP_LEN: usize = 8;
/// Length of a VXLAN header, and of a Geneve header without options.
const VIRTUAL_LEN: usize = 8;
const ETHERNET_LEN: usize = 14;

const IPV4: [u8; 2] = [0x08, 0x00];
const IPV6: [u8; 2] = [0x86, 0xdd];
/// Transparent Ethernet bridging: the payload is an Ethernet frame.
const ETHERNET: [u8; 2] = [0x65, 0x58];

/// GRE flags of optional fields (RFC 2784 2.1, RFC 2890 2). All other flags must be 0.
const GRE_KEY: u16 = 0x2000;
const GRE_SEQUENCE: u16 = 0x1000;

/// Both ends of a tunnel, with its outer headers.
pub struct TunnelEnds {
    protocol: EncapProtocol,
    local: Addr,
    remote: Addr,
    /// Key or VNI, which separates tunnels between the same ends.
    key: Option<u32>,
    /// Outer headers of IPv4 and of IPv6 packets, without the flow's entropy.
    outers: [OuterHeaders; 2],
    /// Length of the longest inner packet that fits the path MTU.
    inner_mtu: u16,
}

/// Result of matching a received packet with a tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TunnelMatch {
    /// The packet has no headers of this tunnel.
    Other,
    /// The packet has this tunnel's headers, of this length. An IP packet should follow.
    Headers(usize),
}

impl TunnelEnds {
    /// Builds the headers from the configuration.
    ///
    /// # Errors
    /// A value is invalid, or incompatible with others.
    pub fn new(config: &Config) -> Result<TunnelEnds, ConfigError> {
        check(config)?;
        let (local, remote) = (Addr::from(config.local), Addr::from(config.remote));
        let outer = |ether_type| outer(config, local, remote, ether_type);
        let outers = [outer(IPV4)?, outer(IPV6)?];
        Ok(TunnelEnds {
            protocol: config.protocol,
            local,
            remote,
            key: if is_virtual(config.protocol) { config.vni } else { config.key },
            // At most 70, which is below the minimum MTU.
            inner_mtu: config.mtu - outers[0].header_len() as u16,
            outers,
        })
    }

    /// Returns the outer address of this end.
    pub fn local(&self) -> Addr {
        self.local
    }

    /// Returns the length of the longest inner packet that fits the path MTU.
    pub fn inner_mtu(&self) -> u16 {
        self.inner_mtu
    }

    /// Returns the IP version of outer headers.
    pub fn version(&self) -> u8 {
        self.local.version()
    }

    /// Returns the length of outer headers.
    pub fn header_len(&self) -> usize {
        self.outers[0].header_len()
    }

    /// Returns the outer headers of a packet of IP version `version`, in a flow with this entropy.
    pub fn outer(&self, version: u8, entropy: u32) -> OuterHeaders {
        self.outers[usize::from(version != 4)].with_entropy(entropy)
    }

    /// Matches the headers of a received packet, which begins with its outermost IP header and has
    /// these addresses.
    ///
    /// # Errors
    /// The drop reason of a packet that is for this end of the tunnel, but did not come from the
    /// other end or cannot be decapsulated.
    pub fn match_headers(
        &self,
        packet: &[u8],
        source: Addr,
        destination: Addr,
    ) -> Result<TunnelMatch, DropReason> {
        let Some(carried) = OuterPayload::of(packet) else { return Ok(TunnelMatch::Other) };
        if destination != self.local || !self.is_ours(packet, &carried) {
            return Ok(TunnelMatch::Other);
        }
        if source != self.remote {
            return Err(DropReason::TunnelPeer);
        }
        if carried.is_fragment {
            return Err(DropReason::TunnelFragment);
        }
        let payload = packet.get(carried.at..).ok_or(DropReason::TunnelMalformed)?;
        let EncapHeader { key, len, ether_type } = self.encap_header(carried.protocol, payload)?;
        if key != self.key {
            return Err(DropReason::TunnelKey);
        }
        Ok(TunnelMatch::Headers(carried.at + len + self.frame_len(ether_type, payload.get(len..))?))
    }

    /// Returns whether an inner packet is a keepalive of the other end: from this end's outer
    /// address to the other's, GRE with protocol 0, as Cisco IOS defined it.
    pub fn is_keepalive(&self, inner: &[u8]) -> bool {
        let (Some(header), Some(carried)) = (InnerHeader::of(inner), OuterPayload::of(inner)) else {
            return false;
        };
        self.protocol == EncapProtocol::Gre
            && (header.source, header.destination) == (self.local, self.remote)
            && carried.protocol == protocol::GRE
            && !carried.is_fragment
            && inner.get(carried.at + 2..carried.at + 4) == Some(&[0, 0])
    }

    /// Returns whether the visible payload is of this tunnel's protocol.
    fn is_ours(&self, packet: &[u8], carried: &OuterPayload) -> bool {
        let to_port = |port: u16| {
            // A later fragment has no port. Only the tunnel's peer is likely to send one to this
            // end.
            carried.protocol == protocol::UDP
                && (carried.is_fragment
                    || packet.get(carried.at + 2..carried.at + 4) == Some(&port.to_be_bytes()[..]))
        };
        match self.protocol {
            EncapProtocol::Gre => carried.protocol == protocol::GRE,
            EncapProtocol::Ipip => matches!(carried.protocol, protocol::IPV4 | protocol::IPV6),
            EncapProtocol::Vxlan => to_port(VXLAN_PORT),
            EncapProtocol::Geneve => to_port(GENEVE_PORT),
        }
    }

    /// Reads the headers between the outer IP header and the inner frame or packet.
    fn encap_header(&self, carried: u8, bytes: &[u8]) -> Result<EncapHeader, DropReason> {
        let found = match self.protocol {
            EncapProtocol::Ipip => Some(EncapHeader {
                key: None,
                len: 0,
                ether_type: if carried == protocol::IPV4 { IPV4 } else { IPV6 },
            }),
            EncapProtocol::Gre => EncapHeader::of_gre(bytes),
            EncapProtocol::Vxlan => bytes.get(UDP_LEN..).and_then(EncapHeader::of_vxlan),
            EncapProtocol::Geneve => bytes.get(UDP_LEN..).and_then(EncapHeader::of_geneve),
        };
        found.ok_or(DropReason::TunnelMalformed)
    }

    /// Returns the length of the Ethernet header; 0 if the protocol has none.
    fn frame_len(&self, ether_type: [u8; 2], frame: Option<&[u8]>) -> Result<usize, DropReason> {
        let is_ip = |ether_type: [u8; 2]| matches!(ether_type, IPV4 | IPV6);
        if is_ip(ether_type) && self.protocol != EncapProtocol::Vxlan {
            return Ok(0);
        }
        let within = frame.and_then(|frame| frame.get(12..ETHERNET_LEN)).unwrap_or_default();
        let is_plain = ether_type == ETHERNET && (within == IPV4 || within == IPV6);
        if is_plain { Ok(ETHERNET_LEN) } else { Err(DropReason::TunnelMalformed) }
    }
}

/// The headers before the inner frame or packet.
struct EncapHeader {
    key: Option<u32>,
    len: usize,
    ether_type: [u8; 2],
}

impl EncapHeader {
    /// Reads GRE (RFC 2784 2, RFC 2890 2). Refuses checksums: functions change the data that they
    /// cover.
    fn of_gre(bytes: &[u8]) -> Option<EncapHeader> {
        let &[high, low, a, b] = bytes.first_chunk()?;
        let flags = u16::from_be_bytes([high, low]);
        if flags & !(GRE_KEY | GRE_SEQUENCE) != 0 {
            return None;
        }
        let (mut len, mut key) = (4, None);
        if flags & GRE_KEY != 0 {
            key = Some(u32::from_be_bytes(*bytes.get(4..)?.first_chunk()?));
            len += 4;
        }
        if flags & GRE_SEQUENCE != 0 {
            len += 4;
        }
        Some(EncapHeader { key, len, ether_type: [a, b] })
    }

    /// Reads VXLAN and ignores reserved bits (RFC 7348 5).
    fn of_vxlan(bytes: &[u8]) -> Option<EncapHeader> {
        let &[flags, _, _, _, a, b, c, _] = bytes.first_chunk()?;
        let key = Some(u32::from_be_bytes([0, a, b, c]));
        (flags & 0x08 != 0).then_some(EncapHeader { key, len: UDP_LEN + VIRTUAL_LEN, ether_type: ETHERNET })
    }

    /// Reads Geneve (RFC 8926 3.4). Skips options, but refuses critical ones and control packets.
    fn of_geneve(bytes: &[u8]) -> Option<EncapHeader> {
        let &[first, flags, a, b, x, y, z, _] = bytes.first_chunk()?;
        let options = usize::from(first & 0x3f) * 4;
        let key = Some(u32::from_be_bytes([0, x, y, z]));
        (first >> 6 == 0 && flags & 0xc0 == 0).then_some(EncapHeader {
            key,
            len: UDP_LEN + VIRTUAL_LEN + options,
            ether_type: [a, b],
        })
    }
}

fn is_virtual(protocol: EncapProtocol) -> bool {
    matches!(protocol, EncapProtocol::Vxlan | EncapProtocol::Geneve)
}

/// Builds the outer headers of packets with this EtherType.
fn outer(
    config: &Config,
    local: Addr,
    remote: Addr,
    ether_type: [u8; 2],
) -> Result<OuterHeaders, ConfigError> {
    let mut outer = OuterHeaders::new(local, remote, config.ttl, 0);
    if let OuterDscp::Of(dscp) = config.dscp {
        outer = outer.with_dscp(dscp);
    }
    let has_checksum = match config.udp_checksum {
        UdpChecksum::Auto => !local.is_v4(),
        UdpChecksum::Always => true,
        UdpChecksum::Never => false,
    };
    let frame = || -> Vec<u8> {
        let mac = |mac: Option<StationMac>| mac.map(|mac| mac.0.0).unwrap_or_default();
        [&mac(config.remote_mac)[..], &mac(config.local_mac), &ether_type].concat()
    };
    let vni = (config.vni.unwrap_or(0) << 8).to_be_bytes();
    let made = match config.protocol {
        EncapProtocol::Ipip => Ok(outer),
        EncapProtocol::Gre => {
            let flags = if config.key.is_some() { GRE_KEY } else { 0 };
            let key = config.key.map(u32::to_be_bytes);
            let key = key.as_ref().map_or(&[][..], |key| &key[..]);
            let shim = [&flags.to_be_bytes()[..], &ether_type, key].concat();
            outer.with_shim(protocol::GRE, &shim)
        }
        EncapProtocol::Vxlan => {
            let shim = [&[0x08, 0, 0, 0][..], &vni, &frame()].concat();
            outer.over_udp(VXLAN_PORT, has_checksum).with_shim(0, &shim)
        }
        EncapProtocol::Geneve => {
            let shim = [&[0, 0][..], &ETHERNET, &vni, &frame()].concat();
            outer.over_udp(GENEVE_PORT, has_checksum).with_shim(0, &shim)
        }
    };
    made.map_err(|error| ConfigError::new(error.to_string()))
}

fn check(config: &Config) -> Result<(), ConfigError> {
    let error = |message: String| Err(ConfigError::new(message));
    let is_host = |addr: IpAddr| !addr.is_unspecified() && !addr.is_multicast();
    if config.local.is_ipv4() != config.remote.is_ipv4() {
        return error("`local` and `remote` must have one IP version".to_owned());
    }
    if config.local == config.remote || !is_host(config.local) || !is_host(config.remote) {
        return error("`local` and `remote` must be different host addresses".to_owned());
    }
    if config.mtu < MTU_MIN {
        return error(format!("`mtu` must be at least {MTU_MIN}, not {}", config.mtu));
    }
    if config.ttl == 0 {
        return error("`ttl` must be at least 1".to_owned());
    }
    if config.key.is_some() && config.protocol != EncapProtocol::Gre {
        return error("`key` needs `protocol: gre`; use `vni` for `vxlan` and `geneve`".to_owned());
    }
    let macs = [config.local_mac, config.remote_mac];
    if !is_virtual(config.protocol) {
        if config.vni.is_some() || macs != [None, None] || config.udp_checksum != UdpChecksum::Auto {
            let keys = "`vni`, `local_mac`, `remote_mac` and `udp_checksum`";
            return error(format!("{keys} need `protocol: vxlan` or `geneve`"));
        }
        return Ok(());
    }
    if config.vni.is_none_or(|vni| vni >= 1 << 24) {
        return error("`vni` must be from 0 to 16777215".to_owned());
    }
    if macs.contains(&None) {
        return error("`local_mac` and `remote_mac` are required".to_owned());
    }
    Ok(())
}
