//! Packets from outside: decapsulated, passed or dropped (RFC 4301 5.2).

use nf::{Context, PacketView, Verdict};
use packet::sanity::is_routed_elsewhere;
use packet::wire::IpProtocol;
use packet::{Addr, DropReason};

use super::config::UnprotectedAction;
use super::frame::{AH, ESP};
use super::numbers::ReplayWindow;
use super::quoted::QuotedEnds;
use super::tunnels::InboundSa;
use super::{COUNTERS, METERS, Vpn};
use crate::headers::{self, InnerHeader, OuterPayload};

/// Next header of dummy packets (RFC 4303 2.6).
const NO_NEXT_HEADER: u8 = 59;

/// An outer header followed by AH or ESP.
struct OuterHeader {
    source: Addr,
    destination: Addr,
    traffic_class: u8,
    /// Length of the packet, from its header.
    len: usize,
    protocol: u8,
    /// Offset of AH or ESP from the outer header.
    at: usize,
    /// True if the packet is a fragment.
    is_fragment: bool,
}

impl Vpn {
    /// Decapsulates the packet, if its tunnel ends here.
    pub(super) fn receive(&self, packet: &mut PacketView<'_>, context: &mut Context<'_>) -> Verdict {
        let Some(header) = InnerHeader::of(packet.outermost()) else {
            return Verdict::Drop(DropReason::VpnMalformed);
        };
        match OuterHeader::of(&header, packet.outermost()) {
            Some(arrived) if self.tunnels.end_at(arrived.destination) => {
                match self.decapsulate(&arrived, packet, context) {
                    Ok(()) => Verdict::Forward,
                    Err(reason) => Verdict::Drop(reason),
                }
            }
            // The packet should have come through a tunnel.
            _ if self.tunnels.between(header.destination, header.source).is_some() => {
                Verdict::Drop(DropReason::VpnClear)
            }
            // No outside router can have seen the quoted packet, and its contents must not leave in
            // the clear.
            _ if QuotedEnds::of(packet.outermost())
                .is_some_and(|quoted| quoted.protected_by(&self.tunnels).is_some()) =>
            {
                Verdict::Drop(DropReason::VpnError)
            }
            _ => self.other(packet, context),
        }
    }

    fn decapsulate(
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
        let count =
            |context: &mut Context<'_>, counter| context.count_at(counter, association.tunnel.into(), 1);
        // Checked before verification, so that a replayed packet costs no more than this (RFC 4303
        // 3.4.3).
        if !is_new(association, number, context) {
            count(context, COUNTERS.replayed);
            return Err(DropReason::VpnReplayed);
        }
        let network = packet.outermost_mut().get_mut(..arrived.len).ok_or(DropReason::VpnMalformed)?;
        let opened = association.transform.open(network, arrived.at);
        if opened == Err(DropReason::VpnIntegrity) {
            count(context, COUNTERS.forged);
        }
        let (payload, next_header) = opened?;
        if !note(association, number, context) {
            count(context, COUNTERS.replayed);
            return Err(DropReason::VpnReplayed);
        }
        if next_header == NO_NEXT_HEADER {
            count(context, COUNTERS.dummies);
            return Err(DropReason::VpnDummy);
        }
        let inner = network.get_mut(payload.clone()).ok_or(DropReason::VpnMalformed)?;
        // Data after the inner packet is traffic flow confidentiality padding (RFC 4303 2.7).
        let found = InnerHeader::of(inner)
            .filter(|found| found.len <= inner.len())
            .ok_or(DropReason::VpnMalformed)?;
        if next_header != if found.version == 4 { IpProtocol::IPV4.0 } else { IpProtocol::IPV6.0 } {
            return Err(DropReason::VpnMalformed);
        }
        let tunnel = self.tunnels.get(association.tunnel).ok_or(DropReason::VpnNoSa)?;
        let comes_out = match QuotedEnds::of(inner) {
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
        headers::decrement_ttl(inner, class);
        packet.decap_opaque(payload.start, found.len, found.version)?;
        count(context, COUNTERS.packets_in);
        context.count_at(COUNTERS.bytes_in, association.tunnel.into(), found.len as u64);
        Ok(())
    }

    /// Handles a packet outside of all tunnels.
    pub(super) fn other(&self, packet: &PacketView<'_>, context: &mut Context<'_>) -> Verdict {
        // A source route may lead to a network that a tunnel reaches.
        if is_routed_elsewhere(packet.outermost()) {
            return Verdict::Drop(DropReason::SourceRoute);
        }
        context.count(COUNTERS.packets_others, 1);
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
    context.release_shared(); // Before the slow part.
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
    /// Reads the headers; none if the packet has neither AH nor ESP, or is truncated.
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

    /// Returns SPI and sequence number.
    fn index_and_number(&self, packet: &[u8]) -> Option<(u32, u32)> {
        let at = if self.protocol == AH { self.at + 4 } else { self.at };
        let &[a, b, c, d, e, f, g, h] = packet.get(at..self.len)?.first_chunk()?;
        Some((u32::from_be_bytes([a, b, c, d]), u32::from_be_bytes([e, f, g, h])))
    }
}
