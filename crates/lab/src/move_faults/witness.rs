//! The packets that left, with the states that processed them.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;

use packet::Packet;
use runtime::Output;

use super::FaultyMoveOutcome;
use super::number::{PacketMark, mark_of};

/// A flow.
#[derive(Clone, Debug, Default)]
struct WitnessedFlow {
    sent: u32,
    /// In the order of departure.
    left: Vec<PacketMark>,
}

/// Watches all flows.
#[derive(Clone, Debug)]
pub struct StateWitness {
    flows: Vec<WitnessedFlow>,
}

impl StateWitness {
    /// Creates a witness of this many flows; none has begun.
    pub fn new(flows: u32) -> StateWitness {
        StateWitness { flows: vec![WitnessedFlow::default(); flows as usize] }
    }

    /// Returns the number of a flow's next packet.
    pub fn next_seq(&mut self, flow: u32) -> u32 {
        let flow = &mut self.flows[flow as usize];
        flow.sent += 1;
        flow.sent
    }

    /// Judges the packets. Flows of `may_begin_again` were at a process that crashed.
    pub fn judge(&self, may_begin_again: &BTreeSet<u32>) -> FaultyMoveOutcome {
        let mut outcome = FaultyMoveOutcome::default();
        for (number, flow) in (0..).zip(&self.flows) {
            let may_begin_again = may_begin_again.contains(&number);
            judge_states(&flow.left, may_begin_again, &mut outcome);
            if !may_begin_again {
                outcome.wrong_packets += wrong_packets(flow);
            }
        }
        outcome
    }
}

/// Follows a flow's state from packet to packet.
fn judge_states(left: &[PacketMark], may_begin_again: bool, outcome: &mut FaultyMoveOutcome) {
    let mut may_begin_again = may_begin_again;
    let (mut last, mut writers) = (0, BTreeMap::new());
    for packet in left {
        if packet.count == 1 && last > 0 && may_begin_again {
            (last, may_begin_again) = (0, false);
            writers.clear();
            outcome.flows_lost += 1;
        }
        outcome.lost_updates += u64::from(packet.count <= last);
        let writer = *writers.entry(packet.count).or_insert(packet.process);
        outcome.two_writers += u64::from(writer != packet.process);
        last = last.max(packet.count);
    }
}

/// Counts packets that did not leave once, or left after a later one.
fn wrong_packets(flow: &WitnessedFlow) -> u64 {
    let mut missing: BTreeSet<u32> = (1..=flow.sent).collect();
    let (mut wrong, mut highest) = (0, 0);
    for packet in &flow.left {
        let is_first = missing.remove(&packet.seq);
        wrong += u64::from(!is_first || packet.seq < highest);
        highest = highest.max(packet.seq);
    }
    wrong + missing.len() as u64
}

impl Output for StateWitness {
    type Error = Infallible;

    fn packet(&mut self, _port: u16, packet: &Packet) -> Result<(), Infallible> {
        if let Some((flow, mark)) = mark_of(packet)
            && let Some(flow) = self.flows.get_mut(flow as usize)
        {
            flow.left.push(mark);
        }
        Ok(())
    }

    fn alert(&mut self, _function: &str, _alert: &nf::Alert) -> Result<(), Infallible> {
        Ok(())
    }

    fn event(&mut self, _function: &str, _event: nf::Event<'_>) -> Result<(), Infallible> {
        Ok(())
    }

    fn flow(&mut self, _report: &nf::FlowReport, _now_ns: u64) -> Result<(), Infallible> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(left: &[(u32, u32, u8)], may_begin_again: bool) -> FaultyMoveOutcome {
        let mut witness = StateWitness::new(1);
        let mark = |&(seq, count, process): &(u32, u32, u8)| PacketMark { seq, count, process };
        witness.flows[0] = WitnessedFlow { sent: left.len() as u32, left: left.iter().map(mark).collect() };
        witness.judge(&if may_begin_again { BTreeSet::from([0]) } else { BTreeSet::new() })
    }

    #[test]
    fn faults_differ() {
        let none = FaultyMoveOutcome::default();
        assert_eq!(judged(&[(1, 1, 1), (2, 2, 2), (3, 3, 2)], false), none);
        // The source continues with its old state after the target has processed a packet.
        let split = judged(&[(1, 1, 1), (2, 2, 2), (3, 2, 1)], false);
        assert_eq!(split, FaultyMoveOutcome { lost_updates: 1, two_writers: 1, ..none });
        // The target begins with an old state.
        let old = judged(&[(1, 1, 1), (2, 2, 1), (3, 2, 1)], false);
        assert_eq!(old, FaultyMoveOutcome { lost_updates: 1, ..none });
        let again = judged(&[(1, 1, 1), (2, 2, 1), (3, 1, 2), (4, 2, 2)], true);
        assert_eq!(again, FaultyMoveOutcome { flows_lost: 1, ..none });
        let again = judged(&[(1, 1, 1), (2, 2, 1), (3, 1, 2)], false);
        assert_eq!(again, FaultyMoveOutcome { lost_updates: 1, two_writers: 1, ..none });
        let wrong = judged(&[(2, 1, 1), (1, 2, 1), (1, 3, 1)], false);
        assert_eq!(wrong, FaultyMoveOutcome { wrong_packets: 3, ..none });
    }
}
