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
    address: UnitAddress,
    state: Reach,
}

/// The way to a unit.
#[derive(Debug)]
enum Reach {
    /// It is not connected yet: messages wait.
    Pending(VecDeque<(u16, Vec<u8>)>),
    Up(PeerId),
    /// The link has died. Unless the unit is gone, it will be connected again.
    Cut,
    /// The dispatcher has it no more.
    Gone,
}

/// The consequences of another list of units.
#[derive(Debug, Default)]
pub(super) struct UnitChanges {
    /// Units to connect to: the ones with lower numbers.
    pub connect: Vec<UnitAddress>,
    /// Units that are gone, to which this one need not connect.
    pub forget: Vec<UnitAddress>,
    /// Answers in place of those that are gone.
    pub answers: Vec<Mail>,
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

    /// Sets the units of the cluster.
    pub fn set(&mut self, units: Vec<UnitAddress>) -> UnitChanges {
        let (own, mut changes) = (self.own, UnitChanges::default());
        let is_there = |unit: &UnitId| units.iter().any(|there| there.unit == *unit);
        let is_gone = |other: &Other| matches!(other.state, Reach::Gone);
        let known = self.units.iter().filter(|(unit, other)| !is_there(unit) && !is_gone(other));
        for unit in known.map(|(unit, _)| *unit).collect::<Vec<_>>() {
            changes.answers.extend(self.lose_unit(unit, Reach::Gone));
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
            self.units.insert(unit, Other { address, state: Reach::Pending(VecDeque::new()) });
        }
        changes
    }

    /// A node is connected. Returns `None` if its unit is not known, or the connection was meant
    /// for another unit: one that was at this node before, or is not there yet. If the unit had a
    /// link, the other end has found it dead: returns the answers that do not come by it any more.
    pub fn connected<N: Network>(&mut self, early: &EarlyPeer, peers: &mut Peers<N>) -> Option<Vec<Mail>> {
        let (from, to) = early.units;
        let (own, unit) = if early.is_client { (from, to) } else { (to, from) };
        let is_there = |other: &&Other| own == self.own && !matches!(other.state, Reach::Gone);
        self.units.get(&unit).filter(is_there)?;
        let had_link = matches!(self.units.get(&unit)?.state, Reach::Up(_));
        let answers = if had_link { self.lose_unit(unit, Reach::Cut) } else { Vec::new() };
        let (peer, other) = (early.peer, self.units.get_mut(&unit)?);
        if let Reach::Pending(queue) = std::mem::replace(&mut other.state, Reach::Up(peer)) {
            queue.into_iter().for_each(|(stream, frame)| peers.send(peer, stream, |out| out.extend(frame)));
        }
        Some(answers)
    }

    /// Returns true if a packet can be forwarded to a unit.
    pub fn reaches(&self, to: UnitId) -> bool {
        match self.units.get(&to).map(|other| &other.state) {
            None | Some(Reach::Cut | Reach::Gone) => false,
            Some(Reach::Pending(queue)) => queue.len() < QUEUE_MAX,
            Some(Reach::Up(_)) => true,
        }
    }

    /// Sends something to a unit. Returns the answer in its place if it cannot be reached.
    pub fn send<N: Network>(&mut self, to: UnitId, mail: &Mail, peers: &mut Peers<N>) -> Option<Mail> {
        let (flow, answer) = match mail {
            Mail::Message(from, message) => (message.flow(), message.answer_for_lost_unit(*from)),
            Mail::Packet(stamp, _) => (stamp.flow, None),
        };
        let stream = 1 + (flow.index % STREAMS) as u16;
        let is_sent = match self.units.get_mut(&to).map(|other| &mut other.state) {
            None | Some(Reach::Cut | Reach::Gone) => false,
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

    /// A link has died. Returns the unit behind it, if this one must connect to it again, and the
    /// answers in its place.
    pub fn lose(&mut self, peer: PeerId) -> (Option<UnitAddress>, Vec<Mail>) {
        let is_it = |other: &Other| matches!(other.state, Reach::Up(up) if up == peer);
        let Some((&unit, other)) = self.units.iter().find(|(_, other)| is_it(other)) else {
            return (None, Vec::new());
        };
        let again = (unit < self.own).then(|| other.address.clone());
        (again, self.lose_unit(unit, Reach::Cut))
    }

    /// A unit cannot be reached. Returns the answers in its place.
    fn lose_unit(&mut self, unit: UnitId, state: Reach) -> Vec<Mail> {
        let Some(other) = self.units.get_mut(&unit) else { return Vec::new() };
        if matches!(std::mem::replace(&mut other.state, state), Reach::Cut | Reach::Gone) {
            return Vec::new();
        }
        // Packets on their way are counted as lost until they have come.
        self.change(unit, |counts| counts.is_cut = true);
        let answers: Vec<_> = self.awaited.extract_if(.., |(of, ..), _| *of == unit).collect();
        answers.into_iter().filter_map(|(_, answer)| self.answer_of(unit, answer)).collect()
    }
}
