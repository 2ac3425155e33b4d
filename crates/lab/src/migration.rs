//! Migration of flows from one unit to another on virtual time: our ownership protocol, NFActor's
//! three exchanges, and controllers like those of OpenNF and Split/Merge (A33-A35).
//!
//! All of them move the same flows with states of the same size, over the same links, between the
//! same four nodes. Each node does one thing at a time, and each message takes time where it is
//! sent and where it arrives. Ours is the code of [`protocol`]; the others are written after short
//! descriptions in papers, and exist only here.

mod network;
mod nfactor;
mod opennf;
mod ownership;
mod split_merge;
mod witness;

pub use network::MoveCosts;
pub use witness::MigrationOutcome;

use self::network::MoveNetwork;
use self::nfactor::NfActor;
use self::opennf::{OpenNf, PacketOrder};
use self::ownership::Ownership;
use self::split_merge::SplitMerge;

/// A migration of flows under load.
#[derive(Clone, Copy, Debug)]
pub struct MigrationCase {
    /// The system that moves them.
    pub system: MigrationSystem,
    /// Number of flows; all of them move.
    pub flows: u32,
    /// Packets per second of each flow, at even gaps.
    pub flow_pps: u32,
    /// Limit on the moves under way at once.
    pub concurrency: u32,
    /// Bytes of a flow's state.
    pub state_bytes: usize,
    /// Costs of packets, messages and links.
    pub costs: MoveCosts,
}

/// A system that migrates flows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MigrationSystem {
    /// This project's dispatcher and units: the operator's command of design.md 3.14.
    Ownership,
    /// Three requests and responses per flow, begun by the source (A15).
    NfActor,
    /// A controller with events, loss-free; it moves flows one by one, or all by one filter.
    LossFree(MoveScope),
    /// The same, order-preserving.
    OrderPreserving(MoveScope),
    /// A controller that suspends flows, buffers their packets, and resumes them.
    SplitMerge(MoveScope),
}

/// The flows of one command of a controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MoveScope {
    /// One flow.
    Flow,
    /// All flows, by one filter that covers no others.
    Filter,
}

impl MoveScope {
    /// Returns the number of flows of a command.
    fn flows(self, all: u32) -> u32 {
        match self {
            MoveScope::Flow => 1,
            MoveScope::Filter => all,
        }
    }
}

impl MigrationCase {
    /// Runs it; the seed determines when the flows' packets arrive.
    ///
    /// # Errors
    ///
    /// If the system refuses to move a flow, or never ends.
    pub fn run(&self, seed: u64) -> Result<MigrationOutcome, String> {
        let &MigrationCase { system, flows, .. } = self;
        match system {
            MigrationSystem::Ownership => MoveNetwork::run(self, seed, Ownership::new(self)?),
            MigrationSystem::NfActor => MoveNetwork::run(self, seed, NfActor::new(self)),
            MigrationSystem::LossFree(scope) => {
                MoveNetwork::run(self, seed, OpenNf::new(self, scope.flows(flows), PacketOrder::Any))
            }
            MigrationSystem::OrderPreserving(scope) => {
                MoveNetwork::run(self, seed, OpenNf::new(self, scope.flows(flows), PacketOrder::Kept))
            }
            MigrationSystem::SplitMerge(scope) => {
                MoveNetwork::run(self, seed, SplitMerge::new(self, scope.flows(flows)))
            }
        }
    }
}

/// Moves that wait for others to end.
struct MoveQueue {
    next: u32,
    moves: u32,
}

impl MoveQueue {
    /// This many moves, by number.
    fn new(moves: u32) -> MoveQueue {
        MoveQueue { next: 0, moves }
    }

    /// The next move.
    fn take(&mut self) -> Option<u32> {
        let next = (self.next < self.moves).then_some(self.next)?;
        self.next += 1;
        Some(next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn case(system: MigrationSystem) -> MigrationCase {
        let costs = MoveCosts { message_ns: 250, ..MoveCosts::PAPER };
        MigrationCase { system, flows: 200, flow_pps: 500, concurrency: 1_000, state_bytes: 300, costs }
    }

    fn run(system: MigrationSystem) -> MigrationOutcome {
        case(system).run(1).unwrap()
    }

    #[test]
    fn only_what_promises_it_loses_nothing_and_keeps_order() {
        for system in [
            MigrationSystem::Ownership,
            MigrationSystem::NfActor,
            MigrationSystem::OrderPreserving(MoveScope::Flow),
            MigrationSystem::OrderPreserving(MoveScope::Filter),
        ] {
            let outcome = run(system);
            assert_eq!((outcome.lost, outcome.reordered, outcome.wrong_states), (0, 0, 0), "{system:?}");
        }
        for scope in [MoveScope::Flow, MoveScope::Filter] {
            let outcome = run(MigrationSystem::LossFree(scope));
            assert_eq!(outcome.lost, 0, "{scope:?}");
            let outcome = run(MigrationSystem::SplitMerge(scope));
            assert!(outcome.lost > 0 && outcome.wrong_states > 0, "{scope:?}");
        }
    }

    #[test]
    fn packets_by_way_of_the_controller_are_overtaken() {
        // Less than 130 us from one packet of a flow to the next.
        let fast = |system| MigrationCase { flows: 20, flow_pps: 20_000, ..case(system) }.run(1).unwrap();
        for scope in [MoveScope::Flow, MoveScope::Filter] {
            assert!(fast(MigrationSystem::LossFree(scope)).reordered > 0, "{scope:?}");
            assert!(fast(MigrationSystem::SplitMerge(scope)).reordered > 0, "{scope:?}");
            let kept = fast(MigrationSystem::OrderPreserving(scope));
            assert_eq!((kept.lost, kept.reordered, kept.wrong_states), (0, 0, 0), "{scope:?}");
        }
        for system in [MigrationSystem::Ownership, MigrationSystem::NfActor] {
            let outcome = fast(system);
            assert_eq!((outcome.lost, outcome.reordered, outcome.wrong_states), (0, 0, 0), "{system:?}");
        }
    }

    #[test]
    fn one_flow_takes_the_latencies_of_its_exchanges() {
        // No message takes time, so that only links are left: 65 us each way.
        let costs = MoveCosts { message_ns: 0, packet_ns: 0, forward_ns: 0, ..MoveCosts::PAPER };
        let one = |system| {
            let case = MigrationCase { flows: 1, flow_pps: 10, costs, ..case(system) };
            case.run(1).unwrap().total_ns / 65_000
        };
        // Adopt, Pull, State.
        assert_eq!(one(MigrationSystem::Ownership), 3);
        // Two requests with their responses, and the state.
        assert_eq!(one(MigrationSystem::NfActor), 5);
        // Get with its answer, put with its answer, and the new rule.
        assert_eq!(one(MigrationSystem::LossFree(MoveScope::Flow)), 5);
        // The same; the old rule ends while the state is on its way.
        assert_eq!(one(MigrationSystem::SplitMerge(MoveScope::Flow)), 5);
    }

    #[test]
    fn few_moves_at_once_take_turns() {
        let at_once =
            |system, concurrency| MigrationCase { concurrency, ..case(system) }.run(1).unwrap().total_ns;
        for system in [MigrationSystem::Ownership, MigrationSystem::NfActor] {
            assert!(at_once(system, 10) > 4 * at_once(system, 1_000), "{system:?}");
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_outcome() {
        for system in [MigrationSystem::Ownership, MigrationSystem::OrderPreserving(MoveScope::Flow)] {
            assert_eq!(run(system), run(system));
        }
    }
}
