//! Ethernet frames, assembled in a fixed buffer with correct lengths and checksums.

/// Bytes of the shortest frame without frame check sequence (IEEE 802.3); shorter ones are padded
/// with zeros.
pub const FRAME_BYTES_MIN: usize = 60;

/// Bytes of a frame without VLAN tag and frame check sequence (a jumbo frame).
pub const FRAME_BYTES_MAX: u16 = 9_014;

/// Room for the longest frame with a VLAN tag, and for headers around the shortest payload.
pub(super) const BUFFER_BYTES: usize = FRAME_BYTES_MAX as usize + 202;

pub(super) type Buffer = [u8; BUFFER_BYTES];

pub(super) const ETHERNET_BYTES: usize = 14;
pub(super) const VLAN_BYTES: usize = 4;
pub(super) const IPV4_BYTES: usize = 20;
pub(super) const IPV6_BYTES: usize = 40;
pub(super) const TCP_BYTES: usize = 20;
pub(super) const UDP_BYTES: usize = 8;
pub(super) const ICMP_BYTES: usize = 8;
const IPV6_FRAGMENT_BYTES: usize = 8;
/// Bytes of the largest fragment: an Ethernet payload.
const FRAGMENT_MTU_BYTES: usize = 1_500;

pub(super) const ETHERTYPE_IPV4: u16 = 0x0800;
pub(super) const ETHERTYPE_IPV6: u16 = 0x86dd;
pub(super) const ETHERTYPE_VLAN: u16 = 0x8100;

pub(super) const PROTOCOL_ICMP: u8 = 1;
pub(super) const PROTOCOL_TCP: u8 = 6;
pub(super) const PROTOCOL_UDP: u8 = 17;
const PROTOCOL_IPV6_FRAGMENT: u8 = 44;
pub(super) const PROTOCOL_ICMPV6: u8 = 58;

pub(super) const ICMP_ECHO_REQUEST: u8 = 8;
pub(super) const ICMP_ECHO_REPLY: u8 = 0;
pub(super) const ICMPV6_ECHO_REQUEST: u8 = 128;
pub(super) const ICMPV6_ECHO_REPLY: u8 = 129;

/// TCP's flags.
pub(super) mod flags {
    pub const FIN: u8 = 0x01;
    pub const SYN: u8 = 0x02;
    pub const RST: u8 = 0x04;
    pub const PSH: u8 = 0x08;
    pub const ACK: u8 = 0x10;
}

/// The headers around a transport header: source and destination of a frame.
#[derive(Clone, Copy, Debug)]
pub(super) struct Envelope {
    pub source_mac: [u8; 6],
    pub destination_mac: [u8; 6],
    /// The tag's control field: priority and VLAN.
    pub vlan: Option<u16>,
    pub addresses: AddressPair,
    /// Identification of an IPv4 packet, and of fragments of both versions.
    pub ident: u16,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum AddressPair {
    V4 { source: [u8; 4], destination: [u8; 4] },
    V6 { source: [u8; 16], destination: [u8; 16] },
}

/// A TCP header's fields.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tcp {
    pub source_port: u16,
    pub destination_port: u16,
    pub sequence: u32,
    pub acknowledgement: u32,
    pub flags: u8,
}

/// Fields of an ICMP echo message; the type follows from the IP version.
#[derive(Clone, Copy, Debug)]
pub(super) struct Echo {
    pub is_reply: bool,
    pub ident: u16,
    pub sequence: u16,
}

/// Position of a fragment in its packet, in bytes.
#[derive(Clone, Copy, Debug)]
struct Fragment {
    offset: usize,
    more: bool,
}

impl AddressPair {
    pub fn is_v6(&self) -> bool {
        matches!(self, AddressPair::V6 { .. })
    }

    /// Returns the reverse direction.
    pub fn swapped(self) -> AddressPair {
        match self {
            AddressPair::V4 { source, destination } => {
                AddressPair::V4 { source: destination, destination: source }
            }
            AddressPair::V6 { source, destination } => {
                AddressPair::V6 { source: destination, destination: source }
            }
        }
    }

    /// Returns the sum of the pseudo-header (RFC 9293 section 3.1, RFC 8200 section 8.1).
    pub fn pseudo_sum(&self, protocol: u8, length: usize) -> u64 {
        let addresses = match self {
            AddressPair::V4 { source, destination } => sum(source) + sum(destination),
            AddressPair::V6 { source, destination } => sum(source) + sum(destination),
        };
        addresses + u64::from(protocol) + length as u64
    }
}

impl Envelope {
    /// Writes a TCP segment; returns the frame's length. SYNs carry the maximum segment size.
    pub fn tcp(&self, buffer: &mut Buffer, tcp: &Tcp, payload: &[u8]) -> usize {
        const WINDOW: u16 = 64_240;
        const OPTION_MAXIMUM_SEGMENT: [u8; 2] = [2, 4];
        let options = if tcp.flags & flags::SYN == 0 { 0 } else { 4 };
        let header = TCP_BYTES + options;
        let start = self.headers(buffer, PROTOCOL_TCP, header + payload.len(), None);
        let segment = &mut buffer[start..start + header + payload.len()];
        segment[..2].copy_from_slice(&tcp.source_port.to_be_bytes());
        segment[2..4].copy_from_slice(&tcp.destination_port.to_be_bytes());
        segment[4..8].copy_from_slice(&tcp.sequence.to_be_bytes());
        segment[8..12].copy_from_slice(&tcp.acknowledgement.to_be_bytes());
        segment[12] = ((header / 4) << 4) as u8;
        segment[13] = tcp.flags;
        segment[14..16].copy_from_slice(&WINDOW.to_be_bytes());
        segment[16..20].fill(0);
        if options > 0 {
            let maximum: u16 = if self.addresses.is_v6() { 1_440 } else { 1_460 };
            segment[20..22].copy_from_slice(&OPTION_MAXIMUM_SEGMENT);
            segment[22..24].copy_from_slice(&maximum.to_be_bytes());
        }
        segment[header..].copy_from_slice(payload);
        let checksum = !fold(self.addresses.pseudo_sum(PROTOCOL_TCP, segment.len()) + sum(segment));
        segment[16..18].copy_from_slice(&checksum.to_be_bytes());
        let end = start + header + payload.len();
        padded(buffer, end)
    }

    /// Writes a UDP datagram; returns the frame's length.
    pub fn udp(&self, buffer: &mut Buffer, source_port: u16, destination_port: u16, payload: &[u8]) -> usize {
        let start = self.headers(buffer, PROTOCOL_UDP, UDP_BYTES + payload.len(), None);
        let end = start + UDP_BYTES + payload.len();
        buffer[start..start + UDP_BYTES].copy_from_slice(&self.udp_header(
            source_port,
            destination_port,
            payload,
        ));
        buffer[start + UDP_BYTES..end].copy_from_slice(payload);
        padded(buffer, end)
    }

    /// Writes a fragment of a UDP datagram from `offset`, a multiple of 8; returns the frame's
    /// length.
    pub fn udp_fragment(
        &self,
        buffer: &mut Buffer,
        source_port: u16,
        destination_port: u16,
        payload: &[u8],
        offset: usize,
    ) -> usize {
        let total = UDP_BYTES + payload.len();
        let next = offset + fragment_payload_bytes(self.addresses.is_v6());
        let more = next < total;
        let part_end = next.min(total);
        let start = self.headers(buffer, PROTOCOL_UDP, part_end - offset, Some(Fragment { offset, more }));
        let end = start + part_end - offset;
        let data = match offset {
            0 => {
                let header = self.udp_header(source_port, destination_port, payload);
                buffer[start..start + UDP_BYTES].copy_from_slice(&header);
                start + UDP_BYTES
            }
            _ => start,
        };
        let from = offset.saturating_sub(UDP_BYTES);
        buffer[data..end].copy_from_slice(&payload[from..from + end - data]);
        padded(buffer, end)
    }

    /// Writes an ICMP or ICMPv6 echo message; returns the frame's length.
    pub fn echo(&self, buffer: &mut Buffer, echo: &Echo, payload: &[u8]) -> usize {
        let (protocol, kind) = match (self.addresses.is_v6(), echo.is_reply) {
            (false, false) => (PROTOCOL_ICMP, ICMP_ECHO_REQUEST),
            (false, true) => (PROTOCOL_ICMP, ICMP_ECHO_REPLY),
            (true, false) => (PROTOCOL_ICMPV6, ICMPV6_ECHO_REQUEST),
            (true, true) => (PROTOCOL_ICMPV6, ICMPV6_ECHO_REPLY),
        };
        let length = ICMP_BYTES + payload.len();
        let start = self.headers(buffer, protocol, length, None);
        let message = &mut buffer[start..start + length];
        message[..4].copy_from_slice(&[kind, 0, 0, 0]);
        message[4..6].copy_from_slice(&echo.ident.to_be_bytes());
        message[6..8].copy_from_slice(&echo.sequence.to_be_bytes());
        message[ICMP_BYTES..].copy_from_slice(payload);
        let pseudo = if self.addresses.is_v6() { self.addresses.pseudo_sum(protocol, length) } else { 0 };
        let checksum = !fold(pseudo + sum(message));
        message[2..4].copy_from_slice(&checksum.to_be_bytes());
        padded(buffer, start + length)
    }

    fn udp_header(&self, source_port: u16, destination_port: u16, payload: &[u8]) -> [u8; UDP_BYTES] {
        let length = UDP_BYTES + payload.len();
        let mut header = [0; UDP_BYTES];
        header[..2].copy_from_slice(&source_port.to_be_bytes());
        header[2..4].copy_from_slice(&destination_port.to_be_bytes());
        header[4..6].copy_from_slice(&(length as u16).to_be_bytes());
        let total = self.addresses.pseudo_sum(PROTOCOL_UDP, length) + sum(&header) + sum(payload);
        // RFC 768: a checksum of zero is sent as all ones, because zero means none.
        let checksum = match !fold(total) {
            0 => u16::MAX,
            checksum => checksum,
        };
        header[6..8].copy_from_slice(&checksum.to_be_bytes());
        header
    }

    /// Writes all headers before the transport header; returns the transport header's offset.
    fn headers(
        &self,
        buffer: &mut Buffer,
        protocol: u8,
        payload: usize,
        fragment: Option<Fragment>,
    ) -> usize {
        buffer[..6].copy_from_slice(&self.destination_mac);
        buffer[6..12].copy_from_slice(&self.source_mac);
        let mut at = 12;
        if let Some(tag) = self.vlan {
            buffer[at..at + 2].copy_from_slice(&ETHERTYPE_VLAN.to_be_bytes());
            buffer[at + 2..at + 4].copy_from_slice(&tag.to_be_bytes());
            at += VLAN_BYTES;
        }
        let ethertype = if self.addresses.is_v6() { ETHERTYPE_IPV6 } else { ETHERTYPE_IPV4 };
        buffer[at..at + 2].copy_from_slice(&ethertype.to_be_bytes());
        at += 2;
        match self.addresses {
            AddressPair::V4 { source, destination } => {
                let header = self.ipv4_header(source, destination, protocol, payload, fragment);
                buffer[at..at + IPV4_BYTES].copy_from_slice(&header);
                at + IPV4_BYTES
            }
            AddressPair::V6 { source, destination } => {
                self.ipv6_headers(&mut buffer[at..], source, destination, protocol, payload, fragment) + at
            }
        }
    }

    fn ipv4_header(
        &self,
        source: [u8; 4],
        destination: [u8; 4],
        protocol: u8,
        payload: usize,
        fragment: Option<Fragment>,
    ) -> [u8; IPV4_BYTES] {
        const TIME_TO_LIVE: u8 = 64;
        const DO_NOT_FRAGMENT: u16 = 0x4000;
        const MORE_FRAGMENTS: u16 = 0x2000;
        let place = match fragment {
            None => DO_NOT_FRAGMENT,
            Some(Fragment { offset, more }) => (offset / 8) as u16 | if more { MORE_FRAGMENTS } else { 0 },
        };
        let mut header = [0; IPV4_BYTES];
        header[0] = 0x45;
        header[2..4].copy_from_slice(&((IPV4_BYTES + payload) as u16).to_be_bytes());
        header[4..6].copy_from_slice(&self.ident.to_be_bytes());
        header[6..8].copy_from_slice(&place.to_be_bytes());
        header[8] = TIME_TO_LIVE;
        header[9] = protocol;
        header[12..16].copy_from_slice(&source);
        header[16..20].copy_from_slice(&destination);
        let checksum = !fold(sum(&header));
        header[10..12].copy_from_slice(&checksum.to_be_bytes());
        header
    }

    /// Writes the fixed header and, for a fragment, its extension; returns their length.
    fn ipv6_headers(
        &self,
        out: &mut [u8],
        source: [u8; 16],
        destination: [u8; 16],
        protocol: u8,
        payload: usize,
        fragment: Option<Fragment>,
    ) -> usize {
        const HOP_LIMIT: u8 = 64;
        let (next, extension) = match fragment {
            None => (protocol, 0),
            Some(_) => (PROTOCOL_IPV6_FRAGMENT, IPV6_FRAGMENT_BYTES),
        };
        out[..4].copy_from_slice(&[0x60, 0, 0, 0]);
        out[4..6].copy_from_slice(&((extension + payload) as u16).to_be_bytes());
        out[6..8].copy_from_slice(&[next, HOP_LIMIT]);
        out[8..24].copy_from_slice(&source);
        out[24..40].copy_from_slice(&destination);
        if let Some(Fragment { offset, more }) = fragment {
            // The offset counts units of 8 bytes in the upper 13 bits, which is the number of
            // bytes.
            out[40..42].copy_from_slice(&[protocol, 0]);
            out[42..44].copy_from_slice(&(offset as u16 | u16::from(more)).to_be_bytes());
            out[44..48].copy_from_slice(&u32::from(self.ident).to_be_bytes());
        }
        IPV6_BYTES + extension
    }
}

/// Returns the payload bytes of the largest fragment: a multiple of 8.
pub(super) fn fragment_payload_bytes(is_v6: bool) -> usize {
    let headers = if is_v6 { IPV6_BYTES + IPV6_FRAGMENT_BYTES } else { IPV4_BYTES };
    (FRAGMENT_MTU_BYTES - headers) / 8 * 8
}

/// Sums bytes as big-endian words (RFC 1071), unfolded. An odd last byte is the upper half of its
/// word.
pub(super) fn sum(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<4>();
    let total: u64 = words.iter().map(|word| u64::from(u32::from_be_bytes(*word))).sum();
    let mut last = [0; 4];
    last[..rest.len()].copy_from_slice(rest);
    total + u64::from(u32::from_be_bytes(last))
}

/// Folds a sum to 16 bits, with end-around carry.
pub(super) fn fold(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum >> 16) + (sum & 0xffff);
    }
    sum as u16
}

fn padded(buffer: &mut Buffer, end: usize) -> usize {
    if end >= FRAME_BYTES_MIN {
        return end;
    }
    buffer[end..FRAME_BYTES_MIN].fill(0);
    FRAME_BYTES_MIN
}
