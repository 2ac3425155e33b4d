//! The other units of a cluster, as a unit sees them: where they are, and what it waits for from
//! them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use protocol::message::{Epoch, FlowId, FromPeer, UnitId};
use runtime::transport::Mail;

use crate::network::Network;
use crate::peers::{PeerId, Peers};
use crate::wire::{ForwardCounts, PriorReport, ReportContext, UnitAddress, write_mail};

/// Limit on messages that wait for a unit to be connected.
const QUEUE_MAX: usize = 65_536;
/// Streams of a link between units: a flow's messages are in one.
const STREAMS: u32 = 64;

/// A node that has connected.
pub(super) struct EarlyPeer {
    pub peer: PeerId,
    /// The unit for which it, or this node, has begun the connection, and the unit that it means.
    pub units: (UnitId, UnitId),
    /// This node has begun the connection.
    pub is_client: bool,
}

/// The other units.
#[derive(Debug)]
pub(super) struct Others {
    own: UnitId,
    units: BTreeMap<UnitId, Other>,
    /// The answer in place of a unit that has died, and its receiver: this unit, or the one whose
    /// pull it has passed on.
    awaited: BTreeMap<(UnitId, FlowId, Epoch), (UnitId, FromPeer)>,
    /// The dispatcher has asked for what the unit has counted.
    pub owes_figures: bool,
    /// Packets that the unit has reported as processed.
    pub through: u64,
    /// Reports of other units that must take effect before the next one of this unit.
    priors: Vec<PriorReport>,
    /// Packets forwarded and received, by unit, also of units that are lost.
    forwards: BTreeMap<UnitId, ForwardCounts>,
    /// Units of which these have changed since the last report.
    changed: BTreeSet<UnitId>,
    /// Answers for other units, in place of units that are lost.
    passed_on: Vec<(UnitId, Mail)>,
}

#[derive(Debug)]
struct Other {
    state: Reach,
}

/// The way to a unit.
#[derive(Debug)]
enum Reach {
    /// It is not connected yet: messages wait.
    Pending(VecDeque<(u16, Vec<u8>)>),
    Up(PeerId),
    Dead,
}

impl Others {
    /// Creates those of a unit that knows no others yet.
    pub fn new(own: UnitId) -> Others {
        Others {
            own,
            units: BTreeMap::new(),
            awaited: BTreeMap::new(),
            owes_figures: false,
            through: 0,
            priors: Vec::new(),
            forwards: BTreeMap::new(),
            changed: BTreeSet::new(),
            passed_on: Vec::new(),
        }
    }

    /// Sets the units of the cluster. Returns those to connect to, the ones with lower numbers, and
    /// the answers in place of those that are not there any more.
    pub fn set(&mut self, units: Vec<UnitAddress>) -> (Vec<UnitAddress>, Vec<Mail>) {
        let own = self.own;
        let is_there = |unit: &UnitId| units.iter().any(|there| there.unit == *unit);
        let gone: Vec<UnitId> = self.units.keys().filter(|unit| !is_there(unit)).copied().collect();
        let answers = gone.into_iter().flat_map(|unit| self.bury(unit)).collect();
        let mut connect = Vec::new();
        for address in units {
            let unit = address.unit;
            if unit == own || self.units.contains_key(&unit) {
                continue;
            }
            self.units.insert(unit, Other { state: Reach::Pending(VecDeque::new()) });
            if unit < own {
                connect.push(address);
            }
        }
        (connect, answers)
    }

    /// A node is connected. Returns false if its unit is not known, or the connection was meant for
    /// another unit: one that was at this node before, or is not there yet.
    pub fn connected<N: Network>(&mut self, early: &EarlyPeer, peers: &mut Peers<N>) -> bool {
        let (from, to) = early.units;
        let (own, other) = if early.is_client { (from, to) } else { (to, from) };
        let waits = |other: &&mut Other| matches!(other.state, Reach::Pending(_));
        let Some(other) = self.units.get_mut(&other).filter(waits).filter(|_| own == self.own) else {
            return false;
        };
        let peer = early.peer;
        if let Reach::Pending(queue) = std::mem::replace(&mut other.state, Reach::Up(peer)) {
            queue.into_iter().for_each(|(stream, frame)| peers.send(peer, stream, |out| out.extend(frame)));
        }
        true
    }

    /// Returns true if a packet can be forwarded to a unit.
    pub fn reaches(&self, to: UnitId) -> bool {
        match self.units.get(&to).map(|other| &other.state) {
            None | Some(Reach::Dead) => false,
            Some(Reach::Pending(queue)) => queue.len() < QUEUE_MAX,
            Some(Reach::Up(_)) => true,
        }
    }

    /// Sends something to a unit. Returns the answer in its place if it is dead.
    pub fn send<N: Network>(&mut self, to: UnitId, mail: &Mail, peers: &mut Peers<N>) -> Option<Mail> {
        let (flow, answer) = match mail {
            Mail::Message(from, message) => (message.flow(), message.answer_for_lost_unit(*from)),
            Mail::Packet(stamp, _) => (stamp.flow, None),
        };
        let stream = 1 + (flow.index % STREAMS) as u16;
        let is_sent = match self.units.get_mut(&to).map(|other| &mut other.state) {
            None | Some(Reach::Dead) => false,
            Some(Reach::Up(peer)) => {
                peers.send(*peer, stream, |out| write_mail(out, mail, self.through));
                true
            }
            Some(Reach::Pending(queue)) if queue.len() < QUEUE_MAX => {
                let mut frame = Vec::new();
                write_mail(&mut frame, mail, self.through);
                queue.push_back((stream, frame));
                true
            }
            Some(Reach::Pending(_)) => false,
        };
        if !is_sent {
            return answer.and_then(|answer| self.answer_of(to, answer));
        }
        match mail {
            Mail::Packet(..) => self.change(to, |counts| counts.sent += 1),
            Mail::Message(_, message) => {
                let awaited = answer.zip(message.epoch_of_exchange());
                let awaited = awaited.map(|(answer, epoch)| ((to, flow, epoch), answer));
                self.awaited.extend(awaited);
            }
        }
        None
    }

    /// A unit has sent something about a flow, after it had reported this many packets.
    pub fn answered(&mut self, from: UnitId, message: &FromPeer, through: u64) {
        let brings_state = matches!(message, FromPeer::State { .. } | FromPeer::Replicate { .. })
            || matches!(message, FromPeer::Delta { .. } | FromPeer::Refuse { .. });
        if brings_state {
            match self.priors.iter_mut().find(|(unit, _)| *unit == from) {
                Some((_, of_last)) => *of_last = through.max(*of_last),
                None => self.priors.push((from, through)),
            }
        }
        let is_question = matches!(message, FromPeer::Pull { .. });
        if let Some(epoch) = message.epoch_of_exchange().filter(|_| !is_question) {
            self.awaited.remove(&(from, message.flow(), epoch));
        }
    }

    /// Returns the answer in place of a unit that is lost, if this unit waits for it. One that
    /// waits for another unit is passed on.
    fn answer_of(&mut self, lost: UnitId, (to, answer): (UnitId, FromPeer)) -> Option<Mail> {
        if to == self.own {
            return Some(Mail::Message(lost, answer));
        }
        self.passed_on.push((to, Mail::Message(self.own, answer)));
        None
    }

    /// Takes the next answer for another unit, in place of a unit that is lost.
    pub fn take_passed_on(&mut self) -> Option<(UnitId, Mail)> {
        self.passed_on.pop()
    }

    /// Notes a packet that was forwarded to this unit.
    pub fn received_from(&mut self, peer: PeerId) {
        let is_it = |other: &Other| matches!(other.state, Reach::Up(up) if up == peer);
        let from = self.units.iter().find(|(_, other)| is_it(other)).map(|(unit, _)| *unit);
        if let Some(from) = from {
            self.change(from, |counts| counts.received += 1);
        }
    }

    fn change(&mut self, unit: UnitId, change: impl FnOnce(&mut ForwardCounts)) {
        change(self.forwards.entry(unit).or_default());
        self.changed.insert(unit);
    }

    /// Returns whether there is something for the next report.
    pub fn has_context(&self) -> bool {
        !self.changed.is_empty()
    }

    /// Returns what the next report of this unit depends on.
    pub fn take_context(&mut self) -> ReportContext {
        let counts = |unit: &UnitId| (*unit, self.forwards.get(unit).copied().unwrap_or_default());
        let forwards = self.changed.iter().map(counts).collect();
        self.changed.clear();
        ReportContext { priors: std::mem::take(&mut self.priors), forwards }
    }

    /// A connected unit has died. Returns the answers in its place.
    pub fn lose(&mut self, peer: PeerId) -> Vec<Mail> {
        let is_it = |other: &Other| matches!(other.state, Reach::Up(up) if up == peer);
        let Some(unit) = self.units.iter().find(|(_, other)| is_it(other)).map(|(unit, _)| *unit) else {
            return Vec::new();
        };
        self.bury(unit)
    }

    /// A unit is dead. Returns the answers in its place.
    fn bury(&mut self, unit: UnitId) -> Vec<Mail> {
        let Some(other) = self.units.get_mut(&unit) else { return Vec::new() };
        if matches!(std::mem::replace(&mut other.state, Reach::Dead), Reach::Dead) {
            return Vec::new();
        }
        self.change(unit, |counts| counts.is_cut = true);
        let answers: Vec<_> = self.awaited.extract_if(.., |(of, ..), _| *of == unit).collect();
        answers.into_iter().filter_map(|(_, answer)| self.answer_of(unit, answer)).collect()
    }
}
