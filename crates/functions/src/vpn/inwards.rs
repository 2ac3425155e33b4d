//! Packets from outside: out of their tunnel, or on (RFC 4301 5.2).

use nf::{Context, PacketView, Verdict};
use packet::sanity::is_routed_elsewhere;
use packet::wire::IpProtocol;
use packet::{Addr, DropReason};

use super::config::UnprotectedAction;
use super::frame::{AH, ESP};
use super::numbers::ReplayWindow;
use super::quoted::QuotedEnds;
use super::tunnels::InboundSa;
use super::{METERS, Vpn, of_tunnel};
use crate::headers::{self, InnerHeader, OuterPayload};

/// The next header of dummy packets (RFC 4303 2.6).
const NO_NEXT_HEADER: u8 = 59;

/// An outer header, with AH or ESP behind it.
struct OuterHeader {
    source: Addr,
    destination: Addr,
    traffic_class: u8,
    /// The length of the packet, as its header says it.
    len: usize,
    /// AH or ESP.
    protocol: u8,
    /// Where AH or ESP begins, from the outer header on.
    at: usize,
    /// Only part of a packet that was fragmented.
    is_fragment: bool,
}

impl Vpn {
    /// Takes the packet out of its tunnel, if it came in one that ends here.
    pub(super) fn receive(&self, packet: &mut PacketView<'_>, context: &mut Context<'_>) -> Verdict {
        let Some(header) = InnerHeader::of(packet.outermost()) else {
            return Verdict::Drop(DropReason::VpnMalformed);
        };
        match OuterHeader::of(&header, packet.outermost()) {
            Some(arrived) if self.tunnels.end_at(arrived.destination) => {
                match self.take_out(&arrived, packet, context) {
                    Ok(()) => Verdict::Forward,
                    Err(reason) => Verdict::Drop(reason),
                }
            }
            // What should have come through a tunnel.
            _ if self.tunnels.between(header.destination, header.source).is_some() => {
                Verdict::Drop(DropReason::VpnClear)
            }
            // No router on the way has seen such a packet, and what it quotes is nobody's to tell
            // in the clear.
            _ if QuotedEnds::of(packet.outermost())
                .is_some_and(|quoted| quoted.protected_by(&self.tunnels).is_some()) =>
            {
                Verdict::Drop(DropReason::VpnError)
            }
            _ => self.other(packet, context),
        }
    }

    fn take_out(
        &self,
        arrived: &OuterHeader,
        packet: &mut PacketView<'_>,
        context: &mut Context<'_>,
    ) -> Result<(), DropReason> {
        if arrived.is_fragment {
            return Err(DropReason::VpnFragment);
        }
        let (spi, number) = arrived.index_and_number(packet.outermost()).ok_or(DropReason::VpnMalformed)?;
        let association = self
            .tunnels
            .inbound(arrived.destination, arrived.source, arrived.protocol, spi)
            .ok_or(DropReason::VpnNoSa)?;
        let count = |context: &mut Context<'_>, what| super::count(context, association.tunnel, what, 1);
        // Before the packet is verified: what is old costs no more than that (RFC 4303 3.4.3).
        if !is_new(association, number, context) {
            count(context, of_tunnel::REPLAYED);
            return Err(DropReason::VpnReplayed);
        }
        let network = packet.outermost_mut().get_mut(..arrived.len).ok_or(DropReason::VpnMalformed)?;
        let opened = association.transform.open(network, arrived.at);
        if opened == Err(DropReason::VpnIntegrity) {
            count(context, of_tunnel::FORGED);
        }
        let (payload, next_header) = opened?;
        if !note(association, number, context) {
            count(context, of_tunnel::REPLAYED);
            return Err(DropReason::VpnReplayed);
        }
        if next_header == NO_NEXT_HEADER {
            count(context, of_tunnel::DUMMIES);
            return Err(DropReason::VpnDummy);
        }
        let within = network.get_mut(payload.clone()).ok_or(DropReason::VpnMalformed)?;
        // What stands behind it is there to hide its length (RFC 4303 2.7).
        let found = InnerHeader::of(within)
            .filter(|found| found.len <= within.len())
            .ok_or(DropReason::VpnMalformed)?;
        if next_header != if found.version == 4 { IpProtocol::IPV4.0 } else { IpProtocol::IPV6.0 } {
            return Err(DropReason::VpnMalformed);
        }
        let tunnel = self.tunnels.get(association.tunnel).ok_or(DropReason::VpnNoSa)?;
        let comes_out = match QuotedEnds::of(within) {
            Some(quoted) => quoted.comes_out(tunnel, found.destination),
            None => tunnel.lets_out(found.source, found.destination),
        };
        if !comes_out {
            return Err(DropReason::VpnSelector);
        }
        if found.ttl <= 1 {
            return Err(DropReason::TtlExpired);
        }
        let class = packet::class_after_decap(found.traffic_class, arrived.traffic_class)
            .ok_or(DropReason::VpnCongestion)?;
        headers::pass_on(within, class);
        packet.decap_opaque(payload.start, found.len, found.version)?;
        super::count_packet(context, association.tunnel, of_tunnel::PACKETS_IN, found.len);
        Ok(())
    }

    /// What becomes of a packet that goes through no tunnel.
    pub(super) fn other(&self, packet: &PacketView<'_>, context: &mut Context<'_>) -> Verdict {
        // Where it goes in the end is in its route: perhaps where a tunnel leads.
        if is_routed_elsewhere(packet.outermost()) {
            return Verdict::Drop(DropReason::SourceRoute);
        }
        context.count(super::counter::OTHERS, 1);
        match self.others {
            UnprotectedAction::Pass => Verdict::Forward,
            UnprotectedAction::Drop => Verdict::Drop(DropReason::VpnOther),
        }
    }
}

fn is_new(association: &InboundSa, number: u32, context: &mut Context<'_>) -> bool {
    let Some(name) = &association.name else { return true };
    let now_ns = context.now_ns();
    let is_new = ReplayWindow::new(context.meters(METERS), name, now_ns).is_new(number);
    context.release_shared(); // Before what takes long.
    is_new
}

fn note(association: &InboundSa, number: u32, context: &mut Context<'_>) -> bool {
    let Some(name) = &association.name else { return true };
    let now_ns = context.now_ns();
    let is_new = ReplayWindow::new(context.meters(METERS), name, now_ns).note(number);
    context.release_shared();
    is_new
}

impl OuterHeader {
    /// None if the packet has neither AH nor ESP, as far as its headers are here.
    fn of(header: &InnerHeader, packet: &[u8]) -> Option<OuterHeader> {
        let OuterPayload { protocol, at, is_fragment } = OuterPayload::of(packet)?;
        matches!(protocol, AH | ESP).then_some(OuterHeader {
            source: header.source,
            destination: header.destination,
            traffic_class: header.traffic_class,
            len: header.len,
            protocol,
            at,
            is_fragment,
        })
    }

    /// What AH or ESP says of itself.
    fn index_and_number(&self, packet: &[u8]) -> Option<(u32, u32)> {
        let at = if self.protocol == AH { self.at + 4 } else { self.at };
        let &[a, b, c, d, e, f, g, h] = packet.get(at..self.len)?.first_chunk()?;
        Some((u32::from_be_bytes([a, b, c, d]), u32::from_be_bytes([e, f, g, h])))
    }
}
