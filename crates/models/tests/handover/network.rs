//! The model's actions: steps of the outer world, arrivals, faults and timers.

use protocol::message::{Epoch, FromDispatcher, Stamp};
use stateright::{Model, Property};

use crate::common::world::Item;
use crate::invariants;
use crate::situation::{AGAIN_NS, Situation, Step};

/// Faults, and how many of each may happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Faults {
    /// Packets of the dispatcher that are lost.
    pub lost: u8,
    /// Packets, and messages of units, that arrive twice.
    pub twice: u8,
    /// Messages of units that are lost.
    pub mute: u8,
    /// Retransmissions before what they repeat has arrived.
    pub early: u8,
}

/// A rule that the model breaks, so that the checker must find a violation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlantedFault {
    None,
    /// The second change of owner does not raise the epoch.
    EpochKept,
    /// `Release` and `Adopt` are lost, although the dispatcher's messages must arrive.
    MoveLost,
    /// The transport does not answer in the place of a lost unit.
    LostUnitSilent,
    /// A unit that has crashed continues under its number, without its flows.
    NumberReused,
}

/// The model.
#[derive(Clone, Debug)]
pub struct Handover {
    pub steps: &'static [Step],
    pub units: u16,
    pub faults: Faults,
    /// No gap is ever given up.
    pub is_patient: bool,
    pub planted: PlantedFault,
}

/// An action. Parcels are named by their places on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    Step(Step),
    Arrive(usize),
    ArriveTwice(usize),
    Lose(usize),
    Report(usize),
    LoseReport(usize),
    Timer,
}

impl Model for Handover {
    type State = Situation;
    type Action = Action;

    fn init_states(&self) -> Vec<Situation> {
        vec![Situation::new(self)]
    }

    fn actions(&self, situation: &Situation, actions: &mut Vec<Action>) {
        let Situation { world, faults, steps, crashed, .. } = situation;
        actions.extend(self.steps.get(*steps).map(|step| Action::Step(*step)));
        for (at, parcel) in world.wire.iter().enumerate() {
            // The dispatcher's messages and packets to a unit stay in order.
            if parcel.from.is_none() && !world.is_first(at) || crashed.contains(&parcel.to) {
                continue;
            }
            actions.push(Action::Arrive(at));
            let is_packet = matches!(parcel.item, Item::Packet(..));
            let is_peers = parcel.from.is_some();
            if (is_packet || is_peers) && faults.twice > 0 {
                actions.push(Action::ArriveTwice(at));
            }
            let may_be_lost =
                if is_peers { faults.mute > 0 && !is_packet } else { faults.lost > 0 && is_packet };
            if may_be_lost {
                actions.push(Action::Lose(at));
            }
        }
        for (at, (unit, _)) in world.to_dispatcher.iter().enumerate() {
            if world.to_dispatcher.iter().position(|(from, _)| from == unit) == Some(at) {
                actions.push(Action::Report(at));
                if faults.mute > 0 {
                    actions.push(Action::LoseReport(at));
                }
            }
        }
        let is_early = !world.wire.is_empty() && world.next_timeout_ns() > AGAIN_NS;
        if world.next_timeout_ns() != u64::MAX && (!is_early || faults.early > 0) {
            actions.push(Action::Timer);
        }
    }

    fn next_state(&self, situation: &Situation, action: Action) -> Option<Situation> {
        let mut next = situation.clone();
        let faults = &mut next.faults;
        match action {
            Action::Step(step) => next.step(self, step),
            Action::Arrive(at) => next.arrive(self, at, false),
            Action::ArriveTwice(at) => {
                faults.twice -= 1;
                next.arrive(self, at, true);
            }
            Action::Lose(at) => {
                match next.world.wire[at].from {
                    None => faults.lost -= 1,
                    Some(_) => faults.mute -= 1,
                }
                next.world.wire.remove(at);
            }
            Action::Report(at) => next.report(self, at),
            Action::LoseReport(at) => {
                faults.mute -= 1;
                next.world.to_dispatcher.remove(at);
            }
            Action::Timer => {
                let next_ns = next.world.next_timeout_ns();
                if !next.world.wire.is_empty() && next_ns > AGAIN_NS {
                    faults.early -= 1;
                }
                next.world.handle_timeout(next_ns);
            }
        }
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Handover>> {
        vec![
            Property::always("one unit writes in each epoch", |_, at: &Situation| {
                invariants::one_writer(&at.world)
            }),
            Property::always("each packet is processed at most once", |_, at: &Situation| {
                invariants::at_most_once(&at.world)
            }),
            Property::always("a state has all packets up to its watermark", |_, at: &Situation| {
                invariants::states_are_whole(&at.world)
            }),
            Property::always("nothing waits forever", |model: &Handover, at: &Situation| {
                !at.is_at_rest(model) || invariants::everything_ends(model, at)
            }),
            Property::sometimes("a state has moved, and has packets since", |_, at: &Situation| {
                invariants::has_moved(&at.world)
            }),
        ]
    }
}

impl Situation {
    /// Returns true if nothing more happens but timers.
    fn is_at_rest(&self, model: &Handover) -> bool {
        self.steps == model.steps.len() && self.world.wire.is_empty() && self.world.to_dispatcher.is_empty()
    }
}

impl PlantedFault {
    /// Returns the message as the planted fault has it.
    pub fn change_message(self, mut message: FromDispatcher) -> FromDispatcher {
        if let FromDispatcher::Release { epoch, .. } | FromDispatcher::Adopt { epoch, .. } = &mut message {
            *epoch = self.change_epoch(*epoch);
        }
        message
    }

    /// Returns the stamp as the planted fault has it.
    pub fn change_stamp(self, stamp: Stamp) -> Stamp {
        Stamp { epoch: self.change_epoch(stamp.epoch), ..stamp }
    }

    fn change_epoch(self, epoch: Epoch) -> Epoch {
        if self == PlantedFault::EpochKept { epoch.min(2) } else { epoch }
    }
}
