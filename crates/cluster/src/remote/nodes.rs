//! The nodes of a cluster, as its dispatcher sees them.

use protocol::message::UnitId;
use runtime::transport::UnitChange;

use crate::peers::PeerId;
use crate::policies::Digest;
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
    /// Packets that were sent to that unit.
    pub packets: u64,
    /// The policy that it runs, while it is there.
    pub policy: Option<Digest>,
    /// The reason of its state, for operators; empty if there is nothing to say.
    pub reason: String,
    /// Time since it was heard last, if it is [suspect](NodeStatus::Suspect).
    pub silent_ns: Option<u64>,
}

/// The state of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeStatus {
    /// It is not there yet.
    Connecting,
    /// It is there, and no unit is needed.
    Spare,
    /// It is a unit.
    Active,
    /// Nothing is heard from it, and it is not given up: it keeps its flows, and new ones go
    /// elsewhere.
    Suspect,
    /// It gives its flows away.
    Draining,
    /// It has given all flows away, and gets no more.
    Drained,
}

impl NodeStatus {
    /// All of them.
    pub const ALL: [NodeStatus; 6] = [
        NodeStatus::Connecting,
        NodeStatus::Spare,
        NodeStatus::Active,
        NodeStatus::Suspect,
        NodeStatus::Draining,
        NodeStatus::Drained,
    ];

    /// Returns the word for it.
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

/// Time for which a node at another address may be the next process of one that ends, in
/// nanoseconds. After that it is another node of the same name.
const DOUBLED_NS: u64 = 5_000_000_000;

/// All nodes.
#[derive(Default)]
pub(super) struct Nodes(Vec<Node>);

/// Outcome of resuming a node.
pub(super) enum ResumedNode {
    /// Nothing more to do now.
    Unchanged,
    /// It is there, and can be a unit.
    Spare,
    /// It must be connected at this address.
    Awaited(String),
    /// The one behind this link was a unit, and comes back as another one once the link has ended.
    Parting(PeerId),
}

pub(super) struct Node {
    info: NodeInfo,
    peer: Option<PeerId>,
    /// The policy that it runs, while it is there.
    policy: Digest,
    /// It has read the next policy.
    has_read: bool,
    /// It said itself that it ends: it may come back.
    is_leaving: bool,
    /// It was asked to end its link, at this time, and comes back.
    parting_ns: Option<u64>,
    /// It will have this address once its present link has ended.
    next_address: Option<String>,
    /// Since then another node has its name, and that has been said.
    doubled: Option<(u64, bool)>,
    /// The last attempt to connect failed for this reason.
    fault: String,
    /// It is not a member any more. Its link goes on while it lives; then nobody waits for it.
    is_removed: bool,
}

impl Node {
    /// Returns true if nothing remains of it: it is no member, has no link, and no unit had flows.
    fn is_forgotten(&self) -> bool {
        let Node { info, peer, is_removed, .. } = self;
        *is_removed && peer.is_none() && info.unit.is_none() && info.status == NodeStatus::Connecting
    }

    /// Returns the reason of its state.
    fn reason(&self) -> String {
        if let (Some((_, true)), Some(other)) = (self.doubled, &self.next_address) {
            return format!("another node of this name is at {other}");
        }
        match self.info.status {
            NodeStatus::Connecting if self.is_removed => "no member any more".to_owned(),
            NodeStatus::Connecting => self.fault.clone(),
            NodeStatus::Spare => "the load does not need it".to_owned(),
            NodeStatus::Draining if self.is_leaving => "it ends".to_owned(),
            NodeStatus::Drained if self.is_leaving => "it ends".to_owned(),
            NodeStatus::Drained => "drained by an operator, until it is resumed".to_owned(),
            _ => String::new(),
        }
    }
}

impl Nodes {
    /// A node is a member, at this address. Returns true if it must be connected now.
    pub fn add(&mut self, name: &str, address: &str) -> bool {
        let Some(node) = self.0.iter_mut().find(|node| node.info.name == name) else {
            let (name, address) = (name.to_owned(), address.to_owned());
            let status = NodeStatus::Connecting;
            let (policy, reason, silent_ns) = (None, String::new(), None);
            let info = NodeInfo { name, address, status, unit: None, packets: 0, policy, reason, silent_ns };
            let node = Node {
                info,
                peer: None,
                policy: Digest::default(),
                has_read: false,
                is_leaving: false,
                parting_ns: None,
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

    /// A node is not a member any more.
    pub fn remove(&mut self, name: &str) {
        if let Some(node) = self.0.iter_mut().find(|node| node.info.name == name) {
            node.is_removed = true;
        }
    }

    /// A node is there. Returns its place; none if nobody waits for it.
    pub fn connected(&mut self, name: &str, peer: PeerId, policy: Digest) -> Option<usize> {
        let waits = |node: &Node| node.info.status == NodeStatus::Connecting && !node.is_removed;
        let is_it = |node: &Node| node.info.name == name && waits(node);
        let place = self.0.iter().position(is_it)?;
        let node = &mut self.0[place];
        (node.peer, node.info.status, node.is_leaving) = (Some(peer), NodeStatus::Spare, false);
        (node.policy, node.has_read, node.parting_ns) = (policy, false, None);
        (node.fault, node.doubled) = (String::new(), None);
        Some(place)
    }

    /// An attempt to connect to a node failed.
    pub fn failed(&mut self, name: &str, fault: String) {
        if let Some(node) = self.0.iter_mut().find(|node| node.info.name == name) {
            node.fault = fault;
        }
    }

    /// Returns the nodes that have the name of one that is there, at another address, and have had
    /// it for [`DOUBLED_NS`]; each once: name, address, and that of the node that is there.
    pub fn take_doubled(&mut self, now_ns: u64) -> Vec<(String, String, String)> {
        let mut doubled = Vec::new();
        for node in &mut self.0 {
            let other = node.next_address.as_ref().filter(|&address| *address != node.info.address);
            let (Some(other), Some(_)) = (other, node.peer) else {
                node.doubled = None;
                continue;
            };
            let (since_ns, is_said) = node.doubled.get_or_insert((now_ns, false));
            if now_ns.saturating_sub(*since_ns) >= DOUBLED_NS && !std::mem::replace(is_said, true) {
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

    /// A spare node becomes a unit. `policy`: one that it must run.
    pub fn assign(&mut self, unit: UnitId, policy: Option<Digest>) -> Option<(usize, PeerId)> {
        let fits = |node: &Node| policy.is_none_or(|policy| node.policy == policy);
        let is_free =
            |node: &Node| node.info.status == NodeStatus::Spare && node.info.unit.is_none() && fits(node);
        let place = self.0.iter().position(is_free)?;
        let node = &mut self.0[place];
        (node.info.status, node.info.unit) = (NodeStatus::Active, Some(unit));
        node.peer.map(|peer| (place, peer))
    }

    /// A node is to give its flows away. Returns the change for its unit, if it has one.
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
            // `Suspect` is shown only: see `infos`.
            NodeStatus::Connecting | NodeStatus::Suspect | NodeStatus::Draining | NodeStatus::Drained => None,
        }
    }

    /// The dispatcher has stopped a unit that it did not need, or starts it again: its node keeps
    /// it.
    pub fn set_spare(&mut self, unit: UnitId, is_spare: bool) {
        let Some(node) = self.0.iter_mut().find(|node| node.info.unit == Some(unit)) else { return };
        node.info.status = match (node.info.status, is_spare) {
            (NodeStatus::Active, true) => NodeStatus::Spare,
            (NodeStatus::Spare, false) => NodeStatus::Active,
            (status, _) => status,
        };
    }

    /// An operator drains a unit, or has resumed it.
    pub fn set_draining(&mut self, unit: UnitId, is_draining: bool) {
        let Some(node) = self.0.iter_mut().find(|node| node.info.unit == Some(unit)) else { return };
        node.info.status = match (node.info.status, is_draining) {
            (NodeStatus::Active, true) => NodeStatus::Draining,
            (NodeStatus::Draining, false) => NodeStatus::Active,
            (status, _) => status,
        };
    }

    /// A drained node may be a unit again.
    pub fn resume(&mut self, now_ns: u64, name: &str) -> ResumedNode {
        let Some(node) = self.0.iter_mut().find(|node| node.info.name == name) else {
            return ResumedNode::Unchanged;
        };
        match (node.info.status, node.peer) {
            (NodeStatus::Drained, Some(_)) if node.info.unit.is_none() => {
                node.info.status = NodeStatus::Spare;
                ResumedNode::Spare
            }
            (NodeStatus::Drained, Some(peer)) => {
                node.is_leaving = true;
                node.parting_ns.get_or_insert(now_ns);
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

    /// Returns the link of a node that was asked to end it before this time, and has not: earlier
    /// versions know no such order.
    pub fn late_to_part(&self, since_ns: u64) -> Option<PeerId> {
        let is_late = |node: &&Node| node.parting_ns.is_some_and(|asked_ns| asked_ns < since_ns);
        self.0.iter().filter(|node| node.peer.is_some()).find(is_late)?.peer
    }

    /// A node says that it ends. Returns the change for its unit, if it has one.
    pub fn leave(&mut self, peer: PeerId) -> Option<UnitChange> {
        let node = self.0.iter_mut().find(|node| node.peer == Some(peer))?;
        node.is_leaving = true;
        let name = node.info.name.clone();
        self.drain(&name)
    }

    /// A unit has given all flows away. Returns true if its node was to.
    pub fn has_drained(&mut self, place: usize) -> bool {
        let status = &mut self.0[place].info.status;
        let was_asked = *status == NodeStatus::Draining;
        if was_asked {
            *status = NodeStatus::Drained;
        }
        was_asked
    }

    /// Returns true if the node behind this link is drained.
    pub fn is_drained(&self, peer: PeerId) -> bool {
        let is_drained = |node: &Node| node.info.status == NodeStatus::Drained;
        self.0.iter().any(|node| node.peer == Some(peer) && is_drained(node))
    }

    /// A node is lost. Returns its address, if it may come back, and its unit.
    pub fn lost(&mut self, peer: PeerId) -> (Option<String>, Option<UnitId>) {
        let Some(node) = self.0.iter_mut().find(|node| node.peer == Some(peer)) else { return (None, None) };
        let was_drained = node.info.status == NodeStatus::Drained;
        (node.peer, node.parting_ns) = (None, None);
        if let Some(address) = node.next_address.take() {
            node.info.address = address;
        }
        let unit = node.info.unit.take().filter(|_| !was_drained);
        if was_drained && !node.is_leaving {
            return (None, None);
        }
        node.info.status = NodeStatus::Connecting;
        (Some(node.info.address.clone()).filter(|_| !node.is_removed), unit)
    }

    /// Returns where units are, as each other.
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
    pub fn policy_at(&self, peer: PeerId) -> Option<Digest> {
        self.0.iter().find(|node| node.peer == Some(peer)).map(|node| node.policy)
    }

    /// Another policy is the next one.
    pub fn forget_reads(&mut self) {
        self.0.iter_mut().for_each(|node| node.has_read = false);
    }

    /// The node at a link has read the next policy.
    pub fn set_read(&mut self, peer: PeerId) {
        if let Some(node) = self.0.iter_mut().find(|node| node.peer == Some(peer)) {
            node.has_read = true;
        }
    }

    /// Returns the name of a node that is there and has neither read this policy nor runs it.
    pub fn first_not_read(&self, policy: &Digest) -> Option<&str> {
        let lacks = |node: &&Node| node.peer.is_some() && !node.has_read && node.policy != *policy;
        self.0.iter().find(lacks).map(|node| &*node.info.name)
    }

    /// Returns a node that is there, has read this policy, and runs another one: its name, link and
    /// status. Spare ones come first.
    pub fn next_without(&self, policy: &Digest) -> Option<(String, PeerId, NodeStatus)> {
        let lacks = |node: &&Node| node.policy != *policy && node.has_read;
        let next = self.0.iter().filter(|node| node.peer.is_some()).filter(lacks);
        let next = next.min_by_key(|node| node.info.status != NodeStatus::Spare)?;
        Some((next.info.name.clone(), next.peer?, next.info.status))
    }

    /// Returns true if a node is there with this policy; with its unit ready if it has one, as it
    /// must if `is_unit`.
    pub fn runs(
        &self,
        name: &str,
        policy: &Digest,
        is_unit: bool,
        is_ready: impl Fn(UnitId) -> bool,
    ) -> bool {
        self.0.iter().any(|node| {
            let is_it = node.info.name == name && node.peer.is_some() && node.policy == *policy;
            is_it && node.info.unit.map_or(!is_unit, &is_ready)
        })
    }

    /// Returns the number of nodes that are there with this policy.
    pub fn count_with(&self, policy: &Digest) -> usize {
        self.0.iter().filter(|node| node.peer.is_some() && node.policy == *policy).count()
    }

    /// Returns the names of nodes in this state.
    pub fn names(&self, status: NodeStatus) -> impl Iterator<Item = &str> {
        self.0.iter().filter(move |node| node.info.status == status).map(|node| &*node.info.name)
    }

    /// Returns the number of nodes in this state.
    pub fn count(&self, status: NodeStatus) -> usize {
        self.0.iter().filter(|node| node.info.status == status).count()
    }

    /// Returns all nodes, for operators. `silent_ns` returns the time since one that is suspect was
    /// heard last.
    pub fn infos(
        &self,
        packets: impl Fn(UnitId) -> Option<u64>,
        silent_ns: impl Fn(PeerId) -> Option<u64>,
    ) -> Vec<NodeInfo> {
        let info = |node: &Node| {
            let packets = node.info.unit.and_then(&packets).unwrap_or(node.info.packets);
            let policy = node.peer.map(|_| node.policy);
            let silent_ns = node.peer.and_then(&silent_ns);
            let status = if silent_ns.is_some() { NodeStatus::Suspect } else { node.info.status };
            NodeInfo { packets, policy, status, silent_ns, reason: node.reason(), ..node.info.clone() }
        };
        // One that is removed is shown as long as it has a link, or an operator's wish.
        let is_shown = |node: &&Node| !node.is_removed || node.info.status != NodeStatus::Connecting;
        self.0.iter().filter(is_shown).map(info).collect()
    }
}
