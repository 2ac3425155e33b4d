//! Bringing packets to a server and back: the fast path.

use nf::answer::{self, IcmpError};
use nf::{Context, PacketView};
use packet::parse::{is_query, protocol};
use packet::{Addr, Class, DropReason, End, Endpoint};

use super::balance::TELL_INTERVAL_MS;
use super::config::Mode;
use super::state::{Role, State};
use super::tunnel::{Route, WrapError, reason};
use super::{Done, LoadBalancer, count_packet, counter, of_server};

impl LoadBalancer {
    /// Does to a packet what was decided for its direction.
    #[inline(always)]
    pub(super) fn carry(
        &self,
        role: Role,
        packet: &mut PacketView<'_>,
        state: &mut State,
        context: &mut Context<'_>,
    ) -> Done {
        let bytes = packet.ip_len();
        match role {
            Role::REWRITE => {
                count_packet(context, state.number, of_server::PACKETS, bytes);
                if state.announcing != 0 {
                    context.rewrites_changed();
                }
                rewrite(packet, End::Destination, state.server())
            }
            Role::RESTORE => {
                if state.announcing != 0 && !is_answer(packet, state) {
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

    /// An ICMP error on its way to a server, of a connection without state.
    pub(super) fn carry_error(
        &self,
        mode: Mode,
        server: Endpoint,
        entropy: u32,
        packet: &mut PacketView<'_>,
    ) -> Done {
        if mode == Mode::Nat {
            return rewrite(packet, End::Destination, server);
        }
        let route = Route { server: server.addr, gue: mode == Mode::Gue, entropy };
        match self.tunnel.wrap(packet, route) {
            Ok(_) => Ok(()),
            Err(WrapError::TooBig { .. }) => Err(DropReason::TooBig),
            Err(WrapError::Refused(reason)) => Err(reason),
        }
    }

    fn wrap(
        &self,
        role: Role,
        packet: &mut PacketView<'_>,
        state: &mut State,
        context: &mut Context<'_>,
    ) -> Done {
        match self.tunnel.wrap(packet, route(role, state)) {
            Ok(oversize) => {
                context.count(counter::OVERSIZE, u64::from(oversize));
                Ok(())
            }
            Err(WrapError::TooBig { mtu, tell }) => {
                if tell {
                    tell_too_big(packet, mtu, state, context);
                }
                Err(DropReason::TooBig)
            }
            Err(WrapError::Refused(reason)) => Err(reason),
        }
    }
}

/// Where a flow's packets go by a tunnel.
pub(super) fn route(role: Role, state: &State) -> Route {
    Route { server: state.server().addr, gue: role == Role::GUE, entropy: state.entropy }
}

/// Whether a packet of a flow that was just moved comes from its new server, which the chain thus knows; what the old one
/// still sends belongs to the flow no longer, however the chain found it.
#[cold]
fn is_answer(packet: &PacketView<'_>, state: &mut State) -> bool {
    if packet.meta().class == Class::IcmpError {
        return true;
    }
    let (source, server) = (packet.ends().0, state.server());
    let same_port = source.port == server.port || !packet.meta().has_transport();
    if source.addr != server.addr || !same_port {
        return false;
    }
    state.announcing = 0;
    true
}

/// Sets one end of the packet; of an ICMP error also the other end of the packet that it quotes, which went the other way
/// (RFC 5508 REQ-4, REQ-5).
#[inline(always)]
fn rewrite(packet: &mut PacketView<'_>, end: End, to: Endpoint) -> Done {
    if packet.meta().class == Class::IcmpError {
        rewrite_quoted(packet, end.other(), to)?;
    }
    packet.set_end(end, to).map_err(reason)
}

#[cold]
fn rewrite_quoted(packet: &mut PacketView<'_>, end: End, to: Endpoint) -> Done {
    packet.set_embedded_end(end, to).map_err(reason)
}

/// Tells a sender which packets get through (RFC 1191, RFC 8201).
#[cold]
fn tell_too_big(packet: &PacketView<'_>, mtu: u16, state: &mut State, context: &mut Context<'_>) {
    let mut buffer = answer::buffer();
    let error = IcmpError::TooBig { mtu: mtu.into() };
    if let Ok(message) = answer::icmp_error(packet, error, state.vip().addr, &mut buffer)
        && state.may_tell(context.now_ns(), TELL_INTERVAL_MS)
        && context.answer(packet, message).is_ok()
    {
        context.count(counter::TOLD, 1);
    }
}

/// The ends of the packet that an ICMP error quotes.
pub struct Quoted {
    /// Where it came from.
    pub source: Endpoint,
    /// Where it went to.
    pub destination: Endpoint,
    /// Its protocol's number.
    pub protocol: u8,
}

impl Quoted {
    /// None if the packet quotes none, or not as far as its ports.
    pub fn of(packet: &PacketView<'_>) -> Option<Quoted> {
        let quoted = packet.embedded().filter(|quoted| quoted.has_transport)?;
        let data = packet.data();
        let header = data.get(quoted.l3..)?;
        let (source, destination) = if quoted.version == 4 {
            let at = |at| Some(Addr::from_v4_bytes(*header.get(at..)?.first_chunk()?));
            (at(12)?, at(16)?)
        } else {
            let at = |at| Some(Addr::from_bytes(*header.get(at..)?.first_chunk()?));
            (at(8)?, at(24)?)
        };
        let word = |at| Some(u16::from_be_bytes(*data.get(quoted.l4 + at..)?.first_chunk()?));
        let (source_port, destination_port) = match quoted.protocol {
            number @ (protocol::ICMP | protocol::ICMPV6) if is_query(number, *data.get(quoted.l4)?) => {
                (word(4)?, word(4)?)
            }
            protocol::ICMP | protocol::ICMPV6 => (0, 0),
            _ => (word(0)?, word(2)?),
        };
        Some(Quoted {
            source: Endpoint::new(source, source_port),
            destination: Endpoint::new(destination, destination_port),
            protocol: quoted.protocol,
        })
    }
}
