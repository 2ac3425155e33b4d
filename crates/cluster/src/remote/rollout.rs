//! Another policy for all nodes, one after the other, while packets flow.
//!
//! All units read the policy first; if one cannot run it, nothing changes. Then each unit in turn
//! gives its flows away, and comes back with the policy. A flow is at one unit at a time, so it has
//! one policy at a time; its state moves as in any handover. At the end the dispatcher's own graph
//! is replaced.

use graph::Graph;
use runtime::report::Figures;
use telemetry::event;

use super::RemoteUnits;
use super::nodes::NodeStatus;
use crate::network::Network;
use crate::peers::PeerId;
use crate::policies::{Digest, PolicyTexts};
use crate::wire::{write_policy, write_renew};

/// Limit on the time in which all nodes read a policy.
const READ_NS: u64 = 60_000_000_000;
/// Limit on the time of one unit, from the order until it is back with the policy.
const UNIT_NS: u64 = 60_000_000_000;

/// A policy for all nodes.
pub struct NewPolicy {
    /// Its texts.
    pub texts: PolicyTexts,
    /// Its digest.
    pub digest: Digest,
    /// The dispatcher's graph of it: with the same functions, ports, seed and affinity groups.
    pub graph: Box<Graph>,
}

/// The way of a policy to the nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RolloutStatus {
    /// Its number, as [`RemoteHandle::apply`](super::RemoteHandle::apply) returned it.
    pub number: u64,
    /// The name of the policy's file.
    pub name: String,
    /// Its digest.
    pub digest: Digest,
    /// The state.
    pub state: RolloutState,
    /// The node that is on its way to the policy.
    pub node: Option<String>,
    /// Nodes that run it.
    pub nodes_done: usize,
    /// Nodes that are there.
    pub nodes: usize,
}

/// The state of a rollout.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum RolloutState {
    /// Nodes read the policy.
    #[default]
    Reading,
    /// Nodes get it one after the other.
    Rolling,
    /// All nodes that are there run it.
    Done,
    /// It has stopped, for this reason. Nodes that run it go on with it.
    Failed(String),
}

/// The latest rollout.
pub(super) struct Rollout {
    number: u64,
    began_ns: u64,
    texts: PolicyTexts,
    digest: Digest,
    /// Until it is in use.
    graph: Option<Box<Graph>>,
    state: RolloutState,
    /// The node on its way.
    renewing: Option<Renewing>,
}

/// A node on its way to a policy.
struct Renewing {
    name: String,
    since_ns: u64,
    /// It had a unit, and will have one again.
    is_unit: bool,
}

impl Rollout {
    /// Returns true while nodes change their policy.
    pub fn is_under_way(&self) -> bool {
        matches!(self.state, RolloutState::Reading | RolloutState::Rolling)
    }

    fn fail(&mut self, reason: String) {
        event::rollout_failed(&self.texts.name, &reason);
        (self.state, self.renewing) = (RolloutState::Failed(reason), None);
    }
}

impl<N: Network> RemoteUnits<N> {
    /// Begins to give a policy to all nodes.
    pub(super) fn begin_rollout(&mut self, number: u64, policy: NewPolicy) {
        let NewPolicy { texts, digest, graph } = policy;
        event::rollout_started(&texts.name);
        self.peers.network().policies().accept(digest);
        self.nodes.forget_reads();
        self.rollout = Some(Rollout {
            number,
            began_ns: self.peers.now_ns(),
            texts,
            digest,
            graph: Some(graph),
            state: RolloutState::Reading,
            renewing: None,
        });
        let links: Vec<PeerId> = self.nodes.links().collect();
        links.into_iter().for_each(|peer| self.offer_policy(peer));
    }

    /// Gives the latest policy to a node that runs another one.
    pub(super) fn offer_policy(&mut self, peer: PeerId) {
        let Some(rollout) = &self.rollout else { return };
        let is_wanted = !matches!(rollout.state, RolloutState::Failed(_));
        if is_wanted && self.nodes.policy_at(peer).is_some_and(|policy| policy != rollout.digest) {
            self.peers.send(peer, 0, |out| write_policy(out, &rollout.texts));
        }
    }

    /// A node has read the policy, or cannot run it.
    pub(super) fn policy_read(&mut self, peer: PeerId, digest: Digest, reason: &str) {
        let name = self.peers.name(peer);
        let Some(rollout) = &mut self.rollout else { return };
        if !reason.is_empty() {
            return rollout.fail(format!("{name} cannot run the policy: {reason}"));
        }
        if digest != rollout.digest {
            let reason = format!("{name} reads it differently: it is another version of the program");
            return rollout.fail(reason);
        }
        self.nodes.set_read(peer);
        if !rollout.is_under_way() {
            // It came after the others. It has no unit yet.
            self.peers.send(peer, 0, |out| write_renew(out, &digest));
        }
    }

    /// Returns the policy that a node must run to become a unit; `None` if any will do.
    pub(super) fn policy_of_next_units(&self) -> Option<Digest> {
        let rollout = self.rollout.as_ref()?;
        matches!(rollout.state, RolloutState::Rolling | RolloutState::Done).then_some(rollout.digest)
    }

    /// Takes the next step of a rollout.
    pub(super) fn advance_rollout(&mut self) {
        let now_ns = self.peers.now_ns();
        let Some(rollout) = self.rollout.as_mut().filter(|rollout| rollout.is_under_way()) else { return };
        let digest = rollout.digest;
        if rollout.state == RolloutState::Reading {
            if let Some(name) = self.nodes.first_not_read(&digest) {
                if now_ns.saturating_sub(rollout.began_ns) >= READ_NS {
                    let reason =
                        format!("{name} has not read the policy after {} s", READ_NS / 1_000_000_000);
                    rollout.fail(reason);
                }
                return;
            }
            rollout.state = RolloutState::Rolling;
        }
        if let Some(Renewing { name, since_ns, is_unit }) = &rollout.renewing {
            let is_ready = |unit| self.units.get(unit).is_some_and(|unit| unit.is_ready);
            if self.nodes.runs(name, &digest, *is_unit, is_ready) {
                rollout.renewing = None;
            } else if now_ns.saturating_sub(*since_ns) >= UNIT_NS {
                let reason =
                    format!("{name} is not back with the policy after {} s", UNIT_NS / 1_000_000_000);
                return rollout.fail(reason);
            } else {
                return;
            }
        }
        match self.nodes.next_without(&digest) {
            Some((name, peer, status)) => {
                let active = self.nodes.count(NodeStatus::Active);
                if status == NodeStatus::Active && active < 2 {
                    let reason = format!("{name} is the only unit: no other one can take its flows");
                    return rollout.fail(reason);
                }
                event::rollout_node(&rollout.texts.name, &name);
                let is_unit = status == NodeStatus::Active;
                rollout.renewing = Some(Renewing { name, since_ns: now_ns, is_unit });
                self.peers.send(peer, 0, |out| write_renew(out, &digest));
            }
            None if rollout.graph.is_none() => {
                rollout.state = RolloutState::Done;
                self.peers.network().policies().adopt(digest);
                event::rollout_done(&rollout.texts.name);
            }
            None => {} // The graph is replaced between two batches.
        }
    }

    /// Replaces the dispatcher's graph, once all nodes run the policy. Called while the transport
    /// has it.
    pub(super) fn replace_graph(&mut self) {
        let Some(rollout) = self
            .rollout
            .as_mut()
            .filter(|rollout| rollout.state == RolloutState::Rolling && rollout.renewing.is_none())
        else {
            return;
        };
        if self.nodes.next_without(&rollout.digest).is_some() {
            return;
        }
        if let Some(mut graph) = rollout.graph.take() {
            for (stage, command) in &self.controls {
                // It was accepted by the same function with another configuration.
                let _ = graph.stage_mut(*stage).map(|function| function.control(command));
            }
            // Datagrams whose first fragment is known go on.
            std::mem::swap(graph.classifier_mut(), self.local.graph.classifier_mut());
            let former = std::mem::replace(&mut self.local.graph, graph);
            self.former_graphs.push(former);
            self.units.know_figures(Figures::of(&self.local.graph));
        }
        self.advance_rollout();
    }

    /// Returns the state of the latest rollout.
    pub(super) fn rollout_status(&self) -> Option<RolloutStatus> {
        let rollout = self.rollout.as_ref()?;
        Some(RolloutStatus {
            number: rollout.number,
            name: rollout.texts.name.clone(),
            digest: rollout.digest,
            state: rollout.state.clone(),
            node: rollout.renewing.as_ref().map(|renewing| renewing.name.clone()),
            nodes_done: self.nodes.count_with(&rollout.digest),
            nodes: self.nodes.links().count(),
        })
    }
}
