//! The path and the fate of a packet of an expectation.

use std::net::SocketAddr;

use packet::wire::IpProtocol;
use packet::{DropReason, Packet, parse};
use policy::Diagnostic;
use runtime::Runner;

use super::expectation::{EndPattern, Expectation, ExpectedEnd};
use observe::explain::{EdgeExplanation, PacketOutcome, PacketTrace, deciding_rule};

/// Source and destination.
pub type Ends = (SocketAddr, SocketAddr);

/// The path of a packet so far, and its fate.
#[derive(Default)]
pub struct Happened {
    /// The functions and external nodes that it visited, in order.
    visited: Vec<String>,
    /// The external nodes among them.
    pub assumed: Vec<String>,
    pub edges: Vec<EdgeExplanation>,
    pub path: String,
    /// The port that it left by, and its number.
    pub port: Option<String>,
    port_number: Option<u16>,
    /// The packet on departure.
    pub left: Option<Packet>,
    pub reason: Option<DropReason>,
    /// The function's rule that decided last.
    rule: Option<String>,
}

impl Happened {
    /// Adds what happened to the packet in the graph, up to the port with this number.
    pub fn add(&mut self, trace: PacketTrace, port_number: Option<u16>, runner: &Runner) {
        let assembly = runner.assembly();
        let name = |number: u16| assembly.ports.number(number).map(|port| port.name.clone());
        self.port_number = port_number;
        self.port = port_number.and_then(name);
        self.reason = match trace.outcome {
            PacketOutcome::Dropped(reason) => Some(reason),
            _ => None,
        };
        let steps = trace.steps.iter();
        let visited = steps.map(|step| assembly.names.get(step.stage).cloned().unwrap_or_default());
        let visited: Vec<String> = visited.collect();
        let edges = EdgeExplanation::of_packet(&trace, runner);
        let ingress = trace.arrived.as_ref().map_or(0, |packet| packet.meta().transit.ingress);
        let from = name(ingress).unwrap_or_default();
        let path = path(&from, &visited, &edges, self.port.as_deref());
        // After an external node, the path names the node instead of its port.
        let is_first = self.path.is_empty();
        self.path += if is_first { &path } else { path.strip_prefix(&from).unwrap_or(&path) };
        self.visited.extend(visited);
        self.edges.extend(edges);
        let step = trace.steps.last();
        self.rule = step.and_then(|step| deciding_rule(step, runner)).map(ToString::to_string);
        self.left = trace.left.filter(|_| matches!(trace.outcome, PacketOutcome::Sent(_)));
    }

    /// Assumes that the packet left at a port of an external node, which forwards it. Returns the
    /// other port of the node; `None` if the packet is not at a node, or should leave by that port.
    pub fn pass_node(&mut self, expected: &ExpectedEnd, runner: &Runner) -> Option<u16> {
        if let ExpectedEnd::Leaves { port, .. } = expected
            && self.is_at(port, runner)
        {
            return None;
        }
        let at = self.port_number?;
        let node = runner.assembly().externals.iter().find(|node| node.ports.contains(&at))?;
        let port = self.port.take().unwrap_or_default();
        let before = self.path.strip_suffix(&port).unwrap_or(&self.path);
        self.path = format!("{before}{} (assumed to forward it)", node.name);
        self.visited.push(node.name.clone());
        self.assumed.push(node.name.clone());
        node.ports.into_iter().find(|port| *port != at)
    }

    /// Returns the first difference to an expectation.
    pub fn difference(&self, expected: &Expectation, runner: &Runner) -> Option<Diagnostic> {
        self.wrong_end(expected, runner)
            .or_else(|| {
                let (functions, span) = expected.via.as_ref().filter(|(all, _)| *all != self.visited)?;
                let (wanted, visited) = (functions.join(", "), self.visited.join(", "));
                let message = format!("the packet visited [{visited}], not [{wanted}]");
                Some(self.explained(Diagnostic::error(message, *span)))
            })
            .or_else(|| {
                let ExpectedEnd::Leaves { ends: Some((ends, span)), .. } = &expected.end else { return None };
                let left = self.left.as_ref().map(ends_of)?;
                let matches = ends.source.matches(left.0) && ends.destination.matches(left.1);
                let shown = |end: SocketAddr, of: EndPattern| match of.port {
                    None if end.port() == 0 || self.left.as_ref().is_some_and(is_icmp) => {
                        end.ip().to_string()
                    }
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
    EdgeExplanation::path(edges).unwrap_or_else(|| {
        let nodes = std::iter::once(from).chain(visited.iter().map(String::as_str)).chain(port);
        nodes.collect::<Vec<_>>().join(" -> ")
    })
}

impl EndPattern {
    /// Returns true if this is the end.
    pub fn matches(self, end: SocketAddr) -> bool {
        self.address == end.ip() && self.port.is_none_or(|port| port == end.port())
    }
}

/// Returns the ends of a packet.
pub fn ends_of(packet: &Packet) -> Ends {
    let (source, destination) = parse::ends(packet);
    let of = |end: packet::Endpoint| SocketAddr::new(end.addr.ip(), end.port);
    (of(source), of(destination))
}

fn is_icmp(packet: &Packet) -> bool {
    [IpProtocol::ICMP.0, IpProtocol::ICMPV6.0].contains(&packet.meta().protocol)
}
