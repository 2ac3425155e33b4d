//! Headers of copies: VXLAN (RFC 7348), and ERSPAN types II and III
//! (draft-foschiano-erspan-03).

use packet::parse::protocol;
use packet::{Addr, LinkType, Packet, Side, TagKind, checksum};
use values::ConfigError;

use super::config::{Config, MirrorProtocol};
use crate::tunnel::VXLAN_PORT;

const IPV4_LEN: usize = 20;
const IPV6_LEN: usize = 40;
const UDP_LEN: usize = 8;
const VXLAN_LEN: usize = 8;
const GRE_LEN: usize = 8;
const ERSPAN2_LEN: usize = 8;
const ERSPAN3_LEN: usize = 12;

/// Length of the longest headers.
const HEADERS_MAX: usize = IPV6_LEN + GRE_LEN + ERSPAN3_LEN;

/// VXLAN flag: the network identifier is valid.
const VNI_VALID: u8 = 0x08;

/// GRE flag: a sequence number follows (RFC 2890 2).
const GRE_SEQUENCE: u16 = 0x1000;
const ETHER_TYPE_ERSPAN2: u16 = 0x88be;
const ETHER_TYPE_ERSPAN3: u16 = 0x22eb;

/// ERSPAN's version field for the types.
const VERSION_2: u32 = 1;
const VERSION_3: u32 = 2;

/// ERSPAN: the frame keeps its VLAN tag.
const TAG_PRESERVED: u32 = 3;

/// ERSPAN III: unit of time stamps, 100 ns.
const GRANULARITY_100_NS: u32 = 1;
const TIMESTAMP_UNIT_NS: u64 = 100;

/// Lowest of the 2^14 source ports that distinguish flows (RFC 7348 5).
const ENTROPY_PORT: u16 = 0xc000;

/// Ethernet address on both ends of a frame that came without: locally administered.
const NO_MAC: [u8; 6] = [2, 0, 0, 0, 0, 0];
const ETHERNET_LEN: usize = 14;

/// Encapsulation of a session's copies.
pub(super) struct Encapsulation {
    source: Addr,
    collector: Addr,
    protocol: MirrorProtocol,
    /// VXLAN network identifier or ERSPAN session.
    id: u32,
    ttl: u8,
    dscp: u8,
    /// Limit on the bytes of a frame, by `snap`.
    snap: usize,
    /// Limit on the bytes of a frame, by the MTU.
    room: usize,
}

/// The frame to copy: the packet, with an Ethernet header added if it has none.
pub(super) struct MirroredFrame<'p> {
    /// The bytes, with or without the Ethernet header.
    pub bytes: &'p [u8],
    made: Option<[u8; ETHERNET_LEN]>,
}

/// Headers in front of a copy.
pub(super) struct CopyHeaders {
    bytes: [u8; HEADERS_MAX],
    len: usize,
    /// Bytes to copy of [`MirroredFrame::bytes`].
    pub frame_len: usize,
}

impl<'p> MirroredFrame<'p> {
    pub fn of(packet: &'p Packet) -> MirroredFrame<'p> {
        if packet.meta().link == LinkType::Ethernet {
            return MirroredFrame { bytes: packet.data(), made: None };
        }
        let bytes = packet.outermost();
        let ether_type = match bytes.first().map(|first| first >> 4) {
            Some(6) => [0x86, 0xdd],
            _ => [0x08, 0x00],
        };
        let mut made = [0; ETHERNET_LEN];
        made[..6].copy_from_slice(&NO_MAC);
        made[6..12].copy_from_slice(&NO_MAC);
        made[12..].copy_from_slice(&ether_type);
        MirroredFrame { bytes, made: Some(made) }
    }

    /// Returns the Ethernet header that was made for it.
    pub fn link(&self) -> &[u8] {
        self.made.as_ref().map_or(&[], |made| &made[..])
    }
}

impl CopyHeaders {
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl Encapsulation {
    pub fn new(config: &Config) -> Result<Encapsulation, ConfigError> {
        config.check()?;
        let (source, collector) = (Addr::from(config.source), Addr::from(config.collector));
        let mut made = Encapsulation {
            source,
            collector,
            protocol: config.protocol,
            id: config.vni.or(config.session.map(u32::from)).unwrap_or(0),
            ttl: config.ttl,
            dscp: config.dscp,
            snap: config.snap.map_or(usize::MAX, usize::from),
            room: 0,
        };
        // At most 60, which is below the minimum MTU.
        made.room = usize::from(config.mtu) - made.len();
        Ok(made)
    }

    /// Returns the source address of copies.
    pub fn source(&self) -> Addr {
        self.source
    }

    /// Returns whether copies are numbered.
    pub fn has_numbers(&self) -> bool {
        self.protocol != MirrorProtocol::Vxlan
    }

    /// Returns whether this IP packet is from the source to the collector, as copies are.
    pub fn is_of_mirror(&self, network: &[u8]) -> bool {
        match network.first().map(|first| first >> 4) {
            Some(4) if self.source.is_v4() => {
                network.get(12..16) == Some(&self.source.v4_bytes()[..])
                    && network.get(16..20) == Some(&self.collector.v4_bytes()[..])
            }
            Some(6) if !self.source.is_v4() => {
                network.get(8..24) == Some(self.source.as_bytes())
                    && network.get(24..40) == Some(self.collector.as_bytes())
            }
            _ => false,
        }
    }

    /// Builds the headers of a copy. Returns true if the MTU cuts it.
    pub fn headers(&self, frame: &MirroredFrame<'_>, packet: &Packet, number: u32) -> (CopyHeaders, bool) {
        let link = frame.link();
        let whole = link.len() + frame.bytes.len();
        let len = whole.min(self.snap).min(self.room);
        let frame_len = len - link.len(); // Both limits are longer than an Ethernet header.
        let is_cut = len < whole || packet.len() < packet.meta().wire_len as usize;
        let mut headers = CopyHeaders { bytes: [0; HEADERS_MAX], len: self.len(), frame_len };
        let at = if self.source.is_v4() { IPV4_LEN } else { IPV6_LEN };
        let (network, payload) = headers.bytes[..self.len()].split_at_mut(at);
        let entropy = packet.meta().hash;
        self.put_network(network, payload.len() + len, entropy);
        if self.protocol == MirrorProtocol::Vxlan {
            self.put_vxlan(payload, len, entropy);
            if !self.source.is_v4() {
                let body = [link, &frame.bytes[..frame_len]];
                self.put_udp_checksum(payload, body);
            }
        } else {
            self.put_erspan(payload, packet, is_cut, number);
        }
        (headers, whole.min(self.snap) > self.room)
    }

    /// Returns the length of the headers.
    fn len(&self) -> usize {
        let network = if self.source.is_v4() { IPV4_LEN } else { IPV6_LEN };
        network
            + match self.protocol {
                MirrorProtocol::Vxlan => UDP_LEN + VXLAN_LEN,
                MirrorProtocol::Erspan2 => GRE_LEN + ERSPAN2_LEN,
                MirrorProtocol::Erspan3 => GRE_LEN + ERSPAN3_LEN,
            }
    }

    fn put_network(&self, header: &mut [u8], payload_len: usize, entropy: u64) {
        let next = if self.protocol == MirrorProtocol::Vxlan { protocol::UDP } else { protocol::GRE };
        // At most the MTU.
        let payload_len = payload_len as u16;
        if self.source.is_v4() {
            header[..2].copy_from_slice(&[0x45, self.dscp << 2]);
            header[2..4].copy_from_slice(&(IPV4_LEN as u16 + payload_len).to_be_bytes());
            // No identification, must not be fragmented (RFC 6864 4.1).
            header[4..10].copy_from_slice(&[0, 0, 0x40, 0, self.ttl, next]);
            header[12..16].copy_from_slice(&self.source.v4_bytes());
            header[16..20].copy_from_slice(&self.collector.v4_bytes());
            let sum = checksum::checksum(header);
            header[10..12].copy_from_slice(&sum.to_be_bytes());
            return;
        }
        let label = entropy as u32 & 0xf_ffff;
        let first = 6 << 28 | u32::from(self.dscp) << 22 | label;
        header[..4].copy_from_slice(&first.to_be_bytes());
        header[4..6].copy_from_slice(&payload_len.to_be_bytes());
        header[6..8].copy_from_slice(&[next, self.ttl]);
        header[8..24].copy_from_slice(self.source.as_bytes());
        header[24..40].copy_from_slice(self.collector.as_bytes());
    }

    fn put_vxlan(&self, payload: &mut [u8], frame_len: usize, entropy: u64) {
        let (udp, vxlan) = payload.split_at_mut(UDP_LEN);
        let port = ENTROPY_PORT | entropy as u16 & !ENTROPY_PORT;
        udp[..2].copy_from_slice(&port.to_be_bytes());
        udp[2..4].copy_from_slice(&VXLAN_PORT.to_be_bytes());
        udp[4..6].copy_from_slice(&((UDP_LEN + VXLAN_LEN + frame_len) as u16).to_be_bytes());
        vxlan[0] = VNI_VALID;
        vxlan[4..].copy_from_slice(&(self.id << 8).to_be_bytes());
    }

    /// Computes the checksum that IPv6 requires (RFC 8200 8.1). All parts but the last have an even
    /// length.
    fn put_udp_checksum(&self, payload: &mut [u8], body: [&[u8]; 2]) {
        let (std::net::IpAddr::V6(source), std::net::IpAddr::V6(collector)) =
            (self.source.ip(), self.collector.ip())
        else {
            return;
        };
        let len = payload.len() + body.iter().map(|part| part.len()).sum::<usize>();
        let pseudo = checksum::pseudo_header_v6(source, collector, protocol::UDP, len as u32);
        let sum = pseudo + checksum::sum(payload) + checksum::sum(body[0]) + checksum::sum(body[1]);
        payload[6..8].copy_from_slice(&checksum::finish_udp(sum).to_be_bytes());
    }

    fn put_erspan(&self, payload: &mut [u8], packet: &Packet, is_cut: bool, number: u32) {
        let is_3 = self.protocol == MirrorProtocol::Erspan3;
        let (gre, erspan) = payload.split_at_mut(GRE_LEN);
        gre[..2].copy_from_slice(&GRE_SEQUENCE.to_be_bytes());
        let ether_type = if is_3 { ETHER_TYPE_ERSPAN3 } else { ETHER_TYPE_ERSPAN2 };
        gre[2..4].copy_from_slice(&ether_type.to_be_bytes());
        gre[4..8].copy_from_slice(&number.to_be_bytes());
        let (vlan, class, tagged) = match packet.tag(TagKind::Vlan) {
            Some(tag) => (tag.id(), u32::from(tag.class()), true),
            None => (0, 0, false),
        };
        // Type III has no room for the kind of the tag; a good frame has 0 there.
        let (version, kind) =
            if is_3 { (VERSION_3, 0) } else { (VERSION_2, if tagged { TAG_PRESERVED } else { 0 }) };
        let first = version << 28 | vlan << 16 | class << 13 | kind << 11 | u32::from(is_cut) << 10 | self.id;
        erspan[..4].copy_from_slice(&first.to_be_bytes());
        if is_3 {
            let timestamp = (packet.meta().transit.timestamp_ns / TIMESTAMP_UNIT_NS) as u32;
            erspan[4..8].copy_from_slice(&timestamp.to_be_bytes());
            // The direction at the mirrored port: 0 inwards, from inside.
            let is_egress = u32::from(packet.meta().transit.side == Side::Outside);
            erspan[8..12].copy_from_slice(&(is_egress << 3 | GRANULARITY_100_NS << 1).to_be_bytes());
        }
    }
}
