//! Answers to packets: TCP resets and ICMP errors, built with all checksums into a caller's array.
//!
//! The result is an IP packet for [`crate::Context::answer`]. The rules on which packets may be
//! answered are enforced here for all NFs (RFC 1812 4.3.2.7, RFC 4443 2.4 (e), RFC 9293 3.5.2).
//! Rate limits are up to the NF.
//!
//! ```no_run
//! # fn f(packet: &nf::PacketView<'_>, context: &mut nf::Context<'_>) -> Result<(), Box<dyn std::error::Error>> {
//! use nf::answer::{self, IcmpError};
//! let from = packet.ends().1.addr;
//! let mut buffer = answer::buffer();
//! let network = answer::icmp_error(packet, IcmpError::AdminProhibited, from, &mut buffer)?;
//! context.answer(packet, network).ok();
//! # Ok(()) }
//! ```

use packet::parse::{self, protocol};
use packet::{Addr, Endpoint, LinkType, PacketClass, checksum};

use crate::PacketView;

/// Length in bytes of the longest answer: an ICMPv6 error must fit the minimum MTU (RFC 4443 2.4
/// (c)).
pub const ANSWER_MAX: usize = 1280;

/// Length in bytes of the longest ICMP error for IPv4 (RFC 1812 4.3.2.3).
pub const ICMP_V4_MAX: usize = 576;

/// Space for an answer.
pub type AnswerBuffer = [u8; ANSWER_MAX];

/// Returns an empty buffer.
pub const fn buffer() -> AnswerBuffer {
    [0; ANSWER_MAX]
}

/// The type of an ICMP or ICMPv6 error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IcmpError {
    /// No route to the destination (3/0, RFC 792; 1/0, RFC 4443 3.1).
    NoRoute,
    /// The destination host is unreachable (3/1; 1/3).
    HostUnreachable,
    /// The port is closed (3/3; 1/4).
    PortUnreachable,
    /// Prohibited by policy (3/13, RFC 1812 5.2.7.1; 1/1).
    AdminProhibited,
    /// The packet exceeds the next link's MTU (3/4, RFC 1191 4; 2/0, RFC 4443 3.2).
    TooBig {
        /// The MTU in bytes; at most 65,535 for IPv4.
        mtu: u32,
    },
    /// The time to live expired in transit (11/0; 3/0).
    TimeExceeded,
}

/// The reason that a packet gets no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotAnswerable {
    /// It is not IP.
    #[error("not an IP packet")]
    NotIp,
    /// It is not TCP, and only TCP is answered by a reset.
    #[error("not a TCP segment")]
    NotTcp,
    /// It is a reset itself (RFC 9293 3.5.2).
    #[error("a reset is not answered by a reset")]
    Reset,
    /// It is an ICMP error or redirect itself: answers must not answer answers.
    #[error("an ICMP error is not answered")]
    IcmpError,
    /// It is a later fragment, or, for a reset, any fragment: its full length is unknown.
    #[error("a fragment is not answered")]
    Fragment,
    /// It was sent to several hosts, on the link or in the network.
    #[error("a broadcast or multicast packet is not answered")]
    ToMany,
    /// Its source address is not that of a single host.
    #[error("the source address is not that of a single host")]
    FromNoHost,
    /// It arrived in a tunnel that was parsed: an answer outside the tunnel would be lost.
    #[error("a packet in a tunnel is not answered")]
    Tunnelled,
    /// Its headers were not captured completely.
    #[error("the headers are incomplete")]
    Cut,
    /// The given source address is of another IP version, or not that of a single host.
    #[error("the answer cannot come from this address")]
    NoSource,
}

/// Builds the TCP reset that a host sends for a segment without a connection (RFC 9293 3.5.2).
///
/// Its sequence number is the segment's acknowledgement number. Without one, it is 0 and the reset
/// acknowledges the whole segment. Its source is the segment's destination, where the sender
/// expects it from. The segment's checksum is not verified: on virtual links, senders leave it to
/// the network card.
///
/// # Errors
/// [`NotAnswerable`]: the segment must not, or cannot, be answered.
pub fn tcp_reset<'b>(
    packet: &PacketView<'_>,
    buffer: &'b mut AnswerBuffer,
) -> Result<&'b [u8], NotAnswerable> {
    check_answerable(packet, false)?;
    if packet.meta().protocol != protocol::TCP {
        return Err(NotAnswerable::NotTcp);
    }
    if packet.meta().class != PacketClass::Whole {
        return Err(NotAnswerable::Fragment);
    }
    let header = packet.transport().first_chunk::<20>().ok_or(NotAnswerable::Cut)?;
    let flags = header[13];
    if flags & RST != 0 {
        return Err(NotAnswerable::Reset);
    }
    let (seq, ack, flags) = if flags & ACK != 0 {
        (be32(header, 8), 0, RST)
    } else {
        (0, be32(header, 4).wrapping_add(segment_len(packet, header)), RST | ACK)
    };
    let (to, from) = packet.ends();
    let l4 = network_header_len(packet);
    let segment = &mut buffer[l4..l4 + TCP_LEN];
    segment.fill(0);
    segment[0..2].copy_from_slice(&from.port.to_be_bytes());
    segment[2..4].copy_from_slice(&to.port.to_be_bytes());
    segment[4..8].copy_from_slice(&seq.to_be_bytes());
    segment[8..12].copy_from_slice(&ack.to_be_bytes());
    segment[12] = (TCP_LEN as u8 / 4) << 4;
    segment[13] = flags;
    let sum = pseudo_header(from.addr, to.addr, protocol::TCP, TCP_LEN) + checksum::sum(segment);
    segment[16..18].copy_from_slice(&checksum::finish(sum).to_be_bytes());
    Ok(put_network_header(buffer, from.addr, to.addr, protocol::TCP, TCP_LEN, DEFAULT_CLASS))
}

/// Builds the ICMP or ICMPv6 error `error` about the packet, sent from the address `from`. It
/// quotes as much of the packet as fits [`ICMP_V4_MAX`] or [`ANSWER_MAX`] bytes.
///
/// An NF without an address of its own passes the packet's destination as `from`.
///
/// # Errors
/// [`NotAnswerable`]: the packet must not, or cannot, be answered.
pub fn icmp_error<'b>(
    packet: &PacketView<'_>,
    error: IcmpError,
    from: Addr,
    buffer: &'b mut AnswerBuffer,
) -> Result<&'b [u8], NotAnswerable> {
    let v4 = packet.meta().version == 4;
    // "Packet too big" may answer a packet to a multicast group (RFC 4443 2.4 (e.3)).
    check_answerable(packet, !v4 && matches!(error, IcmpError::TooBig { .. }))?;
    if from.is_v4() != v4 || is_no_host(from) {
        return Err(NotAnswerable::NoSource);
    }
    let to = packet.ends().0.addr;
    let l4 = network_header_len(packet);
    let room = if v4 { ICMP_V4_MAX } else { ANSWER_MAX } - l4 - ICMP_LEN;
    let quote = packet.network();
    let quote = &quote[..quote.len().min(packet.ip_len()).min(room)];
    let len = ICMP_LEN + quote.len();
    let (number, kind, code, rest) = error.wire(v4);
    let message = &mut buffer[l4..l4 + len];
    message[..ICMP_LEN].copy_from_slice(&[kind, code, 0, 0, rest[0], rest[1], rest[2], rest[3]]);
    message[ICMP_LEN..].copy_from_slice(quote);
    // Only ICMPv6 covers the pseudo-header (RFC 4443 2.3).
    let pseudo = if v4 { 0 } else { pseudo_header(from, to, number, len) };
    let sum = checksum::finish(pseudo + checksum::sum(message));
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    Ok(put_network_header(buffer, from, to, number, len, CONTROL_CLASS))
}

/// Builds a message of this protocol from a packet's destination to its source.
///
/// It is for the gateway that the packet came by, from a gateway without an address of its own.
/// `from` and `to` are destination and source of the packet's outermost header.
///
/// # Errors
/// [`NotAnswerable`]: an address is not that of a single host, so the message might reach several;
/// or the message exceeds [`ANSWER_MAX`] bytes.
pub fn message<'b>(
    packet: &PacketView<'_>,
    (from, to): (Addr, Addr),
    protocol: u8,
    message: &[u8],
    buffer: &'b mut AnswerBuffer,
) -> Result<&'b [u8], NotAnswerable> {
    if is_to_many(from) || is_link_multicast(packet) {
        return Err(NotAnswerable::ToMany);
    }
    if from.is_v4() != to.is_v4() || is_no_host(from) {
        return Err(NotAnswerable::NoSource);
    }
    if is_no_host(to) {
        return Err(NotAnswerable::FromNoHost);
    }
    let at = if from.is_v4() { IPV4_LEN } else { IPV6_LEN };
    let room = buffer.get_mut(at..at + message.len()).ok_or(NotAnswerable::Cut)?;
    room.copy_from_slice(message);
    Ok(put_network_header(buffer, from, to, protocol, message.len(), CONTROL_CLASS))
}

const FIN: u8 = 1;
const SYN: u8 = 2;
const RST: u8 = 4;
const ACK: u8 = 16;

const TCP_LEN: usize = 20;
const ICMP_LEN: usize = 8;
const IPV4_LEN: usize = 20;
const IPV6_LEN: usize = 40;

/// Time to live of answers (RFC 1700; RFC 1812 4.2.2.9).
const TTL: u8 = 64;

const DEFAULT_CLASS: u8 = 0;
/// Internetwork control (RFC 1812 4.3.2.5; DSCP CS6).
const CONTROL_CLASS: u8 = 0xc0;

impl IcmpError {
    /// Returns protocol number, type, code and the four bytes after the checksum.
    fn wire(self, v4: bool) -> (u8, u8, u8, [u8; 4]) {
        let (kind, code) = match (self, v4) {
            (IcmpError::NoRoute, true) => (3, 0),
            (IcmpError::NoRoute, false) => (1, 0),
            (IcmpError::HostUnreachable, true) => (3, 1),
            (IcmpError::HostUnreachable, false) => (1, 3),
            (IcmpError::PortUnreachable, true) => (3, 3),
            (IcmpError::PortUnreachable, false) => (1, 4),
            (IcmpError::AdminProhibited, true) => (3, 13),
            (IcmpError::AdminProhibited, false) => (1, 1),
            (IcmpError::TooBig { .. }, true) => (3, 4),
            (IcmpError::TooBig { .. }, false) => (2, 0),
            (IcmpError::TimeExceeded, true) => (11, 0),
            (IcmpError::TimeExceeded, false) => (3, 0),
        };
        let rest = match self {
            IcmpError::TooBig { mtu } if v4 => mtu.min(0xffff),
            IcmpError::TooBig { mtu } => mtu,
            _ => 0,
        };
        (if v4 { protocol::ICMP } else { protocol::ICMPV6 }, kind, code, rest.to_be_bytes())
    }
}

/// Checks the rules common to all answers.
fn check_answerable(packet: &PacketView<'_>, to_many_allowed: bool) -> Result<(), NotAnswerable> {
    let meta = packet.meta();
    match meta.class {
        PacketClass::NotIp => return Err(NotAnswerable::NotIp),
        PacketClass::LaterFragment => return Err(NotAnswerable::Fragment),
        PacketClass::IcmpError => return Err(NotAnswerable::IcmpError),
        PacketClass::Whole | PacketClass::FirstFragment => {}
    }
    if meta.l3 != meta.outer_l3 {
        return Err(NotAnswerable::Tunnelled);
    }
    // Errors that quote too little to be classified, and redirects (RFC 4443 2.4 (e.2)).
    let icmp = matches!(meta.protocol, protocol::ICMP | protocol::ICMPV6);
    let redirect = |kind| meta.protocol == protocol::ICMPV6 && kind == 137;
    match packet.transport().first() {
        None if icmp => return Err(NotAnswerable::Cut),
        Some(&kind) if icmp && (parse::is_error(meta.protocol, kind) || redirect(kind)) => {
            return Err(NotAnswerable::IcmpError);
        }
        _ => {}
    }
    let (Endpoint { addr: source, .. }, Endpoint { addr: destination, .. }) = packet.ends();
    if !to_many_allowed && (is_to_many(destination) || is_link_multicast(packet)) {
        return Err(NotAnswerable::ToMany);
    }
    if is_no_host(source) { Err(NotAnswerable::FromNoHost) } else { Ok(()) }
}

fn is_to_many(destination: Addr) -> bool {
    match destination.ip() {
        std::net::IpAddr::V4(v4) => v4.is_multicast() || v4.is_broadcast(),
        std::net::IpAddr::V6(v6) => v6.is_multicast(),
    }
}

fn is_link_multicast(packet: &PacketView<'_>) -> bool {
    match packet.meta().link {
        LinkType::Ethernet => packet.data().first().is_some_and(|byte| byte & 1 == 1),
        LinkType::LinuxSll => matches!(packet.data(), [0, 1 | 2, ..]),
        LinkType::LinuxSll2 => matches!(packet.data().get(10), Some(1 | 2)),
        _ => false,
    }
}

/// Checks for unspecified, "this network", loopback, multicast and reserved addresses (RFC 1812
/// 4.3.2.7 with 4.2.2.11; RFC 4443 2.4 (e.6)).
fn is_no_host(source: Addr) -> bool {
    match source.ip() {
        std::net::IpAddr::V4(v4) => matches!(v4.octets()[0], 0 | 127 | 224..),
        std::net::IpAddr::V6(v6) => v6.is_unspecified() || v6.is_loopback() || v6.is_multicast(),
    }
}

/// Returns SEG.LEN: payload bytes, SYN and FIN (RFC 9293 3.4).
fn segment_len(packet: &PacketView<'_>, header: &[u8; 20]) -> u32 {
    let before = usize::from(packet.meta().l4 - packet.meta().l3) + usize::from(header[12] >> 4) * 4;
    let payload = packet.ip_len().saturating_sub(before) as u32;
    payload + u32::from(header[13] & SYN != 0) + u32::from(header[13] & FIN != 0)
}

fn network_header_len(packet: &PacketView<'_>) -> usize {
    if packet.meta().version == 4 { IPV4_LEN } else { IPV6_LEN }
}

fn pseudo_header(from: Addr, to: Addr, protocol: u8, len: usize) -> u32 {
    use std::net::IpAddr::{V4, V6};
    match (from.ip(), to.ip()) {
        (V4(from), V4(to)) => checksum::pseudo_header_v4(from, to, protocol, len as u16),
        (V6(from), V6(to)) => checksum::pseudo_header_v6(from, to, protocol, len as u32),
        _ => 0, // Both have the packet's version.
    }
}

/// Writes the IP header in front of `len` bytes of payload and returns the whole packet.
fn put_network_header(
    buffer: &mut AnswerBuffer,
    from: Addr,
    to: Addr,
    protocol: u8,
    len: usize,
    class: u8,
) -> &[u8] {
    if from.is_v4() {
        let header = &mut buffer[..IPV4_LEN];
        header[..2].copy_from_slice(&[0x45, class]);
        header[2..4].copy_from_slice(&((IPV4_LEN + len) as u16).to_be_bytes());
        // No identification, must not be fragmented (RFC 6864 4.1).
        header[4..10].copy_from_slice(&[0, 0, 0x40, 0, TTL, protocol]);
        header[10..12].fill(0);
        header[12..16].copy_from_slice(&from.v4_bytes());
        header[16..20].copy_from_slice(&to.v4_bytes());
        let sum = checksum::checksum(header);
        header[10..12].copy_from_slice(&sum.to_be_bytes());
        &buffer[..IPV4_LEN + len]
    } else {
        let header = &mut buffer[..IPV6_LEN];
        header[..4].copy_from_slice(&[0x60 | class >> 4, class << 4, 0, 0]);
        header[4..6].copy_from_slice(&(len as u16).to_be_bytes());
        header[6..8].copy_from_slice(&[protocol, TTL]);
        header[8..24].copy_from_slice(from.as_bytes());
        header[24..40].copy_from_slice(to.as_bytes());
        &buffer[..IPV6_LEN + len]
    }
}

fn be32(header: &[u8; 20], at: usize) -> u32 {
    u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
}

#[cfg(test)]
mod tests;
