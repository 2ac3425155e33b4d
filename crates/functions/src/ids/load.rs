//! Rules from texts to what is run: those that load, those that do not and why, and the searches for their patterns.

use std::collections::BTreeMap;
use std::fmt;

use inspect::Inspection;
use nf::config::{ConfigError, Located, Position};
use rules::{
    Action, Application, Buffer, Capability, Classifications, Fault, Loaded, Only, Rejected, Ruleset,
    Transport, Variables,
};

use super::marks::{FLOWBITS_MAX, Names};
use super::message::Wanted;
use super::occasion::{Family, Occasions, rank};
use super::prefilter::{Entry, Prefilter, anchor, in_message};
use super::signature::Signature;

/// Rules that were read, and what is wrong with the others.
pub struct Rules {
    /// Those that are run, in the order in which they are looked at.
    pub(super) signatures: Vec<(Signature, Occasions, Loaded)>,
    /// Those that are not, and faults of the other files, in the order of the files.
    pub problems: Vec<Problem>,
}

/// Why a rule is not run, or what is wrong with a line of another file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The file.
    pub file: String,
    /// The line, from 1.
    pub line: u32,
    /// The column, from 1.
    pub column: u32,
    /// The rule's number, if it could be read.
    pub sid: Option<u32>,
    /// What is wrong, or not supported.
    pub what: String,
    /// Whether the rule is right, and asks for something that is not supported.
    pub is_unsupported: bool,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}: ", self.file, self.line, self.column)?;
        if let Some(sid) = self.sid {
            write!(f, "sid {sid}: ")?;
        }
        f.write_str(&self.what)
    }
}

impl From<&Problem> for ConfigError {
    fn from(problem: &Problem) -> ConfigError {
        let sid = problem.sid.map_or(String::new(), |sid| format!("sid {sid}: "));
        ConfigError {
            position: Some(Position {
                source: Some(problem.file.as_str().into()),
                line: problem.line,
                column: problem.column,
            }),
            width: 1,
            message: sid + &problem.what,
        }
    }
}

/// The texts that rules are read from.
#[derive(Default)]
pub struct Sources<'a> {
    /// Rules.
    pub rules: &'a [Located],
    /// Definitions of variables.
    pub variables: Option<&'a Located>,
    /// Class types.
    pub classification: Option<&'a Located>,
    /// Prefixes of `HOME_NET`.
    pub home: &'a [String],
}

impl Rules {
    /// Reads rules. Each is run whole, or not at all and named.
    pub fn read(sources: &Sources<'_>) -> Rules {
        let mut problems = Vec::new();
        let mut add = |faults: Vec<Fault>, text: &Located| {
            problems.extend(faults.iter().map(|fault| problem(fault, text)))
        };
        let none = Located::default();
        let given = sources.variables.unwrap_or(&none);
        // Behind the others: what is said last counts, and their places stay.
        let text = match sources.home {
            [] => given.to_string(),
            home => format!("{}\nHOME_NET = [{}]\n", given.as_str(), home.join(", ")),
        };
        let (variables, faults) = Variables::read(&name(given, "variables"), &text);
        add(faults, given);
        let given = sources.classification.unwrap_or(&none);
        let (classes, faults) = Classifications::read(&name(given, "classification"), given);
        add(faults, given);
        let mut report = rules::Report::default();
        for (number, text) in sources.rules.iter().enumerate() {
            let read =
                Ruleset::read(&name(text, &format!("rules {}", number + 1)), text, &variables, &classes);
            add(read.faults.clone(), text);
            report.append(rules::Report { faults: Vec::new(), ..read });
        }
        add(std::mem::take(&mut report.faults), &none);
        let mut loaded = report.ruleset.into_rules();
        // Stable: what is equal stays in the order of the files.
        loaded.sort_by_key(rank);
        let mut names = Names::default();
        let mut signatures = Vec::new();
        for one in loaded {
            match ready(&one, &classes, &mut names) {
                Ok((signature, occasions)) => signatures.push((signature, occasions, one)),
                Err(what) => problems.push(Problem {
                    file: one.place.file.to_string(),
                    line: one.place.line,
                    column: 1,
                    sid: Some(one.rule.sid),
                    what,
                    is_unsupported: true,
                }),
            }
        }
        problems.sort_by(|a, b| (&a.file, a.line).cmp(&(&b.file, b.line)));
        Rules { signatures, problems }
    }

    /// How many rules are run.
    pub fn len(&self) -> usize {
        self.signatures.len()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.signatures.is_empty()
    }
}

/// The name by which places in a text are told.
fn name(text: &Located, otherwise: &str) -> String {
    text.origin().map_or_else(|| otherwise.to_owned(), |origin| origin.source.clone())
}

fn problem(fault: &Fault, text: &Located) -> Problem {
    // A text inside of a policy begins somewhere in it.
    let first = text.origin().map_or(1, |origin| origin.line);
    Problem {
        file: fault.place.file.to_string(),
        line: fault.place.line + first - 1,
        column: fault.column,
        sid: fault.sid,
        what: fault.error.to_string(),
        is_unsupported: false,
    }
}

fn ready(
    loaded: &Loaded,
    classes: &Classifications,
    names: &mut Names,
) -> Result<(Signature, Occasions), String> {
    let rule = &loaded.rule;
    if let Some(missing) = rule.needs().into_iter().find(|need| !is_supported(need)) {
        return Err(match missing {
            Capability::Keyword(keyword) => format!("keyword `{keyword}` is not supported"),
            Capability::Buffer(buffer) => format!("buffer `{buffer}` is not supported"),
            Capability::Application(application) => format!("protocol `{application}` is not supported"),
            Capability::Transport(transport) => format!("protocol `{transport}` is not supported"),
            Capability::Expression(feature) => format!("`pcre`: {feature:?} is not supported"),
            other => format!("{other:?} is not supported"),
        });
    }
    if rule.flow.fragments == Some(Only::Assembled) {
        return Err("`flow:only_frag` is not supported: fragments are not put together".to_owned());
    }
    if let Action::Reject(Rejected::Destination | Rejected::Both) = rule.action {
        return Err("`rejectdst` and `rejectboth` are not supported: answers go to senders".to_owned());
    }
    let occasions = Occasions::of(rule).map_err(|none| none.to_string())?;
    let inspection = Inspection::new(rule).map_err(|unsupported| unsupported.to_string())?;
    match Signature::new(loaded, inspection, classes, names) {
        Some(signature) => Ok((signature, occasions)),
        None => Err(format!("more than {FLOWBITS_MAX} different `flowbits` in all rules")),
    }
}

fn is_supported(need: &Capability) -> bool {
    use Buffer as B;
    match *need {
        Capability::Transport(transport) => transport != Transport::Sctp,
        Capability::Application(application) => matches!(
            application,
            Application::Http
                | Application::Http1
                | Application::Tls
                | Application::Ssh
                | Application::Ftp
                | Application::Smtp
                | Application::Smb
                | Application::Dns
        ),
        Capability::Buffer(buffer) => match buffer {
            B::DnsResponseName | B::Ja3Hash | B::Ja3String | B::Ja3sHash | B::Ja3sString | B::Ja4Hash => {
                false
            }
            B::FileMagic | B::FileName => false,
            B::TlsRandom | B::TlsRandomTime | B::TlsRandomBytes | B::TlsCertificates => true,
            B::Payload | B::Base64Data | B::FileData | B::EthernetHeader | B::Ipv4Header | B::Ipv6Header => {
                true
            }
            B::TcpHeader | B::UdpHeader | B::Icmpv4Header | B::Icmpv6Header => true,
            B::SshProtocol | B::SshSoftware => true,
            other => ["http.", "dns.", "tls."].iter().any(|family| other.name().starts_with(family)),
        },
        Capability::Expression(_) => false,
        Capability::Keyword(keyword) => !UNSUPPORTED.contains(&keyword),
        _ => false,
    }
}

/// Keywords of tests and actions that are not carried out. Those of buffers and their contents: [`Inspection::new`].
const UNSUPPORTED: &[&str] = &[
    "app-layer-event",
    "filesize",
    "flowint",
    "ftpbounce",
    "ftpdata_command",
    "ssl_state",
    "ssl_version",
    "stream_size",
    "tag",
    "tls.version",
    "xbits",
];

/// The searches for the patterns of all rules.
#[derive(Default)]
pub struct Searches {
    /// On packets of TCP, UDP, ICMP, and others.
    pub packets: [Option<Prefilter>; 4],
    /// On streams to servers and to clients.
    pub streams: [Option<Prefilter>; 2],
    /// On messages to servers and to clients.
    pub messages: BTreeMap<(Family, bool), MessageSearch>,
    /// Buffers that some rule looks at.
    pub wanted: Wanted,
}

/// The searches on a kind of messages.
#[derive(Default)]
pub struct MessageSearch {
    /// By the buffer that is searched.
    pub buffers: Vec<(Buffer, Prefilter)>,
    /// Rules that are always looked at.
    pub always: Vec<u32>,
}

/// The kind of packets that a protocol's number is of: an index of [`Searches::packets`].
pub fn kind_of(number: u8) -> usize {
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
    pub fn new(rules: &Rules) -> Result<Searches, literals::SetError> {
        let mut searches = Searches::default();
        let mut packets: [Vec<Entry>; 4] = Default::default();
        let mut streams: [Vec<Entry>; 2] = Default::default();
        let mut messages: BTreeMap<(Family, bool), BTreeMap<Option<Buffer>, Vec<Entry>>> = BTreeMap::new();
        for (number, (_, occasions, loaded)) in (0..).zip(&rules.signatures) {
            let rule = &loaded.rule;
            rule.buffers.iter().for_each(|one| searches.wanted.add(super::scene::aliased(one.buffer)));
            let own = anchor(rule);
            for (kind, entries) in packets.iter_mut().enumerate() {
                // Rules about DNS messages are found by what these have.
                let other = occasions.other_packet && occasions.message.is_none();
                let looks = if kind == 0 { occasions.tcp_packet } else { other };
                if looks && may_be(rule, kind) {
                    entries.push((own.clone(), number));
                }
            }
            for (to_client, entries) in streams.iter_mut().enumerate() {
                if occasions.stream && may_be(rule, 0) && may_go(rule, to_client == 0) {
                    entries.push((own.clone(), number));
                }
            }
            let Some(family) = occasions.message else { continue };
            for to_server in [true, false] {
                if may_go(rule, to_server) && may_have(rule, family, to_server) {
                    let (buffer, literal) = in_message(rule).unzip();
                    let buffer = buffer.map(super::scene::aliased);
                    messages
                        .entry((family, to_server))
                        .or_default()
                        .entry(buffer)
                        .or_default()
                        .push((literal, number));
                }
            }
        }
        for (search, entries) in searches.packets.iter_mut().zip(packets) {
            *search = (!entries.is_empty()).then(|| Prefilter::new(entries)).transpose()?;
        }
        for (search, entries) in searches.streams.iter_mut().zip(streams) {
            *search = (!entries.is_empty()).then(|| Prefilter::new(entries)).transpose()?;
        }
        for (key, buffers) in messages {
            let mut search = MessageSearch::default();
            for (buffer, entries) in buffers {
                match buffer {
                    Some(buffer) => search.buffers.push((buffer, Prefilter::new(entries)?)),
                    None => search.always.extend(entries.iter().map(|(_, number)| number)),
                }
            }
            searches.messages.insert(key, search);
        }
        Ok(searches)
    }

    /// Bytes that the searches take.
    pub fn memory_bytes(&self) -> usize {
        let of_messages =
            self.messages.values().flat_map(|search| &search.buffers).map(|(_, one)| one.memory_bytes());
        let others = self.packets.iter().chain(&self.streams).flatten().map(Prefilter::memory_bytes);
        of_messages.chain(others).sum()
    }
}

/// Whether a rule's protocol can be that of this kind of packets.
fn may_be(rule: &rules::Rule, kind: usize) -> bool {
    use rules::Protocol;
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
fn may_go(rule: &rules::Rule, to_server: bool) -> bool {
    match rule.flow.direction {
        Some(rules::Way::ToServer) => to_server,
        Some(rules::Way::ToClient) => !to_server,
        None => true,
    }
}

/// Whether messages of this direction can have all buffers that the rule looks at.
fn may_have(rule: &rules::Rule, family: Family, to_server: bool) -> bool {
    use Buffer as B;
    if !matches!(family, Family::HttpHead | Family::HttpBody) {
        return true;
    }
    rule.buffers
        .iter()
        .filter(|one| !one.matches.iter().any(|m| matches!(m, rules::Match::Absent { .. })))
        .all(|one| match one.buffer {
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
        })
}
