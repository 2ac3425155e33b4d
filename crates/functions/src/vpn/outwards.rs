//! Packets from inside: encapsulated, passed, or answered with an error (RFC 4301 5.1).

use nf::answer::{self, IcmpError};
use nf::{Context, PacketView, Verdict};
use packet::{Addr, DropReason};

use super::numbers::PacketNonce;
use super::quoted::QuotedEnds;
use super::tunnels::OutboundTunnel;
use super::{COUNTERS, METERS, State, Vpn};
use crate::headers::{self, InnerHeader};

/// Minimum interval, in nanoseconds, between two notifications of a flow's sender.
pub const NOTIFY_INTERVAL_NS: u64 = 100_000_000;

impl Vpn {
    /// Encapsulates the packet, if a tunnel leads to its destination.
    pub(super) fn send(
        &self,
        packet: &mut PacketView<'_>,
        state: &mut State,
        context: &mut Context<'_>,
    ) -> Verdict {
        let Some(inner) = InnerHeader::of(packet.outermost()) else {
            return Verdict::Drop(DropReason::VpnMalformed);
        };
        let chosen = match QuotedEnds::of(packet.outermost()) {
            Some(quoted) => quoted.tunnel_for(&inner, &self.tunnels),
            None => Ok(self.tunnels.between(inner.source, inner.destination)),
        };
        let (number, tunnel) = match chosen {
            Ok(Some(chosen)) => chosen,
            Ok(None) => return self.other(packet, context),
            Err(reason) => return Verdict::Drop(reason),
        };
        let version = tunnel.outer.source.version();
        if tunnel.transform.enclosed_len(inner.len, version) > tunnel.mtu {
            if inner.dont_fragment {
                let error = IcmpError::TooBig { mtu: tunnel.inner_mtu as u32 };
                self.notify(
                    error,
                    self.own_address(&inner).unwrap_or(inner.destination),
                    packet,
                    state,
                    context,
                );
            }
            return Verdict::Drop(DropReason::TooBig);
        }
        // RFC 4301 5.1.2.1, note 3.
        if inner.ttl <= 1 {
            if let Some(from) = self.own_address(&inner) {
                self.notify(IcmpError::TimeExceeded, from, packet, state, context);
            }
            return Verdict::Drop(DropReason::TtlExpired);
        }
        match encapsulate(tunnel, &inner, packet, context) {
            Ok(()) => {
                context.count_at(COUNTERS.packets_out, number.into(), 1);
                context.count_at(COUNTERS.bytes_out, number.into(), inner.len as u64);
                Verdict::Forward
            }
            Err(reason) => Verdict::Drop(reason),
        }
    }

    /// Returns the gateway's own address of the packet's IP version.
    fn own_address(&self, inner: &InnerHeader) -> Option<Addr> {
        if inner.version == 4 { self.gateway4 } else { self.gateway6 }
    }

    /// Notifies the packet's sender of an error (RFC 1191, RFC 8201; RFC 4301 8.2).
    #[cold]
    fn notify(
        &self,
        error: IcmpError,
        from: Addr,
        packet: &PacketView<'_>,
        state: &mut State,
        context: &mut Context<'_>,
    ) {
        let now_ns = context.now_ns();
        if state.notified_ns != 0 && now_ns.saturating_sub(state.notified_ns) < NOTIFY_INTERVAL_NS {
            return;
        }
        let mut buffer = answer::buffer();
        if let Ok(message) = answer::icmp_error(packet, error, from, &mut buffer)
            && context.answer(packet, message).is_ok()
        {
            state.notified_ns = now_ns.max(1);
            context.count(COUNTERS.errors_sent, 1);
        }
    }
}

fn encapsulate(
    tunnel: &OutboundTunnel,
    inner: &InnerHeader,
    packet: &mut PacketView<'_>,
    context: &mut Context<'_>,
) -> Result<(), DropReason> {
    let now_ns = context.now_ns();
    let stamp = PacketNonce::next(context.meters(METERS), &tunnel.name, tunnel.first_sequence, now_ns);
    context.release_shared(); // Before the slow part.
    let stamp = stamp.ok_or(DropReason::VpnExhausted)?;
    let headers = tunnel.transform.headers(&tunnel.outer, tunnel.spi, stamp, inner);
    packet
        .encap_opaque(headers.as_slice(), headers.trailer_len, headers.version)
        .map_err(|error| error.reason_or(DropReason::VpnMalformed))?;
    let network = packet.outermost_mut();
    if let Some(within) = network.get_mut(headers.as_slice().len()..) {
        headers::decrement_ttl(within, inner.traffic_class);
    }
    tunnel.transform.protect(network, inner);
    Ok(())
}
