//! Outer headers of a tunnel, built once per flow. Each packet only adds its length, class,
//! fragment fields and checksums (B14, B16).

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::RewriteError;
use crate::parse::protocol;
use crate::{Addr, Packet, checksum};

/// Limit on the bytes between the outer IP or UDP header and the inner IP packet: those of VXLAN
/// (RFC 7348 5), its Ethernet header included.
pub const SHIM_LEN_MAX: usize = 22;

/// Length of the longest outer headers: IPv6, UDP, and a shim.
pub const OUTER_LEN_MAX: usize = IPV6_LEN + UDP_LEN + SHIM_LEN_MAX;

/// Outer headers for the packets of one direction of a flow: an IP header, an optional UDP header,
/// and constant bytes. These make IP in IP (RFC 2003, RFC 2473), GRE (RFC 2784), GUE, VXLAN (RFC
/// 7348), Geneve (RFC 8926) and MPLS in any of them.
///
/// DSCP and ECN are copied from the inner packet (RFC 6040 4.1, normal mode), except for a DSCP of
/// its own (RFC 2983 3.1). In IPv4 the DF bit is copied too (RFC 2003 3.1); over an IPv6 packet DF
/// is not set (RFC 4213 3.2.1). A packet that may be fragmented has an identification (RFC 6864 4):
/// its number in its flow, offset by the flow's entropy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct OuterHeaders {
    source: Addr,
    destination: Addr,
    entropy: u32,
    /// 0 for no UDP header.
    udp_port: u16,
    /// Next protocol of the IP header if it is not UDP; 0 for the inner packet's.
    protocol: u8,
    ttl: u8,
    /// Flags: UDP checksum, own DSCP; and that DSCP.
    class: u8,
    shim_len: u8,
    shim: [u8; SHIM_LEN_MAX],
}

const _: () = assert!(size_of::<OuterHeaders>() == 64);

const IPV4_LEN: usize = 20;
const IPV6_LEN: usize = 40;
const UDP_LEN: usize = 8;

const DONT_FRAGMENT: u8 = 0x40;

/// Flag in [`OuterHeaders`]'s `class`: there is a UDP checksum.
const HAS_CHECKSUM: u8 = 0x80;

/// Flag: the lower six bits hold a DSCP of its own.
const HAS_DSCP: u8 = 0x40;

/// ECN bits of a traffic class.
const ECN: u8 = 3;

/// Lowest of the 2^14 source ports that distinguish flows (RFC 6335 6; draft-ietf-intarea-gue
/// 5.11).
const ENTROPY_PORT: u16 = 0xc000;

impl OuterHeaders {
    /// Returns IP in IP between two addresses of one version. `entropy` varies from flow to flow:
    /// the identification, flow label (RFC 6438) and UDP source port derive from it. `ttl` is the
    /// time to live or hop limit.
    pub fn new(source: Addr, destination: Addr, ttl: u8, entropy: u32) -> OuterHeaders {
        OuterHeaders { source, destination, ttl, entropy, ..OuterHeaders::default() }
    }

    /// Adds a UDP header to this port, with or without checksum. A packet that was not captured
    /// whole gets none.
    pub fn over_udp(self, port: u16, has_checksum: bool) -> OuterHeaders {
        let checksum = if has_checksum { HAS_CHECKSUM } else { 0 };
        OuterHeaders { udp_port: port, class: self.class & !HAS_CHECKSUM | checksum, ..self }
    }

    /// Sets a DSCP, 0 to 63, independent of the inner packet.
    pub fn with_dscp(self, dscp: u8) -> OuterHeaders {
        OuterHeaders { class: self.class & HAS_CHECKSUM | HAS_DSCP | dscp & 0x3f, ..self }
    }

    /// Returns the same headers for another flow, with another [`entropy`](OuterHeaders::new).
    pub fn with_entropy(self, entropy: u32) -> OuterHeaders {
        OuterHeaders { entropy, ..self }
    }

    /// Adds these bytes in front of the inner packet, at most [`SHIM_LEN_MAX`], as the payload of
    /// UDP, or of IP with this protocol number.
    ///
    /// # Errors
    /// [`RewriteError::TooBig`] if there are too many.
    pub fn with_shim(self, protocol: u8, bytes: &[u8]) -> Result<OuterHeaders, RewriteError> {
        let mut outer = OuterHeaders { protocol, shim_len: bytes.len() as u8, ..self };
        outer.shim.get_mut(..bytes.len()).ok_or(RewriteError::TooBig)?.copy_from_slice(bytes);
        Ok(outer)
    }

    /// Returns the length of the headers.
    pub fn header_len(&self) -> usize {
        let network = if self.destination.is_v4() { IPV4_LEN } else { IPV6_LEN };
        network + self.udp_len() + usize::from(self.shim_len)
    }

    /// Returns the length of the longest IP packet that fits, at most `len_max`.
    pub fn room_within(&self, len_max: u16) -> u16 {
        len_max.min(u16::MAX - self.header_len() as u16)
    }

    /// Returns the destination of the tunnel.
    pub fn destination(&self) -> Addr {
        self.destination
    }

    /// Returns the version of the IP header.
    pub fn version(&self) -> u8 {
        self.destination.version()
    }

    fn udp_len(&self) -> usize {
        if self.udp_port == 0 { 0 } else { UDP_LEN }
    }

    /// Returns the next protocol of the outer IP header.
    fn next_protocol(&self, inner: &Inner) -> u8 {
        match (self.udp_port, self.protocol) {
            (0, 0) if inner.version == 4 => protocol::IPV4,
            (0, 0) => protocol::IPV6,
            (0, protocol) => protocol,
            _ => protocol::UDP,
        }
    }

    fn traffic_class(&self, inner: &Inner) -> u8 {
        match self.class & HAS_DSCP {
            0 => inner.traffic_class,
            _ => self.class << 2 | inner.traffic_class & ECN,
        }
    }

    /// Writes an outer IPv4 header (RFC 791, RFC 2003 3.1).
    fn put_v4(&self, header: &mut [u8], inner: &Inner) {
        let fixed = inner.version == 4 && inner.dont_fragment;
        let identification = if fixed { 0 } else { inner.number.wrapping_add(self.entropy as u16) };
        let len = (header.len() + inner.len) as u16;
        header[..2].copy_from_slice(&[0x45, self.traffic_class(inner)]);
        header[2..4].copy_from_slice(&len.to_be_bytes());
        header[4..6].copy_from_slice(&identification.to_be_bytes());
        header[6] = if fixed { DONT_FRAGMENT } else { 0 };
        header[8..10].copy_from_slice(&[self.ttl, self.next_protocol(inner)]);
        header[12..16].copy_from_slice(&self.source.v4_bytes());
        header[16..20].copy_from_slice(&self.destination.v4_bytes());
        let sum = checksum::checksum(&header[..IPV4_LEN]);
        header[10..12].copy_from_slice(&sum.to_be_bytes());
    }

    /// Writes an outer IPv6 header (RFC 8200 3, RFC 2473). Its flow label spreads flows (RFC 6438).
    fn put_v6(&self, header: &mut [u8], inner: &Inner) {
        let first = 6 << 28 | u32::from(self.traffic_class(inner)) << 20 | self.entropy >> 6 & 0xf_ffff;
        let len = (header.len() + inner.len - IPV6_LEN) as u16;
        header[..4].copy_from_slice(&first.to_be_bytes());
        header[4..6].copy_from_slice(&len.to_be_bytes());
        header[6..8].copy_from_slice(&[self.next_protocol(inner), self.ttl]);
        header[8..24].copy_from_slice(self.source.as_bytes());
        header[24..40].copy_from_slice(self.destination.as_bytes());
    }

    /// Writes the UDP header at the start of `rest`, which ends before the packet in `data`.
    fn put_udp(&self, rest: &mut [u8], inner: &Inner, data: &[u8]) {
        let len = rest.len() + inner.len;
        rest[..2].copy_from_slice(&(ENTROPY_PORT | (self.entropy >> 18) as u16).to_be_bytes());
        rest[2..4].copy_from_slice(&self.udp_port.to_be_bytes());
        rest[4..6].copy_from_slice(&(len as u16).to_be_bytes());
        if let Some(inner) = data.get(..inner.len).filter(|_| self.class & HAS_CHECKSUM != 0) {
            let sum = self.pseudo_header(len) + checksum::sum(rest) + checksum::sum(inner);
            rest[6..8].copy_from_slice(&checksum::finish_udp(sum).to_be_bytes());
        }
    }

    fn pseudo_header(&self, len: usize) -> u32 {
        use std::net::IpAddr::{V4, V6};
        match (self.source.ip(), self.destination.ip()) {
            (V4(s), V4(d)) => checksum::pseudo_header_v4(s, d, protocol::UDP, len as u16),
            (V6(s), V6(d)) => checksum::pseudo_header_v6(s, d, protocol::UDP, len as u32),
            _ => 0, // Both have one version.
        }
    }
}

/// The facts that outer headers contain about the inner packet.
struct Inner {
    version: u8,
    /// Length of the IP packet from its header.
    len: usize,
    traffic_class: u8,
    dont_fragment: bool,
    /// Its number in its flow.
    number: u16,
}

impl Inner {
    /// Returns `None` if the packet is already in a tunnel, or not IP.
    fn of(packet: &Packet) -> Option<Inner> {
        let meta = packet.meta();
        let network = packet.data().get(meta.l3 as usize..)?;
        let &[first, second, _, _, _, _, flags, ..] = network else { return None };
        if meta.l3 != meta.outer_l3 || !matches!(meta.version, 4 | 6) {
            return None;
        }
        let (version, len, number) = (meta.version, packet.ip_len(), meta.transit.seq as u16);
        Some(match version {
            4 => {
                let dont_fragment = flags & DONT_FRAGMENT != 0;
                Inner { version, len, traffic_class: second, dont_fragment, number }
            }
            _ => {
                let traffic_class = first << 4 | second >> 4;
                Inner { version, len, traffic_class, dont_fragment: true, number }
            }
        })
    }
}

impl Packet {
    /// Adds outer headers to a packet in no tunnel. The flow's headers remain the inner ones.
    ///
    /// # Errors
    /// [`RewriteError`]; nothing but padding is changed then.
    pub fn encap(&mut self, outer: &OuterHeaders) -> Result<(), RewriteError> {
        let inner = Inner::of(self).ok_or(RewriteError::NoHeader)?;
        let mut bytes = [0; OUTER_LEN_MAX];
        let header = bytes.get_mut(..outer.header_len()).ok_or(RewriteError::TooBig)?;
        if header.len() + inner.len > usize::from(u16::MAX) {
            return Err(RewriteError::TooBig);
        }
        let (ip_len, version) =
            (outer.header_len() - outer.udp_len() - usize::from(outer.shim_len), outer.version());
        let shim_at = header.len() - usize::from(outer.shim_len);
        header[shim_at..].copy_from_slice(&outer.shim[..usize::from(outer.shim_len)]);
        match version {
            4 => outer.put_v4(header, &inner),
            _ => outer.put_v6(header, &inner),
        }
        if outer.udp_port != 0 {
            let at = self.meta().l3 as usize;
            outer.put_udp(&mut header[ip_len..], &inner, self.data().get(at..).unwrap_or_default());
        }
        self.encap_bytes(header, version)
    }
}
