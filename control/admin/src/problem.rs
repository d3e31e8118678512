//! Errors as `application/problem+json` (RFC 9457), each with a remedy.

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// An error response: the error, its cause, and the next step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Problem {
    /// Stable name of the problem, `urn:weir:problem:<name>`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The problem in a few words; the same for every occurrence.
    pub title: String,
    /// The HTTP status of this response.
    pub status: u16,
    /// The cause of this occurrence.
    pub detail: String,
    /// The next step for the person who reads this.
    pub remedy: String,
}

impl Problem {
    /// The response of the gateway to an order that it does not carry out. `status` is a client error or a server error.
    pub fn refused(status: u16, name: &str, detail: impl Into<String>, remedy: impl Into<String>) -> Self {
        let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        Self::new(status, name, detail, remedy)
    }

    /// A problem of the given stable name; `title` is the status in words.
    pub(crate) fn new(status: StatusCode, name: &str, detail: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self {
            kind: format!("urn:weir:problem:{name}"),
            title: status.canonical_reason().unwrap_or("Error").to_owned(),
            status: status.as_u16(),
            detail: detail.into(),
            remedy: remedy.into(),
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = (status, Json(self)).into_response();
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(PROBLEM_MEDIA_TYPE));
        response
    }
}

/// Media type of error responses.
pub(crate) const PROBLEM_MEDIA_TYPE: &str = "application/problem+json";
