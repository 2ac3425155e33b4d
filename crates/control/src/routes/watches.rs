//! Watches of resources.

use std::sync::Arc;

use axum::extract::{Extension, State};
use axum::response::{IntoResponse, Response};

use super::changes::{self, WatchQuery};
use super::guard::Allowance;
use super::{Api, ApiQuery};
use crate::problem::Problem;

/// Watch nodes, units and migrations
#[utoipa::path(
    get, path = "/v1/watch", tag = "watch", operation_id = "watch", params(WatchQuery),
    description = "Sends an event for each resource, and then one for each that changes: `node`, `unit` or \
                   `migration` with the resource as data, or `node_gone`, `unit_gone` or `migration_gone` with \
                   its name. It ends once its client would not be let in any more.",
    responses(
        (status = 200, description = "Events", body = String, content_type = "text/event-stream"),
        (status = "default", description = "A problem", body = Problem, content_type = "application/problem+json")
    )
)]
pub(super) async fn watch(
    State(api): State<Arc<Api>>,
    allowance: Option<Extension<Allowance>>,
    ApiQuery(query): ApiQuery<WatchQuery>,
) -> Result<Response, Problem> {
    changes::watch(api, &query, allowance.map(|Extension(allowance)| allowance))
        .map(IntoResponse::into_response)
}
