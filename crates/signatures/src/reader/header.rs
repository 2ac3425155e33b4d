//! A rule's header: `alert tcp $HOME_NET any -> [192.0.2.0/24,!192.0.2.7] 80`.

use std::sync::Arc;

use crate::RuleError;
use crate::group::{Addresses, Ports};
use crate::protocol::{Application, Protocol, Transport};
use crate::rule::{Action, Direction, Rejected};
use crate::text::{Piece, Read};
use crate::variables::Variables;

pub(crate) struct Header {
    pub action: Action,
    pub protocol: Protocol,
    pub source: Arc<Addresses>,
    pub source_ports: Arc<Ports>,
    pub direction: Direction,
    pub destination: Arc<Addresses>,
    pub destination_ports: Arc<Ports>,
}

pub(crate) fn read(text: Piece<'_>, variables: &Variables) -> Read<Header> {
    const EXPECTED: &str = "action, protocol, address, port, direction, address and port";
    let words = words(text);
    let [action, protocol, source, source_ports, arrow, destination, destination_ports] = words[..] else {
        return Err(text.trim().wrong(EXPECTED));
    };
    Ok(Header {
        action: action_of(action)?,
        protocol: protocol_of(protocol)?,
        source: variables.read_addresses(source)?,
        source_ports: variables.read_ports(source_ports)?,
        direction: direction(arrow)?,
        destination: variables.read_addresses(destination)?,
        destination_ports: variables.read_ports(destination_ports)?,
    })
}

/// The words of a header. White space within brackets does not end one, nor does that after a `!`.
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

fn action_of(word: Piece<'_>) -> Read<Action> {
    word.one_of(&[
        ("alert", Action::Alert),
        ("drop", Action::Drop),
        ("reject", Action::Reject(Rejected::Source)),
        ("rejectsrc", Action::Reject(Rejected::Source)),
        ("rejectdst", Action::Reject(Rejected::Destination)),
        ("rejectboth", Action::Reject(Rejected::Both)),
        ("pass", Action::Pass),
    ])
}

fn protocol_of(word: Piece<'_>) -> Read<Protocol> {
    if let Some((_, hook)) = word.cut(":") {
        return Err(hook.error(RuleError::Unsupported { what: "a state of a protocol (`protocol:state`)" }));
    }
    if let Some(transport) = Transport::by_name(word.text) {
        return Ok(Protocol::Transport(transport));
    }
    match Application::by_name(word.text) {
        Some(Application::Failed | Application::Unknown) | None => {
            Err(word
                .wrong("a protocol, such as `ip`, `tcp`, `tcp-pkt`, `udp`, `icmp`, `http`, `dns` or `tls`"))
        }
        Some(application) => Ok(Protocol::Application(application)),
    }
}

fn direction(word: Piece<'_>) -> Read<Direction> {
    match word.text {
        "=>" => Err(word.error(RuleError::Unsupported { what: "a rule for whole transactions (`=>`)" })),
        _ => word.one_of(&[("->", Direction::Forward), ("<>", Direction::Both)]),
    }
}
