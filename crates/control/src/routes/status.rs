//! The state of the run.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use cluster::remote::{NodeInfo, NodeStatus, OtherDispatcher};
use protocol::dispatcher::UnitState;
use runtime::operator::RunStatus;

use super::{Api, policy};
use crate::policy_resources::{PolicyResource, hexadecimal};
use crate::problem::Problem;
use crate::resources::{PolicyUseResource, StatusResource};

/// Show the state of the run
#[utoipa::path(
    get, path = "/v1/status", tag = "status", operation_id = "show_status",
    responses(
        (status = 200, description = "The state", body = StatusResource),
        (status = "default", description = "A problem", body = Problem, content_type = "application/problem+json")
    )
)]
pub(super) async fn show(State(api): State<Arc<Api>>) -> Result<Json<StatusResource>, Problem> {
    let RunStatus { packets_in, packets_out, dispatcher, .. } = api.dispatcher.status().await?;
    let PolicyResource { name: policy, number: policy_number, rollout, .. } = policy::now(&api).await?;
    let units = match dispatcher {
        Some(_) => api.dispatcher.units().await?,
        None => Vec::new(),
    };
    let (nodes, others) = (api.dispatcher.nodes(), api.dispatcher.others());
    let policies = policies(&api, &nodes, &others);
    let mut nodes_by_status = BTreeMap::new();
    for node in &nodes {
        *nodes_by_status.entry(node.status.name().to_owned()).or_default() += 1;
    }
    let in_state = |state| units.iter().filter(|unit| unit.state == state).count() as u32;
    let nodes_in = |status| nodes.iter().filter(|node| node.status == status).count() as u32;
    Ok(Json(StatusResource {
        name: api.name.clone(),
        version: api.version.clone(),
        policy,
        policy_number,
        rollout,
        uptime_seconds: api.began.elapsed().as_secs_f64(),
        packets_in,
        packets_out,
        dispatcher: dispatcher.map(Into::into),
        units_active: in_state(UnitState::Active),
        units_draining: in_state(UnitState::Draining),
        nodes: nodes.len() as u32,
        nodes_connecting: nodes_in(NodeStatus::Connecting),
        nodes_suspect: nodes_in(NodeStatus::Suspect),
        nodes_by_status,
        policies,
        store: api.dispatcher.store().map(Into::into),
        waiting: api.dispatcher.waiting(),
        other_dispatchers: others.into_iter().map(Into::into).collect(),
        clients: api.clients.resource(),
        migrations_running: api.migrations.running() as u32,
        links: api.dispatcher.link_totals().map(Into::into),
    }))
}

/// Returns the policies of nodes and dispatchers if they are not anyway.
fn policies(api: &Api, nodes: &[NodeInfo], others: &[OtherDispatcher]) -> Vec<PolicyUseResource> {
    let own = api.dispatcher.policy().map(|(policy, _)| (api.name.clone(), policy));
    let of_nodes = nodes.iter().filter_map(|node| Some((node.name.clone(), node.policy?)));
    let of_others = others.iter().filter_map(|other| Some((other.name.clone(), other.policy?)));
    let mut policies: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (name, policy) in own.into_iter().chain(of_others).chain(of_nodes) {
        policies.entry(hexadecimal(&policy.digest)).or_default().push(name);
    }
    if policies.len() < 2 {
        return Vec::new();
    }
    policies.into_iter().map(|(digest, nodes)| PolicyUseResource { digest, nodes }).collect()
}
