//! The way to a running dispatcher, for operators.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use runtime::report::LinksReport;

use super::desk::NewPolicy;
use super::homes::OtherDispatcher;
use super::nodes::NodeInfo;
use super::orders::{FailedOrder, OrderReply, PolicyOrder};
use super::rollout::RolloutStatus;
use super::start::StartStatus;
use crate::links::LinkInfo;
use crate::policies::NumberedDigest;

/// Commands that wait for the dispatcher before others must; see [`RemoteHandle::send_late`].
pub const PENDING_MAX: usize = 64;
/// Period of looks at the commands that wait.
const LOOK: Duration = Duration::from_millis(5);

/// An operator's command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeCommand {
    /// A node joins: its name and address. If it is known, this is its address after the present
    /// link.
    Add {
        /// The name.
        name: String,
        /// The address.
        address: String,
    },
    /// Nobody waits for the node of this name any more. A link to it goes on while it lives.
    Remove {
        /// The name.
        name: String,
    },
    /// The node of this name gives its flows away and gets no more.
    Drain {
        /// The name.
        name: String,
    },
    /// The drained node of this name may be a unit again, once it is there.
    Resume {
        /// The name.
        name: String,
    },
}

/// The state of the cluster's store, as a dispatcher sees it.
#[derive(Clone, Debug)]
pub struct StoreStatus {
    /// It answers.
    pub is_reachable: bool,
    /// Since when it does, or does not.
    pub since: Instant,
    /// Units that have registered themselves.
    pub entries: u64,
    /// Why it does not answer; empty if it does.
    pub reason: String,
}

/// The way to a dispatcher, for operators.
#[derive(Clone)]
pub struct RemoteHandle {
    commands: Sender<NodeCommand>,
    policies: Sender<PolicyOrder>,
    rollouts: Arc<AtomicU64>,
    entries_refused: Arc<AtomicU64>,
    pending: Arc<AtomicUsize>,
    status: Arc<Mutex<RemoteStatus>>,
    store: Arc<Mutex<Option<StoreStatus>>>,
}

/// The latest status that the dispatcher has shown.
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
    /// Commands that wait.
    pending: Arc<AtomicUsize>,
    pub(super) policies: Receiver<PolicyOrder>,
    /// Entries of the store that were passed over.
    pub(super) entries_refused: Arc<AtomicU64>,
    status: Arc<Mutex<RemoteStatus>>,
    store: Arc<Mutex<Option<StoreStatus>>>,
}

impl RemoteControl {
    /// Returns the next command.
    pub(super) fn poll_command(&self) -> Option<NodeCommand> {
        let command = self.commands.try_recv().ok()?;
        self.pending.fetch_sub(1, Ordering::Relaxed);
        Some(command)
    }

    /// Returns the state of the store; none without one.
    pub(super) fn store(&self) -> Option<StoreStatus> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Shows the status to operators.
    pub(super) fn show(&self, status: RemoteStatus) {
        *self.status.lock().unwrap_or_else(PoisonError::into_inner) = status;
    }
}

impl Drop for RemoteControl {
    fn drop(&mut self) {
        // Nobody waits for a dispatcher that has ended.
        self.pending.store(0, Ordering::Relaxed);
    }
}

impl RemoteHandle {
    /// Returns both ends of the way to a dispatcher that is created later.
    pub fn new() -> (RemoteHandle, RemoteControl) {
        let (sender, commands) = channel();
        let (of_policies, policies) = channel();
        let status = Arc::new(Mutex::new(RemoteStatus::default()));
        let (rollouts, entries_refused) = (Arc::default(), Arc::<AtomicU64>::default());
        let counted = Arc::clone(&entries_refused);
        let (pending, store) = (Arc::<AtomicUsize>::default(), Arc::default());
        let control = RemoteControl {
            commands,
            pending: Arc::clone(&pending),
            policies,
            entries_refused: counted,
            status: Arc::clone(&status),
            store: Arc::clone(&store),
        };
        let policies = of_policies;
        let handle =
            RemoteHandle { commands: sender, policies, rollouts, entries_refused, pending, status, store };
        (handle, control)
    }

    /// Returns the count of the store's entries that were passed over, for the thread that reads
    /// it.
    pub fn entries_refused(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.entries_refused)
    }

    /// Sends a command. Returns false if the dispatcher has ended.
    pub fn send(&self, command: NodeCommand) -> bool {
        self.pending.fetch_add(1, Ordering::Relaxed);
        self.commands.send(command).is_ok()
    }

    /// Sends a command that may wait: after those before it, up to `PENDING_MAX` of them. Returns
    /// false if the dispatcher has ended.
    pub fn send_late(&self, command: NodeCommand) -> bool {
        while self.pending.load(Ordering::Relaxed) >= PENDING_MAX {
            std::thread::sleep(LOOK);
        }
        self.send(command)
    }

    /// Gives a policy to all nodes, one after the other. Returns the order's number, from 1; `None`
    /// if the dispatcher has ended. A refusal is among [`failed`](RemoteHandle::failed) orders.
    pub fn apply(&self, policy: NewPolicy) -> Option<u64> {
        self.order(policy, false, Box::new(|_| {}))
    }

    /// Gives a policy to all nodes, or has them read it only. The dispatcher answers once it has
    /// taken or refused the order; of a dry run, once all nodes have read it.
    pub fn order(&self, policy: NewPolicy, is_dry_run: bool, reply: OrderReply) -> Option<u64> {
        let number = self.rollouts.fetch_add(1, Ordering::Relaxed) + 1;
        self.policies.send(PolicyOrder { number, policy, is_dry_run, reply }).is_ok().then_some(number)
    }

    /// Returns the policy that holds in the cluster, and the name of its file.
    pub fn policy(&self) -> (NumberedDigest, String) {
        let status = self.status.lock().unwrap_or_else(PoisonError::into_inner);
        (status.policy, status.policy_name.clone())
    }

    /// Returns the latest orders that have failed.
    pub fn failed(&self) -> Vec<FailedOrder> {
        self.status.lock().unwrap_or_else(PoisonError::into_inner).failed.clone()
    }

    /// Returns the state of the latest rollout of a policy.
    pub fn rollout(&self) -> Option<RolloutStatus> {
        self.status.lock().unwrap_or_else(PoisonError::into_inner).rollout.clone()
    }

    /// Returns the nodes, in the order in which they were named.
    pub fn status(&self) -> Vec<NodeInfo> {
        self.status.lock().unwrap_or_else(PoisonError::into_inner).nodes.clone()
    }

    /// Returns the units that the dispatcher waits for, and whether it has begun.
    pub fn start(&self) -> StartStatus {
        self.status.lock().unwrap_or_else(PoisonError::into_inner).start.clone()
    }

    /// Returns the other dispatchers of the cluster.
    pub fn others(&self) -> Vec<OtherDispatcher> {
        self.status.lock().unwrap_or_else(PoisonError::into_inner).others.clone()
    }

    /// Shows that the store has answered, with the number of units in it, or why it has not.
    pub fn show_store(&self, entries: u64, fault: Option<String>) {
        let mut store = self.store.lock().unwrap_or_else(PoisonError::into_inner);
        let (is_reachable, reason) = (fault.is_none(), fault.unwrap_or_default());
        let before = store.take();
        let since = before.as_ref().filter(|before| before.is_reachable == is_reachable);
        let since = since.map_or_else(Instant::now, |before| before.since);
        // While it does not answer, those of before are known.
        let entries = if is_reachable { entries } else { before.map_or(0, |before| before.entries) };
        *store = Some(StoreStatus { is_reachable, since, entries, reason });
    }

    /// Returns the state of the store; none without one, or before it was looked at.
    pub fn store(&self) -> Option<StoreStatus> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the links of now.
    pub fn links(&self) -> Vec<LinkInfo> {
        self.status.lock().unwrap_or_else(PoisonError::into_inner).links.clone()
    }

    /// Returns counts of all links so far, and of handshakes.
    pub fn link_totals(&self) -> LinksReport {
        self.status.lock().unwrap_or_else(PoisonError::into_inner).totals.clone()
    }
}
