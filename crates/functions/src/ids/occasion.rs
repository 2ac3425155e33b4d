//! On which occasions a rule is looked at: see the README.

use rules::{Buffer, Loaded, Match, Only, Position, Protocol, ProtocolTest, Rule, Transport};

/// When a rule is looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Occasions {
    /// On each packet of TCP.
    pub tcp_packet: bool,
    /// On each packet of other protocols.
    pub other_packet: bool,
    /// On each piece of a TCP stream.
    pub stream: bool,
    /// On messages of an application protocol over TCP.
    pub message: Option<Family>,
}

/// What is told of an application protocol, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Family {
    /// The head of an HTTP message.
    HttpHead,
    /// An HTTP message with its body.
    HttpBody,
    /// A DNS message.
    Dns,
    /// A message of TLS's handshake.
    Tls,
    /// The greeting of SSH.
    Ssh,
}

/// A rule cannot be looked at on any occasion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoOccasion {
    /// It looks at buffers that never exist together.
    #[error("buffers of different messages or protocols in one rule")]
    Apart,
    /// It asks for something of a packet, and for a message, which is of no one packet.
    #[error("`{0}` together with buffers of a message")]
    PacketAndMessage(&'static str),
}

/// Which messages have the buffer; none: any packet or stream.
fn family(buffer: Buffer) -> Option<Family> {
    use Buffer as B;
    match buffer {
        B::HttpRequestBody | B::HttpResponseBody | B::FileData => Some(Family::HttpBody),
        B::DnsQuery
        | B::DnsQueriesName
        | B::DnsAnswersName
        | B::DnsAuthoritiesName
        | B::DnsAdditionalsName => Some(Family::Dns),
        _ => match buffer.name().split_once('.') {
            Some(("http", _)) => Some(Family::HttpHead),
            Some(("tls", _)) => Some(Family::Tls),
            Some(("ssh", _)) => Some(Family::Ssh),
            _ => None,
        },
    }
}

impl Occasions {
    /// When this rule is looked at.
    pub fn of(rule: &Rule) -> Result<Occasions, NoOccasion> {
        let message = message(rule)?;
        let is_payload =
            |buffer: &rules::BufferMatches| matches!(buffer.buffer, Buffer::Payload | Buffer::Base64Data);
        let only_payload = !rule.buffers.is_empty() && rule.buffers.iter().all(is_payload);
        let packets_only = rule.protocol == Protocol::Transport(Transport::TcpPacket)
            || rule.flow.stream == Some(Only::Plain)
            || !rule.packet.is_empty()
            || !only_payload;
        let streams_only = rule.protocol == Protocol::Transport(Transport::TcpStream)
            || rule.flow.stream == Some(Only::Assembled);
        let other_message = message.is_some_and(|family| family != Family::Dns);
        if let (Some(test), true) = (rule.packet.first(), other_message) {
            return Err(NoOccasion::PacketAndMessage(test.keyword()));
        }
        Ok(Occasions {
            tcp_packet: message.is_none() && !streams_only && (packets_only || is_anchored_in_place(rule)),
            other_packet: !other_message && !streams_only,
            stream: only_payload && !packets_only,
            message,
        })
    }
}

/// Whether a content has to be at a place that counts from the payload's beginning.
fn is_anchored_in_place(rule: &Rule) -> bool {
    let contents = rule
        .buffers
        .iter()
        .filter(|buffer| buffer.buffer == Buffer::Payload)
        .flat_map(|buffer| &buffer.matches);
    contents.into_iter().any(|one| match one {
        Match::Content(content) => match content.position {
            Position::Absolute { .. } => content.position != Position::ANYWHERE,
            Position::Relative { .. } => false,
        },
        _ => false,
    })
}

/// The messages that the rule looks at.
fn message(rule: &Rule) -> Result<Option<Family>, NoOccasion> {
    let asks_dns = |test: &ProtocolTest| {
        matches!(test, ProtocolTest::DnsOpcode(_) | ProtocolTest::DnsRcode(_) | ProtocolTest::DnsType(_))
    };
    let mut found = rule.application.iter().any(asks_dns).then_some(Family::Dns);
    let headers = rule.buffers.iter().any(|one| is_header(one.buffer));
    for one in rule.buffers.iter().filter_map(|one| family(one.buffer)) {
        found = Some(match (found, one) {
            (None, one) => one,
            (Some(Family::HttpHead | Family::HttpBody), Family::HttpHead | Family::HttpBody) => {
                found.max(Some(one)).unwrap_or(one)
            }
            (Some(known), one) if known == one => one,
            _ => return Err(NoOccasion::Apart),
        });
    }
    // A message's payload is all of it.
    let asks_payload = rule.buffers.iter().any(|one| one.buffer == Buffer::Payload);
    match found {
        Some(_) if headers => Err(NoOccasion::Apart),
        Some(Family::HttpHead) if asks_payload => Ok(Some(Family::HttpBody)),
        found => Ok(found),
    }
}

fn is_header(buffer: Buffer) -> bool {
    use Buffer as B;
    matches!(
        buffer,
        B::EthernetHeader
            | B::Ipv4Header
            | B::Ipv6Header
            | B::TcpHeader
            | B::UdpHeader
            | B::Icmpv4Header
            | B::Icmpv6Header
    )
}

/// Whether rules come before others on an occasion, as the README says: a lower rank comes first. Equal ranks are in the order
/// of the files.
pub fn rank(loaded: &Loaded) -> (u8, u8, u8) {
    use rules::{Action, Flowbit};
    let rule = &loaded.rule;
    let action = match rule.action {
        Action::Pass => 0,
        Action::Drop => 1,
        Action::Reject(_) => 2,
        Action::Alert => 3,
    };
    let tests = rule.flowbits.iter().any(|bit| matches!(bit, Flowbit::IsSet(_) | Flowbit::IsNotSet(_)));
    let sets = rule.flowbits.iter().any(|bit| !matches!(bit, Flowbit::IsSet(_) | Flowbit::IsNotSet(_)));
    let marks = match (sets, tests) {
        (true, false) => 0,
        (true, true) => 1,
        (false, _) => 2,
    };
    (action, marks, rule.priority)
}
