//! Network address translation (S23, B24): NAPT for IPv4 (RFC 4787, 5382, 5508, 7857), static
//! forwards, port blocks per subscriber, and prefix translation for IPv6 (RFC 6296). See the
//! README.
//!
//! `open` handles a flow's first packets and stores the translation in the flow's [`State`]. Each
//! later packet costs one comparison and one header write ([`Nat::process`]).

mod blocks;
pub mod config;
pub mod events;
mod eviction;
mod forwards;
mod icmp;
pub mod log;
mod mapping;
mod moving;
pub mod net;
mod nptv6;
mod open;
mod shares;
mod space;
mod special;
mod state;
mod timeouts;

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::mem::offset_of;
use std::net::Ipv4Addr;

use nf::pool::HoldDown;
use nf::{
    Access, Affinity, AffinityGroup, AffinityGroups, AffinityKey, Context, ControlError, Descriptor,
    EndReason, Field, LiveFlows, Maturity, NetworkFunction, NodeSharing, PacketView, Plan, Scaling, Setup,
    Shared, Verdict,
};
use packet::{Addr, Direction, DropReason, End, Packet, PacketClass, RewriteError, Side};
use values::ConfigError;

pub use config::Config;
pub use state::State;

use config::{NatTimeouts, NotOpeningAction};
use events::NatEvent;
use forwards::Forwards;
use mapping::ItemUse;
use net::{from_v4, v4};
use shares::PortShares;
use space::{PortClass, PortSpace};
use timeouts::FlowTimeouts;

use crate::answers::{self, AnswerLimits};

/// Maximum number of external IPv4 addresses. With all ports in use they take 14 MB; the other
/// tables grow with the number of flows.
pub const EXTERNAL_MAX: usize = 256;

/// Ports below this are privileged. A privileged port maps to a privileged port (RFC 4787 REQ-3).
const PRIVILEGED: u16 = 1024;

/// A NAT.
pub struct Nat {
    config: Config,
    keep: FlowTimeouts,
    forwards: Forwards,
    space: PortSpace,
    /// External addresses, by number, that an operator has drained: they get no new mappings.
    drained: Vec<bool>,
    wanted: events::EventFilter,
    prefixes: Vec<nptv6::Nptv6Rule>,
    hosts: nptv6::OutsideHosts,
    /// The shares of affinity groups in ports and blocks.
    shares: PortShares,
    /// No static rule uses a port, so that each address has all ports of every range.
    has_all_ports: bool,
}

nf::counters! {
    /// Mappings created.
    mappings_made: mappings,
    /// Mappings released.
    mappings_freed: mappings,
    /// Flows opened from inside and translated.
    flows_out: flows,
    /// Flows opened from outside and translated.
    flows_in: flows,
    /// Flows between inside hosts, by an external address.
    flows_hairpin: flows,
    /// Flows that pass unchanged.
    flows_passed: flows,
    /// Flows with a translated prefix.
    flows_nptv6: flows,
    /// ICMP errors translated.
    icmp_errors: packets,
    /// Port blocks allocated.
    blocks_taken: blocks,
    /// Port blocks released.
    blocks_freed: blocks,
    /// Packets of a flow after its mapping was released.
    stale: packets,
    /// Packets of a known flow from the wrong side: dropped, `nat-wrong-side`.
    spoofed: packets,
    /// Mappings evicted for others.
    mappings_evicted: mappings,
    /// Resets sent for TCP packets that belong to no flow and may open none.
    resets_sent: packets,
}

/// Indices of the pools in the descriptor.
mod pool {
    pub const PORTS: usize = 0;
    pub const BLOCKS: usize = 1;
    pub const SUBSCRIBERS: usize = 2;
    pub const PERMISSIONS: usize = 3;
}

/// Sets: sources that got answers, and all answers.
const ANSWERS: AnswerLimits = AnswerLimits { sources: 2, all: 3 };

const DESCRIPTOR: &Descriptor = &Descriptor {
    name: "nat",
    aliases: &["napt", "nat44", "cgn"],
    summary: "Translates addresses and ports: NAPT for IPv4 (RFC 4787, 5382, 5508), NPTv6 (RFC 6296).",
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
    writes: &[Field::SourceAddress, Field::DestinationAddress, Field::SourcePort, Field::DestinationPort],
    payload: Access::Ignore,
    affinity: Affinity::Source,
    scaling: Scaling::Servers,
    counters: Counters::DECLARED,
    shared: &[
        Shared::Pool("ports"),
        Shared::Pool("blocks"),
        Shared::Pool("subscribers"),
        Shared::Pool("permissions"),
        Shared::Set { name: "limit_events", capacity: 1 },
        Shared::Set { name: "nptv6_hosts", capacity: 1 },
        answers::SOURCES,
        answers::ALL,
    ],
    across_nodes: NodeSharing::PerGroup,
    keeps_flows: true,
    consolidates: true,
    cycles_per_packet: 40,
    ..Descriptor::DEFAULT
};

impl NetworkFunction for Nat {
    const DESCRIPTOR: &'static Descriptor = DESCRIPTOR;
    type Config = Config;
    type State = State;
    const HOT_BYTES: usize = offset_of!(State, item);

    fn new(config: Config, setup: &mut Setup) -> Result<Nat, ConfigError> {
        check(&config)?;
        let forwards = Forwards::new(&config.forwards, &config.one_to_one)?;
        let external = external_addresses(&config, &forwards, setup)?;
        let prefixes = config.nptv6.iter().map(nptv6::Nptv6Rule::new).collect::<Result<Vec<_>, _>>()?;
        let hosts = nptv6::OutsideHosts::new(&config.nptv6, &prefixes, &setup.links)?;
        let space = PortSpace::new(external, config.ports, |class, address| {
            forwards.ports_of(class, address).collect()
        });
        let shares = PortShares::new(&config, setup.affinity_groups)?;
        let has_all_ports = config.forwards.is_empty() && config.one_to_one.is_empty();
        let addresses = space.addresses().len() as u32;
        for &address in space.addresses() {
            setup.owns(Some(Side::Outside), from_v4(address), from_v4(address));
        }
        for (first, last) in forwards.external_addresses() {
            setup.owns(Some(Side::Outside), from_v4(first), from_v4(last));
        }
        for (first, last) in prefixes.iter().map(nptv6::Nptv6Rule::outside) {
            setup.owns_in_use(Side::Outside, first, last);
        }
        for host in hosts.configured() {
            setup.owns(Some(Side::Outside), host, host);
        }
        if hosts.has_neighbours() {
            setup.set_capacity(nptv6::HOSTS, nptv6::HOSTS_SEEN_MAX);
        }
        if has_all_ports && !config.inside.is_empty() && config.untranslated == config::UnmatchedAction::Drop
        {
            let all_v6 = (Addr::NONE, Addr::from_bytes([0xff; 16]));
            setup.passes_sources("inside", config.inside.iter().map(net::Prefix4::bounds).chain([all_v6]));
        }
        if config.translates_v4() && config.tcp_opens_with == config::TcpOpening::Syn {
            setup.forgets_connections(match config.not_opening {
                NotOpeningAction::Drop => {
                    "`tcp_opens_with: any` takes them over, `not_opening: reject` resets them"
                }
                NotOpeningAction::Reject => "it resets them",
            });
        }
        let flows_if = |wanted: bool| if wanted { setup.flows_max } else { 1 };
        let limited = config.subscriber.sessions.is_some() || config.subscriber.ports.is_some();
        let filtered = config.filtering == config::FilteringBehaviour::AddressDependent;
        let (subscribers, permissions) = (flows_if(limited), flows_if(filtered));
        let wanted = events::EventFilter::new(&config.events);
        setup.groups_by(AffinityKey::ADDRESS4);
        if wanted.limits {
            setup.set_capacity(0, events::LIMITS_REMEMBERED_MAX);
        }
        let hold = HoldDown { ns: config.hold_down.time.0, max: config.hold_down.max };
        let hold_if = |wanted: bool| if wanted { hold } else { HoldDown::default() };
        setup.pool_with_holds(space.size().max(1), hold_if(config.blocks.is_none()));
        let blocks = shares.blocks_per_address() * addresses;
        setup.pool_with_holds(blocks.max(1), hold_if(config.blocks.is_some()));
        setup.pool_size(subscribers.max(1));
        setup.pool_size(permissions.max(1));
        Ok(Nat {
            wanted,
            keep: FlowTimeouts::new(&config.timeouts, config.refresh),
            forwards,
            drained: vec![false; addresses as usize],
            space,
            prefixes,
            hosts,
            shares,
            has_all_ports,
            config,
        })
    }

    #[inline(always)]
    fn process(&self, packet: &mut PacketView<'_>, state: &mut State, context: &mut Context<'_>) -> Verdict {
        if !state.has(State::PLAIN) || packet.meta().class == PacketClass::IcmpError {
            return self.process_special(packet, state, context);
        }
        let side = context.side();
        if !matches_direction(context) || (side == Side::Outside && !is_for(packet, state.external.addr)) {
            return self.spoofed(packet, context);
        }
        context.keep_flow_ms(self.keep.ms(side, state.class, context.connection()));
        let (end, to) = match side {
            Side::Inside => (End::Source, &state.external),
            Side::Outside => (End::Destination, &state.internal),
        };
        forward(packet.set_end(end, *to))
    }

    #[inline]
    fn predict(&self, state: &State, plan: &mut Plan<'_>) -> bool {
        let side = plan.side;
        plan.keep_flow_ms(self.keep.ms(side, state.class, plan.connection));
        if state.has(State::PASS) {
            return true;
        }
        let matches_direction = (side == plan.origin) == (plan.direction == Direction::Original);
        if !state.has(State::PLAIN) || !matches_direction {
            return false;
        }
        match side {
            Side::Inside => plan.set_end(End::Source, state.external),
            Side::Outside if plan.destination().addr == state.external.addr => {
                plan.set_end(End::Destination, state.internal);
            }
            Side::Outside => return false,
        }
        true
    }

    const MAKES_ROOM: bool = true;

    fn make_room(
        &self,
        packet: &Packet,
        flows: &LiveFlows<'_, State>,
        context: &mut Context<'_>,
        victims: &mut Vec<u32>,
    ) {
        self.evict_half_open(packet, flows, context, victims);
    }

    fn group_of(&self, packet: &Packet, groups: AffinityGroups) -> Option<AffinityGroup> {
        self.affinity_of(packet, groups)
    }

    fn flow_leaves(&self, state: &mut State, context: &mut Context<'_>) {
        self.leave_node(state, context);
    }

    fn flow_arrives(&self, state: &mut State, context: &mut Context<'_>) -> bool {
        self.arrive(state, context)
    }

    fn flow_moved(&self, state: &mut State, context: &mut Context<'_>) {
        if let Some(item) =
            state.item.item().filter(|_| state.has(State::HELD) && state.class < PortClass::Other as u8)
        {
            mapping::note_holder(item, context);
        }
    }

    fn flow_end(&self, state: &mut State, reason: EndReason, context: &mut Context<'_>) {
        if self.wanted.sessions {
            self.session_event(NatEvent::SessionDelete, state, context);
        }
        let item_use = if reason == EndReason::Rejected { ItemUse::Refused } else { ItemUse::Ends };
        self.release(state, item_use, context);
    }

    /// Executes commands. `drain ADDRESS` stops allocation from an external address; `resume
    /// ADDRESS` restarts it. Existing flows stay.
    fn control(&mut self, command: &str) -> Result<(), ControlError> {
        let (number, drain) = self.parse_command(command)?;
        self.drained[number] = drain;
        Ok(())
    }

    fn check_command(&self, command: &str) -> Result<(), ControlError> {
        self.parse_command(command).map(drop)
    }
}

impl Nat {
    /// Returns the number of the command's external address, and true for `drain`.
    fn parse_command(&self, command: &str) -> Result<(usize, bool), ControlError> {
        let refused = |why: &str| ControlError(format!("`{command}`: {why}"));
        let words: Vec<&str> = command.split_whitespace().collect();
        let (drain, address) = match words[..] {
            ["drain", address] => (true, address),
            ["resume", address] => (false, address),
            _ => return Err(refused("expected `drain ADDRESS` or `resume ADDRESS`")),
        };
        let address: Ipv4Addr = address.parse().map_err(|_| refused("not an IPv4 address"))?;
        let number = self.space.number_of(address.to_bits());
        Ok((number.ok_or_else(|| refused("not one of the external addresses"))?, drain))
    }

    /// Returns whether the inside address is translated; false in an IPv6-only NAT.
    fn is_inside(&self, addr: Addr) -> bool {
        let Some(address) = v4(addr).filter(|_| self.config.translates_v4()) else { return false };
        self.config.inside.is_empty() || self.config.inside.iter().any(|prefix| prefix.contains(address))
    }

    /// Returns whether the address is external: from the port pool or from a static rule.
    fn is_external(&self, addr: Addr) -> bool {
        v4(addr).is_some_and(|address| {
            self.space.number_of(address).is_some()
                || self.forwards.has_address(address)
                || self.forwards.has_port_of(address)
        })
    }

    /// Drops a packet of a known flow that entered by the wrong side.
    #[cold]
    fn spoofed(&self, packet: &mut PacketView<'_>, context: &mut Context<'_>) -> Verdict {
        packet.mark_one_off();
        context.count(COUNTERS.spoofed, 1);
        Verdict::Drop(DropReason::NatWrongSide)
    }
}

/// Returns whether the packet entered by the side of its direction, in a flow between inside and
/// outside.
#[inline]
fn matches_direction(context: &Context<'_>) -> bool {
    let flow = context.flow();
    (flow.side == flow.origin) == (flow.direction == Direction::Original)
}

/// Returns whether the packet is addressed to `addr`.
#[inline]
fn is_for(packet: &PacketView<'_>, addr: Addr) -> bool {
    let network = packet.network();
    if packet.meta().version == 4 {
        network.get(16..20) == Some(&addr.v4_bytes())
    } else {
        network.get(24..40) == Some(addr.as_bytes())
    }
}

/// Forwards a rewritten packet. Rewriting cannot fail for a parsed packet; an error is a bug.
#[inline]
fn forward(written: Result<(), RewriteError>) -> Verdict {
    match written {
        Ok(()) => Verdict::Forward,
        Err(_) => Verdict::Drop(DropReason::Internal),
    }
}

/// Returns the addresses of the port pool, sorted and without duplicates. Leaves those out that are
/// a network's own, or a neighbour's: answers to them would not come back.
fn external_addresses(
    config: &Config,
    forwards: &Forwards,
    setup: &mut Setup,
) -> Result<Vec<u32>, ConfigError> {
    let mut addresses = BTreeSet::new();
    for address in config.external.iter().flat_map(|range| range.addresses()) {
        let role = setup.links.role_of(from_v4(address)).map(str::to_owned);
        if let Some(role) = role {
            setup.warn(format!("external: {} is not used: it is {role}", from_v4(address)));
        } else if !forwards.has_address(address) {
            addresses.insert(address);
        }
        if addresses.len() > EXTERNAL_MAX {
            return Err(ConfigError::new(format!("external: more than {EXTERNAL_MAX} addresses")));
        }
    }
    Ok(addresses.into_iter().collect())
}

/// Checks the constraints that the types cannot express.
fn check(config: &Config) -> Result<(), ConfigError> {
    if !config.translates_v4() && config.nptv6.is_empty() {
        return Err(ConfigError::new("nothing to translate: one of external, forwards, one_to_one, nptv6"));
    }
    if config.nptv6.len() > nptv6::RULES_MAX {
        return Err(ConfigError::new(format!("nptv6: more than {} rules", nptv6::RULES_MAX)));
    }
    for (name, ns) in config.timeouts.named() {
        if !(NatTimeouts::NS_MIN..=NatTimeouts::NS_MAX).contains(&ns) {
            return Err(ConfigError::new(format!("timeouts: {name} is not between 1s and 7d")));
        }
    }
    if config.hold_down.time.0 > NatTimeouts::NS_MAX {
        return Err(ConfigError::new("hold_down: time is longer than 7d"));
    }
    let high = config.ports.last.max(PRIVILEGED) - config.ports.first.max(PRIVILEGED);
    match config.blocks {
        Some(blocks) if blocks.size == 0 || blocks.max == 0 => {
            Err(ConfigError::new("blocks: size and max are at least 1"))
        }
        Some(blocks) if blocks.size > high => {
            Err(ConfigError::new("blocks: a block is larger than the ports from 1024 on"))
        }
        _ => Ok(()),
    }
}
