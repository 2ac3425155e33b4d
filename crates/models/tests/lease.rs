//! Leases: at most one of several processes acts as the holder of a lease of the cluster's store.
//! A holder may be paused at any point, its clock is not trusted, and the store lets a lease expire
//! without it. The rule that keeps two holders apart is the term, which each new holder raises:
//!
//! 1. A holder that has the lease first has every unit note its term, and acts once all have.
//! 2. A unit obeys nothing of a lower term than its noted one.
//!
//! No code of the workspace runs here: this states the rule for code that will hold leases.
//!
//! Bounds: two processes, two units, three terms; messages are lost, repeated and overtaken without
//! limit.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::collections::BTreeSet;

use models::{explore, find_violation};
use stateright::{Model, Property};

const PROCESSES: usize = 2;
const UNITS: usize = 2;

type Term = u8;

/// A message. It stays on the way for ever, and arrives at any time, any number of times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Message {
    /// Has a unit note a term.
    Fence { unit: usize, term: Term },
    /// The unit has noted it.
    Fenced { unit: usize, term: Term },
    /// An action of the holder.
    Order { unit: usize, term: Term },
}

/// A process that believes that it holds the lease, or may. It learns of the lease's end only from
/// the store.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Process {
    /// The term of its lease; 0 if it has none.
    term: Term,
    /// The units that have noted it.
    fenced: BTreeSet<usize>,
}

/// The state of the model.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct LeaseState {
    /// The store: the latest term, and whether its lease is alive.
    term: Term,
    is_leased: bool,
    processes: [Process; PROCESSES],
    messages: BTreeSet<Message>,
    /// The terms that units have noted.
    noted: [Term; UNITS],
    /// The highest term of an order that was obeyed anywhere.
    obeyed: Term,
    /// An order of a lower term was obeyed after that.
    is_split: bool,
}

/// The rule that the model breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PlantedFault {
    None,
    /// Units obey any term.
    UnitsObeyAll,
    /// A holder acts before all units have noted its term.
    HoldersHurry,
    /// A lease that is renewed after its end lives on.
    TermKept,
}

#[derive(Clone, Copy, Debug)]
struct Lease {
    planted: PlantedFault,
    terms_max: Term,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Acquire(usize),
    /// The store lets the lease expire.
    Expire,
    /// The process queries the store, and gives up if it has lost the lease.
    Ask(usize),
    Fence(usize),
    Order(usize, usize),
    Arrive(Message),
}

impl Lease {
    fn may_act(self, process: &Process) -> bool {
        process.term > 0 && (process.fenced.len() == UNITS || self.planted == PlantedFault::HoldersHurry)
    }

    fn arrive(self, state: &mut LeaseState, message: Message) {
        match message {
            Message::Fence { unit, term } if term >= state.noted[unit] => {
                state.noted[unit] = term;
                state.messages.insert(Message::Fenced { unit, term });
            }
            Message::Fenced { unit, term } => {
                let waiting = state.processes.iter_mut().filter(|process| process.term == term);
                waiting.for_each(|process| _ = process.fenced.insert(unit));
            }
            Message::Order { unit, term }
                if term >= state.noted[unit] || self.planted == PlantedFault::UnitsObeyAll =>
            {
                state.is_split |= term < state.obeyed;
                state.obeyed = state.obeyed.max(term);
            }
            Message::Fence { .. } | Message::Order { .. } => {}
        }
    }
}

impl Model for Lease {
    type State = LeaseState;
    type Action = Action;

    fn init_states(&self) -> Vec<LeaseState> {
        vec![LeaseState::default()]
    }

    fn actions(&self, state: &LeaseState, actions: &mut Vec<Action>) {
        if state.is_leased {
            actions.push(Action::Expire);
        }
        for (at, process) in state.processes.iter().enumerate() {
            if !state.is_leased && state.term < self.terms_max {
                actions.push(Action::Acquire(at));
            }
            if process.term > 0 {
                actions.extend([Action::Ask(at), Action::Fence(at)]);
            }
            if self.may_act(process) {
                actions.extend((0..UNITS).map(|unit| Action::Order(at, unit)));
            }
        }
        actions.extend(state.messages.iter().map(|message| Action::Arrive(*message)));
    }

    fn next_state(&self, state: &LeaseState, action: Action) -> Option<LeaseState> {
        let mut next = state.clone();
        match action {
            Action::Acquire(at) => {
                next.is_leased = true;
                next.term = match self.planted {
                    PlantedFault::TermKept => state.term.max(1),
                    _ => state.term + 1,
                };
                next.processes[at] = Process { term: next.term, fenced: BTreeSet::new() };
            }
            Action::Expire => next.is_leased = false,
            Action::Ask(at) => {
                if !state.is_leased || state.term != state.processes[at].term {
                    next.processes[at] = Process::default();
                }
            }
            Action::Fence(at) => {
                let term = state.processes[at].term;
                next.messages.extend((0..UNITS).map(|unit| Message::Fence { unit, term }));
            }
            Action::Order(at, unit) => {
                next.messages.insert(Message::Order { unit, term: state.processes[at].term });
            }
            Action::Arrive(message) => self.arrive(&mut next, message),
        }
        Some(next).filter(|next| next != state)
    }

    fn properties(&self) -> Vec<Property<Lease>> {
        vec![
            Property::always("nobody obeys an earlier holder", |_, state: &LeaseState| !state.is_split),
            Property::always(
                "two processes never act in the same term",
                |model: &Lease, state: &LeaseState| {
                    let acting = state.processes.iter().filter(|process| model.may_act(process));
                    let terms: Vec<Term> = acting.map(|process| process.term).collect();
                    terms.iter().collect::<BTreeSet<_>>().len() == terms.len()
                },
            ),
            Property::sometimes("a later holder is obeyed", |_, state: &LeaseState| state.obeyed > 1),
        ]
    }
}

#[test]
fn two_holders_never_act_at_once() {
    explore("lease", Lease { planted: PlantedFault::None, terms_max: 3 });
}

/// Each property is violated by a planted fault.
#[test]
fn planted_faults_are_found() {
    let planted = |planted| Lease { planted, terms_max: 2 };
    find_violation("units obey all", planted(PlantedFault::UnitsObeyAll), "nobody obeys an earlier holder");
    find_violation("holders hurry", planted(PlantedFault::HoldersHurry), "nobody obeys an earlier holder");
    find_violation(
        "a term is kept",
        planted(PlantedFault::TermKept),
        "two processes never act in the same term",
    );
}
