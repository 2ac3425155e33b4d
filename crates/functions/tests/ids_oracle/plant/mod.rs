//! Traffic that a rule matches, and traffic that it barely does not.

pub mod conversation;
mod expression;
mod fill;
mod http;
pub mod random;
pub mod tls;
mod whom;

use signatures::{
    Application, Buffer, Comparison, ContentPosition, FlowDirection, FlowState, Flowbit, LoadedRule,
    PacketTest, PayloadMatch, Rule, RuleProtocol, RuleTransport, ThresholdKind,
};

pub use conversation::{Conversation, Rendering};
use conversation::{Fields, Kind, Talker, Turn};
use fill::Ground;
use random::Random;
use whom::Whom;

use super::witness::Frame;
use super::{Oracle, Witness};

/// Attempts per rule.
const ATTEMPTS: usize = 16;
/// Maximum repetitions of a rule's traffic, for its thresholds.
const COPIES_MAX: u32 = 600;
/// Time between two conversations.
const GAP_NS: u64 = 20_000_000;

/// Traffic that a rule reports according to the oracle.
#[derive(Clone, Debug)]
pub struct Planted {
    pub conversations: Vec<Conversation>,
    /// Other rules that are required besides the conversations.
    pub others: Vec<LoadedRule>,
}

/// Traffic that a rule does not report, with its name.
#[derive(Clone, Debug)]
pub struct NearMiss {
    pub what: &'static str,
    pub conversations: Vec<Conversation>,
}

/// Plants traffic for a rule, which may need others of `all` for its flowbits; `None` on failure.
pub fn plant(all: &[LoadedRule], loaded: &LoadedRule, seed: u64) -> Option<Planted> {
    let rule = &loaded.rule;
    let others = setters(all, rule)?;
    let mut random = Random(seed ^ u64::from(rule.sid));
    (0..ATTEMPTS).find_map(|variant| {
        let mut one = conversation(rule, variant, &mut random)?;
        for other in &others {
            let before = (0..4).find_map(|variant| conversation(&other.rule, variant, &mut random))?;
            one.turns.splice(0..0, before.turns);
        }
        let planted = Planted { conversations: copies(rule, one), others: others.clone() };
        reports(&planted.rules(loaded), loaded, &planted.conversations, Rendering::Whole).then_some(planted)
    })
}

impl Planted {
    /// Returns the rule and the rules that it needs.
    pub fn rules(&self, loaded: &LoadedRule) -> Vec<LoadedRule> {
        self.others.iter().cloned().chain([loaded.clone()]).collect()
    }
}

/// Returns whether this rule reports these conversations according to an oracle of these rules.
pub fn reports(
    rules: &[LoadedRule],
    asked: &LoadedRule,
    conversations: &[Conversation],
    rendering: Rendering,
) -> bool {
    let mut rules = rules.to_vec();
    rules.iter_mut().for_each(|loaded| loaded.rule.alerts = true);
    let frames = frames(conversations, rendering);
    let alerts = Oracle::new(&rules).alerts(&Witness::watch(&frames));
    alerts.iter().any(|alert| (alert.gid, alert.sid) == (asked.rule.gid, asked.rule.sid))
}

/// Returns the frames of conversations, one after the other.
pub fn frames(conversations: &[Conversation], rendering: Rendering) -> Vec<Frame> {
    let mut at_ns = 1_000_000_000;
    let mut frames = Vec::new();
    for conversation in conversations {
        frames.extend(conversation.frames(rendering, at_ns));
        at_ns = frames.last().map_or(at_ns, |frame: &Frame| frame.time_ns) + GAP_NS;
    }
    frames
}

/// Returns traffic like the planted, except for something that the rule tests.
pub fn near_misses(rule: &Rule, planted: &Planted, seed: u64) -> Vec<NearMiss> {
    let mut random = Random(seed ^ u64::from(rule.sid) << 20);
    let mut misses = Vec::new();
    let mut miss = |what, change: &mut dyn FnMut(&mut Conversation) -> bool| {
        let mut conversations = planted.conversations.clone();
        if conversations.iter_mut().all(change) {
            misses.push(NearMiss { what, conversations });
        }
    };
    let is_payload = rule.buffers.iter().all(|buffer| buffer.buffer == Buffer::Payload);
    let contents: Vec<_> = rule
        .buffers
        .iter()
        .flat_map(|buffer| &buffer.matches)
        .filter_map(|one| if let PayloadMatch::Content(content) = one { Some(content) } else { None })
        .collect();
    for content in contents.iter().filter(|content| !content.negated) {
        let at = random.below(content.pattern.len());
        // Normalisation may add or remove other characters.
        if !content.pattern[at].is_ascii_alphanumeric() && !is_payload {
            continue;
        }
        miss("a byte of a content is another one", &mut |one| change_byte(one, &content.pattern, at));
    }
    let depths =
        contents.iter().filter(|content| !content.negated).filter_map(|content| match content.position {
            ContentPosition::Absolute {
                offset: signatures::Operand::Value(offset),
                depth: Some(signatures::Operand::Value(depth)),
            } => Some(usize::from(offset) + usize::from(depth)),
            _ => None,
        });
    // The beginning of SMB also matches such contents.
    let is_smb = rule.protocol == RuleProtocol::Application(Application::Smb);
    if is_payload && !is_smb && depths.max().is_some_and(|reach| reach <= MOVED_BYTES) {
        miss("a content is moved out of its place", &mut moved);
    }
    let whom = Whom::new(rule);
    if let Some(port) = whom.wrong_port() {
        miss("another port", &mut |one| {
            match whom.server_is_wrong() {
                true => one.server.1 = port,
                false => one.client.1 = port,
            }
            true
        });
    }
    if rule.flow.direction.is_some() {
        miss("the other direction", &mut |one| {
            one.turns.iter_mut().filter(|turn| turn.is_planted).for_each(|turn| {
                turn.from = if turn.from == Talker::Client { Talker::Server } else { Talker::Client };
            });
            one.kind == Kind::Tcp
        });
    }
    misses
}

/// The shift of a moved content: less than a packet's payload.
const MOVED_BYTES: usize = 700;

fn moved(one: &mut Conversation) -> bool {
    let mut planted = one.turns.iter_mut().filter(|turn| turn.is_planted);
    planted.all(|turn| {
        let fits = turn.bytes.len() + MOVED_BYTES <= 1400;
        turn.bytes.splice(0..0, vec![0x6b; MOVED_BYTES]);
        fits
    })
}

/// Changes a byte of each occurrence; false if there was none, or if some remain.
fn change_byte(one: &mut Conversation, pattern: &[u8], at: usize) -> bool {
    let is_here = |bytes: &[u8]| bytes.eq_ignore_ascii_case(pattern);
    let mut changed = false;
    for turn in &mut one.turns {
        let mut place = 0;
        while place + pattern.len() <= turn.bytes.len() {
            if is_here(&turn.bytes[place..place + pattern.len()]) {
                if !turn.is_planted {
                    return false;
                }
                turn.bytes[place + at] = if pattern[at] == b'~' { b'^' } else { b'~' };
                changed = true;
            }
            place += 1;
        }
    }
    let left = one.turns.iter().any(|turn| turn.bytes.windows(pattern.len()).any(is_here));
    changed && !left
}

/// Returns the rules that set the flowbits that a rule tests; `None` if there are no simple ones.
fn setters(all: &[LoadedRule], rule: &Rule) -> Option<Vec<LoadedRule>> {
    let mut found = Vec::new();
    for bit in &rule.flowbits {
        let Flowbit::IsSet(names) = bit else { continue };
        let sets = |other: &&LoadedRule| {
            let tests = other.rule.flowbits.iter().any(|bit| matches!(bit, Flowbit::IsSet(_)));
            let sets =
                other.rule.flowbits.iter().any(
                    |bit| matches!(bit, Flowbit::Set(set) if set.iter().any(|name| names.contains(name))),
                );
            sets && !tests && other.rule.sid != rule.sid
        };
        found.push(all.iter().find(sets)?.clone());
    }
    Some(found)
}

/// Repeats a conversation as the rule's thresholds require.
fn copies(rule: &Rule, one: Conversation) -> Vec<Conversation> {
    let of_threshold = rule.threshold.map_or(1, |threshold| match threshold.kind {
        ThresholdKind::Limit { .. } => 1,
        _ => threshold.count,
    });
    let count = of_threshold.max(rule.detection_filter.map_or(1, |filter| filter.count + 1));
    let whom = Whom::new(rule);
    let copy = |number: u32| {
        let mut copy = one.clone();
        copy.client.1 = whom.client_port(number as u16);
        copy
    };
    (0..count.min(COPIES_MAX)).map(copy).collect()
}

/// Returns a conversation that may match a rule.
fn conversation(rule: &Rule, variant: usize, random: &mut Random) -> Option<Conversation> {
    let whom = Whom::new(rule);
    let kind = kind(rule, variant)?;
    let fields = fields(rule)?;
    let is = |buffer: &[Buffer]| rule.buffers.iter().find(|asked| buffer.contains(&asked.buffer));
    let is_http = rule
        .buffers
        .iter()
        .any(|asked| asked.buffer.name().starts_with("http.") || asked.buffer == Buffer::FileData);
    let planted = |bytes| Turn { from: whom.sender(), bytes, is_planted: true };
    let turns = if is_http {
        http::turns(rule, variant, random)?
    } else if let Some(asked) = is(&[Buffer::DnsQuery, Buffer::DnsQueriesName]) {
        let hard = if variant % 2 == 1 { b"q".to_vec() } else { Vec::new() };
        let ground = Ground { hard, ..Ground::default() };
        vec![planted(dns(&fill::bytes(asked, &ground, random)?)?)]
    } else if let Some(asked) = is(&[Buffer::TlsSni]) {
        vec![planted(tls::client_hello(&fill::bytes(asked, &Ground::default(), random)?))]
    } else if rule.buffers.iter().any(|asked| asked.buffer.name().starts_with("tls.cert_")) {
        let mut part = |buffer| match is(&[buffer]) {
            Some(asked) => fill::bytes(asked, &Ground::default(), random).map(Some),
            None => Some(None),
        };
        let subject = part(Buffer::TlsCertSubject)?.unwrap_or(b"CN=a.example".to_vec());
        let issuer = part(Buffer::TlsCertIssuer)?.unwrap_or(b"CN=q".to_vec());
        let serial = part(Buffer::TlsCertSerial)?.unwrap_or(b"01:02".to_vec());
        let hello = Turn { from: Talker::Client, bytes: tls::client_hello(b"a.example"), is_planted: false };
        vec![hello, planted(tls::certificate(&subject, &issuer, &serial)?)]
    } else if let Some(asked) = is(&[Buffer::SshProtocol]) {
        let version = fill::bytes(asked, &Ground::default(), random)?;
        vec![planted([b"SSH-", &version[..], b"-q\r\n"].concat())]
    } else if let Some(asked) = is(&[Buffer::Payload]) {
        let mut bytes = fill::bytes(asked, &ground(rule, variant), random)?;
        if speaks_http(rule) && variant.is_multiple_of(2) {
            bytes.extend(b"\r\n\r\n"); // What is planted is, or ends, a head.
        }
        let mut turns = preface(rule, kind, whom.sender(), variant);
        turns.push(planted(bytes));
        turns
    } else if rule.buffers.is_empty() {
        let mut turns = preface(rule, kind, whom.sender(), variant);
        turns.push(planted(vec![b'q'; length(rule)?]));
        turns
    } else {
        return None;
    };
    let (client, server) = whom.ends();
    Some(Conversation { kind, client, server, turns, fields })
}

fn kind(rule: &Rule, variant: usize) -> Option<Kind> {
    let protocol = rule.packet.iter().find_map(|test| match test {
        PacketTest::IpProtocol(test) => fill::passing(test, 0),
        _ => None,
    });
    let code = |found: Option<u64>, or| found.map_or(or, |code| code as u8);
    let icmp = || {
        let kind = rule.packet.iter().find_map(|test| match test {
            PacketTest::IcmpType(test) => fill::passing(test, 0),
            _ => None,
        });
        let sub = rule.packet.iter().find_map(|test| match test {
            PacketTest::IcmpCode(test) => fill::passing(test, 0),
            _ => None,
        });
        Kind::Icmp(code(kind, 8), code(sub, 0))
    };
    Some(match rule.protocol {
        RuleProtocol::Transport(RuleTransport::Tcp | RuleTransport::TcpPacket | RuleTransport::TcpStream) => {
            let alone = rule.flow.state != Some(FlowState::Established) && !rule.packet.is_empty();
            if alone && variant.is_multiple_of(2) { Kind::Segments } else { Kind::Tcp }
        }
        RuleProtocol::Transport(RuleTransport::Udp) | RuleProtocol::Application(Application::Dns) => {
            Kind::Udp
        }
        RuleProtocol::Transport(RuleTransport::Icmp | RuleTransport::Icmpv4) => icmp(),
        RuleProtocol::Transport(RuleTransport::Ip | RuleTransport::Ipv4) => match protocol {
            Some(protocol) => Kind::Other(protocol as u8),
            None if variant.is_multiple_of(2) => Kind::Tcp,
            None => Kind::Udp,
        },
        RuleProtocol::Application(_) => Kind::Tcp,
        _ => return None,
    })
}

fn fields(rule: &Rule) -> Option<Fields> {
    let mut fields = Fields::default();
    for test in &rule.packet {
        match test {
            PacketTest::Ttl(test) => fields.ttl = fill::passing(test, 1)? as u8,
            PacketTest::Tos { negated, value } => fields.tos = if *negated { value ^ 4 } else { *value },
            PacketTest::IpId(test) => fields.ip_id = fill::passing(test, 1)? as u16,
            PacketTest::FragmentBits(bits) => {
                fields.fragment_bits = [2, 0, 4].into_iter().find(|found| bits.holds(*found))?;
            }
            PacketTest::TcpFlags(bits) => fields.flags = (0..=255).rev().find(|flags| bits.holds(*flags)),
            PacketTest::Sequence(test) => fields.sequence = Some(fill::passing(test, 0)? as u32),
            PacketTest::Acknowledgement(test) => {
                fields.acknowledgement = Some(fill::passing(test, 0)? as u32)
            }
            PacketTest::Window(test) => fields.window = fill::passing(test, 0)? as u16,
            PacketTest::IcmpId(id) => fields.icmp_id = *id,
            PacketTest::IcmpSequence(number) => fields.icmp_sequence = *number,
            _ => {}
        }
    }
    Some(fields)
}

/// Returns the content of a payload where the rule tests nothing.
fn ground(rule: &Rule, variant: usize) -> Ground {
    let mut ground = Ground { size: size(rule), ..Ground::default() };
    if speaks_http(rule) && variant.is_multiple_of(2) {
        ground.soft = match rule.flow.direction {
            Some(FlowDirection::ToClient) => b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nX-Q: ".to_vec(),
            _ => b"GET / HTTP/1.1\r\nHost: a.example\r\nX-Q: ".to_vec(),
        };
    }
    if rule.protocol == RuleProtocol::Application(Application::Dns) {
        let flags = if rule.flow.direction == Some(FlowDirection::ToClient) { 0x81 } else { 1 };
        let message = [&[0x12, 0x34, flags, 0, 0, 1, 0, 0, 0, 0, 0, 0, 1][..], b"q\0\0\x01\0\x01"].concat();
        *(if variant.is_multiple_of(2) { &mut ground.soft } else { &mut ground.hard }) = message;
    }
    ground
}

fn speaks_http(rule: &Rule) -> bool {
    matches!(rule.protocol, RuleProtocol::Application(Application::Http | Application::Http1))
}

/// Returns the minimum payload length that the rule requires.
fn length(rule: &Rule) -> Option<usize> {
    size(rule).map_or(Some(0), |size| fill::passing(&size, 0).map(|len| len as usize))
}

/// Returns the rule's test of the payload length.
fn size(rule: &Rule) -> Option<Comparison<u16>> {
    rule.packet.iter().find_map(|test| match test {
        PacketTest::PayloadBytes(test) => Some(*test),
        _ => None,
    })
}

/// Returns the turns before, so that flow and protocol match the rule.
fn preface(rule: &Rule, kind: Kind, sender: Talker, variant: usize) -> Vec<Turn> {
    let turn = |from, bytes: &[u8]| Turn { from, bytes: bytes.to_vec(), is_planted: false };
    let established = rule.flow.state == Some(FlowState::Established);
    if kind != Kind::Tcp {
        let needs_first = rule.flow.direction == Some(FlowDirection::ToClient);
        return match (established || needs_first, sender) {
            (true, Talker::Client) => vec![turn(Talker::Client, b"k"), turn(Talker::Server, b"k")],
            (true, Talker::Server) => vec![turn(Talker::Client, b"k")],
            (false, _) => Vec::new(),
        };
    }
    let RuleProtocol::Application(application) = rule.protocol else { return Vec::new() };
    if variant % 4 == 3 {
        return Vec::new(); // What is planted may say it itself.
    }
    let other = if sender == Talker::Client { Talker::Server } else { Talker::Client };
    let greeting: &[u8] = b"220 a.example\r\n";
    match application {
        Application::Http | Application::Http1 if sender == Talker::Client && variant % 2 == 1 => {
            vec![turn(Talker::Server, b"HTTP/1.1 200 OK\r\n")]
        }
        Application::Http | Application::Http1 => vec![turn(Talker::Client, http::REQUEST)],
        Application::Ftp => vec![turn(Talker::Server, greeting), turn(Talker::Client, b"USER q\r\n")],
        Application::Smtp => vec![turn(Talker::Server, greeting), turn(Talker::Client, b"EHLO q\r\n")],
        Application::Ssh => vec![turn(other, b"SSH-2.0-q\r\n")],
        Application::Smb => {
            vec![turn(Talker::Client, &smb_negotiation()), turn(Talker::Server, &smb_negotiation())]
        }
        Application::Tls if sender == Talker::Server => {
            vec![turn(Talker::Client, &tls::client_hello(b"a.example"))]
        }
        Application::Tls => vec![turn(Talker::Server, b"\x15\x03\x01\0\x02\x01\0")],
        _ => Vec::new(),
    }
}

/// Returns the first message of an SMB client: a negotiation of one dialect ([MS-CIFS] 2.2.4.52.1).
fn smb_negotiation() -> Vec<u8> {
    let dialect = b"\x02NT LM 0.12\0";
    let mut message = b"\xffSMB\x72\0\0\0\0\x18\x01\x28".to_vec();
    message.resize(32, 0);
    message.push(0);
    message.extend((dialect.len() as u16).to_le_bytes());
    message.extend(dialect);
    let len = (message.len() as u32).to_be_bytes();
    [&len[..], &message].concat()
}

/// Returns a query for a name (RFC 1035 4.1).
fn dns(name: &[u8]) -> Option<Vec<u8>> {
    let mut message = vec![0x12, 0x34, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in name.split(|byte| *byte == b'.') {
        if !(1..64).contains(&label.len()) {
            return None;
        }
        message.push(label.len() as u8);
        message.extend(label);
    }
    message.extend([0, 0, 1, 0, 1]);
    Some(message)
}
