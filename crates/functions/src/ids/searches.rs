//! The searches for the patterns of all rules: one for each kind of packets, streams and messages, so that only those patterns
//! are looked for whose rules may hold there.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use dissect::detect::{Application as Found, Verdict};
use literals::{Cursor, Literal, SetError};
use rules::{Application, Buffer, Direction, Match, Ports, Protocol, Rule, Transport};

use super::facts::is_application;
use super::load::Rules;
use super::message::Wanted;
use super::occasion::Family;
use super::prefilter::{Entry, Hit, NEAR_BYTES, Prefilter, anchor, in_message, near};
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

/// What a rule's literal is looked for for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sought {
    /// The rule looks at packets: the literal has to lie in one, and to end within so many bytes of its beginning.
    Packet(u32, usize),
    /// The rule looks into streams: it is its anchor.
    Stream(u32),
    /// The rule looks into bodies of messages, most of which stand in the stream as they are.
    Body(u32),
}

impl Hit<Sought> {
    /// The rule that may hold on the packet that was searched.
    pub fn in_packet(self) -> Option<u32> {
        match self.rule {
            Sought::Packet(rule, reach) if self.len <= self.end && self.end <= reach => Some(rule),
            _ => None,
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

/// What there is to search for in a kind of messages.
#[derive(Default)]
struct MessageRules {
    always: Vec<u32>,
    wanted: Wanted,
    buffers: BTreeMap<Buffer, Vec<Entry>>,
}

/// The search on packets and streams of a kind.
pub struct Search {
    /// For short literals that must be near the beginning of a packet, by how near.
    near: Vec<(usize, Prefilter)>,
    /// For all others.
    far: Prefilter<Sought>,
    /// Whether some of these are looked for in packets.
    finds_in_packets: bool,
    /// Rules that are looked at on every packet, ...
    always_in_packets: Vec<u32>,
    /// ... and on every piece of a stream.
    always_in_streams: Vec<u32>,
}

/// How near the beginning of a packet, in bytes, short literals are looked for together.
const REACHES: [usize; 2] = [64, NEAR_BYTES];

impl Search {
    fn new(items: &[&Item]) -> Result<Search, SetError> {
        let mut near: [Vec<Entry>; REACHES.len()] = Default::default();
        let mut far: Vec<Entry<Sought>> = Vec::new();
        let (mut always_in_packets, mut always_in_streams) = (Vec::new(), Vec::new());
        for Item { sought, literal, .. } in items {
            match (sought, literal) {
                (Sought::Packet(rule, _), None) => always_in_packets.push(*rule),
                (Sought::Stream(rule), None) => always_in_streams.push(*rule),
                (Sought::Body(_), None) => {}
                (Sought::Packet(rule, reach), Some(short)) if short.bytes.len() < LONG_BYTES => {
                    let tier = REACHES.iter().position(|most| reach <= most);
                    match tier {
                        Some(tier) => near[tier].push((short.clone(), *rule)),
                        None => far.push((short.clone(), *sought)),
                    }
                }
                (_, Some(literal)) => far.push((literal.clone(), *sought)),
            }
        }
        let near = REACHES.into_iter().zip(near).filter(|(_, entries)| !entries.is_empty());
        Ok(Search {
            near: near
                .map(|(reach, entries)| Ok((reach, Prefilter::new(entries)?)))
                .collect::<Result<_, _>>()?,
            finds_in_packets: far.iter().any(|(_, sought)| matches!(sought, Sought::Packet(..))),
            far: Prefilter::new(far)?,
            always_in_packets,
            always_in_streams,
        })
    }

    /// Adds the rules that may hold on a packet, and says how many bytes were searched. `hits`: what was found in its payload
    /// as that of a stream's piece.
    pub fn packet(&self, payload: &[u8], hits: Option<&[Hit<Sought>]>, may_hold: &mut Vec<u32>) -> usize {
        may_hold.extend_from_slice(&self.always_in_packets);
        let mut searched = 0;
        for (reach, search) in &self.near {
            let beginning = &payload[..payload.len().min(*reach)];
            search.find(beginning, |hit| may_hold.push(hit.rule));
            searched += beginning.len();
        }
        match hits {
            Some(hits) => may_hold.extend(hits.iter().filter_map(|hit| hit.in_packet())),
            None if self.finds_in_packets => {
                self.far.find(payload, |hit| may_hold.extend(hit.in_packet()));
                searched += payload.len();
            }
            None => {}
        }
        searched
    }

    /// Goes on with a stream.
    pub fn piece(&self, cursor: &mut Cursor, piece: &[u8], hits: &mut Vec<Hit<Sought>>) {
        hits.clear();
        self.far.scan(cursor, piece, |hit| hits.push(hit));
    }

    /// What it takes, in bytes.
    fn memory_bytes(&self) -> u64 {
        self.far.memory_bytes() + self.near.iter().map(|(_, search)| search.memory_bytes()).sum::<u64>()
    }

    /// Rules that are looked at on every piece of a stream.
    pub fn always_in_streams(&self) -> &[u32] {
        &self.always_in_streams
    }
}

/// A rule in a lane.
struct Item {
    sought: Sought,
    literal: Option<Literal>,
    /// Of the server, by direction.
    ports: [Option<Arc<Ports>>; 2],
    protocol: Protocol,
}

impl Item {
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
struct Lane {
    items: Vec<Item>,
    /// To the server, and to the client.
    ways: [Parts; 2],
}

/// The parts of a direction.
struct Parts {
    /// Where ranges of ports begin that no rule tells apart.
    starts: Vec<u16>,
    /// The searches of each range, one for each application.
    searches: Vec<OnceLock<Box<Search>>>,
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

impl Lane {
    fn new(items: Vec<Item>) -> Lane {
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

    /// The search for what goes this way; none if no rule may hold. If it is made now, what it takes is added to `made_bytes`.
    fn search(
        &self,
        to_server: bool,
        port: u16,
        application: Verdict,
        made_bytes: &AtomicU64,
    ) -> Option<&Search> {
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
            let made = Search::new(&items)
                .unwrap_or_else(|error| unreachable!("a set of literals that were checked: {error}"));
            made_bytes.fetch_add(made.memory_bytes(), Ordering::Relaxed);
            Box::new(made)
        }))
    }
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
                    // A few bytes are found everywhere: to look at the rule is less work than to search for them in much.
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
        // Found out once whether literals are such that any part of them can be searched for.
        for lane in &lanes {
            Search::new(&lane.iter().collect::<Vec<_>>())?;
        }
        let mut searches = Searches {
            lanes: lanes.map(Lane::new),
            messages: BTreeMap::new(),
            made_bytes: AtomicU64::default(),
        };
        for (key, MessageRules { always, wanted, buffers }) in messages {
            let mut search = MessageSearch { always, wanted, ..MessageSearch::default() };
            for (buffer, entries) in buffers {
                let among = if is_body(buffer) { &mut search.bodies } else { &mut search.buffers };
                let search = Prefilter::new(entries)?;
                *searches.made_bytes.get_mut() += search.memory_bytes();
                among.push((buffer, search));
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
/// ... and where there is little to search; from so many bytes on, it is no matter how much there is.
const SHORT_BYTES: usize = 2;
const LONG_BYTES: usize = 5;

/// What to search a packet for: of what must be near its beginning and of what may be anywhere, the longer one unless that is
/// needless; and within how many bytes it has to end.
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
