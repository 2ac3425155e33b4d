//! The firewall (B24's IPFilter, A29's firewall): an ordered list of rules decides which flows pass.
//!
//! [`parse`] reads rules, [`classify`] finds the first of thousands that matches, and this module applies it: to the first
//! packet of a flow, whose later packets follow without another look until the rules change. See the README.

pub mod classify;
mod config;
mod facts;
pub mod parse;
mod reject;
pub mod rule;
mod track;

use std::mem::offset_of;

use nf::config::ConfigError;
use nf::{
    Access, Affinity, Answers, Attribute, Cause, Connection, Context, ControlError, Descriptor,
    EventCondition, Field, Foresight, Maturity, NetworkFunction, PacketView, Scaling, Setup, Shared,
    StateFunction, Verdict,
};
use packet::parse::protocol;
use packet::sanity::is_link_control_packet;
use packet::{Class, Direction, DropReason, Packet};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use classify::Classifier;
pub use config::{Config, Pickup, Tcp};
use facts::{Opening, answer_type, detail, flags_fit, is_answer, is_related, is_syn, way};
pub use reject::{ANSWERS_BURST, ANSWERS_PER_S, SOURCE_ANSWERS_BURST, SOURCE_ANSWERS_PER_S, SOURCES_MAX};
use rule::{Action, FlowState, Headers, Rule, Way, has_ports, is_icmp};

/// The firewall.
pub struct Firewall {
    rules: Vec<Rule>,
    classifier: Classifier,
    default: Action,
    stateful: bool,
    strict: bool,
    picks_up: bool,
    /// Whether what the link needs passes whatever the rules say.
    link_control: bool,
    /// Counts changes of the rules, from 1: what was judged under another version is judged again.
    version: u32,
    /// Flows whose [`State::quick`] is this need no further look; [`NO_QUICK_WAY`] if all do.
    quick: u32,
}

/// What the firewall keeps of a flow. The first 16 bytes are all that `tcp: loose` reads or writes.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct State {
    /// The version of the rules under which the flow's packets pass without another look; 0: under none.
    quick: u32,
    /// The version under which it was judged; 0: not yet.
    judged: u32,
    /// What decided: a rule's number from 1, or 0 for the default.
    rule: u16,
    /// See [`Opening`].
    opening: u8,
    /// TCP flags or ICMP type of the packet that the flow was judged by.
    opening_detail: u8,
    /// What is done with its packets: 1 and the [`Action`]'s number.
    action: u8,
    spare: [u8; 3],
    /// With `tcp: strict`: how far the connection has come.
    ends: track::Ends,
}

const NO_QUICK_WAY: u32 = u32::MAX;

/// The version of the rules as they were configured.
const FIRST_VERSION: u32 = 1;

/// Attribute: a rule allows the flow.
const SAFE: usize = 0;
/// Attribute: what the rule's `tag` says.
const TAG: usize = 1;

const COUNT_JUDGED: usize = 0;
const COUNT_DENIED: usize = 1;
const COUNT_DEFAULT: usize = 2;
const COUNT_INVALID: usize = 3;
const COUNT_ANSWERED: usize = 4;
const COUNT_UNANSWERED: usize = 5;
const COUNT_LINK_CONTROL: usize = 6;

/// Set: sources that got answers.
const ANSWERED_SOURCES: usize = 0;
/// Set with one member: all answers.
const ANSWERED_ALL: usize = 1;

/// Event: the rules are not those of the version that is its argument.
const RULES_CHANGED: u16 = 1;

/// The state function that counts a packet of a flow that is denied.
const REFUSED: StateFunction = StateFunction { id: 1, access: Access::Ignore, reads: &[] };

impl NetworkFunction for Firewall {
    const DESCRIPTOR: &'static Descriptor = &Descriptor {
        name: "firewall",
        aliases: &["fw", "ipfilter"],
        summary: "Stateful packet filter: an ordered list of rules decides which flows pass",
        maturity: Maturity::Production,
        state_version: 1,
        attributes: &[
            Attribute { name: "safe", bits: 1, meaning: "a rule allows the flow" },
            Attribute { name: "tag", bits: 8, meaning: "the `tag` of the rule that matched; 0: none" },
        ],
        reads: &[
            Field::SourceAddress,
            Field::DestinationAddress,
            Field::SourcePort,
            Field::DestinationPort,
            Field::Protocol,
            Field::TcpFlags,
        ],
        writes: &[],
        payload: Access::Ignore,
        affinity: Affinity::Flow,
        scaling: Scaling::Servers,
        shared: &[
            Shared::Counter("judged"),
            Shared::Counter("denied"),
            Shared::Counter("denied-by-default"),
            Shared::Counter("invalid"),
            Shared::Counter("answered"),
            Shared::Counter("unanswered"),
            Shared::Counter("link-control"),
            Shared::Set { name: "answered-sources", capacity: SOURCES_MAX },
            Shared::Set { name: "answered", capacity: 1 },
        ],
        map: None,
        buffers: None,
        stream: false,
        keeps_flows: false,
        recomputes: true,
        changes_flows: false,
        consolidates: true,
        cycles_per_packet: 20,
    };

    type Config = Config;
    type State = State;
    const HOT_BYTES: usize = offset_of!(State, ends);

    fn new(config: Config, setup: &mut Setup) -> Result<Firewall, ConfigError> {
        if config.tcp == Tcp::Strict && !config.stateful {
            return Err(ConfigError::new("`tcp: strict` needs `stateful: true`"));
        }
        if let Some((name, _)) = config.tags.iter().find(|&(_, &tag)| tag == 0) {
            return Err(ConfigError::new(format!("tag `{name}` is 0, which means no tag: use 1 to 255")));
        }
        let rules = parse::rules(&config.rules.0, &config.tags)?;
        let classifier = Classifier::new(&rules).map_err(ConfigError::new)?;
        let mut firewall = Firewall {
            rules,
            classifier,
            default: config.default,
            stateful: config.stateful,
            strict: config.tcp == Tcp::Strict,
            picks_up: config.pickup == Pickup::Allow,
            link_control: setup.link_control,
            version: 0,
            quick: NO_QUICK_WAY,
        };
        firewall.raise_version();
        Ok(firewall)
    }

    #[inline]
    fn process(&self, packet: &mut PacketView<'_>, state: &mut State, context: &mut Context<'_>) -> Verdict {
        // A SYN may open the connection anew, from the other end.
        let verdict = if state.quick == self.quick && !is_syn(packet.meta().tcp_flags) {
            Verdict::Forward
        } else {
            self.look(packet, state, context)
        };
        if packet.is_recording() {
            self.note(packet, state, verdict);
        }
        verdict
    }

    fn state_function(&self, id: u16, _packet: &Packet, state: &mut State, context: &mut Context<'_>) {
        if id == REFUSED.id {
            context.count(if state.rule == 0 { COUNT_DEFAULT } else { COUNT_DENIED }, 1);
        }
    }

    #[inline]
    fn foresee(&self, state: &State, _packets: &mut Foresight<'_>) -> bool {
        state.quick == self.quick
    }

    /// SpeedyBox's event of an access control list: what was recorded under other rules is stale (B7, B23).
    fn event_holds(&self, event: EventCondition, _state: &State) -> bool {
        event != self.validity()
    }

    /// Whom rejects tell, and how often, flows share.
    fn recomputes(&self) -> bool {
        self.default != Action::Reject && self.rules.iter().all(|rule| rule.action != Action::Reject)
    }

    /// Without state every packet may be rejected; with it, once the rules have changed, and what may open a connection.
    fn answers(&self) -> Answers {
        let rejects =
            self.default == Action::Reject || self.rules.iter().any(|rule| rule.action == Action::Reject);
        let all = rejects && (!self.stateful || self.version > FIRST_VERSION);
        Answers { all, openings: rejects, ..Answers::NONE }
    }

    fn passes_unjudged(&self) -> bool {
        self.default == Action::Allow
    }

    /// `default allow|deny|reject`, `rule N|NAME enable|disable`.
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
}

/// An operator's command.
enum Command {
    /// What becomes of packets that no rule matches.
    Default(Action),
    /// The rule with this index counts, or not.
    Enable { rule: usize, is_enabled: bool },
}

impl Firewall {
    /// A packet that does not pass at once. With state the first of a flow is judged, and the others follow it.
    #[inline(never)]
    fn look(&self, packet: &PacketView<'_>, state: &mut State, context: &mut Context<'_>) -> Verdict {
        if self.link_control && is_link_control_packet(packet) {
            context.count(COUNT_LINK_CONTROL, 1);
            return Verdict::Forward;
        }
        if !self.stateful {
            return self.process_alone(packet, context);
        }
        let opening = Opening(state.opening);
        match packet.meta().class {
            // It speaks of a flow that never came by here.
            Class::IcmpError if is_related(context) && !opening.is_set() => {
                self.process_alone(packet, context)
            }
            Class::LaterFragment if !opening.is_set() => invalid(context),
            // These have no ports to be judged by: they follow what is known of their flow.
            Class::IcmpError if is_related(context) => self.enforce(packet, state, context),
            Class::LaterFragment => self.enforce(packet, state, context),
            _ if opening.is_set() && !self.is_of_kind(packet, state, context) => {
                match self.process_alone(packet, context) {
                    Verdict::Forward => self.follow(packet, state, context),
                    refused => refused,
                }
            }
            _ if state.judged != self.version => self.judge(packet, state, context),
            _ => self.enforce(packet, state, context),
        }
    }

    /// Whether the packet is covered by what was decided about its flow.
    fn is_of_kind(&self, packet: &PacketView<'_>, state: &State, context: &Context<'_>) -> bool {
        let turned = Opening(state.opening).direction() != context.direction();
        match packet.meta().protocol {
            // The other end's SYN does not go on with the connection, unless both open it (RFC 9293 3.5).
            protocol::TCP if turned && is_syn(packet.meta().tcp_flags) => {
                matches!(context.connection(), Connection::SYN_SENT | Connection::SYN_RECEIVED)
            }
            // Messages of any type are of one flow as long as addresses and identifier agree.
            number if is_icmp(number) => {
                let opened_by = state.opening_detail;
                detail(packet) == if turned { answer_type(number, opened_by) } else { opened_by }
            }
            _ => true,
        }
    }

    /// Judges a flow by this packet: as its first packet was, so that new rules do to it what they would have done then.
    #[inline(never)]
    fn judge(&self, packet: &PacketView<'_>, state: &mut State, context: &mut Context<'_>) -> Verdict {
        if !Opening(state.opening).is_set() {
            state.opening = Opening::new(context, self.state_of(packet, context)).0;
            state.opening_detail = detail(packet);
        }
        let opening = Opening(state.opening);
        let mut headers = self.headers(packet, state.opening_detail, opening.way(), opening.state());
        if opening.direction() != context.direction() && !is_icmp(headers.protocol) {
            std::mem::swap(&mut headers.source_port, &mut headers.destination_port);
        }
        if opening.direction() != context.direction() {
            std::mem::swap(&mut headers.source, &mut headers.destination);
        }
        let (action, rule) = self.decide(&headers);
        state.judged = self.version;
        state.quick = if action == Action::Allow && !is_icmp(headers.protocol) { self.version } else { 0 };
        state.action = 1 + action as u8;
        state.rule = rule.map_or(0, |rule| rule as u16 + 1);
        let rule = rule.map(|rule| &self.rules[rule]);
        context.tag_flow(SAFE, u16::from(action == Action::Allow && rule.is_some()));
        context.tag_flow(TAG, rule.and_then(|rule| rule.tag).map_or(0, u16::from));
        self.report(action, state.rule, context);
        self.enforce(packet, state, context)
    }

    /// Does what was decided about the packet's flow.
    fn enforce(&self, packet: &PacketView<'_>, state: &mut State, context: &mut Context<'_>) -> Verdict {
        if state.action == 1 + Action::Allow as u8 {
            return self.follow(packet, state, context);
        }
        if state.rule == 0 && Opening(state.opening).state() == FlowState::Invalid {
            return invalid(context);
        }
        refuse(packet, context, state.action == 1 + Action::Reject as u8, state.rule == 0)
    }

    /// A packet of a flow that passes.
    fn follow(&self, packet: &PacketView<'_>, state: &mut State, context: &mut Context<'_>) -> Verdict {
        let meta = packet.meta();
        // A fragment's length is not that of its segment, so that it cannot be followed.
        if !self.strict || meta.protocol != protocol::TCP || meta.class != Class::Whole {
            return Verdict::Forward;
        }
        let fits = |segment: track::Segment| {
            flags_fit(segment.flags) && state.ends.follow(&segment, context.direction())
        };
        if track::Segment::read(packet).is_none_or(fits) { Verdict::Forward } else { invalid(context) }
    }

    /// Judges this packet for itself.
    fn process_alone(&self, packet: &PacketView<'_>, context: &mut Context<'_>) -> Verdict {
        let state = self.state_of(packet, context);
        let mut headers = self.headers(packet, detail(packet), way(context.side()), state);
        if packet.meta().class == Class::LaterFragment && has_ports(headers.protocol) {
            let flow = context.flow();
            let (from, to) = flow.key.ends(flow.reversed ^ (flow.direction == Direction::Reply));
            (headers.source_port, headers.destination_port) = (from.port, to.port);
        }
        let (action, rule) = self.decide(&headers);
        let number = rule.map_or(0, |rule| rule as u16 + 1);
        let rule = rule.map(|rule| &self.rules[rule]);
        context.tag_packet(SAFE, u16::from(action == Action::Allow && rule.is_some()));
        if let Some(tag) = rule.and_then(|rule| rule.tag) {
            context.tag_flow(TAG, u16::from(tag));
        }
        self.report(action, number, context);
        match action {
            Action::Allow => Verdict::Forward,
            _ if rule.is_none() && state == FlowState::Invalid => invalid(context),
            _ => refuse(packet, context, action == Action::Reject, rule.is_none()),
        }
    }

    /// What is done with such a packet, and the rule that says so; none: the default. Invalid packets pass by rule only.
    fn decide(&self, headers: &Headers) -> (Action, Option<usize>) {
        match self.classifier.first_match(headers) {
            Some(rule) => (self.rules[rule].action, Some(rule)),
            None if headers.state == FlowState::Invalid => (Action::Deny, None),
            None => (self.default, None),
        }
    }

    /// Counts a judgement, and raises an alert if its rule wants that.
    fn report(&self, action: Action, number: u16, context: &mut Context<'_>) {
        context.count(COUNT_JUDGED, 1);
        let rule = number.checked_sub(1).and_then(|index| self.rules.get(usize::from(index)));
        if let Some(rule) = rule.filter(|rule| rule.log) {
            let (category, severity) = match action {
                Action::Allow => ("firewall-allow", 3),
                Action::Deny => ("firewall-deny", 2),
                Action::Reject => ("firewall-reject", 2),
            };
            context.alert(u32::from(number), &rule.name, category, severity);
        }
    }

    fn headers(&self, packet: &PacketView<'_>, detail: u8, way: Way, state: FlowState) -> Headers {
        let meta = packet.meta();
        let (source, destination) = packet.ends();
        let ports = has_ports(meta.protocol);
        Headers {
            version: meta.version,
            protocol: meta.protocol,
            source: source.addr,
            destination: destination.addr,
            source_port: if ports { source.port } else { 0 },
            destination_port: match meta.protocol {
                number if is_icmp(number) => u16::from(detail),
                _ if ports => destination.port,
                _ => 0,
            },
            tcp_flags: if meta.protocol == protocol::TCP { detail } else { 0 },
            way,
            state,
        }
    }

    /// How the packet stands to what is known of its flow.
    fn state_of(&self, packet: &PacketView<'_>, context: &Context<'_>) -> FlowState {
        let meta = packet.meta();
        if meta.class == Class::IcmpError {
            return if is_related(context) { FlowState::Related } else { FlowState::Invalid };
        }
        let first = context.flow().clock == 1;
        let syn = is_syn(meta.tcp_flags);
        if meta.protocol == protocol::TCP && meta.class != Class::LaterFragment {
            if !flags_fit(meta.tcp_flags) || first && !syn && !self.picks_up {
                return FlowState::Invalid;
            }
        } else if is_icmp(meta.protocol) && first && is_answer(meta.protocol, detail(packet)) {
            return FlowState::Invalid;
        }
        let connection = context.connection();
        let unanswered = matches!(connection, Connection::NEW | Connection::UNREPLIED | Connection::SYN_SENT);
        if syn || context.direction() == Direction::Original && (first || unanswered) {
            FlowState::New
        } else {
            FlowState::Established
        }
    }

    /// Records what the flow's packets have in common, if they have. ICMP messages are of several kinds in one flow; without
    /// state, or with a strict look at TCP, each packet counts for itself.
    #[cold]
    fn note(&self, packet: &mut PacketView<'_>, state: &State, verdict: Verdict) {
        packet.note_event(self.validity());
        let denied = state.action == 1 + Action::Deny as u8;
        match verdict {
            Verdict::Forward if state.quick == self.quick => {}
            Verdict::Drop(DropReason::FirewallDenied | DropReason::FirewallDefault)
                if denied && !is_icmp(packet.meta().protocol) =>
            {
                packet.note_function(REFUSED);
            }
            _ => packet.differs(),
        }
    }

    /// The event that makes what is recorded now stale.
    fn validity(&self) -> EventCondition {
        let argument = u64::from(self.version);
        EventCondition { id: RULES_CHANGED, argument, cause: Cause::Command }
    }

    fn raise_version(&mut self) {
        // 0 is "not judged", and the largest number "no quick way".
        self.version = if self.version >= NO_QUICK_WAY - 1 { 1 } else { self.version + 1 };
        self.quick = if self.stateful && !self.strict { self.version } else { NO_QUICK_WAY };
    }

    fn parse_command(&self, command: &str) -> Result<Command, ControlError> {
        let words: Vec<&str> = command.split_whitespace().collect();
        Ok(match words.as_slice() {
            ["default", "allow"] => Command::Default(Action::Allow),
            ["default", "deny"] => Command::Default(Action::Deny),
            ["default", "reject"] => Command::Default(Action::Reject),
            ["rule", name @ .., action @ ("enable" | "disable")] => {
                let rule = self.find_rule(&name.join(" "))?;
                Command::Enable { rule, is_enabled: *action == "enable" }
            }
            _ => return Err(misunderstood(command)),
        })
    }

    /// A rule by number, from 1, or by name.
    fn find_rule(&self, name: &str) -> Result<usize, ControlError> {
        let name = name.trim_matches('"');
        match name.parse::<usize>() {
            Ok(number) => number.checked_sub(1).filter(|&index| index < self.rules.len()),
            Err(_) => self.rules.iter().position(|rule| *rule.name == *name),
        }
        .ok_or_else(|| ControlError(format!("there is no rule `{name}`, of {}", self.rules.len())))
    }
}

fn invalid(context: &mut Context<'_>) -> Verdict {
    context.count(COUNT_INVALID, 1);
    Verdict::Drop(DropReason::FirewallInvalid)
}

fn refuse(packet: &PacketView<'_>, context: &mut Context<'_>, rejects: bool, by_default: bool) -> Verdict {
    context.count(if by_default { COUNT_DEFAULT } else { COUNT_DENIED }, 1);
    Verdict::Drop(match (rejects, by_default) {
        (true, _) => reject::reject(packet, context),
        (false, true) => DropReason::FirewallDefault,
        (false, false) => DropReason::FirewallDenied,
    })
}

fn misunderstood(command: &str) -> ControlError {
    ControlError(format!(
        "`{command}`: expected `default allow|deny|reject` or `rule NUMBER|NAME enable|disable`"
    ))
}
