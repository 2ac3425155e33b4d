//! The other units of a cluster from one unit's point of view: their addresses, and pending
//! exchanges with them.
//!
//! Units that lose the link between them, but not the dispatcher, relay through it until they are
//! connected again. The ownership protocol retransmits messages that were lost with the link.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use protocol::message::{Epoch, FlowId, FromPeer, UnitId};
use runtime::transport::Mail;

use crate::network::Network;
use crate::peers::{ORDERED, PeerId, Peers, stream_of};
use crate::wire::{ForwardCounts, PriorReport, ReportContext, UnitAddress, begin_relay, write_mail};

/// Limit on frames that wait for a connection to a unit; beyond it, they are relayed through the
/// dispatcher.
const PENDING_MAX: usize = 65_536;
/// Limit on the time that they wait.
const PENDING_MAX_NS: u64 = 1_000_000_000;

/// A connected node that is not attached to a unit yet.
pub(super) struct EarlyPeer {
    pub peer: PeerId,
    /// Incarnation of the dispatcher that assigned the connecting unit.
    pub incarnation: u64,
    /// The connecting unit, and the unit that it addresses.
    pub units: (UnitId, UnitId),
    /// True if this node has initiated the connection.
    pub is_client: bool,
}

/// The other units.
#[derive(Debug)]
pub(super) struct Others {
    own: UnitId,
    units: BTreeMap<UnitId, Other>,
    /// The answer to synthesize if a unit dies, and its receiver: this unit, or the sender of the
    /// pull that this unit has forwarded.
    awaited: BTreeMap<(UnitId, FlowId, Epoch), (UnitId, FromPeer)>,
    /// The dispatcher has requested the unit's figures.
    pub figures_due: bool,
    /// Packets that the unit has reported as processed.
    pub through: u64,
    /// The unit has sent flow state: reports of the new owners depend on its next complete report.
    is_awaited: bool,
    /// Reports of other units that the next report of this unit depends on.
    priors: Vec<PriorReport>,
    /// Packets forwarded and received, by unit, including lost units.
    forwards: BTreeMap<UnitId, ForwardCounts>,
    /// Units with changed counts since the last report.
    changed: BTreeSet<UnitId>,
    /// Synthesized answers for other units, in place of lost units.
    passed_on: Vec<(UnitId, Mail)>,
}

#[derive(Debug)]
struct Other {
    address: UnitAddress,
    state: Reach,
}

/// State of the path to a unit.
#[derive(Debug)]
enum Reach {
    /// Not connected yet, since this time; frames wait, each with its stream.
    Pending {
        since_ns: u64,
        frames: VecDeque<(u16, Vec<u8>)>,
    },
    Up(PeerId),
    /// The link has died or was never established; frames are relayed through the dispatcher until
    /// the two are connected.
    Cut,
    /// The dispatcher no longer has the unit.
    Gone,
}

/// Consequences of a new list of units.
#[derive(Debug, Default)]
pub(super) struct UnitChanges {
    /// Units to connect to: those with lower numbers.
    pub connect: Vec<UnitAddress>,
    /// Units that are gone; attempts to connect to them must stop.
    pub forget: Vec<UnitAddress>,
    /// Synthesized answers in place of units that are gone.
    pub answers: Vec<Mail>,
}

impl Others {
    /// Creates the table of a unit that knows no others yet.
    pub fn new(own: UnitId) -> Others {
        Others {
            own,
            units: BTreeMap::new(),
            awaited: BTreeMap::new(),
            figures_due: false,
            through: 0,
            is_awaited: false,
            priors: Vec::new(),
            forwards: BTreeMap::new(),
            changed: BTreeSet::new(),
            passed_on: Vec::new(),
        }
    }

    /// Replaces the list of the cluster's units.
    pub fn set(&mut self, units: Vec<UnitAddress>, now_ns: u64) -> UnitChanges {
        let (own, mut changes) = (self.own, UnitChanges::default());
        let is_there = |unit: &UnitId| units.iter().any(|there| there.unit == *unit);
        let is_gone = |other: &Other| matches!(other.state, Reach::Gone);
        let known = self.units.iter().filter(|(unit, other)| !is_there(unit) && !is_gone(other));
        for unit in known.map(|(unit, _)| *unit).collect::<Vec<_>>() {
            changes.answers.extend(self.end(unit));
            changes.forget.extend(self.units.get(&unit).map(|other| other.address.clone()));
        }
        for address in units {
            let unit = address.unit;
            if unit == own || self.units.contains_key(&unit) {
                continue;
            }
            if unit < own {
                changes.connect.push(address.clone());
            }
            let state = Reach::Pending { since_ns: now_ns, frames: VecDeque::new() };
            self.units.insert(unit, Other { address, state });
        }
        changes
    }

    /// Attaches a connected node. Returns false if its unit is unknown, or if the connection
    /// addresses another unit, which was at this node before or is not there yet.
    pub fn connected<N: Network>(&mut self, early: &EarlyPeer, peers: &mut Peers<N>) -> bool {
        if !early.is_client && !peers.is_up(early.peer) {
            return false; // The other end may have abandoned the handshake.
        }
        let (from, to) = early.units;
        let (own, unit) = if early.is_client { (from, to) } else { (to, from) };
        let is_there = |other: &&mut Other| own == self.own && !matches!(other.state, Reach::Gone);
        let Some(other) = self.units.get_mut(&unit).filter(is_there) else { return false };
        let peer = early.peer;
        match std::mem::replace(&mut other.state, Reach::Up(peer)) {
            Reach::Pending { frames, .. } => {
                frames
                    .into_iter()
                    .for_each(|(stream, frame)| peers.send(peer, stream, |out| out.extend(frame)));
            }
            // The other end has found the former link dead.
            Reach::Up(_) => self.cut(unit),
            Reach::Cut | Reach::Gone => {}
        }
        true
    }

    /// Returns true if a packet can be forwarded to a unit.
    pub fn reaches(&self, to: UnitId) -> bool {
        self.units.get(&to).is_some_and(|other| !matches!(other.state, Reach::Gone))
    }

    /// Sends a message or packet to a unit at a time of the dispatcher's clock, through the
    /// dispatcher if necessary. Returns the synthesized answer if the unit is gone.
    pub fn send<N: Network>(
        &mut self,
        (to, now_ns): (UnitId, u64),
        mail: &Mail,
        dispatcher: Option<PeerId>,
        peers: &mut Peers<N>,
    ) -> Option<Mail> {
        let (flow, answer) = match mail {
            Mail::Message(from, message) => (message.flow(), message.answer_for_lost_unit(*from)),
            Mail::Packet(stamp, _) => (stamp.flow, None),
        };
        let (stream, through) = (stream_of(flow.index.into()), self.through);
        let write = |out: &mut Vec<u8>| write_mail(out, mail, through, now_ns);
        match self.units.get_mut(&to).map(|other| &mut other.state) {
            None | Some(Reach::Gone) => return answer.and_then(|answer| self.answer_of(to, answer)),
            Some(Reach::Up(peer)) => peers.send(*peer, stream, write),
            Some(Reach::Pending { frames, .. }) => {
                let mut frame = Vec::new();
                write(&mut frame);
                frames.push_back((stream, frame));
                if frames.len() >= PENDING_MAX {
                    self.wait_no_longer(to, dispatcher, peers);
                }
            }
            Some(Reach::Cut) => relay(to, write, dispatcher, peers),
        }
        match mail {
            Mail::Packet(..) => self.change(to, |counts| counts.sent += 1),
            Mail::Message(_, message) => {
                self.is_awaited |= message.state_bytes().is_some();
                let awaited = answer.zip(message.epoch_of_exchange());
                let awaited = awaited.map(|(answer, epoch)| ((to, flow, epoch), answer));
                self.awaited.extend(awaited);
            }
        }
        None
    }

    /// Relays frames that have waited too long for a connection.
    pub fn handle_timeout<N: Network>(
        &mut self,
        now_ns: u64,
        dispatcher: Option<PeerId>,
        peers: &mut Peers<N>,
    ) {
        let is_late = |other: &Other| match &other.state {
            Reach::Pending { since_ns, .. } => now_ns.saturating_sub(*since_ns) >= PENDING_MAX_NS,
            Reach::Up(_) | Reach::Cut | Reach::Gone => false,
        };
        while let Some(unit) = self.units.iter().find(|(_, other)| is_late(other)).map(|(unit, _)| *unit) {
            self.wait_no_longer(unit, dispatcher, peers);
        }
    }

    fn wait_no_longer<N: Network>(&mut self, unit: UnitId, dispatcher: Option<PeerId>, peers: &mut Peers<N>) {
        let Some(other) = self.units.get_mut(&unit) else { return };
        if let Reach::Pending { frames, .. } = std::mem::replace(&mut other.state, Reach::Cut) {
            for (_, frame) in frames {
                relay(unit, |out| out.extend(frame), dispatcher, peers);
            }
        }
    }

    /// Notes a message of another unit about a flow, sent after the unit had reported `through`
    /// packets.
    pub fn answered(&mut self, from: UnitId, message: &FromPeer, through: u64) {
        if message.state_bytes().is_some() {
            match self.priors.iter_mut().find(|(unit, _)| *unit == from) {
                Some((_, of_last)) => *of_last = through.max(*of_last),
                None => self.priors.push((from, through)),
            }
        }
        let is_question = matches!(message, FromPeer::Pull { .. } | FromPeer::Seek { .. });
        if let Some(epoch) = message.epoch_of_exchange().filter(|_| !is_question) {
            self.awaited.remove(&(from, message.flow(), epoch));
        }
    }

    /// Returns the synthesized answer in place of a lost unit, if this unit waits for it. An answer
    /// for another unit is queued for forwarding.
    fn answer_of(&mut self, lost: UnitId, (to, answer): (UnitId, FromPeer)) -> Option<Mail> {
        if to == self.own {
            return Some(Mail::Message(lost, answer));
        }
        self.passed_on.push((to, Mail::Message(self.own, answer)));
        None
    }

    /// Takes the next synthesized answer for another unit.
    pub fn take_passed_on(&mut self) -> Option<(UnitId, Mail)> {
        self.passed_on.pop()
    }

    /// Returns true if all other units are reachable over sound links.
    pub fn are_reached<N: Network>(&self, peers: &Peers<N>) -> bool {
        self.units.values().all(|other| match other.state {
            Reach::Up(peer) => peers.is_sound(peer),
            Reach::Pending { .. } | Reach::Cut => false,
            Reach::Gone => true,
        })
    }

    /// Returns the unit at the other end of a link.
    pub fn at(&self, peer: PeerId) -> Option<UnitId> {
        let is_it = |other: &Other| matches!(other.state, Reach::Up(up) if up == peer);
        self.units.iter().find(|(_, other)| is_it(other)).map(|(unit, _)| *unit)
    }

    /// Counts a packet that was forwarded to this unit.
    pub fn received_from(&mut self, from: UnitId) {
        self.change(from, |counts| counts.received += 1);
    }

    fn change(&mut self, unit: UnitId, change: impl FnOnce(&mut ForwardCounts)) {
        change(self.forwards.entry(unit).or_default());
        self.changed.insert(unit);
    }

    /// Returns true if there is context for the next report.
    pub fn has_context(&self) -> bool {
        !self.changed.is_empty() || self.is_awaited
    }

    /// Takes the context of this unit's next report.
    pub fn take_context(&mut self) -> ReportContext {
        let counts = |unit: &UnitId| (*unit, self.forwards.get(unit).copied().unwrap_or_default());
        let forwards: Vec<_> = self.changed.iter().map(counts).collect();
        self.changed.clear();
        let priors = std::mem::take(&mut self.priors);
        let is_awaited = std::mem::take(&mut self.is_awaited);
        let is_complete = is_awaited || !priors.is_empty() || !forwards.is_empty();
        ReportContext { priors, forwards, is_complete }
    }

    /// Handles a dead link. Returns the unit at its other end if this one must reconnect to it.
    pub fn disconnect(&mut self, peer: PeerId) -> Option<UnitAddress> {
        let unit = self.at(peer)?;
        self.cut(unit);
        let other = self.units.get_mut(&unit)?;
        other.state = Reach::Cut;
        (unit < self.own).then(|| other.address.clone())
    }

    /// Counts packets in flight on a link as lost until they arrive.
    fn cut(&mut self, unit: UnitId) {
        self.change(unit, |counts| counts.is_cut = true);
    }

    /// Marks a unit as gone. Returns the synthesized answers in its place.
    fn end(&mut self, unit: UnitId) -> Vec<Mail> {
        self.cut(unit);
        let Some(other) = self.units.get_mut(&unit) else { return Vec::new() };
        other.state = Reach::Gone;
        let answers: Vec<_> = self.awaited.extract_if(.., |(of, ..), _| *of == unit).collect();
        answers.into_iter().filter_map(|(_, answer)| self.answer_of(unit, answer)).collect()
    }
}

/// Relays a frame to a unit through the dispatcher. Without a dispatcher, this unit ends anyway.
fn relay<N: Network>(
    to: UnitId,
    write: impl FnOnce(&mut Vec<u8>),
    dispatcher: Option<PeerId>,
    peers: &mut Peers<N>,
) {
    let Some(dispatcher) = dispatcher else { return };
    peers.send(dispatcher, ORDERED, |out| {
        begin_relay(out, to);
        write(out);
    });
}
