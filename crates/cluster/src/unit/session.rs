//! A unit's session with one dispatcher.

use std::sync::Arc;

use protocol::message::UnitId;
use protocol::trace::{EventTimeline, FlowTimeline};
use runtime::report::Report;
use runtime::timeline::LINES_KEPT;
use telemetry::{Merge, event};

use super::EffectsTaker;
use super::others::EarlyPeer;
use super::running::Running;
use super::scope::Scope;
use crate::network::Network;
use crate::peers::{GIVE_UP_MIN, ORDERED, PeerId, Peers};
use crate::policies::GraphMaker;
use crate::wire::{Assignment, TimelineQuestion, UnitAddress, UnitFigures, write_gone, write_leave};

/// Limit on the time for a unit to hand its flows over before it ends.
const LEAVE_MAX_NS: u64 = 10_000_000_000;
/// Time during which a unit without flows still forwards packets in flight to it.
const LINGER_NS: u64 = 500_000_000;
/// The same if some units are unreachable: messages lost with a link are repeated within it.
const LINGER_APART_NS: u64 = 2 * GIVE_UP_MIN.as_nanos() as u64;

/// A unit's session with one dispatcher.
pub(super) struct DispatcherSession {
    /// Name of the dispatcher.
    pub name: String,
    /// Latest incarnation of the dispatcher.
    pub incarnation: u64,
    /// Links of the dispatcher that have carried no datagram yet, with their incarnations.
    pub candidates: Vec<(PeerId, u64)>,
    /// Link in use, if connected.
    pub dispatcher: Option<PeerId>,
    /// The unit, once it is assigned.
    pub unit: Option<Running>,
    /// Counters of its former units.
    former: Report,
    /// Connected nodes that are not attached to a unit yet.
    pub early: Vec<EarlyPeer>,
    renewal: Renewal,
    /// Events of its units, if the dispatcher keeps a timeline.
    timeline: Option<Arc<EventTimeline>>,
    /// Time at which a process without a unit announced its end.
    goodbye_ns: Option<u64>,
}

/// Progress of a unit that is replaced by another one in the same process, as for another policy:
/// it leaves, and the dispatcher takes the node back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Renewal {
    /// The policy stays.
    #[default]
    None,
    /// The unit hands its flows over.
    Leaving,
    /// The last message is in flight.
    Parting,
}

impl DispatcherSession {
    /// Creates a session without a link.
    pub fn new(name: &str) -> DispatcherSession {
        DispatcherSession {
            name: name.to_owned(),
            incarnation: 0,
            candidates: Vec::new(),
            dispatcher: None,
            unit: None,
            former: Report::default(),
            early: Vec::new(),
            renewal: Renewal::None,
            timeline: None,
            goodbye_ns: None,
        }
    }

    /// Takes a candidate link that is in use now. Returns its incarnation; `None` if it is no
    /// candidate.
    pub fn take_candidate(&mut self, peer: PeerId) -> Option<u64> {
        let at = self.candidates.iter().position(|(candidate, _)| *candidate == peer)?;
        Some(self.candidates.swap_remove(at).1)
    }

    /// Returns true if the dispatcher uses the unit and has not drained it.
    pub fn is_at_work(&self) -> bool {
        self.dispatcher.is_some() && self.unit.as_ref().is_some_and(|unit| unit.drained_ns.is_none())
    }

    /// Describes what the unit waits for, for an error report.
    pub fn description(&self) -> String {
        let Some(unit) = &self.unit else { return "no unit".to_owned() };
        let counters = unit.end.counters();
        format!(
            "{:?}, {:?}, processed: {}, pulls: {}, taken: {}, lost: {}",
            unit.id,
            unit.others,
            counters.processed,
            counters.pulls_sent,
            counters.states_taken,
            counters.states_lost
        )
    }

    /// Returns the unit's figures; `None` before it is assigned.
    pub fn figures(&self) -> Option<UnitFigures> {
        self.unit.as_ref().map(Running::figures)
    }

    /// Returns the report of the unit's graph, with these names for its functions. Packets and
    /// flows of former units are included, counters of their functions are not: the functions may
    /// differ.
    pub fn report(&self, policy: &str, names: &[String]) -> Option<Report> {
        let unit = self.unit.as_ref()?;
        let mut report = Report::of(policy, None, unit.end.graph(), names);
        [report.alerts, report.events] = unit.raised;
        report.merge(&self.former);
        // Only the dispatcher counts arrivals; here they follow from the results.
        report.packets_in = report.packets_out + report.dropped() + report.packets_pending;
        report.packets_in = report.packets_in.saturating_sub(report.packets_generated);
        Some(report)
    }

    /// Returns the time until a deadline passes.
    pub fn sleep_ns(&self) -> u64 {
        self.unit.as_ref().map_or(u64::MAX, Running::sleep_ns)
    }

    /// Returns true once the dispatcher has ended the run and has acknowledged that of all units.
    /// Until then another unit may need a message that this one relays.
    pub fn has_ended<N: Network>(&self, peers: &Peers<N>) -> bool {
        let is_heard = self.dispatcher.is_none_or(|dispatcher| peers.is_flushed(dispatcher));
        let is_over = |unit: &Running| unit.has_finished && unit.drained_ns.is_some();
        let is_left = self.dispatcher.is_none();
        is_heard && self.unit.as_ref().is_some_and(|unit| is_over(unit) || is_left && unit.has_finished)
    }

    /// Announces to the dispatcher that this unit, or the process if there is none, leaves. Returns
    /// true once its flows are gone, if there is no dispatcher, or after a timeout.
    pub fn has_left<N: Network>(&mut self, peers: &mut Peers<N>) -> bool {
        let now_ns = peers.now_ns();
        let Some(dispatcher) = self.dispatcher else { return true };
        let asked_ns = match &mut self.unit {
            Some(unit) => &mut unit.leaving_ns,
            None => &mut self.goodbye_ns,
        };
        let Some(since_ns) = *asked_ns else {
            *asked_ns = Some(now_ns);
            peers.send(dispatcher, ORDERED, write_leave);
            return false;
        };
        if now_ns - since_ns >= LEAVE_MAX_NS {
            return true;
        }
        let Some(unit) = &self.unit else {
            return peers.is_flushed(dispatcher) || peers.is_suspect(dispatcher);
        };
        // Packets in flight to the unit are forwarded for a while.
        let linger_ns = if unit.others.are_reached(peers) { LINGER_NS } else { LINGER_APART_NS };
        unit.drained_ns.is_some_and(|at_ns| now_ns - at_ns >= linger_ns) && peers.is_flushed(dispatcher)
    }

    /// Returns true if a link is to a unit that the dispatcher no longer has: it may end.
    pub fn has_parted_with(&self, peer: PeerId) -> bool {
        let is_other = self.dispatcher != Some(peer) && self.early.iter().all(|early| early.peer != peer);
        is_other && self.unit.as_ref().is_none_or(|unit| unit.others.at(peer).is_none())
    }

    /// Begins the renewal: the unit leaves, if it is not drained yet, and is assigned again.
    pub fn begin_renewal(&mut self) {
        self.renewal = Renewal::Leaving;
    }

    /// Hands the unit's flows over during a renewal. Returns true once the dispatcher has
    /// acknowledged the last message, or is lost: then the links must be removed. A dispatcher that
    /// connects again has received that message, too, and acknowledges nothing more on the former
    /// link.
    pub fn has_parted<N: Network>(&mut self, peers: &mut Peers<N>) -> bool {
        if self.renewal == Renewal::Leaving && (self.unit.is_none() || self.has_left(peers)) {
            self.renewal = Renewal::Parting;
            if let Some(dispatcher) = self.dispatcher {
                peers.send(dispatcher, ORDERED, write_gone);
                return false;
            }
        }
        let is_heard = self.dispatcher.is_none_or(|dispatcher| peers.is_flushed(dispatcher));
        self.renewal == Renewal::Parting && is_heard
    }

    /// Returns true if the last message is in flight to the dispatcher.
    pub fn is_parting(&self) -> bool {
        self.renewal == Renewal::Parting
    }

    /// Ends the unit, after the links of this dispatcher have ended.
    pub fn end_renewal(&mut self) {
        if let Some(unit) = self.unit.take() {
            self.retire(&unit);
        }
        (self.dispatcher, self.renewal) = (None, Renewal::None);
        self.early.clear();
        self.candidates.clear();
    }

    /// Returns true if the unit has ended its flows at the end of the run.
    pub fn has_finished(&self) -> bool {
        self.unit.as_ref().is_some_and(|unit| unit.has_finished)
    }

    /// Forgets the links of the dispatcher's run, which have ended.
    pub fn end_run(&mut self) {
        self.dispatcher = None;
        self.early.retain(|early| early.incarnation != self.incarnation);
        self.candidates.retain(|(_, incarnation)| *incarnation != self.incarnation);
    }

    /// Begins a run: retires a unit that has finished. Another process of the dispatcher has other
    /// flows.
    pub fn begin_run(&mut self, is_another: bool) {
        self.timeline.take_if(|_| is_another);
        if let Some(unit) = self.unit.take_if(|unit| unit.has_finished) {
            self.retire(&unit);
        }
    }

    /// Keeps the counters of a unit that ends before its process.
    fn retire(&mut self, unit: &Running) {
        unit.figures().add_to(&mut self.former);
        self.former.alerts += unit.raised[0];
        self.former.events += unit.raised[1];
        self.former.packets_pending = 0;
        self.former.flows.live = 0;
    }

    /// Makes the unit.
    pub fn assign(&mut self, assignment: &Assignment, make: &mut GraphMaker, stopwatch: fn() -> u64) {
        if assignment.keeps_timeline {
            self.timeline.get_or_insert_with(|| EventTimeline::new(LINES_KEPT));
        }
        match Running::new(assignment, make, stopwatch, self.timeline.as_ref()) {
            Ok(unit) => self.unit = Some(unit),
            Err(reason) => {
                event::peer_refused(&self.name, &format_args!("cannot make the unit's graph: {reason}"))
            }
        }
    }

    /// Returns the last lines of a flow; none if the units keep no timeline.
    pub fn timeline_of(&self, question: &TimelineQuestion) -> FlowTimeline {
        FlowTimeline::of(self.timeline.as_slice(), question.flow, question.lines_max as usize)
    }

    /// Returns the scope of a link between two units of this dispatcher.
    pub fn scope(&self, from: UnitId, to: UnitId) -> Scope<'_> {
        Scope { dispatcher: &self.name, incarnation: self.incarnation, from, to }
    }

    /// Attaches connected units to their numbers, where these are known. Returns their links. Units
    /// of another incarnation of the dispatcher wait until it has assigned this node, too.
    pub fn attach_early_peers<N: Network>(&mut self, peers: &mut Peers<N>) -> Vec<PeerId> {
        let Some(unit) = &mut self.unit else { return Vec::new() };
        let mut attached = Vec::new();
        self.early.retain(|early| {
            let is_attached = early.incarnation == self.incarnation && unit.others.connected(early, peers);
            attached.extend(is_attached.then_some(early.peer));
            !is_attached
        });
        attached
    }

    /// Handles the loss of a link. Returns the unit that this one must reconnect to, with its own
    /// number.
    pub fn disconnect<N: Network>(
        &mut self,
        peer: PeerId,
        peers: &mut Peers<N>,
        effects: &mut EffectsTaker,
    ) -> Option<(UnitId, UnitAddress)> {
        if self.take_candidate(peer).is_some() {
            return None;
        }
        if self.dispatcher == Some(peer) {
            // The dispatcher's next process does not know this unit's flows.
            (self.dispatcher, self.renewal) = (None, Renewal::None);
            if let Some(mut unit) = self.unit.take_if(|unit| !unit.has_finished) {
                while !unit.end.end_flows() {}
                unit.send(None, peers, effects);
                self.retire(&unit);
            }
            return None;
        }
        self.early.retain(|early| early.peer != peer);
        let unit = self.unit.as_mut()?;
        unit.others.disconnect(peer).map(|address| (unit.id, address))
    }
}
