//! The firewall (B24's IPFilter, A29's firewall): an ordered list of rules decides which flows
//! pass.
//!
//! [`parse`] reads rules, [`classify`] finds the first matching rule among thousands, and this
//! module applies it to the first packet of a flow. The flow's later packets get the same verdict
//! without a lookup until the rules change. See the README.

pub mod classify;
mod command;
mod config;
mod counting;
mod facts;
mod hidden;
pub mod parse;
mod reject;
pub mod rule;
mod track;

use std::mem::offset_of;

use nf::{
    Access, Affinity, AnswerScope, Attribute, Cause, Connection, Context, ControlError, Descriptor,
    EndReason, EventCondition, Field, Maturity, NetworkFunction, NodeSharing, PacketView, Plan, Scaling,
    Setup, StateFunction, UpgradeError, Verdict,
};
use packet::parse::protocol;
use packet::sanity::is_link_control_packet;
use packet::{Direction, DropReason, Packet, PacketClass};
use values::ConfigError;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use classify::RuleClassifier;
use command::Command;
pub use config::{Config, Pickup, RuleCounting, TcpTracking};
use facts::{Opening, answer_type, detail, flags_fit, headers, is_answer, is_related, is_syn, way};
use rule::{ConnectionState, FilterAction, FilterHeaders, FilterRule, has_ports, is_icmp};

use crate::answers::{self, AnswerLimits};
pub use crate::answers::{
    ANSWERS_BURST, ANSWERS_PER_S, SOURCE_ANSWERS_BURST, SOURCE_ANSWERS_PER_S, SOURCES_MAX,
};
use crate::quoted::QuotedPacket;

/// A stateful packet filter.
pub struct Firewall {
    rules: Vec<FilterRule>,
    classifier: RuleClassifier,
    default: FilterAction,
    stateful: bool,
    strict: bool,
    pickup: Pickup,
    /// Passes link control traffic regardless of the rules.
    link_control: bool,
    /// Counts every packet for its rule.
    counts: bool,
    /// Version of the rules, from 1. Flows judged under another version are judged again.
    version: u32,
    /// Value of [`State::quick`] of flows that pass without a lookup; [`NO_QUICK_WAY`] if every
    /// flow needs one.
    quick: u32,
}

/// Per-flow state of the firewall. With `tcp: loose`, only the first 16 bytes are read or written.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct State {
    /// Version of the rules under which the flow's packets pass without a lookup; 0: none.
    quick: u32,
    /// Version of the rules under which the flow was judged; 0: not yet.
    judged: u32,
    /// The deciding rule, by number from 1; 0: the default.
    rule: u16,
    /// An [`Opening`].
    opening: u8,
    /// TCP flags or ICMP type of the packet that decided the action.
    opening_detail: u8,
    /// Action for the flow's packets: the [`FilterAction`]'s number plus 1.
    action: u8,
    /// Nonzero if the TCP connection is closed: a SYN opens another one.
    over: u8,
    spare: [u8; 2],
    /// Packets of the flow that are already counted, or were judged on their own.
    counted: u64,
    /// State of the TCP connection, with `tcp: strict`.
    ends: track::TcpTracker,
    padding: [u8; 4],
}

const NO_QUICK_WAY: u32 = u32::MAX;

/// Version of the rules as configured.
const FIRST_VERSION: u32 = 1;

/// Attribute: an `allow` rule matched the flow.
const SAFE: usize = 0;
/// Attribute: the `tag` of the matching rule.
const TAG: usize = 1;

nf::counters! {
    /// Lookups in the rules.
    judged: lookups,
    /// Packets dropped by a rule.
    denied: packets,
    /// Packets dropped by the default.
    denied_by_default: packets,
    /// Packets dropped as invalid.
    invalid: packets,
    /// Rejected packets with an answer.
    answered: packets,
    /// Rejected packets without an answer.
    unanswered: packets,
    /// Link traffic that passed without a lookup.
    link_control: packets,
}

/// Sets: sources that got answers, and all answers.
const ANSWERS: AnswerLimits = AnswerLimits { sources: 0, all: 1 };

/// Event: the version of the rules differs from the argument.
const RULES_CHANGED: u16 = 1;

/// State function that counts a packet of a denied flow.
const REFUSED: StateFunction = StateFunction { id: 1, access: Access::Ignore, reads: &[] };

/// State function that counts a packet of a passing flow, where every packet is counted.
const PASSED: StateFunction = StateFunction { id: 2, access: Access::Ignore, reads: &[] };

/// TCP flags that open or close a connection: FIN, SYN, RST.
const CHANGING: u8 = 7;

impl NetworkFunction for Firewall {
    const DESCRIPTOR: &'static Descriptor = &Descriptor {
        name: "firewall",
        aliases: &["fw", "ipfilter"],
        summary: "Stateful packet filter: an ordered list of rules decides which flows pass",
        maturity: Maturity::Production,
        state_version: 2,
        attributes: &[
            Attribute { name: "safe", bits: 1, values: &[], meaning: "a rule allows the flow" },
            Attribute {
                name: "tag",
                bits: 8,
                values: &[],
                meaning: "the `tag` of the rule that matched; 0: none",
            },
        ],
        reads: &[
            Field::SourceAddress,
            Field::DestinationAddress,
            Field::SourcePort,
            Field::DestinationPort,
            Field::Protocol,
            Field::TcpFlags,
        ],
        payload: Access::Ignore,
        affinity: Affinity::Flow,
        scaling: Scaling::Servers,
        counters: Counters::DECLARED,
        shared: &[answers::SOURCES, answers::ALL],
        across_nodes: NodeSharing::PerNode,
        consolidates: true,
        cycles_per_packet: 20,
        ..Descriptor::DEFAULT
    };

    type Config = Config;
    type State = State;
    const HOT_BYTES: usize = offset_of!(State, counted);

    fn new(config: Config, setup: &mut Setup) -> Result<Firewall, ConfigError> {
        if config.tcp == TcpTracking::Strict && !config.stateful {
            return Err(ConfigError::new("`tcp: strict` needs `stateful: true`"));
        }
        if let Some((name, _)) = config.tags.iter().find(|&(_, &tag)| tag == 0) {
            return Err(ConfigError::new(format!("tag `{name}` is 0, which means no tag: use 1 to 255")));
        }
        let rules = parse::rules(&config.rules.0, &config.tags)?;
        let classifier =
            RuleClassifier::new(rules.iter().map(|rule| &rule.pattern)).map_err(ConfigError::new)?;
        hidden::warnings(&rules, &classifier).into_iter().for_each(|warning| setup.warn(warning));
        let mut firewall = Firewall {
            rules,
            classifier,
            default: config.default,
            stateful: config.stateful,
            strict: config.tcp == TcpTracking::Strict,
            pickup: config.pickup,
            link_control: setup.link_control,
            counts: config.count == RuleCounting::Packets || !config.stateful,
            version: 0,
            quick: NO_QUICK_WAY,
        };
        firewall.raise_version();
        match firewall.pickup {
            Pickup::Allow => {}
            Pickup::Drop => setup.forgets_connections("`pickup: reject` resets them"),
            Pickup::Reject => setup.forgets_connections("it resets them"),
        }
        setup.rules(counting::labels(&firewall.rules), firewall.counts);
        Ok(firewall)
    }

    #[inline]
    fn process(&self, packet: &mut PacketView<'_>, state: &mut State, context: &mut Context<'_>) -> Verdict {
        let verdict = if state.quick == self.quick && packet.meta().tcp_flags & CHANGING == 0 {
            self.count(packet, state, context);
            Verdict::Forward
        } else {
            self.look(packet, state, context)
        };
        if packet.is_recording() {
            self.note(packet, state, verdict);
        }
        verdict
    }

    fn state_function(&self, id: u16, packet: &Packet, state: &mut State, context: &mut Context<'_>) {
        if id == REFUSED.id {
            context.count(if state.rule == 0 { COUNTERS.denied_by_default } else { COUNTERS.denied }, 1);
        }
        self.count(packet, state, context);
    }

    fn flow_end(&self, state: &mut State, _reason: EndReason, context: &mut Context<'_>) {
        self.count_flow(state, 0, context);
    }

    #[inline]
    fn predict(&self, state: &State, plan: &mut Plan<'_>) -> bool {
        if self.counts {
            plan.record_state_function(PASSED);
        }
        state.quick == self.quick
    }

    /// Checks SpeedyBox's event for an access control list: rules recorded under another version
    /// are stale (B7, B23).
    fn event_holds(&self, event: EventCondition, _state: &State) -> bool {
        event != self.validity()
    }

    /// Returns the scope of answers with `reject` rules: stateless, every packet may get an answer;
    /// stateful, every opening packet, and after a change of the rules every packet.
    fn answers(&self) -> AnswerScope {
        let rejects = self.default == FilterAction::Reject
            || self.pickup == Pickup::Reject
            || self.rules.iter().any(|rule| rule.action == FilterAction::Reject);
        let all = rejects && (!self.stateful || self.version > FIRST_VERSION);
        AnswerScope { all, openings: rejects, ..AnswerScope::NONE }
    }

    fn forwards_unclassified(&self) -> bool {
        self.default == FilterAction::Allow
    }

    /// Executes `default allow|deny|reject` and `rule N|NAME enable|disable`.
    fn control(&mut self, command: &str) -> Result<(), ControlError> {
        match self.parse_command(command)? {
            Command::Default(action) => self.default = action,
            Command::Enable { rule, is_enabled } => self.classifier.enable(rule, is_enabled),
        }
        self.raise_version();
        Ok(())
    }

    fn check_command(&self, command: &str) -> Result<(), ControlError> {
        self.parse_command(command).map(drop)
    }

    /// Makes these rules decide about the flow's next packet, as after a command.
    fn flow_reconfigured(&self, state: &mut State, context: &mut Context<'_>) {
        // Uncounted packets belong to a rule of the previous configuration.
        (state.counted, state.rule) = (context.flow().seq, 0);
        (state.judged, state.quick) = (0, 0);
    }

    /// Looks for the connection again: segments that passed elsewhere count as sent.
    fn flow_lags(&self, state: &mut State, _context: &mut Context<'_>) {
        state.ends.lag();
    }

    fn upgrade(from_version: u16, old: &[u8]) -> Result<State, UpgradeError> {
        let of_1 = old.split_at_checked(offset_of!(State, counted));
        let (1, Some((head, ends))) = (from_version, of_1) else {
            return Err(UpgradeError { from_version, to_version: Self::DESCRIPTOR.state_version });
        };
        let mut state = State::new_zeroed();
        state.as_mut_bytes()[..head.len()].copy_from_slice(head);
        state.over = 0;
        state.ends = track::TcpTracker::of_version_1(ends);
        Ok(state)
    }
}

impl Firewall {
    /// Handles a packet that needs a lookup. If stateful, judges the first packet of a flow, and
    /// applies the verdict to later ones.
    #[inline(never)]
    fn look(&self, packet: &mut PacketView<'_>, state: &mut State, context: &mut Context<'_>) -> Verdict {
        if self.link_control && is_link_control_packet(packet) {
            context.count(COUNTERS.link_control, 1);
            return Verdict::Forward;
        }
        if !self.stateful {
            return self.process_alone(packet, state, context);
        }
        let known = Opening(state.opening).is_set();
        let flags = packet.meta().tcp_flags;
        match packet.meta().class {
            // The quoted flow never passed here.
            PacketClass::IcmpError if is_related(context) && !known => {
                self.process_alone(packet, state, context)
            }
            PacketClass::LaterFragment if !known => invalid(context),
            // These packets have no ports to match: apply the verdict of their flow.
            PacketClass::IcmpError if is_related(context) => self.follow_quoted(packet, state, context),
            PacketClass::LaterFragment => self.enforce(packet, state, context),
            _ if known && state.over != 0 && is_syn(flags) => self.reopen(packet, state, context),
            _ if known && !self.is_of_kind(packet, state, context) => {
                match self.process_alone(packet, state, context) {
                    Verdict::Forward => self.follow(packet, state, context),
                    refused => refused,
                }
            }
            _ if state.judged != self.version => self.judge(packet, state, context),
            _ => self.enforce(packet, state, context),
        }
    }

    /// Returns whether the flow's verdict covers the packet.
    fn is_of_kind(&self, packet: &PacketView<'_>, state: &State, context: &Context<'_>) -> bool {
        let turned = Opening(state.opening).direction() != context.direction();
        match packet.meta().protocol {
            // A SYN of the other end does not continue the connection, except in a simultaneous
            // open (RFC 9293 3.5).
            protocol::TCP if turned && is_syn(packet.meta().tcp_flags) => {
                matches!(context.connection(), Connection::SYN_SENT | Connection::SYN_RECEIVED)
            }
            // A flow contains messages of any type with its addresses and identifier.
            number if is_icmp(number) => {
                let opened_by = state.opening_detail;
                detail(packet) == if turned { answer_type(number, opened_by) } else { opened_by }
            }
            _ => true,
        }
    }

    /// Judges the flow by this packet, as if it were the first: new rules apply to a known flow as
    /// they would to a new one.
    #[inline(never)]
    fn judge(&self, packet: &PacketView<'_>, state: &mut State, context: &mut Context<'_>) -> Verdict {
        if !Opening(state.opening).is_set() {
            state.opening = Opening::new(context, self.state_of(packet, context)).0;
            state.opening_detail = detail(packet);
        }
        let (opening, protocol) = (Opening(state.opening), packet.meta().protocol);
        let ends = packet.ends();
        let ends = if opening.direction() == context.direction() { ends } else { (ends.1, ends.0) };
        let headers = headers(
            packet.meta().version,
            protocol,
            ends,
            state.opening_detail,
            opening.way(),
            opening.state(),
        );
        let decided = self.decide(&headers);
        self.adopt(decided, protocol, state, context);
        self.enforce(packet, state, context)
    }

    /// Applies the verdict of the flow to an ICMP error about it. If the rules have changed, judges
    /// the flow by the quoted packet.
    fn follow_quoted(
        &self,
        packet: &PacketView<'_>,
        state: &mut State,
        context: &mut Context<'_>,
    ) -> Verdict {
        if state.judged != self.version
            && let Some(quoted) = QuotedPacket::of(packet)
        {
            // The error travels in the opposite direction of the quoted packet.
            let opening = Opening(state.opening);
            let ends = if opening.direction() == context.direction() {
                (quoted.destination, quoted.source)
            } else {
                (quoted.source, quoted.destination)
            };
            let version = packet.meta().version;
            let headers =
                headers(version, quoted.protocol, ends, state.opening_detail, opening.way(), opening.state());
            let decided = self.decide(&headers);
            self.adopt(decided, quoted.protocol, state, context);
        }
        self.enforce(packet, state, context)
    }

    /// Judges a SYN on the ports of a closed connection as the first packet of a new one. If it is
    /// refused, late packets of the old connection keep their verdict.
    fn reopen(&self, packet: &mut PacketView<'_>, state: &mut State, context: &mut Context<'_>) -> Verdict {
        let opening = Opening::new(context, ConnectionState::New);
        let (meta, ends) = (packet.meta(), packet.ends());
        let headers =
            headers(meta.version, meta.protocol, ends, detail(packet), opening.way(), opening.state());
        let decided = self.decide(&headers);
        if decided.0 != FilterAction::Allow {
            return self.carry_out(decided, ConnectionState::New, packet, state, context);
        }
        (state.opening, state.opening_detail, state.over) = (opening.0, detail(packet), 0);
        self.adopt(decided, packet.meta().protocol, state, context);
        self.enforce(packet, state, context)
    }

    /// Stores a decision about the flow.
    fn adopt(&self, (action, rule): Decision, protocol: u8, state: &mut State, context: &mut Context<'_>) {
        self.count_flow(state, 1, context);
        state.judged = self.version;
        state.quick = if action == FilterAction::Allow && !is_icmp(protocol) { self.version } else { 0 };
        state.action = 1 + action as u8;
        state.rule = rule.map_or(0, |rule| rule as u16 + 1);
        let rule = rule.map(|rule| &self.rules[rule]);
        context.tag_flow(SAFE, u16::from(action == FilterAction::Allow && rule.is_some()));
        context.tag_flow(TAG, rule.and_then(|rule| rule.tag).map_or(0, u16::from));
        let now_ns = context.now_ns();
        if let Some(counters) = context.rule(self.counted_as(state)) {
            counters.flows += 1;
            counters.hit(0, 0, now_ns);
        }
        self.report(action, state.rule, context);
    }

    /// Applies the flow's verdict.
    fn enforce(&self, packet: &PacketView<'_>, state: &mut State, context: &mut Context<'_>) -> Verdict {
        self.count(packet, state, context);
        if state.action == 1 + FilterAction::Allow as u8 {
            return self.follow(packet, state, context);
        }
        if state.rule == 0 && Opening(state.opening).state() == ConnectionState::Invalid {
            return self.refuse_invalid(packet, context);
        }
        refuse(packet, context, state.action == 1 + FilterAction::Reject as u8, state.rule == 0)
    }

    /// Handles a packet of a passing flow.
    fn follow(&self, packet: &PacketView<'_>, state: &mut State, context: &mut Context<'_>) -> Verdict {
        let meta = packet.meta();
        if meta.protocol != protocol::TCP {
            return Verdict::Forward;
        }
        let fits = !self.strict || self.fits(packet, state, context);
        if !fits {
            return invalid(context);
        }
        if meta.tcp_flags & CHANGING != 0 && !is_syn(meta.tcp_flags) {
            let over = if self.strict { state.ends.is_over() } else { context.connection().is_over() };
            state.over = u8::from(over);
        }
        Verdict::Forward
    }

    /// Returns whether the segment fits its connection. A fragment does not reveal its segment's
    /// length, so it is not checked.
    fn fits(&self, packet: &PacketView<'_>, state: &mut State, context: &Context<'_>) -> bool {
        let Some(segment) = track::TcpSegment::read(packet) else { return true };
        match packet.meta().class {
            PacketClass::Whole => {
                flags_fit(segment.flags) && state.ends.follow(&segment, context.direction())
            }
            PacketClass::FirstFragment => {
                state.ends.follow_fragment(&segment, context.direction());
                true
            }
            _ => true,
        }
    }

    /// Judges this packet on its own.
    fn process_alone(
        &self,
        packet: &mut PacketView<'_>,
        state: &mut State,
        context: &mut Context<'_>,
    ) -> Verdict {
        let flow_state = self.state_of(packet, context);
        let meta = packet.meta();
        let (mut source, mut destination) = packet.ends();
        if meta.class == PacketClass::LaterFragment && has_ports(meta.protocol) {
            let flow = context.flow();
            let (from, to) = flow.key.ends(flow.reversed ^ (flow.direction == Direction::Reply));
            (source.port, destination.port) = (from.port, to.port);
        }
        let headers = headers(
            meta.version,
            meta.protocol,
            (source, destination),
            detail(packet),
            way(context.side()),
            flow_state,
        );
        self.carry_out(self.decide(&headers), flow_state, packet, state, context)
    }

    /// Applies a decision about this packet alone.
    fn carry_out(
        &self,
        (action, rule): Decision,
        flow_state: ConnectionState,
        packet: &mut PacketView<'_>,
        state: &mut State,
        context: &mut Context<'_>,
    ) -> Verdict {
        let number = rule.map_or(0, |rule| rule as u16 + 1);
        self.count_alone(number, flow_state, packet, state, context);
        let rule = rule.map(|rule| &self.rules[rule]);
        context.tag_packet(SAFE, u16::from(action == FilterAction::Allow && rule.is_some()));
        if let Some(tag) = rule.and_then(|rule| rule.tag) {
            context.tag_flow(TAG, u16::from(tag));
        }
        self.report(action, number, context);
        match action {
            FilterAction::Allow => Verdict::Forward,
            _ if rule.is_none() && flow_state == ConnectionState::Invalid => {
                self.refuse_invalid(packet, context)
            }
            _ => refuse(packet, context, action == FilterAction::Reject, rule.is_none()),
        }
    }

    /// Drops an invalid packet. If the policy says so, answers a mid-stream segment with a reset,
    /// as a host without the connection does (RFC 9293 3.10.7.1).
    fn refuse_invalid(&self, packet: &PacketView<'_>, context: &mut Context<'_>) -> Verdict {
        let meta = packet.meta();
        let is_midstream = meta.protocol == protocol::TCP
            && meta.class == PacketClass::Whole
            && flags_fit(meta.tcp_flags)
            && !is_syn(meta.tcp_flags);
        let answered = self.pickup == Pickup::Reject
            && is_midstream
            && reject::reject(packet, context) == DropReason::FirewallRejected;
        match invalid(context) {
            Verdict::Drop(_) if answered => Verdict::Drop(DropReason::FirewallRejected),
            verdict => verdict,
        }
    }

    /// Returns the action for these headers and the deciding rule; none: the default. Invalid
    /// packets pass only if a rule allows them.
    fn decide(&self, headers: &FilterHeaders) -> Decision {
        match self.classifier.first_match(headers) {
            Some(rule) => (self.rules[rule].action, Some(rule)),
            None if headers.state == ConnectionState::Invalid => (FilterAction::Deny, None),
            None => (self.default, None),
        }
    }

    /// Counts a decision, and raises an alert if its rule has `log`.
    fn report(&self, action: FilterAction, number: u16, context: &mut Context<'_>) {
        context.count(COUNTERS.judged, 1);
        let rule = number.checked_sub(1).and_then(|index| self.rules.get(usize::from(index)));
        if rule.is_some_and(|rule| rule.log) {
            let (category, severity) = match action {
                FilterAction::Allow => ("firewall-allow", 3),
                FilterAction::Deny => ("firewall-deny", 2),
                FilterAction::Reject => ("firewall-reject", 2),
            };
            if let Some(label) = context.rule(usize::from(number)).map(|rule| rule.label.clone()) {
                context.alert_by_rule(&label, category, severity);
            }
        }
    }

    /// Returns the packet's state with respect to its flow.
    fn state_of(&self, packet: &PacketView<'_>, context: &Context<'_>) -> ConnectionState {
        let meta = packet.meta();
        if meta.class == PacketClass::IcmpError {
            return if is_related(context) { ConnectionState::Related } else { ConnectionState::Invalid };
        }
        let first = context.flow().seq == 1;
        let syn = is_syn(meta.tcp_flags);
        if meta.protocol == protocol::TCP && meta.class != PacketClass::LaterFragment {
            if !flags_fit(meta.tcp_flags) || first && !syn && self.pickup != Pickup::Allow {
                return ConnectionState::Invalid;
            }
        } else if is_icmp(meta.protocol) && first && is_answer(meta.protocol, detail(packet)) {
            return ConnectionState::Invalid;
        }
        let connection = context.connection();
        let unanswered = matches!(connection, Connection::NEW | Connection::UNREPLIED | Connection::SYN_SENT);
        if syn || context.direction() == Direction::Original && (first || unanswered) {
            ConnectionState::New
        } else {
            ConnectionState::Established
        }
    }

    /// Records the actions that the flow's packets have in common. None are recorded for ICMP,
    /// which mixes types in one flow, or where each packet is judged on its own: stateless, or with
    /// strict TCP tracking.
    #[cold]
    fn note(&self, packet: &mut PacketView<'_>, state: &State, verdict: Verdict) {
        packet.record_event(self.validity());
        if packet.recorded_rule().is_none() && state.action != 0 {
            packet.record_rule(self.counted_as(state) as u32);
        }
        let denied = state.action == 1 + FilterAction::Deny as u8;
        match verdict {
            Verdict::Forward if state.quick == self.quick => {
                if self.counts {
                    packet.record_state_function(PASSED);
                }
            }
            Verdict::Drop(DropReason::FirewallDenied | DropReason::FirewallDefault)
                if denied && !is_icmp(packet.meta().protocol) =>
            {
                packet.record_state_function(REFUSED);
            }
            _ => packet.mark_one_off(),
        }
    }

    /// Returns the event that invalidates rules recorded now.
    fn validity(&self) -> EventCondition {
        let argument = u64::from(self.version);
        EventCondition { id: RULES_CHANGED, argument, cause: Cause::Command }
    }

    fn raise_version(&mut self) {
        // 0 means "not judged", and the maximum means "no quick way".
        self.version = if self.version >= NO_QUICK_WAY - 1 { 1 } else { self.version + 1 };
        self.quick = if self.stateful && !self.strict { self.version } else { NO_QUICK_WAY };
    }
}

/// An action with the index of its rule; none: the default.
type Decision = (FilterAction, Option<usize>);

fn invalid(context: &mut Context<'_>) -> Verdict {
    context.count(COUNTERS.invalid, 1);
    Verdict::Drop(DropReason::FirewallInvalid)
}

fn refuse(packet: &PacketView<'_>, context: &mut Context<'_>, rejects: bool, by_default: bool) -> Verdict {
    context.count(if by_default { COUNTERS.denied_by_default } else { COUNTERS.denied }, 1);
    Verdict::Drop(match (rejects, by_default) {
        (true, _) => reject::reject(packet, context),
        (false, true) => DropReason::FirewallDefault,
        (false, false) => DropReason::FirewallDenied,
    })
}
