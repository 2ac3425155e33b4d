//! Rollout of a policy to all nodes while packets flow: all or nothing.
//!
//! First all nodes read the policy, including those of other dispatchers; if one cannot run it,
//! nothing changes. Then it gets the next number, is stored for later starts, and holds: from here
//! the rollout only moves forward. Each unit in turn hands its flows over, and reconnects with the
//! policy. A flow is at one unit at a time, so it has one policy at a time; its state moves as in
//! any handover. At the end the dispatcher's own graph is replaced. A node that is away in the
//! meantime has the lower number when it reconnects, and gets the policy then.

use graph::Graph;
use runtime::report::Figures;
use telemetry::event;

use super::RemoteUnits;
use super::desk::{NewPolicy, PolicySource};
use super::nodes::NodeStatus;
use super::orders::{FAILED_ORDERS_MAX, FailedOrder, OrderReply, PolicyOrder};
use crate::network::Network;
use crate::peers::{ORDERED, PeerId};
use crate::policies::{AppliedPolicy, Digest, KeptPolicy, NumberedDigest};
use crate::wire::{PolicyFrame, write_policy, write_policy_frame, write_renew};

/// Limit on the time for all nodes to read a policy.
const READ_NS: u64 = 60_000_000_000;
/// The same for a dry run, because its sender waits for the reply.
const CHECK_NS: u64 = 12_000_000_000;
/// Limit on the time of one unit, from the order to its reconnection. After that others are next,
/// and it gets the policy when it reconnects.
const UNIT_NS: u64 = 20_000_000_000;
/// Limit on the time for a reconnected unit to become ready before the next one leaves.
const RETURN_NS: u64 = 1_000_000_000;
/// Time after which an unfinished rollout yields to another order.
const STUCK_NS: u64 = 60_000_000_000;
/// Period of requests for a unit that takes the flows of the only one.
const JOIN_NS: u64 = 1_000_000_000;

/// Progress of a policy's rollout.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RolloutStatus {
    /// Number of the order, as [`RemoteHandle::apply`](super::RemoteHandle::apply) returned it; 0
    /// if it was given at another dispatcher.
    pub number: u64,
    /// The name of the policy's file.
    pub name: String,
    /// The policy's number once it holds.
    pub policy_number: u64,
    /// Its digest.
    pub digest: Digest,
    /// The state.
    pub state: RolloutState,
    /// The node that changes its policy now.
    pub node: Option<String>,
    /// Nodes that run it.
    pub nodes_done: usize,
    /// Connected nodes.
    pub nodes: usize,
}

/// The phase of a rollout.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum RolloutState {
    /// Nodes read the policy.
    #[default]
    Reading,
    /// It holds, and nodes change to it one after the other.
    Rolling,
    /// All connected nodes run it.
    Done,
    /// It failed before anything changed, for this reason.
    Failed(String),
}

/// The latest rollout.
pub(super) struct Rollout {
    order: u64,
    began_ns: u64,
    policy: AppliedPolicy,
    /// Until it is in use.
    graph: Option<Box<Graph>>,
    state: RolloutState,
    origin: Origin,
    /// The node that changes its policy now.
    renewing: Option<Renewing>,
    /// Time of the last request for a unit that takes the flows of the only one.
    joined_ns: u64,
    /// Other dispatchers were notified that all nodes of this one run it.
    has_notified: bool,
    /// The previous rollout, restored if this one is a dry run or a refused proposal.
    former: Option<Box<Rollout>>,
}

/// The origin of the order.
enum Origin {
    /// This dispatcher, which waits for these other dispatchers.
    Here {
        others: Vec<PeerId>,
        /// The reply to a dry run.
        check: Option<OrderReply>,
        /// All nodes can run it, and it is being stored.
        is_keeping: bool,
    },
    /// Another dispatcher, which waits for an answer.
    Other { from: PeerId, has_answered: bool },
    /// It holds already.
    Cluster,
}

/// A node that changes its policy.
struct Renewing {
    name: String,
    since_ns: u64,
    /// Ready units before, and the time at which the node was back.
    working: usize,
    back_ns: Option<u64>,
}

impl Rollout {
    fn new(policy: AppliedPolicy, graph: Box<Graph>, (order, origin): (u64, Origin), now_ns: u64) -> Rollout {
        let state = match origin {
            Origin::Cluster => RolloutState::Rolling,
            Origin::Here { .. } | Origin::Other { .. } => RolloutState::Reading,
        };
        let (graph, renewing, former) = (Some(graph), None, None);
        Rollout {
            order,
            began_ns: now_ns,
            policy,
            graph,
            state,
            origin,
            renewing,
            joined_ns: 0,
            has_notified: false,
            former,
        }
    }

    fn is_reading(&self) -> bool {
        self.state == RolloutState::Reading
    }

    /// Returns the policy if it is being read and does not hold yet.
    fn proposed(&self) -> Option<&AppliedPolicy> {
        self.is_reading().then_some(&self.policy)
    }

    /// Returns true if no other order is accepted now.
    fn is_busy(&self, now_ns: u64) -> bool {
        let is_stuck = now_ns.saturating_sub(self.began_ns) >= STUCK_NS;
        self.is_reading() || self.state == RolloutState::Rolling && !is_stuck
    }
}

impl<N: Network> RemoteUnits<N> {
    /// Accepts an order, or refuses it.
    pub(super) fn take_order(&mut self, order: PolicyOrder) {
        let PolicyOrder { number, policy: NewPolicy { texts, digest, graph }, is_dry_run, reply } = order;
        if let Some(reason) = self.reason_against_order() {
            self.note_failure(FailedOrder { number, name: texts.name, reason: reason.clone() });
            return reply(Err(reason));
        }
        let id = NumberedDigest { number: self.desk.present.id.number + 1, digest };
        let policy = AppliedPolicy { id, texts };
        let others: Vec<PeerId> = self.homes.links().collect();
        let proposal = PolicyFrame::Propose(policy.clone());
        self.send_policy_frame(&others, &proposal);
        let check = match is_dry_run {
            true => Some(reply),
            false => {
                event::rollout_started(&policy.texts.name);
                reply(Ok(number));
                None
            }
        };
        let is_check = check.is_some();
        let origin = Origin::Here { others, check, is_keeping: false };
        let rollout = Rollout::new(policy, graph, (number, origin), self.peers.now_ns());
        self.begin_reading(rollout, is_check);
    }

    fn note_failure(&mut self, order: FailedOrder) {
        if self.failed_orders.len() >= FAILED_ORDERS_MAX {
            self.failed_orders.pop_front();
        }
        self.failed_orders.push_back(order);
    }

    /// Returns the reason why no order is accepted now, if any.
    fn reason_against_order(&self) -> Option<String> {
        let now_ns = self.peers.now_ns();
        if let Some(first) = self.homes.first().filter(|_| !self.desk.shelf.is_shared()) {
            return Some(format!(
                "{first} orders policies, as the first of `[dispatchers]`: apply it there; with `[store]`, all of \
                 them may"
            ));
        }
        if let Some(rollout) = self.rollout.as_ref().filter(|rollout| rollout.is_busy(now_ns)) {
            let by = match &rollout.origin {
                Origin::Other { from, .. } => format!(" at {}", self.peers.name(*from)),
                Origin::Here { .. } | Origin::Cluster => String::new(),
            };
            return Some(format!("{} is being applied{by}; wait for its end", rollout.policy.texts.name));
        }
        if let Some((from, name)) = self.desk.proposed() {
            return Some(format!("{name} is being applied at {}; wait for its end", self.peers.name(from)));
        }
        let is_late = self.desk.is_at_work();
        is_late.then(|| "this dispatcher is about to take a later policy over; try again".to_owned())
    }

    /// Has all nodes read a policy.
    fn begin_reading(&mut self, mut rollout: Rollout, keeps_former: bool) {
        self.peers.network().policies().accept(rollout.policy.id.digest);
        self.nodes.forget_reads();
        rollout.former = self.rollout.take().filter(|_| keeps_former).map(Box::new);
        self.rollout = Some(rollout);
        self.offer_policies();
    }

    fn offer_policies(&mut self) {
        let links: Vec<PeerId> = self.nodes.links().collect();
        links.into_iter().for_each(|peer| self.offer_policy(peer));
    }

    /// Sends a node the policy that it lacks: the next one while it is read, the present one
    /// otherwise.
    pub(super) fn offer_policy(&mut self, peer: PeerId) {
        let Some(runs) = self.nodes.policy_at(peer) else { return };
        let present = &self.desk.present;
        if let Some(rollout) = self.rollout.as_mut().filter(|_| runs.digest != present.id.digest) {
            // It was changing its policy, and is another process now: it gets another turn.
            rollout.renewing.take_if(|renewing| self.nodes.is_at(peer, &renewing.name));
        }
        if runs.digest == present.id.digest && runs.number < present.id.number {
            self.nodes.set_number(peer, present.id.number);
            let runs = PolicyFrame::Runs(present.id);
            self.peers.send(peer, ORDERED, |out| write_policy_frame(out, &runs));
        }
        let proposed = self.rollout.as_ref().and_then(Rollout::proposed);
        // A node with a later policy has to send that one.
        let wanted = proposed.unwrap_or(present);
        if runs.number <= wanted.id.number && runs.digest != wanted.id.digest {
            self.peers.send(peer, ORDERED, |out| write_policy(out, &wanted.texts, &wanted.id.digest));
        }
    }

    /// Takes a node's answer about a policy: it has read it, or cannot run it.
    pub(super) fn policy_read(&mut self, peer: PeerId, asked: Digest, read: Result<Digest, String>) {
        let name = self.peers.name(peer);
        let present = self.desk.present.id;
        let proposed = self.rollout.as_ref().and_then(Rollout::proposed).map(|policy| policy.id.digest);
        // An earlier version does not name the policy.
        let is_unnamed = asked == Digest::default();
        let expected = if is_unnamed { proposed.unwrap_or(present.digest) } else { asked };
        let read = read.and_then(|digest| match digest == expected {
            true => Ok(()),
            false => Err("it reads the policy differently: it is another version of the program".to_owned()),
        });
        match read {
            Ok(()) if Some(expected) == proposed => self.nodes.set_read(peer),
            Err(reason) if Some(expected) == proposed => {
                self.end_reading(Err(format!("{name} cannot run the policy: {reason}")));
            }
            Ok(()) if expected == present.digest => {
                let is_under_way = |rollout: &Rollout| {
                    matches!(rollout.state, RolloutState::Reading | RolloutState::Rolling)
                };
                match self.rollout.as_ref().is_some_and(is_under_way) {
                    true => self.nodes.set_read(peer),
                    // It has connected after the others, and has no unit yet.
                    false => self.renew(peer, present),
                }
            }
            Err(reason) if expected == present.digest => {
                event::policy_unfit(&self.desk.present.texts.name, &name, &reason);
            }
            // The policy was withdrawn in the meantime.
            Ok(()) | Err(_) => {}
        }
    }

    fn renew(&mut self, peer: PeerId, policy: NumberedDigest) {
        self.nodes.set_renewing(peer);
        self.peers.send(peer, ORDERED, |out| write_renew(out, &policy));
    }

    /// Takes a frame of another node about policies. Returns false if its sender may not send it.
    pub(super) fn take_policy_frame(&mut self, peer: PeerId, frame: PolicyFrame) -> bool {
        let is_dispatcher = self.homes.at(peer).is_some();
        match frame {
            PolicyFrame::Present(policy) => {
                self.desk.answered(peer);
                self.take_over(policy);
                return true;
            }
            _ if !is_dispatcher => return false,
            PolicyFrame::Propose(policy) => self.consider_proposal(peer, policy),
            PolicyFrame::Proposed(policy, reason) => self.take_answer(peer, policy, &reason),
            PolicyFrame::Commit(policy) => match self.is_proposed_by(peer, policy) {
                true => self.commit(false),
                false => self.meet_policy(peer, policy),
            },
            PolicyFrame::Abort(policy) => {
                self.desk.forget_proposal(peer);
                if self.is_proposed_by(peer, policy) {
                    self.end_reading(Err(format!("{} has withdrawn it", self.peers.name(peer))));
                }
            }
            PolicyFrame::Wanted => {
                let present = PolicyFrame::Present(self.desk.present.clone());
                self.send_policy_frame(&[peer], &present);
            }
            PolicyFrame::Runs(policy) => {
                self.homes.set_policy(peer, policy);
                self.meet_policy(peer, policy);
            }
        }
        true
    }

    fn is_proposed_by(&self, peer: PeerId, policy: NumberedDigest) -> bool {
        self.rollout.as_ref().is_some_and(|rollout| {
            let is_its = matches!(&rollout.origin, Origin::Other { from, .. } if *from == peer);
            is_its && rollout.is_reading() && rollout.policy.id == policy
        })
    }

    fn send_policy_frame(&mut self, to: &[PeerId], frame: &PolicyFrame) {
        to.iter().for_each(|&peer| self.peers.send(peer, ORDERED, |out| write_policy_frame(out, frame)));
    }

    /// Compares the policy of another node: a later one is requested, unless only its number is
    /// new.
    pub(super) fn meet_policy(&mut self, peer: PeerId, policy: NumberedDigest) {
        let present = &mut self.desk.present;
        if policy.digest == present.id.digest && policy.number > present.id.number {
            present.id = policy;
            self.peers.network().policies().adopt(policy);
            self.desk.shelf.keep(&self.desk.present, false);
            self.offer_policies();
        } else if self.desk.must_ask(peer, policy) {
            self.send_policy_frame(&[peer], &PolicyFrame::Wanted);
        }
    }

    /// Withdraws all requests to a lost node.
    pub(super) fn forget_policies_of(&mut self, peer: PeerId) {
        self.desk.answered(peer);
        self.desk.forget_proposal(peer);
        match self.rollout.as_mut().map(|rollout| (rollout.is_reading(), &mut rollout.origin)) {
            Some((true, Origin::Here { others, .. })) => others.retain(|other| *other != peer),
            Some((true, Origin::Other { from, .. })) if *from == peer => {
                let reason = format!("{} is lost, which has ordered it", self.peers.name(peer));
                self.end_reading(Err(reason));
            }
            _ => {}
        }
        let again = self.nodes.latest().filter(|(_, policy)| policy.number > self.desk.present.id.number);
        if let Some((other, policy)) = again.filter(|(other, _)| *other != peer) {
            self.meet_policy(other, policy);
        }
    }

    /// Adopts a policy of the cluster, if it is later than the present one.
    fn take_over(&mut self, policy: AppliedPolicy) {
        if policy.id.number <= self.desk.present.id.number {
            return;
        }
        let proposed = self.rollout.as_ref().filter(|rollout| rollout.is_reading());
        match proposed.filter(|rollout| rollout.policy.id == policy.id).map(|rollout| &rollout.origin) {
            Some(Origin::Other { .. }) => self.commit(false),
            Some(Origin::Here { is_keeping: true, .. }) => {} // It is being stored at this moment.
            _ => self.desk.begin(policy, PolicySource::Cluster),
        }
    }

    /// Considers a policy that another dispatcher proposes. Of two concurrent proposals, the one of
    /// the first dispatcher by name wins.
    fn consider_proposal(&mut self, peer: PeerId, policy: AppliedPolicy) {
        let now_ns = self.peers.now_ns();
        let present = self.desk.present.id.number;
        let other = self.peers.name(peer);
        let earlier = self.desk.proposed().filter(|(from, _)| *from != peer);
        let earlier = earlier.map(|(from, name)| (self.peers.name(from), name.to_owned()));
        let reason = match self.rollout.as_ref().filter(|rollout| rollout.is_busy(now_ns)) {
            _ if policy.id.number <= present => Some(format!("policy {present} was applied before")),
            None if self.desk.takes_over() => Some("a later policy is on its way".to_owned()),
            None if earlier.as_ref().is_some_and(|(from, _)| *from < other) => {
                earlier.map(|(from, name)| format!("{from} applies {name} at the same time"))
            }
            Some(rollout) => {
                let name = rollout.policy.texts.name.clone();
                let rival = match &rollout.origin {
                    Origin::Here { is_keeping: false, .. } => Some(self.homes.own_name().to_owned()),
                    Origin::Other { from, .. } if rollout.is_reading() => Some(self.peers.name(*from)),
                    _ => None,
                };
                let at = rival.clone().unwrap_or_default();
                if rollout.is_reading() && rival.is_some_and(|rival| other < rival) {
                    self.end_reading(Err(format!("{other} applies {} at the same time", policy.texts.name)));
                    None
                } else if at.is_empty() {
                    Some(format!("{name} is being applied"))
                } else {
                    Some(format!("{at} applies {name} at the same time"))
                }
            }
            None => None,
        };
        match reason {
            Some(reason) => self.send_policy_frame(&[peer], &PolicyFrame::Proposed(policy.id, reason)),
            None => self.desk.begin(policy, PolicySource::Proposed(peer)),
        }
    }

    /// Takes another dispatcher's answer to a proposal; an empty reason means that it can run the
    /// policy.
    fn take_answer(&mut self, peer: PeerId, policy: NumberedDigest, reason: &str) {
        let name = self.peers.name(peer);
        let Some(rollout) = self.rollout.as_mut().filter(|rollout| rollout.policy.id == policy) else {
            return;
        };
        let is_reading = rollout.is_reading();
        let Origin::Here { others, .. } = &mut rollout.origin else { return };
        if !is_reading {
            return;
        }
        match reason.is_empty() {
            true => others.retain(|other| *other != peer),
            false => {
                // It expects no end of a proposal that it has refused.
                self.end_reading(Err(format!("{name}: {reason}")));
            }
        }
    }

    /// Advances all policies in progress.
    pub(super) fn advance_policies(&mut self) {
        while let Some((policy, source, made)) = self.desk.poll() {
            self.take_made(policy, source, made);
        }
        if let Some(newer) = self.desk.shelf.poll_newer() {
            self.take_over(newer);
        }
        self.take_kept();
        self.advance_reading();
        self.advance_rolling();
    }

    /// Takes a policy of another node that was made here, or the error.
    fn take_made(&mut self, policy: AppliedPolicy, source: PolicySource, made: Result<NewPolicy, String>) {
        let now_ns = self.peers.now_ns();
        match (source, made) {
            (PolicySource::Proposed(from), Ok(NewPolicy { graph, .. })) => {
                let origin = Origin::Other { from, has_answered: false };
                event::rollout_started(&policy.texts.name);
                self.begin_reading(Rollout::new(policy, graph, (0, origin), now_ns), true);
            }
            (PolicySource::Proposed(from), Err(reason)) => {
                self.send_policy_frame(&[from], &PolicyFrame::Proposed(policy.id, reason));
            }
            (PolicySource::Cluster, Ok(NewPolicy { graph, .. })) => {
                if policy.id.number <= self.desk.present.id.number {
                    return;
                }
                let reason = format!("the cluster has {} in the meantime", policy.texts.name);
                self.end_reading(Err(reason));
                self.nodes.forget_reads();
                self.rollout = Some(Rollout::new(policy, graph, (0, Origin::Cluster), now_ns));
                self.hold(false);
            }
            (PolicySource::Cluster, Err(reason)) => {
                self.desk.set_unfit(policy.id);
                event::policy_unfit(&policy.texts.name, &self.homes.own_name(), &reason);
            }
        }
    }

    /// Takes the outcome of storing a policy.
    fn take_kept(&mut self) {
        let Some(KeptPolicy { policy, is_order, outcome }) = self.desk.shelf.poll_kept() else { return };
        let is_awaited = self.rollout.as_ref().is_some_and(|rollout| {
            let is_keeping = matches!(rollout.origin, Origin::Here { is_keeping: true, .. });
            rollout.is_reading() && is_keeping && rollout.policy.id == policy
        });
        let is_order = is_order && is_awaited;
        match outcome {
            Ok(()) if is_order => self.commit(true),
            Ok(()) => {}
            Err(reason) if is_order => self.end_reading(Err(reason)),
            Err(reason) => event::policy_not_kept(&self.desk.present.texts.name, &reason),
        }
    }

    /// Moves on once all nodes have read a policy; fails if one takes too long.
    fn advance_reading(&mut self) {
        let now_ns = self.peers.now_ns();
        let Some(rollout) = self.rollout.as_mut().filter(|rollout| rollout.is_reading()) else { return };
        let id = rollout.policy.id;
        let waited_ns = now_ns.saturating_sub(rollout.began_ns);
        let limit_ns = match &rollout.origin {
            Origin::Here { check: Some(_), .. } => CHECK_NS,
            _ => READ_NS,
        };
        if let Some(name) = self.nodes.first_not_read(&id.digest) {
            if waited_ns >= limit_ns {
                let reason = format!("{name} has not read the policy after {} s", limit_ns / 1_000_000_000);
                self.end_reading(Err(reason));
            }
            return;
        }
        let only = self.only_unit(&id.digest);
        let Some(rollout) = &mut self.rollout else { return };
        match &mut rollout.origin {
            Origin::Here { is_keeping: true, .. } | Origin::Other { has_answered: true, .. } => {}
            _ if only.is_some() => {
                let name = only.unwrap_or_default();
                let reason = format!("{name} is the only unit: no other one can take its flows");
                self.end_reading(Err(reason));
            }
            Origin::Here { others, .. } if !others.is_empty() => {
                if waited_ns >= limit_ns {
                    let names: Vec<String> = others.iter().map(|&other| self.peers.name(other)).collect();
                    let after = limit_ns / 1_000_000_000;
                    self.end_reading(Err(format!("{}: no answer after {after} s", names.join(", "))));
                }
            }
            Origin::Here { check: Some(_), .. } => self.end_reading(Ok(())),
            Origin::Here { is_keeping, .. } => {
                *is_keeping = true;
                self.desk.shelf.keep(&rollout.policy, true);
                self.take_kept();
            }
            Origin::Other { from, has_answered } => {
                *has_answered = true;
                let from = *from;
                self.send_policy_frame(&[from], &PolicyFrame::Proposed(id, String::new()));
            }
            Origin::Cluster => {}
        }
    }

    /// Returns the only unit, if it must change its policy and no other node can take its flows.
    fn only_unit(&self, digest: &Digest) -> Option<String> {
        let has_other = self.nodes.count_usable() > 1;
        self.nodes.active_without(digest).filter(|_| !has_other)
    }

    /// Ends a rollout without a change: it has failed, or was a dry run.
    fn end_reading(&mut self, outcome: Result<(), String>) {
        let Some(mut rollout) = self.rollout.take_if(|rollout| rollout.is_reading()) else { return };
        let id = rollout.policy.id;
        let reason = outcome.as_ref().err().cloned().unwrap_or_default();
        let mut is_shown = false;
        match rollout.origin {
            Origin::Here { check, .. } => {
                let others: Vec<PeerId> = self.homes.links().collect();
                self.send_policy_frame(&others, &PolicyFrame::Abort(id));
                is_shown = check.is_none();
                match check {
                    Some(reply) => reply(outcome.map(|()| rollout.order)),
                    None => {
                        let (number, name) = (rollout.order, rollout.policy.texts.name.clone());
                        event::rollout_failed(&name, &reason);
                        self.note_failure(FailedOrder { number, name, reason: reason.clone() });
                    }
                }
                rollout.origin = Origin::Cluster;
            }
            Origin::Other { from, has_answered } => {
                if !has_answered && self.homes.at(from).is_some() {
                    self.send_policy_frame(&[from], &PolicyFrame::Proposed(id, reason.clone()));
                }
                rollout.origin = Origin::Cluster;
            }
            Origin::Cluster => {}
        }
        self.rollout = match is_shown {
            true => {
                (rollout.state, rollout.graph) = (RolloutState::Failed(reason), None);
                Some(rollout)
            }
            false => rollout.former.take().map(|former| *former),
        };
        self.nodes.forget_reads();
        self.offer_policies();
    }

    /// Lets a policy hold that all nodes have read. `is_order`: it was ordered here.
    fn commit(&mut self, is_order: bool) {
        if is_order && let Some(rollout) = &self.rollout {
            let commit = PolicyFrame::Commit(rollout.policy.id);
            let others: Vec<PeerId> = self.homes.links().collect();
            self.send_policy_frame(&others, &commit);
        }
        self.hold(is_order);
    }

    /// Makes the rollout's policy the present one.
    fn hold(&mut self, is_kept: bool) {
        let Some(rollout) = &mut self.rollout else { return };
        (rollout.state, rollout.origin) = (RolloutState::Rolling, Origin::Cluster);
        (rollout.began_ns, rollout.former) = (self.peers.now_ns(), None);
        let before = std::mem::replace(&mut self.desk.present, rollout.policy.clone());
        let present = &self.desk.present;
        self.peers.network().policies().adopt(present.id);
        event::policy_changed(&present.texts.name, present.id.number, &before.texts.name);
        if !is_kept {
            self.desk.shelf.keep(present, false);
        }
        // Nodes that run it already may become units now; the others receive it.
        self.offer_policies();
        (0..self.nodes.count_spare_with(&self.desk.present.id.digest)).for_each(|_| self.activate_spare());
    }

    /// Has one node after the other change to the policy.
    fn advance_rolling(&mut self) {
        let now_ns = self.peers.now_ns();
        let is_rolling = |rollout: &&mut Rollout| rollout.state == RolloutState::Rolling;
        let Some(rollout) = self.rollout.as_mut().filter(is_rolling) else { return };
        let id = rollout.policy.id;
        let is_ready = |unit| self.units.get(unit).is_some_and(|unit| unit.is_ready);
        let working = self.nodes.count_working(is_ready);
        if let Some(renewing) = &mut rollout.renewing {
            let since_ns = now_ns.saturating_sub(renewing.since_ns);
            if self.nodes.runs(&renewing.name, &id.digest, is_ready) {
                let back_ns = *renewing.back_ns.get_or_insert(now_ns);
                let is_whole = working >= renewing.working;
                if !is_whole && now_ns.saturating_sub(back_ns) < RETURN_NS {
                    return;
                }
            } else if since_ns < UNIT_NS {
                return;
            }
            rollout.renewing = None;
        }
        let next = self.nodes.next_without(&id.digest);
        let Some((name, peer, status)) = next else {
            if rollout.graph.is_none() && !self.nodes.has_some_without(&id.digest) {
                self.end_rolling();
            }
            return; // The graph is replaced between two batches.
        };
        if status == NodeStatus::Active && self.start.is_awaited {
            return; // No other unit can take its flows yet.
        }
        if status == NodeStatus::Active && working < 2 {
            // Another unit must take its flows; without one, it waits.
            if now_ns.saturating_sub(rollout.joined_ns) >= JOIN_NS {
                rollout.joined_ns = now_ns;
                if self.nodes.count_spare_with(&id.digest) > 0 {
                    self.activate_spare();
                }
            }
            return;
        }
        event::rollout_node(&rollout.policy.texts.name, &name);
        rollout.renewing = Some(Renewing { name, since_ns: now_ns, working, back_ns: None });
        self.renew(peer, id);
    }

    /// Notes that all nodes of this dispatcher run the policy. It is done once all others do.
    fn end_rolling(&mut self) {
        let Some(rollout) = &mut self.rollout else { return };
        let id = rollout.policy.id;
        if self.homes.all_run(id) {
            rollout.state = RolloutState::Done;
            event::rollout_done(&rollout.policy.texts.name);
        }
        if !std::mem::replace(&mut rollout.has_notified, true) {
            let others: Vec<PeerId> = self.homes.links().collect();
            self.send_policy_frame(&others, &PolicyFrame::Runs(id));
        }
    }

    /// Replaces the dispatcher's graph once all nodes run the policy. Called while the transport
    /// has the graph.
    pub(super) fn replace_graph(&mut self) {
        let is_due =
            |rollout: &&mut Rollout| rollout.state == RolloutState::Rolling && rollout.renewing.is_none();
        let Some(rollout) = self.rollout.as_mut().filter(is_due) else { return };
        if self.nodes.has_some_without(&rollout.policy.id.digest) {
            return;
        }
        if let Some(mut graph) = rollout.graph.take() {
            for (stage, command) in &self.controls {
                // The same function has accepted it with another configuration.
                let _ = graph.stage_mut(*stage).map(|function| function.control(command));
            }
            // Keeps datagrams with a known first fragment.
            std::mem::swap(graph.classifier_mut(), self.local.graph.classifier_mut());
            let former = std::mem::replace(&mut self.local.graph, graph);
            self.former_graphs.push(former);
            self.units.know_figures(Figures::of(&self.local.graph));
        }
        self.advance_rolling();
    }

    /// Returns the state of the latest rollout.
    pub(super) fn rollout_status(&self) -> Option<RolloutStatus> {
        let latest = self.rollout.as_ref()?;
        let is_check = matches!(latest.origin, Origin::Here { check: Some(_), .. });
        let rollout = match is_check {
            true => latest.former.as_deref()?,
            false => latest,
        };
        Some(RolloutStatus {
            number: rollout.order,
            name: rollout.policy.texts.name.clone(),
            policy_number: rollout.policy.id.number,
            digest: rollout.policy.id.digest,
            state: rollout.state.clone(),
            node: rollout.renewing.as_ref().map(|renewing| renewing.name.clone()),
            nodes_done: self.nodes.count_with(&rollout.policy.id.digest),
            nodes: self.nodes.links().count(),
        })
    }
}
