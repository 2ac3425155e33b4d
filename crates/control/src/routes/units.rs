//! Units that run the policy.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use protocol::message::UnitId;

use super::{Api, ApiPath, ApiQuery};
use crate::paging::{Page, PageQuery};
use crate::problem::Problem;
use crate::resources::UnitResource;

/// Returns all units that run.
pub(crate) async fn all(api: &Api) -> Result<Vec<UnitResource>, Problem> {
    let (units, node_of) = (api.dispatcher.units().await?, api.dispatcher.node_of());
    Ok(units.iter().map(|unit| UnitResource::of(unit, node_of(unit.unit))).collect())
}

/// Returns a unit that runs.
async fn find(api: &Api, unit: u16) -> Result<UnitResource, Problem> {
    let found = all(api).await?.into_iter().find(|known| known.unit == unit);
    found.ok_or_else(|| Problem::unknown("unknown_unit", format!("no unit {unit} runs")))
}

/// List the units that run
#[utoipa::path(
    get, path = "/v1/units", tag = "units", operation_id = "list_units", params(PageQuery),
    responses(
        (status = 200, description = "A page of units", body = Page<UnitResource>),
        (status = "default", description = "A problem", body = Problem, content_type = "application/problem+json")
    )
)]
pub(super) async fn list(
    State(api): State<Arc<Api>>,
    ApiQuery(query): ApiQuery<PageQuery>,
) -> Result<Json<Page<UnitResource>>, Problem> {
    query.page(all(&api).await?, |unit| unit.unit.to_string()).map(Json)
}

/// Show a unit
#[utoipa::path(
    get, path = "/v1/units/{unit}", tag = "units", operation_id = "show_unit",
    params(("unit" = u16, Path, description = "Its number")),
    responses(
        (status = 200, description = "The unit", body = UnitResource),
        (status = "default", description = "A problem", body = Problem, content_type = "application/problem+json")
    )
)]
pub(super) async fn show(
    State(api): State<Arc<Api>>,
    ApiPath(unit): ApiPath<u16>,
) -> Result<Json<UnitResource>, Problem> {
    find(&api, unit).await.map(Json)
}

/// Drain a unit: it gets no new flows, hands its flows over, and stops
#[utoipa::path(
    post, path = "/v1/units/{unit}/drain", tag = "units", operation_id = "drain_unit",
    params(("unit" = u16, Path, description = "Its number")),
    responses(
        (status = 202, description = "The unit, which drains", body = UnitResource),
        (status = "default", description = "A problem", body = Problem, content_type = "application/problem+json")
    )
)]
pub(super) async fn drain(
    State(api): State<Arc<Api>>,
    ApiPath(unit): ApiPath<u16>,
) -> Result<(StatusCode, Json<UnitResource>), Problem> {
    let found = find(&api, unit).await?;
    api.dispatcher.drain(UnitId(unit)).await?;
    Ok((StatusCode::ACCEPTED, Json(UnitResource { status: "draining".to_owned(), ..found })))
}

/// Resume a unit that drains
#[utoipa::path(
    post, path = "/v1/units/{unit}/resume", tag = "units", operation_id = "resume_unit",
    params(("unit" = u16, Path, description = "Its number")),
    responses(
        (status = 202, description = "The unit", body = UnitResource),
        (status = "default", description = "A problem", body = Problem, content_type = "application/problem+json")
    )
)]
pub(super) async fn resume(
    State(api): State<Arc<Api>>,
    ApiPath(unit): ApiPath<u16>,
) -> Result<(StatusCode, Json<UnitResource>), Problem> {
    let found = find(&api, unit).await?;
    api.dispatcher.resume(UnitId(unit)).await?;
    Ok((StatusCode::ACCEPTED, Json(UnitResource { status: "active".to_owned(), ..found })))
}
