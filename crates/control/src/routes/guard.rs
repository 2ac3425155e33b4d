//! The credentials of requests over TCP.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};

use super::{in_time, with_body};
use crate::clients::{ClientCounters, count};
use crate::problem::Problem;
use crate::token::Token;

/// The challenge of a refused request (RFC 6750 3).
const CHALLENGE: &str = "Bearer realm=\"rivulet\"";
/// The same if the request had a wrong token.
const CHALLENGE_AGAIN: &str = "Bearer realm=\"rivulet\", error=\"invalid_token\"";

#[derive(Clone)]
struct Guard {
    /// The token that is accepted; without one, clients need a certificate.
    token: Option<Arc<Token>>,
    counters: Arc<ClientCounters>,
}

/// Returns the routes for clients that have shown no certificate: every request needs the token.
pub(crate) fn guard(open: Router, token: Option<Arc<Token>>, counters: Arc<ClientCounters>) -> Router {
    open.layer(middleware::from_fn_with_state(Guard { token, counters }, check))
        .layer(middleware::from_fn(with_body))
        .layer(middleware::from_fn(in_time))
}

async fn check(State(guard): State<Guard>, request: Request, next: Next) -> Response {
    let headers: &HeaderMap = request.headers();
    let mut shown = headers.get_all(header::AUTHORIZATION).iter();
    let (first, second) = (shown.next(), shown.next());
    let is_right = match (&guard.token, first, second) {
        (Some(token), Some(first), None) => token.is_in(first.as_bytes()),
        _ => false,
    };
    if is_right {
        return next.run(request).await;
    }
    count(&guard.counters.unauthorized);
    let detail = match &guard.token {
        Some(_) => "expected a client certificate, or `Authorization: Bearer TOKEN` with the server's token",
        None => "expected a client certificate of the server's authority",
    };
    let mut response = Problem::new(StatusCode::UNAUTHORIZED, "unauthorized", detail).into_response();
    let challenge = if first.is_some() { CHALLENGE_AGAIN } else { CHALLENGE };
    response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static(challenge));
    response
}
