//! The outer headers of a tunnel, made once for a flow: of each packet come only its length, what
//! it says of its class and of fragments, and checksums (B14, B16).

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::RewriteError;
use crate::parse::protocol;
use crate::{Addr, Packet, checksum};

/// Bytes that can stand between the outer IP or UDP header and the inner IP packet, at most: as
/// many as VXLAN takes (RFC 7348 5), its Ethernet header included.
pub const SHIM_LEN_MAX: usize = 22;

/// Bytes of the longest outer headers: IPv6, UDP, and what stands behind.
pub const OUTER_LEN_MAX: usize = IPV6_LEN + UDP_LEN + SHIM_LEN_MAX;

/// What is put before the packets of one direction of a flow: an IP header, a UDP header if wanted,
/// and bytes that are the same for all. So IP in IP (RFC 2003, RFC 2473), GRE (RFC 2784), GUE,
/// VXLAN (RFC 7348), Geneve (RFC 8926) and MPLS in any of them are made.
///
/// DSCP and ECN are those of the inner packet (RFC 6040 4.1, normal mode), but for a DSCP of its
/// own (RFC 2983 3.1), and in IPv4 its DF bit (RFC 2003 3.1); over an IPv6 packet DF is not set
/// (RFC 4213 3.2.1). A packet that may be fragmented has an identification (RFC 6864 4): its number
/// in its flow, from where the flow's entropy says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct OuterHeaders {
    source: Addr,
    destination: Addr,
    entropy: u32,
    /// 0: no UDP header.
    udp_port: u16,
    /// What the IP header says is next, if it is not UDP; 0: the inner packet.
    protocol: u8,
    ttl: u8,
    /// Whether there is a UDP checksum, and the DSCP, if it is its own.
    class: u8,
    shim_len: u8,
    shim: [u8; SHIM_LEN_MAX],
}

const _: () = assert!(size_of::<OuterHeaders>() == 64);

const IPV4_LEN: usize = 20;
const IPV6_LEN: usize = 40;
const UDP_LEN: usize = 8;

const DONT_FRAGMENT: u8 = 0x40;

/// In [`OuterHeaders`]'s `class`: there is a UDP checksum.
const HAS_CHECKSUM: u8 = 0x80;

/// The DSCP is its own, and stands in the lower six bits.
const HAS_DSCP: u8 = 0x40;

/// The bits of a traffic class that are ECN.
const ECN: u8 = 3;

/// The lowest of the 2^14 source ports that tell flows apart (RFC 6335 6; draft-ietf-intarea-gue
/// 5.11).
const ENTROPY_PORT: u16 = 0xc000;

impl OuterHeaders {
    /// IP in IP, between two addresses of one version. `entropy` is what varies from flow to flow:
    /// identification, flow label (RFC 6438) and UDP source port begin there. `ttl`: time to live
    /// or hop limit.
    pub fn new(source: Addr, destination: Addr, ttl: u8, entropy: u32) -> OuterHeaders {
        OuterHeaders { source, destination, ttl, entropy, ..OuterHeaders::default() }
    }

    /// With a UDP header to this port, and a checksum or none. A packet that was not captured whole
    /// gets none.
    pub fn over_udp(self, port: u16, has_checksum: bool) -> OuterHeaders {
        let checksum = if has_checksum { HAS_CHECKSUM } else { 0 };
        OuterHeaders { udp_port: port, class: self.class & !HAS_CHECKSUM | checksum, ..self }
    }

    /// With this DSCP, 0 to 63, whatever the inner packet has.
    pub fn with_dscp(self, dscp: u8) -> OuterHeaders {
        OuterHeaders { class: self.class & HAS_CHECKSUM | HAS_DSCP | dscp & 0x3f, ..self }
    }

    /// The same for another flow, with another [`entropy`](Outer::new).
    pub fn with_entropy(self, entropy: u32) -> OuterHeaders {
        OuterHeaders { entropy, ..self }
    }

    /// With these bytes right before the inner packet, [`SHIM_LEN_MAX`] at most, as the payload of
    /// UDP, or of IP with this protocol's number.
    ///
    /// # Errors
    /// [`RewriteError::TooBig`] if they are too many.
    pub fn with_shim(self, protocol: u8, bytes: &[u8]) -> Result<OuterHeaders, RewriteError> {
        let mut outer = OuterHeaders { protocol, shim_len: bytes.len() as u8, ..self };
        outer.shim.get_mut(..bytes.len()).ok_or(RewriteError::TooBig)?.copy_from_slice(bytes);
        Ok(outer)
    }

    /// Bytes that it puts before a packet.
    pub fn header_len(&self) -> usize {
        let network = if self.destination.is_v4() { IPV4_LEN } else { IPV6_LEN };
        network + self.udp_len() + usize::from(self.shim_len)
    }

    /// The longest IP packet that it can take, but for those that are longer than `len_max`.
    pub fn room_within(&self, len_max: u16) -> u16 {
        len_max.min(u16::MAX - self.header_len() as u16)
    }

    /// Where it takes packets to.
    pub fn destination(&self) -> Addr {
        self.destination
    }

    /// The version of its IP header.
    pub fn version(&self) -> u8 {
        self.destination.version()
    }

    fn udp_len(&self) -> usize {
        if self.udp_port == 0 { 0 } else { UDP_LEN }
    }

    /// What the outer IP header says is in it.
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

    /// RFC 791, RFC 2003 3.1.
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

    /// RFC 8200 3, RFC 2473; the flow label spreads flows (RFC 6438).
    fn put_v6(&self, header: &mut [u8], inner: &Inner) {
        let first = 6 << 28 | u32::from(self.traffic_class(inner)) << 20 | self.entropy >> 6 & 0xf_ffff;
        let len = (header.len() + inner.len - IPV6_LEN) as u16;
        header[..4].copy_from_slice(&first.to_be_bytes());
        header[4..6].copy_from_slice(&len.to_be_bytes());
        header[6..8].copy_from_slice(&[self.next_protocol(inner), self.ttl]);
        header[8..24].copy_from_slice(self.source.as_bytes());
        header[24..40].copy_from_slice(self.destination.as_bytes());
    }

    /// The UDP header at the beginning of `rest`, behind which all is there but the packet, and
    /// that in `data`.
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
            _ => 0, // Both are of one version.
        }
    }
}

/// What outer headers say of the packet in them.
struct Inner {
    version: u8,
    /// Of the IP packet, as its header says it.
    len: usize,
    traffic_class: u8,
    dont_fragment: bool,
    /// Its number in its flow.
    number: u16,
}

impl Inner {
    /// None if the packet is in a tunnel already, or is not one of IP.
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
    /// Puts outer headers before a packet that is in no tunnel yet. The flow's headers stay where
    /// they are looked for.
    ///
    /// # Errors
    /// [`RewriteError`]; nothing is changed then but for padding.
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
