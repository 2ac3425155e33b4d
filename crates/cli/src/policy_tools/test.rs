//! `rivulet policy test`: runs expectations about single packets.

use std::net::SocketAddr;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, bail};
use packet::wire::IpProtocol;
use packet::wire::tcp::Flags;
use packet::{DropReason, LinkType, Packet, parse};
use policy::{Diagnostic, SourceId, SourceMap, Span};
use runtime::{Frame, Ingress, Runner};
use serde::Serialize;

use super::expectation::{self, EndPattern, EndPatterns, Expectation, ExpectedEnd, ExpectedPacket};
use super::frame::Headers;
use crate::explain::{CollectedOutput, EdgeExplanation, Outcome, PacketTrace, Tracer, deciding_rule};
use crate::messages::{self, say};
use crate::output::{self, Format};
use crate::policies::{self, AlreadyReported};

/// Time between two packets.
const GAP_NS: u64 = 1_000_000;

/// Identifier of ICMP echo requests.
const ECHO_IDENT: u16 = 1;

/// The result as JSON.
#[derive(Default, Serialize)]
struct Results {
    passed: usize,
    failed: usize,
    expectations: Vec<ExpectationResult>,
}

#[derive(Serialize)]
struct ExpectationResult {
    file: String,
    line: usize,
    /// Column of the part that failed, or of the expectation.
    column: usize,
    expectation: String,
    passed: bool,
    /// The first difference.
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
    /// The nodes that the packet passed, from its port.
    path: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    edges: Vec<EdgeExplanation>,
    /// The port that it left by.
    #[serde(skip_serializing_if = "Option::is_none")]
    port: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
}

/// Runs the command.
pub fn run(policy: &Path, file: Option<&Path>, seed: u64, format: Format) -> anyhow::Result<ExitCode> {
    let file = match file {
        Some(file) => file.to_owned(),
        None if policy == Path::new("-") => bail!("name the file of expectations after the policy `-`"),
        None => policy.with_extension("expect"),
    };
    let text = policies::text(policy)?;
    let assembly = policies::assemble(policy, &text, Some(seed))?;
    let mut sources = SourceMap::default();
    // Messages mask secrets in the first source, a policy.
    sources.add(&policy.display().to_string(), text)?;
    let expected = policies::text(&file)?;
    let source = sources.add(&file.display().to_string(), expected)?;
    let expectations = expectation::parse(source, sources.text(source), &assembly);
    let expectations = expectations.map_err(|errors| {
        errors.iter().for_each(|error| show(error, &sources));
        AlreadyReported(format!("{} has errors", file.display()))
    })?;
    let mut trial = PolicyTrial::new(Runner::new(assembly, &policy.display().to_string()));
    let mut results = Results::default();
    for expectation in &expectations {
        let (result, difference) = trial.test(expectation, source, &sources)?;
        if let (Some(difference), Format::Table) = (&difference, format) {
            show(difference, &sources);
        }
        *(if result.passed { &mut results.passed } else { &mut results.failed }) += 1;
        results.expectations.push(result);
    }
    match format {
        Format::Json => output::print_json(&results)?,
        Format::Table => say!("{} passed, {} failed", results.passed, results.failed),
    }
    Ok(if results.failed > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn show(diagnostic: &Diagnostic, sources: &SourceMap) {
    messages::write_text(&diagnostic.render(sources, policies::colour()));
}

/// A running graph, and the packets that it had.
struct PolicyTrial {
    runner: Runner,
    tracer: Tracer,
    collected: CollectedOutput,
    past: Vec<PastPacket>,
}

/// A packet of an earlier expectation.
struct PastPacket {
    protocol: IpProtocol,
    arrived: Ends,
    /// Its ends as it left, and the identifier of an ICMP echo.
    left: Option<(Ends, u16)>,
}

/// Source and destination.
type Ends = (SocketAddr, SocketAddr);

impl PolicyTrial {
    fn new(runner: Runner) -> PolicyTrial {
        let (tracer, collected) = (Tracer::default(), CollectedOutput::default());
        PolicyTrial { runner, tracer, collected, past: Vec::new() }
    }

    /// Runs an expectation; returns also the difference between what it expects and what happened.
    fn test(
        &mut self,
        expectation: &Expectation,
        source: SourceId,
        sources: &SourceMap,
    ) -> anyhow::Result<(ExpectationResult, Option<Diagnostic>)> {
        let number = self.past.len() as u64 + 1;
        let result = |span: Span| ExpectationResult {
            file: sources.name(source).to_owned(),
            line: sources.line_column(span).0,
            column: sources.line_column(span).1,
            expectation: sources.slice(expectation.span).to_owned(),
            passed: true,
            message: None,
            path: String::new(),
            edges: Vec::new(),
            port: None,
            reason: None,
        };
        let failed = |result: ExpectationResult, difference: Diagnostic| {
            let message = Some(difference.message.clone());
            (ExpectationResult { passed: false, message, ..result }, Some(difference))
        };
        let Some(headers) = self.headers(&expectation.packet) else {
            let message = "no earlier packet left with these ends, so the port `*` is unknown";
            let difference = Diagnostic::error(message, expectation.packet.ends_span);
            return Ok(failed(result(expectation.packet.ends_span), difference));
        };
        let data = headers.frame().context("the packet cannot be written")?;
        let wire_len = data.len() as u32;
        let (timestamp_ns, link) = (number * GAP_NS, LinkType::Ethernet);
        let frame = Frame { timestamp_ns, link, wire_len, data: &data };
        let from = self.ingress(&expectation.packet);
        self.tracer.expect(number);
        self.runner.observe(frame, from, &mut self.tracer, &mut self.collected)?;
        let passages = self.tracer.take(&frame, from, &self.runner);
        let passage = passages.iter().find(|passage| !passage.made).context("the packet has no trace")?;
        let left = passage.left.as_ref().filter(|_| matches!(passage.outcome, Outcome::Sent(_)));
        self.past.push(PastPacket {
            protocol: headers.protocol,
            arrived: (headers.source, headers.destination),
            left: left.map(|packet| (ends_of(packet), ident_of(packet))),
        });
        let happened = Happened::new(passage, &self.collected, &self.runner);
        self.collected.clear();
        let difference = happened.difference(expectation, &self.runner);
        let result = result(difference.as_ref().map_or(expectation.span, |found| found.labels[0].span));
        let result = ExpectationResult {
            path: happened.path,
            edges: happened.edges,
            port: happened.port,
            reason: happened.reason.map(DropReason::name),
            ..result
        };
        Ok(match difference {
            Some(difference) => failed(result, difference),
            None => (result, None),
        })
    }

    /// Returns the headers of a packet. `None` if a port `*` is of no earlier packet.
    fn headers(&self, packet: &ExpectedPacket) -> Option<Headers> {
        let EndPatterns { source, destination } = packet.ends;
        let mut past = self.past.iter().rev().filter(|past| past.protocol == packet.protocol);
        let answered = past.clone().find_map(|past| {
            let ((from, to), ident) = past.left?;
            (source.matches(to) && destination.matches(from)).then_some(((to, from), ident))
        });
        let is_icmp = matches!(packet.protocol, IpProtocol::ICMP | IpProtocol::ICMPV6);
        let own = |end: EndPattern| {
            let port = if is_icmp { Some(0) } else { end.port };
            port.map(|port| SocketAddr::new(end.address, port))
        };
        let (source, destination) = match answered {
            Some((ends, _)) => ends,
            None => (own(source)?, own(destination)?),
        };
        let is_next = past.any(|past| past.arrived == (source, destination));
        let flags = packet.flags.unwrap_or(match (answered, is_next) {
            (_, true) => Flags::ACK.0 as u8,
            (Some(_), false) => (Flags::SYN.0 | Flags::ACK.0) as u8,
            (None, false) => Flags::SYN.0 as u8,
        });
        let echo = answered.map_or((ECHO_IDENT, false), |(_, ident)| (ident, true));
        let (protocol, dscp, vlan) = (packet.protocol, packet.dscp, packet.vlan);
        Some(Headers { protocol, source, destination, flags, echo, dscp, vlan })
    }

    /// Returns the port that a packet enters by: the named one, or that of its source's prefix.
    fn ingress(&self, packet: &ExpectedPacket) -> Ingress {
        let ports = &self.runner.assembly().ports;
        let named = packet.from.as_ref().and_then(|name| ports.named(name));
        // No port has this number, so the port has a prefix of the source, or no prefixes.
        let by_source = || ports.of_captured(u32::MAX, Some(packet.ends.source.address.into()));
        Ingress::Port(named.or_else(by_source).map_or(0, |port| port.number))
    }
}

/// The fate of a packet.
struct Happened<'a> {
    passage: &'a PacketTrace,
    /// The functions that it visited, in order.
    visited: Vec<String>,
    edges: Vec<EdgeExplanation>,
    path: String,
    /// The port that it left by, and its number.
    port: Option<String>,
    port_number: Option<u16>,
    reason: Option<DropReason>,
    /// The function's rule that decided last.
    rule: Option<String>,
}

impl<'a> Happened<'a> {
    fn new(passage: &'a PacketTrace, collected: &CollectedOutput, runner: &Runner) -> Happened<'a> {
        let assembly = runner.assembly();
        let port_number = match passage.outcome {
            Outcome::Sent(place) => collected.ports.get(place).copied(),
            _ => None,
        };
        let port = port_number.and_then(|number| assembly.ports.number(number)).map(|port| port.name.clone());
        let reason = match passage.outcome {
            Outcome::Dropped(reason) => Some(reason),
            _ => None,
        };
        let steps = passage.steps.iter();
        let visited = steps.map(|step| assembly.names.get(step.stage).cloned().unwrap_or_default());
        let visited: Vec<String> = visited.collect();
        let edges = EdgeExplanation::of_packet(passage, runner);
        let ingress = passage.arrived.as_ref().map_or(0, |packet| packet.meta().transit.ingress);
        let from = assembly.ports.number(ingress).map_or("", |port| port.name.as_str());
        let path = path(from, &visited, &edges, port.as_deref());
        let rule = passage.steps.last().and_then(|step| deciding_rule(step, runner)).map(ToString::to_string);
        Happened { passage, visited, edges, path, port, port_number, reason, rule }
    }

    /// Returns the first difference to an expectation.
    fn difference(&self, expected: &Expectation, runner: &Runner) -> Option<Diagnostic> {
        self.wrong_end(expected, runner)
            .or_else(|| {
                let (functions, span) = expected.via.as_ref().filter(|(all, _)| *all != self.visited)?;
                let (wanted, visited) = (functions.join(", "), self.visited.join(", "));
                let message = format!("the packet visited [{visited}], not [{wanted}]");
                Some(self.explained(Diagnostic::error(message, *span)))
            })
            .or_else(|| {
                let ExpectedEnd::Leaves { ends: Some((ends, span)), .. } = &expected.end else { return None };
                let left = self.passage.left.as_ref().map(ends_of)?;
                let matches = ends.source.matches(left.0) && ends.destination.matches(left.1);
                let shown = |end: SocketAddr, of: EndPattern| match of.port {
                    None if end.port() == 0 || is_icmp(self.passage) => end.ip().to_string(),
                    _ => end.to_string(),
                };
                let (source, destination) = (shown(left.0, ends.source), shown(left.1, ends.destination));
                let message = format!("the packet left as {source} -> {destination}");
                (!matches).then(|| self.explained(Diagnostic::error(message, *span)))
            })
    }

    fn wrong_end(&self, expected: &Expectation, runner: &Runner) -> Option<Diagnostic> {
        let happened = match (&self.port, self.reason) {
            (Some(port), _) => format!("left by {port}"),
            (None, Some(reason)) => format!("was dropped: {reason}"),
            (None, None) => "is pending".to_owned(),
        };
        let wanted = match &expected.end {
            ExpectedEnd::Leaves { port, .. } if self.is_at(port, runner) => return None,
            ExpectedEnd::Leaves { port, .. } => format!("leave by {port}"),
            ExpectedEnd::Dropped(None) if self.reason.is_some() => return None,
            ExpectedEnd::Dropped(reason) if reason.is_some() && *reason == self.reason => return None,
            ExpectedEnd::Dropped(None) => "be dropped".to_owned(),
            ExpectedEnd::Dropped(Some(reason)) => format!("be dropped: {reason}"),
        };
        let message = format!("the packet {happened}; expected it to {wanted}");
        Some(self.explained(Diagnostic::error(message, expected.end_span)))
    }

    /// Returns true if the packet left by a port of this name or number.
    fn is_at(&self, name: &str, runner: &Runner) -> bool {
        let port = self.port_number.and_then(|number| runner.assembly().ports.number(number));
        port.is_some_and(|port| {
            let is_of_name = port.name.split('#').next() == Some(name);
            port.name == name || is_of_name || name.parse() == Ok(port.number)
        })
    }

    /// Adds the path and the cause.
    fn explained(&self, difference: Diagnostic) -> Diagnostic {
        let difference = difference.remark(format!("took {}", self.path));
        let unmatched = self.edges.last().filter(|edge| edge.to.is_none() && !edge.unmatched.is_empty());
        match (&self.reason, unmatched, &self.rule) {
            (Some(_), Some(edge), _) => {
                let unmatched = edge.unmatched.join(", nor ");
                difference.help(format!("the packet passes no filter at {}: not {unmatched}", edge.from))
            }
            (Some(reason), None, Some(rule)) => difference.help(format!("{} By {rule}.", reason.meaning())),
            (Some(reason), None, None) => difference.help(reason.meaning()),
            (None, ..) => difference,
        }
    }
}

/// Returns the path of a packet, with the filters that it passed: `lan [tcp] -> nat -> wan`.
fn path(from: &str, visited: &[String], edges: &[EdgeExplanation], port: Option<&str>) -> String {
    if edges.is_empty() {
        let nodes = std::iter::once(from).chain(visited.iter().map(String::as_str)).chain(port);
        return nodes.collect::<Vec<_>>().join(" -> ");
    }
    let mut path = edges[0].from.clone();
    for edge in edges {
        if let Some(filter) = edge.filter() {
            path += &format!(" [{filter}]");
        }
        path += " -> ";
        path += edge.to.as_deref().unwrap_or("(unmatched)");
    }
    path
}

impl EndPattern {
    fn matches(self, end: SocketAddr) -> bool {
        self.address == end.ip() && self.port.is_none_or(|port| port == end.port())
    }
}

fn ends_of(packet: &Packet) -> Ends {
    let (source, destination) = parse::ends(packet);
    let of = |end: packet::Endpoint| SocketAddr::new(end.addr.ip(), end.port);
    (of(source), of(destination))
}

/// Returns the identifier of an ICMP echo.
fn ident_of(packet: &Packet) -> u16 {
    let at = usize::from(packet.meta().l4) + 4;
    packet.data().get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |ident| u16::from_be_bytes(*ident))
}

fn is_icmp(passage: &PacketTrace) -> bool {
    let protocol = passage.arrived.as_ref().map(|packet| packet.meta().protocol);
    protocol.is_some_and(|protocol| [IpProtocol::ICMP.0, IpProtocol::ICMPV6.0].contains(&protocol))
}
