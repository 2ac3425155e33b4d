//! A line of the timeline, and its columns.

use std::fmt;

use crate::message::UnitId;

use super::event::TimelineEvent;
use super::place::FlowPlace;

/// A machine of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Machine {
    /// The dispatcher.
    Dispatcher,
    /// A unit.
    Unit(UnitId),
    /// The host itself: what its driver notes.
    Host,
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Machine::Dispatcher => f.write_str("dispatcher"),
            Machine::Unit(unit) => unit.fmt(f),
            Machine::Host => f.write_str("host"),
        }
    }
}

/// A line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimelineLine {
    /// The time of the call that caused the event, in ns.
    pub at_ns: u64,
    /// The host of the machine.
    pub host: String,
    /// The machine.
    pub role: Machine,
    /// The subject.
    pub place: FlowPlace,
    /// Packets that wait at the unit.
    pub pending: Option<usize>,
    /// Packets and messages on their way, if the driver
    /// [knows](super::EventTimeline::set_in_flight).
    pub in_flight: Option<usize>,
    /// The event.
    pub event: TimelineEvent,
}

impl TimelineLine {
    /// Returns true if the line may be of the same call of a unit as the line before, which is of
    /// that unit: a call begins with a message or a timer.
    pub(super) fn is_of_call(&self, unit: UnitId) -> bool {
        let begins = matches!(self.event, TimelineEvent::Received { .. } | TimelineEvent::TimerFired { .. });
        self.role == Machine::Unit(unit) && !begins
    }
}

/// Returns a time as text, in seconds.
pub(super) fn shown_time(at_ns: u64) -> String {
    const SECOND_NS: u64 = 1_000_000_000;
    format!("{}.{:09}", at_ns / SECOND_NS, at_ns % SECOND_NS)
}

/// Returns the heading of the columns.
pub fn heading() -> String {
    row(["time", "host", "role", "flow", "epoch", "seq", "pend", "wire", "event", "details"])
}

fn row([time, host, role, flow, epoch, seq, pending, in_flight, event, details]: [&str; 10]) -> String {
    let row = format!(
        "{time:>14}  {host:<12} {role:<10} {flow:>7} {epoch:>5} {seq:>6} {pending:>4} {in_flight:>4}  \
         {event:<18} {details}"
    );
    row.trim_end().to_owned()
}

impl fmt::Display for TimelineLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let flow = self.place.flow.map(|flow| format!("{}.{}", flow.index, flow.generation));
        let flow = flow.unwrap_or_else(absent);
        let epoch = self.place.epoch.map_or_else(absent, |epoch| epoch.to_string());
        let seq = self.place.seq.map_or_else(absent, |seq| seq.to_string());
        let [pending, in_flight] =
            [self.pending, self.in_flight].map(|count| count.map_or_else(absent, |count| count.to_string()));
        f.write_str(&row([
            &shown_time(self.at_ns),
            &self.host,
            &self.role.to_string(),
            &flow,
            &epoch,
            &seq,
            &pending,
            &in_flight,
            self.event.name(),
            &self.event.to_string(),
        ]))
    }
}

fn absent() -> String {
    "-".to_owned()
}
