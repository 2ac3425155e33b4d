//! Neighbour discovery, for IPv6 (RFC 4861).

use std::net::{IpAddr, Ipv6Addr};

use packet::wire::{EtherType, IpProtocol, MacAddress, ethernet, ipv6};
use packet::{Addr, checksum};

const SOLICITATION: u8 = 135;
const ADVERTISEMENT: u8 = 136;
const SOURCE_OPTION: u8 = 1;
const TARGET_OPTION: u8 = 2;

/// Length of a solicitation or an advertisement without options.
const MESSAGE_LEN: usize = 24;
/// Length of an option with an Ethernet address.
const OPTION_LEN: usize = 8;

/// Hop limit of neighbour discovery, which proves that no router forwarded it (RFC 4861 7.1).
const HOP_LIMIT: u8 = 255;

/// A message of neighbour discovery.
pub enum NdMessage {
    /// Request for the target's address; the sender may have included its own.
    Solicitation { target: Ipv6Addr, source: Option<MacAddress> },
    /// The target is at this address.
    Advertisement { target: Ipv6Addr, mac: MacAddress },
}

/// Parses the message in an ICMPv6 packet from its IPv6 header on; `None` for other or invalid
/// ones.
pub fn parse(packet: &[u8]) -> Option<NdMessage> {
    let header = ipv6::Packet::new_checked(packet).ok()?;
    let message = header.payload();
    let len = u32::try_from(message.len()).ok()?;
    let pseudo = checksum::pseudo_header_v6(header.source(), header.destination(), IpProtocol::ICMPV6.0, len);
    let is_valid = header.next_header() == IpProtocol::ICMPV6
        && header.hop_limit() == HOP_LIMIT
        && message.len() >= MESSAGE_LEN
        && message[1] == 0
        && checksum::verify(pseudo + checksum::sum(message));
    if !is_valid {
        return None;
    }
    let target = Ipv6Addr::from(*message[8..].first_chunk::<16>()?);
    match message[0] {
        SOLICITATION => Some(NdMessage::Solicitation { target, source: option(message, SOURCE_OPTION) }),
        ADVERTISEMENT => Some(NdMessage::Advertisement { target, mac: option(message, TARGET_OPTION)? }),
        _ => None,
    }
}

/// Returns the target of an advertisement in a frame that this Ethernet address sent.
pub fn own_target(frame: &[u8], mac: MacAddress) -> Option<Addr> {
    let link = ethernet::Frame::new_checked(frame).ok().filter(|link| link.source() == mac)?;
    let is_v6 = link.ethertype() == Some(EtherType::IPV6);
    match parse(&frame[ethernet::HEADER_LEN..]).filter(|_| is_v6)? {
        NdMessage::Advertisement { target, mac: said } if said == mac => Some(IpAddr::V6(target).into()),
        _ => None,
    }
}

/// Returns the Ethernet address in an option of this kind.
fn option(message: &[u8], kind: u8) -> Option<MacAddress> {
    let mut options = &message[MESSAGE_LEN..];
    while let [found, units, ..] = *options {
        let len = usize::from(units) * 8;
        let option = options.get(..len).filter(|_| len > 0)?;
        if found == kind {
            return option[2..].first_chunk().copied().map(MacAddress);
        }
        options = &options[len..];
    }
    None
}

/// Builds a solicitation of the target.
pub fn solicitation(own: (MacAddress, Ipv6Addr), target: Ipv6Addr) -> Vec<u8> {
    let [.., a, b, c] = target.octets();
    let group = Ipv6Addr::from([0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, a, b, c]);
    let destination = MacAddress([0x33, 0x33, 0xff, a, b, c]);
    frame(destination, own, group, (SOLICITATION, 0), target, SOURCE_OPTION)
}

/// Builds a solicitation of the target by a node that checks if the address is free (RFC 4862
/// 5.4.2).
pub fn probe(mac: MacAddress, target: Ipv6Addr) -> Vec<u8> {
    let mut frame = solicitation((mac, Ipv6Addr::UNSPECIFIED), target);
    // It has no option, as the sender has no address.
    frame.truncate(frame.len() - OPTION_LEN);
    let (_, packet) = frame.split_at_mut(ethernet::HEADER_LEN);
    let (header, message) = packet.split_at_mut(ipv6::HEADER_LEN);
    let mut header = ipv6::Packet::new_unchecked(header);
    header.set_payload_len(MESSAGE_LEN as u16);
    let (from, to) = (header.source(), header.destination());
    write_checksum(message, from, to);
    frame
}

/// Builds an advertisement that the target is at this Ethernet address, in reply to `to`. Without
/// it, all nodes are addressed (a node that checks if an address is free has none). `overrides`: it
/// replaces another Ethernet address that nodes know.
pub fn advertisement(
    own: (MacAddress, Ipv6Addr),
    to: Option<(MacAddress, Ipv6Addr)>,
    overrides: bool,
) -> Vec<u8> {
    const ROUTER: u8 = 0x80;
    const SOLICITED: u8 = 0x40;
    const OVERRIDE: u8 = 0x20;
    let (flags, (mac, address)) = match to {
        Some(to) => (ROUTER | SOLICITED, to),
        None => {
            let all = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
            (ROUTER, (MacAddress([0x33, 0x33, 0, 0, 0, 1]), all))
        }
    };
    let flags = if overrides { flags | OVERRIDE } else { flags };
    frame(mac, own, address, (ADVERTISEMENT, flags), own.1, TARGET_OPTION)
}

fn frame(
    to_mac: MacAddress,
    (own_mac, own): (MacAddress, Ipv6Addr),
    to: Ipv6Addr,
    (kind, flags): (u8, u8),
    target: Ipv6Addr,
    option: u8,
) -> Vec<u8> {
    let mut message = [0; MESSAGE_LEN + OPTION_LEN];
    message[0] = kind;
    message[4] = flags;
    message[8..24].copy_from_slice(&target.octets());
    message[24..26].copy_from_slice(&[option, 1]);
    message[26..].copy_from_slice(&own_mac.0);
    write_checksum(&mut message, own, to);

    let mut frame = vec![0; ethernet::HEADER_LEN + ipv6::HEADER_LEN];
    let link = ethernet::Repr { destination: to_mac, source: own_mac, ethertype: EtherType::IPV6 };
    let written = link.emit(&mut frame);
    debug_assert!(written.is_ok(), "the frame has room");
    let mut header = ipv6::Packet::new_unchecked(&mut frame[ethernet::HEADER_LEN..]);
    header.set_version();
    header.set_payload_len(message.len() as u16);
    header.set_next_header(IpProtocol::ICMPV6);
    header.set_hop_limit(HOP_LIMIT);
    header.set_source(own);
    header.set_destination(to);
    frame.extend_from_slice(&message);
    frame
}

fn write_checksum(message: &mut [u8], from: Ipv6Addr, to: Ipv6Addr) {
    message[2..4].fill(0);
    let pseudo = checksum::pseudo_header_v6(from, to, IpProtocol::ICMPV6.0, message.len() as u32);
    let sum = checksum::finish(pseudo + checksum::sum(message));
    message[2..4].copy_from_slice(&sum.to_be_bytes());
}
