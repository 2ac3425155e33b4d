//! The API's way to the dispatcher: requests over the operator's channel, and the nodes' status.

use std::sync::Arc;
use std::time::Duration;

use cluster::LinkInfo;
use cluster::policies::NumberedDigest;
use cluster::remote::{
    FailedOrder, NewPolicy, NodeCommand, NodeInfo, NodeStatus, OtherDispatcher, PolicyMaker, RemoteHandle,
    RolloutStatus, StoreStatus, UnitTimelines,
};
use protocol::dispatcher::{FlowStatus, MigrateError, MigratedFlow};
use protocol::message::{FlowId, UnitId};
use runtime::operator::{
    CopiedFlows, FLOWS_LISTED_MAX, FlowList, MigrationTarget, OperatorError, OperatorHandle, OperatorRequest,
    Reply, RunStatus, UnitInfo,
};
use runtime::report::LinksReport;
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::cluster_control::ClusterControl;
use crate::problem::Problem;
use crate::resources::UnitName;

/// Limit on the time for an answer of the dispatcher.
pub const ANSWER_TIMEOUT: Duration = Duration::from_secs(3);

/// Limit on the time for all nodes to check a policy; the dispatcher gives up before.
const CHECK_TIMEOUT: Duration = Duration::from_secs(14);

/// A client of the dispatcher.
#[derive(Clone)]
pub(crate) struct DispatcherClient {
    operator: OperatorHandle,
    cluster: Option<ClusterControl>,
}

impl DispatcherClient {
    pub fn new(operator: OperatorHandle, cluster: Option<ClusterControl>) -> DispatcherClient {
        DispatcherClient { operator, cluster }
    }

    pub async fn status(&self) -> Result<RunStatus, Problem> {
        self.ask(OperatorRequest::Status).await
    }

    pub async fn units(&self) -> Result<Vec<UnitInfo>, Problem> {
        self.ask(OperatorRequest::Units).await
    }

    /// Returns flows from this index on.
    pub async fn flows(&self, from: u32) -> Result<FlowList, Problem> {
        let indexes = from..from.saturating_add(FLOWS_LISTED_MAX);
        self.ask(|reply| OperatorRequest::Flows(indexes, reply)).await
    }

    /// Returns the flow with this index, and the time.
    pub async fn flow_at(&self, index: u32) -> Result<FlowList, Problem> {
        self.ask(|reply| OperatorRequest::Flows(index..index.saturating_add(1), reply)).await
    }

    pub async fn flow(&self, flow: FlowId) -> Result<Option<FlowStatus>, Problem> {
        self.ask(|reply| OperatorRequest::Flow(flow, reply)).await
    }

    /// Copies the states of flows to where they are about to migrate.
    pub async fn copy(&self, targets: Vec<MigrationTarget>) -> Result<CopiedFlows, Problem> {
        self.ask(|reply| OperatorRequest::Copy(targets, reply)).await
    }

    pub async fn migrate(
        &self,
        targets: Vec<MigrationTarget>,
    ) -> Result<Vec<Result<MigratedFlow, MigrateError>>, Problem> {
        self.ask(|reply| OperatorRequest::Migrate(targets, reply)).await
    }

    /// Returns for each flow whether this unit has refused its state.
    pub async fn refusals(&self, flows: Vec<(FlowId, UnitId)>) -> Result<Vec<bool>, Problem> {
        self.ask(|reply| OperatorRequest::Refusals(flows, reply)).await
    }

    pub async fn drain(&self, unit: UnitId) -> Result<(), Problem> {
        Ok(self.ask(|reply| OperatorRequest::Drain(unit, reply)).await??)
    }

    pub async fn resume(&self, unit: UnitId) -> Result<(), Problem> {
        Ok(self.ask(|reply| OperatorRequest::Resume(unit, reply)).await??)
    }

    /// Returns the nodes, in the order of their names in the configuration; none if all units run
    /// here.
    pub fn nodes(&self) -> Vec<NodeInfo> {
        self.cluster_nodes().map(RemoteHandle::status).unwrap_or_default()
    }

    /// Returns the links of now.
    pub fn links(&self) -> Vec<LinkInfo> {
        self.cluster_nodes().map(RemoteHandle::links).unwrap_or_default()
    }

    /// Returns counts of all links and handshakes; none if all units run here.
    pub fn link_totals(&self) -> Option<LinksReport> {
        self.cluster_nodes().map(RemoteHandle::link_totals)
    }

    /// Returns the units that the dispatcher waits for, as text, if it does.
    pub fn waiting(&self) -> Option<String> {
        let start = self.cluster_nodes()?.start();
        let what = if start.has_begun { "units missing" } else { "waiting for units" };
        (start.ready < start.wanted).then(|| format!("{what}: {start}"))
    }

    /// Returns the other dispatchers of the cluster.
    pub fn others(&self) -> Vec<OtherDispatcher> {
        self.cluster_nodes().map(RemoteHandle::others).unwrap_or_default()
    }

    /// Returns the state of the store; none without one.
    pub fn store(&self) -> Option<StoreStatus> {
        self.cluster_nodes().and_then(RemoteHandle::store)
    }

    /// Returns the policy that holds in the cluster, and the name of its file; none if all units
    /// run here.
    pub fn policy(&self) -> Option<(NumberedDigest, String)> {
        self.cluster_nodes().map(RemoteHandle::policy)
    }

    /// Returns the latest orders of policies that have failed.
    pub fn failed_orders(&self) -> Vec<FailedOrder> {
        self.cluster_nodes().map(RemoteHandle::failed).unwrap_or_default()
    }

    /// Returns the latest rollout of a policy.
    pub fn rollout(&self) -> Option<RolloutStatus> {
        self.cluster_nodes().and_then(RemoteHandle::rollout)
    }

    /// Returns the maker of policies that all nodes get.
    pub fn policy_maker(&self) -> Result<PolicyMaker, Problem> {
        Ok(Arc::clone(&self.cluster()?.make_policy))
    }

    /// Gives a policy to all nodes, or has them read it only. Returns the number of the order.
    pub async fn apply(&self, policy: NewPolicy, is_dry_run: bool) -> Result<u64, Problem> {
        let (sender, answer) = oneshot::channel();
        let reply = Box::new(move |outcome| {
            // The caller may have given up.
            let _ = sender.send(outcome);
        });
        let ended = || Problem::from(OperatorError::Ended);
        self.cluster()?.nodes.order(policy, is_dry_run, reply).ok_or_else(ended)?;
        let limit = if is_dry_run { CHECK_TIMEOUT } else { ANSWER_TIMEOUT };
        let answer = timeout(limit, answer).await.map_err(|_| Problem::from(OperatorError::Busy))?;
        answer.map_err(|_| ended())?.map_err(|reason| Problem::conflict("policy_refused", reason))
    }

    /// Returns the last lines of a flow at units of nodes, up to this many of each.
    pub async fn trace(&self, flow: FlowId, lines_max: u32) -> UnitTimelines {
        let Some(nodes) = self.cluster_nodes() else { return UnitTimelines::default() };
        let (sender, answer) = oneshot::channel();
        // The caller may have given up.
        let reply = Box::new(move |units| drop(sender.send(units)));
        // The dispatcher gives up before.
        if nodes.trace(flow, lines_max, reply)
            && let Ok(Ok(units)) = timeout(ANSWER_TIMEOUT, answer).await
        {
            return units;
        }
        let of_units = nodes.status().into_iter().filter(|node| node.unit.is_some());
        let missing = of_units.map(|node| (node.name, "the dispatcher has not asked it")).collect();
        UnitTimelines { timelines: Vec::new(), missing }
    }

    /// Returns the node of this name.
    pub fn node(&self, name: &str) -> Result<NodeInfo, Problem> {
        let found = self.nodes().into_iter().find(|node| node.name == name);
        found.ok_or_else(|| Problem::unknown("unknown_node", format!("there is no node `{name}`")))
    }

    /// Sends a command about a node.
    pub fn command(&self, command: NodeCommand) -> Result<(), Problem> {
        self.cluster()?.nodes.send(command);
        Ok(())
    }

    fn cluster(&self) -> Result<&ClusterControl, Problem> {
        let none = || Problem::conflict("no_cluster", "units run in this process; start it with --cluster");
        self.cluster.as_ref().ok_or_else(none)
    }

    fn cluster_nodes(&self) -> Option<&RemoteHandle> {
        self.cluster.as_ref().map(|cluster| &cluster.nodes)
    }

    /// Returns the name of a unit's node.
    pub fn node_of(&self) -> impl Fn(UnitId) -> Option<String> + use<> {
        let nodes = self.nodes();
        move |unit| {
            let is_it = |node: &&NodeInfo| node.unit == Some(unit) && node.status != NodeStatus::Drained;
            nodes.iter().find(is_it).map(|node| node.name.clone())
        }
    }

    /// Returns the unit that a request names in this field.
    pub fn unit(&self, field: &str, name: &UnitName) -> Result<UnitId, Problem> {
        match name {
            UnitName::Number(number) => Ok(UnitId(*number)),
            UnitName::Node(name) => {
                let nodes = self.nodes();
                let found = nodes.iter().find(|node| node.name == *name);
                let unit = found.and_then(|node| node.unit);
                unit.ok_or_else(|| match found {
                    Some(node) => {
                        let detail = format!("node `{name}` is {} and has no unit", node.status.name());
                        Problem { field: Some(field.to_owned()), ..Problem::conflict("no_unit", detail) }
                    }
                    None => Problem::invalid((field, format!("there is no node `{name}`"))),
                })
            }
        }
    }

    /// Sends a request, and waits for the answer.
    async fn ask<T: Send + 'static>(
        &self,
        request: impl FnOnce(Reply<T>) -> OperatorRequest,
    ) -> Result<T, Problem> {
        let (sender, receiver) = oneshot::channel();
        // This fails if the caller has given up.
        let reply: Reply<T> = Box::new(move |answer| drop(sender.send(answer)));
        self.operator.send(request(reply))?;
        match timeout(ANSWER_TIMEOUT, receiver).await {
            Ok(Ok(answer)) => Ok(answer?),
            Ok(Err(_)) => Err(OperatorError::Ended.into()),
            Err(_) => {
                let detail = format!("no answer of the dispatcher within {} s", ANSWER_TIMEOUT.as_secs());
                Err(Problem::busy("no_answer", detail))
            }
        }
    }
}
