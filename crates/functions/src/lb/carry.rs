//! Bringing packets to a server and back: the fast path.

use nf::answer::{self, IcmpError};
use nf::{Context, PacketView};
use packet::{DropReason, End, Endpoint, PacketClass};

use super::balance::NOTIFY_INTERVAL_MS;
use super::config::Mode;
use super::quic;
use super::state::{ANNOUNCE, LEARN, Role, State};
use super::tunnel::{EncapError, EncapTarget, reason};
use super::{Decision, LoadBalancer, count_packet, counter, of_server};

impl LoadBalancer {
    /// Does to a packet what was decided for its direction.
    #[inline(always)]
    pub(super) fn carry(
        &self,
        role: Role,
        packet: &mut PacketView<'_>,
        state: &mut State,
        context: &mut Context<'_>,
    ) -> Decision {
        let bytes = packet.ip_len();
        match role {
            Role::REWRITE => {
                count_packet(context, state.number, of_server::PACKETS, bytes);
                if state.awaiting & ANNOUNCE != 0 {
                    context.relearn_alias();
                }
                rewrite(packet, End::Destination, state.server())
            }
            Role::RESTORE => {
                if state.awaiting != 0 && !self.is_awaited(packet, state, context) {
                    return self.stray();
                }
                count_packet(context, state.number, of_server::REPLY_PACKETS, bytes);
                rewrite(packet, End::Source, state.vip())
            }
            Role::IPIP | Role::GUE => {
                count_packet(context, state.number, of_server::PACKETS, bytes);
                self.wrap(role, packet, state, context)
            }
            _ => Ok(()),
        }
    }

    /// Whether a packet from a server belongs to a flow that waits for one.
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

    /// An ICMP error on its way to a server, of a connection without state.
    pub(super) fn carry_error(
        &self,
        mode: Mode,
        server: Endpoint,
        entropy: u32,
        packet: &mut PacketView<'_>,
    ) -> Decision {
        if mode == Mode::Nat {
            return rewrite(packet, End::Destination, server);
        }
        let route = EncapTarget { server: server.addr, gue: mode == Mode::Gue, entropy };
        match self.tunnel.wrap(packet, route) {
            Ok(_) => Ok(()),
            Err(EncapError::TooBig { .. }) => Err(DropReason::TooBig),
            Err(EncapError::Refused(reason)) => Err(reason),
        }
    }

    fn wrap(
        &self,
        role: Role,
        packet: &mut PacketView<'_>,
        state: &mut State,
        context: &mut Context<'_>,
    ) -> Decision {
        match self.tunnel.wrap(packet, route(role, state)) {
            Ok(oversize) => {
                context.count(counter::OVERSIZE, u64::from(oversize));
                Ok(())
            }
            Err(EncapError::TooBig { mtu, tell }) => {
                if tell {
                    tell_too_big(packet, mtu, state, context);
                }
                Err(DropReason::TooBig)
            }
            Err(EncapError::Refused(reason)) => Err(reason),
        }
    }
}

/// Where a flow's packets go by a tunnel.
pub(super) fn route(role: Role, state: &State) -> EncapTarget {
    EncapTarget { server: state.server().addr, gue: role == Role::GUE, entropy: state.entropy }
}

/// Whether a packet of a flow that was just moved comes from its new server, which the chain thus
/// knows; what the old one still sends belongs to the flow no longer, however the chain found it.
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

/// Sets one end of the packet; of an ICMP error also the other end of the packet that it quotes,
/// which went the other way (RFC 5508 REQ-4, REQ-5).
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

/// Tells a sender which packets get through (RFC 1191, RFC 8201).
#[cold]
fn tell_too_big(packet: &PacketView<'_>, mtu: u16, state: &mut State, context: &mut Context<'_>) {
    let mut buffer = answer::buffer();
    let error = IcmpError::TooBig { mtu: mtu.into() };
    if let Ok(message) = answer::icmp_error(packet, error, state.vip().addr, &mut buffer)
        && state.may_tell(context.now_ns(), NOTIFY_INTERVAL_MS)
        && context.answer(packet, message).is_ok()
    {
        context.count(counter::TOLD, 1);
    }
}
