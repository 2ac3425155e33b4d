//! A prepared rule, and its inspection points.

use signatures::{
    Application, Buffer, ContentPosition, FastPattern, Flowbit, PayloadMatch, ReassemblyFilter, Rule,
    RuleAction, RuleProtocol, RuleTransport, ThresholdKind,
};

use super::buffer::{Matcher, Piece, pairs};
use super::header::{self, Place};
use super::http::Buffers;

/// Bytes of an anchor that count.
const ANCHOR_BYTES: usize = 32;

/// A rule and its prepared parts.
#[derive(Debug)]
pub struct Prepared {
    pub rule: Rule,
    /// The order of inspection.
    pub order: (u8, u8, u8, u32, usize),
    /// The tests of each buffer.
    pub asked: Vec<(Buffer, Matcher)>,
    /// The anchor, and whether case is ignored.
    pub anchor: Option<(Vec<u8>, bool)>,
    /// The anchor's byte pairs.
    pub anchor_pairs: Vec<u16>,
    pub occasions: Occasions,
    /// True if further bytes around a match change nothing.
    pub is_positive: bool,
}

/// The inspection points of a rule in a TCP flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Occasions {
    pub packets: bool,
    pub pieces: bool,
    pub http: Option<HttpOccasion>,
    pub dns: bool,
    pub tls: bool,
    pub ssh: bool,
}

/// The messages, and the time of inspection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HttpOccasion {
    pub requests: bool,
    pub responses: bool,
    pub with_body: bool,
}

/// The kind of message of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Family {
    Payload,
    Http { requests: bool, responses: bool, body: bool },
    Dns,
    Tls,
    Ssh,
    Unknown,
}

impl Prepared {
    /// Prepares a rule; the error names the unsupported part.
    pub fn new(rule: &Rule, place: usize) -> Result<Prepared, String> {
        if let Some(why) = refused(rule) {
            return Err(why.into());
        }
        let mut asked = Vec::new();
        for buffer in &rule.buffers {
            if family(buffer.buffer) == Family::Unknown {
                return Err(buffer.buffer.name().into());
            }
            asked.push((buffer.buffer, Matcher::new(buffer)?));
        }
        let anchor = anchor(rule);
        let anchor_pairs = anchor.iter().flat_map(|(bytes, _)| pairs(bytes)).collect();
        let occasions = occasions(rule);
        let (is_positive, order) = (is_positive(rule), order(rule, place));
        Ok(Prepared { rule: rule.clone(), order, asked, anchor, anchor_pairs, occasions, is_positive })
    }

    /// Returns whether everything but flowbits and filters matches.
    pub fn holds(&self, place: &Place<'_>, buffers: &Buffers) -> bool {
        header::holds(&self.rule, place)
            && self.asked.iter().all(|(buffer, matcher)| match buffers.get(buffer) {
                Some(some) => some.iter().any(|piece: &Piece| matcher.holds(piece)),
                None => matcher.holds_without(),
            })
    }

    /// Returns whether any search was abandoned.
    pub fn gave_up(&self) -> bool {
        self.asked.iter().any(|(_, matcher)| matcher.gave_up())
    }
}

/// Returns the unsupported part of a rule besides its buffers.
fn refused(rule: &Rule) -> Option<&'static str> {
    let kind = rule.threshold.map(|threshold| threshold.kind);
    if let Some(test) = rule.application.first() {
        return Some(test.keyword());
    }
    if rule.packet.iter().any(|test| matches!(test, signatures::PacketTest::StreamSize(_))) {
        return Some("stream_size");
    }
    match () {
        () if !rule.variables.is_empty() => Some("variables"),
        () if !rule.flowints.is_empty() => Some("flowint"),
        () if !rule.xbits.is_empty() => Some("xbits"),
        () if matches!(kind, Some(ThresholdKind::Backoff { .. })) => Some("threshold type backoff"),
        () if rule.detection_filter.is_some_and(|filter| filter.unique_on.is_some()) => Some("unique_on"),
        () => None,
    }
}

/// Returns whether a rule tests nothing that must be absent, or at an end.
fn is_positive(rule: &Rule) -> bool {
    rule.buffers.iter().flat_map(|buffer| &buffer.matches).all(|one| match one {
        PayloadMatch::Content(content) => !content.negated && !content.ends,
        PayloadMatch::DataAt(data) => !data.negated,
        PayloadMatch::Pcre(pcre) => !pcre.negated && !pcre.pattern.contains('$'),
        PayloadMatch::ByteTest(test) => !test.negated,
        PayloadMatch::Size(_) | PayloadMatch::Absent { .. } => false,
        _ => true,
    })
}

fn order(rule: &Rule, place: usize) -> (u8, u8, u8, u32, usize) {
    let action = match rule.action {
        RuleAction::Pass => 0,
        RuleAction::Drop => 1,
        RuleAction::Reject(_) => 2,
        RuleAction::Alert => 3,
    };
    let is_test = |bit: &Flowbit| matches!(bit, Flowbit::IsSet(_) | Flowbit::IsNotSet(_));
    let tests = rule.flowbits.iter().any(is_test);
    let sets = rule.flowbits.iter().any(|bit| !is_test(bit));
    let marks = match (sets, tests) {
        (true, false) => 0,
        (true, true) => 1,
        (false, _) => 2,
    };
    (action, marks, rule.priority, rule.sid, place)
}

fn anchor(rule: &Rule) -> Option<(Vec<u8>, bool)> {
    let (buffer, at) = rule.fast_pattern()?;
    let PayloadMatch::Content(content) = &rule.buffers[buffer].matches[at] else { return None };
    let pattern = match content.fast_pattern {
        Some(FastPattern::Part { offset, length }) => {
            &content.pattern[usize::from(offset)..usize::from(offset) + usize::from(length)]
        }
        _ => &content.pattern[..],
    };
    Some((pattern[..pattern.len().min(ANCHOR_BYTES)].to_vec(), content.nocase))
}

fn occasions(rule: &Rule) -> Occasions {
    let families: Vec<Family> = rule.buffers.iter().map(|buffer| family(buffer.buffer)).collect();
    let has = |family: Family| families.contains(&family);
    let all_payload = families.iter().all(|family| *family == Family::Payload);
    let at_place = |one: &PayloadMatch| match one {
        PayloadMatch::Content(content) => matches!(content.position,
            ContentPosition::Absolute { offset, depth } if depth.is_some() || offset != signatures::Operand::Value(0)),
        _ => false,
    };
    let placed = all_payload && rule.buffers.iter().flat_map(|buffer| &buffer.matches).any(at_place);
    let only_packets = rule.protocol == RuleProtocol::Transport(RuleTransport::TcpPacket)
        || rule.flow.stream == Some(ReassemblyFilter::Plain)
        || !rule.packet.is_empty()
        || rule.buffers.is_empty();
    let http = families.iter().fold(None::<HttpOccasion>, |all, family| match *family {
        Family::Http { requests, responses, body } => {
            let all = all.unwrap_or(HttpOccasion { requests: true, responses: true, with_body: false });
            Some(HttpOccasion {
                requests: all.requests && requests,
                responses: all.responses && responses,
                with_body: all.with_body || body || has(Family::Payload),
            })
        }
        _ => all,
    });
    let is_http = matches!(rule.protocol, RuleProtocol::Application(Application::Http | Application::Http1));
    let of_messages = placed && !only_packets && is_http;
    let whole = HttpOccasion { requests: true, responses: true, with_body: true };
    Occasions {
        packets: only_packets || placed,
        pieces: all_payload && !only_packets && !of_messages,
        http: if of_messages { Some(whole) } else { http },
        dns: has(Family::Dns),
        tls: has(Family::Tls),
        ssh: has(Family::Ssh),
    }
}

fn family(buffer: Buffer) -> Family {
    let http = |requests, responses, body| Family::Http { requests, responses, body };
    match buffer {
        Buffer::Payload => Family::Payload,
        Buffer::HttpUri
        | Buffer::HttpUriRaw
        | Buffer::HttpMethod
        | Buffer::HttpRequestLine
        | Buffer::HttpRequestHeader
        | Buffer::HttpUserAgent
        | Buffer::HttpHost
        | Buffer::HttpHostRaw
        | Buffer::HttpAccept
        | Buffer::HttpAcceptEncoding
        | Buffer::HttpAcceptLanguage
        | Buffer::HttpReferer => http(true, false, false),
        Buffer::HttpResponseLine
        | Buffer::HttpStatusCode
        | Buffer::HttpStatusMessage
        | Buffer::HttpResponseHeader
        | Buffer::HttpLocation
        | Buffer::HttpServer => http(false, true, false),
        Buffer::HttpProtocol
        | Buffer::HttpHeader
        | Buffer::HttpHeaderRaw
        | Buffer::HttpHeaderNames
        | Buffer::HttpCookie
        | Buffer::HttpConnection
        | Buffer::HttpContentLength
        | Buffer::HttpContentType
        | Buffer::HttpStart => http(true, true, false),
        Buffer::HttpRequestBody => http(true, false, true),
        Buffer::HttpResponseBody => http(false, true, true),
        Buffer::FileData => http(true, true, true),
        Buffer::DnsQuery
        | Buffer::DnsQueriesName
        | Buffer::DnsAnswersName
        | Buffer::DnsAuthoritiesName
        | Buffer::DnsAdditionalsName
        | Buffer::DnsResponseName => Family::Dns,
        Buffer::TlsSni
        | Buffer::TlsCertSubject
        | Buffer::TlsCertIssuer
        | Buffer::TlsCertSerial
        | Buffer::TlsCertificates
        | Buffer::TlsAlpn
        | Buffer::TlsRandom
        | Buffer::TlsRandomTime
        | Buffer::TlsRandomBytes => Family::Tls,
        Buffer::SshProtocol | Buffer::SshSoftware => Family::Ssh,
        _ => Family::Unknown,
    }
}
