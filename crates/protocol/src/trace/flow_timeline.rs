//! The lines of a flow, out of the timelines of one or more processes.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::message::FlowId;

use super::line::{Machine, shown_time};
use super::place::FlowPlace;
use super::timeline::{Entry, EventTimeline};

/// A line for another process: the event is text, so that it may be one of a later version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimelineRow {
    /// The time of the call that caused the event, in ns.
    pub at_ns: u64,
    /// The host of the machine.
    pub host: String,
    /// The machine.
    pub role: Machine,
    /// The subject.
    pub place: FlowPlace,
    /// Packets that wait at the unit.
    pub pending: Option<u64>,
    /// The name of the event.
    pub event: String,
    /// The fields of the event.
    pub details: String,
}

impl TimelineRow {
    /// Returns the time as text, in seconds.
    pub fn time(&self) -> String {
        shown_time(self.at_ns)
    }
}

/// The last lines of a flow, and of units since the first of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FlowTimeline {
    /// The lines, the oldest first.
    pub rows: Vec<TimelineRow>,
    /// Lines of all flows that later ones have replaced.
    pub overwritten: u64,
}

impl FlowTimeline {
    /// Returns up to `max` lines of a flow out of timelines of one process, in the order in which
    /// they were noted.
    pub fn of(timelines: &[Arc<EventTimeline>], flow: FlowId, max: usize) -> FlowTimeline {
        let mut entries: Vec<_> = timelines
            .iter()
            .flat_map(|timeline| timeline.select(|entry| entry.place.flow.is_none_or(|of| of == flow)))
            .collect();
        entries.sort_by_key(|(entry, _)| entry.number);
        let is_before = |(entry, _): &&(Entry, String)| entry.place.flow.is_none();
        let before = entries.iter().take_while(is_before).count();
        let first = before.max(entries.len().saturating_sub(max));
        let rows = entries.drain(first..).map(|(entry, host)| TimelineRow {
            at_ns: entry.at_ns,
            host,
            role: entry.role,
            place: entry.place,
            pending: entry.pending.map(|pending| pending as u64),
            event: entry.event.name().to_owned(),
            details: entry.event.to_string(),
        });
        let overwritten = timelines.iter().map(|timeline| timeline.overwritten()).sum();
        FlowTimeline { rows: rows.collect(), overwritten }
    }

    /// Returns the lines of several processes by time, the last `max` of them. Each process's lines
    /// stay in their order; at equal times, those of the first process come first.
    pub fn merged(of_processes: Vec<FlowTimeline>, max: usize) -> FlowTimeline {
        let overwritten = of_processes.iter().map(|timeline| timeline.overwritten).sum();
        let mut lists: Vec<VecDeque<TimelineRow>> =
            of_processes.into_iter().map(|timeline| timeline.rows.into()).collect();
        let mut rows = VecDeque::new();
        loop {
            let heads = lists.iter_mut().filter(|list| !list.is_empty());
            let next = heads.min_by_key(|list| list.front().map(|row| row.at_ns));
            let Some(row) = next.and_then(VecDeque::pop_front) else { break };
            if rows.len() >= max {
                rows.pop_front();
            }
            rows.push_back(row);
        }
        FlowTimeline { rows: rows.into(), overwritten }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use super::super::{EventTimeline, Machine, TimelineEvent, TraceDetail};
    use super::*;
    use crate::message::UnitId;

    const FLOW: FlowId = FlowId { index: 7, generation: 1 };
    const OTHER: FlowId = FlowId { index: 7, generation: 2 };

    fn numbers(timeline: &FlowTimeline) -> Vec<u64> {
        timeline.rows.iter().map(|row| row.place.seq.unwrap_or(0)).collect()
    }

    #[test]
    fn lines_of_a_process_are_in_the_order_of_their_events() {
        let next = Arc::<AtomicU64>::default();
        let timelines = [(); 2].map(|()| EventTimeline::numbered(5, Arc::clone(&next)));
        let [first, second] = [0, 1]
            .map(|at| timelines[at].trace("here", Machine::Unit(UnitId(at as u16)), TraceDetail::Packets));
        let note = |to: &super::super::EventSink, flow, seq| {
            let place = FlowPlace { flow, epoch: None, seq: Some(seq) };
            to.note(9 - seq.min(9), place, Some(3), TimelineEvent::Processed {}); // Clocks may differ.
        };
        note(&first, None, 1); // Before the flow's first.
        note(&first, Some(FLOW), 2);
        note(&second, Some(OTHER), 3);
        note(&second, None, 4);
        note(&first, None, 5);
        note(&second, Some(FLOW), 6);
        let found = FlowTimeline::of(&timelines, FLOW, 10);
        assert_eq!((numbers(&found), found.overwritten), (vec![2, 4, 5, 6], 0));
        assert_eq!(numbers(&FlowTimeline::of(&timelines, FLOW, 2)), [5, 6]);
        let last = &found.rows[3];
        assert_eq!((&*last.host, last.role, last.pending), ("here", Machine::Unit(UnitId(1)), Some(3)));
        assert_eq!((&*last.event, &*last.details), ("processed", ""));
        (7..12).for_each(|seq| note(&first, Some(OTHER), seq));
        let found = FlowTimeline::of(&timelines, FLOW, 10);
        assert_eq!((numbers(&found), found.overwritten), (vec![6], 3));
    }

    #[test]
    fn lines_of_processes_are_in_the_order_of_their_times() {
        let of = |times: &[u64], host: &str| {
            let rows = times.iter().map(|&at_ns| TimelineRow {
                at_ns,
                host: host.to_owned(),
                role: Machine::Dispatcher,
                place: FlowPlace::NONE,
                pending: None,
                event: String::new(),
                details: String::new(),
            });
            FlowTimeline { rows: rows.collect(), overwritten: 2 }
        };
        let all = || vec![of(&[10, 30, 20], "a"), of(&[], "b"), of(&[5, 10, 25, 40], "c")];
        let shown = |timeline: &FlowTimeline| -> Vec<String> {
            timeline.rows.iter().map(|row| format!("{}{}", row.host, row.at_ns)).collect()
        };
        let merged = FlowTimeline::merged(all(), 100);
        assert_eq!(shown(&merged), ["c5", "a10", "c10", "c25", "a30", "a20", "c40"]);
        assert_eq!(merged.overwritten, 6);
        assert_eq!(shown(&FlowTimeline::merged(all(), 2)), ["a20", "c40"]);
        assert_eq!(FlowTimeline::merged(Vec::new(), 2), FlowTimeline::default());
    }
}
