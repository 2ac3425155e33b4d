//! The ring of lines, and the way to it.

use std::collections::VecDeque;
use std::fmt::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::message::{FromUnit, UnitId, UnitMessage};

use super::event::TimelineEvent;
use super::line::{Machine, TimelineLine, heading};
use super::place::FlowPlace;
use super::summary::{MessagePeer, MessageSummary};

/// The last events of one or more machines. Machines of one thread share one, so that its lock is
/// free unless somebody reads the lines.
#[derive(Debug)]
pub struct EventTimeline {
    ring: Mutex<Ring>,
    /// The number of the next line, in all timelines that share it.
    next: Arc<AtomicU64>,
}

#[derive(Debug)]
struct Ring {
    entries: VecDeque<Entry>,
    lines_max: usize,
    /// Lines that others have replaced.
    overwritten: u64,
    /// Names of hosts, by number.
    hosts: Vec<String>,
    /// The time of all lines, if the driver sets it.
    now_ns: Option<u64>,
    in_flight: Option<usize>,
}

/// A line, with the number of its host.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    /// Its place among the lines of all timelines of the process.
    pub(super) number: u64,
    pub(super) at_ns: u64,
    host: u16,
    pub(super) role: Machine,
    pub(super) place: FlowPlace,
    pub(super) pending: Option<usize>,
    in_flight: Option<usize>,
    pub(super) event: TimelineEvent,
}

/// The kinds of events that a machine notes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceDetail {
    /// Transitions: messages, states, owners, and packets that are not processed at once.
    Transitions,
    /// These, and each packet.
    Packets,
}

impl EventTimeline {
    /// Creates a timeline that keeps this many lines, the last ones.
    pub fn new(lines_max: usize) -> Arc<EventTimeline> {
        EventTimeline::numbered(lines_max, Arc::default())
    }

    /// As [`new`](EventTimeline::new); `next` numbers the lines of all timelines with it in one
    /// order.
    pub fn numbered(lines_max: usize, next: Arc<AtomicU64>) -> Arc<EventTimeline> {
        let ring = Ring {
            entries: VecDeque::new(),
            lines_max: lines_max.max(1),
            overwritten: 0,
            hosts: Vec::new(),
            now_ns: None,
            in_flight: None,
        };
        Arc::new(EventTimeline { ring: Mutex::new(ring), next })
    }

    /// Returns the trace of a machine at a host.
    pub fn trace(self: &Arc<EventTimeline>, host: &str, role: Machine, detail: TraceDetail) -> EventSink {
        let mut ring = self.ring();
        let known = ring.hosts.iter().position(|known| known == host);
        let host = known.unwrap_or_else(|| {
            ring.hosts.push(host.to_owned());
            ring.hosts.len() - 1
        });
        let to = Destination { timeline: Arc::clone(self), host: host as u16, role };
        EventSink { to: Some(to), packets: detail == TraceDetail::Packets }
    }

    /// Sets the time of later lines: if hosts have different clocks, the driver has the true one.
    pub fn set_time(&self, now_ns: u64) {
        self.ring().now_ns = Some(now_ns);
    }

    /// Sets the number of packets and messages on their way, for later lines.
    pub fn set_in_flight(&self, count: usize) {
        self.ring().in_flight = Some(count);
    }

    /// Returns the lines that are kept, the oldest first.
    pub fn lines(&self) -> Vec<TimelineLine> {
        let ring = self.ring();
        ring.entries.iter().map(|entry| ring.line(entry)).collect()
    }

    /// Returns lines that are selected, with their hosts, the oldest first.
    pub(super) fn select(&self, is_selected: impl Fn(&Entry) -> bool) -> Vec<(Entry, String)> {
        let ring = self.ring();
        let selected = ring.entries.iter().filter(|entry| is_selected(entry));
        selected.map(|entry| (*entry, ring.hosts[usize::from(entry.host)].clone())).collect()
    }

    /// Returns the number of lines that later ones have replaced.
    pub fn overwritten(&self) -> u64 {
        self.ring().overwritten
    }

    /// Forgets all lines.
    pub fn clear(&self) {
        let mut ring = self.ring();
        ring.entries.clear();
        (ring.overwritten, ring.now_ns, ring.in_flight) = (0, None, None);
    }

    /// The ring is whole whatever happened to its last user.
    fn ring(&self) -> MutexGuard<'_, Ring> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Ring {
    fn line(&self, entry: &Entry) -> TimelineLine {
        TimelineLine {
            at_ns: entry.at_ns,
            host: self.hosts[usize::from(entry.host)].clone(),
            role: entry.role,
            place: entry.place,
            pending: entry.pending,
            in_flight: entry.in_flight,
            event: entry.event,
        }
    }
}

/// Writes the lines with their heading, and the number of those before.
impl fmt::Display for EventTimeline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let overwritten = self.overwritten();
        if overwritten > 0 {
            writeln!(f, "{overwritten} earlier lines are not shown.")?;
        }
        writeln!(f, "{}", heading())?;
        self.lines().iter().try_for_each(|line| writeln!(f, "{line}"))
    }
}

/// A machine's way to a timeline; by default there is none, and nothing is noted.
#[derive(Clone, Default)]
pub struct EventSink {
    to: Option<Destination>,
    packets: bool,
}

#[derive(Clone)]
struct Destination {
    timeline: Arc<EventTimeline>,
    host: u16,
    role: Machine,
}

impl fmt::Debug for EventSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::new();
        if let Some(to) = &self.to {
            write!(text, "{}", to.role)?;
        }
        f.debug_tuple("EventSink").field(&text).finish()
    }
}

impl EventSink {
    /// Returns true if events are noted.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.to.is_some()
    }

    /// Returns true if packets are noted that nothing else happens to.
    #[inline]
    pub fn has_packets(&self) -> bool {
        self.packets
    }

    /// Notes an event; `pending` is the number of packets that wait at the unit.
    #[inline]
    pub fn note(&self, at_ns: u64, place: FlowPlace, pending: Option<usize>, event: TimelineEvent) {
        if let Some(to) = &self.to {
            to.note(at_ns, place, pending, event);
        }
    }

    /// Notes a message that arrived at a unit, where `pending` packets wait.
    pub(crate) fn note_at_unit(&self, now_ns: u64, message: &UnitMessage, pending: usize) {
        if !self.is_on() {
            return;
        }
        let (message, from) = match message {
            UnitMessage::FromDispatcher(message) => (MessageSummary::from(message), MessagePeer::Dispatcher),
            UnitMessage::FromPeer(from, message) => (MessageSummary::from(message), MessagePeer::Unit(*from)),
        };
        self.note(now_ns, message.place(), Some(pending), TimelineEvent::Received { message, from });
    }

    /// Notes a message that arrived at the dispatcher.
    pub(crate) fn note_at_dispatcher(&self, now_ns: u64, from: UnitId, message: &FromUnit) {
        if self.is_on() {
            let message = MessageSummary::from(message);
            let event = TimelineEvent::Received { message, from: MessagePeer::Unit(from) };
            self.note(now_ns, message.place(), None, event);
        }
    }
}

impl Destination {
    #[cold]
    fn note(&self, at_ns: u64, place: FlowPlace, pending: Option<usize>, event: TimelineEvent) {
        let number = self.timeline.next.fetch_add(1, Ordering::Relaxed);
        let mut ring = self.timeline.ring();
        let (at_ns, in_flight) = (ring.now_ns.unwrap_or(at_ns), ring.in_flight);
        if ring.entries.len() >= ring.lines_max {
            ring.entries.pop_front();
            ring.overwritten += 1;
        }
        let Destination { host, role, .. } = *self;
        let entry = Entry { number, at_ns, host, role, place, pending, in_flight, event };
        ring.entries.push_back(entry);
    }
}
