//! The operator's way to a running policy: questions and commands, answered between two batches.
//!
//! Any thread may send requests through an [`OperatorHandle`]; the packets' thread never blocks on
//! them. Each request is bounded, and so is their number per batch, so that packets hardly wait for
//! operators.

use std::ops::Range;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};

use protocol::dispatcher::{FlowStatus, MigrateError, MigratedFlow, UnitRefused, UnitState};
use protocol::message::{FlowId, UnitId};

/// Limit on requests that wait; further ones are refused.
pub const REQUESTS_PENDING_MAX: usize = 64;

/// Limit on the requests between two batches.
pub const REQUESTS_PER_BATCH: usize = 2;

/// Limit on the flow indexes that a request looks at.
pub const FLOWS_LISTED_MAX: u32 = 1024;

/// Limit on the flows that a request migrates.
pub const FLOWS_MIGRATED_MAX: usize = 256;

/// Takes the answer to a request, on the packets' thread: it must not block.
pub type Reply<T> = Box<dyn FnOnce(Result<T, OperatorError>) + Send>;

/// An operator's question or command.
pub enum OperatorRequest {
    /// Returns the state of the run.
    Status(Reply<RunStatus>),
    /// Returns all units that run, in order.
    Units(Reply<Vec<UnitInfo>>),
    /// Returns the flows with these indexes, up to [`FLOWS_LISTED_MAX`].
    Flows(Range<u32>, Reply<FlowList>),
    /// Returns one flow; `None` if it has ended.
    Flow(FlowId, Reply<Option<FlowStatus>>),
    /// Copies the states of flows, up to [`FLOWS_MIGRATED_MAX`], to the targets of their migration,
    /// while packets flow (pre-copy). Answered once the replicas are there, or after
    /// [`COPY_PATIENCE_NS`](crate::elastic::COPY_PATIENCE_NS).
    Copy(Vec<MigrationTarget>, Reply<CopiedFlows>),
    /// Migrates flows, up to [`FLOWS_MIGRATED_MAX`]; later ones are ignored.
    Migrate(Vec<MigrationTarget>, Reply<Vec<Result<MigratedFlow, MigrateError>>>),
    /// Returns, for each flow, whether this unit has refused its state.
    Refusals(Vec<(FlowId, UnitId)>, Reply<Vec<bool>>),
    /// Drains a unit.
    Drain(UnitId, Reply<Result<(), UnitRefused>>),
    /// Makes a draining unit active again.
    Resume(UnitId, Reply<Result<(), UnitRefused>>),
}

/// A flow to migrate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MigrationTarget {
    /// The flow.
    pub flow: FlowId,
    /// Its owner; if it has another one, it stays there.
    pub from: Option<UnitId>,
    /// Its new owner; without one, the dispatcher chooses.
    pub to: Option<UnitId>,
}

/// Flows with states copied to the targets of their migration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CopiedFlows {
    /// The unit of each flow of the request.
    pub to: Vec<Result<UnitId, MigrateError>>,
    /// Replicas that were late, with those of flows of the same affinity groups.
    pub late: usize,
    /// The time that it took, in ns.
    pub took_ns: u64,
}

/// The state of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RunStatus {
    /// The policy's name.
    pub policy: String,
    /// Packets that arrived at ports.
    pub packets_in: u64,
    /// Packets that left by ports.
    pub packets_out: u64,
    /// The dispatcher of units; `None` if the policy runs without.
    pub dispatcher: Option<DispatcherStatus>,
}

/// The state of a dispatcher.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DispatcherStatus {
    /// The unit of assignment: `flow`, `flowlet`, and so on.
    pub mode: String,
    /// The choice of a unit: `most-utilised`, `least-loaded`, `round-robin`.
    pub choice: String,
    /// The scaling rule: `room`, `demand:SHARE`, or `drops:LIMIT:STEP`.
    pub scaling: String,
    /// Live flows.
    pub flows: u32,
    /// Flows that began.
    pub flows_started: u64,
    /// Flows lost with their units.
    pub flows_lost: u64,
    /// Flows that operators have migrated.
    pub flows_migrated: u64,
    /// Flows that stayed because a unit refused their state.
    pub states_refused: u64,
    /// Packets sent to units.
    pub packets: u64,
}

/// A unit that runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct UnitInfo {
    /// The unit.
    pub unit: UnitId,
    /// Its state.
    pub state: UnitState,
    /// Its load, as a share of its capacity.
    pub load: f64,
    /// Flows that it owns.
    pub flows: u32,
    /// Bytes of packets that were sent to it.
    pub bytes: u64,
}

/// Flows of some indexes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FlowList {
    /// The flows, by index.
    pub flows: Vec<FlowStatus>,
    /// The index to continue from; `None` at the end of the table.
    pub next: Option<u32>,
    /// The time of the dispatcher.
    pub now_ns: u64,
}

/// The reason why a request has no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OperatorError {
    /// The policy runs without a dispatcher.
    #[error("the policy runs without units; start it with --cluster or --mode")]
    NoUnits,
    /// Too many requests wait.
    #[error("{REQUESTS_PENDING_MAX} requests wait already; try again")]
    Busy,
    /// The run has ended.
    #[error("the run has ended")]
    Ended,
}

/// The operator's end.
#[derive(Clone)]
pub struct OperatorHandle(SyncSender<OperatorRequest>);

/// The runner's end.
pub(crate) struct OperatorDesk(Receiver<OperatorRequest>);

impl OperatorHandle {
    /// Sends a request. Its reply is dropped unused if the run ends before.
    ///
    /// # Errors
    /// If too many requests wait, or the run has ended.
    pub fn send(&self, request: OperatorRequest) -> Result<(), OperatorError> {
        self.0.try_send(request).map_err(|error| match error {
            TrySendError::Full(_) => OperatorError::Busy,
            TrySendError::Disconnected(_) => OperatorError::Ended,
        })
    }
}

impl OperatorDesk {
    /// Creates both ends.
    pub fn open() -> (OperatorDesk, OperatorHandle) {
        let (sender, receiver) = sync_channel(REQUESTS_PENDING_MAX);
        (OperatorDesk(receiver), OperatorHandle(sender))
    }

    /// Returns the next request.
    pub fn next(&self) -> Option<OperatorRequest> {
        self.0.try_recv().ok()
    }
}

impl OperatorRequest {
    /// Answers that there are no units.
    pub(crate) fn refuse(self) {
        let error = OperatorError::NoUnits;
        match self {
            OperatorRequest::Status(reply) => reply(Err(error)),
            OperatorRequest::Units(reply) => reply(Err(error)),
            OperatorRequest::Flows(_, reply) => reply(Err(error)),
            OperatorRequest::Flow(_, reply) => reply(Err(error)),
            OperatorRequest::Copy(_, reply) => reply(Err(error)),
            OperatorRequest::Migrate(_, reply) => reply(Err(error)),
            OperatorRequest::Refusals(_, reply) => reply(Err(error)),
            OperatorRequest::Drain(_, reply) | OperatorRequest::Resume(_, reply) => reply(Err(error)),
        }
    }
}
