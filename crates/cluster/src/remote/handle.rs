//! Operators' access to a running dispatcher.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use protocol::message::FlowId;
use runtime::report::LinksReport;

use super::desk::NewPolicy;
use super::homes::OtherDispatcher;
use super::inquiries::{InquiryOrder, InquiryReply};
use super::nodes::NodeInfo;
use super::orders::{FailedOrder, OrderReply, PolicyOrder};
use super::rollout::RolloutStatus;
use super::start::StartStatus;
use crate::links::LinkInfo;
use crate::policies::NumberedDigest;

/// Limit on pending commands of [`RemoteHandle::send_late`], which blocks at the limit.
pub const PENDING_MAX: usize = 64;
/// Polling period while commands wait.
const LOOK: Duration = Duration::from_millis(5);

/// An operator's command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeCommand {
    /// Adds a node with its name and address. For a known node, sets its address after the present
    /// link.
    Add {
        /// The name.
        name: String,
        /// The address.
        address: String,
    },
    /// Removes the node of this name: it is no longer awaited. An existing link continues until it
    /// ends.
    Remove {
        /// The name.
        name: String,
    },
    /// Has the node of this name hand its flows over, and keeps new ones away.
    Drain {
        /// The name.
        name: String,
    },
    /// Allows the drained node of this name to become a unit again.
    Resume {
        /// The name.
        name: String,
    },
}

/// State of the cluster's store from a dispatcher's point of view.
#[derive(Clone, Debug)]
pub struct StoreStatus {
    /// The store answers.
    pub is_reachable: bool,
    /// Time of the last change of `is_reachable`.
    pub since: Instant,
    /// Units registered in the store.
    pub entries: u64,
    /// The error if it does not answer; empty otherwise.
    pub reason: String,
}

/// Operators' access to a dispatcher.
#[derive(Clone)]
pub struct RemoteHandle {
    commands: Sender<NodeCommand>,
    policies: Sender<PolicyOrder>,
    inquiries: Sender<InquiryOrder>,
    rollouts: Arc<AtomicU64>,
    entries_refused: Arc<AtomicU64>,
    pending: Arc<AtomicUsize>,
    status: Arc<Mutex<RemoteStatus>>,
    store: Arc<Mutex<Option<StoreStatus>>>,
}

/// Latest published status of the dispatcher.
#[derive(Default)]
pub(super) struct RemoteStatus {
    pub nodes: Vec<NodeInfo>,
    pub others: Vec<OtherDispatcher>,
    pub links: Vec<LinkInfo>,
    pub totals: LinksReport,
    pub policy: NumberedDigest,
    pub policy_name: String,
    pub rollout: Option<RolloutStatus>,
    pub failed: Vec<FailedOrder>,
    pub start: StartStatus,
}

/// The dispatcher's end of [`RemoteHandle`].
pub struct RemoteControl {
    commands: Receiver<NodeCommand>,
    /// Pending commands.
    pending: Arc<AtomicUsize>,
    pub(super) policies: Receiver<PolicyOrder>,
    pub(super) inquiries: Receiver<InquiryOrder>,
    /// Refused entries of the store.
    pub(super) entries_refused: Arc<AtomicU64>,
    status: Arc<Mutex<RemoteStatus>>,
    store: Arc<Mutex<Option<StoreStatus>>>,
}

impl RemoteControl {
    /// Takes the next command.
    pub(super) fn poll_command(&self) -> Option<NodeCommand> {
        let command = self.commands.try_recv().ok()?;
        self.pending.fetch_sub(1, Ordering::Relaxed);
        Some(command)
    }

    /// Returns the state of the store; `None` without one.
    pub(super) fn store(&self) -> Option<StoreStatus> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Publishes the status.
    pub(super) fn show(&self, status: RemoteStatus) {
        *self.status.lock().unwrap_or_else(PoisonError::into_inner) = status;
    }
}

impl Drop for RemoteControl {
    fn drop(&mut self) {
        // No sender must wait for a dispatcher that has ended.
        self.pending.store(0, Ordering::Relaxed);
    }
}

impl RemoteHandle {
    /// Returns both ends, for a dispatcher that is created later.
    pub fn new() -> (RemoteHandle, RemoteControl) {
        let (sender, commands) = channel();
        let (of_policies, policies) = channel();
        let (of_inquiries, inquiries) = channel();
        let status = Arc::new(Mutex::new(RemoteStatus::default()));
        let (rollouts, entries_refused) = (Arc::default(), Arc::<AtomicU64>::default());
        let counted = Arc::clone(&entries_refused);
        let (pending, store) = (Arc::<AtomicUsize>::default(), Arc::default());
        let control = RemoteControl {
            commands,
            pending: Arc::clone(&pending),
            policies,
            inquiries,
            entries_refused: counted,
            status: Arc::clone(&status),
            store: Arc::clone(&store),
        };
        let handle = RemoteHandle {
            commands: sender,
            policies: of_policies,
            inquiries: of_inquiries,
            rollouts,
            entries_refused,
            pending,
            status,
            store,
        };
        (handle, control)
    }

    /// Returns the counter of refused entries of the store, for the thread that reads it.
    pub fn entries_refused(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.entries_refused)
    }

    /// Sends a command. Returns false if the dispatcher has ended.
    pub fn send(&self, command: NodeCommand) -> bool {
        self.pending.fetch_add(1, Ordering::Relaxed);
        self.commands.send(command).is_ok()
    }

    /// Sends a command without urgency: blocks while `PENDING_MAX` others are pending. Returns
    /// false if the dispatcher has ended.
    pub fn send_late(&self, command: NodeCommand) -> bool {
        while self.pending.load(Ordering::Relaxed) >= PENDING_MAX {
            std::thread::sleep(LOOK);
        }
        self.send(command)
    }

    /// Applies a policy to all nodes, one after the other. Returns the order's number, from 1;
    /// `None` if the dispatcher has ended. A refusal appears in [`failed`](RemoteHandle::failed).
    pub fn apply(&self, policy: NewPolicy) -> Option<u64> {
        self.order(policy, false, Box::new(|_| {}))
    }

    /// Applies a policy to all nodes, or only has them read it. The dispatcher replies once it has
    /// accepted or refused the order; to a dry run, once all nodes have read the policy.
    pub fn order(&self, policy: NewPolicy, is_dry_run: bool, reply: OrderReply) -> Option<u64> {
        let number = self.rollouts.fetch_add(1, Ordering::Relaxed) + 1;
        self.policies.send(PolicyOrder { number, policy, is_dry_run, reply }).is_ok().then_some(number)
    }

    /// Asks all units for the last lines of a flow's timeline, up to `lines_max` of each. The reply
    /// is called once all have answered, or after [`INQUIRY_MAX`](super::INQUIRY_MAX). Returns
    /// false if the dispatcher has ended.
    pub fn trace(&self, flow: FlowId, lines_max: u32, reply: InquiryReply) -> bool {
        self.inquiries.send(InquiryOrder { flow, lines_max, reply }).is_ok()
    }

    /// Returns the present policy of the cluster, and the name of its file.
    pub fn policy(&self) -> (NumberedDigest, String) {
        let status = self.status.lock().unwrap_or_else(PoisonError::into_inner);
        (status.policy, status.policy_name.clone())
    }

    /// Returns the latest failed orders.
    pub fn failed(&self) -> Vec<FailedOrder> {
        self.status.lock().unwrap_or_else(PoisonError::into_inner).failed.clone()
    }

    /// Returns the state of the latest rollout of a policy.
    pub fn rollout(&self) -> Option<RolloutStatus> {
        self.status.lock().unwrap_or_else(PoisonError::into_inner).rollout.clone()
    }

    /// Returns the nodes, in the order of their addition.
    pub fn status(&self) -> Vec<NodeInfo> {
        self.status.lock().unwrap_or_else(PoisonError::into_inner).nodes.clone()
    }

    /// Returns the progress of the start.
    pub fn start(&self) -> StartStatus {
        self.status.lock().unwrap_or_else(PoisonError::into_inner).start.clone()
    }

    /// Returns the other dispatchers of the cluster.
    pub fn others(&self) -> Vec<OtherDispatcher> {
        self.status.lock().unwrap_or_else(PoisonError::into_inner).others.clone()
    }

    /// Publishes that the store has answered, with its number of units, or the error.
    pub fn show_store(&self, entries: u64, fault: Option<String>) {
        let mut store = self.store.lock().unwrap_or_else(PoisonError::into_inner);
        let (is_reachable, reason) = (fault.is_none(), fault.unwrap_or_default());
        let before = store.take();
        let since = before.as_ref().filter(|before| before.is_reachable == is_reachable);
        let since = since.map_or_else(Instant::now, |before| before.since);
        // While it does not answer, the last number holds.
        let entries = if is_reachable { entries } else { before.map_or(0, |before| before.entries) };
        *store = Some(StoreStatus { is_reachable, since, entries, reason });
    }

    /// Returns the state of the store; `None` without one, or before the first attempt.
    pub fn store(&self) -> Option<StoreStatus> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the present links.
    pub fn links(&self) -> Vec<LinkInfo> {
        self.status.lock().unwrap_or_else(PoisonError::into_inner).links.clone()
    }

    /// Returns the counters of all links so far, and of handshakes.
    pub fn link_totals(&self) -> LinksReport {
        self.status.lock().unwrap_or_else(PoisonError::into_inner).totals.clone()
    }
}
