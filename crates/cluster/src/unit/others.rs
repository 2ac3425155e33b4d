//! The other units of a cluster, as a unit sees them: where they are, and what it waits for from
//! them.

use std::collections::{BTreeMap, HashMap, VecDeque};

use protocol::message::{FlowId, FromPeer, UnitId};
use runtime::transport::Mail;

use crate::peers::{PeerId, Peers};
use crate::wire::{PriorReport, UnitAddress, write_mail};

/// Limit on messages that wait for a unit to be connected.
const QUEUE_MAX: usize = 65_536;
/// Streams of a link between units: a flow's messages are in one.
const STREAMS: u32 = 64;

/// The other units.
#[derive(Default)]
pub(super) struct Others {
    units: BTreeMap<UnitId, Other>,
    /// The answer in place of a unit that has died, by unit and flow.
    awaited: HashMap<(UnitId, FlowId), FromPeer>,
    /// The dispatcher has asked for what the unit has counted.
    pub owes_figures: bool,
    /// Packets that the unit has reported as processed.
    pub through: u64,
    /// Reports of other units that must take effect before the next one of this unit.
    priors: Vec<PriorReport>,
}

struct Other {
    name: String,
    state: Reach,
}

/// The way to a unit.
enum Reach {
    /// It is not connected yet: messages wait.
    Pending(VecDeque<(u16, Vec<u8>)>),
    Up(PeerId),
    Dead,
}

impl Others {
    /// Sets the units of the cluster. Returns those to connect to, the ones with lower numbers, and
    /// the answers in place of those that are not there any more.
    pub fn set(&mut self, own: UnitId, units: Vec<UnitAddress>) -> (Vec<(String, String)>, Vec<Mail>) {
        let is_there = |unit: &UnitId| units.iter().any(|there| there.unit == *unit);
        let gone: Vec<UnitId> = self.units.keys().filter(|unit| !is_there(unit)).copied().collect();
        let answers = gone.into_iter().flat_map(|unit| self.bury(unit)).collect();
        let mut connect = Vec::new();
        for UnitAddress { unit, name, address } in units {
            if unit == own || self.units.contains_key(&unit) {
                continue;
            }
            if unit < own {
                connect.push((name.clone(), address));
            }
            self.units.insert(unit, Other { name, state: Reach::Pending(VecDeque::new()) });
        }
        (connect, answers)
    }

    /// A node of this name is connected. Returns false if it is not known which unit it is.
    pub fn connected(&mut self, name: &str, peer: PeerId, peers: &mut Peers) -> bool {
        let waits = |other: &&mut Other| other.name == name && matches!(other.state, Reach::Pending(_));
        let Some(other) = self.units.values_mut().rev().find(waits) else { return false };
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
    pub fn send(&mut self, to: UnitId, mail: &Mail, peers: &mut Peers) -> Option<Mail> {
        let (flow, answer) = match mail {
            Mail::Message(from, message) => (message.flow(), message.answer_for_lost_unit(*from)),
            Mail::Packet(stamp, _) => (stamp.flow, None),
        };
        let stream = 1 + (flow.index % STREAMS) as u16;
        let answer = answer.map(|(_, answer)| answer);
        match self.units.get_mut(&to).map(|other| &mut other.state) {
            None | Some(Reach::Dead) => return answer.map(|answer| Mail::Message(to, answer)),
            Some(Reach::Up(peer)) => peers.send(*peer, stream, |out| write_mail(out, mail, self.through)),
            Some(Reach::Pending(queue)) if queue.len() < QUEUE_MAX => {
                let mut frame = Vec::new();
                write_mail(&mut frame, mail, self.through);
                queue.push_back((stream, frame));
            }
            Some(Reach::Pending(_)) => return answer.map(|answer| Mail::Message(to, answer)),
        }
        if let Some(answer) = answer {
            self.awaited.insert((to, flow), answer);
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
        let is_answer = matches!(
            message,
            FromPeer::State { .. }
                | FromPeer::StateAck { .. }
                | FromPeer::End { .. }
                | FromPeer::Refuse { .. }
        );
        if is_answer {
            self.awaited.remove(&(from, message.flow()));
        }
    }

    /// Returns the reports that must take effect before the next one of this unit.
    pub fn take_priors(&mut self) -> Vec<PriorReport> {
        std::mem::take(&mut self.priors)
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
        if let Some(other) = self.units.get_mut(&unit) {
            other.state = Reach::Dead;
        }
        let answers = self.awaited.extract_if(|(of, _), _| *of == unit);
        answers.map(|(_, answer)| Mail::Message(unit, answer)).collect()
    }
}
