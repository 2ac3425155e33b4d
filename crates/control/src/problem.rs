//! Errors as problems (RFC 9457).

use axum::Json;
use axum::extract::rejection::{JsonRejection, PathRejection, QueryRejection};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use protocol::dispatcher::{MigrateError, UnitRefused};
use runtime::operator::OperatorError;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The media type of a problem.
const MEDIA_TYPE: &str = "application/problem+json";

/// An error of the API (RFC 9457).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(examples(json!({
    "type": "about:blank", "title": "Not Found", "status": 404, "code": "unknown_flow",
    "detail": "there is no flow 17.0; it may have ended"
})))]
pub struct Problem {
    /// Always `about:blank`: `code` distinguishes problems.
    #[serde(rename = "type")]
    #[schema(value_type = String)]
    pub kind: Box<str>,
    /// The meaning of the status.
    #[schema(value_type = String)]
    pub title: Box<str>,
    /// The status of the response.
    pub status: u16,
    /// The problem, for programs.
    #[schema(value_type = String)]
    pub code: Box<str>,
    /// The problem, for people: the fault, and what was expected.
    pub detail: String,
    /// The faulty field of the request, if one is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
}

/// The name of a request's field, for problems.
pub type FieldProblem<'a> = (&'a str, String);

impl Problem {
    /// Creates a problem with this status.
    pub fn new(status: StatusCode, code: &str, detail: impl Into<String>) -> Problem {
        Problem {
            kind: "about:blank".into(),
            title: status.canonical_reason().unwrap_or_default().into(),
            status: status.as_u16(),
            code: code.into(),
            detail: detail.into(),
            field: None,
        }
    }

    /// Creates the problem of a path that names nothing.
    pub fn unknown(code: &str, detail: impl Into<String>) -> Problem {
        Problem::new(StatusCode::NOT_FOUND, code, detail)
    }

    /// Creates the problem of a field with a wrong value.
    pub fn invalid((field, detail): FieldProblem<'_>) -> Problem {
        let problem = Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid", detail);
        Problem { field: Some(field.to_owned()), ..problem }
    }

    /// Creates the problem of a request that the present state does not allow.
    pub fn conflict(code: &str, detail: impl Into<String>) -> Problem {
        Problem::new(StatusCode::CONFLICT, code, detail)
    }

    /// Creates the problem of a limit that is reached for the time being.
    pub fn busy(code: &str, detail: impl Into<String>) -> Problem {
        Problem::new(StatusCode::SERVICE_UNAVAILABLE, code, detail)
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = (status, Json(self)).into_response();
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(MEDIA_TYPE));
        response
    }
}

impl From<OperatorError> for Problem {
    fn from(error: OperatorError) -> Problem {
        match error {
            OperatorError::NoUnits => Problem::conflict("no_units", error.to_string()),
            OperatorError::Busy => Problem::busy("busy", error.to_string()),
            OperatorError::Ended => Problem::busy("ended", error.to_string()),
        }
    }
}

impl From<MigrateError> for Problem {
    fn from(error: MigrateError) -> Problem {
        let code = match error {
            MigrateError::Ended => return Problem::unknown("unknown_flow", error.to_string()),
            MigrateError::Owned(_) => "owned",
            MigrateError::Elsewhere(_) => "elsewhere",
            MigrateError::NotActive(_) => "unit_not_active",
            MigrateError::NoOther => "no_other_unit",
            MigrateError::Mode(_) => "mode",
            MigrateError::GroupMoving => "group_moving",
            MigrateError::Exhausted => "exhausted",
        };
        Problem::conflict(code, error.to_string())
    }
}

impl From<UnitRefused> for Problem {
    fn from(error: UnitRefused) -> Problem {
        let code = match error {
            UnitRefused::Unknown(_) => return Problem::unknown("unknown_unit", error.to_string()),
            UnitRefused::Last(_) => "last_unit",
            UnitRefused::NotActive(_) => "unit_not_active",
            UnitRefused::NotDraining(_) => "unit_not_draining",
        };
        Problem::conflict(code, error.to_string())
    }
}

impl From<JsonRejection> for Problem {
    fn from(rejection: JsonRejection) -> Problem {
        let code = match rejection.status() {
            StatusCode::PAYLOAD_TOO_LARGE => "body_too_long",
            StatusCode::UNSUPPORTED_MEDIA_TYPE => "media_type",
            _ => "body",
        };
        Problem::new(rejection.status(), code, rejection.body_text())
    }
}

impl From<QueryRejection> for Problem {
    fn from(rejection: QueryRejection) -> Problem {
        Problem::new(rejection.status(), "query", rejection.body_text())
    }
}

impl From<PathRejection> for Problem {
    fn from(rejection: PathRejection) -> Problem {
        Problem::new(rejection.status(), "path", rejection.body_text())
    }
}
