//! Migrations of flows.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;

use super::{Api, ApiJson, ApiPath, ApiQuery};
use crate::paging::{Page, PageQuery};
use crate::problem::Problem;
use crate::resources::{MigrationRequest, MigrationResource};

/// List the migrations that are kept, the oldest first
#[utoipa::path(
    get, path = "/v1/migrations", tag = "migrations", operation_id = "list_migrations", params(PageQuery),
    responses(
        (status = 200, description = "A page of migrations", body = Page<MigrationResource>),
        (status = "default", description = "A problem", body = Problem, content_type = "application/problem+json")
    )
)]
pub(super) async fn list(
    State(api): State<Arc<Api>>,
    ApiQuery(query): ApiQuery<PageQuery>,
) -> Result<Json<Page<MigrationResource>>, Problem> {
    query.page(api.migrations.all(), |migration| migration.id.to_string()).map(Json)
}

/// Migrate flows
#[utoipa::path(
    post, path = "/v1/migrations", tag = "migrations", operation_id = "start_migration",
    request_body = MigrationRequest,
    responses(
        (status = 202, description = "The migration, which runs", body = MigrationResource),
        (status = "default", description = "A problem", body = Problem, content_type = "application/problem+json")
    )
)]
pub(super) async fn start(
    State(api): State<Arc<Api>>,
    ApiJson(request): ApiJson<MigrationRequest>,
) -> Result<(StatusCode, Json<MigrationResource>), Problem> {
    // Without units, nothing could migrate.
    api.dispatcher.units().await?;
    Ok((StatusCode::ACCEPTED, Json(api.migrations.start(request)?)))
}

/// Show a migration
#[utoipa::path(
    get, path = "/v1/migrations/{id}", tag = "migrations", operation_id = "show_migration",
    params(("id" = u64, Path, description = "Its number")),
    responses(
        (status = 200, description = "The migration", body = MigrationResource),
        (status = "default", description = "A problem", body = Problem, content_type = "application/problem+json")
    )
)]
pub(super) async fn show(
    State(api): State<Arc<Api>>,
    ApiPath(id): ApiPath<u64>,
) -> Result<Json<MigrationResource>, Problem> {
    api.migrations.get(id).map(Json)
}

/// Undo a migration: its flows move back, unless they have left their new owner since
#[utoipa::path(
    post, path = "/v1/migrations/{id}/undo", tag = "migrations", operation_id = "undo_migration",
    params(("id" = u64, Path, description = "Its number")),
    responses(
        (status = 202, description = "The migration, which is undone", body = MigrationResource),
        (status = "default", description = "A problem", body = Problem, content_type = "application/problem+json")
    )
)]
pub(super) async fn undo(
    State(api): State<Arc<Api>>,
    ApiPath(id): ApiPath<u64>,
) -> Result<(StatusCode, Json<MigrationResource>), Problem> {
    Ok((StatusCode::ACCEPTED, Json(api.migrations.undo(id)?)))
}

/// Cancel a migration that runs: flows that have moved stay where they are
#[utoipa::path(
    post, path = "/v1/migrations/{id}/cancel", tag = "migrations", operation_id = "cancel_migration",
    params(("id" = u64, Path, description = "Its number")),
    responses(
        (status = 202, description = "The migration, which stops", body = MigrationResource),
        (status = "default", description = "A problem", body = Problem, content_type = "application/problem+json")
    )
)]
pub(super) async fn cancel(
    State(api): State<Arc<Api>>,
    ApiPath(id): ApiPath<u64>,
) -> Result<(StatusCode, Json<MigrationResource>), Problem> {
    Ok((StatusCode::ACCEPTED, Json(api.migrations.cancel(id)?)))
}
