//! The nodes of a cluster from the dispatcher's point of view.

use protocol::message::UnitId;
use runtime::transport::UnitChange;

use crate::peers::PeerId;
use crate::policies::{Digest, NumberedDigest};
use crate::wire::UnitAddress;

/// A node, for operators.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeInfo {
    /// Its name.
    pub name: String,
    /// The address of its handshakes.
    pub address: String,
    /// Its state.
    pub status: NodeStatus,
    /// Its unit.
    pub unit: Option<UnitId>,
    /// Packets sent to that unit.
    pub packets: u64,
    /// The policy that it runs, while connected.
    pub policy: Option<NumberedDigest>,
    /// Explanation of its state, for operators; may be empty.
    pub reason: String,
    /// Length of its silence, if it is [suspect](NodeStatus::Suspect).
    pub silent_ns: Option<u64>,
}

/// The state of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeStatus {
    /// Not connected.
    Connecting,
    /// Connected, but not needed as a unit.
    Spare,
    /// Connected, and running a unit.
    Active,
    /// Silent, but not given up: it keeps its flows, and new ones go elsewhere.
    Suspect,
    /// Handing its flows over.
    Draining,
    /// Without flows, and excluded from new ones.
    Drained,
}

impl NodeStatus {
    /// All states.
    pub const ALL: [NodeStatus; 6] = [
        NodeStatus::Connecting,
        NodeStatus::Spare,
        NodeStatus::Active,
        NodeStatus::Suspect,
        NodeStatus::Draining,
        NodeStatus::Drained,
    ];

    /// Returns the name of the state.
    pub fn name(self) -> &'static str {
        match self {
            NodeStatus::Connecting => "connecting",
            NodeStatus::Spare => "spare",
            NodeStatus::Active => "active",
            NodeStatus::Suspect => "suspect",
            NodeStatus::Draining => "draining",
            NodeStatus::Drained => "drained",
        }
    }
}

/// Time during which a node at another address may be the next process of a node that ends, in
/// nanoseconds. After that it is another node with the same name.
const DOUBLED_NS: u64 = 5_000_000_000;

/// All nodes.
#[derive(Default)]
pub(super) struct Nodes(Vec<Node>);

/// Outcome of resuming a node.
pub(super) enum ResumedNode {
    /// Nothing more to do now.
    Unchanged,
    /// It is connected and can become a unit.
    Spare,
    /// It must be connected at this address.
    Awaited(String),
    /// It was a unit, and becomes another one after this link has ended.
    Parting(PeerId),
}

pub(super) struct Node {
    info: NodeInfo,
    peer: Option<PeerId>,
    /// It has read the next policy.
    has_read: bool,
    /// It will stay drained after its reconnection with another policy.
    stays_drained: bool,
    /// It has announced its end; it may come back.
    is_leaving: bool,
    /// Time at which it was ordered to end its link and reconnect.
    parting_ns: Option<u64>,
    /// It was ordered to, has not reconnected yet, and no operator has drained it since.
    is_renewing: bool,
    /// Its address after the present link has ended.
    next_address: Option<String>,
    /// Time since which another node has its name, and whether that was reported.
    doubled: Option<(u64, bool)>,
    /// The error of the last attempt to connect.
    fault: String,
    /// It is no longer a member. An existing link continues until it ends; the node is not awaited
    /// again.
    is_removed: bool,
}

impl Node {
    fn runs(&self, policy: &Digest) -> bool {
        self.info.policy.is_some_and(|runs| runs.digest == *policy)
    }

    /// Notes the order to end its link and reconnect as another unit.
    fn renew(&mut self, now_ns: u64) {
        (self.is_leaving, self.is_renewing) = (true, true);
        self.parting_ns.get_or_insert(now_ns);
    }

    /// Returns true if it can become a unit.
    fn is_free(&self) -> bool {
        self.info.status == NodeStatus::Spare && self.info.unit.is_none()
    }

    /// Returns true if its entry can be reused: it is no member, and has no link and no unit.
    fn is_forgotten(&self) -> bool {
        let Node { info, peer, is_removed, .. } = self;
        *is_removed && peer.is_none() && info.unit.is_none() && info.status == NodeStatus::Connecting
    }

    /// Returns the explanation of its state.
    fn reason(&self) -> String {
        if let (Some((_, true)), Some(other)) = (self.doubled, &self.next_address) {
            return format!("another node of this name is at {other}");
        }
        match self.info.status {
            NodeStatus::Connecting if self.is_removed => "no member any more".to_owned(),
            NodeStatus::Connecting => self.fault.clone(),
            NodeStatus::Spare => "the load does not need it".to_owned(),
            NodeStatus::Draining if self.is_leaving => "it ends".to_owned(),
            NodeStatus::Drained if self.is_renewing => "it becomes another unit".to_owned(),
            NodeStatus::Drained if self.is_leaving => "it ends".to_owned(),
            NodeStatus::Drained => "drained by an operator, until it is resumed".to_owned(),
            _ => String::new(),
        }
    }
}

impl Nodes {
    /// Adds a member, or sets its address. Returns true if it must be connected now.
    pub fn add(&mut self, name: &str, address: &str) -> bool {
        let Some(node) = self.0.iter_mut().find(|node| node.info.name == name) else {
            let (name, address) = (name.to_owned(), address.to_owned());
            let status = NodeStatus::Connecting;
            let (policy, reason, silent_ns) = (None, String::new(), None);
            let info = NodeInfo { name, address, status, unit: None, packets: 0, policy, reason, silent_ns };
            let node = Node {
                info,
                peer: None,
                has_read: false,
                stays_drained: false,
                is_leaving: false,
                parting_ns: None,
                is_renewing: false,
                next_address: None,
                doubled: None,
                fault: String::new(),
                is_removed: false,
            };
            match self.0.iter_mut().find(|node| node.is_forgotten()) {
                Some(place) => *place = node,
                None => self.0.push(node),
            }
            return true;
        };
        let was_removed = std::mem::replace(&mut node.is_removed, false);
        if node.peer.is_some() {
            node.next_address = Some(address.to_owned());
            return false;
        }
        let has_moved = node.info.address != address;
        node.info.address = address.to_owned();
        node.info.status == NodeStatus::Connecting && (has_moved || was_removed)
    }

    /// Removes a member.
    pub fn remove(&mut self, name: &str) {
        if let Some(node) = self.0.iter_mut().find(|node| node.info.name == name) {
            node.is_removed = true;
        }
    }

    /// Notes a connected node. Returns its index; `None` if it is not awaited.
    pub fn connected(&mut self, name: &str, peer: PeerId, policy: NumberedDigest) -> Option<usize> {
        let waits = |node: &Node| {
            let is_away = node.info.status == NodeStatus::Connecting || node.stays_drained;
            is_away && node.peer.is_none() && !node.is_removed
        };
        let is_it = |node: &Node| node.info.name == name && waits(node);
        let place = self.0.iter().position(is_it)?;
        let node = &mut self.0[place];
        let is_drained = std::mem::take(&mut node.stays_drained);
        let status = if is_drained { NodeStatus::Drained } else { NodeStatus::Spare };
        (node.peer, node.info.status, node.is_leaving) = (Some(peer), status, false);
        (node.info.policy, node.has_read) = (Some(policy), false);
        (node.parting_ns, node.is_renewing) = (None, false);
        (node.fault, node.doubled) = (String::new(), None);
        Some(place)
    }

    /// Returns the link to the node of this name.
    pub fn peer_of(&self, name: &str) -> Option<PeerId> {
        self.0.iter().find(|node| node.info.name == name)?.peer
    }

    /// Notes a failed attempt to connect to a node.
    pub fn failed(&mut self, name: &str, fault: String) {
        if let Some(node) = self.0.iter_mut().find(|node| node.info.name == name) {
            (node.fault, node.is_renewing) = (fault, false);
        }
    }

    /// Returns nodes with the name of a connected node, but another address, after [`DOUBLED_NS`];
    /// each once: name, address, and the connected node's address.
    pub fn take_doubled(&mut self, now_ns: u64) -> Vec<(String, String, String)> {
        let mut doubled = Vec::new();
        for node in &mut self.0 {
            let other = node.next_address.as_ref().filter(|&address| *address != node.info.address);
            let (Some(other), Some(_)) = (other, node.peer) else {
                node.doubled = None;
                continue;
            };
            let (since_ns, is_reported) = node.doubled.get_or_insert((now_ns, false));
            if now_ns.saturating_sub(*since_ns) >= DOUBLED_NS && !std::mem::replace(is_reported, true) {
                doubled.push((node.info.name.clone(), other.clone(), node.info.address.clone()));
            }
        }
        doubled
    }

    /// Returns the link to the node of this name.
    pub fn link_of(&self, name: &str) -> Option<PeerId> {
        self.0.iter().find(|node| node.info.name == name)?.peer
    }

    /// Returns the name and the address of the node at a link.
    pub fn place_of(&self, peer: PeerId) -> Option<(String, String)> {
        let node = self.0.iter().find(|node| node.peer == Some(peer))?;
        let address = node.next_address.as_ref().unwrap_or(&node.info.address);
        Some((node.info.name.clone(), address.clone()))
    }

    /// Makes a spare node with this policy a unit.
    pub fn assign(&mut self, unit: UnitId, policy: &Digest) -> Option<(usize, PeerId)> {
        let place = self.0.iter().position(|node| node.is_free() && node.runs(policy))?;
        let node = &mut self.0[place];
        (node.info.status, node.info.unit) = (NodeStatus::Active, Some(unit));
        node.peer.map(|peer| (place, peer))
    }

    /// Drains a node. Returns the change for its unit, if it has one.
    pub fn drain(&mut self, name: &str) -> Option<UnitChange> {
        let node = self.0.iter_mut().find(|node| node.info.name == name)?;
        match node.info.status {
            NodeStatus::Active => {
                node.info.status = NodeStatus::Draining;
                node.info.unit.map(UnitChange::Leave)
            }
            NodeStatus::Spare => {
                node.info.status = NodeStatus::Drained;
                node.info.unit.map(UnitChange::Retire)
            }
            // It is reconnecting to become another unit, and will stay drained.
            NodeStatus::Drained if node.is_renewing => {
                (node.is_renewing, node.is_leaving, node.stays_drained) = (false, false, true);
                None
            }
            // `Suspect` is for display only: see `infos`.
            NodeStatus::Connecting | NodeStatus::Suspect | NodeStatus::Draining | NodeStatus::Drained => None,
        }
    }

    /// Notes that the dispatcher has stopped a unit that it did not need, or starts it again. The
    /// node keeps the unit.
    pub fn set_spare(&mut self, unit: UnitId, is_spare: bool) {
        let Some(node) = self.0.iter_mut().find(|node| node.info.unit == Some(unit)) else { return };
        node.info.status = match (node.info.status, is_spare) {
            (NodeStatus::Active, true) => NodeStatus::Spare,
            (NodeStatus::Spare, false) => NodeStatus::Active,
            (status, _) => status,
        };
    }

    /// Notes that an operator drains a unit, or has resumed it.
    pub fn set_draining(&mut self, unit: UnitId, is_draining: bool) {
        let Some(node) = self.0.iter_mut().find(|node| node.info.unit == Some(unit)) else { return };
        node.info.status = match (node.info.status, is_draining) {
            (NodeStatus::Active, true) => NodeStatus::Draining,
            (NodeStatus::Draining, false) => NodeStatus::Active,
            (status, _) => status,
        };
    }

    /// Allows a drained node to become a unit again.
    pub fn resume(&mut self, now_ns: u64, name: &str) -> ResumedNode {
        let Some(node) = self.0.iter_mut().find(|node| node.info.name == name) else {
            return ResumedNode::Unchanged;
        };
        node.stays_drained = false;
        match (node.info.status, node.peer) {
            (NodeStatus::Drained, Some(_)) if node.info.unit.is_none() => {
                node.info.status = NodeStatus::Spare;
                ResumedNode::Spare
            }
            (NodeStatus::Drained, Some(peer)) => {
                node.renew(now_ns);
                ResumedNode::Parting(peer)
            }
            (NodeStatus::Drained, None) => {
                node.info.status = NodeStatus::Connecting;
                match node.is_removed {
                    true => ResumedNode::Unchanged, // It is connected once it is a member again.
                    false => ResumedNode::Awaited(node.info.address.clone()),
                }
            }
            _ => ResumedNode::Unchanged,
        }
    }

    /// Returns the link of a node that was ordered to end it before this time, and has not.
    pub fn late_to_part(&self, since_ns: u64) -> Option<PeerId> {
        let is_late = |node: &&Node| node.parting_ns.is_some_and(|asked_ns| asked_ns < since_ns);
        self.0.iter().filter(|node| node.peer.is_some()).find(is_late)?.peer
    }

    /// Notes that a node has announced its end. Returns the change for its unit, if it has one.
    pub fn leave(&mut self, peer: PeerId) -> Option<UnitChange> {
        let node = self.0.iter_mut().find(|node| node.peer == Some(peer))?;
        node.is_leaving = true;
        let name = (node.info.status != NodeStatus::Drained).then(|| node.info.name.clone());
        self.drain(&name?)
    }

    /// Renews a node after its unit has handed all flows over, unless an operator has drained it.
    /// Returns true if it was renewed.
    pub fn renew(&mut self, place: usize, now_ns: u64) -> bool {
        let node = &mut self.0[place];
        let is_to_come = node.info.status == NodeStatus::Active;
        if is_to_come {
            node.info.status = NodeStatus::Drained;
            node.renew(now_ns);
        }
        is_to_come
    }

    /// Notes that a unit has handed all flows over. Returns true if its node was draining.
    pub fn has_drained(&mut self, place: usize) -> bool {
        let status = &mut self.0[place].info.status;
        let was_asked = *status == NodeStatus::Draining;
        if was_asked {
            *status = NodeStatus::Drained;
        }
        was_asked
    }

    /// Returns true if the node at a link is drained.
    pub fn is_drained(&self, peer: PeerId) -> bool {
        let is_drained = |node: &Node| node.info.status == NodeStatus::Drained;
        self.0.iter().any(|node| node.peer == Some(peer) && is_drained(node))
    }

    /// Handles the loss of a node. Returns its address, if it may come back, and its unit.
    pub fn lost(&mut self, peer: PeerId) -> (Option<String>, Option<UnitId>) {
        let Some(node) = self.0.iter_mut().find(|node| node.peer == Some(peer)) else { return (None, None) };
        let was_drained = node.info.status == NodeStatus::Drained;
        (node.peer, node.info.policy, node.parting_ns) = (None, None, None);
        if let Some(address) = node.next_address.take() {
            node.info.address = address;
        }
        let unit = node.info.unit.take().filter(|_| !was_drained);
        if node.stays_drained {
            return (Some(node.info.address.clone()), None);
        }
        if was_drained && !node.is_leaving {
            return (None, None);
        }
        node.info.status = NodeStatus::Connecting;
        (Some(node.info.address.clone()).filter(|_| !node.is_removed), unit)
    }

    /// Returns the addresses of all units.
    pub fn addresses(&self) -> Vec<UnitAddress> {
        let units = self.0.iter().filter(|node| node.peer.is_some());
        units
            .filter_map(|Node { info, .. }| {
                let (name, address) = (info.name.clone(), info.address.clone());
                Some(UnitAddress { unit: info.unit?, name, address })
            })
            .collect()
    }

    /// Returns all links to nodes.
    pub fn links(&self) -> impl Iterator<Item = PeerId> {
        self.0.iter().filter_map(|node| node.peer)
    }

    /// Returns the policy of the node at a link.
    pub fn policy_at(&self, peer: PeerId) -> Option<NumberedDigest> {
        self.0.iter().find(|node| node.peer == Some(peer)).and_then(|node| node.info.policy)
    }

    /// Returns the link to a node with the latest policy.
    pub fn latest(&self) -> Option<(PeerId, NumberedDigest)> {
        let there = self.0.iter().filter_map(|node| Some((node.peer?, node.info.policy?)));
        there.max_by_key(|(_, policy)| policy.number)
    }

    /// Notes that the node at a link has received the number of its policy.
    pub fn set_number(&mut self, peer: PeerId, number: u64) {
        let node = self.0.iter_mut().find(|node| node.peer == Some(peer));
        if let Some(policy) = node.and_then(|node| node.info.policy.as_mut()) {
            policy.number = number;
        }
    }

    /// Notes that the node at a link will reconnect with another policy.
    pub fn set_renewing(&mut self, peer: PeerId) {
        if let Some(node) = self.0.iter_mut().find(|node| node.peer == Some(peer)) {
            node.stays_drained = node.info.status == NodeStatus::Drained && !node.is_leaving;
        }
    }

    /// Returns true if the node at a link has this name.
    pub fn is_at(&self, peer: PeerId, name: &str) -> bool {
        self.0.iter().any(|node| node.peer == Some(peer) && node.info.name == name)
    }

    /// Forgets who has read the next policy, which is another one now.
    pub fn forget_reads(&mut self) {
        self.0.iter_mut().for_each(|node| node.has_read = false);
    }

    /// Notes that the node at a link has read the next policy.
    pub fn set_read(&mut self, peer: PeerId) {
        if let Some(node) = self.0.iter_mut().find(|node| node.peer == Some(peer)) {
            node.has_read = true;
        }
    }

    /// Returns the name of a connected node that has neither read this policy nor runs it.
    pub fn first_not_read(&self, policy: &Digest) -> Option<&str> {
        let lacks = |node: &&Node| node.peer.is_some() && !node.has_read && !node.runs(policy);
        self.0.iter().find(lacks).map(|node| &*node.info.name)
    }

    /// Returns a connected node that has read this policy and runs another one: its name, link and
    /// status. Spare nodes precede others. Draining nodes are skipped until they are drained.
    pub fn next_without(&self, policy: &Digest) -> Option<(String, PeerId, NodeStatus)> {
        let lacks = |node: &&Node| node.has_read && !node.runs(policy);
        let next = self.0.iter().filter(|node| node.peer.is_some()).filter(lacks);
        let next = next.filter(|node| node.info.status != NodeStatus::Draining);
        let next = next.min_by_key(|node| node.info.status != NodeStatus::Spare)?;
        Some((next.info.name.clone(), next.peer?, next.info.status))
    }

    /// Returns true if a connected node has read this policy and runs another one.
    pub fn has_some_without(&self, policy: &Digest) -> bool {
        self.0.iter().any(|node| node.peer.is_some() && node.has_read && !node.runs(policy))
    }

    /// Returns the name of a unit that runs another policy.
    pub fn active_without(&self, policy: &Digest) -> Option<String> {
        let is_it = |node: &&Node| node.info.status == NodeStatus::Active && !node.runs(policy);
        self.0.iter().find(is_it).map(|node| node.info.name.clone())
    }

    /// Returns true if a node runs this policy and its unit, if any, is ready.
    pub fn runs(&self, name: &str, policy: &Digest, is_ready: impl Fn(UnitId) -> bool) -> bool {
        let is_it = |node: &&Node| node.info.name == name && node.runs(policy);
        self.0.iter().find(is_it).is_some_and(|node| node.info.unit.is_none_or(&is_ready))
    }

    /// Returns the number of connected nodes with this policy.
    pub fn count_with(&self, policy: &Digest) -> usize {
        self.0.iter().filter(|node| node.runs(policy)).count()
    }

    /// Returns the number of nodes that could become units with this policy.
    pub fn count_spare_with(&self, policy: &Digest) -> usize {
        self.0.iter().filter(|node| node.is_free() && node.runs(policy)).count()
    }

    /// Returns the number of ready units.
    pub fn count_working(&self, is_ready: impl Fn(UnitId) -> bool) -> usize {
        let is_active = |node: &&Node| node.info.status == NodeStatus::Active;
        self.0.iter().filter(is_active).filter(|node| node.info.unit.is_some_and(&is_ready)).count()
    }

    /// Returns the names of nodes in this state.
    pub fn names(&self, status: NodeStatus) -> impl Iterator<Item = &str> {
        self.0.iter().filter(move |node| node.info.status == status).map(|node| &*node.info.name)
    }

    /// Returns the number of nodes in this state.
    pub fn count(&self, status: NodeStatus) -> usize {
        self.0.iter().filter(|node| node.info.status == status).count()
    }

    /// Returns the number of nodes that are units, or can become units now or soon.
    pub fn count_usable(&self) -> usize {
        let is_usable = |node: &&Node| {
            matches!(node.info.status, NodeStatus::Active | NodeStatus::Spare) || node.is_renewing
        };
        self.0.iter().filter(is_usable).count()
    }

    /// Returns all nodes, for operators. `silent_ns` returns the length of a suspect node's
    /// silence.
    pub fn infos(
        &self,
        packets: impl Fn(UnitId) -> Option<u64>,
        silent_ns: impl Fn(PeerId) -> Option<u64>,
    ) -> Vec<NodeInfo> {
        let info = |node: &Node| {
            let packets = node.info.unit.and_then(&packets).unwrap_or(node.info.packets);
            let policy = node.info.policy;
            let silent_ns = node.peer.and_then(&silent_ns);
            let status = if silent_ns.is_some() { NodeStatus::Suspect } else { node.info.status };
            NodeInfo { packets, policy, status, silent_ns, reason: node.reason(), ..node.info.clone() }
        };
        // A removed node is shown while it has a link, or an operator's order applies to it.
        let is_shown = |node: &&Node| !node.is_removed || node.info.status != NodeStatus::Connecting;
        self.0.iter().filter(is_shown).map(info).collect()
    }
}
