//! Properties of a packet, and of the packet that opened a flow.

use nf::{Context, PacketView};
use packet::parse::protocol;
use packet::{Direction, Endpoint, Side};

use super::rule::{ConnectionState, FilterHeaders, RuleDirection, has_ports, is_icmp};

/// The first packet of a flow checked against the rules, in one byte: its presence, direction and
/// state.
#[derive(Clone, Copy)]
pub(super) struct Opening(pub(super) u8);

impl Opening {
    pub(super) fn new(context: &Context<'_>, state: ConnectionState) -> Opening {
        let outside = u8::from(context.side() == Side::Outside);
        let reply = u8::from(context.direction() == Direction::Reply);
        Opening(1 | outside << 1 | reply << 2 | (state as u8) << 4)
    }

    pub(super) fn is_set(self) -> bool {
        self.0 != 0
    }

    pub(super) fn way(self) -> RuleDirection {
        way(if self.0 & 2 == 0 { Side::Inside } else { Side::Outside })
    }

    pub(super) fn direction(self) -> Direction {
        if self.0 & 4 == 0 { Direction::Original } else { Direction::Reply }
    }

    pub(super) fn state(self) -> ConnectionState {
        ConnectionState::ALL[usize::from(self.0 >> 4 & 3)]
    }
}

pub(super) fn way(side: Side) -> RuleDirection {
    match side {
        Side::Inside => RuleDirection::Out,
        Side::Outside => RuleDirection::In,
    }
}

/// Returns whether an ICMP error belongs to the flow of its quoted packet; otherwise it is a flow
/// of its own.
pub(super) fn is_related(context: &Context<'_>) -> bool {
    !is_icmp(context.flow().key.protocol) || context.flow().key.ends(false).0.port != 0
}

/// Returns the TCP flags or the ICMP type.
pub(super) fn detail(packet: &PacketView<'_>) -> u8 {
    match packet.meta().protocol {
        protocol::TCP => packet.meta().tcp_flags,
        number if is_icmp(number) && packet.meta().has_transport() => {
            packet.transport().first().copied().unwrap_or(0)
        }
        _ => 0,
    }
}

/// Returns the type of the reply to a message of this type; the type itself if it has no reply (RFC
/// 792, RFC 950, RFC 4443 4).
pub(super) fn answer_type(number: u8, kind: u8) -> u8 {
    match (number, kind) {
        (protocol::ICMP, 8) => 0,
        (protocol::ICMP, 13 | 15 | 17) | (protocol::ICMPV6, 128) => kind + 1,
        _ => kind,
    }
}

/// Returns whether messages of this type are replies.
pub(super) fn is_answer(number: u8, kind: u8) -> bool {
    matches!((number, kind), (protocol::ICMP, 0 | 14 | 16 | 18) | (protocol::ICMPV6, 129))
}

/// Returns whether the flags open a connection: SYN without ACK.
#[inline]
pub(super) fn is_syn(tcp_flags: u8) -> bool {
    tcp_flags & 0x12 == 2
}

/// Returns whether a host would send this combination of FIN, SYN, RST and ACK (RFC 9293 3.10.7).
pub(super) fn flags_fit(flags: u8) -> bool {
    const FIN: u8 = 1;
    const SYN: u8 = 2;
    const RST: u8 = 4;
    const ACK: u8 = 16;
    const FITTING: [u8; 6] = [SYN, SYN | ACK, ACK, FIN | ACK, RST, RST | ACK];
    FITTING.contains(&(flags & (FIN | SYN | RST | ACK)))
}

/// Builds the headers to match, for a packet from the first endpoint to the second.
pub(super) fn headers(
    version: u8,
    number: u8,
    (source, destination): (Endpoint, Endpoint),
    detail: u8,
    way: RuleDirection,
    state: ConnectionState,
) -> FilterHeaders {
    let ports = has_ports(number);
    FilterHeaders {
        version,
        protocol: number,
        source: source.addr,
        destination: destination.addr,
        source_port: if ports { source.port } else { 0 },
        destination_port: match number {
            _ if is_icmp(number) => u16::from(detail),
            _ if ports => destination.port,
            _ => 0,
        },
        tcp_flags: if number == protocol::TCP { detail } else { 0 },
        way,
        state,
    }
}
