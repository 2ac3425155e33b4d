//! What is promised of packets of flows that several units have in turn: each is processed on the
//! state that all packets of its flow make that the router numbered before it, those included that
//! were lost since; at each unit they are processed in order, and between units in any. Packets
//! before and behind are processed in order, as ever.

use std::collections::VecDeque;

use protocol::message::UnitId;

use crate::engine::fold;

/// The epochs of a flow in which several units had its packets, as far as something may be said of
/// them still.
#[derive(Clone, Debug, Default)]
pub(super) struct Spreads(VecDeque<Spread>);

/// Such an epoch.
#[derive(Clone, Debug)]
struct Spread {
    /// The last clock before it, and its last one so far.
    base: u64,
    last: u64,
    /// What the state is with `base` and with each clock behind; empty as long as nobody knows.
    states: Vec<u64>,
    /// The last clock of each unit.
    units: Vec<(UnitId, u64)>,
    /// What came behind it has been processed: it has its last clock.
    is_folded: bool,
}

/// Epochs that are remembered: helpers have done with one before the next begins, but for packets
/// that come late.
const REMEMBERED: usize = 4;

/// What was found wrong.
pub(super) enum Wrong {
    /// The unit has processed this one before, which is later.
    Order(u64),
    /// The state is not the right one.
    State,
}

impl Spread {
    /// The state with `base` is this, if it was not known.
    fn begin(&mut self, state: u64) {
        if self.states.is_empty() {
            self.states.push(state);
        }
    }

    /// The state that all packets up to this clock make, where that before them is known.
    fn state_at(&mut self, clock: u64) -> u64 {
        while self.base + (self.states.len() as u64) <= clock {
            let next = self.base + self.states.len() as u64;
            let before = self.states.last().copied().unwrap_or_default();
            self.states.push(fold(before, next));
        }
        self.states[(clock - self.base) as usize]
    }
}

impl Spreads {
    /// The router has numbered a packet in an epoch that began behind `base`.
    pub fn stamped(&mut self, base: u64, clock: u64) {
        match self.0.back_mut().filter(|spread| spread.base == base) {
            Some(spread) => spread.last = clock,
            None => {
                self.0.push_back(Spread {
                    base,
                    last: clock,
                    states: Vec::new(),
                    units: Vec::new(),
                    is_folded: false,
                });
                while self.0.len() > REMEMBERED && self.0[0].is_folded {
                    self.0.pop_front();
                }
            }
        }
    }

    /// Whether the packet is of such an epoch.
    pub fn has(&self, clock: u64) -> bool {
        self.0.iter().any(|spread| spread.base < clock && clock <= spread.last)
    }

    /// All such epochs before this clock are part of the state, which was `state` after packet
    /// `last`.
    pub fn fold_up_to(&mut self, clock: u64, last: &mut u64, state: &mut u64) {
        for spread in self.0.iter_mut().filter(|spread| spread.last < clock && !spread.is_folded) {
            spread.begin(*state);
            *state = spread.state_at(spread.last);
            *last = spread.last;
            spread.is_folded = true;
        }
    }

    /// A unit has processed a packet of such an epoch on this state; that before all of them was
    /// `state`.
    pub fn processed(&mut self, unit: UnitId, clock: u64, before: u64, state: u64) -> Result<(), Wrong> {
        let found = self.0.iter_mut().find(|spread| spread.base < clock && clock <= spread.last);
        let Some(spread) = found else { return Err(Wrong::State) };
        spread.begin(state);
        match spread.units.iter_mut().find(|(of, _)| *of == unit) {
            Some((_, last)) if *last >= clock => return Err(Wrong::Order(*last)),
            Some((_, last)) => *last = clock,
            None => spread.units.push((unit, clock)),
        }
        if spread.state_at(clock - 1) == before { Ok(()) } else { Err(Wrong::State) }
    }
}
