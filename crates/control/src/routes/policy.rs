//! The policy of all nodes.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use cluster::policies::{POLICY_BYTES_MAX, PolicyTexts};
use serde::Deserialize;
use utoipa::IntoParams;

use super::{Api, ApiJson, ApiQuery};
use crate::policy_resources::{
    FailedOrderResource, PolicyRequest, PolicyResource, RolloutResource, RolloutStage, hexadecimal,
};
use crate::problem::Problem;

/// The way to apply a policy.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ApplyQuery {
    /// Check the policy, and change nothing [default: false].
    #[serde(default)]
    #[param(default = false)]
    pub dry_run: bool,
}

/// Returns the policy as it is now.
pub(super) async fn now(api: &Api) -> Result<PolicyResource, Problem> {
    let rollout = api.dispatcher.rollout().map(RolloutResource::from);
    let failed_orders = api.dispatcher.failed_orders().into_iter().map(FailedOrderResource::from).collect();
    let (name, id) = match api.dispatcher.policy() {
        Some((id, name)) => (name, Some(id)),
        None => (api.dispatcher.status().await?.policy, None),
    };
    let digest = id.as_ref().map(|id| hexadecimal(&id.digest));
    Ok(PolicyResource { name, number: id.map(|id| id.number), digest, rollout, failed_orders })
}

/// Show the policy, and the latest rollout of one
#[utoipa::path(
    get, path = "/v1/policy", tag = "policy", operation_id = "show_policy",
    responses(
        (status = 200, description = "The policy", body = PolicyResource),
        (status = "default", description = "A problem", body = Problem, content_type = "application/problem+json")
    )
)]
pub(super) async fn show(State(api): State<Arc<Api>>) -> Result<Json<PolicyResource>, Problem> {
    now(&api).await.map(Json)
}

/// Give all nodes another policy, one after the other, while packets flow
///
/// Functions' configurations may differ from those of the present policy; ports, edges and settings
/// may not. All nodes read it first, those of other dispatchers, too; if one cannot run it, nothing
/// changes.
#[utoipa::path(
    put, path = "/v1/policy", tag = "policy", operation_id = "apply_policy", params(ApplyQuery),
    request_body = PolicyRequest,
    responses(
        (status = 200, description = "The cluster has this policy already, or all nodes have read it, and nothing changed", body = PolicyResource),
        (status = 202, description = "The policy so far, and the rollout that begins", body = PolicyResource),
        (status = "default", description = "A problem", body = Problem, content_type = "application/problem+json")
    )
)]
pub(super) async fn apply(
    State(api): State<Arc<Api>>,
    ApiQuery(query): ApiQuery<ApplyQuery>,
    ApiJson(request): ApiJson<PolicyRequest>,
) -> Result<(StatusCode, Json<PolicyResource>), Problem> {
    let texts = PolicyTexts::from(request);
    if texts.len() > POLICY_BYTES_MAX {
        let detail = format!("{} bytes with all files; expected up to {POLICY_BYTES_MAX}", texts.len());
        return Err(Problem::invalid(("text", detail)));
    }
    let make = api.dispatcher.policy_maker()?;
    // Large rule sets take a while; other requests do not wait.
    let made = tokio::task::spawn_blocking(move || make(texts)).await;
    let failed = |_| Problem::invalid(("text", "reading the policy failed".to_owned()));
    let policy = made.map_err(failed)?.map_err(|fault| Problem::invalid(("text", fault)))?;
    let mut resource = now(&api).await?;
    let (name, digest) = (policy.texts.name.clone(), hexadecimal(&policy.digest));
    if resource.digest.as_ref() == Some(&digest) {
        return Ok((StatusCode::OK, Json(resource)));
    }
    let number = api.dispatcher.apply(policy, query.dry_run).await?;
    if query.dry_run {
        return Ok((StatusCode::OK, Json(resource)));
    }
    let (stage, policy_number) = (RolloutStage::Waiting, resource.number.unwrap_or(0) + 1);
    let (node, reason) = (None, None);
    resource.rollout = Some(RolloutResource {
        number,
        name,
        policy_number,
        digest,
        stage,
        node,
        nodes_done: 0,
        nodes: 0,
        reason,
    });
    Ok((StatusCode::ACCEPTED, Json(resource)))
}
