//! The fast path: forwards packets to a server and back.

use nf::answer::{self, IcmpError};
use nf::{Context, PacketView};
use packet::{DropReason, End, Endpoint, PacketClass};

use super::balance::NOTIFY_INTERVAL_MS;
use super::config::ForwardingMode;
use super::quic;
use super::state::{ANNOUNCE, DirectionRole, LEARN, State};
use super::tunnel::{EncapError, EncapTarget, reason};
use super::{COUNTERS, Decision, LoadBalancer, count_reply, count_to_server};

impl LoadBalancer {
    /// Applies the decision of a packet's direction.
    #[inline(always)]
    pub(super) fn carry(
        &self,
        role: DirectionRole,
        packet: &mut PacketView<'_>,
        state: &mut State,
        context: &mut Context<'_>,
    ) -> Decision {
        let bytes = packet.ip_len();
        match role {
            DirectionRole::REWRITE => {
                count_to_server(context, state.number, bytes);
                if state.awaiting & ANNOUNCE != 0 {
                    context.relearn_alias();
                }
                rewrite(packet, End::Destination, state.server())
            }
            DirectionRole::RESTORE => {
                if state.awaiting != 0 && !self.is_awaited(packet, state, context) {
                    return self.stray();
                }
                count_reply(context, state.number, bytes);
                rewrite(packet, End::Source, state.vip())
            }
            DirectionRole::IPIP | DirectionRole::GUE => {
                count_to_server(context, state.number, bytes);
                self.encapsulate(role, packet, state, context)
            }
            _ => Ok(()),
        }
    }

    /// Returns whether a packet from a server belongs to a flow that awaits one.
    #[cold]
    fn is_awaited(&self, packet: &PacketView<'_>, state: &mut State, context: &mut Context<'_>) -> bool {
        if state.awaiting & ANNOUNCE != 0 && !is_answer(packet, state) {
            return false;
        }
        if state.awaiting & LEARN != 0 && packet.meta().class == PacketClass::Whole {
            let service = self.services.server(state.number).map_or(0, |server| server.service);
            if !quic::learn(packet.payload(), service, state.number, context) {
                state.awaiting &= !LEARN;
            }
        }
        true
    }

    /// Forwards an ICMP error about a connection without state to a server.
    pub(super) fn carry_error(
        &self,
        mode: ForwardingMode,
        server: Endpoint,
        entropy: u32,
        packet: &mut PacketView<'_>,
    ) -> Decision {
        if mode == ForwardingMode::Nat {
            return rewrite(packet, End::Destination, server);
        }
        let route = EncapTarget { server: server.addr, gue: mode == ForwardingMode::Gue, entropy };
        match self.tunnel.encapsulate(packet, route) {
            Ok(_) => Ok(()),
            Err(EncapError::TooBig { .. }) => Err(DropReason::TooBig),
            Err(EncapError::Refused(reason)) => Err(reason),
        }
    }

    fn encapsulate(
        &self,
        role: DirectionRole,
        packet: &mut PacketView<'_>,
        state: &mut State,
        context: &mut Context<'_>,
    ) -> Decision {
        match self.tunnel.encapsulate(packet, route(role, state)) {
            Ok(oversize) => {
                context.count(COUNTERS.packets_oversize, u64::from(oversize));
                Ok(())
            }
            Err(EncapError::TooBig { mtu, notify }) => {
                if notify {
                    send_too_big(packet, mtu, state, context);
                }
                Err(DropReason::TooBig)
            }
            Err(EncapError::Refused(reason)) => Err(reason),
        }
    }
}

/// Returns the encapsulation target of a flow.
pub(super) fn route(role: DirectionRole, state: &State) -> EncapTarget {
    EncapTarget { server: state.server().addr, gue: role == DirectionRole::GUE, entropy: state.entropy }
}

/// Returns whether a packet is from the flow's new server, so that the graph knows the new server.
/// Packets from the old server no longer belong to the flow, even if the graph associates them with
/// it.
#[cold]
fn is_answer(packet: &PacketView<'_>, state: &mut State) -> bool {
    if packet.meta().class == PacketClass::IcmpError {
        return true;
    }
    let (source, server) = (packet.ends().0, state.server());
    let same_port = source.port == server.port || !packet.meta().has_transport();
    if source.addr != server.addr || !same_port {
        return false;
    }
    state.awaiting &= !ANNOUNCE;
    true
}

/// Rewrites one end of the packet. In an ICMP error, also rewrites the other end of the quoted
/// packet, which went the other way (RFC 5508 REQ-4, REQ-5).
#[inline(always)]
fn rewrite(packet: &mut PacketView<'_>, end: End, to: Endpoint) -> Decision {
    if packet.meta().class == PacketClass::IcmpError {
        rewrite_quoted(packet, end.other(), to)?;
    }
    packet.set_end(end, to).map_err(reason)
}

#[cold]
fn rewrite_quoted(packet: &mut PacketView<'_>, end: End, to: Endpoint) -> Decision {
    packet.set_embedded_end(end, to).map_err(reason)
}

/// Notifies a sender of the path MTU (RFC 1191, RFC 8201).
#[cold]
fn send_too_big(packet: &PacketView<'_>, mtu: u16, state: &mut State, context: &mut Context<'_>) {
    let mut buffer = answer::buffer();
    let error = IcmpError::TooBig { mtu: mtu.into() };
    if let Ok(message) = answer::icmp_error(packet, error, state.vip().addr, &mut buffer)
        && state.may_notify(context.now_ns(), NOTIFY_INTERVAL_MS)
        && context.answer(packet, message).is_ok()
    {
        context.count(COUNTERS.errors_sent, 1);
    }
}
