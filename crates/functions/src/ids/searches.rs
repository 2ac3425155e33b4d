//! The searches for the patterns of all rules: one for each kind of packets, streams and messages,
//! so that only those patterns are looked for whose rules may hold there.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use applayer::detect::Verdict;
use mpm::{Literal, SetError};
use signatures::{Application, Buffer, Direction, Ports, Protocol, Rule, Transport};

use super::lane::{Item, LONG_BYTES, Lane, Search, Sought};
use super::load::Rules;
use super::message::Wanted;
use super::occasion::{Family, may_go, may_have};
use super::prefilter::{Entry, Prefilter, anchor, in_message, near};
use super::scene::aliased;

/// The searches for the patterns of all rules.
pub struct Searches {
    /// On packets of TCP, with its streams, of UDP, of ICMP, and others.
    lanes: [Lane; 4],
    /// On messages to servers and to clients.
    messages: BTreeMap<(Family, bool), MessageSearch>,
    /// Bytes of the searches that were made since they were asked for last.
    made_bytes: AtomicU64,
}

/// The searches on a kind of messages.
pub struct MessageSearch {
    /// For each buffer, the one that it is searched by.
    buffers: [Option<Box<Prefilter>>; Buffer::ALL.len()],
    /// Rules that are always looked at.
    pub always: Vec<u32>,
    /// Buffers that some of these rules look at.
    pub wanted: Wanted,
}

impl MessageSearch {
    /// The search in such a buffer, if there is something to be found in it; in a body, if that
    /// does not stand in the stream as it is (`is_apart`).
    #[inline]
    pub fn of(&self, buffer: Buffer, is_apart: bool) -> Option<&Prefilter> {
        self.buffers[buffer as usize].as_deref().filter(|_| is_apart || !is_body(buffer))
    }
}

/// What there is to search for in a kind of messages.
#[derive(Default)]
struct MessageRules {
    always: Vec<u32>,
    wanted: Wanted,
    buffers: BTreeMap<Buffer, Vec<Entry>>,
}

/// The lane of TCP.
const TCP: usize = 0;

/// The kind of packets that a protocol's number is of: which lane is theirs.
fn kind_of(number: u8) -> usize {
    use packet::parse::protocol;
    match number {
        protocol::TCP => TCP,
        protocol::UDP => 1,
        protocol::ICMP | protocol::ICMPV6 => 2,
        _ => 3,
    }
}

impl Searches {
    /// For these rules.
    pub fn new(rules: &Rules) -> Result<Searches, SetError> {
        let mut lanes: [Vec<Item>; 4] = Default::default();
        let mut messages: BTreeMap<(Family, bool), MessageRules> = BTreeMap::new();
        for (number, (_, occasions, loaded)) in (0..).zip(&rules.signatures) {
            let rule = &loaded.rule;
            for (kind, items) in lanes.iter_mut().enumerate() {
                // Rules about DNS messages are found by what these have.
                let other = occasions.other_packet && occasions.message.is_none();
                let looks = if kind == TCP { occasions.tcp_packet } else { other };
                if looks && may_be(rule, kind) {
                    let (literal, reach) = in_packet(rule);
                    items.push(item(rule, Sought::Packet(number, reach), literal, kind));
                }
            }
            if occasions.stream && may_be(rule, TCP) {
                lanes[TCP].push(item(rule, Sought::Stream(number), anchor(rule), TCP));
            }
            let Some(family) = occasions.message else { continue };
            for to_server in [true, false] {
                if may_go(rule, to_server) && may_have(rule, family, to_server) {
                    let rules = messages.entry((family, to_server)).or_default();
                    rule.buffers.iter().for_each(|one| rules.wanted.add(aliased(one.buffer)));
                    // A few bytes are found everywhere: to look at the rule is less work than to
                    // search for them in much.
                    let rare = in_message(rule).filter(|(buffer, literal)| {
                        literal.bytes.len() >= if is_body(*buffer) { RARE_BYTES } else { SHORT_BYTES }
                    });
                    let Some((buffer, literal)) = rare else {
                        rules.always.push(number);
                        continue;
                    };
                    if is_body(buffer) {
                        let mut body = item(rule, Sought::Body(number), Some(literal.clone()), TCP);
                        body.ports[usize::from(to_server)] = None;
                        lanes[TCP].push(body);
                    }
                    rules.buffers.entry(aliased(buffer)).or_default().push((literal, number));
                }
            }
        }
        let [tcp, udp, icmp, others] = lanes;
        let mut searches = Searches {
            lanes: [Lane::new(tcp)?, Lane::new(udp)?, Lane::new(icmp)?, Lane::new(others)?],
            messages: BTreeMap::new(),
            made_bytes: AtomicU64::default(),
        };
        for (key, MessageRules { always, wanted, buffers }) in messages {
            let mut search = MessageSearch { buffers: [const { None }; _], always, wanted };
            for (buffer, entries) in buffers {
                let prefilter = Prefilter::new(entries)?;
                *searches.made_bytes.get_mut() += prefilter.memory_bytes();
                search.buffers[buffer as usize] = Some(Box::new(prefilter));
            }
            searches.messages.insert(key, search);
        }
        Ok(searches)
    }

    /// The search on packets of a protocol, and on its streams.
    pub fn packet(&self, protocol: u8, to_server: bool, port: u16, application: Verdict) -> Option<&Search> {
        let kind = kind_of(protocol);
        let port = if kind <= 1 { port } else { 0 };
        self.lanes[kind].search(to_server, port, application, &self.made_bytes)
    }

    /// The search on streams.
    pub fn stream(&self, to_server: bool, port: u16, application: Verdict) -> Option<&Search> {
        self.lanes[TCP].search(to_server, port, application, &self.made_bytes)
    }

    /// Bytes of the searches that were made since this was asked last.
    pub fn take_made_bytes(&self) -> u64 {
        match self.made_bytes.load(Ordering::Relaxed) {
            0 => 0,
            _ => self.made_bytes.swap(0, Ordering::Relaxed),
        }
    }

    /// The search on messages.
    pub fn message(&self, family: Family, to_server: bool) -> Option<&MessageSearch> {
        self.messages.get(&(family, to_server))
    }
}

/// The fewest bytes that are searched for where nothing depends on it, ...
const RARE_BYTES: usize = 4;
/// ... and where there is little to search.
const SHORT_BYTES: usize = 2;

/// What to search a packet for: of what must be near its beginning and of what may be anywhere, the
/// longer one unless that is needless; and within how many bytes it has to end.
fn in_packet(rule: &Rule) -> (Option<Literal>, usize) {
    let is_long = |literal: &Literal| literal.bytes.len() >= LONG_BYTES;
    match (near(rule), anchor(rule)) {
        (Some((near, reach)), anchor) if is_long(&near) || !anchor.as_ref().is_some_and(is_long) => {
            (Some(near), reach)
        }
        (_, anchor) => (anchor.filter(|literal| literal.bytes.len() >= RARE_BYTES), usize::MAX),
    }
}

fn item(rule: &Rule, sought: Sought, literal: Option<Literal>, kind: usize) -> Item {
    let any = || Some(Arc::new(Ports::any()));
    let of = |to_server: bool, ports: &Arc<Ports>| match may_go(rule, to_server) {
        false => None,
        // Others have no ports.
        true if kind > 1 || rule.direction == Direction::Both => any(),
        true => Some(Arc::clone(ports)),
    };
    Item {
        sought,
        literal,
        ports: [of(true, &rule.destination_ports), of(false, &rule.source_ports)],
        protocol: rule.protocol,
    }
}

/// Whether the buffer is a message's body.
fn is_body(buffer: Buffer) -> bool {
    matches!(buffer, Buffer::HttpRequestBody | Buffer::HttpResponseBody | Buffer::FileData)
}

/// Whether a rule's protocol can be that of this kind of packets.
fn may_be(rule: &Rule, kind: usize) -> bool {
    match rule.protocol {
        Protocol::Transport(transport) => match transport {
            Transport::Ip | Transport::Ipv4 | Transport::Ipv6 => true,
            Transport::Tcp | Transport::TcpPacket | Transport::TcpStream => kind == 0,
            Transport::Udp => kind == 1,
            Transport::Icmp | Transport::Icmpv4 | Transport::Icmpv6 => kind == 2,
            _ => false,
        },
        Protocol::Application(Application::Dns) => kind <= 1,
        Protocol::Application(_) => kind == 0,
    }
}
