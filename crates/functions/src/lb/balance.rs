//! Which server a flow goes to: decided at its first packet, and again when its server is no longer
//! there.

use nf::{Context, PacketView, answer};
use packet::parse::protocol;
use packet::{Direction, DropReason, Endpoint, PacketClass};

use super::config::{Affinity, Mode, OnDown, Strays};
use super::quic;
use super::service::{ServerStatus, Service};
use super::state::{ANNOUNCE, LEARN, Role, State};
use super::{Decision, LoadBalancer, count_server, counter, echo, of_server};
use crate::quoted::QuotedPacket;

/// A flow's sender is told of a lost server, or a packet too big, once in this time at most, in
/// milliseconds.
pub const NOTIFY_INTERVAL_MS: u32 = 100;

/// What a flow can expect of its server.
enum Availability {
    /// It is up.
    Usable,
    /// It is there for flows that it has: it drains, or has no weight.
    Kept,
    /// It is down, and flows that it has may end there.
    Finishing,
    /// It is down, or no longer a server of the service.
    Lost(OnDown),
}

impl LoadBalancer {
    /// A packet of a direction about which nothing is decided, or of a flow whose server may have
    /// changed.
    #[inline(never)]
    pub(super) fn decide(
        &self,
        packet: &mut PacketView<'_>,
        state: &mut State,
        context: &mut Context<'_>,
    ) -> Decision {
        match state.role(context.direction()) {
            Role::OPEN if packet.meta().class == PacketClass::IcmpError => self.unrelated_error(packet),
            Role::OPEN => self.open(packet, state, context),
            role => self.review(role, packet, state, context),
        }
    }

    /// Whether it is known that the flow goes on with its server, by this instance's number of it.
    #[inline]
    pub(super) fn stays(&self, state: &State) -> bool {
        state.generation == self.generation || (state.generation != 0 && !self.is_lost(state))
    }

    /// Whether the flow cannot stay with its server (B25).
    pub(super) fn is_lost(&self, state: &State) -> bool {
        state.is_balanced()
            && matches!(self.standing(state), Availability::Lost(OnDown::Move | OnDown::Reset))
    }

    /// Servers have changed since the flow's last packet, but its own is not lost.
    #[cold]
    pub(super) fn look_again(&self, state: &mut State) {
        if state.is_balanced() && matches!(self.standing(state), Availability::Usable) {
            state.generation = self.generation;
        }
    }

    /// The first packet of a direction: to a service, or not.
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
        // The way back of a flow that passed is no stray.
        let begins = context.direction() == Direction::Original;
        if begins && self.services.is_origin(source, protocol) {
            self.stray()?;
        }
        state.set_role(context.direction(), Role::PASS);
        Ok(())
    }

    /// A packet in the name of a service or server that belongs to no flow.
    pub(super) fn stray(&self) -> Decision {
        match self.strays {
            Strays::Forward => Ok(()),
            Strays::Drop => Err(DropReason::LbNoFlow),
        }
    }

    /// A flow to a service gets its server. // S24
    fn begin(
        &self,
        service: &Service,
        client: Endpoint,
        vip: Endpoint,
        packet: &PacketView<'_>,
        state: &mut State,
        context: &mut Context<'_>,
    ) -> Decision {
        let towards = context.direction();
        let (role, back) = match service.mode {
            Mode::Nat => (Role::REWRITE, Role::RESTORE),
            Mode::Ipip => (Role::IPIP, Role::PASS),
            Mode::Gue => (Role::GUE, Role::PASS),
        };
        // The service itself seemed to open this flow, which in this mode it cannot: its servers'
        // answers come this way.
        if role == Role::REWRITE && towards == Direction::Reply {
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
        state.awaiting = if service.affinity == Affinity::Quic && role == Role::REWRITE { LEARN } else { 0 };
        count_server(context, number, of_server::CONNECTIONS, 1);
        Ok(())
    }

    /// Where a QUIC packet goes that begins a flow: to the server that gave its connection ID,
    /// unless that is gone.
    fn quic_server(
        &self,
        service: &Service,
        packet: &PacketView<'_>,
        context: &mut Context<'_>,
    ) -> Option<quic::QuicRoute> {
        let is_quic = service.affinity == Affinity::Quic && packet.meta().protocol == protocol::UDP;
        if !is_quic || !packet.meta().has_transport() {
            return None;
        }
        let route = quic::route(packet.payload(), service.number, &service.quic_ids, context)?;
        match route {
            quic::QuicRoute::Server(number) => {
                let server = self.services.server(number)?;
                if server.status == ServerStatus::Down && service.on_down != OnDown::Finish {
                    return None;
                }
                context.count(counter::QUIC_FOLLOWED, 1);
            }
            quic::QuicRoute::Key { goes_on: true, .. } => context.count(counter::QUIC_UNKNOWN, 1),
            quic::QuicRoute::Key { .. } => {}
        }
        Some(route)
    }

    /// Servers have changed since the flow's last packet: is its own still there?
    fn review(
        &self,
        role: Role,
        packet: &mut PacketView<'_>,
        state: &mut State,
        context: &mut Context<'_>,
    ) -> Decision {
        self.renumber(state, context);
        let standing = self.standing(state);
        if matches!(standing, Availability::Usable) {
            state.generation = self.generation;
            return self.carry(role, packet, state, context);
        }
        // Only a packet with ports can take the flow to another server; what belongs to earlier
        // ones follows them.
        let may_move = role.is_to_server()
            && matches!(packet.meta().class, PacketClass::Whole | PacketClass::FirstFragment);
        let is_down = matches!(standing, Availability::Finishing | Availability::Lost(OnDown::Reset));
        let is_new = opens_anew(state, context) || is_down && is_unanswered(packet, context);
        if may_move && is_new {
            self.repick(packet, state, context)?;
            return self.carry(state.role(context.direction()), packet, state, context);
        }
        match standing {
            Availability::Lost(OnDown::Move) if may_move => {
                self.repick(packet, state, context)?;
                context.count(counter::MOVED, 1);
                context.alert(1, "flow moved: its server is down", "load-balancer", 3);
                self.carry(state.role(context.direction()), packet, state, context)
            }
            Availability::Lost(OnDown::Reset) => {
                if role.is_to_server() {
                    tell_reset(packet, state, context);
                }
                Err(DropReason::LbServerDown)
            }
            _ => self.carry(role, packet, state, context),
        }
    }

    /// Another server for the flow, whose packets are from now on rewritten otherwise (B25).
    fn repick(&self, packet: &PacketView<'_>, state: &mut State, context: &mut Context<'_>) -> Decision {
        let (client, vip) = ends(packet, context);
        let service = self.services.find(vip, packet.meta().protocol).and_then(|s| self.services.service(s));
        let before = state.number;
        self.begin(service.ok_or(DropReason::LbServerDown)?, client, vip, packet, state, context)?;
        count_server(context, before, of_server::ENDED, 1);
        if state.role(context.direction()) == Role::REWRITE {
            state.awaiting |= ANNOUNCE;
        }
        Ok(())
    }

    fn standing(&self, state: &State) -> Availability {
        let server = self.services.server(state.number).filter(|server| server.addr == state.server().addr);
        let Some(server) = server else { return Availability::Lost(OnDown::Move) };
        let on_down = self.services.service(server.service).map_or(OnDown::Move, |service| service.on_down);
        match (server.status, on_down) {
            (ServerStatus::Up, _) if server.weight > 0 => Availability::Usable,
            (ServerStatus::Up | ServerStatus::Draining, _) => Availability::Kept,
            (ServerStatus::Down, OnDown::Finish) => Availability::Finishing,
            (ServerStatus::Down, on_down) => Availability::Lost(on_down),
        }
    }

    /// The flow may have come from an instance that numbers its servers otherwise.
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

/// Source and destination, with the ports that a later fragment does not have.
fn ends(packet: &PacketView<'_>, context: &Context<'_>) -> (Endpoint, Endpoint) {
    let (source, destination) = packet.ends();
    if packet.meta().has_transport() {
        return (source, destination);
    }
    let flow = context.flow();
    let (a, b) = flow.key.ends(flow.reversed ^ (flow.direction == Direction::Reply));
    (Endpoint::new(source.addr, a.port), Endpoint::new(destination.addr, b.port))
}

/// Whether a client opens a new TCP connection with the ports of one that is over, which any server
/// can take.
fn opens_anew(state: &State, context: &Context<'_>) -> bool {
    state.over != 0 && context.connection() == nf::Connection::SYN_SENT
}

/// Whether a client sends the SYN again of a connection that no server has answered.
fn is_unanswered(packet: &PacketView<'_>, context: &Context<'_>) -> bool {
    packet.meta().tcp_flags & 0x12 == 2 && context.connection() == nf::Connection::SYN_SENT
}

/// Tells a TCP client that its connection is over.
#[cold]
fn tell_reset(packet: &PacketView<'_>, state: &mut State, context: &mut Context<'_>) {
    let mut buffer = answer::buffer();
    if packet.meta().protocol == protocol::TCP
        && let Ok(reset) = answer::tcp_reset(packet, &mut buffer)
        && state.may_tell(context.now_ns(), NOTIFY_INTERVAL_MS)
        && context.answer(packet, reset).is_ok()
    {
        context.count(counter::TOLD, 1);
    }
}

impl LoadBalancer {
    /// An ICMP error to a service about a connection that is not known here, such as one of another
    /// instance: its hash names the server all the same, unless servers changed since. Nothing of
    /// it is kept.
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
