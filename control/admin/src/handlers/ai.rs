//! Keys and requests of AI clients.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::body::{Bytes, to_bytes};
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use tokio::task::spawn_blocking;
use weir_base::time::from_rfc3339;

use super::{Shared, bad_query, expect_no_input, is_json, limit};
use crate::limits::KEY_BODY_BYTES_MAX;
use crate::problem::Problem;
use crate::status::{
    AiKeyIssued, AiKeyOrder, AiKeyOutcome, AiKeyQuery, AiKeyRequest, AiKeyRotation, AiRequestQuery, StatusFilter,
};

/// An unknown parameter is a mistake that the caller wants to know of.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct KeyPage {
    limit: Option<usize>,
    after: Option<String>,
}

const KEY_PARAMETERS: &str = " and after, each at most once";
const REQUEST_PARAMETERS: &str =
    ", key, user, agent, conversation, tag, model, server, tool, method, status, since and bodies, each at most once";

pub(crate) async fn keys(
    State(shared): State<Shared>,
    query: Result<Query<KeyPage>, QueryRejection>,
) -> Result<Response, Problem> {
    let Query(page) = query.map_err(|rejection| bad_query(rejection.body_text(), KEY_PARAMETERS))?;
    let query = AiKeyQuery { limit: limit(page.limit, KEY_PARAMETERS)?, after: page.after, name: None };
    Ok(Json(shared.gateway.ai_keys(query)).into_response())
}

type NameOfKey = Result<Path<String>, PathRejection>;

fn name(path: NameOfKey) -> Result<String, Problem> {
    let no_text = |rejection: PathRejection| bad_key(StatusCode::BAD_REQUEST, rejection.body_text());
    path.map(|Path(name)| name).map_err(no_text)
}

pub(crate) async fn key(State(shared): State<Shared>, path: NameOfKey) -> Result<Response, Problem> {
    let name = name(path)?;
    let list = shared.gateway.ai_keys(AiKeyQuery { limit: crate::limits::PAGE_MAX, after: None, name: Some(name) });
    if list.keys.is_empty() {
        let detail = "there is no key with this name";
        return Err(Problem::new(StatusCode::NOT_FOUND, "key", detail, "GET /api/v1/ai/keys lists the keys"));
    }
    Ok(Json(list).into_response())
}

pub(crate) async fn create_key(State(shared): State<Shared>, request: Request) -> Result<Response, Problem> {
    let order = AiKeyOrder::Create(parsed::<Box<AiKeyRequest>>(&body(request).await?)?);
    issued(StatusCode::CREATED, carry_out(&shared, order).await?)
}

pub(crate) async fn change_key(
    State(shared): State<Shared>,
    path: NameOfKey,
    request: Request,
) -> Result<Response, Problem> {
    let patch = parsed::<Map<String, Value>>(&body(request).await?)?;
    let outcome = carry_out(&shared, AiKeyOrder::Change { name: name(path)?, patch }).await?;
    Ok(Json(outcome.key).into_response())
}

pub(crate) async fn rotate_key(
    State(shared): State<Shared>,
    path: NameOfKey,
    request: Request,
) -> Result<Response, Problem> {
    let body = body(request).await?;
    let rotation = if body.is_empty() { AiKeyRotation::default() } else { parsed(&body)? };
    issued(StatusCode::OK, carry_out(&shared, AiKeyOrder::Rotate { name: name(path)?, rotation }).await?)
}

pub(crate) async fn delete_key(
    State(shared): State<Shared>,
    path: NameOfKey,
    request: Request,
) -> Result<Response, Problem> {
    expect_no_input(request).await?;
    let outcome = carry_out(&shared, AiKeyOrder::Delete { name: name(path)? }).await?;
    Ok(Json(outcome.key).into_response())
}

/// Carries out one order at a time, on a thread of its own: it waits for the disk.
async fn carry_out(shared: &Shared, order: AiKeyOrder) -> Result<AiKeyOutcome, Problem> {
    let broken = || {
        Problem::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "key",
            "the operation failed",
            "this is a bug of the gateway: please report it with the panic message in the log",
        )
    };
    let permit = Arc::clone(&shared.keys).acquire_owned().await.map_err(|_never_closed| broken())?;
    let gateway = Arc::clone(&shared.gateway);
    // The permit goes along: if the deadline ends the wait, the work still counts as under way.
    let work = spawn_blocking(move || {
        let outcome = gateway.order_ai_key(order);
        drop(permit);
        outcome
    });
    work.await.map_err(|_panicked| broken())?
}

fn issued(status: StatusCode, outcome: AiKeyOutcome) -> Result<Response, Problem> {
    let text = outcome.text.as_ref().and_then(|text| text.expose_str()).unwrap_or_default().to_owned();
    Ok((status, Json(AiKeyIssued { text, key: outcome.key })).into_response())
}

/// The body. Another content type than JSON is refused, since it is what an HTML form would send.
async fn body(request: Request) -> Result<Bytes, Problem> {
    let is_typed = has_json_type(request.headers());
    let body = to_bytes(request.into_body(), KEY_BODY_BYTES_MAX).await.map_err(|_too_long_or_broken| {
        let detail = format!("the body is cut off or has more than {KEY_BODY_BYTES_MAX} bytes");
        bad_key(StatusCode::PAYLOAD_TOO_LARGE, detail)
    })?;
    match is_typed {
        Some(false) => Err(bad_key(StatusCode::UNSUPPORTED_MEDIA_TYPE, "the content type is not application/json")),
        None if !body.is_empty() => Err(bad_key(StatusCode::UNSUPPORTED_MEDIA_TYPE, "the body has no content type")),
        _ => Ok(body),
    }
}

fn has_json_type(headers: &HeaderMap) -> Option<bool> {
    let value = headers.get(header::CONTENT_TYPE)?.as_bytes();
    let is_patch = value.trim_ascii().eq_ignore_ascii_case(b"application/merge-patch+json");
    Some(is_patch || is_json(value))
}

fn parsed<T: DeserializeOwned>(body: &[u8]) -> Result<T, Problem> {
    // The text of serde names members, which are no secrets: texts of keys are in no body.
    serde_json::from_slice(body).map_err(|error| bad_key(StatusCode::BAD_REQUEST, error.to_string()))
}

fn bad_key(status: StatusCode, detail: impl Into<String>) -> Problem {
    let remedy = "send a JSON object as application/json; /api/v1/openapi.json lists its members";
    Problem::new(status, "key", detail, remedy)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RequestPage {
    limit: Option<usize>,
    key: Option<String>,
    user: Option<String>,
    agent: Option<String>,
    conversation: Option<String>,
    tag: Option<String>,
    model: Option<String>,
    server: Option<String>,
    tool: Option<String>,
    method: Option<String>,
    status: Option<String>,
    since: Option<String>,
    #[serde(default)]
    bodies: bool,
}

pub(crate) async fn requests(
    State(shared): State<Shared>,
    query: Result<Query<RequestPage>, QueryRejection>,
) -> Result<Response, Problem> {
    let wrong = |detail: String| bad_query(detail, REQUEST_PARAMETERS);
    let Query(page) = query.map_err(|rejection| wrong(rejection.body_text()))?;
    let status = page.status.map(|text| text.parse::<StatusFilter>()).transpose().map_err(wrong)?;
    let since = page.since.map(|text| since(&text)).transpose().map_err(wrong)?;
    let texts = [
        ("key", page.key),
        ("user", page.user),
        ("agent", page.agent),
        ("conversation", page.conversation),
        ("server", page.server),
        ("tool", page.tool),
        ("method", page.method),
    ];
    let members = texts.into_iter().filter_map(|(member, text)| Some((member, text?))).collect();
    let (limit, tag, model) = (limit(page.limit, REQUEST_PARAMETERS)?, page.tag, page.model);
    let query = AiRequestQuery { limit, members, tag, model, status, since, has_bodies: page.bodies };
    Ok(Json(shared.gateway.ai_requests(query).await).into_response())
}

/// A time since 1970.
fn since(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    let found = from_rfc3339(text).map(Duration::from_secs).or(seconds);
    found.ok_or_else(|| format!("{text:?} is not a time: write 2027-01-31T00:00:00Z, or seconds since 1970"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_a_date_or_a_number_of_seconds() {
        assert_eq!(since("1970-01-02T00:00:00Z"), Ok(Duration::from_secs(86_400)));
        assert_eq!(since("1.5"), Ok(Duration::from_millis(1_500)));
        for wrong in ["", "yesterday", "-1", "inf", "NaN", "1e300"] {
            assert!(since(wrong).is_err(), "{wrong}");
        }
    }
}
