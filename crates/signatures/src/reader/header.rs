//! The header of a rule: `alert tcp $HOME_NET any -> [192.0.2.0/24,!192.0.2.7] 80`.

use std::sync::Arc;

use crate::RuleError;
use crate::group::{AddressSet, PortSet};
use crate::protocol::{Application, RuleProtocol, RuleTransport};
use crate::rule::{HeaderDirection, RejectTarget, RuleAction};
use crate::text::{ParseResult, Piece};
use crate::variables::RuleVariables;

pub(crate) struct Header {
    pub action: RuleAction,
    pub protocol: RuleProtocol,
    pub source: Arc<AddressSet>,
    pub source_ports: Arc<PortSet>,
    pub direction: HeaderDirection,
    pub destination: Arc<AddressSet>,
    pub destination_ports: Arc<PortSet>,
}

pub(crate) fn read(text: Piece<'_>, variables: &RuleVariables) -> ParseResult<Header> {
    const EXPECTED: &str = "action, protocol, address, port, direction, address and port";
    let words = words(text);
    let [action, protocol, source, source_ports, arrow, destination, destination_ports] = words[..] else {
        return Err(text.trim().wrong(EXPECTED));
    };
    Ok(Header {
        action: self::action(action)?,
        protocol: protocol_of(protocol)?,
        source: variables.read_addresses(source)?,
        source_ports: variables.read_ports(source_ports)?,
        direction: direction(arrow)?,
        destination: variables.read_addresses(destination)?,
        destination_ports: variables.read_ports(destination_ports)?,
    })
}

/// Splits a header into words. White space within brackets or after a `!` does not end a word.
fn words(text: Piece<'_>) -> Vec<Piece<'_>> {
    let (mut words, mut from, mut depth, mut open) = (Vec::new(), None, 0usize, false);
    for (at, byte) in text.text.bytes().enumerate() {
        if byte.is_ascii_whitespace() && depth == 0 && !open {
            words.extend(from.take().map(|from| text.part(from, at)));
            continue;
        }
        if byte.is_ascii_whitespace() {
            continue;
        }
        from.get_or_insert(at);
        open = byte == b'!';
        match byte {
            b'[' => depth += 1,
            b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    words.extend(from.map(|from| text.from(from).trim()));
    words
}

pub(crate) fn action(word: Piece<'_>) -> ParseResult<RuleAction> {
    let lower = word.text.to_ascii_lowercase();
    let actions = [
        ("alert", RuleAction::Alert),
        ("drop", RuleAction::Drop),
        ("reject", RuleAction::Reject(RejectTarget::Source)),
        ("rejectsrc", RuleAction::Reject(RejectTarget::Source)),
        ("rejectdst", RuleAction::Reject(RejectTarget::Destination)),
        ("rejectboth", RuleAction::Reject(RejectTarget::Both)),
        ("pass", RuleAction::Pass),
    ];
    Piece { text: &lower, ..word }.one_of(&actions).or_else(|_| word.one_of(&actions))
}

fn protocol_of(word: Piece<'_>) -> ParseResult<RuleProtocol> {
    if let Some((_, hook)) = word.cut(":") {
        return Err(hook.error(RuleError::Unsupported { what: "a state of a protocol (`protocol:state`)" }));
    }
    if word.text.eq_ignore_ascii_case("pkthdr") {
        let what = "protocol `pkthdr` (packets whose headers cannot be read)";
        return Err(word.error(RuleError::Unsupported { what }));
    }
    if let Some(transport) = RuleTransport::by_name(word.text) {
        return Ok(RuleProtocol::Transport(transport));
    }
    match Application::by_name(word.text) {
        Some(Application::Failed | Application::Unknown) | None => {
            Err(word
                .wrong("a protocol, such as `ip`, `tcp`, `tcp-pkt`, `udp`, `icmp`, `http`, `dns` or `tls`"))
        }
        Some(application) => Ok(RuleProtocol::Application(application)),
    }
}

fn direction(word: Piece<'_>) -> ParseResult<HeaderDirection> {
    match word.text {
        "=>" => Err(word.error(RuleError::Unsupported { what: "a rule for whole transactions (`=>`)" })),
        _ => word.one_of(&[("->", HeaderDirection::Forward), ("<>", HeaderDirection::Both)]),
    }
}
