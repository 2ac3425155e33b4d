//! The lines of a timeline that a failure shows.

use std::collections::BTreeSet;
use std::fmt::Write;

use crate::message::FlowId;

use super::event::TimelineEvent;
use super::line::{TimelineLine, heading};

/// Lines at the end of an excerpt that are shown whatever they are.
const LAST_SHOWN: usize = 50;

/// Returns the lines of these flows and of units as text with its heading: from the flows'
/// beginning if they are at most `max`. Otherwise packets that are dispatched and processed in the
/// ordinary course are left out first, except the last ones, and then the oldest lines. Without
/// flows, the last lines of all. The line with the number `marked` is marked.
pub fn excerpt(
    lines: &[TimelineLine],
    flows: &BTreeSet<FlowId>,
    marked: Option<usize>,
    max: usize,
) -> String {
    let is_shown = |line: &TimelineLine| match line.place.flow {
        Some(flow) => flows.is_empty() || flows.contains(&flow),
        None => true,
    };
    let mut shown: Vec<usize> = (0..lines.len()).filter(|&at| is_shown(&lines[at])).collect();
    let of_flows = shown.len();
    if of_flows > max && !flows.is_empty() {
        let first_kept = of_flows - LAST_SHOWN.min(max);
        let mut number = 0;
        shown.retain(|&at| {
            number += 1;
            number > first_kept || !is_ordinary(&lines[at].event)
        });
    }
    let (ordinary, older) = (of_flows - shown.len(), shown.len().saturating_sub(max));
    let mut text = String::new();
    // Writing to a string cannot fail.
    if lines.len() > of_flows {
        let _ = writeln!(text, "{} lines of other flows are not shown.", lines.len() - of_flows);
    }
    if ordinary > 0 {
        let _ = writeln!(text, "{ordinary} lines of packets in the ordinary course are not shown.");
    }
    if older > 0 {
        let _ = writeln!(text, "{older} earlier lines are not shown.");
    }
    let _ = writeln!(text, "{}", heading());
    for &at in &shown[older..] {
        let mark = if marked == Some(at) { "  <-- here" } else { "" };
        let _ = writeln!(text, "{}{mark}", lines[at]);
    }
    text
}

/// Returns true for packets that pass without an incident.
fn is_ordinary(event: &TimelineEvent) -> bool {
    matches!(
        event,
        TimelineEvent::Dispatched { .. } | TimelineEvent::Processed {} | TimelineEvent::Awaited { .. }
    )
}
