//! Checks of a run, packet by packet (R8).
//!
//! The oracle is a single unit that processes the same packets in the same order: for each flow,
//! the seq and the state after its last packet.

use std::collections::BTreeMap;

use packet::split_mix;
use protocol::message::{FlowId, UnitId};
use serde::Serialize;

use crate::engine::{Processed, fold};

/// The checks that have held so far.
#[derive(Clone, Debug, Default)]
pub struct Checks {
    /// The present flow of each index.
    flows: Vec<Account>,
    /// Earlier flows of these indexes with packets in flight.
    past: BTreeMap<FlowId, Account>,
    counts: CheckCounts,
    /// Packets in flight: neither processed nor dropped yet.
    under_way: u64,
}

/// Counts of checks that held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CheckCounts {
    /// Packets that the dispatcher numbered; each is one of the following.
    pub packets: u64,
    /// Packets processed once, in order, and on the state that their predecessor left.
    pub processed: u64,
    /// Packets that were dropped, with a reason.
    pub dropped: u64,
    /// Packets that were lost on a link.
    pub lost: u64,
    /// States that were compared with the oracle's when they ended, or at the end of the run.
    pub states: u64,
}

/// A violation of an invariant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// A packet was processed twice, or after a later packet of its flow.
    #[error("{flow}: packet {seq} was processed at {unit} after packet {last}")]
    OutOfOrder {
        /// The flow.
        flow: FlowId,
        /// The packet's seq.
        seq: u64,
        /// Seq of the flow's packet processed before.
        last: u64,
        /// The unit.
        unit: UnitId,
    },
    /// A packet met a state other than its predecessor left.
    #[error("{flow}: packet {seq} was processed at {unit} on a state that is not the one packet {last} left")]
    WrongState {
        /// The flow.
        flow: FlowId,
        /// The packet's seq.
        seq: u64,
        /// Seq of the flow's packet processed before; 0 if none was.
        last: u64,
        /// The unit.
        unit: UnitId,
    },
    /// A packet has two fates, or should have none.
    #[error("{flow}: packet {seq} has more than one fate, or should have none")]
    Fates {
        /// The flow.
        flow: FlowId,
        /// The packet's seq.
        seq: u64,
    },
    /// A unit dropped a packet as late, although none can be late.
    #[error("{flow}: packet {seq} came too late, although nothing is lost or overtaken")]
    Late {
        /// The flow.
        flow: FlowId,
        /// The packet's seq.
        seq: u64,
    },
    /// Packets have no fate.
    #[error("{flow}: {packets} packets are not accounted for")]
    Unaccounted {
        /// The flow.
        flow: FlowId,
        /// Number of packets; 0 if only their identity is wrong.
        packets: u64,
    },
    /// A final state differs from the result of the flow's packets.
    #[error("{flow}: its state at the end is not what its packets make of one")]
    WrongEnd {
        /// The flow.
        flow: FlowId,
    },
    /// A flow ended twice.
    #[error("{flow} ended more than once")]
    EndedTwice {
        /// The flow.
        flow: FlowId,
    },
    /// A flow has no state at the end, or several.
    #[error("{flow}: {states} units have its state at the end")]
    States {
        /// The flow.
        flow: FlowId,
        /// Number of states.
        states: u32,
    },
    /// Packets or messages were in flight for longer than `patience`.
    #[error("{packets} packets and {messages} messages are still under way")]
    Unfinished {
        /// Packets in flight.
        packets: u64,
        /// Messages in flight.
        messages: u64,
    },
}

/// The packets and state of a flow.
#[derive(Clone, Copy, Debug, Default)]
struct Account {
    generation: u32,
    is_over: bool,
    /// States found at the end.
    states: u32,
    /// The seq of the packet processed last.
    last: u64,
    /// The state after that packet.
    state: u64,
    /// Packets that were stamped, less those processed or dropped.
    open: u64,
    /// Sum of the scrambled seqs of the same packets: 0 if exactly the stamped packets had a fate.
    balance: u64,
}

impl Account {
    /// Returns true if all packets are accounted for, and the end was seen.
    fn is_done(&self) -> bool {
        self.open == 0 && self.balance == 0 && self.is_over
    }
}

impl Checks {
    /// Prefetches the account of the flow with this index.
    #[inline]
    pub fn prefetch(&self, index: u32) {
        packet::memory::prefetch_all(self.flows.as_ptr().wrapping_add(index as usize));
    }

    /// Notes that the dispatcher has numbered a packet.
    #[inline]
    pub fn stamped(&mut self, flow: FlowId, seq: u64) {
        let index = flow.index as usize;
        if index >= self.flows.len() {
            self.flows.resize(index + 1, Account::default());
        }
        let account = &mut self.flows[index];
        if account.generation != flow.generation {
            let before = FlowId { index: flow.index, generation: account.generation };
            if !account.is_done() {
                self.past.insert(before, *account);
            }
            *account = Account { generation: flow.generation, ..Account::default() };
        }
        account.open += 1;
        account.balance = account.balance.wrapping_add(scramble(seq));
        self.counts.packets += 1;
        self.under_way += 1;
    }

    /// Notes that a unit has processed a packet.
    ///
    /// # Errors
    /// If it was not the packet's turn, or the unit had another state than its predecessor left.
    #[inline]
    pub fn processed(&mut self, unit: UnitId, done: &Processed) -> Result<(), Violation> {
        let (flow, seq) = (done.flow, done.packet.seq);
        self.fate(flow, seq, |account| {
            let last = account.last;
            if seq <= last {
                return Err(Violation::OutOfOrder { flow, seq, last, unit });
            }
            if done.before != account.state {
                return Err(Violation::WrongState { flow, seq, last, unit });
            }
            account.last = seq;
            account.state = fold(account.state, seq);
            Ok(())
        })?;
        self.counts.processed += 1;
        Ok(())
    }

    /// Notes that a packet was dropped.
    ///
    /// # Errors
    /// If it had another fate before.
    pub fn dropped(&mut self, flow: FlowId, seq: u64) -> Result<(), Violation> {
        self.counts.dropped += 1;
        self.fate(flow, seq, |_| Ok(()))
    }

    /// Notes that a link has lost a packet.
    ///
    /// # Errors
    /// If it had another fate before.
    pub fn lost(&mut self, flow: FlowId, seq: u64) -> Result<(), Violation> {
        self.counts.lost += 1;
        self.fate(flow, seq, |_| Ok(()))
    }

    /// Notes that a flow has ended with this state.
    ///
    /// # Errors
    /// If the oracle has another state, or the flow has ended before.
    pub fn ended(&mut self, flow: FlowId, state: u64) -> Result<(), Violation> {
        self.counts.states += 1;
        let (account, is_past) = self
            .account(flow)
            .filter(|(account, _)| account.state == state)
            .ok_or(Violation::WrongEnd { flow })?;
        if std::mem::replace(&mut account.is_over, true) {
            return Err(Violation::EndedTwice { flow });
        }
        if is_past && account.is_done() {
            self.past.remove(&flow);
        }
        Ok(())
    }

    /// Returns the number of packets in flight.
    #[inline]
    pub fn under_way(&self) -> u64 {
        self.under_way
    }

    /// Checks the end of a run, with all states that units have.
    ///
    /// # Errors
    /// If a packet has no fate, or a flow has not exactly one state, or another state than the
    /// oracle's.
    pub fn finish(mut self, states: impl Iterator<Item = (FlowId, u64)>) -> Result<CheckCounts, Violation> {
        for (flow, state) in states {
            let (account, _) = self.account(flow).ok_or(Violation::States { flow, states: 1 })?;
            if account.state != state {
                return Err(Violation::WrongEnd { flow });
            }
            account.states += 1;
            self.counts.states += 1;
        }
        let live = self.flows.iter().enumerate().map(|(index, account)| {
            // Slots are numbered by u32.
            (FlowId { index: index as u32, generation: account.generation }, account)
        });
        for (flow, account) in live.chain(self.past.iter().map(|(&flow, account)| (flow, account))) {
            if account.open > 0 || account.balance != 0 {
                return Err(Violation::Unaccounted { flow, packets: account.open });
            }
            let wanted = u32::from(account.last > 0 && !account.is_over);
            if account.states != wanted {
                return Err(Violation::States { flow, states: account.states });
            }
        }
        Ok(self.counts)
    }

    /// Returns a flow's account, and whether another flow has its index now.
    #[inline]
    fn account(&mut self, flow: FlowId) -> Option<(&mut Account, bool)> {
        match self.flows.get_mut(flow.index as usize) {
            Some(account) if account.generation == flow.generation => Some((account, false)),
            _ => self.past.get_mut(&flow).map(|account| (account, true)),
        }
    }

    /// Records a packet's fate in its flow's account. The account of an index's earlier flow is
    /// removed once it is complete; a later fate of that flow is a violation.
    #[inline]
    fn fate(
        &mut self,
        flow: FlowId,
        seq: u64,
        note: impl FnOnce(&mut Account) -> Result<(), Violation>,
    ) -> Result<(), Violation> {
        let open = self.account(flow).filter(|(account, _)| account.open > 0);
        let (account, is_past) = open.ok_or(Violation::Fates { flow, seq })?;
        account.open -= 1;
        account.balance = account.balance.wrapping_sub(scramble(seq));
        note(account)?;
        if is_past && account.is_done() {
            self.past.remove(&flow);
        }
        self.under_way -= 1;
        Ok(())
    }
}

#[inline]
fn scramble(seq: u64) -> u64 {
    let mut state = seq;
    split_mix(&mut state)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Packet;

    const FLOW: FlowId = FlowId { index: 0, generation: 0 };
    const UNIT: UnitId = UnitId(0);

    fn done(seq: u64, before: u64) -> Processed {
        let packet = Packet { came_ns: 0, at_unit_ns: 0, seq, len: 100 };
        Processed { flow: FLOW, packet, before, done_ns: 0 }
    }

    /// After packets 1 to 4 were stamped, and 1 was processed.
    fn checks() -> Checks {
        let mut checks = Checks::default();
        (1..=4).for_each(|seq| checks.stamped(FLOW, seq));
        checks.processed(UNIT, &done(1, 0)).unwrap();
        checks
    }

    #[test]
    fn a_run_that_is_right_passes() {
        let mut checks = checks();
        checks.lost(FLOW, 2).unwrap();
        checks.processed(UNIT, &done(3, fold(0, 1))).unwrap();
        checks.dropped(FLOW, 4).unwrap();
        let checked = checks.finish([(FLOW, fold(fold(0, 1), 3))].into_iter()).unwrap();
        assert_eq!(checked, CheckCounts { packets: 4, processed: 2, dropped: 1, lost: 1, states: 1 });
    }

    #[test]
    fn each_wrong_is_found() {
        let state = fold(0, 1);
        assert!(matches!(checks().processed(UNIT, &done(1, state)), Err(Violation::OutOfOrder { .. })));
        assert!(matches!(checks().processed(UNIT, &done(2, 0)), Err(Violation::WrongState { .. })));
        assert!(matches!(checks().ended(FLOW, 0), Err(Violation::WrongEnd { .. })));
        assert_eq!(
            checks().finish([(FLOW, state)].into_iter()),
            Err(Violation::Unaccounted { flow: FLOW, packets: 3 })
        );
        let all_lost = || {
            let mut checks = checks();
            (2..=4).for_each(|seq| checks.lost(FLOW, seq).unwrap());
            checks
        };
        assert!(matches!(all_lost().lost(FLOW, 4), Err(Violation::Fates { .. })));
        assert!(matches!(all_lost().finish(std::iter::empty()), Err(Violation::States { states: 0, .. })));
        let twice = [(FLOW, state), (FLOW, state)];
        assert!(matches!(all_lost().finish(twice.into_iter()), Err(Violation::States { states: 2, .. })));
        assert!(matches!(all_lost().finish([(FLOW, 5)].into_iter()), Err(Violation::WrongEnd { .. })));
        let mut same_twice = checks();
        [2, 2, 4].into_iter().for_each(|seq| same_twice.lost(FLOW, seq).unwrap());
        assert!(matches!(
            same_twice.finish([(FLOW, state)].into_iter()),
            Err(Violation::Unaccounted { packets: 0, .. })
        ));
    }

    #[test]
    fn an_index_has_one_flow_after_the_other() {
        let mut checks = checks();
        checks.ended(FLOW, fold(0, 1)).unwrap();
        assert_eq!(checks.clone().ended(FLOW, fold(0, 1)), Err(Violation::EndedTwice { flow: FLOW }));
        let next = FlowId { index: 0, generation: 1 };
        checks.stamped(next, 1);
        checks.lost(next, 1).unwrap();
        (2..=4).for_each(|seq| checks.dropped(FLOW, seq).unwrap());
        assert!(checks.finish(std::iter::empty()).is_ok());
    }
}
