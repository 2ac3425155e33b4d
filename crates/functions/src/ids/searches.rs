//! The searches for the patterns of all rules: one for each kind of packets, streams and messages, so that only those patterns
//! are looked for whose rules may hold there.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use dissect::detect::{Application as Found, Verdict};
use literals::{Literal, SetError};
use rules::{Application, Buffer, Direction, Match, Ports, Protocol, Rule, Transport};

use super::facts::is_application;
use super::load::Rules;
use super::message::Wanted;
use super::occasion::Family;
use super::prefilter::{Entry, NEAR_BYTES, Prefilter, anchor, in_message, near};
use super::scene::aliased;

/// The searches for the patterns of all rules.
pub struct Searches {
    /// On packets of TCP, UDP, ICMP, and others.
    packets: [Lane<PacketSearch>; 4],
    /// On pieces of streams.
    streams: Lane<Prefilter<Sought>>,
    /// On messages to servers and to clients.
    messages: BTreeMap<(Family, bool), MessageSearch>,
}

/// What a rule's literal is looked for in a stream for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sought {
    /// The rule looks into streams: it is its anchor.
    Stream(u32),
    /// The rule looks into bodies of messages, most of which stand in the stream as they are.
    Body(u32),
}

impl Sought {
    /// The rule.
    pub fn rule(self) -> u32 {
        match self {
            Sought::Stream(rule) | Sought::Body(rule) => rule,
        }
    }
}

/// The searches on a kind of messages.
#[derive(Default)]
pub struct MessageSearch {
    /// By the buffer that is searched.
    pub buffers: Vec<(Buffer, Prefilter)>,
    /// By the body, where that is not in the stream as it is.
    pub bodies: Vec<(Buffer, Prefilter)>,
    /// Rules that are always looked at.
    pub always: Vec<u32>,
    /// Buffers that some of these rules look at.
    pub wanted: Wanted,
}

/// The searches on a kind of packets.
pub struct PacketSearch {
    /// For literals that must be near the beginning, by how far that is in bytes.
    near: Vec<(usize, Prefilter)>,
    /// For others, and for rules without a literal.
    far: Prefilter,
}

/// How near the beginning, in bytes, literals are looked for together: the few first bytes have to be looked at one by one,
/// as many of these literals are short.
const REACHES: [usize; 3] = [16, 64, NEAR_BYTES];

impl PacketSearch {
    fn new(items: &[&Item]) -> Result<PacketSearch, SetError> {
        let mut near: [Vec<Entry>; REACHES.len()] = Default::default();
        let mut far = Vec::new();
        for item in items {
            let reach = item.near.as_ref().and_then(|(_, end)| REACHES.iter().position(|reach| end <= reach));
            match (reach, &item.near) {
                (Some(reach), Some((literal, _))) => {
                    near[reach].push((Some(literal.clone()), item.rule.rule()))
                }
                _ => far.push((item.literal.clone(), item.rule.rule())),
            }
        }
        let near = REACHES.into_iter().zip(near).filter(|(_, entries)| !entries.is_empty());
        Ok(PacketSearch {
            near: near
                .map(|(reach, entries)| Ok((reach, Prefilter::new(entries)?)))
                .collect::<Result<_, _>>()?,
            far: Prefilter::new(far)?,
        })
    }

    /// Adds the rules that may hold, and says how many bytes were searched.
    pub fn find(&self, payload: &[u8], may_hold: &mut Vec<u32>) -> usize {
        may_hold.extend_from_slice(self.far.always());
        let mut searched = 0;
        let near = self.near.iter().map(|(reach, search)| (&payload[..payload.len().min(*reach)], search));
        let far = self.far.has_literals().then_some((payload, &self.far));
        for (bytes, search) in near.chain(far) {
            search.find(bytes, may_hold);
            searched += bytes.len();
        }
        searched
    }
}

/// A rule in a lane.
struct Item {
    rule: Sought,
    literal: Option<Literal>,
    /// A literal that must be near the beginning of a packet, and how far from there it ends at most.
    near: Option<(Literal, usize)>,
    /// Of the server, by direction.
    ports: [Option<Arc<Ports>>; 2],
    protocol: Protocol,
}

impl Item {
    fn entry(&self) -> Entry<Sought> {
        (self.literal.clone(), self.rule)
    }

    /// Whether the rule may hold in this direction at this server's port.
    fn may_hold(&self, to_client: usize, port: u16) -> bool {
        self.ports[to_client].as_ref().is_some_and(|ports| ports.contains(port))
    }

    /// Whether it may hold in flows of this application.
    fn may_be_of(&self, application: Verdict) -> bool {
        match self.protocol {
            Protocol::Transport(_) => true,
            Protocol::Application(wanted) => {
                application == Verdict::Unknown || is_application(application, wanted)
            }
        }
    }
}

/// Rules that look at the same kind of bytes, parted by direction, server's port and application. A part's search is made when the
/// first bytes of that part come: of most parts, none ever do.
struct Lane<S> {
    items: Vec<Item>,
    /// To the server, and to the client.
    ways: [Parts<S>; 2],
}

/// The parts of a direction.
struct Parts<S> {
    /// Where ranges of ports begin that no rule tells apart.
    starts: Vec<u16>,
    /// The searches of each range, one for each application.
    searches: Vec<OnceLock<Box<S>>>,
}

/// Applications that are told apart: unknown, none of ours, and ours.
const APPLICATIONS: usize = 2 + Found::ALL.len();

fn number_of(application: Verdict) -> usize {
    match application {
        Verdict::Unknown => 0,
        Verdict::Failed => 1,
        Verdict::Known(found) => 2 + found as usize,
    }
}

impl<S> Lane<S> {
    fn new(items: Vec<Item>) -> Lane<S> {
        let ways = [0, 1].map(|to_client| {
            let of = |item: &Item| item.ports[to_client].clone();
            let mut starts = vec![0];
            for ports in items.iter().filter_map(of) {
                for &(low, high) in ports.ranges() {
                    starts.push(low);
                    starts.extend(high.checked_add(1));
                }
            }
            starts.sort_unstable();
            starts.dedup();
            let searches = std::iter::repeat_with(OnceLock::new).take(starts.len() * APPLICATIONS).collect();
            Parts { starts, searches }
        });
        Lane { items, ways }
    }

    /// The search for what goes this way; none if no rule may hold.
    fn search(
        &self,
        to_server: bool,
        port: u16,
        application: Verdict,
        make: impl FnOnce(&[&Item]) -> Result<S, SetError>,
    ) -> Option<&S> {
        if self.items.is_empty() {
            return None;
        }
        let to_client = usize::from(!to_server);
        let parts = &self.ways[to_client];
        let range = parts.starts.partition_point(|&start| start <= port).checked_sub(1)?;
        let search = parts.searches.get(range * APPLICATIONS + number_of(application))?;
        Some(search.get_or_init(|| {
            let items = self.items.iter();
            let items: Vec<&Item> =
                items.filter(|item| item.may_hold(to_client, port) && item.may_be_of(application)).collect();
            // All literals are of lengths that a set takes, and there are no more than `Searches::new` saw.
            let made = make(&items)
                .unwrap_or_else(|error| unreachable!("a set of literals that were checked: {error}"));
            Box::new(made)
        }))
    }
}

/// The kind of packets that a protocol's number is of: an index of `packets`.
fn kind_of(number: u8) -> usize {
    use packet::parse::protocol;
    match number {
        protocol::TCP => 0,
        protocol::UDP => 1,
        protocol::ICMP | protocol::ICMPV6 => 2,
        _ => 3,
    }
}

impl Searches {
    /// For these rules.
    pub fn new(rules: &Rules) -> Result<Searches, SetError> {
        let mut packets: [Vec<Item>; 4] = Default::default();
        let mut streams = Vec::new();
        let mut messages: BTreeMap<(Family, bool), (Wanted, BTreeMap<Option<Buffer>, Vec<Entry>>)> =
            BTreeMap::new();
        for (number, (_, occasions, loaded)) in (0..).zip(&rules.signatures) {
            let rule = &loaded.rule;
            for (kind, items) in packets.iter_mut().enumerate() {
                // Rules about DNS messages are found by what these have.
                let other = occasions.other_packet && occasions.message.is_none();
                let looks = if kind == 0 { occasions.tcp_packet } else { other };
                if looks && may_be(rule, kind) {
                    let literal = anchor(rule).filter(|literal| literal.bytes.len() >= RARE_BYTES);
                    items
                        .push(Item { near: near(rule), ..item(rule, Sought::Stream(number), literal, kind) });
                }
            }
            if occasions.stream && may_be(rule, 0) {
                streams.push(item(rule, Sought::Stream(number), anchor(rule), 0));
            }
            let Some(family) = occasions.message else { continue };
            for to_server in [true, false] {
                if may_go(rule, to_server) && may_have(rule, family, to_server) {
                    // A few bytes are found everywhere: to look at the rule is less work than to search for them in much.
                    let rare = in_message(rule).filter(|(buffer, literal)| {
                        literal.bytes.len() >= if is_body(*buffer) { RARE_BYTES } else { SHORT_BYTES }
                    });
                    let (buffer, literal) = rare.unzip();
                    if buffer.is_some_and(is_body) {
                        let mut body = item(rule, Sought::Body(number), literal.clone(), 0);
                        body.ports[usize::from(to_server)] = None;
                        streams.push(body);
                    }
                    let (wanted, entries) = messages.entry((family, to_server)).or_default();
                    rule.buffers.iter().for_each(|one| wanted.add(aliased(one.buffer)));
                    entries.entry(buffer.map(aliased)).or_default().push((literal, number));
                }
            }
        }
        // Found out once whether literals are such that any part of them can be searched for.
        let near = |item: &Item| (item.near.as_ref().map(|(literal, _)| literal.clone()), item.rule);
        let items = || packets.iter().flatten().chain(&streams);
        Prefilter::new(items().map(Item::entry).chain(items().map(near)))?;
        let mut searches = Searches {
            packets: packets.map(Lane::new),
            streams: Lane::new(streams),
            messages: BTreeMap::new(),
        };
        for (key, (wanted, buffers)) in messages {
            let mut search = MessageSearch { wanted, ..MessageSearch::default() };
            for (buffer, entries) in buffers {
                match buffer {
                    Some(buffer) if is_body(buffer) => search.bodies.push((buffer, Prefilter::new(entries)?)),
                    Some(buffer) => search.buffers.push((buffer, Prefilter::new(entries)?)),
                    None => search.always.extend(entries.iter().map(|(_, number)| number)),
                }
            }
            searches.messages.insert(key, search);
        }
        Ok(searches)
    }

    /// The search on packets of a protocol.
    pub fn packet(
        &self,
        protocol: u8,
        to_server: bool,
        port: u16,
        application: Verdict,
    ) -> Option<&PacketSearch> {
        let kind = kind_of(protocol);
        let port = if kind <= 1 { port } else { 0 };
        self.packets[kind].search(to_server, port, application, PacketSearch::new)
    }

    /// The search on streams.
    pub fn stream(&self, to_server: bool, port: u16, application: Verdict) -> Option<&Prefilter<Sought>> {
        self.streams.search(to_server, port, application, |items| {
            Prefilter::new(items.iter().map(|item| item.entry()))
        })
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

fn item(rule: &Rule, sought: Sought, literal: Option<Literal>, kind: usize) -> Item {
    let any = || Some(Arc::new(Ports::any()));
    let of = |to_server: bool, ports: &Arc<Ports>| match may_go(rule, to_server) {
        false => None,
        // Others have no ports.
        true if kind > 1 || rule.direction == Direction::Both => any(),
        true => Some(Arc::clone(ports)),
    };
    Item {
        rule: sought,
        literal,
        near: None,
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

/// Whether a rule may hold on what goes this way.
fn may_go(rule: &Rule, to_server: bool) -> bool {
    match rule.flow.direction {
        Some(rules::Way::ToServer) => to_server,
        Some(rules::Way::ToClient) => !to_server,
        None => true,
    }
}

/// Whether messages of this direction can have all buffers that the rule looks at.
fn may_have(rule: &Rule, family: Family, to_server: bool) -> bool {
    use Buffer as B;
    if !matches!(family, Family::HttpHead | Family::HttpBody) {
        return true;
    }
    rule.buffers.iter().filter(|one| !one.matches.iter().any(|m| matches!(m, Match::Absent { .. }))).all(
        |one| match one.buffer {
            B::HttpUri
            | B::HttpUriRaw
            | B::HttpMethod
            | B::HttpRequestLine
            | B::HttpRequestBody
            | B::HttpHost => to_server,
            B::HttpHostRaw | B::HttpUserAgent | B::HttpReferer | B::HttpAccept | B::HttpRequestHeader => {
                to_server
            }
            B::HttpAcceptEncoding | B::HttpAcceptLanguage => to_server,
            B::HttpStatusCode | B::HttpStatusMessage | B::HttpResponseLine | B::HttpResponseBody => {
                !to_server
            }
            B::HttpLocation | B::HttpServer | B::HttpResponseHeader => !to_server,
            _ => true,
        },
    )
}
