//! The inspection points of rules: see the README.

use signatures::{
    Application, Buffer, ContentPosition, FlowDirection, LoadedRule, PacketTest, PayloadMatch, ProtocolTest,
    ReassemblyFilter, Rule, RuleProtocol, RuleTransport, TlsState,
};

/// The inspection points of a rule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InspectionPoints {
    /// Each TCP packet.
    pub tcp_packet: bool,
    /// Each packet of other protocols.
    pub other_packet: bool,
    /// Each piece of a TCP stream.
    pub stream: bool,
    /// Messages of an application protocol over TCP.
    pub message: Option<MessageKind>,
    /// True if mails are inspected, as HTTP messages are.
    pub mail: bool,
}

/// A kind of application message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum MessageKind {
    /// The head of an HTTP message.
    HttpHead,
    /// An HTTP message with its body.
    HttpBody,
    /// A DNS message.
    Dns,
    /// A TLS handshake message.
    Tls,
    /// The SSH identification string.
    Ssh,
    /// A mail in SMTP, with its files.
    Mail,
}

/// The reason why a rule has no inspection point.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoInspectionPoint {
    /// It inspects buffers that never exist together.
    #[error("buffers of different messages or protocols in one rule")]
    Apart,
    /// Its buffers belong to requests and responses, or to a direction that it excludes.
    #[error("no message in this direction has all these buffers")]
    Nowhere,
    /// It tests both a packet and a message, which does not belong to a single packet.
    #[error("`{0}` cannot be combined with buffers of a message")]
    PacketAndMessage(&'static str),
    /// It inspects messages of one protocol within another.
    #[error("`{0}` has no {1}")]
    OtherProtocol(RuleProtocol, &'static str),
    /// It tests a field that packets of its protocol do not have.
    #[error("packets of `{0}` have no `{1}`")]
    OtherPacket(RuleProtocol, &'static str),
    /// It tests TLS apart from hellos.
    #[error("`ssl_state` is supported with `client_hello` and `server_hello`, `ssl_version` beside it")]
    NoHello,
}

impl MessageKind {
    /// Returns the name for error messages.
    fn name(self) -> &'static str {
        match self {
            MessageKind::HttpHead | MessageKind::HttpBody => "HTTP messages",
            MessageKind::Dns => "DNS messages",
            MessageKind::Tls => "TLS handshakes",
            MessageKind::Ssh => "SSH greetings",
            MessageKind::Mail => "mails",
        }
    }

    /// Returns whether such messages occur in a rule's protocol.
    fn is_in(self, protocol: RuleProtocol) -> bool {
        match protocol {
            RuleProtocol::Transport(transport) => match transport {
                RuleTransport::Udp => self == MessageKind::Dns,
                RuleTransport::Sctp | RuleTransport::Icmp | RuleTransport::Icmpv4 | RuleTransport::Icmpv6 => {
                    false
                }
                _ => true,
            },
            RuleProtocol::Application(application) => match self {
                MessageKind::HttpHead | MessageKind::HttpBody => {
                    matches!(application, Application::Http | Application::Http1)
                }
                MessageKind::Dns => application == Application::Dns,
                MessageKind::Tls => application == Application::Tls,
                MessageKind::Ssh => application == Application::Ssh,
                MessageKind::Mail => application == Application::Smtp,
            },
        }
    }
}

/// Returns whether packets of this protocol have the tested field.
fn has(protocol: RuleProtocol, test: &PacketTest) -> bool {
    use PacketTest as T;
    let (is_tcp, is_icmp) = match protocol {
        RuleProtocol::Transport(transport) => match transport {
            RuleTransport::Tcp | RuleTransport::TcpPacket | RuleTransport::TcpStream => (true, false),
            RuleTransport::Icmp | RuleTransport::Icmpv4 | RuleTransport::Icmpv6 => (false, true),
            RuleTransport::Udp | RuleTransport::Sctp => (false, false),
            _ => (true, true),
        },
        RuleProtocol::Application(_) => (true, false),
    };
    match test {
        T::TcpFlags(_) | T::Sequence(_) | T::Acknowledgement(_) => is_tcp,
        T::Window(_) | T::WindowScale(_) | T::Mss(_) | T::StreamSize(_) => is_tcp,
        T::IcmpType(_) | T::IcmpCode(_) | T::IcmpId(_) | T::IcmpSequence(_) => is_icmp,
        _ => true,
    }
}

/// Returns the kind of message that has the buffer; `None` for any packet or stream.
fn family(buffer: Buffer) -> Option<MessageKind> {
    use Buffer as B;
    match buffer {
        B::HttpRequestBody | B::HttpResponseBody | B::FileData => Some(MessageKind::HttpBody),
        B::DnsQuery
        | B::DnsQueriesName
        | B::DnsAnswersName
        | B::DnsAuthoritiesName
        | B::DnsAdditionalsName => Some(MessageKind::Dns),
        _ => match buffer.name().split_once('.') {
            Some(("http", _)) => Some(MessageKind::HttpHead),
            Some(("tls" | "ja3" | "ja3s", _)) => Some(MessageKind::Tls),
            Some(("ssh", _)) => Some(MessageKind::Ssh),
            _ => None,
        },
    }
}

impl InspectionPoints {
    /// Determines the inspection points of a rule.
    pub fn of(rule: &Rule) -> Result<InspectionPoints, NoInspectionPoint> {
        let message = message(rule)?.map(|family| match family {
            MessageKind::HttpBody if asks_mail(rule) && !family.is_in(rule.protocol) => MessageKind::Mail,
            _ => family,
        });
        if let Some(family) = message.filter(|family| !family.is_in(rule.protocol)) {
            return Err(NoInspectionPoint::OtherProtocol(rule.protocol, family.name()));
        }
        let goes =
            |family: MessageKind, to_server| may_go(rule, to_server) && may_have(rule, family, to_server);
        if message.is_some_and(|family| !goes(family, true) && !goes(family, false)) {
            return Err(NoInspectionPoint::Nowhere);
        }
        if let Some(test) = rule.packet.iter().find(|test| !has(rule.protocol, test)) {
            return Err(NoInspectionPoint::OtherPacket(rule.protocol, test.keyword()));
        }
        let is_payload = |buffer: &signatures::BufferMatches| {
            matches!(buffer.buffer, Buffer::Payload | Buffer::Base64Data)
        };
        let asks_commands = rule.application.contains(&ProtocolTest::FtpBounce);
        if asks_commands && !may_be_ftp(rule.protocol) {
            return Err(NoInspectionPoint::OtherProtocol(rule.protocol, "FTP commands"));
        }
        let only_payload = (asks_commands || !rule.buffers.is_empty()) && rule.buffers.iter().all(is_payload);
        // The size of a stream is known wherever its bytes are inspected.
        let of_packet = |test: &PacketTest| !matches!(test, PacketTest::StreamSize(_));
        let packets_only = rule.protocol == RuleProtocol::Transport(RuleTransport::TcpPacket)
            || rule.flow.stream == Some(ReassemblyFilter::Plain)
            || rule.packet.iter().any(of_packet)
            || !only_payload;
        let streams_only = rule.protocol == RuleProtocol::Transport(RuleTransport::TcpStream)
            || rule.flow.stream == Some(ReassemblyFilter::Assembled);
        let in_place = is_anchored_in_place(rule);
        let is_http = MessageKind::HttpBody.is_in(rule.protocol)
            && matches!(rule.protocol, RuleProtocol::Application(_));
        let message = match only_payload && !packets_only && in_place && is_http {
            true => Some(MessageKind::HttpBody),
            false => message,
        };
        let other_message = message.is_some_and(|family| family != MessageKind::Dns);
        if let (Some(test), true) = (rule.packet.first(), other_message) {
            return Err(NoInspectionPoint::PacketAndMessage(test.keyword()));
        }
        Ok(InspectionPoints {
            tcp_packet: !streams_only && if packets_only { message.is_none() } else { in_place },
            other_packet: !other_message && !streams_only,
            stream: only_payload && !packets_only && message.is_none(),
            mail: message == Some(MessageKind::HttpBody)
                && asks_mail(rule)
                && MessageKind::Mail.is_in(rule.protocol)
                && goes(MessageKind::Mail, true),
            message,
        })
    }
}

/// Returns whether mails have all buffers that the rule inspects.
fn asks_mail(rule: &Rule) -> bool {
    let of_mail = |one: &signatures::BufferMatches| {
        matches!(one.buffer, Buffer::FileData | Buffer::Payload | Buffer::Base64Data)
    };
    rule.buffers.iter().any(|one| one.buffer == Buffer::FileData) && rule.buffers.iter().all(of_mail)
}

/// Returns whether a rule of this protocol applies to control connections of FTP.
fn may_be_ftp(protocol: RuleProtocol) -> bool {
    use RuleTransport as T;
    match protocol {
        RuleProtocol::Transport(transport) => {
            matches!(transport, T::Ip | T::Ipv4 | T::Ipv6 | T::Tcp | T::TcpPacket | T::TcpStream)
        }
        RuleProtocol::Application(application) => application == Application::Ftp,
    }
}

/// Returns whether a rule tests hellos of TLS.
fn asks_hello(rule: &Rule) -> Result<bool, NoInspectionPoint> {
    let is_hello = |state: &TlsState| matches!(state, TlsState::ClientHello | TlsState::ServerHello);
    let (mut state, mut version) = (false, false);
    for test in &rule.application {
        match test {
            ProtocolTest::SslState { negated: false, states } if states.iter().all(is_hello) => state = true,
            ProtocolTest::SslState { .. } => return Err(NoInspectionPoint::NoHello),
            ProtocolTest::SslVersion { .. } => version = true,
            _ => {}
        }
    }
    if version && !state { Err(NoInspectionPoint::NoHello) } else { Ok(state) }
}

/// Returns whether a content must be at an offset from the beginning of the payload.
fn is_anchored_in_place(rule: &Rule) -> bool {
    let contents = rule
        .buffers
        .iter()
        .filter(|buffer| buffer.buffer == Buffer::Payload)
        .flat_map(|buffer| &buffer.matches);
    contents.into_iter().any(|one| match one {
        PayloadMatch::Content(content) => match content.position {
            ContentPosition::Absolute { .. } => content.position != ContentPosition::ANYWHERE,
            ContentPosition::Relative { .. } => false,
        },
        _ => false,
    })
}

/// Returns whether a rule may match in this direction.
pub fn may_go(rule: &Rule, to_server: bool) -> bool {
    match rule.flow.direction {
        Some(FlowDirection::ToServer) => to_server,
        Some(FlowDirection::ToClient) => !to_server,
        None => true,
    }
}

/// Returns whether messages of this direction can have all buffers that the rule inspects.
pub fn may_have(rule: &Rule, family: MessageKind, to_server: bool) -> bool {
    use Buffer as B;
    if family == MessageKind::Mail {
        return to_server;
    }
    if !matches!(family, MessageKind::HttpHead | MessageKind::HttpBody | MessageKind::Dns) {
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
        B::HttpAcceptEncoding | B::HttpAcceptLanguage | B::DnsQuery => to_server,
        B::HttpStatusCode | B::HttpStatusMessage | B::HttpResponseLine | B::HttpResponseBody => !to_server,
        B::HttpLocation | B::HttpServer | B::HttpResponseHeader => !to_server,
        _ => true,
    })
}

/// Determines the kind of message that the rule inspects.
fn message(rule: &Rule) -> Result<Option<MessageKind>, NoInspectionPoint> {
    let asks_dns = |test: &ProtocolTest| {
        matches!(test, ProtocolTest::DnsOpcode(_) | ProtocolTest::DnsRcode(_) | ProtocolTest::DnsType(_))
    };
    let mut found = rule.application.iter().any(asks_dns).then_some(MessageKind::Dns);
    if asks_hello(rule)? {
        if found.is_some() {
            return Err(NoInspectionPoint::Apart);
        }
        found = Some(MessageKind::Tls);
    }
    let headers = rule.buffers.iter().any(|one| is_header(one.buffer));
    for one in rule.buffers.iter().filter_map(|one| family(one.buffer)) {
        found = Some(match (found, one) {
            (None, one) => one,
            (
                Some(MessageKind::HttpHead | MessageKind::HttpBody),
                MessageKind::HttpHead | MessageKind::HttpBody,
            ) => found.max(Some(one)).unwrap_or(one),
            (Some(known), one) if known == one => one,
            _ => return Err(NoInspectionPoint::Apart),
        });
    }
    // The payload of a message is all of it.
    let asks_payload = rule.buffers.iter().any(|one| one.buffer == Buffer::Payload);
    match found {
        Some(_) if headers => Err(NoInspectionPoint::Apart),
        Some(MessageKind::HttpHead) if asks_payload => Ok(Some(MessageKind::HttpBody)),
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

/// Returns the order of inspection, as in the README: lower ranks come first; equal ranks are in
/// the order of the files.
pub fn rank(loaded: &LoadedRule) -> (u8, u8, u8, u32) {
    use signatures::{Flowbit, RuleAction};
    let rule = &loaded.rule;
    let action = match rule.action {
        RuleAction::Pass => 0,
        RuleAction::Drop => 1,
        RuleAction::Reject(_) => 2,
        RuleAction::Alert => 3,
    };
    let tests = rule.flowbits.iter().any(|bit| matches!(bit, Flowbit::IsSet(_) | Flowbit::IsNotSet(_)));
    let sets = rule.flowbits.iter().any(|bit| !matches!(bit, Flowbit::IsSet(_) | Flowbit::IsNotSet(_)));
    let flowbits = match (sets, tests) {
        (true, false) => 0,
        (true, true) => 1,
        (false, _) => 2,
    };
    (action, flowbits, rule.priority, rule.sid)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the reason why such a rule has no inspection point.
    fn refusal(head: &str, options: &str) -> Option<String> {
        let text = format!("alert {head} any any -> any any ({options} sid:1;)\n");
        let report = signatures::Ruleset::read("test", &text, &Default::default(), &Default::default());
        let read = report.ruleset.into_rules();
        assert_eq!(read.len(), 1, "{text}: {:?}", report.faults);
        InspectionPoints::of(&read[0].rule).err().map(|none| none.to_string())
    }

    #[test]
    fn unsatisfiable_rules_are_refused() {
        for (head, options, why) in [
            ("smtp", "http.uri; content:\"x\";", "`smtp` has no HTTP messages"),
            ("smtp", "file.data; content:\"x\"; http.uri; content:\"x\";", "`smtp` has no HTTP messages"),
            (
                "smtp",
                "flow:to_client; file.data; content:\"x\";",
                "no message in this direction has all these buffers",
            ),
            ("udp", "http.uri; content:\"x\";", "`udp` has no HTTP messages"),
            ("http", "dns.query; content:\"x\";", "`http` has no DNS messages"),
            ("dns", "tls.sni; content:\"x\";", "`dns` has no TLS handshakes"),
            (
                "http",
                "http.uri; content:\"x\"; http.server; absent;",
                "no message in this direction has all these buffers",
            ),
            (
                "http",
                "flow:to_client; http.uri; content:\"x\";",
                "no message in this direction has all these buffers",
            ),
            ("icmp", "flags:S;", "packets of `icmp` have no `tcp.flags`"),
            ("udp", "itype:8;", "packets of `udp` have no `itype`"),
            ("udp", "stream_size:client,>,5;", "packets of `udp` have no `stream_size`"),
            ("smtp", "ftpbounce;", "`smtp` has no FTP commands"),
            (
                "tls",
                "ssl_version:tls1.0;",
                "`ssl_state` is supported with `client_hello` and `server_hello`, `ssl_version` beside it",
            ),
            (
                "tls",
                "ssl_state:client_keyx;",
                "`ssl_state` is supported with `client_hello` and `server_hello`, `ssl_version` beside it",
            ),
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
            ("ftp", "ftpbounce;"),
            ("tcp", "stream_size:both,>,5;"),
            ("tls", "ssl_state:server_hello; ssl_version:sslv3;"),
        ] {
            assert_eq!(refusal(head, options), None, "{head} {options}");
        }
    }
}
