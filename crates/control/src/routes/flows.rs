//! Flows, and the units that own them.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use protocol::dispatcher::FlowStatus;
use protocol::message::FlowId;
use runtime::operator::MigrationTarget;
use serde::Deserialize;
use utoipa::IntoParams;

use super::{Api, ApiJson, ApiPath, ApiQuery};
use crate::filter::FlowFilter;
use crate::flow_id;
use crate::paging::{Page, limit_of};
use crate::problem::Problem;
use crate::resources::{FlowResource, MoveRequest, UnitName};
use crate::timeline_resources::{TIMELINE_LINES_MAX, TimelineResource};

/// Limit on the requests to the dispatcher for one page; a page may have fewer items then.
const LOOKS_MAX: usize = 64;

/// The flows that a request selects.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct FlowQuery {
    /// Limit on the items, up to 1000.
    #[param(minimum = 1, maximum = 1000, default = 100)]
    limit: Option<u32>,
    /// Begins after this item: `next` of the page before.
    after: Option<String>,
    /// Flows of this unit: its number, or its node's name.
    unit: Option<String>,
    /// Flows that this filter matches in one of their directions, in the policy's language.
    #[param(example = "dst port 443")]
    filter: Option<String>,
}

/// List the flows
#[utoipa::path(
    get, path = "/v1/flows", tag = "flows", operation_id = "list_flows", params(FlowQuery),
    description = "Pages may have fewer items than `limit`, even none, before the last one.",
    responses(
        (status = 200, description = "A page of flows", body = Page<FlowResource>),
        (status = "default", description = "A problem", body = Problem, content_type = "application/problem+json")
    )
)]
pub(super) async fn list(
    State(api): State<Arc<Api>>,
    ApiQuery(query): ApiQuery<FlowQuery>,
) -> Result<Json<Page<FlowResource>>, Problem> {
    let limit = limit_of(query.limit)?;
    let no_page = |after: &String| Problem::invalid(("after", format!("`{after}` is no `next` of a page")));
    let mut from = match &query.after {
        Some(after) => after.parse::<u32>().map_err(|_| no_page(after))?,
        None => 0,
    };
    let unit = query.unit.map(|name| match name.parse() {
        Ok(number) => UnitName::Number(number),
        Err(_) => UnitName::Node(name),
    });
    let unit = unit.map(|name| api.dispatcher.unit("unit", &name)).transpose()?;
    let filter = query.filter.as_deref().map(FlowFilter::read).transpose()?;
    let selects = |flow: &FlowStatus| {
        unit.is_none_or(|unit| unit == flow.owner)
            && filter.as_ref().is_none_or(|filter| filter.matches(&flow.key))
    };
    let (mut items, node_of) = (Vec::new(), api.dispatcher.node_of());
    for _ in 0..LOOKS_MAX {
        let list = api.dispatcher.flows(from).await?;
        for flow in list.flows.iter().filter(|&flow| selects(flow)) {
            if items.len() == limit {
                return Ok(Json(Page { items, next: Some(flow.flow.index.to_string()) }));
            }
            items.push(FlowResource::of(flow, list.now_ns, &node_of));
        }
        match list.next {
            Some(next) => from = next,
            None => return Ok(Json(Page { items, next: None })),
        }
    }
    Ok(Json(Page { items, next: Some(from.to_string()) }))
}

/// Show a flow
#[utoipa::path(
    get, path = "/v1/flows/{id}", tag = "flows", operation_id = "show_flow",
    params(("id" = String, Path, description = "Its identity", example = "17.0")),
    responses(
        (status = 200, description = "The flow", body = FlowResource),
        (status = "default", description = "A problem", body = Problem, content_type = "application/problem+json")
    )
)]
pub(super) async fn show(
    State(api): State<Arc<Api>>,
    ApiPath(id): ApiPath<String>,
) -> Result<Json<FlowResource>, Problem> {
    find(&api, flow_of(&id)?).await.map(Json)
}

/// Move a flow to another unit
#[utoipa::path(
    post, path = "/v1/flows/{id}/move", tag = "flows", operation_id = "move_flow",
    params(("id" = String, Path, description = "Its identity", example = "17.0")), request_body = MoveRequest,
    responses(
        (status = 200, description = "The flow, with its new owner", body = FlowResource),
        (status = "default", description = "A problem", body = Problem, content_type = "application/problem+json")
    )
)]
pub(super) async fn move_one(
    State(api): State<Arc<Api>>,
    ApiPath(id): ApiPath<String>,
    ApiJson(request): ApiJson<MoveRequest>,
) -> Result<Json<FlowResource>, Problem> {
    let flow = flow_of(&id)?;
    let to = request.to.map(|to| api.dispatcher.unit("to", &to)).transpose()?;
    let results = api.dispatcher.migrate(vec![MigrationTarget { flow, from: None, to }]).await?;
    results.into_iter().next().transpose()?;
    find(&api, flow).await.map(Json)
}

/// Show the last events of a flow
#[utoipa::path(
    get, path = "/v1/flows/{id}/timeline", tag = "flows", operation_id = "show_timeline",
    description = "The events that the dispatcher and its units have noted. Units at nodes have 1 s to answer; `missing` names those that have not. A flow that has ended has a timeline as long as its lines are kept.",
    params(("id" = String, Path, description = "Its identity", example = "17.0")),
    responses(
        (status = 200, description = "The timeline", body = TimelineResource),
        (status = "default", description = "A problem", body = Problem, content_type = "application/problem+json")
    )
)]
pub(super) async fn timeline(
    State(api): State<Arc<Api>>,
    ApiPath(id): ApiPath<String>,
) -> Result<Json<TimelineResource>, Problem> {
    let flow = flow_of(&id)?;
    let no_timeline = || Problem::unknown("no_timeline", "the process keeps no timeline".to_owned());
    let own = runtime::timeline::kept(flow, TIMELINE_LINES_MAX).ok_or_else(no_timeline)?;
    let units = api.dispatcher.trace(flow, TIMELINE_LINES_MAX as u32).await;
    let timeline = TimelineResource::of(own, units);
    if timeline.lines.is_empty() {
        find(&api, flow).await?; // A live flow has none if nothing has happened to it of late.
    }
    Ok(Json(timeline))
}

async fn find(api: &Api, flow: FlowId) -> Result<FlowResource, Problem> {
    let list = api.dispatcher.flow_at(flow.index).await?;
    let found = list.flows.iter().find(|status| status.flow == flow);
    let gone = || format!("there is no {flow}; it may have ended");
    let status = found.ok_or_else(|| Problem::unknown("unknown_flow", gone()))?;
    Ok(FlowResource::of(status, list.now_ns, api.dispatcher.node_of()))
}

fn flow_of(id: &str) -> Result<FlowId, Problem> {
    flow_id::from_text(id).map_err(|error| Problem::unknown("unknown_flow", error.to_string()))
}
