//! The servers' side: answers to frames, also after an NF rewrote them.

use thiserror::Error;

use super::flow::server_sequence;
use super::frame::{
    AddressPair, BUFFER_BYTES, Buffer, ETHERNET_BYTES, ETHERTYPE_IPV4, ETHERTYPE_IPV6, ETHERTYPE_VLAN, Echo,
    Envelope, FRAME_BYTES_MAX, ICMP_BYTES, ICMP_ECHO_REQUEST, ICMPV6_ECHO_REQUEST, IPV4_BYTES, IPV6_BYTES,
    PROTOCOL_ICMP, PROTOCOL_ICMPV6, PROTOCOL_TCP, PROTOCOL_UDP, TCP_BYTES, Tcp, UDP_BYTES, VLAN_BYTES, flags,
    fold, sum,
};
use super::profile::ServerAnswer;

/// Answers frames as all servers at once: every address exists, and every port is open.
///
/// It keeps no state: an answer follows from the frame alone. So a [`super::Generator`]'s flows and
/// the answers to them agree about sequence numbers, also through an NF that rewrites addresses and
/// ports. TCP: a SYN gets SYN-ACK, data their echo or an acknowledgement, FIN gets FIN-ACK. UDP
/// data and ICMP echo requests are returned. Like a host, it does not answer damaged packets; it
/// reassembles no fragments.
#[derive(Debug)]
pub struct Responder {
    answer: ServerAnswer,
    buffer: Box<Buffer>,
}

/// Reason why a frame gets no answer.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum NoAnswer {
    /// It is not IPv4 or IPv6 over Ethernet with at most one VLAN tag.
    #[error("the frame is not IP")]
    NotIp,
    /// A header or length is wrong, or the frame is longer than [`FRAME_BYTES_MAX`] and a VLAN tag.
    #[error("the frame is malformed")]
    Malformed,
    /// A checksum is wrong.
    #[error("a checksum is wrong")]
    Checksum,
    /// It is a fragment.
    #[error("the packet is a fragment")]
    Fragment,
    /// It is not TCP, UDP or an ICMP echo request, or has IPv6 extension headers.
    #[error("the protocol is not answered")]
    Protocol,
    /// A server does not answer it: a bare acknowledgement, a reset.
    #[error("no answer is expected")]
    NothingToSay,
}

impl Responder {
    /// Makes a responder that answers data over TCP in this way, which must be the profile's.
    pub fn new(answer: ServerAnswer) -> Responder {
        Responder { answer, buffer: Box::new([0; BUFFER_BYTES]) }
    }

    /// Returns the server's answer to a frame, valid until the next call.
    ///
    /// # Errors
    /// The reason why there is none.
    pub fn respond(&mut self, frame: &[u8]) -> Result<&[u8], NoAnswer> {
        if frame.len() > usize::from(FRAME_BYTES_MAX) + VLAN_BYTES {
            return Err(NoAnswer::Malformed);
        }
        let packet = Packet::parse(frame)?;
        let length = match packet.protocol {
            PROTOCOL_TCP => self.respond_tcp(&packet)?,
            PROTOCOL_UDP => self.respond_udp(&packet)?,
            PROTOCOL_ICMP | PROTOCOL_ICMPV6 => self.respond_echo(&packet)?,
            _ => return Err(NoAnswer::Protocol),
        };
        Ok(&self.buffer[..length])
    }

    fn respond_tcp(&mut self, packet: &Packet<'_>) -> Result<usize, NoAnswer> {
        let segment = packet.transport;
        let header = match segment.get(12) {
            Some(offset) => usize::from(offset >> 4) * 4,
            None => return Err(NoAnswer::Malformed),
        };
        if header < TCP_BYTES || header > segment.len() {
            return Err(NoAnswer::Malformed);
        }
        packet.check_transport(false)?;
        let payload = &segment[header..];
        let (sequence, acknowledgement, received) = (be_u32(segment, 4), be_u32(segment, 8), segment[13]);
        // The payload is shorter than a frame.
        let after = sequence.wrapping_add(payload.len() as u32);
        let control = received & (flags::SYN | flags::FIN | flags::RST | flags::ACK);
        let (sequence, acknowledgement, flags, payload) = match control {
            flags::SYN => {
                (server_sequence(sequence), after.wrapping_add(1), flags::SYN | flags::ACK, &[][..])
            }
            FIN_ACK => (acknowledgement, after.wrapping_add(1), flags::FIN | flags::ACK, &[][..]),
            flags::ACK if payload.is_empty() => return Err(NoAnswer::NothingToSay),
            flags::ACK => match self.answer {
                ServerAnswer::Echo => (acknowledgement, after, flags::PSH | flags::ACK, payload),
                ServerAnswer::Acknowledge => (acknowledgement, after, flags::ACK, &[][..]),
            },
            _ => return Err(NoAnswer::NothingToSay),
        };
        let tcp = Tcp {
            source_port: be_u16(segment, 2),
            destination_port: be_u16(segment, 0),
            sequence,
            acknowledgement,
            flags,
        };
        Ok(packet.reply.tcp(&mut self.buffer, &tcp, payload))
    }

    fn respond_udp(&mut self, packet: &Packet<'_>) -> Result<usize, NoAnswer> {
        let datagram = packet.transport;
        if datagram.len() < UDP_BYTES {
            return Err(NoAnswer::Malformed);
        }
        let length = usize::from(be_u16(datagram, 4));
        if length < UDP_BYTES || length > datagram.len() {
            return Err(NoAnswer::Malformed);
        }
        let datagram = &datagram[..length];
        Packet { transport: datagram, ..*packet }.check_transport(be_u16(datagram, 6) == 0)?;
        let (source_port, destination_port) = (be_u16(datagram, 2), be_u16(datagram, 0));
        Ok(packet.reply.udp(&mut self.buffer, source_port, destination_port, &datagram[UDP_BYTES..]))
    }

    fn respond_echo(&mut self, packet: &Packet<'_>) -> Result<usize, NoAnswer> {
        let message = packet.transport;
        if message.len() < ICMP_BYTES {
            return Err(NoAnswer::Malformed);
        }
        packet.check_transport(false)?;
        let request = match packet.protocol {
            PROTOCOL_ICMP => ICMP_ECHO_REQUEST,
            _ => ICMPV6_ECHO_REQUEST,
        };
        if message[..2] != [request, 0] {
            return Err(NoAnswer::NothingToSay);
        }
        let echo = Echo { is_reply: true, ident: be_u16(message, 4), sequence: be_u16(message, 6) };
        Ok(packet.reply.echo(&mut self.buffer, &echo, &message[ICMP_BYTES..]))
    }
}

const FIN_ACK: u8 = flags::FIN | flags::ACK;

/// A frame, parsed up to its transport header.
#[derive(Clone, Copy)]
struct Packet<'a> {
    /// Headers of the reply.
    reply: Envelope,
    protocol: u8,
    transport: &'a [u8],
}

impl<'a> Packet<'a> {
    fn parse(frame: &'a [u8]) -> Result<Packet<'a>, NoAnswer> {
        let (ethernet, mut rest) = frame.split_first_chunk::<ETHERNET_BYTES>().ok_or(NoAnswer::NotIp)?;
        let mut ethertype = be_u16(ethernet, 12);
        let mut vlan = None;
        if ethertype == ETHERTYPE_VLAN {
            let (tag, behind) = rest.split_first_chunk::<VLAN_BYTES>().ok_or(NoAnswer::NotIp)?;
            (vlan, ethertype, rest) = (Some(be_u16(tag, 0)), be_u16(tag, 2), behind);
        }
        let (addresses, ident, protocol, transport) = match ethertype {
            ETHERTYPE_IPV4 => parse_ipv4(rest)?,
            ETHERTYPE_IPV6 => parse_ipv6(rest)?,
            _ => return Err(NoAnswer::NotIp),
        };
        let [d0, d1, d2, d3, d4, d5, s0, s1, s2, s3, s4, s5, ..] = *ethernet;
        let reply = Envelope {
            source_mac: [d0, d1, d2, d3, d4, d5],
            destination_mac: [s0, s1, s2, s3, s4, s5],
            vlan,
            addresses: addresses.swapped(),
            ident,
        };
        Ok(Packet { reply, protocol, transport })
    }

    /// Checks the transport's checksum, which IPv4 lets UDP omit (RFC 768).
    fn check_transport(&self, is_absent: bool) -> Result<(), NoAnswer> {
        let addresses = self.reply.addresses;
        if is_absent && !addresses.is_v6() {
            return Ok(());
        }
        let pseudo = match self.protocol {
            PROTOCOL_ICMP => 0,
            protocol => addresses.pseudo_sum(protocol, self.transport.len()),
        };
        match fold(pseudo + sum(self.transport)) {
            0xffff => Ok(()),
            _ => Err(NoAnswer::Checksum),
        }
    }
}

type Parsed<'a> = (AddressPair, u16, u8, &'a [u8]);

fn parse_ipv4(packet: &[u8]) -> Result<Parsed<'_>, NoAnswer> {
    const FRAGMENT_BITS: u16 = 0x3fff;
    let header = packet.first_chunk::<IPV4_BYTES>().ok_or(NoAnswer::Malformed)?;
    let header_length = usize::from(header[0] & 0x0f) * 4;
    let total = usize::from(be_u16(header, 2));
    if header[0] >> 4 != 4 || header_length < IPV4_BYTES || total < header_length || total > packet.len() {
        return Err(NoAnswer::Malformed);
    }
    if fold(sum(&packet[..header_length])) != 0xffff {
        return Err(NoAnswer::Checksum);
    }
    if be_u16(header, 6) & FRAGMENT_BITS != 0 {
        return Err(NoAnswer::Fragment);
    }
    let source = [header[12], header[13], header[14], header[15]];
    let destination = [header[16], header[17], header[18], header[19]];
    let addresses = AddressPair::V4 { source, destination };
    Ok((addresses, be_u16(header, 4), header[9], &packet[header_length..total]))
}

fn parse_ipv6(packet: &[u8]) -> Result<Parsed<'_>, NoAnswer> {
    const FRAGMENT_HEADER: u8 = 44;
    let header = packet.first_chunk::<IPV6_BYTES>().ok_or(NoAnswer::Malformed)?;
    let total = IPV6_BYTES + usize::from(be_u16(header, 4));
    if header[0] >> 4 != 6 || total > packet.len() {
        return Err(NoAnswer::Malformed);
    }
    if header[6] == FRAGMENT_HEADER {
        return Err(NoAnswer::Fragment);
    }
    let (mut source, mut destination) = ([0; 16], [0; 16]);
    source.copy_from_slice(&header[8..24]);
    destination.copy_from_slice(&header[24..40]);
    Ok((AddressPair::V6 { source, destination }, 0, header[6], &packet[IPV6_BYTES..total]))
}

/// Returns the 16-bit field at `offset`, which must lie within `bytes`.
fn be_u16(bytes: &[u8], offset: usize) -> u16 {
    u16::from_be_bytes([bytes[offset], bytes[offset + 1]])
}

/// Returns the 32-bit field at `offset`, which must lie within `bytes`.
fn be_u32(bytes: &[u8], offset: usize) -> u32 {
    u32::from(be_u16(bytes, offset)) << 16 | u32::from(be_u16(bytes, offset + 2))
}
