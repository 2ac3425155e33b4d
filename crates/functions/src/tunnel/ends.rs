//! The ends of a tunnel: what is put before a packet that leaves, and what must stand before one
//! that comes.

use std::net::IpAddr;

use packet::parse::protocol;
use packet::{Addr, DropReason, OuterHeaders};
use values::ConfigError;

use super::config::{Config, EncapProtocol, OuterDscp, StationMac, UdpChecksum};
use crate::headers::OuterPayload;

/// The UDP port of VXLAN (RFC 7348 5).
pub const VXLAN_PORT: u16 = 4789;

/// The UDP port of Geneve (RFC 8926 3.3).
pub const GENEVE_PORT: u16 = 6081;

/// Bytes of the longest outer headers: IPv6, UDP, VXLAN or Geneve, and Ethernet.
pub const HEADERS_MAX: usize = 40 + UDP_LEN + VIRTUAL_LEN + ETHERNET_LEN;

/// The least [`Config::mtu`]: within the longest headers, a packet of IPv6's least MTU (RFC 8200
/// 5).
pub const MTU_MIN: u16 = 1280 + HEADERS_MAX as u16;

const UDP_LEN: usize = 8;
/// Bytes of a VXLAN header, and of a Geneve header without options.
const VIRTUAL_LEN: usize = 8;
const ETHERNET_LEN: usize = 14;

const IPV4: [u8; 2] = [0x08, 0x00];
const IPV6: [u8; 2] = [0x86, 0xdd];
/// Transparent Ethernet bridging: an Ethernet frame.
const ETHERNET: [u8; 2] = [0x65, 0x58];

/// Bits of GRE's first two bytes: what stands behind (RFC 2784 2.1, RFC 2890 2). All others must be
/// 0.
const GRE_KEY: u16 = 0x2000;
const GRE_SEQUENCE: u16 = 0x1000;

/// What the policy says of a tunnel.
pub struct TunnelEnds {
    protocol: EncapProtocol,
    local: Addr,
    remote: Addr,
    /// What tells tunnels between the same ends apart.
    key: Option<u32>,
    /// What is put before packets of IPv4, and of IPv6, of whichever flow.
    outers: [OuterHeaders; 2],
    /// The longest of them that get to the other end, in bytes.
    inner_mtu: u16,
}

/// What stands before a packet that came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TunnelMatch {
    /// Nothing of this tunnel.
    Other,
    /// This tunnel's headers, of so many bytes. Behind them there should be an IP packet.
    Within(usize),
}

impl TunnelEnds {
    /// Reads the configuration.
    ///
    /// # Errors
    /// What is wrong with it.
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
            // At most 70, and no more than the MTU has.
            inner_mtu: config.mtu - outers[0].header_len() as u16,
            outers,
        })
    }

    /// The outer address at this end.
    pub fn local(&self) -> Addr {
        self.local
    }

    /// The longest IP packet that gets to the other end, in bytes.
    pub fn inner_mtu(&self) -> u16 {
        self.inner_mtu
    }

    /// The version of outer headers.
    pub fn version(&self) -> u8 {
        self.local.version()
    }

    /// Bytes of outer headers.
    pub fn header_len(&self) -> usize {
        self.outers[0].header_len()
    }

    /// What is put before packets of an IP version, of the flow with this entropy.
    pub fn outer(&self, version: u8, entropy: u32) -> OuterHeaders {
        self.outers[usize::from(version != 4)].with_entropy(entropy)
    }

    /// What stands before a packet that came, the outermost IP header first, from and to these
    /// addresses.
    ///
    /// # Errors
    /// [`DropReason`]: it is for this tunnel's end, but not of the other one's making, or cannot be
    /// taken out.
    pub fn arrived(&self, packet: &[u8], source: Addr, destination: Addr) -> Result<TunnelMatch, DropReason> {
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
        let behind = packet.get(carried.at..).ok_or(DropReason::TunnelMalformed)?;
        let EncapHeader { key, len, ether_type } = self.behind(carried.protocol, behind)?;
        if key != self.key {
            return Err(DropReason::TunnelKey);
        }
        Ok(TunnelMatch::Within(carried.at + len + self.frame_len(ether_type, behind.get(len..))?))
    }

    /// Whether what a packet carries is of this tunnel's kind, as far as can be told.
    fn is_ours(&self, packet: &[u8], carried: &OuterPayload) -> bool {
        let to_port = |port: u16| {
            // Of a later fragment the port is not here, and who else would send such to a tunnel's
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

    /// Reads what stands between the outer IP header and the frame or packet.
    fn behind(&self, carried: u8, bytes: &[u8]) -> Result<EncapHeader, DropReason> {
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

    /// The length of the Ethernet header, if there is to be one.
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

/// What stands before a frame or packet.
struct EncapHeader {
    key: Option<u32>,
    len: usize,
    ether_type: [u8; 2],
}

impl EncapHeader {
    /// RFC 2784 2, RFC 2890 2. Checksums are not taken: they cover what functions change within.
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

    /// RFC 7348 5: reserved bits are not looked at.
    fn of_vxlan(bytes: &[u8]) -> Option<EncapHeader> {
        let &[flags, _, _, _, a, b, c, _] = bytes.first_chunk()?;
        let key = Some(u32::from_be_bytes([0, a, b, c]));
        (flags & 0x08 != 0).then_some(EncapHeader { key, len: UDP_LEN + VIRTUAL_LEN, ether_type: ETHERNET })
    }

    /// RFC 8926 3.4: options are passed over, but for those that must be understood; control
    /// packets are not taken.
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

/// What is put before packets whose EtherType is this one.
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
        return error("`local` and `remote` are addresses of one IP version".to_owned());
    }
    if config.local == config.remote || !is_host(config.local) || !is_host(config.remote) {
        return error("`local` and `remote` are the addresses of two hosts".to_owned());
    }
    if config.mtu < MTU_MIN {
        return error(format!("`mtu` is at least {MTU_MIN}, not {}", config.mtu));
    }
    if config.ttl == 0 {
        return error("`ttl` is at least 1".to_owned());
    }
    if config.key.is_some() && config.protocol != EncapProtocol::Gre {
        return error("`key` is for `gre`; the number of a virtual network is `vni`".to_owned());
    }
    let macs = [config.local_mac, config.remote_mac];
    if !is_virtual(config.protocol) {
        if config.vni.is_some() || macs != [None, None] || config.udp_checksum != UdpChecksum::Auto {
            let keys = "`vni`, `local_mac`, `remote_mac` and `udp_checksum`";
            return error(format!("{keys} are for `vxlan` and `geneve`"));
        }
        return Ok(());
    }
    if config.vni.is_none_or(|vni| vni >= 1 << 24) {
        return error("`vni` is the number of a virtual network, 0 to 16777215".to_owned());
    }
    if macs.contains(&None) {
        return error("`local_mac` and `remote_mac` are the Ethernet addresses of both ends".to_owned());
    }
    Ok(())
}
