//! The credentials of requests over TCP.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};

use rustls_pki_types::CertificateDer;

use super::discard;
use crate::access::{ApiAccess, Permission};
use crate::clients::{ClientCounters, count};
use crate::door::{Place, REMOTE_CLIENTS_MAX};
use crate::problem::Problem;
use crate::token::Token;

/// The challenge of a refused request (RFC 6750 3).
const CHALLENGE: &str = "Bearer realm=\"rivulet\"";
/// The same if the request had a wrong token.
const CHALLENGE_AGAIN: &str = "Bearer realm=\"rivulet\", error=\"invalid_token\"";

/// The checks of a connection's requests.
#[derive(Clone)]
pub(crate) struct Guard {
    pub access: ApiAccess,
    /// The certificates that the client has shown, its own first; none if it has not.
    pub shown: Arc<[CertificateDer<'static>]>,
    pub counters: Arc<ClientCounters>,
    /// The place of the connection.
    pub place: Arc<Place>,
}

/// Returns the routes for a client over TCP: its certificate must allow each request, or each must
/// have the token.
pub(crate) fn guard(open: &Router, guard: Guard) -> Router {
    open.clone().layer(middleware::from_fn_with_state(guard, check))
}

async fn check(State(guard): State<Guard>, mut request: Request, next: Next) -> Response {
    let allowed = guard.check(request.method(), request.headers());
    match allowed.and_then(|()| guard.check_place()) {
        Ok(()) => {
            let (method, headers) = (request.method().clone(), request.headers().clone());
            request.extensions_mut().insert(Allowance { guard, method, headers });
            next.run(request).await
        }
        Err(refusal) => {
            discard(request.into_body());
            *refusal
        }
    }
}

/// The grounds on which a request was allowed: a continuing answer checks them again.
#[derive(Clone)]
pub(crate) struct Allowance {
    guard: Guard,
    method: Method,
    headers: HeaderMap,
}

impl Allowance {
    /// Returns whether the request would be allowed now.
    pub(crate) fn holds(&self) -> bool {
        self.guard.check(&self.method, &self.headers).is_ok()
    }
}

impl Guard {
    /// Checks what the client has shown, against what the files have now.
    fn check(&self, method: &Method, headers: &HeaderMap) -> Result<(), Box<Response>> {
        let access = self.access.now();
        match self.shown.is_empty() {
            true => self.check_token(access.token.as_deref(), headers),
            false => self.check_role(access.permission(&self.shown), method),
        }
    }

    fn check_role(
        &self,
        permission: Result<Permission, String>,
        method: &Method,
    ) -> Result<(), Box<Response>> {
        let detail = match permission {
            Ok(Permission::Operate) => return Ok(()),
            Ok(Permission::View) if matches!(*method, Method::GET | Method::HEAD) => return Ok(()),
            Ok(Permission::View) => format!("the role viewer allows GET only, not {method}"),
            Err(reason) => reason,
        };
        count(&self.counters.forbidden);
        Err(Problem::new(StatusCode::FORBIDDEN, "forbidden", detail).into_response().into())
    }

    fn check_token(&self, token: Option<&Token>, headers: &HeaderMap) -> Result<(), Box<Response>> {
        let mut shown = headers.get_all(header::AUTHORIZATION).iter();
        let (first, second) = (shown.next(), shown.next());
        let detail = match (token, first, second) {
            (Some(token), Some(first), None) if token.is_in(first.as_bytes()) => return Ok(()),
            (Some(_), ..) => {
                "expected a client certificate, or `Authorization: Bearer TOKEN` with the server's token"
            }
            (None, ..) => "expected a client certificate of the server's authority",
        };
        count(&self.counters.unauthorized);
        let mut refusal = Problem::new(StatusCode::UNAUTHORIZED, "unauthorized", detail).into_response();
        let challenge = if first.is_some() { CHALLENGE_AGAIN } else { CHALLENGE };
        refusal.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static(challenge));
        Err(refusal.into())
    }

    /// Takes one of the places of clients that may use the API, if the connection has none so far.
    fn check_place(&self) -> Result<(), Box<Response>> {
        if self.place.know() {
            return Ok(());
        }
        count(&self.counters.too_many);
        let detail = format!("there are {REMOTE_CLIENTS_MAX} clients; try again once one has gone");
        let mut refusal = Problem::busy("clients", detail).into_response();
        refusal.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        Err(refusal.into())
    }
}
