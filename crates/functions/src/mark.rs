//! Marks packets: sets the DSCP, pushes, rewrites and pops VLAN tags, and assigns flows to tenants,
//! by the first matching rule of a list. See the README.
//!
//! A rule depends on nothing but the flow, the direction and the side, so all marks follow cached
//! rules.

mod config;
mod parse;
#[cfg(test)]
mod tests;

use nf::{
    Access, Affinity, Attribute, Context, Descriptor, Field, Maturity, NetworkFunction, PacketView, Plan,
    Scaling, Setup, StateFunction, Verdict,
};
use packet::{DropReason, Endpoint, Packet, PacketClass, RewriteError, Side, Tag, TagKind};
use values::ConfigError;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::firewall::classify::RuleClassifier;
use crate::firewall::rule::{ConnectionState, FilterHeaders, RuleDirection, has_ports};

pub use config::Config;
use parse::{MarkRule, VlanMark};

/// Marks packets.
pub struct PacketMarker {
    rules: Vec<MarkRule>,
    classifier: RuleClassifier,
}

/// Per-flow state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct State {
    /// The rule of the last first fragment by direction, which is that of the later ones: its
    /// number from 1; 0 if none matches.
    fragment_rules: [u16; 2],
    /// Nonzero once a packet decided on the flow's tenant.
    is_assigned: u8,
    /// The flow's protocol.
    protocol: u8,
    reserved: [u8; 2],
}

/// Attribute: the tenant of the flow.
const TENANT: usize = 0;

nf::counters! {
    /// Packets that a rule matched, `keep` included.
    packets_marked: packets,
    /// Packets that no rule matched.
    packets_unmatched: packets,
    /// Packets without the tag that their rule changes.
    packets_untagged: packets,
}

/// Returns the state function that counts a packet for this rule.
fn count_for(number: u16) -> StateFunction {
    StateFunction { id: number, access: Access::Ignore, reads: &[] }
}

/// State function that counts a packet without the tag that its rule changes.
const COUNT_UNTAGGED: StateFunction = StateFunction { id: u16::MAX, access: Access::Ignore, reads: &[] };

static DESCRIPTOR: Descriptor = Descriptor {
    name: "mark",
    aliases: &["marker", "classify"],
    summary: "Sets DSCP, VLAN tags and tenants of packets by a list of rules",
    maturity: Maturity::Preview,
    state_version: 1,
    attributes: &[Attribute {
        name: "tenant",
        bits: 16,
        values: &[],
        meaning: "the flow's tenant; 0: none assigned",
    }],
    reads: &[
        Field::SourceAddress,
        Field::DestinationAddress,
        Field::SourcePort,
        Field::DestinationPort,
        Field::Protocol,
        Field::Vlan,
    ],
    writes: &[Field::Dscp, Field::Vlan],
    payload: Access::Ignore,
    affinity: Affinity::Flow,
    scaling: Scaling::Servers,
    counters: Counters::DECLARED,
    consolidates: true,
    cycles_per_packet: 150,
    ..Descriptor::DEFAULT
};

impl NetworkFunction for PacketMarker {
    const DESCRIPTOR: &'static Descriptor = &DESCRIPTOR;
    type Config = Config;
    type State = State;

    fn new(config: Config, setup: &mut Setup) -> Result<PacketMarker, ConfigError> {
        let rules = parse::rules(&config.rules.0)?;
        let classifier =
            RuleClassifier::new(rules.iter().map(|rule| &rule.pattern)).map_err(ConfigError::new)?;
        setup.rules(rules.iter().map(|rule| rule.label.clone()), true);
        Ok(PacketMarker { rules, classifier })
    }

    fn flow_reconfigured(&self, state: &mut State, _context: &mut Context<'_>) {
        state.fragment_rules = [0; 2];
    }

    fn process(&self, packet: &mut PacketView<'_>, state: &mut State, context: &mut Context<'_>) -> Verdict {
        let number = self.number_of(packet, state, context);
        if state.is_assigned == 0 {
            (state.is_assigned, state.protocol) = (1, context.flow().key.protocol);
            packet.mark_one_off();
            let tenant = self.rule(number).and_then(|rule| rule.marks.tenant);
            tenant.into_iter().for_each(|tenant| context.tag_flow(TENANT, tenant));
        }
        packet.record_state_function(count_for(number));
        self.count(number, packet.ip_len(), context);
        let Some(rule) = self.rule(number) else { return Verdict::Forward };
        packet.record_rule(u32::from(number) - 1);
        if let Some(dscp) = rule.marks.dscp {
            packet.set_dscp(dscp);
        }
        match rule.marks.vlan.map_or(Ok(true), |vlan| vlan.apply(packet)) {
            Ok(true) => {}
            Ok(false) => {
                packet.record_state_function(COUNT_UNTAGGED);
                context.count(COUNTERS.packets_untagged, 1);
            }
            Err(error) => return Verdict::Drop(error.reason_or(DropReason::Internal)),
        }
        Verdict::Forward
    }

    fn state_function(&self, id: u16, packet: &Packet, _: &mut State, context: &mut Context<'_>) {
        if id == COUNT_UNTAGGED.id {
            context.count(COUNTERS.packets_untagged, 1);
        } else {
            self.count(id, packet.ip_len(), context);
        }
    }

    fn predict(&self, state: &State, plan: &mut Plan<'_>) -> bool {
        if state.is_assigned == 0 {
            return false;
        }
        let ends = (plan.source(), plan.destination());
        let number = self.search(ends, state.protocol, plan.side);
        plan.record_state_function(count_for(number));
        let Some(rule) = self.rule(number) else { return true };
        if let Some(dscp) = rule.marks.dscp {
            plan.set_dscp(dscp);
        }
        match rule.marks.vlan {
            None => true,
            Some(VlanMark::Push(tag)) => {
                plan.push_tag(tag);
                true
            }
            // These depend on the packet's tags.
            Some(VlanMark::Rewrite { .. } | VlanMark::Pop) => false,
        }
    }
}

impl PacketMarker {
    /// Returns the number of the packet's rule from 1; 0 if none matches.
    fn number_of(&self, packet: &PacketView<'_>, state: &mut State, context: &Context<'_>) -> u16 {
        let of_fragments = &mut state.fragment_rules[context.direction() as usize];
        let meta = packet.meta();
        // Later fragments have no ports; the first one is always ahead of them.
        if meta.class == PacketClass::LaterFragment {
            return *of_fragments;
        }
        let number = self.search(packet.ends(), meta.protocol, context.side());
        if meta.class == PacketClass::FirstFragment {
            *of_fragments = number;
        }
        number
    }

    /// Returns the number of the first rule that matches; 0 if none does.
    fn search(&self, (source, destination): (Endpoint, Endpoint), protocol: u8, side: Side) -> u16 {
        let port = |end: Endpoint| if has_ports(protocol) { end.port } else { 0 };
        let headers = FilterHeaders {
            version: source.addr.version(),
            protocol,
            source: source.addr,
            destination: destination.addr,
            source_port: port(source),
            destination_port: port(destination),
            tcp_flags: 0,
            way: match side {
                Side::Inside => RuleDirection::Out,
                Side::Outside => RuleDirection::In,
            },
            state: ConnectionState::New, // No pattern distinguishes states.
        };
        // There are at most `RULES_MAX`, which fit.
        self.classifier.first_match(&headers).map_or(0, |index| index as u16 + 1)
    }

    fn rule(&self, number: u16) -> Option<&MarkRule> {
        self.rules.get(usize::from(number).checked_sub(1)?)
    }

    /// Counts a packet for its rule.
    fn count(&self, number: u16, bytes: usize, context: &mut Context<'_>) {
        let now_ns = context.now_ns();
        context.count(if number == 0 { COUNTERS.packets_unmatched } else { COUNTERS.packets_marked }, 1);
        if let Some(counters) = usize::from(number).checked_sub(1).and_then(|index| context.rule(index)) {
            counters.hit(1, bytes, now_ns);
        }
    }
}

impl VlanMark {
    /// Changes the packet's tags. Returns false if it lacks the tag to change.
    fn apply(self, packet: &mut PacketView<'_>) -> Result<bool, RewriteError> {
        if let VlanMark::Push(tag) = self {
            return packet.push_tag(tag).map(|()| true);
        }
        let Some(tag) = packet.tag(TagKind::Vlan) else { return Ok(false) };
        match self {
            VlanMark::Rewrite { vid, pcp } => {
                let changed = vlan_with(tag, vid, pcp);
                if changed != tag {
                    packet.pop_tag(TagKind::Vlan)?;
                    packet.push_tag(changed)?;
                }
            }
            _ => {
                packet.pop_tag(TagKind::Vlan)?;
            }
        }
        Ok(true)
    }
}

/// Returns the tag with another identifier, priority, or both.
fn vlan_with(tag: Tag, vid: Option<u16>, pcp: Option<u8>) -> Tag {
    tag.with_vlan(vid.unwrap_or(tag.id() as u16), pcp.unwrap_or(tag.class())).unwrap_or(tag)
}
