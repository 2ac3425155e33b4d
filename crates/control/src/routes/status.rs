//! The state of the run.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use cluster::remote::NodeStatus;
use protocol::dispatcher::UnitState;
use runtime::operator::RunStatus;

use super::{Api, policy};
use crate::policy_resources::PolicyResource;
use crate::problem::Problem;
use crate::resources::StatusResource;

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
    let PolicyResource { name: policy, rollout, .. } = policy::now(&api).await?;
    let units = match dispatcher {
        Some(_) => api.dispatcher.units().await?,
        None => Vec::new(),
    };
    let nodes = api.dispatcher.nodes();
    let in_state = |state| units.iter().filter(|unit| unit.state == state).count() as u32;
    let is_away = |status| matches!(status, NodeStatus::Connecting);
    Ok(Json(StatusResource {
        name: api.name.clone(),
        version: api.version.clone(),
        policy,
        rollout,
        uptime_seconds: api.began.elapsed().as_secs_f64(),
        packets_in,
        packets_out,
        dispatcher: dispatcher.map(Into::into),
        units_active: in_state(UnitState::Active),
        units_draining: in_state(UnitState::Draining),
        nodes: nodes.len() as u32,
        nodes_connecting: nodes.iter().filter(|node| is_away(node.status)).count() as u32,
        other_dispatchers: api.dispatcher.others().into_iter().map(Into::into).collect(),
        clients: api.clients.resource(),
        migrations_running: api.migrations.running() as u32,
        links: api.dispatcher.link_totals().map(Into::into),
    }))
}
