//! `rivulet policy test`: runs expectations about single packets.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, bail};
use packet::wire::IpProtocol;
use packet::wire::tcp::Flags;
use packet::{DropReason, LinkType, Packet, Transit};
use policy::{Diagnostic, SourceId, SourceMap, Span};
use runtime::{Frame, Ingress, Runner};
use serde::Serialize;

use super::expectation::{self, EndPattern, EndPatterns, Expectation, ExpectedPacket};
use super::frame::Headers;
use super::happened::{Ends, Happened, ends_of};
use crate::messages::{self, say};
use crate::output::{self, Format};
use crate::policies::{self, AlreadyReported};
use observe::explain::{CollectedOutput, EdgeExplanation, PacketOutcome, Tracer};

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
    /// The external nodes that it passed, as if their programs forwarded it unchanged.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    assumed: Vec<String>,
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
        Format::Table => say!("{} passed, {} failed{}", results.passed, results.failed, results.assumption()),
    }
    Ok(if results.failed > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

impl Results {
    /// Returns the text about external nodes assumed to forward packets; empty if packets passed
    /// none.
    fn assumption(&self) -> String {
        let nodes: BTreeSet<&str> =
            self.expectations.iter().flat_map(|result| &result.assumed).map(String::as_str).collect();
        let nodes: Vec<&str> = nodes.into_iter().collect();
        match nodes.as_slice() {
            [] => String::new(),
            [node] => format!("; assumed: {node} forwards packets unchanged"),
            _ => format!("; assumed: {} forward packets unchanged", nodes.join(", ")),
        }
    }
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

impl PolicyTrial {
    fn new(runner: Runner) -> PolicyTrial {
        let (tracer, collected) = (Tracer::default(), CollectedOutput::default());
        PolicyTrial { runner, tracer, collected, past: Vec::new() }
    }

    /// Runs an expectation. Also returns the difference between expectation and outcome.
    fn test(
        &mut self,
        expectation: &Expectation,
        source: SourceId,
        sources: &SourceMap,
    ) -> anyhow::Result<(ExpectationResult, Option<Diagnostic>)> {
        let result = |span: Span| ExpectationResult {
            file: sources.name(source).to_owned(),
            line: sources.line_column(span).0,
            column: sources.line_column(span).1,
            expectation: sources.slice(expectation.span).to_owned(),
            passed: true,
            message: None,
            path: String::new(),
            assumed: Vec::new(),
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
        let mut happened = Happened::default();
        self.process(&data, self.ingress(&expectation.packet), &mut happened)?;
        // It keeps its direction and a graph has no loops, so it visits each node once at most.
        while let Some(port) = happened.pass_node(&expectation.end, &self.runner) {
            let left = happened.left.take().context("the packet is not kept")?;
            let Transit { egress, tags, .. } = left.meta().transit;
            let tags = self.runner.assembly().kept_tags(egress, tags);
            self.process(left.data(), Ingress::Tagged(port, tags), &mut happened)?;
        }
        self.past.push(PastPacket {
            protocol: headers.protocol,
            arrived: (headers.source, headers.destination),
            left: happened.left.as_ref().map(|packet| (ends_of(packet), ident_of(packet))),
        });
        let difference = happened.difference(expectation, &self.runner);
        let result = result(difference.as_ref().map_or(expectation.span, |found| found.labels[0].span));
        let result = ExpectationResult {
            path: happened.path,
            assumed: happened.assumed,
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

    /// Processes a frame that enters at a port, and adds what happened.
    fn process(&mut self, data: &[u8], from: Ingress, happened: &mut Happened) -> anyhow::Result<()> {
        let number = self.past.len() as u64 + 1;
        let (timestamp_ns, link) = (number * GAP_NS, LinkType::Ethernet);
        let frame = Frame { timestamp_ns, link, wire_len: data.len() as u32, data };
        self.tracer.expect(number, None);
        self.runner.observe(frame, from, &mut self.tracer, &mut self.collected)?;
        // The expectation decides whether the packet continues after a node.
        self.runner.take_forwarded();
        let mut traces = self.tracer.take(&frame, from, &self.runner).into_iter();
        let trace = traces.find(|trace| !trace.generated).context("the packet has no trace")?;
        let port = match trace.outcome {
            PacketOutcome::Sent(place) => self.collected.ports.get(place).copied(),
            _ => None,
        };
        happened.add(trace, port, &self.runner);
        self.collected.clear();
        Ok(())
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

/// Returns the identifier of an ICMP echo.
fn ident_of(packet: &Packet) -> u16 {
    let at = usize::from(packet.meta().l4) + 4;
    packet.data().get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |ident| u16::from_be_bytes(*ident))
}
