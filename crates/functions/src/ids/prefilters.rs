//! The prefilters of all rules: one per kind of packet, stream and message, so that only patterns
//! of rules that may match there are searched for.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use applayer::detect::Detection;
use mpm::{Literal, LiteralSetError};
use signatures::{Application, Buffer, HeaderDirection, PortSet, Rule, RuleProtocol, RuleTransport};

use super::inspection_point::{MessageKind, may_go, may_have};
use super::load::LoadedRules;
use super::message::BufferMask;
use super::prefilter::{Prefilter, PrefilterEntry, anchor, in_message, near};
use super::signature_groups::{GroupPrefilter, GroupedRule, LONG_BYTES, PatternUse, SignatureGroups};

/// The prefilters of all rules.
pub struct Prefilters {
    /// For TCP packets and streams, UDP, ICMP, and others.
    groups: [SignatureGroups; 4],
    /// For messages to servers and to clients.
    messages: BTreeMap<(MessageKind, bool), MessagePrefilter>,
    /// Bytes of the prefilters built since the last query.
    made_bytes: AtomicU64,
}

/// The prefilters for a kind of message.
pub struct MessagePrefilter {
    /// The prefilter of each buffer.
    buffers: [Option<Box<Prefilter>>; Buffer::ALL.len()],
    /// Rules that are always inspected.
    pub always: Vec<u32>,
    /// Buffers that these rules inspect.
    pub wanted: BufferMask,
}

impl MessagePrefilter {
    /// Returns the prefilter of such a buffer, if any; of a body, only if it is not contiguous in
    /// the stream (`is_apart`).
    #[inline]
    pub fn of(&self, buffer: Buffer, is_apart: bool) -> Option<&Prefilter> {
        self.buffers[buffer as usize].as_deref().filter(|_| is_apart || !is_body(buffer))
    }
}

/// The patterns for a kind of message.
#[derive(Default)]
struct MessageRules {
    always: Vec<u32>,
    wanted: BufferMask,
    buffers: BTreeMap<Buffer, Vec<PrefilterEntry>>,
}

/// Index of the TCP groups.
const TCP: usize = 0;

/// Returns the index of the groups for a protocol number.
fn kind_of(number: u8) -> usize {
    use packet::parse::protocol;
    match number {
        protocol::TCP => TCP,
        protocol::UDP => 1,
        protocol::ICMP | protocol::ICMPV6 => 2,
        _ => 3,
    }
}

impl Prefilters {
    /// Builds the prefilters.
    pub fn new(rules: &LoadedRules) -> Result<Prefilters, LiteralSetError> {
        let mut groups: [Vec<GroupedRule>; 4] = Default::default();
        let mut messages: BTreeMap<(MessageKind, bool), MessageRules> = BTreeMap::new();
        for (number, (_, points, loaded)) in (0..).zip(&rules.signatures) {
            let rule = &loaded.rule;
            for (kind, items) in groups.iter_mut().enumerate() {
                // Rules about DNS messages are found by their buffers.
                let other = points.other_packet && points.message.is_none();
                let looks = if kind == TCP { points.tcp_packet } else { other };
                if looks && may_be(rule, kind) {
                    let (literal, reach) = in_packet(rule);
                    items.push(item(rule, PatternUse::Packet(number, reach), literal, kind));
                }
            }
            if points.stream && may_be(rule, TCP) {
                groups[TCP].push(item(rule, PatternUse::Stream(number), anchor(rule), TCP));
            }
            let families = points.message.into_iter().chain(points.mail.then_some(MessageKind::Mail));
            for (family, to_server) in families.flat_map(|family| [(family, true), (family, false)]) {
                if may_go(rule, to_server) && may_have(rule, family, to_server) {
                    let rules = messages.entry((family, to_server)).or_default();
                    rule.buffers.iter().for_each(|one| rules.wanted.add(one.buffer));
                    // Short patterns are found everywhere: to inspect the rule is cheaper than to
                    // search large buffers for them.
                    let rare = in_message(rule).filter(|(buffer, literal)| {
                        literal.bytes.len() >= if is_body(*buffer) { RARE_BYTES } else { SHORT_BYTES }
                    });
                    let Some((buffer, literal)) = rare else {
                        rules.always.push(number);
                        continue;
                    };
                    if is_body(buffer) && family == MessageKind::HttpBody {
                        let mut body = item(rule, PatternUse::Body(number), Some(literal.clone()), TCP);
                        body.ports[usize::from(to_server)] = None;
                        groups[TCP].push(body);
                    }
                    rules.buffers.entry(buffer).or_default().push((literal, number));
                }
            }
        }
        let [tcp, udp, icmp, others] = groups;
        let mut searches = Prefilters {
            groups: [
                SignatureGroups::new(tcp)?,
                SignatureGroups::new(udp)?,
                SignatureGroups::new(icmp)?,
                SignatureGroups::new(others)?,
            ],
            messages: BTreeMap::new(),
            made_bytes: AtomicU64::default(),
        };
        for (key, MessageRules { always, wanted, buffers }) in messages {
            let mut search = MessagePrefilter { buffers: [const { None }; _], always, wanted };
            for (buffer, entries) in buffers {
                let prefilter = Prefilter::new(entries)?;
                *searches.made_bytes.get_mut() += prefilter.memory_bytes();
                search.buffers[buffer as usize] = Some(Box::new(prefilter));
            }
            searches.messages.insert(key, search);
        }
        Ok(searches)
    }

    /// Returns the prefilter for packets of a protocol and for its streams.
    pub fn packet(
        &self,
        protocol: u8,
        to_server: bool,
        port: u16,
        application: Detection,
    ) -> Option<&GroupPrefilter> {
        let kind = kind_of(protocol);
        let port = if kind <= 1 { port } else { 0 };
        self.groups[kind].search(to_server, port, application, &self.made_bytes)
    }

    /// Returns the prefilter for streams.
    pub fn stream(&self, to_server: bool, port: u16, application: Detection) -> Option<&GroupPrefilter> {
        self.groups[TCP].search(to_server, port, application, &self.made_bytes)
    }

    /// Returns the bytes of the prefilters built since the last call.
    pub fn take_made_bytes(&self) -> u64 {
        match self.made_bytes.load(Ordering::Relaxed) {
            0 => 0,
            _ => self.made_bytes.swap(0, Ordering::Relaxed),
        }
    }

    /// Returns the prefilter for messages.
    pub fn message(&self, family: MessageKind, to_server: bool) -> Option<&MessagePrefilter> {
        self.messages.get(&(family, to_server))
    }
}

/// Minimum length of a pattern that only avoids work.
const RARE_BYTES: usize = 4;
/// Minimum length of a pattern in short buffers.
const SHORT_BYTES: usize = 2;

/// Returns the pattern to search packets for, and the maximum offset of its end. Prefers the longer
/// of the pattern near the beginning and the pattern anywhere, unless the first is long enough.
fn in_packet(rule: &Rule) -> (Option<Literal>, usize) {
    let is_long = |literal: &Literal| literal.bytes.len() >= LONG_BYTES;
    match (near(rule), anchor(rule)) {
        (Some((near, reach)), anchor) if is_long(&near) || !anchor.as_ref().is_some_and(is_long) => {
            (Some(near), reach)
        }
        (_, anchor) => (anchor.filter(|literal| literal.bytes.len() >= RARE_BYTES), usize::MAX),
    }
}

fn item(rule: &Rule, pattern_use: PatternUse, literal: Option<Literal>, kind: usize) -> GroupedRule {
    let any = || Some(Arc::new(PortSet::any()));
    let of = |to_server: bool, ports: &Arc<PortSet>| match may_go(rule, to_server) {
        false => None,
        // Others have no ports.
        true if kind > 1 || rule.direction == HeaderDirection::Both => any(),
        true => Some(Arc::clone(ports)),
    };
    GroupedRule {
        pattern_use,
        literal,
        ports: [of(true, &rule.destination_ports), of(false, &rule.source_ports)],
        protocol: rule.protocol,
    }
}

/// Returns whether the buffer is a message's body.
fn is_body(buffer: Buffer) -> bool {
    matches!(buffer, Buffer::HttpRequestBody | Buffer::HttpResponseBody | Buffer::FileData)
}

/// Returns whether a rule's protocol may be that of this kind of packets.
fn may_be(rule: &Rule, kind: usize) -> bool {
    match rule.protocol {
        RuleProtocol::Transport(transport) => match transport {
            RuleTransport::Ip | RuleTransport::Ipv4 | RuleTransport::Ipv6 => true,
            RuleTransport::Tcp | RuleTransport::TcpPacket | RuleTransport::TcpStream => kind == 0,
            RuleTransport::Udp => kind == 1,
            RuleTransport::Icmp | RuleTransport::Icmpv4 | RuleTransport::Icmpv6 => kind == 2,
            _ => false,
        },
        RuleProtocol::Application(Application::Dns) => kind <= 1,
        RuleProtocol::Application(_) => kind == 0,
    }
}
