//! On which occasions a rule is looked at: see the README.

use signatures::{
    Application, Buffer, Loaded, Match, Only, PacketTest, Position, Protocol, ProtocolTest, Rule, Transport,
    Way,
};

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
    /// Its buffers are of requests and of responses, or of neither that goes its way.
    #[error("no message that goes this way has all these buffers")]
    Nowhere,
    /// It asks for something of a packet, and for a message, which is of no one packet.
    #[error("`{0}` together with buffers of a message")]
    PacketAndMessage(&'static str),
    /// It looks at messages of one protocol in another.
    #[error("`{0}` has no {1}")]
    OtherProtocol(Protocol, &'static str),
    /// It asks for what packets of its protocol do not have.
    #[error("packets of `{0}` have no `{1}`")]
    OtherPacket(Protocol, &'static str),
}

impl Family {
    /// What there is of it.
    fn name(self) -> &'static str {
        match self {
            Family::HttpHead | Family::HttpBody => "messages of HTTP",
            Family::Dns => "messages of DNS",
            Family::Tls => "handshakes of TLS",
            Family::Ssh => "greetings of SSH",
        }
    }

    /// Whether such messages are told of in what a rule with this second word is about.
    fn is_in(self, protocol: Protocol) -> bool {
        match protocol {
            Protocol::Transport(transport) => match transport {
                Transport::Udp => self == Family::Dns,
                Transport::Sctp | Transport::Icmp | Transport::Icmpv4 | Transport::Icmpv6 => false,
                _ => true,
            },
            Protocol::Application(application) => match self {
                Family::HttpHead | Family::HttpBody => {
                    matches!(application, Application::Http | Application::Http1)
                }
                Family::Dns => application == Application::Dns,
                Family::Tls => application == Application::Tls,
                Family::Ssh => application == Application::Ssh,
            },
        }
    }
}

/// Whether packets of this protocol have what the test is about.
fn has(protocol: Protocol, test: &PacketTest) -> bool {
    use PacketTest as T;
    let (is_tcp, is_icmp) = match protocol {
        Protocol::Transport(transport) => match transport {
            Transport::Tcp | Transport::TcpPacket | Transport::TcpStream => (true, false),
            Transport::Icmp | Transport::Icmpv4 | Transport::Icmpv6 => (false, true),
            Transport::Udp | Transport::Sctp => (false, false),
            _ => (true, true),
        },
        Protocol::Application(_) => (true, false),
    };
    match test {
        T::TcpFlags(_) | T::Sequence(_) | T::Acknowledgement(_) => is_tcp,
        T::Window(_) | T::WindowScale(_) | T::Mss(_) => is_tcp,
        T::IcmpType(_) | T::IcmpCode(_) | T::IcmpId(_) | T::IcmpSequence(_) => is_icmp,
        _ => true,
    }
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
        if let Some(family) = message.filter(|family| !family.is_in(rule.protocol)) {
            return Err(NoOccasion::OtherProtocol(rule.protocol, family.name()));
        }
        let goes = |family: Family, to_server| may_go(rule, to_server) && may_have(rule, family, to_server);
        if message.is_some_and(|family| !goes(family, true) && !goes(family, false)) {
            return Err(NoOccasion::Nowhere);
        }
        if let Some(test) = rule.packet.iter().find(|test| !has(rule.protocol, test)) {
            return Err(NoOccasion::OtherPacket(rule.protocol, test.keyword()));
        }
        let is_payload = |buffer: &signatures::BufferMatches| {
            matches!(buffer.buffer, Buffer::Payload | Buffer::Base64Data)
        };
        let only_payload = !rule.buffers.is_empty() && rule.buffers.iter().all(is_payload);
        let packets_only = rule.protocol == Protocol::Transport(Transport::TcpPacket)
            || rule.flow.stream == Some(Only::Plain)
            || !rule.packet.is_empty()
            || !only_payload;
        let streams_only = rule.protocol == Protocol::Transport(Transport::TcpStream)
            || rule.flow.stream == Some(Only::Assembled);
        let in_place = is_anchored_in_place(rule);
        let is_http =
            Family::HttpBody.is_in(rule.protocol) && matches!(rule.protocol, Protocol::Application(_));
        let message = match only_payload && !packets_only && in_place && is_http {
            true => Some(Family::HttpBody),
            false => message,
        };
        let other_message = message.is_some_and(|family| family != Family::Dns);
        if let (Some(test), true) = (rule.packet.first(), other_message) {
            return Err(NoOccasion::PacketAndMessage(test.keyword()));
        }
        Ok(Occasions {
            tcp_packet: !streams_only && if packets_only { message.is_none() } else { in_place },
            other_packet: !other_message && !streams_only,
            stream: only_payload && !packets_only && message.is_none(),
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

/// Whether a rule may hold on what goes this way.
pub fn may_go(rule: &Rule, to_server: bool) -> bool {
    match rule.flow.direction {
        Some(Way::ToServer) => to_server,
        Some(Way::ToClient) => !to_server,
        None => true,
    }
}

/// Whether messages of this direction can have all buffers that the rule looks at.
pub fn may_have(rule: &Rule, family: Family, to_server: bool) -> bool {
    use Buffer as B;
    if !matches!(family, Family::HttpHead | Family::HttpBody) {
        return true;
    }
    rule.buffers.iter().all(|one| match one.buffer {
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
        B::HttpStatusCode | B::HttpStatusMessage | B::HttpResponseLine | B::HttpResponseBody => !to_server,
        B::HttpLocation | B::HttpServer | B::HttpResponseHeader => !to_server,
        _ => true,
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

/// Whether rules come before others on an occasion, as the README says: a lower rank comes first.
/// Equal ranks are in the order of the files.
pub fn rank(loaded: &Loaded) -> (u8, u8, u8, u32) {
    use signatures::{Action, Flowbit};
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
    (action, marks, rule.priority, rule.sid)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Why such a rule would never be looked at.
    fn refusal(head: &str, options: &str) -> Option<String> {
        let text = format!("alert {head} any any -> any any ({options} sid:1;)\n");
        let report = signatures::Ruleset::read("test", &text, &Default::default(), &Default::default());
        let read = report.ruleset.into_rules();
        assert_eq!(read.len(), 1, "{text}: {:?}", report.faults);
        Occasions::of(&read[0].rule).err().map(|none| none.to_string())
    }

    #[test]
    fn rules_that_nothing_could_satisfy_are_refused() {
        for (head, options, why) in [
            ("smtp", "file_data; content:\"x\";", "`smtp` has no messages of HTTP"),
            ("udp", "http.uri; content:\"x\";", "`udp` has no messages of HTTP"),
            ("http", "dns.query; content:\"x\";", "`http` has no messages of DNS"),
            ("dns", "tls.sni; content:\"x\";", "`dns` has no handshakes of TLS"),
            (
                "http",
                "http.uri; content:\"x\"; http.server; absent;",
                "no message that goes this way has all these buffers",
            ),
            (
                "http",
                "flow:to_client; http.uri; content:\"x\";",
                "no message that goes this way has all these buffers",
            ),
            ("icmp", "flags:S;", "packets of `icmp` have no `tcp.flags`"),
            ("udp", "itype:8;", "packets of `udp` have no `itype`"),
            (
                "tcp",
                "http.uri; content:\"x\"; dns.query; content:\"y\";",
                "buffers of different messages or protocols in one rule",
            ),
        ] {
            assert_eq!(refusal(head, options).as_deref(), Some(why), "{head} {options}");
        }
        for (head, options) in [
            ("http", "file_data; content:\"x\";"),
            ("tcp", "http.uri; content:\"x\";"),
            ("ip", "tls.sni; content:\"x\";"),
            ("udp", "dns.query; content:\"x\";"),
            ("dns", "dns.query; content:\"x\";"),
            ("smtp", "content:\"x\"; dsize:>3;"),
            ("ip", "itype:8;"),
            ("http", "flags:PA;"),
        ] {
            assert_eq!(refusal(head, options), None, "{head} {options}");
        }
    }
}
