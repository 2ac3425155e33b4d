//! An operator's requests at the dispatcher.

use std::ops::Range;

use protocol::dispatcher::{Dispatcher, MigrateError, MigratedFlow, UnitState, UnitStatus};

use super::Elastic;
use crate::operator::{
    DispatcherStatus, FLOWS_LISTED_MAX, FLOWS_MIGRATED_MAX, FlowList, MigrationTarget, OperatorRequest,
    UnitInfo,
};
use crate::transport::Transport;

impl<T: Transport> Elastic<T> {
    /// Answers a request.
    #[cold]
    pub(super) fn answer(&mut self, request: OperatorRequest) {
        match request {
            // The runner's.
            OperatorRequest::Status(_) => request.refuse(),
            OperatorRequest::Units(reply) => reply(Ok(units(&self.dispatcher, self.config.capacity_bps))),
            OperatorRequest::Flows(indexes, reply) => reply(Ok(flows(&self.dispatcher, indexes))),
            OperatorRequest::Flow(flow, reply) => reply(Ok(self.dispatcher.flow_status(flow))),
            OperatorRequest::Refusals(flows, reply) => {
                let flows = flows.into_iter().take(FLOWS_MIGRATED_MAX);
                reply(Ok(flows.map(|(flow, unit)| self.dispatcher.has_refused(flow, unit)).collect()));
            }
            OperatorRequest::Migrate(targets, reply) => {
                let targets = targets.into_iter().take(FLOWS_MIGRATED_MAX);
                reply(Ok(targets.map(|target| self.migrate(target)).collect()));
            }
            OperatorRequest::Drain(unit, reply) => {
                let drained = self.dispatcher.drain_unit(self.now_ns, unit, &mut self.outputs);
                if drained.is_ok() {
                    self.transport.set_draining(unit, true);
                }
                reply(Ok(drained));
            }
            OperatorRequest::Resume(unit, reply) => {
                let resumed = self.dispatcher.resume_unit(self.now_ns, unit);
                if resumed.is_ok() {
                    self.transport.set_draining(unit, false);
                }
                reply(Ok(resumed));
            }
        }
        self.take_messages();
    }

    fn migrate(&mut self, target: MigrationTarget) -> Result<MigratedFlow, MigrateError> {
        let MigrationTarget { flow, from, to } = target;
        let owner = self.dispatcher.flow_status(flow).map(|status| status.owner);
        if let (Some(from), Some(owner)) = (from, owner)
            && from != owner
        {
            return Err(MigrateError::Elsewhere(owner));
        }
        self.dispatcher.migrate(self.now_ns, flow, to, &mut self.outputs)
    }

    /// Returns the dispatcher's state.
    pub(super) fn status(&self) -> DispatcherStatus {
        let counters = self.dispatcher.counters();
        DispatcherStatus {
            mode: self.config.mode.to_string(),
            choice: self.config.choice.to_string(),
            scaling: self.dispatcher.scaling().to_string(),
            flows: self.dispatcher.flows(),
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
    let used = dispatcher.indexes_used();
    let end = indexes.end.min(indexes.start.saturating_add(FLOWS_LISTED_MAX)).min(used);
    FlowList {
        flows: dispatcher.flow_statuses(indexes.start..end).collect(),
        next: Some(end).filter(|&end| end < used),
        now_ns: dispatcher.now_ns(),
    }
}
