//! Flows that move between the units of a simulated cluster while a fault hits one message: the
//! code of the processes on virtual time, over links. One datagram is lost, repeated or late, or a
//! link's end crashes (A18, A40).
//!
//! Each packet leaves with the state that processed it: how many packets of its flow that state has
//! counted, and in which process it was.

mod number;
mod witness;

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::mpsc::channel;

use cluster::policies::GraphMaker;
use cluster::simulated::{LinkFaults, MessageFault, MessageFaultKind, SimulatedCluster, SimulatedFaults};
use packet::LinkType;
use protocol::dispatcher::{FlowStatus, Granularity, UnitChoice};
use protocol::message::UnitId;
use runtime::elastic::UnitsConfig;
use runtime::operator::{MigrationTarget, OperatorHandle, OperatorRequest, Reply};
use runtime::{Frame, Ingress};

pub use cluster::simulated::MessageKind;

use self::witness::StateWitness;
use crate::hosts::{FRAME_LEN, INSIDE, write_frame};

/// Units.
const UNITS: u16 = 3;
/// Flows, which the units share.
const FLOWS: u32 = 24;
/// Packets of a flow come at this distance until shortly after the move, and then seldom.
const OFTEN_NS: u64 = 2_000_000;
const SELDOM_NS: u64 = 100_000_000;
/// The flows of a unit move then.
const MOVE_NS: u64 = 120_000_000;
/// End of the time with frequent packets.
const OFTEN_UNTIL_NS: u64 = 160_000_000;
/// Time of the last packets: a crash has been found by then.
const END_NS: u64 = 2_500_000_000;
/// Time to wait at the end until all work is done.
const REST_NS: u64 = 1_000_000_000;
/// Time steps to search for a dispatcher's crash.
const STEP_NS: u64 = 20_000;
/// A process starts again after this time.
const RESTART_NS: u64 = 200_000_000;
/// The first packet's time.
const START_NS: u64 = 1_000_000_000;

/// A fault at a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MoveFault {
    /// The datagram is lost; the link sends its contents again.
    Lost,
    /// It arrives twice, 300 us apart.
    Repeated,
    /// Others overtake it for 2 ms.
    Late,
    /// The sender, a unit, crashes before it leaves.
    SenderBefore,
    /// The sender, a unit, crashes once it is on its way.
    SenderAfter,
    /// The receiver, a unit, crashes before it arrives.
    ReceiverBefore,
    /// The receiver, a unit, crashes once it has handled it.
    ReceiverAfter,
    /// The dispatcher crashes as soon as it is on its way.
    Dispatcher,
}

impl MoveFault {
    /// Returns the kind in the simulation; for the dispatcher, a mark that changes nothing.
    fn kind(self) -> MessageFaultKind {
        match self {
            MoveFault::Lost => MessageFaultKind::Lose,
            MoveFault::Repeated => MessageFaultKind::Repeat(300_000),
            MoveFault::Late => MessageFaultKind::Delay(2_000_000),
            MoveFault::SenderBefore => MessageFaultKind::SenderCrashesBefore(RESTART_NS),
            MoveFault::SenderAfter => MessageFaultKind::SenderCrashesAfter(RESTART_NS),
            MoveFault::ReceiverBefore => MessageFaultKind::ReceiverCrashesBefore(RESTART_NS),
            MoveFault::ReceiverAfter => MessageFaultKind::ReceiverCrashesAfter(RESTART_NS),
            MoveFault::Dispatcher => MessageFaultKind::Delay(0),
        }
    }
}

/// A move of all flows of a unit.
#[derive(Clone, Copy, Debug)]
pub struct FaultyMove {
    /// Units that have replicas of a flow: whole ones if the fault is at these, otherwise deltas.
    pub copies: u8,
    /// The message, the first of its kind since the move began.
    pub message: MessageKind,
    /// The fault.
    pub fault: MoveFault,
}

/// The outcome of a move.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FaultyMoveOutcome {
    /// Flows that moved.
    pub moves: u64,
    /// Packets that left with a state that lacked an earlier packet that had left.
    pub lost_updates: u64,
    /// States of a flow that two processes made of the same predecessor.
    pub two_writers: u64,
    /// Flows in the tables of units that the dispatcher does not know.
    pub orphans: u64,
    /// Packets, of flows that no process which crashed had, that did not leave once, and in order.
    pub wrong_packets: u64,
    /// Flows that began again without their state.
    pub flows_lost: u64,
}

thread_local! {
    /// Processes that have started on this thread.
    static PROCESSES: Cell<u8> = const { Cell::new(0) };
}

impl FaultyMove {
    /// Moves the flows; the seed determines when packets come, and links' times.
    ///
    /// # Errors
    ///
    /// If the flows cannot move, or the fault does not happen.
    pub fn run(&self, seed: u64) -> Result<FaultyMoveOutcome, String> {
        let mut run = Run::start(self, seed)?;
        let mut packets = schedule(seed);
        let moves_at = packets.partition_point(|&(at_ns, _)| at_ns < MOVE_NS);
        let later = packets.split_off(moves_at);
        packets.into_iter().try_for_each(|packet| run.packet(packet))?;
        let moves = run.move_flows()?;
        later.into_iter().try_for_each(|packet| run.packet(packet))?;
        run.end(moves)
    }
}

/// Returns the packets by time: each flow's come at a phase of its own, those of the first flow
/// shortly before the move, so that replicas lack its last packet.
fn schedule(seed: u64) -> Vec<(u64, u32)> {
    let mut random = seed;
    let mut packets = Vec::new();
    for flow in 0..FLOWS {
        let phase_ns = packet::split_mix(&mut random) % OFTEN_NS;
        let mut at_ns = if flow == 0 { OFTEN_NS - 50_000 } else { phase_ns };
        while at_ns < END_NS {
            packets.push((at_ns, flow));
            at_ns += if at_ns < OFTEN_UNTIL_NS { OFTEN_NS } else { SELDOM_NS };
        }
    }
    packets.sort_unstable();
    packets
}

/// A run.
struct Run {
    cluster: SimulatedCluster,
    operator: OperatorHandle,
    config: UnitsConfig,
    witness: StateWitness,
    now_ns: u64,
    /// Units by the names of their nodes, as they began.
    nodes: BTreeMap<String, UnitId>,
    /// Flows that units had when the move began, or have got since then.
    flows: BTreeMap<UnitId, BTreeSet<u32>>,
    /// The dispatcher crashes at the fault.
    crashes_dispatcher: bool,
    has_restarted: bool,
}

impl Run {
    fn start(case: &FaultyMove, seed: u64) -> Result<Run, String> {
        let config = UnitsConfig {
            mode: Granularity::Flow,
            choice: UnitChoice::RoundRobin,
            units_min: UNITS,
            units_max: 2 * UNITS,
            copies: case.copies,
            deltas: case.message != MessageKind::Replicate,
            ..UnitsConfig::as_published()
        };
        let links = LinkFaults { latency_ns: 65_000, ..LinkFaults::NONE };
        let fault = MessageFault { message: case.message, from_ns: MOVE_NS, kind: case.fault.kind() };
        let faults = SimulatedFaults { links, messages: vec![fault], ..SimulatedFaults::NONE };
        PROCESSES.set(0);
        let make = || -> GraphMaker {
            PROCESSES.set(PROCESSES.get() + 1);
            let process = PROCESSES.get();
            Box::new(move |_| Ok(number::chain(process)?.graph))
        };
        let chain = number::chain(0)?;
        let start = (seed, START_NS);
        let started = SimulatedCluster::start(chain, config, UNITS.into(), make, faults, start);
        let mut cluster = started.map_err(|error| error.to_string())?;
        let operator = cluster.runner().open_to_operators();
        Ok(Run {
            cluster,
            operator,
            config,
            witness: StateWitness::new(FLOWS),
            now_ns: 0,
            nodes: BTreeMap::new(),
            flows: BTreeMap::new(),
            crashes_dispatcher: case.fault == MoveFault::Dispatcher,
            has_restarted: false,
        })
    }

    /// A packet of a flow comes.
    fn packet(&mut self, (at_ns, flow): (u64, u32)) -> Result<(), String> {
        self.advance(at_ns)?;
        let mut data = [0; FRAME_LEN];
        write_frame(&mut data, INSIDE, flow, self.witness.next_seq(flow));
        let timestamp_ns = START_NS + at_ns;
        let arriving =
            Frame { timestamp_ns, link: LinkType::Ethernet, wire_len: data.len() as u32, data: &data };
        let runner = self.cluster.runner();
        let Ok(()) = runner.receive(arriving, Ingress::Port(INSIDE), &mut self.witness);
        let Ok(()) = runner.flush(&mut self.witness);
        if at_ns >= MOVE_NS {
            self.note_owners()?;
        }
        Ok(())
    }

    /// Moves the flows of the first flow's unit to the next one, and returns their number.
    fn move_flows(&mut self) -> Result<u64, String> {
        self.advance(MOVE_NS)?;
        let nodes = self.cluster.handle().status();
        self.nodes = nodes.into_iter().filter_map(|node| Some((node.name, node.unit?))).collect();
        if self.nodes.len() < UNITS.into() {
            return Err("a unit is not there".to_owned());
        }
        let flows = self.note_owners()?;
        let first = flows.iter().find(|flow| number::flow_of(&flow.key) == Some(0));
        let from = first.ok_or("the first flow is not there")?.owner;
        let to = UnitId((from.0 + 1) % UNITS);
        let of_unit = flows.iter().filter(|flow| flow.owner == from);
        let target = |flow: &FlowStatus| MigrationTarget { flow: flow.flow, from: None, to: Some(to) };
        let targets: Vec<_> = of_unit.map(target).collect();
        let moves = targets.len() as u64;
        for moved in self.ask(|reply| OperatorRequest::Migrate(targets, reply))? {
            moved.map_err(|error| error.to_string())?;
        }
        self.note_owners()?;
        Ok(moves)
    }

    /// Lets time pass, in steps as long as the dispatcher may crash.
    fn advance(&mut self, at_ns: u64) -> Result<(), String> {
        while self.crashes_dispatcher && self.now_ns < at_ns {
            if self.cluster.counters().message_faults > 0 {
                let restarted = self.cluster.restart_dispatcher(number::chain(0)?, self.config);
                restarted.map_err(|error| error.to_string())?;
                self.operator = self.cluster.runner().open_to_operators();
                (self.crashes_dispatcher, self.has_restarted) = (false, true);
            }
            self.now_ns = (self.now_ns + STEP_NS).min(at_ns);
            let Ok(()) = self.cluster.run_to(START_NS + self.now_ns, &mut self.witness);
        }
        self.now_ns = at_ns;
        let Ok(()) = self.cluster.run_to(START_NS + at_ns, &mut self.witness);
        Ok(())
    }

    /// Notes the flows of each unit, and returns all flows.
    fn note_owners(&mut self) -> Result<Vec<FlowStatus>, String> {
        let flows = self.ask(|reply| OperatorRequest::Flows(0..4 * FLOWS, reply))?.flows;
        for status in &flows {
            if let Some(flow) = number::flow_of(&status.key) {
                self.flows.entry(status.owner).or_default().insert(flow);
            }
        }
        Ok(flows)
    }

    /// Ends the run, and judges it.
    fn end(mut self, moves: u64) -> Result<FaultyMoveOutcome, String> {
        self.advance(END_NS + REST_NS)?;
        if self.cluster.counters().message_faults == 0 {
            return Err("the fault has not happened".to_owned());
        }
        let known = self.ask(|reply| OperatorRequest::Flows(0..4 * FLOWS, reply))?.flows.len() as u64;
        let orphans = self.cluster.flows_at_units().abs_diff(known);
        let crashed = self.cluster.crashed().into_iter();
        let crashed = crashed.filter_map(|node| self.nodes.get(&format!("unit-{node}")));
        let mut may_begin_again: BTreeSet<u32> =
            crashed.filter_map(|unit| self.flows.get(unit)).flatten().copied().collect();
        if self.has_restarted {
            may_begin_again.extend(0..FLOWS);
        }
        let Run { cluster, mut witness, .. } = self;
        let Ok(_) = cluster.finish(&mut witness);
        Ok(FaultyMoveOutcome { moves, orphans, ..witness.judge(&may_begin_again) })
    }

    /// Sends a request to the dispatcher.
    fn ask<T: Send + 'static>(
        &mut self,
        request: impl FnOnce(Reply<T>) -> OperatorRequest,
    ) -> Result<T, String> {
        let (sender, answers) = channel();
        // If this fails, the caller has ended.
        let reply = Box::new(move |answer| drop(sender.send(answer)));
        self.operator.send(request(reply)).map_err(|error| error.to_string())?;
        let Ok(()) = self.cluster.runner().flush(&mut self.witness);
        let answer = answers.try_recv().map_err(|_| "the dispatcher does not answer")?;
        answer.map_err(|error| error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTHING: FaultyMoveOutcome = FaultyMoveOutcome {
        moves: 8,
        lost_updates: 0,
        two_writers: 0,
        orphans: 0,
        wrong_packets: 0,
        flows_lost: 0,
    };

    fn run(copies: u8, message: MessageKind, fault: MoveFault) -> FaultyMoveOutcome {
        FaultyMove { copies, message, fault }.run(1).unwrap()
    }

    #[test]
    fn faults_of_links_cost_nothing() {
        for copies in [0, 2] {
            for fault in [MoveFault::Lost, MoveFault::Repeated, MoveFault::Late] {
                assert_eq!(run(copies, MessageKind::State, fault), NOTHING, "{fault:?}");
            }
        }
    }

    #[test]
    fn flows_that_are_replicated_survive_their_source() {
        let without = run(0, MessageKind::Release, MoveFault::ReceiverBefore);
        assert_eq!(without, FaultyMoveOutcome { flows_lost: 8, ..NOTHING });
        // Each with its replica, even if its last packet had arrived just before.
        let with = run(2, MessageKind::Release, MoveFault::ReceiverBefore);
        assert_eq!(with, FaultyMoveOutcome { flows_lost: 0, ..NOTHING });
    }

    #[test]
    fn a_dispatcher_that_crashes_begins_all_flows_again() {
        let outcome = run(0, MessageKind::State, MoveFault::Dispatcher);
        assert_eq!(outcome, FaultyMoveOutcome { flows_lost: FLOWS.into(), ..NOTHING });
    }
}
