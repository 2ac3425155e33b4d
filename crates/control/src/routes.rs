//! The routes of the API, and their document.

mod changes;
mod document;
mod flows;
mod guard;
mod integers;
mod links;
mod migrations;
mod nodes;
mod policy;
mod status;
mod units;
mod watches;

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::{Body, to_bytes};
use axum::extract::{DefaultBodyLimit, FromRequest, FromRequestParts, OriginalUri, Request};
use axum::http::request::Parts;
use axum::http::uri::Authority;
use axum::http::{HeaderValue, Method, StatusCode, Version, header};
use axum::middleware::{self, Next};
use axum::response::Response;
use axum::routing::get;
use axum::{Json, Router};
use cluster::policies::POLICY_BYTES_MAX;
use futures_util::StreamExt;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use utoipa::OpenApi;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::clients::ClientCounters;
use crate::dispatcher::DispatcherClient;
use crate::migrations::Migrations;
use crate::problem::Problem;

pub use changes::WATCHERS_MAX;
pub(crate) use guard::{Guard, guard};

/// Limit on the body of a request, in bytes, unless it has a policy.
pub const BODY_MAX: usize = 64 * 1024;
/// Limit on the body of a request with a policy, in bytes: JSON escapes the ends of its lines.
pub const POLICY_BODY_MAX: usize = 2 * POLICY_BYTES_MAX + BODY_MAX;
/// Limit on the time that the body of a refused request is still read.
const LINGER: Duration = Duration::from_secs(1);
/// Limit on the bytes of it.
const LINGER_MAX: usize = 1 << 20;
/// Limit on the time for a request's body and answer.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// The state that handlers share.
pub(crate) struct Api {
    pub name: String,
    pub version: String,
    pub began: Instant,
    pub dispatcher: DispatcherClient,
    pub migrations: Migrations,
    pub clients: Arc<ClientCounters>,
    /// Places for watches.
    pub watches: Arc<Semaphore>,
}

/// A body in JSON; its errors are problems.
#[derive(FromRequest)]
#[from_request(via(Json), rejection(Problem))]
struct ApiJson<T>(T);

/// A query; its errors are problems.
#[derive(FromRequestParts)]
#[from_request(via(axum::extract::Query), rejection(Problem))]
struct ApiQuery<T>(T);

/// A part of the path; its errors are problems.
#[derive(FromRequestParts)]
#[from_request(via(axum::extract::Path), rejection(Problem))]
struct ApiPath<T>(T);

impl Api {
    pub fn new(
        (name, version): (String, String),
        began: Instant,
        dispatcher: DispatcherClient,
        migrations: Migrations,
        clients: Arc<ClientCounters>,
    ) -> Api {
        let watches = Arc::new(Semaphore::new(WATCHERS_MAX));
        Api { name, version, began, dispatcher, migrations, clients, watches }
    }
}

/// Returns the OpenAPI document of the API, as JSON.
pub fn document() -> String {
    let (_, document) = documented().split_for_parts();
    // A document has no maps with other keys than strings, so this cannot fail.
    integers::bound(document).to_pretty_json().unwrap_or_default() + "\n"
}

fn documented() -> OpenApiRouter<Arc<Api>> {
    OpenApiRouter::with_openapi(document::Document::openapi())
        .routes(routes!(status::show))
        .routes(routes!(policy::show, policy::apply))
        .routes(routes!(nodes::list, nodes::add))
        .routes(routes!(nodes::show))
        .routes(routes!(nodes::drain))
        .routes(routes!(nodes::resume))
        .routes(routes!(links::list))
        .routes(routes!(units::list))
        .routes(routes!(units::show))
        .routes(routes!(units::drain))
        .routes(routes!(units::resume))
        .routes(routes!(flows::list))
        .routes(routes!(flows::show))
        .routes(routes!(flows::move_one))
        .routes(routes!(migrations::list, migrations::start))
        .routes(routes!(migrations::show))
        .routes(routes!(migrations::undo))
        .routes(routes!(migrations::cancel))
        .routes(routes!(watches::watch))
}

/// Returns the router of all requests.
pub(crate) fn router(api: Arc<Api>) -> Router {
    let (routes, document) = documented().split_for_parts();
    let text = integers::bound(document).to_json().unwrap_or_default();
    let serve_document = move || {
        let text = text.clone();
        async move { ([(header::CONTENT_TYPE, "application/json")], text) }
    };
    routes
        .route("/v1/openapi.json", get(serve_document))
        .fallback(unknown_path)
        .method_not_allowed_fallback(other_method)
        .with_state(api)
        .layer(DefaultBodyLimit::disable()) // `with_body` has the limits.
        .layer(middleware::from_fn(with_body))
        .layer(middleware::from_fn(in_time))
}

async fn unknown_path(OriginalUri(uri): OriginalUri) -> Problem {
    let detail = format!("there is no {}; see /v1/openapi.json", uri.path());
    Problem::unknown("unknown_path", detail)
}

async fn other_method(method: Method, OriginalUri(uri): OriginalUri) -> Problem {
    let detail = format!("{} is not for {method}; see /v1/openapi.json", uri.path());
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, "method", detail)
}

/// Reads the whole body, even if it is not needed: a connection that ends with unread bytes would
/// be reset, and the client could lose the answer.
async fn with_body(request: Request, next: Next) -> Result<Response, Problem> {
    let (head, body) = request.into_parts();
    check_host(&head)?;
    let is_policy = head.uri.path() == "/v1/policy";
    let limit = if is_policy { POLICY_BODY_MAX } else { BODY_MAX };
    let too_long = || {
        let detail = format!("the body cannot be read; expected up to {limit} bytes");
        Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "body_too_long", detail)
    };
    let length =
        head.headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
    if length.is_some_and(|length: u64| length > limit as u64) {
        discard(body);
        return Err(too_long());
    }
    let body = to_bytes(body, limit).await.map_err(|_| too_long())?;
    Ok(next.run(Request::from_parts(head, Body::from(body))).await)
}

/// Reads the body of a refused request, within limits, while its answer goes out.
fn discard(body: Body) {
    let read = async move {
        let (mut parts, mut bytes) = (body.into_data_stream(), 0);
        while let Some(Ok(part)) = parts.next().await
            && bytes < LINGER_MAX
        {
            bytes += part.len();
        }
    };
    tokio::spawn(timeout(LINGER, read));
}

/// Checks that a request names its host once (RFC 9112 3.2).
fn check_host(head: &Parts) -> Result<(), Problem> {
    let is_name = |host: &HeaderValue| {
        let name = host.to_str().ok().and_then(|host| host.parse::<Authority>().ok());
        host.is_empty() || name.is_some_and(|name| !name.as_str().contains('@'))
    };
    let mut hosts = head.headers.get_all(header::HOST).iter();
    let found = match (hosts.next(), hosts.next()) {
        (None, _) if head.version < Version::HTTP_11 => return Ok(()),
        (Some(host), None) if is_name(host) => return Ok(()),
        (None, _) => "none",
        (Some(_), Some(_)) => "several",
        (Some(_), None) => "another text",
    };
    let detail = format!("expected one `Host: NAME` in the head of the request, not {found}");
    Err(Problem::new(StatusCode::BAD_REQUEST, "host", detail))
}

/// Bounds the time of a request until the head of its answer. A watch's answer continues after
/// that.
async fn in_time(request: Request, next: Next) -> Result<Response, Problem> {
    let late = |_| {
        let detail = format!("the request was not complete within {} s", REQUEST_TIMEOUT.as_secs());
        Problem::new(StatusCode::REQUEST_TIMEOUT, "timeout", detail)
    };
    timeout(REQUEST_TIMEOUT, next.run(request)).await.map_err(late)
}
