//! Replicas that an operator waits for before flows migrate.

use std::collections::BTreeSet;

use protocol::dispatcher::MigrateError;
use protocol::message::{FlowId, UnitId};

use crate::operator::{CopiedFlows, Reply};

/// Time that an operator waits for replicas, in ns: they may be lost, or too large for the unit.
pub const COPY_PATIENCE_NS: u64 = 100_000_000;

/// The requests for replicas that have not been answered.
#[derive(Default)]
pub(super) struct Copying(Vec<Request>);

/// A request for replicas.
struct Request {
    /// Target units of the flows.
    to: Vec<Result<UnitId, MigrateError>>,
    /// Flows with replicas under way.
    awaited: BTreeSet<FlowId>,
    since_ns: u64,
    reply: Reply<CopiedFlows>,
}

impl Copying {
    /// Answers a request once the replicas of these flows have arrived.
    pub fn add(
        &mut self,
        now_ns: u64,
        to: Vec<Result<UnitId, MigrateError>>,
        awaited: BTreeSet<FlowId>,
        reply: Reply<CopiedFlows>,
    ) {
        let request = Request { to, awaited, since_ns: now_ns, reply };
        match request.awaited.is_empty() {
            true => request.answer(now_ns),
            false => self.0.push(request),
        }
    }

    /// Notes that a replica has arrived.
    pub fn replicated(&mut self, now_ns: u64, flow: FlowId) {
        let is_done = |request: &mut Request| request.awaited.remove(&flow) && request.awaited.is_empty();
        self.0.extract_if(.., is_done).for_each(|request| request.answer(now_ns));
    }

    /// Answers requests that have waited long enough.
    pub fn handle_timeout(&mut self, now_ns: u64) {
        let is_late = |request: &mut Request| request.deadline_ns() <= now_ns;
        self.0.extract_if(.., is_late).for_each(|request| request.answer(now_ns));
    }

    /// Returns the earliest deadline; `u64::MAX` if there is none.
    pub fn next_timeout_ns(&self) -> u64 {
        self.0.iter().map(Request::deadline_ns).min().unwrap_or(u64::MAX)
    }
}

impl Request {
    fn deadline_ns(&self) -> u64 {
        self.since_ns.saturating_add(COPY_PATIENCE_NS)
    }

    fn answer(self, now_ns: u64) {
        let Request { to, awaited, since_ns, reply } = self;
        reply(Ok(CopiedFlows { to, late: awaited.len(), took_ns: now_ns.saturating_sub(since_ns) }));
    }
}
