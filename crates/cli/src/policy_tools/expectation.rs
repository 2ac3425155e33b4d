//! Expectations of a policy: a packet, and the port that it must leave by, or that it is dropped.
//!
//! ```text
//! expect tcp 10.1.0.5:1234 -> 192.0.2.1:443 from lan flags syn via [nat] leaves wan
//! expect udp [2001:db8::1]:53 -> [2001:db8::2]:53 is dropped policy-unmatched
//! ```

use std::net::IpAddr;

use packet::DropReason;
use packet::wire::IpProtocol;
use policy::ast::TcpFlag;
use policy::{Diagnostic, SourceId, Span};
use runtime::Assembly;

/// Limit on the expectations of a file.
pub const EXPECTATIONS_MAX: usize = 10_000;

/// An expectation.
pub struct Expectation {
    pub span: Span,
    pub packet: ExpectedPacket,
    /// The functions and external nodes that the packet visits, in order.
    pub via: Option<(Vec<String>, Span)>,
    pub end: ExpectedEnd,
    pub end_span: Span,
}

/// The packet of an expectation.
pub struct ExpectedPacket {
    pub protocol: IpProtocol,
    pub ends: EndPatterns,
    pub ends_span: Span,
    /// The port that it enters by, by name or number.
    pub from: Option<String>,
    /// The flags octet of TCP.
    pub flags: Option<u8>,
    pub dscp: u8,
    pub vlan: Option<u16>,
}

/// Source and destination.
#[derive(Clone, Copy)]
pub struct EndPatterns {
    pub source: EndPattern,
    pub destination: EndPattern,
}

/// An end of a packet; without a port, any.
#[derive(Clone, Copy)]
pub struct EndPattern {
    pub address: IpAddr,
    pub port: Option<u16>,
}

/// The end of a packet's path.
pub enum ExpectedEnd {
    /// It leaves by the port with this name or number, perhaps with these ends.
    Leaves { port: String, ends: Option<(EndPatterns, Span)> },
    /// It is dropped, perhaps for this reason.
    Dropped(Option<DropReason>),
}

/// Parses a file, one expectation per line; returns the error of each line that is wrong.
pub fn parse(source: SourceId, text: &str, assembly: &Assembly) -> Result<Vec<Expectation>, Vec<Diagnostic>> {
    let (mut expectations, mut errors) = (Vec::new(), Vec::new());
    let mut start = 0;
    for whole in text.split_inclusive('\n') {
        let mut line = Line { source, text, at: start, end: start + content_len(whole), assembly };
        start += whole.len();
        let Some(first) = line.peek() else { continue };
        match line.expectation() {
            Ok(_) if expectations.len() == EXPECTATIONS_MAX => {
                let message = format!("a file may have up to {EXPECTATIONS_MAX} expectations");
                errors.push(Diagnostic::error(message, first.span));
                break;
            }
            Ok(expectation) => expectations.push(expectation),
            Err(error) => errors.push(*error),
        }
    }
    if errors.is_empty() { Ok(expectations) } else { Err(errors) }
}

/// Returns the length of a line without its comment: a `#` within a word, as in `lan#0`, is part of
/// it.
fn content_len(line: &str) -> usize {
    let begins = |at: usize| line[..at].chars().next_back().is_none_or(char::is_whitespace);
    let comment = line.match_indices('#').map(|(at, _)| at).find(|&at| begins(at));
    line[..comment.unwrap_or(line.len())].trim_end().len()
}

/// The rest of a line.
struct Line<'a> {
    source: SourceId,
    text: &'a str,
    at: usize,
    end: usize,
    assembly: &'a Assembly,
}

#[derive(Clone, Copy)]
struct Word<'a> {
    text: &'a str,
    span: Span,
}

type Parsed<T> = Result<T, Box<Diagnostic>>;

impl<'a> Line<'a> {
    fn expectation(&mut self) -> Parsed<Expectation> {
        let first = self.word("`expect`")?;
        if first.text != "expect" {
            return Err(unexpected(first, "`expect`"));
        }
        let word = self.word("a protocol: tcp, udp or icmp")?;
        let protocol = match word.text {
            "tcp" => IpProtocol::TCP,
            "udp" => IpProtocol::UDP,
            "icmp" => IpProtocol::ICMP,
            _ => return Err(unexpected(word, "a protocol: tcp, udp or icmp")),
        };
        let (ends, ends_span) = self.ends(protocol)?;
        let is_v4 = ends.source.address.is_ipv4();
        let protocol = if protocol == IpProtocol::ICMP && !is_v4 { IpProtocol::ICMPV6 } else { protocol };
        let (from, flags, dscp, vlan) = (None, None, 0, None);
        let mut packet = ExpectedPacket { protocol, ends, ends_span, from, flags, dscp, vlan };
        let mut via = None;
        loop {
            let next = "`leaves`, `is dropped` or an option: from, flags, dscp, vlan, via";
            let word = self.word(next)?;
            match word.text {
                "from" => packet.from = Some(self.port()?.text.to_owned()),
                "flags" if protocol == IpProtocol::TCP => packet.flags = Some(self.flags()?),
                "flags" => return Err(error("only TCP has flags", word.span)),
                "dscp" => packet.dscp = self.number("a DSCP, 0 to 63", 0..=63)? as u8,
                "vlan" => packet.vlan = Some(self.number("a VLAN, 1 to 4094", 1..=4094)?),
                "via" => via = Some(self.functions()?),
                "leaves" => {
                    let port = self.port()?;
                    let (mut end_span, mut ends) = (word.span.to(port.span), None);
                    if let Some(rewritten) = self.take("as") {
                        let (patterns, span) = self.ends(protocol)?;
                        ends = Some((patterns, span));
                        end_span = end_span.to(rewritten.span).to(span);
                    }
                    let end = ExpectedEnd::Leaves { port: port.text.to_owned(), ends };
                    return self.finish(Expectation { span: first.span, packet, via, end, end_span });
                }
                "is" => {
                    let dropped = self.word("`dropped`")?;
                    if dropped.text != "dropped" {
                        return Err(unexpected(dropped, "`dropped`"));
                    }
                    let (mut end_span, mut reason) = (word.span.to(dropped.span), None);
                    if let Some(name) = self.peek() {
                        let _ = self.word("");
                        let found = DropReason::ALL.iter().find(|reason| reason.name() == name.text);
                        let expected = "a drop reason, such as policy-unmatched (docs/drop-reasons.md)";
                        reason = Some(*found.ok_or_else(|| unexpected(name, expected))?);
                        end_span = end_span.to(name.span);
                    }
                    let end = ExpectedEnd::Dropped(reason);
                    return self.finish(Expectation { span: first.span, packet, via, end, end_span });
                }
                _ => return Err(unexpected(word, next)),
            }
        }
    }

    fn finish(&self, expectation: Expectation) -> Parsed<Expectation> {
        match self.peek() {
            Some(word) => Err(unexpected(word, "the end of the line")),
            None => Ok(Expectation { span: expectation.span.to(expectation.end_span), ..expectation }),
        }
    }

    fn ends(&mut self, protocol: IpProtocol) -> Parsed<(EndPatterns, Span)> {
        let (source, from) = self.end(protocol)?;
        let arrow = self.word("`->`")?;
        if arrow.text != "->" {
            return Err(unexpected(arrow, "`->`"));
        }
        let (destination, to) = self.end(protocol)?;
        if source.address.is_ipv4() != destination.address.is_ipv4() {
            return Err(error("both ends must have the same IP version", to));
        }
        Ok((EndPatterns { source, destination }, from.to(to)))
    }

    fn end(&mut self, protocol: IpProtocol) -> Parsed<(EndPattern, Span)> {
        let has_port = protocol != IpProtocol::ICMP;
        let expected = match has_port {
            true => "an address and a port, such as 10.0.0.1:80, [2001:db8::1]:80 or 10.0.0.1:*",
            false => "an address, such as 10.0.0.1 or 2001:db8::1",
        };
        let word = self.word(expected)?;
        let wrong = || unexpected(word, expected);
        if !has_port {
            let address = word.text.parse().map_err(|_| wrong())?;
            return Ok((EndPattern { address, port: None }, word.span));
        }
        let (address, port) = word.text.rsplit_once(':').ok_or_else(wrong)?;
        let bare = address.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
        let address: IpAddr = bare.unwrap_or(address).parse().map_err(|_| wrong())?;
        if address.is_ipv6() != bare.is_some() {
            return Err(wrong());
        }
        let port = if port == "*" { None } else { Some(port.parse().map_err(|_| wrong())?) };
        Ok((EndPattern { address, port }, word.span))
    }

    fn port(&mut self) -> Parsed<Word<'a>> {
        let word = self.word("the name of a port")?;
        if self.assembly.ports.named(word.text).is_some() {
            return Ok(word);
        }
        let names: Vec<&str> = self.assembly.ports.all().iter().map(|port| port.name.as_str()).collect();
        Err(unexpected(word, &format!("a port of the policy: {}", names.join(", "))))
    }

    fn flags(&mut self) -> Parsed<u8> {
        let expected = "TCP flags, such as syn,ack";
        let word = self.word(expected)?;
        word.text.split(',').try_fold(0, |flags, name| {
            let flag = TcpFlag::find(name).ok_or_else(|| unexpected(word, expected))?;
            Ok(flags | flag.bit())
        })
    }

    fn number(&mut self, expected: &str, range: std::ops::RangeInclusive<u16>) -> Parsed<u16> {
        let word = self.word(expected)?;
        let number = word.text.parse().ok().filter(|number| range.contains(number));
        number.ok_or_else(|| unexpected(word, expected))
    }

    /// Parses `[web, nat]`.
    fn functions(&mut self) -> Parsed<(Vec<String>, Span)> {
        let expected = "functions in brackets, such as [web, nat]";
        let first = self.word(expected)?;
        let start = first.span.start as usize;
        let inner = self.text[start..self.end].strip_prefix('[');
        let inner = inner.and_then(|rest| rest.split_once(']')).map(|(inner, _)| inner);
        let inner = inner.ok_or_else(|| unexpected(first, expected))?;
        self.at = start + inner.len() + 2;
        let mut names = Vec::new();
        let mut at = start + 1;
        for part in inner.split(',').filter(|_| !inner.trim().is_empty()) {
            let name = part.trim();
            let begin = at + (part.len() - part.trim_start().len());
            at += part.len() + 1;
            let nodes = self.assembly.externals.iter().map(|node| &node.name);
            let known: Vec<&str> = self.assembly.names.iter().chain(nodes).map(String::as_str).collect();
            if !known.contains(&name) {
                let word = Word { text: name, span: self.span(begin, begin + name.len()) };
                let expected = format!("a function of the policy: {}", known.join(", "));
                return Err(unexpected(word, &expected));
            }
            names.push(name.to_owned());
        }
        Ok((names, self.span(start, self.at)))
    }

    /// Returns the next word without taking it.
    fn peek(&self) -> Option<Word<'a>> {
        let rest = &self.text[self.at..self.end];
        let start = self.at + (rest.len() - rest.trim_start().len());
        let word = self.text[start..self.end].split(char::is_whitespace).next()?;
        (!word.is_empty()).then(|| Word { text: word, span: self.span(start, start + word.len()) })
    }

    /// Takes the next word if it is this one.
    fn take(&mut self, word: &str) -> Option<Word<'a>> {
        let found = self.peek().filter(|found| found.text == word)?;
        self.at = found.span.end as usize;
        Some(found)
    }

    fn word(&mut self, expected: &str) -> Parsed<Word<'a>> {
        let Some(word) = self.peek() else {
            return Err(error(format!("the line ends; expected {expected}"), self.span(self.end, self.end)));
        };
        self.at = word.span.end as usize;
        Ok(word)
    }

    fn span(&self, start: usize, end: usize) -> Span {
        // Sources are at most SOURCE_BYTES_MAX long, which fits.
        Span { source: self.source, start: start as u32, end: end as u32 }
    }
}

fn unexpected(word: Word<'_>, expected: &str) -> Box<Diagnostic> {
    error(format!("expected {expected}; found `{}`", word.text.escape_debug()), word.span)
}

fn error(message: impl std::fmt::Display, span: Span) -> Box<Diagnostic> {
    Box::new(Diagnostic::error(message, span))
}
