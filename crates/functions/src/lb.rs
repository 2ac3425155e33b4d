//! The load balancer: virtual services, each spreading connections over its servers (S24, B24,
//! B25).
//!
//! `README.md` is the operator's manual. [`config`] is the configuration as written in a policy,
//! `service` its checked form, [`maglev`] the lookup tables, `state` the per-flow state. `balance`
//! decides a flow's first packet in either direction, and again when servers have changed; `carry`
//! is the fast path for all other packets.

mod balance;
mod carry;
mod check;
pub mod config;
mod directory;
mod echo;
pub mod maglev;
pub mod quic;
mod service;
mod state;
mod tunnel;

use nf::{
    Access, Cause, Context, ControlError, Descriptor, EndReason, EventCondition, Field, Maturity,
    NetworkFunction, NodeSharing, PacketView, Plan, Scaling, Setup, Shared, StateFunction, Verdict,
};
use packet::{Addr, DropReason, End, Packet};
use values::ConfigError;

use carry::route;
pub use config::Config;
use config::{ServerAffinity, ServiceConfig, StrayAction};
use directory::ServiceProtocol;
use service::ServiceTable;
use state::DirectionRole;
pub use state::State;
use tunnel::Encapsulator;

/// A load balancer.
pub struct LoadBalancer {
    services: ServiceTable,
    tunnel: Encapsulator,
    strays: StrayAction,
    answer_ping: bool,
    /// Counts changes of the servers, from 1: after a change, each flow's server is checked once.
    generation: u32,
}

/// The generation of the servers as configured.
const FIRST_GENERATION: u32 = 1;

nf::counters! {
    /// Flows that got another server because theirs went down.
    flows_moved: flows,
    /// Echo requests answered.
    pings_answered: packets,
    /// Resets and ICMP errors sent to clients.
    errors_sent: packets,
    /// Packets longer than `mtu`, forwarded to be fragmented.
    packets_oversize: packets,
    /// Flows that went to the server of their QUIC connection ID.
    quic_followed: flows,
    /// Flows in the middle of an unknown QUIC connection.
    quic_unknown: flows,
    by server {
        /// Flows given to the server.
        connections: flows,
        /// Flows of the server that ended or moved away; the others are live.
        ended: flows,
        /// Packets to the server.
        packets: packets,
        /// IP bytes to the server, without outer headers.
        bytes: bytes,
        /// Packets from the server, in `nat` mode.
        reply_packets: packets,
        /// IP bytes from the server, in `nat` mode.
        reply_bytes: bytes,
    }
}

/// Event: a flow's server is lost (B25).
const SERVER_LOST: u16 = 1;

/// State function that counts a packet (S24).
const COUNT: StateFunction = StateFunction { id: 1, access: Access::Ignore, reads: &[] };

static DESCRIPTOR: Descriptor = Descriptor {
    name: "lb",
    aliases: &["loadbalancer", "load-balancer", "maglev"],
    summary: "Spreads connections to virtual services over servers by Maglev hashing",
    maturity: Maturity::Production,
    state_version: 1,
    reads: &[
        Field::SourceAddress,
        Field::DestinationAddress,
        Field::SourcePort,
        Field::DestinationPort,
        Field::Protocol,
        Field::TcpFlags,
    ],
    writes: &[
        Field::SourceAddress,
        Field::DestinationAddress,
        Field::SourcePort,
        Field::DestinationPort,
        Field::Encapsulation,
    ],
    payload: Access::Ignore,
    affinity: nf::Affinity::Flow,
    scaling: Scaling::Servers,
    counters: Counters::DECLARED,
    shared: &[Shared::Meters("quic_connections")],
    across_nodes: NodeSharing::OneMachine("a QUIC connection may go on in a flow at another node"),
    consolidates: true,
    cycles_per_packet: 50,
    ..Descriptor::DEFAULT
};

impl NetworkFunction for LoadBalancer {
    const DESCRIPTOR: &'static Descriptor = &DESCRIPTOR;
    type Config = Config;
    type State = State;

    fn new(config: Config, setup: &mut Setup) -> Result<LoadBalancer, ConfigError> {
        let tunnel = Encapsulator::new(&config.tunnel)?;
        let services = ServiceTable::new(&config, &tunnel, config.hash_seed.unwrap_or(setup.seed))?;
        for vip in config.services.iter().map(|service| Addr::from(service.vip)) {
            setup.owns(None, vip, vip);
        }
        setup.label_counters(COUNTERS.server, services.server_names());
        let follows_quic = quic::is_wanted(config.services.iter().map(|service| service.affinity));
        setup.meters(if follows_quic { quic::CONNECTIONS_MAX } else { 0 });
        config.services.iter().filter_map(warning).for_each(|warning| setup.warn(warning));
        Ok(LoadBalancer {
            services,
            tunnel,
            strays: config.strays,
            answer_ping: config.answer_ping,
            generation: FIRST_GENERATION,
        })
    }

    #[inline(always)]
    fn process(&self, packet: &mut PacketView<'_>, state: &mut State, context: &mut Context<'_>) -> Verdict {
        state.packets += 1;
        let role = state.role(context.direction());
        let done = if role == DirectionRole::PASS {
            Ok(())
        } else if role == DirectionRole::OPEN || state.generation != self.generation {
            self.decide(packet, state, context)
        } else {
            self.carry(role, packet, state, context)
        };
        state.over = u8::from(context.connection().is_over());
        if packet.is_recording() {
            let settled = state.role(context.direction()) != DirectionRole::OPEN && state.awaiting == 0;
            note(packet, state, settled && done.is_ok());
        }
        match done {
            Ok(()) => Verdict::Forward,
            Err(reason) => Verdict::Drop(reason),
        }
    }

    fn flow_end(&self, state: &mut State, _reason: EndReason, context: &mut Context<'_>) {
        if state.is_balanced() {
            context.count_at(COUNTERS.ended, state.number.into(), 1);
        }
    }

    fn flow_moved(&self, state: &mut State, _context: &mut Context<'_>) {
        state.generation = 0; // Generations are an instance's own.
    }

    #[inline(always)]
    fn state_function(&self, id: u16, packet: &Packet, state: &mut State, context: &mut Context<'_>) {
        if id != COUNT.id {
            return;
        }
        state.packets += 1;
        state.over = u8::from(context.connection().is_over());
        let role = state.role(context.direction());
        if role != DirectionRole::PASS && state.generation != self.generation {
            self.recheck(state);
        }
        match role {
            role if role.is_to_server() => count_to_server(context, state.number, packet.ip_len()),
            DirectionRole::RESTORE => count_reply(context, state.number, packet.ip_len()),
            _ => {}
        }
    }

    #[inline]
    fn predict(&self, state: &State, plan: &mut Plan<'_>) -> bool {
        let role = state.role(plan.direction);
        if state.awaiting != 0 || (role != DirectionRole::PASS && !self.keeps_server(state)) {
            return false;
        }
        if role == DirectionRole::REWRITE {
            plan.set_end(End::Destination, state.server());
        } else if role == DirectionRole::RESTORE {
            plan.set_end(End::Source, state.vip());
        } else if role != DirectionRole::PASS && !self.predict_tunnel(role, state, plan) {
            return false;
        }
        plan.record_state_function(COUNT);
        true
    }

    fn event_holds(&self, event: EventCondition, state: &State) -> bool {
        event.id == SERVER_LOST && state.generation != self.generation && self.is_lost(state)
    }

    /// Returns the scope of answered packets: echo requests, packets too long for a tunnel, and,
    /// after servers may have been lost, all.
    fn answers(&self) -> nf::AnswerScope {
        let longer_than = if self.services.all_rewrite() { u32::MAX } else { self.tunnel.inner_mtu().into() };
        let all = self.generation > FIRST_GENERATION && self.services.may_reset();
        nf::AnswerScope { all, openings: self.answer_ping, longer_than }
    }

    /// Executes `server [SERVICE/]NAME up|down|drain` and `weight [SERVICE/]NAME N`; without a
    /// service, all servers of the name.
    fn control(&mut self, command: &str) -> Result<(), ControlError> {
        self.services.control(command)?;
        self.generation = self.generation.wrapping_add(1).max(1);
        Ok(())
    }

    fn check_command(&self, command: &str) -> Result<(), ControlError> {
        self.services.check_command(command)
    }
}

impl LoadBalancer {
    /// Plans the encapsulation of a tunnelled flow; false if the flow is not tunnelled or its
    /// headers are unknown. A separate function, so that other flows do not pay for it.
    #[cold]
    #[inline(never)]
    fn predict_tunnel(&self, role: DirectionRole, state: &State, plan: &mut Plan<'_>) -> bool {
        if !matches!(role, DirectionRole::IPIP | DirectionRole::GUE) {
            return false;
        }
        let version = plan.destination().addr.version();
        let Some((outer, len_max)) = self.tunnel.outer(route(role, state), version) else { return false };
        plan.encap(outer, len_max);
        true
    }
}

/// Returns a warning about a service that probably carries QUIC but does not follow connection IDs.
fn warning(service: &ServiceConfig) -> Option<String> {
    let takes_quic = service.protocol == ServiceProtocol::Udp && service.port.single() == Some(443);
    (takes_quic && service.affinity == ServerAffinity::Connection).then(|| {
        format!(
            "service `{}`: a QUIC client whose port changes is sent to another server; use `affinity: quic` to follow the connection",
            &*service.title()
        )
    })
}

/// Records the actions, besides header actions, that the flow's packets have in common;
/// `like_others` is false for a packet with other actions.
#[cold]
fn note(packet: &mut PacketView<'_>, state: &State, like_others: bool) {
    packet.record_state_function(COUNT);
    if state.is_balanced() {
        let argument = u64::from(state.number);
        packet.record_event(EventCondition { id: SERVER_LOST, argument, cause: Cause::Command });
    }
    if !like_others {
        packet.mark_one_off();
    }
}

/// Counts a packet to a server.
#[inline]
fn count_to_server(context: &mut Context<'_>, server: u16, bytes: usize) {
    context.count_at(COUNTERS.packets, server.into(), 1);
    context.count_at(COUNTERS.bytes, server.into(), bytes as u64);
}

/// Counts a packet from a server.
#[inline]
fn count_reply(context: &mut Context<'_>, server: u16, bytes: usize) {
    context.count_at(COUNTERS.reply_packets, server.into(), 1);
    context.count_at(COUNTERS.reply_bytes, server.into(), bytes as u64);
}

/// Success, or the reason to drop the packet.
type Decision = Result<(), DropReason>;
