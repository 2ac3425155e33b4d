//! An operator's requests at the dispatcher.

use std::collections::BTreeSet;
use std::ops::Range;

use protocol::dispatcher::{Dispatcher, MigrateError, MigratedFlow, UnitRefused, UnitState, UnitStatus};
use protocol::message::{FlowId, UnitId};

use super::Elastic;
use crate::operator::{
    DispatcherStatus, FLOWS_LISTED_MAX, FLOWS_MIGRATED_MAX, FlowList, MigrationTarget, OperatorRequest,
    UnitInfo,
};
use crate::transport::{Transport, UnitNodes};

impl<T: Transport> Elastic<T> {
    /// Answers a request.
    #[cold]
    pub(super) fn answer(&mut self, request: OperatorRequest) {
        match request {
            // The runner's.
            OperatorRequest::Status(_) => request.refuse(),
            OperatorRequest::Units(reply) => reply(Ok(units(&self.dispatcher, self.config.capacity_bps))),
            OperatorRequest::Flows(indexes, reply) => reply(Ok(flows(&self.dispatcher, indexes))),
            OperatorRequest::Flow(flow, reply) => reply(Ok(self.dispatcher.flows().status(flow))),
            OperatorRequest::Refusals(flows, reply) => {
                let flows = flows.into_iter().take(FLOWS_MIGRATED_MAX);
                reply(Ok(flows
                    .map(|(flow, unit)| self.dispatcher.flows().has_refused(flow, unit))
                    .collect()));
            }
            OperatorRequest::Copy(targets, reply) => {
                let mut awaited = BTreeSet::new();
                let targets = targets.into_iter().take(FLOWS_MIGRATED_MAX);
                let to = targets.map(|target| self.copy(target, &mut awaited)).collect();
                self.copying.add(self.now_ns, to, awaited, reply);
                self.due_ns = self.due_ns.min(self.copying.next_timeout_ns());
            }
            OperatorRequest::Migrate(targets, reply) => {
                let targets = targets.into_iter().take(FLOWS_MIGRATED_MAX);
                reply(Ok(targets.map(|target| self.migrate(target)).collect()));
            }
            OperatorRequest::Drain(unit, reply) => {
                let mut drained = self.dispatcher.membership().drain(self.now_ns, unit, &mut self.outputs);
                if matches!(drained, Err(UnitRefused::Last(_)))
                    && self.transport.nodes().is_some_and(UnitNodes::has_spare)
                {
                    // The spare one takes its flows.
                    self.dispatcher.membership().remove(self.now_ns, unit, &mut self.outputs);
                    drained = Ok(());
                }
                if drained.is_ok()
                    && let Some(nodes) = self.transport.nodes_mut()
                {
                    nodes.set_draining(unit, true);
                }
                reply(Ok(drained));
            }
            OperatorRequest::Resume(unit, reply) => {
                let resumed = self.dispatcher.membership().resume(self.now_ns, unit);
                if resumed.is_ok()
                    && let Some(nodes) = self.transport.nodes_mut()
                {
                    nodes.set_draining(unit, false);
                }
                reply(Ok(resumed));
            }
        }
        self.take_messages();
    }

    fn migrate(&mut self, target: MigrationTarget) -> Result<MigratedFlow, MigrateError> {
        self.check_owner(&target)?;
        self.dispatcher.migrations().migrate(self.now_ns, target.flow, target.to, &mut self.outputs)
    }

    /// Copies a flow's state to the target of its migration, if states take long to travel. Returns
    /// the unit.
    fn copy(
        &mut self,
        target: MigrationTarget,
        awaited: &mut BTreeSet<FlowId>,
    ) -> Result<UnitId, MigrateError> {
        self.check_owner(&target)?;
        let MigrationTarget { flow, to, .. } = target;
        match self.dispatcher.config().pre_copy {
            true => self.dispatcher.migrations().replicate(self.now_ns, flow, to, &mut self.outputs, awaited),
            false => self.dispatcher.migrations().next_owner(flow, to),
        }
    }

    fn check_owner(&self, target: &MigrationTarget) -> Result<(), MigrateError> {
        let owner = self.dispatcher.flows().status(target.flow).map(|status| status.owner);
        match (target.from, owner) {
            (Some(from), Some(owner)) if from != owner => Err(MigrateError::Elsewhere(owner)),
            _ => Ok(()),
        }
    }

    /// Returns the dispatcher's state.
    pub(super) fn status(&self) -> DispatcherStatus {
        let counters = self.dispatcher.counters();
        DispatcherStatus {
            mode: self.config.mode.to_string(),
            choice: self.config.choice.to_string(),
            scaling: self.dispatcher.config().scaling.to_string(),
            flows: self.dispatcher.flows().count(),
            flows_started: counters.flows,
            flows_lost: counters.flows_lost,
            flows_migrated: counters.flows_migrated,
            states_refused: counters.states_refused,
            packets: counters.packets,
        }
    }
}

/// Returns the units that run or will.
fn units(dispatcher: &Dispatcher, capacity_bps: u64) -> Vec<UnitInfo> {
    let runs = |state| !matches!(state, UnitState::Off | UnitState::Lost);
    let units = dispatcher.units().filter(|unit| runs(unit.state));
    let info = |unit: UnitStatus| UnitInfo {
        unit: unit.unit,
        state: unit.state,
        load: f64::from(unit.load_bps) / capacity_bps as f64,
        flows: unit.flows,
        bytes: dispatcher.bytes_of(unit.unit),
    };
    units.map(info).collect()
}

/// Returns the flows with the first of these indexes.
fn flows(dispatcher: &Dispatcher, indexes: Range<u32>) -> FlowList {
    let used = dispatcher.flows().indexes_used();
    let end = indexes.end.min(indexes.start.saturating_add(FLOWS_LISTED_MAX)).min(used);
    FlowList {
        flows: dispatcher.flows().statuses(indexes.start..end).collect(),
        next: Some(end).filter(|&end| end < used),
        now_ns: dispatcher.now_ns(),
    }
}
