//! ICMP errors. The quoted packet is translated back, so that its sender recognises it (RFC 5508
//! 4).

use nf::{Context, PacketView, Verdict};
use packet::parse::{self, EmbeddedPacket, protocol};
use packet::{Addr, Direction, DropReason, End, Endpoint, RewriteError, Side, checksum};

use super::nptv6::Nptv6Rule;
use super::open::turn_back;
use super::special::matches_side;
use super::state::State;
use super::{COUNTERS, Nat, forward};

impl Nat {
    /// Translates an error about a packet of a known flow. Type and code stay (RFC 5508 REQ-4b,
    /// REQ-5b).
    pub(super) fn icmp_error(
        &self,
        packet: &mut PacketView<'_>,
        state: &State,
        context: &mut Context<'_>,
    ) -> Verdict {
        if packet.meta().version == 6 {
            return self.icmpv6_error(packet, context).unwrap_or_else(Verdict::Drop);
        }
        if state.has(State::PASS) {
            return Verdict::Forward;
        }
        if !matches_side(state, context) {
            return self.spoofed(packet, context);
        }
        match self.translate_error(packet, state, context) {
            Ok(verdict) => {
                context.count(COUNTERS.icmp_errors, 1);
                verdict
            }
            Err(reason) => Verdict::Drop(reason),
        }
    }

    fn translate_error(
        &self,
        packet: &mut PacketView<'_>,
        state: &State,
        context: &Context<'_>,
    ) -> Result<Verdict, DropReason> {
        let quoted = packet.embedded().ok_or(DropReason::NatIcmpEmbedded)?;
        if !is_intact(packet, quoted) {
            return Err(DropReason::NatIcmpEmbedded); // RFC 5508 REQ-3
        }
        let (from, to) = quoted_ends(packet, quoted);
        if state.has(State::HAIRPIN) {
            // The external endpoint that each host saw, and the host's own: RFC 5508 REQ-7, RFC
            // 7857 12.
            let (source, destination, outer_source, outer_destination) = match context.direction() {
                Direction::Reply => (
                    (state.external, state.internal),
                    (state.peer_internal, state.peer_external),
                    state.peer_external,
                    state.internal,
                ),
                Direction::Original => (
                    (state.peer_external, state.peer_internal),
                    (state.internal, state.external),
                    state.external,
                    state.peer_internal,
                ),
            };
            belongs(from == source.0 && to == destination.0)?;
            let written = packet
                .set_embedded_end(End::Source, source.1)
                .and(packet.set_embedded_end(End::Destination, destination.1))
                .and(set_outer(packet, End::Source, outer_source.addr))
                .and(set_outer(packet, End::Destination, outer_destination.addr));
            return Ok(turn_back(written));
        }
        Ok(forward(match context.side() {
            // RFC 5508 REQ-4
            Side::Outside => {
                belongs(from == state.external)?;
                packet.set_embedded_end(End::Source, state.internal).and(set_outer(
                    packet,
                    End::Destination,
                    state.internal.addr,
                ))
            }
            // RFC 5508 REQ-5: errors from any inside router get the NAT's address.
            Side::Inside => {
                belongs(to == state.internal)?;
                packet.set_embedded_end(End::Destination, state.external).and(set_outer(
                    packet,
                    End::Source,
                    state.external.addr,
                ))
            }
        }))
    }

    /// Translates an ICMPv6 error by its prefixes alone, for known and unknown flows (RFC 6296
    /// 2.5).
    pub(super) fn icmpv6_error(
        &self,
        packet: &mut PacketView<'_>,
        context: &mut Context<'_>,
    ) -> Result<Verdict, DropReason> {
        let quoted = packet.embedded().ok_or(DropReason::NatIcmpEmbedded)?;
        let (from, to) = quoted_ends(packet, quoted);
        let (source, destination) = packet.ends();
        let from_inside = context.side() == Side::Inside;
        let is_neighbour = self.hosts.is_neighbour(destination.addr, context);
        let outer_destination = if is_neighbour { None } else { self.inwards(destination, context)? };
        let outer_source = if from_inside { self.prefixed(source, Nptv6Rule::outwards)? } else { None };
        let turns = from_inside && outer_destination.is_some();
        // The quoted packet went the other way: undo its translation.
        let quoted_source =
            if !from_inside || turns { self.prefixed(from, Nptv6Rule::inwards)? } else { None };
        let quoted_destination = if from_inside { self.prefixed(to, Nptv6Rule::outwards)? } else { None };
        let mut written = Ok(());
        for (end, to) in [(End::Source, quoted_source), (End::Destination, quoted_destination)] {
            if let Some(to) = to {
                written = written.and(packet.set_embedded_end(end, to));
            }
        }
        for (end, to) in [(End::Source, outer_source), (End::Destination, outer_destination)] {
            if let Some(to) = to {
                written = written.and(set_outer(packet, end, to.addr));
            }
        }
        let touched = [quoted_source, quoted_destination, outer_source, outer_destination];
        if touched.iter().any(Option::is_some) {
            context.count(COUNTERS.icmp_errors, 1);
        } else if self.config.ipv6 == super::config::UnmatchedAction::Drop {
            return Err(DropReason::NatUntranslated);
        }
        Ok(if turns { turn_back(written) } else { forward(written) })
    }
}

/// Refuses an error that quotes no packet of this flow, whatever its own addresses.
fn belongs(does: bool) -> Result<(), DropReason> {
    if does { Ok(()) } else { Err(DropReason::IcmpErrorUnrelated) }
}

/// Sets the error's own address; errors have no ports.
fn set_outer(packet: &mut PacketView<'_>, end: End, addr: Addr) -> Result<(), RewriteError> {
    packet.set_end(end, Endpoint::new(addr, 0))
}

/// Verifies the checksums of the error and of the quoted IPv4 header; skips data cut by a capture.
fn is_intact(packet: &PacketView<'_>, quoted: EmbeddedPacket) -> bool {
    let (data, meta) = (packet.data(), packet.meta());
    let header = data.get(quoted.l3..quoted.l4).unwrap_or_default();
    if !checksum::verify(checksum::sum(header)) {
        return false;
    }
    let total = match packet.network() {
        [_, _, high, low, ..] => usize::from(u16::from_be_bytes([*high, *low])),
        _ => 0,
    };
    let message = data.get(meta.l4 as usize..meta.l3 as usize + total);
    message.is_none_or(|message| checksum::verify(checksum::sum(message)))
}

/// Returns source and destination of the quoted packet.
fn quoted_ends(packet: &PacketView<'_>, quoted: EmbeddedPacket) -> (Endpoint, Endpoint) {
    let data = packet.data();
    let (header, body) =
        (data.get(quoted.l3..).unwrap_or_default(), data.get(quoted.l4..).unwrap_or_default());
    let (source, destination) = addresses(header, quoted.version);
    let (from, to) = if quoted.has_transport { ports(body, quoted.protocol) } else { (0, 0) };
    (Endpoint::new(source, from), Endpoint::new(destination, to))
}

fn addresses(header: &[u8], version: u8) -> (Addr, Addr) {
    let v4 = |at: usize| {
        header.get(at..).and_then(|h| h.first_chunk()).map_or(Addr::NONE, |&a| Addr::from_v4_bytes(a))
    };
    let v6 = |at: usize| {
        header.get(at..).and_then(|h| h.first_chunk()).map_or(Addr::NONE, |&a| Addr::from_bytes(a))
    };
    if version == 4 { (v4(12), v4(16)) } else { (v6(8), v6(24)) }
}

fn ports(body: &[u8], number: u8) -> (u16, u16) {
    match (number, body) {
        (protocol::ICMP | protocol::ICMPV6, [kind, _, _, _, high, low, ..])
            if parse::is_query(number, *kind) =>
        {
            let identifier = u16::from_be_bytes([*high, *low]);
            (identifier, identifier)
        }
        (
            protocol::TCP | protocol::UDP | protocol::SCTP | protocol::DCCP | protocol::UDP_LITE,
            [a, b, c, d, ..],
        ) => (u16::from_be_bytes([*a, *b]), u16::from_be_bytes([*c, *d])),
        _ => (0, 0),
    }
}
