//! The credentials of requests over TCP.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};

use super::discard;
use crate::clients::{ClientCounters, count};
use crate::door::{Place, REMOTE_CLIENTS_MAX};
use crate::problem::Problem;
use crate::token::Token;

/// The challenge of a refused request (RFC 6750 3).
const CHALLENGE: &str = "Bearer realm=\"rivulet\"";
/// The same if the request had a wrong token.
const CHALLENGE_AGAIN: &str = "Bearer realm=\"rivulet\", error=\"invalid_token\"";

/// How clients that have shown no certificate are checked.
#[derive(Clone)]
pub(crate) struct Guard {
    /// The token that is accepted; without one, clients need a certificate.
    pub token: Option<Arc<Token>>,
    pub counters: Arc<ClientCounters>,
    /// The place of the connection.
    pub place: Arc<Place>,
}

/// Returns the routes for a client that has shown no certificate: every request needs the token.
pub(crate) fn guard(open: &Router, guard: Guard) -> Router {
    open.clone().layer(middleware::from_fn_with_state(guard, check))
}

async fn check(State(guard): State<Guard>, request: Request, next: Next) -> Response {
    let headers: &HeaderMap = request.headers();
    let mut shown = headers.get_all(header::AUTHORIZATION).iter();
    let (first, second) = (shown.next(), shown.next());
    let is_right = match (&guard.token, first, second) {
        (Some(token), Some(first), None) => token.is_in(first.as_bytes()),
        _ => false,
    };
    if is_right && guard.place.know() {
        return next.run(request).await;
    }
    let challenge = if first.is_some() { CHALLENGE_AGAIN } else { CHALLENGE };
    discard(request.into_body());
    if is_right {
        count(&guard.counters.too_many);
        let detail = format!("there are {REMOTE_CLIENTS_MAX} clients; try again once one has gone");
        let mut response = Problem::busy("clients", detail).into_response();
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        return response;
    }
    count(&guard.counters.unauthorized);
    let detail = match &guard.token {
        Some(_) => "expected a client certificate, or `Authorization: Bearer TOKEN` with the server's token",
        None => "expected a client certificate of the server's authority",
    };
    let mut response = Problem::new(StatusCode::UNAUTHORIZED, "unauthorized", detail).into_response();
    response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static(challenge));
    response
}
