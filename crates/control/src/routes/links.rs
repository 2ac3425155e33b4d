//! Links to the nodes of the cluster.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;

use super::{Api, ApiQuery};
use crate::link_resources::LinkResource;
use crate::paging::{Page, PageQuery};
use crate::problem::Problem;

/// List the links to other nodes
#[utoipa::path(
    get, path = "/v1/links", tag = "nodes", operation_id = "list_links", params(PageQuery),
    responses(
        (status = 200, description = "A page of links", body = Page<LinkResource>),
        (status = "default", description = "A problem", body = Problem, content_type = "application/problem+json")
    )
)]
pub(super) async fn list(
    State(api): State<Arc<Api>>,
    ApiQuery(query): ApiQuery<PageQuery>,
) -> Result<Json<Page<LinkResource>>, Problem> {
    let links = api.dispatcher.links().into_iter().map(LinkResource::from).collect();
    query.page(links, |link| link.node.clone()).map(Json)
}
