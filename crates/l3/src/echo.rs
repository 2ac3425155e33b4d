//! Echo replies to pings of the port's addresses (RFC 792, RFC 4443 4).

use packet::checksum;
use packet::wire::{IpProtocol, icmpv4, icmpv6, ipv4, ipv6};

/// Time to live of replies.
const TTL: u8 = 64;

/// Turns an echo request into its reply, in place, from the IP header on. Returns false for other
/// packets and for fragments.
pub fn answer(packet: &mut [u8]) -> bool {
    match packet.first().map(|first| first >> 4) {
        Some(4) => answer_v4(packet).is_some(),
        Some(6) => answer_v6(packet).is_some(),
        _ => false,
    }
}

fn answer_v4(packet: &mut [u8]) -> Option<()> {
    let mut header = ipv4::Packet::new_checked(packet).ok()?;
    let (source, destination) = (header.source(), header.destination());
    if header.is_fragment() || header.protocol() != IpProtocol::ICMP {
        return None;
    }
    let mut message = icmpv4::Packet::new_checked(header.payload_mut()).ok()?;
    if message.message_type() != icmpv4::Type::ECHO_REQUEST
        || message.code() != 0
        || !message.verify_checksum()
    {
        return None;
    }
    message.set_message_type(icmpv4::Type::ECHO_REPLY);
    let (asked, answered) = (icmpv4::Type::ECHO_REQUEST.0, icmpv4::Type::ECHO_REPLY.0);
    message.set_checksum(checksum::update16(
        message.checksum(),
        u16::from(asked) << 8,
        u16::from(answered) << 8,
    ));
    header.set_source(destination);
    header.set_destination(source);
    header.set_ttl(TTL);
    header.fill_checksum();
    Some(())
}

fn answer_v6(packet: &mut [u8]) -> Option<()> {
    let mut header = ipv6::Packet::new_checked(packet).ok()?;
    let (source, destination) = (header.source(), header.destination());
    if header.next_header() != IpProtocol::ICMPV6 {
        return None;
    }
    let addresses = packet::wire::IpAddresses::V6 { source, destination };
    let mut message = icmpv6::Packet::new_checked(header.payload_mut()).ok()?;
    if message.message_type() != icmpv6::Type::ECHO_REQUEST
        || message.code() != 0
        || !message.verify_checksum(addresses)
    {
        return None;
    }
    message.set_message_type(icmpv6::Type::ECHO_REPLY);
    let (asked, answered) = (icmpv6::Type::ECHO_REQUEST.0, icmpv6::Type::ECHO_REPLY.0);
    message.set_checksum(checksum::update16(
        message.checksum(),
        u16::from(asked) << 8,
        u16::from(answered) << 8,
    ));
    header.set_source(destination);
    header.set_destination(source);
    header.set_hop_limit(TTL);
    Some(())
}
