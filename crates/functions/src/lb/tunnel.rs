//! The headers that carry a packet to its server: IP in IP, or Generic UDP Encapsulation.

use nf::PacketView;
use nf::config::ConfigError;
use packet::parse::protocol;
use packet::{Addr, DropReason, RewriteError, checksum};

use super::config::{Prefix, TunnelConfig, UdpChecksum};

/// The port of Generic UDP Encapsulation (IANA; draft-ietf-intarea-gue 3.1).
pub const GUE_PORT: u16 = 6080;

/// Bytes of the longest headers that are put before a packet: IPv6, UDP, GUE.
pub const HEADERS_MAX: usize = IPV6_LEN + UDP_LEN + GUE_LEN;

/// The least [`TunnelConfig::mtu`]: within the longest headers, a packet of IPv6's least MTU (RFC 8200 5).
pub const MTU_MIN: u16 = 1280 + HEADERS_MAX as u16;

/// How packets are wrapped.
#[derive(Clone, Debug)]
pub struct Tunnel {
    source4: Option<Prefix>,
    source6: Option<Prefix>,
    ttl: u8,
    mtu: u16,
    udp_checksum: UdpChecksum,
}

/// Where a packet is to go, and how.
#[derive(Clone, Copy, Debug)]
pub struct Route {
    /// The server.
    pub server: Addr,
    /// Whether UDP and GUE stand between the IP headers.
    pub gue: bool,
    /// What varies source, port and flow label from flow to flow.
    pub entropy: u32,
    /// The packet's number in its flow.
    pub number: u64,
}

/// A packet was not wrapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WrapError {
    /// It is longer than gets through, and must not be fragmented.
    TooBig {
        /// The longest packet that gets through.
        mtu: u16,
        /// Whether its sender wants to know.
        tell: bool,
    },
    /// It cannot be wrapped.
    Refused(DropReason),
}

impl Tunnel {
    /// Reads the configuration.
    pub fn new(config: &TunnelConfig) -> Result<Tunnel, ConfigError> {
        if config.mtu < MTU_MIN {
            return Err(ConfigError::new(format!("`tunnel.mtu` is at least {MTU_MIN}, not {}", config.mtu)));
        }
        if config.ttl == 0 {
            return Err(ConfigError::new("`tunnel.ttl` is at least 1"));
        }
        let source = |text: &Option<_>, version| text.as_ref().map(|t| Prefix::parse(t, version)).transpose();
        Ok(Tunnel {
            source4: source(&config.source4, 4)?,
            source6: source(&config.source6, 6)?,
            ttl: config.ttl,
            mtu: config.mtu,
            udp_checksum: config.udp_checksum,
        })
    }

    /// Whether there is a source for outer headers to this server.
    pub fn reaches(&self, server: Addr) -> bool {
        self.source(server).is_some()
    }

    /// Puts the outer headers before the packet. Says whether it is now longer than the MTU, to be fragmented on its way.
    ///
    /// The outer header takes DSCP and ECN of the inner one (RFC 6040 4.1 normal mode), and in IPv4 its DF bit
    /// (RFC 2003 3.1); over an IPv6 packet DF is not set, the MTU being a static one (RFC 4213 3.2.1).
    pub fn wrap(&self, packet: &mut PacketView<'_>, route: Route) -> Result<bool, WrapError> {
        let refused = WrapError::Refused(DropReason::LbProtocol);
        let source = self.source(route.server).ok_or(refused)?;
        let inner = Inner::of(packet).ok_or(refused)?;
        let over_v4 = route.server.is_v4();
        let headers =
            if over_v4 { IPV4_LEN } else { IPV6_LEN } + if route.gue { UDP_LEN + GUE_LEN } else { 0 };
        let len = headers + inner.len;
        let oversize = len > usize::from(self.mtu);
        if oversize && (inner.dont_fragment || !over_v4 || len > usize::from(u16::MAX)) {
            return Err(WrapError::TooBig { mtu: self.mtu - headers as u16, tell: inner.dont_fragment });
        }
        let outer =
            Outer { source: source.address(route.entropy), len: len as u16, ttl: self.ttl, route, inner };
        let mut bytes = [0; HEADERS_MAX];
        let header = &mut bytes[..headers];
        if over_v4 {
            outer.put_v4(header);
        } else {
            outer.put_v6(header);
        }
        if route.gue {
            let checksum = self.wants_checksum(over_v4).then(|| packet.network());
            outer.put_gue(header, checksum);
        }
        packet
            .encapsulate(header, if over_v4 { 4 } else { 6 })
            .map_err(|error| WrapError::Refused(reason(error)))?;
        Ok(oversize)
    }

    fn source(&self, server: Addr) -> Option<Prefix> {
        if server.is_v4() { self.source4 } else { self.source6 }
    }

    fn wants_checksum(&self, over_v4: bool) -> bool {
        match self.udp_checksum {
            UdpChecksum::Auto => !over_v4,
            UdpChecksum::Always => true,
            UdpChecksum::Never => false,
        }
    }
}

/// The drop reason for a packet whose headers could not be changed.
#[cold]
pub fn reason(error: RewriteError) -> DropReason {
    match error {
        RewriteError::NoHeadroom => DropReason::NoHeadroom,
        RewriteError::TooBig => DropReason::TooBig,
        RewriteError::Version | RewriteError::NoHeader => DropReason::LbProtocol,
    }
}

const IPV4_LEN: usize = 20;
const IPV6_LEN: usize = 40;
const UDP_LEN: usize = 8;
const GUE_LEN: usize = 4;

const DONT_FRAGMENT: u8 = 0x40;

/// The lowest of the 2^14 source ports that tell flows apart (RFC 6335 6; draft-ietf-intarea-gue 5.11).
const ENTROPY_PORT: u16 = 0xc000;

/// What the outer headers say of the inner packet.
#[derive(Clone, Copy)]
struct Inner {
    version: u8,
    len: usize,
    traffic_class: u8,
    /// It must not be fragmented on its way.
    dont_fragment: bool,
}

impl Inner {
    /// None if the packet is in a tunnel already: its outer addresses are not the service's.
    fn of(packet: &PacketView<'_>) -> Option<Inner> {
        let meta = packet.meta();
        if meta.l3 != meta.outer_l3 {
            return None;
        }
        let &[first, second, _, _, _, _, flags, ..] = packet.network() else { return None };
        let (version, len) = (meta.version, packet.ip_len());
        Some(match version {
            4 => Inner { version, len, traffic_class: second, dont_fragment: flags & DONT_FRAGMENT != 0 },
            _ => Inner { version, len, traffic_class: first << 4 | second >> 4, dont_fragment: true },
        })
    }

    fn protocol(&self) -> u8 {
        if self.version == 4 { protocol::IPV4 } else { protocol::IPV6 }
    }
}

/// The outer headers.
struct Outer {
    source: Addr,
    /// Of the whole packet.
    len: u16,
    ttl: u8,
    route: Route,
    inner: Inner,
}

impl Outer {
    fn next_protocol(&self) -> u8 {
        if self.route.gue { protocol::UDP } else { self.inner.protocol() }
    }

    /// RFC 791, RFC 2003 3.1. A packet that may be fragmented has an identification (RFC 6864 4).
    fn put_v4(&self, header: &mut [u8]) {
        let fixed = self.inner.version == 4 && self.inner.dont_fragment;
        let identification =
            if fixed { 0 } else { (self.route.number as u16).wrapping_add(self.route.entropy as u16) };
        header[..2].copy_from_slice(&[0x45, self.inner.traffic_class]);
        header[2..4].copy_from_slice(&self.len.to_be_bytes());
        header[4..6].copy_from_slice(&identification.to_be_bytes());
        header[6] = if fixed { DONT_FRAGMENT } else { 0 };
        header[8..10].copy_from_slice(&[self.ttl, self.next_protocol()]);
        header[12..16].copy_from_slice(&self.source.v4_bytes());
        header[16..20].copy_from_slice(&self.route.server.v4_bytes());
        let sum = checksum::checksum(&header[..IPV4_LEN]);
        header[10..12].copy_from_slice(&sum.to_be_bytes());
    }

    /// RFC 8200 3, RFC 2473; the flow label spreads flows (RFC 6438).
    fn put_v6(&self, header: &mut [u8]) {
        let class = u32::from(self.inner.traffic_class);
        let first = 6 << 28 | class << 20 | self.route.entropy >> 6 & 0xf_ffff;
        header[..4].copy_from_slice(&first.to_be_bytes());
        header[4..6].copy_from_slice(&(self.len - IPV6_LEN as u16).to_be_bytes());
        header[6..8].copy_from_slice(&[self.next_protocol(), self.ttl]);
        header[8..24].copy_from_slice(self.source.as_bytes());
        header[24..40].copy_from_slice(self.route.server.as_bytes());
    }

    /// UDP and GUE of variant 0 without fields (draft-ietf-intarea-gue 3.2), at the end of `header`. The checksum is over
    /// `inner`, if that is given and was captured whole.
    fn put_gue(&self, header: &mut [u8], inner: Option<&[u8]>) {
        let at = header.len() - UDP_LEN - GUE_LEN;
        let len = UDP_LEN + GUE_LEN + self.inner.len;
        let udp = &mut header[at..];
        udp[..2].copy_from_slice(&(ENTROPY_PORT | (self.route.entropy >> 18) as u16).to_be_bytes());
        udp[2..4].copy_from_slice(&GUE_PORT.to_be_bytes());
        udp[4..6].copy_from_slice(&(len as u16).to_be_bytes());
        udp[9] = self.inner.protocol();
        if let Some(inner) = inner.and_then(|inner| inner.get(..self.inner.len)) {
            let sum = pseudo_header(self.source, self.route.server, len)
                + checksum::sum(udp)
                + checksum::sum(inner);
            udp[6..8].copy_from_slice(&checksum::finish_udp(sum).to_be_bytes());
        }
    }
}

fn pseudo_header(source: Addr, destination: Addr, len: usize) -> u32 {
    use std::net::IpAddr::{V4, V6};
    match (source.ip(), destination.ip()) {
        (V4(s), V4(d)) => checksum::pseudo_header_v4(s, d, protocol::UDP, len as u16),
        (V6(s), V6(d)) => checksum::pseudo_header_v6(s, d, protocol::UDP, len as u32),
        _ => 0, // Both are of the outer header's version.
    }
}
