//! What became of a packet, in one line.

use nf::{Alert, Connection, Verdict};
use packet::Direction;
use runtime::Runner;

use crate::explain::{Outcome, Passage, deciding_rule};

/// `nat: forward; firewall: drop (firewall-default) | dropped (firewall-default) | flow 2, original direction, its packet 1, connection unreplied | packet 3`;
/// behind it the alerts that it raised.
pub fn of(passage: &Passage, alerts: &[(String, Alert)], runner: &Runner) -> String {
    let mut parts = Vec::new();
    let steps: Vec<_> = passage
        .steps
        .iter()
        .map(|step| {
            let name = runner.assembly().names.get(step.stage).map_or("", String::as_str);
            let by = deciding_rule(step, runner).map_or(String::new(), |rule| format!(", by {rule}"));
            match step.verdict {
                Verdict::Forward => format!("{name}: forward{by}"),
                Verdict::Drop(reason) => format!("{name}: drop ({}){by}", reason.name()),
                Verdict::TurnBack => format!("{name}: turn back"),
            }
        })
        .collect();
    if !steps.is_empty() {
        parts.push(steps.join("; "));
    }
    parts.push(outcome(passage, runner));
    if let (Some(flow), Some(joined)) = (passage.flow, &passage.joined) {
        let direction = match joined.transit.direction {
            Direction::Original => "original",
            Direction::Reply => "reply",
        };
        let connection = Connection::from_phase(joined.transit.phase).name();
        let clock = joined.transit.seq;
        parts
            .push(format!("flow {flow}, {direction} direction, its packet {clock}, connection {connection}"));
    } else if let Some(flow) = passage.flow {
        parts.push(format!("flow {flow}"));
    }
    match (passage.number, passage.made) {
        (Some(number), false) => parts.push(format!("packet {number}")),
        (Some(number), true) => parts.push(format!("made in answer to packet {number}")),
        (None, true) => parts.push("made by a function".to_owned()),
        (None, false) => {}
    }
    let own = alerts.iter().filter(|(_, alert)| !passage.made && alert.sequence == passage.sequence);
    parts.extend(own.map(|(function, alert)| {
        format!("alert {} of {function}: {}", alert.signature_id, alert.signature.as_ref())
    }));
    parts.join(" | ")
}

fn outcome(passage: &Passage, runner: &Runner) -> String {
    match (passage.outcome, &passage.left) {
        (Outcome::Dropped(reason), _) => format!("dropped ({})", reason.name()),
        (Outcome::Sent(_), Some(left)) => {
            let ports = &runner.assembly().ports;
            let port = ports.number(ports.egress(left)).map_or("", |port| port.name.as_str());
            format!("sent by {port}")
        }
        _ => "held: it waits for other fragments of its datagram".to_owned(),
    }
}
