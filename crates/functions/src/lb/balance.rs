//! Choice of a flow's server: at the flow's first packet, and again when its server is lost.

use nf::{Context, PacketView, answer};
use packet::parse::protocol;
use packet::{Direction, DropReason, Endpoint, PacketClass};

use super::config::{DownAction, ForwardingMode, ServerAffinity, StrayAction};
use super::quic;
use super::service::{ServerStatus, VirtualService};
use super::state::{ANNOUNCE, DirectionRole, LEARN, State};
use super::{COUNTERS, Decision, LoadBalancer, echo};
use crate::quoted::QuotedPacket;

/// Minimum interval, in milliseconds, between two notifications of a flow's sender about a lost
/// server or a packet too big.
pub const NOTIFY_INTERVAL_MS: u32 = 100;

/// Availability of a flow's server to the flow.
enum Availability {
    /// Up, with a nonzero weight.
    Usable,
    /// Available to existing flows only: draining, or without weight.
    Kept,
    /// Down, but existing flows may finish.
    Finishing,
    /// Down, or no longer a server of the service.
    Lost(DownAction),
}

impl LoadBalancer {
    /// Handles a packet of an undecided direction, or after a possible change of the flow's server.
    #[inline(never)]
    pub(super) fn decide(
        &self,
        packet: &mut PacketView<'_>,
        state: &mut State,
        context: &mut Context<'_>,
    ) -> Decision {
        match state.role(context.direction()) {
            DirectionRole::OPEN if packet.meta().class == PacketClass::IcmpError => {
                self.unrelated_error(packet)
            }
            DirectionRole::OPEN => self.open(packet, state, context),
            role => self.review(role, packet, state, context),
        }
    }

    /// Returns whether the flow is known to keep its server, by this instance's number.
    #[inline]
    pub(super) fn keeps_server(&self, state: &State) -> bool {
        state.generation == self.generation || (state.generation != 0 && !self.is_lost(state))
    }

    /// Returns whether the flow must leave its server (B25).
    pub(super) fn is_lost(&self, state: &State) -> bool {
        state.is_balanced()
            && matches!(self.availability(state), Availability::Lost(DownAction::Move | DownAction::Reset))
    }

    /// Brings a flow to the current generation if its server is usable.
    #[cold]
    pub(super) fn recheck(&self, state: &mut State) {
        if state.is_balanced() && matches!(self.availability(state), Availability::Usable) {
            state.generation = self.generation;
        }
    }

    /// Handles the first packet of a direction, to a service or not.
    fn open(&self, packet: &mut PacketView<'_>, state: &mut State, context: &mut Context<'_>) -> Decision {
        let (source, destination) = ends(packet, context);
        let protocol = packet.meta().protocol;
        if let Some(service) =
            self.services.find(destination, protocol).and_then(|s| self.services.service(s))
        {
            self.begin(service, source, destination, packet, state, context)?;
            return self.carry(state.role(context.direction()), packet, state, context);
        }
        if self.answer_ping && self.services.is_vip(destination.addr) && echo::is_request(packet) {
            return echo::answer(packet, context);
        }
        // The return direction of a flow that passed is not a stray.
        let begins = context.direction() == Direction::Original;
        if begins && self.services.is_origin(source, protocol) {
            self.stray()?;
        }
        state.set_role(context.direction(), DirectionRole::PASS);
        Ok(())
    }

    /// Handles a packet from a service or server that belongs to no flow.
    pub(super) fn stray(&self) -> Decision {
        match self.strays {
            StrayAction::Forward => Ok(()),
            StrayAction::Drop => Err(DropReason::LbNoFlow),
        }
    }

    /// Assigns a server to a flow of a service. // S24
    fn begin(
        &self,
        service: &VirtualService,
        client: Endpoint,
        vip: Endpoint,
        packet: &PacketView<'_>,
        state: &mut State,
        context: &mut Context<'_>,
    ) -> Decision {
        let towards = context.direction();
        let (role, back) = match service.mode {
            ForwardingMode::Nat => (DirectionRole::REWRITE, DirectionRole::RESTORE),
            ForwardingMode::Ipip => (DirectionRole::IPIP, DirectionRole::PASS),
            ForwardingMode::Gue => (DirectionRole::GUE, DirectionRole::PASS),
        };
        // The flow seems to be opened by the service itself, which is impossible in this mode: its
        // servers' answers pass here.
        if role == DirectionRole::REWRITE && towards == Direction::Reply {
            return Err(DropReason::LbNoFlow);
        }
        let hash = self.services.hash(service, client, vip, packet.meta().protocol);
        let number = match self.quic_server(service, packet, context) {
            None => service.pick(hash),
            Some(quic::QuicRoute::Key { words, .. }) => service.pick(self.services.hash_words(&words)),
            Some(quic::QuicRoute::Server(number)) => Some(number),
        };
        let number = number.ok_or(DropReason::LbNoServer)?;
        let server = self.services.server(number).ok_or(DropReason::Internal)?;
        state.set_server(number, Endpoint::new(server.addr, server.port.unwrap_or(vip.port)));
        state.set_vip(vip);
        state.set_role(towards, role);
        state.set_role(towards.other(), back);
        state.entropy = (hash >> 32) as u32;
        state.generation = self.generation;
        state.awaiting = if service.affinity == ServerAffinity::Quic && role == DirectionRole::REWRITE {
            LEARN
        } else {
            0
        };
        context.count_at(COUNTERS.connections, number.into(), 1);
        Ok(())
    }

    /// Returns the route of the first packet of a QUIC flow: to the server that issued its
    /// connection ID, unless that server is down.
    fn quic_server(
        &self,
        service: &VirtualService,
        packet: &PacketView<'_>,
        context: &mut Context<'_>,
    ) -> Option<quic::QuicRoute> {
        let is_quic = service.affinity == ServerAffinity::Quic && packet.meta().protocol == protocol::UDP;
        if !is_quic || !packet.meta().has_transport() {
            return None;
        }
        let route = quic::route(packet.payload(), service.number, &service.quic_ids, context)?;
        match route {
            quic::QuicRoute::Server(number) => {
                let server = self.services.server(number)?;
                if server.status == ServerStatus::Down && service.on_down != DownAction::Finish {
                    return None;
                }
                context.count(COUNTERS.quic_followed, 1);
            }
            quic::QuicRoute::Key { goes_on: true, .. } => context.count(COUNTERS.quic_unknown, 1),
            quic::QuicRoute::Key { .. } => {}
        }
        Some(route)
    }

    /// Checks the flow's server after servers have changed.
    fn review(
        &self,
        role: DirectionRole,
        packet: &mut PacketView<'_>,
        state: &mut State,
        context: &mut Context<'_>,
    ) -> Decision {
        self.renumber(state, context);
        let availability = self.availability(state);
        if matches!(availability, Availability::Usable) {
            state.generation = self.generation;
            return self.carry(role, packet, state, context);
        }
        // Only a packet with ports can move the flow. Fragments and errors follow earlier packets.
        let may_move = role.is_to_server()
            && matches!(packet.meta().class, PacketClass::Whole | PacketClass::FirstFragment);
        let is_down = matches!(availability, Availability::Finishing | Availability::Lost(DownAction::Reset));
        let is_new = reopens(state, context) || is_down && is_unanswered(packet, context);
        if may_move && is_new {
            self.repick(packet, state, context)?;
            return self.carry(state.role(context.direction()), packet, state, context);
        }
        match availability {
            Availability::Lost(DownAction::Move) if may_move => {
                self.repick(packet, state, context)?;
                context.count(COUNTERS.flows_moved, 1);
                context.alert(1, "flow moved: its server is down", "load-balancer", 3);
                self.carry(state.role(context.direction()), packet, state, context)
            }
            Availability::Lost(DownAction::Reset) => {
                if role.is_to_server() {
                    send_reset(packet, state, context);
                }
                Err(DropReason::LbServerDown)
            }
            _ => self.carry(role, packet, state, context),
        }
    }

    /// Moves the flow to another server; from now on its packets are rewritten differently (B25).
    fn repick(&self, packet: &PacketView<'_>, state: &mut State, context: &mut Context<'_>) -> Decision {
        let (client, vip) = ends(packet, context);
        let service = self.services.find(vip, packet.meta().protocol).and_then(|s| self.services.service(s));
        let before = state.number;
        self.begin(service.ok_or(DropReason::LbServerDown)?, client, vip, packet, state, context)?;
        context.count_at(COUNTERS.ended, before.into(), 1);
        if state.role(context.direction()) == DirectionRole::REWRITE {
            state.awaiting |= ANNOUNCE;
        }
        Ok(())
    }

    fn availability(&self, state: &State) -> Availability {
        let server = self.services.server(state.number).filter(|server| server.addr == state.server().addr);
        let Some(server) = server else { return Availability::Lost(DownAction::Move) };
        let on_down =
            self.services.service(server.service).map_or(DownAction::Move, |service| service.on_down);
        match (server.status, on_down) {
            (ServerStatus::Up, _) if server.weight > 0 => Availability::Usable,
            (ServerStatus::Up | ServerStatus::Draining, _) => Availability::Kept,
            (ServerStatus::Down, DownAction::Finish) => Availability::Finishing,
            (ServerStatus::Down, on_down) => Availability::Lost(on_down),
        }
    }

    /// Renumbers the server of a flow from an instance with other numbers.
    fn renumber(&self, state: &mut State, context: &Context<'_>) {
        let server = state.server();
        if state.generation != 0 || self.services.server(state.number).is_some_and(|s| s.addr == server.addr)
        {
            return;
        }
        let service = self.services.find(state.vip(), context.flow().key.protocol);
        if let Some(number) = service.and_then(|service| self.services.server_at(server.addr, service)) {
            state.set_server(number, server);
        }
    }
}

/// Returns source and destination, taking the ports of a later fragment from its flow.
fn ends(packet: &PacketView<'_>, context: &Context<'_>) -> (Endpoint, Endpoint) {
    let (source, destination) = packet.ends();
    if packet.meta().has_transport() {
        return (source, destination);
    }
    let flow = context.flow();
    let (a, b) = flow.key.ends(flow.reversed ^ (flow.direction == Direction::Reply));
    (Endpoint::new(source.addr, a.port), Endpoint::new(destination.addr, b.port))
}

/// Returns whether a client opens a new TCP connection on the ports of a closed one; any server can
/// take it.
fn reopens(state: &State, context: &Context<'_>) -> bool {
    state.over != 0 && context.connection() == nf::Connection::SYN_SENT
}

/// Returns whether a client retransmits a SYN that no server has answered.
fn is_unanswered(packet: &PacketView<'_>, context: &Context<'_>) -> bool {
    packet.meta().tcp_flags & 0x12 == 2 && context.connection() == nf::Connection::SYN_SENT
}

/// Sends a TCP reset to the client.
#[cold]
fn send_reset(packet: &PacketView<'_>, state: &mut State, context: &mut Context<'_>) {
    let mut buffer = answer::buffer();
    if packet.meta().protocol == protocol::TCP
        && let Ok(reset) = answer::tcp_reset(packet, &mut buffer)
        && state.may_notify(context.now_ns(), NOTIFY_INTERVAL_MS)
        && context.answer(packet, reset).is_ok()
    {
        context.count(COUNTERS.errors_sent, 1);
    }
}

impl LoadBalancer {
    /// Forwards an ICMP error about a connection that is unknown here, such as another instance's.
    /// The hash selects the same server unless servers have changed. No state is kept.
    fn unrelated_error(&self, packet: &mut PacketView<'_>) -> Decision {
        let Some(quoted) = QuotedPacket::of(packet) else { return Ok(()) };
        let (vip, client) = (quoted.source, quoted.destination);
        if packet.ends().1.addr != vip.addr {
            return Ok(());
        }
        let Some(service) = self.services.find(vip, quoted.protocol).and_then(|s| self.services.service(s))
        else {
            return Ok(());
        };
        let hash = self.services.hash(service, client, vip, quoted.protocol);
        let number = service.pick(hash).ok_or(DropReason::LbNoServer)?;
        let server = self.services.server(number).ok_or(DropReason::Internal)?;
        let at = Endpoint::new(server.addr, server.port.unwrap_or(vip.port));
        self.carry_error(service.mode, at, (hash >> 32) as u32, packet)
    }
}
