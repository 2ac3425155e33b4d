//! Replies to echo requests to a service's address.

use nf::{Context, PacketView};
use packet::checksum::Delta;
use packet::parse::protocol;
use packet::{DropReason, PacketClass};

use super::{COUNTERS, Decision};

/// Maximum length of an echo request to answer: the payload of an Ethernet frame.
pub const ECHO_MAX: usize = 1500;

/// Returns whether the packet is a whole echo request without IP options, which a reply would have
/// to reverse.
pub fn is_request(packet: &PacketView<'_>) -> bool {
    let meta = packet.meta();
    let header_len = if meta.version == 4 { 20 } else { 40 };
    let plain =
        meta.class == PacketClass::Whole && meta.l3 == meta.outer_l3 && meta.l4 - meta.l3 == header_len;
    plain
        && matches!(
            (meta.protocol, packet.transport()),
            (protocol::ICMP, [8, 0, ..]) | (protocol::ICMPV6, [128, 0, ..])
        )
}

/// Sends the reply; consumes the request (RFC 792, RFC 4443 4.2).
pub fn answer(packet: &PacketView<'_>, context: &mut Context<'_>) -> Decision {
    let request = packet.network().get(..packet.ip_len()).ok_or(DropReason::IcmpTruncated)?;
    let mut buffer = [0; ECHO_MAX];
    let reply = buffer.get_mut(..request.len()).ok_or(DropReason::TooBig)?;
    reply.copy_from_slice(request);
    turn(reply, packet.meta().version, usize::from(packet.meta().l4 - packet.meta().l3))?;
    context.answer(packet, reply)?;
    context.count(COUNTERS.pings_answered, 1);
    Err(DropReason::LbAnswered)
}

const TTL: u8 = 64;

/// Turns the request into a reply; the ICMP header is at `l4`.
fn turn(packet: &mut [u8], version: u8, l4: usize) -> Decision {
    let (ends, ttl, kind) = if version == 4 { (12..20, 8, 0) } else { (8..40, 7, 129) };
    let (header, message) = packet.split_at_mut_checked(l4).ok_or(DropReason::IcmpTruncated)?;
    let ends = header.get_mut(ends).ok_or(DropReason::IcmpTruncated)?;
    let (source, destination) = ends.split_at_mut(ends.len() / 2);
    source.swap_with_slice(destination); // The checksum does not change.
    let old_ttl = std::mem::replace(&mut header[ttl], TTL);
    if version == 4 {
        let next = header[ttl + 1];
        let change = Delta::of16(u16::from_be_bytes([old_ttl, next]), u16::from_be_bytes([TTL, next]));
        let sum = change.apply(u16::from_be_bytes([header[10], header[11]]));
        header[10..12].copy_from_slice(&sum.to_be_bytes());
    }
    let Some([old_kind, code, high, low]) = message.first_chunk_mut::<4>() else {
        return Err(DropReason::IcmpTruncated);
    };
    let change = Delta::of16(u16::from_be_bytes([*old_kind, *code]), u16::from_be_bytes([kind, *code]));
    [*high, *low] = change.apply(u16::from_be_bytes([*high, *low])).to_be_bytes();
    *old_kind = kind;
    Ok(())
}
