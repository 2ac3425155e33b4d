//! The audit of a simulation's timeline: the first line that breaks a rule of the protocol.
//!
//! It knows nothing of the machines but their lines. Its rules are those of design.md 3; each is
//! checked at the line that breaks it, so that what follows from a fault is not taken for it.

mod dispatching;
mod flow;
mod owning;
mod recovering;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::message::{Epoch, FlowId, UnitId};

use super::event::TimelineEvent;
use super::line::{Machine, TimelineLine};
use super::place::FlowPlace;
use super::summary::MessagePeer;
use flow::FlowAudit;
use recovering::FenceAudit;

/// Unanswered pulls after which a wait counts as one without end.
const PULLS_UNANSWERED: u32 = 3;

/// The kind of the fault that replaces the dispatcher's process.
pub const DISPATCHER_RESTARTS: &str = "restart of the dispatcher";

/// A rule of the protocol that a line breaks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleViolation {
    /// The line, by its number among those audited.
    pub line: usize,
    /// The line at which it shows: the same, or a later one.
    pub until: usize,
    /// The flows that it is about.
    pub flows: BTreeSet<FlowId>,
    /// The rule.
    pub rule: &'static str,
    /// Flow, epoch and seq.
    pub place: FlowPlace,
    /// The state of affairs that the rule demands.
    pub expected: String,
    /// The state of affairs that the line shows.
    pub seen: String,
}

impl fmt::Display for RuleViolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RuleViolation { rule, place, expected, seen, .. } = self;
        write!(f, "violated: {rule}\n  {place}\n  expected: {expected}\n  seen: {seen}")
    }
}

/// Returns the first violation in a timeline of one dispatcher and its units, all of whose lines
/// are there. `None` with several dispatchers, as their flows have the same numbers.
pub fn first_violation(lines: &[TimelineLine]) -> Option<RuleViolation> {
    let mut dispatchers = lines.iter().filter(|line| line.role == Machine::Dispatcher);
    let first = dispatchers.next()?;
    if dispatchers.any(|line| line.host != first.host) {
        return None;
    }
    let mut audit = Audit::default();
    for (number, line) in lines.iter().enumerate() {
        audit.number = number;
        if let Err(violation) = audit.take(line) {
            return Some(*violation);
        }
    }
    audit.end().err().map(|violation| *violation)
}

/// Returns the wait that has no end in a timeline without a violation: a unit that pulls a flow's
/// state, or seeks a replica, again and again at a lost unit, and gets no answer.
pub fn endless_wait(lines: &[TimelineLine]) -> Option<RuleViolation> {
    let mut audit = Audit::default();
    let mut pulls: BTreeMap<(UnitId, FlowId, UnitId), (Epoch, u32)> = BTreeMap::new();
    for (number, line) in lines.iter().enumerate() {
        let _ = audit.take(line);
        let (Machine::Unit(unit), Some(flow), Some(epoch)) = (line.role, line.place.flow, line.place.epoch)
        else {
            continue;
        };
        match line.event {
            TimelineEvent::Sent { message, to: MessagePeer::Unit(holder) }
                if matches!(message.name(), "Pull" | "Seek") && audit.units.get(&holder) == Some(&"lost") =>
            {
                let (of, count) = pulls.entry((unit, flow, holder)).or_default();
                *count = if *of == epoch { *count + 1 } else { 1 };
                *of = epoch;
                if *count == PULLS_UNANSWERED {
                    return Some(RuleViolation {
                        line: number,
                        until: number,
                        flows: BTreeSet::from([flow]),
                        rule: "the loss of a unit leaves nothing waiting: requests for its states are answered in \
                               its place (design.md 3.13)",
                        place: line.place,
                        expected: format!("{unit} gets an answer in the place of {holder}, which is lost"),
                        seen: format!("{} is sent {count} times since then", message.name()),
                    });
                }
            }
            TimelineEvent::Received { message, from: MessagePeer::Unit(from) }
                if matches!(message.name(), "State" | "Changes" | "End" | "Found") =>
            {
                pulls.remove(&(unit, flow, from));
            }
            _ => {}
        }
    }
    None
}

/// Returns the flows with packets that are neither processed nor dropped nor given up at the end of
/// a timeline.
pub fn unfinished(lines: &[TimelineLine]) -> Vec<FlowId> {
    let mut audit = Audit::default();
    lines.iter().for_each(|line| _ = audit.take(line));
    let open = audit.flows.into_iter().filter(|(_, flow)| flow.first_open().is_some());
    open.map(|(id, _)| id).collect()
}

type Checked = Result<(), Box<RuleViolation>>;

/// The state of affairs after the lines so far.
#[derive(Default)]
struct Audit {
    /// The number of the present line.
    number: usize,
    flows: BTreeMap<FlowId, FlowAudit>,
    /// The last state of each unit.
    units: BTreeMap<UnitId, &'static str>,
    /// Units with a process that the dispatcher was not told to be gone.
    processes: BTreeMap<UnitId, u64>,
    /// By line: the dispatcher ended this flow, which had an alias, and must forget the alias next.
    must_free: Option<(usize, FlowId)>,
    /// By line: the dispatcher moves this group there, and must name that owner for all its flows.
    must_move: Option<(usize, u16, UnitId)>,
    /// By line: a unit released a flow's state, and must keep a tombstone before its next call.
    must_bury: Option<(usize, UnitId, FlowPlace)>,
    /// An owner that has recovered a state.
    must_fence: Option<FenceAudit>,
}

impl Audit {
    fn take(&mut self, line: &TimelineLine) -> Checked {
        self.check_burial(line)?;
        self.check_fence(line)?;
        match line.role {
            Machine::Dispatcher => self.take_of_dispatcher(line),
            Machine::Unit(unit) => self.take_of_unit(unit, line),
            // Another process: it numbers its flows and units again.
            Machine::Host if line.event == (TimelineEvent::Fault { kind: DISPATCHER_RESTARTS }) => {
                *self = Audit::default();
                Ok(())
            }
            Machine::Host => Ok(()),
        }
    }

    /// Returns the violation of a rule by the present line.
    fn broken(&self, rule: &'static str, place: FlowPlace, expected: String, seen: String) -> Checked {
        let (line, until, flows) = (self.number, self.number, place.flow.into_iter().collect());
        Err(Box::new(RuleViolation { line, until, flows, rule, place, expected, seen }))
    }

    fn end(&self) -> Checked {
        self.check_freed()?;
        self.check_moved()
    }

    /// Returns what is known of the line's flow.
    fn flow(&mut self, place: FlowPlace) -> Option<&mut FlowAudit> {
        self.flows.get_mut(&place.flow?)
    }

    /// The unit is another process, or has lost everything.
    fn forget_states_at(&mut self, unit: UnitId) {
        for flow in self.flows.values_mut() {
            flow.states.remove(&unit);
            flow.searches.remove(&unit);
            flow.fenced.remove(&unit);
        }
    }

    /// design.md 3.3: a tombstone stays where a state was.
    fn check_burial(&mut self, line: &TimelineLine) -> Checked {
        let Some((number, unit, place)) = self.must_bury else { return Ok(()) };
        let is_same_call = line.is_of_call(unit);
        match line.event {
            TimelineEvent::TombstoneMade { .. } if is_same_call && line.place.flow == place.flow => {
                self.must_bury = None;
                Ok(())
            }
            _ if is_same_call => Ok(()),
            _ => self
                .broken(
                    "a unit that gave a flow's state away keeps a tombstone, and so relays late packets \
                 (design.md 3.3)",
                    place,
                    format!("{unit} makes a tombstone when it releases the state"),
                    "none was made".to_owned(),
                )
                .map_err(|violation| Box::new(RuleViolation { line: number, ..*violation })),
        }
    }
}

#[cfg(test)]
mod tests {
    use packet::FlowKey;

    use super::*;

    const FLOW: FlowId = FlowId { index: 0, generation: 1 };
    const ONE: UnitId = UnitId(0);
    const OTHER: UnitId = UnitId(1);

    fn line(role: Machine, place: FlowPlace, event: TimelineEvent) -> TimelineLine {
        let host = "test".to_owned();
        TimelineLine { at_ns: 0, host, role, place, pending: None, in_flight: None, event }
    }

    fn at(epoch: Epoch, seq: u64) -> FlowPlace {
        FlowPlace::new(FLOW, epoch, seq)
    }

    /// Two packets at one unit, and the flow moves to the other.
    fn a_move() -> Vec<TimelineLine> {
        let dispatcher = Machine::Dispatcher;
        let unit = Machine::Unit(ONE);
        let began = TimelineEvent::FlowBegan { unit: ONE, key: FlowKey::default() };
        vec![
            line(dispatcher, FlowPlace::of(FLOW), began),
            line(dispatcher, at(1, 1), TimelineEvent::Dispatched { unit: ONE }),
            line(dispatcher, at(1, 2), TimelineEvent::Dispatched { unit: ONE }),
            line(unit, at(1, 0), TimelineEvent::StateInstalled { source: "new flow" }),
            line(unit, at(1, 1), TimelineEvent::Processed {}),
            line(dispatcher, at(2, 2), TimelineEvent::OwnerChanged { from: ONE, to: OTHER }),
            line(unit, at(1, 2), TimelineEvent::Processed {}),
            line(Machine::Unit(OTHER), at(2, 2), TimelineEvent::StateInstalled { source: "message" }),
        ]
    }

    /// Returns the rule that a move breaks with this line in the place of another.
    fn broken_by(
        number: usize,
        role: Machine,
        place: FlowPlace,
        event: TimelineEvent,
    ) -> (usize, &'static str) {
        let mut lines = a_move();
        lines[number] = line(role, place, event);
        first_violation(&lines).map_or((0, ""), |violation| (violation.line, violation.rule))
    }

    #[test]
    fn a_move_breaks_no_rule() {
        assert_eq!(first_violation(&a_move()), None);
        assert_eq!(unfinished(&a_move()), []);
        assert_eq!(unfinished(&a_move()[..6]), [FLOW]);
    }

    #[test]
    fn the_first_wrong_line_is_found() {
        let (one, other) = (Machine::Unit(ONE), Machine::Unit(OTHER));
        let is = |(line, rule): (usize, &str), at: usize, part: &str| {
            assert!(line == at && rule.contains(part), "line {line}: {rule}");
        };
        is(broken_by(6, one, at(1, 1), TimelineEvent::Processed {}), 6, "at most once");
        is(broken_by(4, one, at(1, 2), TimelineEvent::Processed {}), 4, "up to n-1");
        is(broken_by(6, other, at(1, 2), TimelineEvent::Processed {}), 6, "late packet");
        let changed = TimelineEvent::OwnerChanged { from: ONE, to: OTHER };
        is(broken_by(5, Machine::Dispatcher, at(1, 2), changed), 5, "epoch rises");
        let new = TimelineEvent::StateInstalled { source: "new flow" };
        is(broken_by(6, other, at(1, 0), new), 6, "one unit writes");
        is(broken_by(6, one, at(1, 0), new), 6, "idempotent");
        is(broken_by(7, one, at(2, 2), new), 7, "that it owns");
        let replica = TimelineEvent::StateInstalled { source: "replica" };
        is(broken_by(7, other, at(2, 1), replica), 7, "a replica is the state only");
        is(broken_by(6, one, at(1, 1), TimelineEvent::StateReleased {}), 6, "tombstone");
    }

    #[test]
    fn flows_of_several_dispatchers_are_not_audited() {
        let mut lines = a_move();
        lines[4] = line(Machine::Unit(ONE), at(1, 2), TimelineEvent::Processed {});
        assert!(first_violation(&lines).is_some());
        lines[5].host = "another".to_owned();
        assert_eq!(first_violation(&lines), None);
    }
}
