//! OpenFeature's remote evaluation protocol (OFREP 0.2): `/ofrep/v1/evaluate/flags`.
//!
//! A flag with an enabled variant that has a payload has the payload's value and type; another one has the truth value of its state. The
//! `targetingKey` of a context is its `userId`, unless it has one.

use serde::Deserialize;
use serde_json::{Value, json};
use weir_flags_codec::{Context, ContextError, ContextField};
use weir_http::filter::{HandlerRequest, WholeResponse};
use weir_http_codec::{Fields, Known};

use crate::{
    access::{self, Access, Denial},
    frontend_api::{check_json, coded, decided_all, decided_text},
    reply,
    results::Form,
};

/// A result as the frontend API has it.
#[derive(Deserialize)]
struct Decided {
    name: String,
    enabled: bool,
    variant: DecidedVariant,
    #[serde(rename = "impressionData", default)]
    impression_data: bool,
}

#[derive(Deserialize)]
struct DecidedVariant {
    name: String,
    enabled: bool,
    payload: Option<Payload>,
}

#[derive(Deserialize)]
struct Payload {
    #[serde(rename = "type")]
    kind: String,
    value: String,
}

#[derive(Deserialize)]
struct DecidedAll {
    toggles: Vec<Decided>,
}

/// The token of a request: `Authorization: Bearer <token>`, `X-API-Key`, or as the other endpoints have it.
pub(crate) fn token_of<'a>(fields: &'a Fields, header: &str) -> Option<&'a str> {
    let own = access::token_of(fields, header).or_else(|| access::token_of(fields, "authorization"));
    let token = own.or_else(|| access::token_of(fields, "x-api-key"))?;
    let bearer = token.get(..7).filter(|scheme| scheme.eq_ignore_ascii_case("bearer "));
    Some(bearer.map_or(token, |_| token[7..].trim()))
}

/// The context of a body.
fn context(request: &HandlerRequest) -> Result<Context<'_>, WholeResponse> {
    check_json(request)?;
    let body: &[u8] = if request.body.is_empty() { b"{}" } else { &request.body };
    let mut context = Context::from_json(body).map_err(|error| match error {
        ContextError::TooLarge | ContextError::ValueTooLarge => reply::error(413, &error.to_string()),
        other => reply::json(400, json!({ "errorCode": "PARSE_ERROR", "errorDetails": other.to_string() }).to_string()),
    })?;
    if context.field(ContextField::UserId).is_none()
        && let Some(key) = context.property("targetingKey").map(str::to_owned)
    {
        context.set_field(ContextField::UserId, key);
    }
    context.set_field_if_absent(ContextField::RemoteAddress, request.caller.client.to_string());
    Ok(context)
}

/// All flags of the token: `POST /ofrep/v1/evaluate/flags`.
pub(crate) async fn evaluate(access: &Access, request: &HandlerRequest) -> Result<WholeResponse, Denial> {
    let sight = access.sight()?;
    let context = match context(request) {
        Ok(context) => context,
        Err(refused) => return Ok(refused),
    };
    let (document, tag) = decided_all(&sight, &context);
    if reply::has(&request.head.fields, tag) {
        return Ok(reply::not_modified(&tag.to_string()));
    }
    let Ok(all) = serde_json::from_slice::<DecidedAll>(&document) else { return Ok(reply::empty(500)) };
    let flags: Vec<Value> = all.toggles.iter().map(Decided::evaluation).collect();
    let body = json!({ "flags": flags }).to_string().into_bytes();
    Ok(coded(&sight.environment, Form::Ofrep, tag, body, request).await)
}

/// One flag: `POST /ofrep/v1/evaluate/flags/{key}`.
pub(crate) fn evaluate_one(access: &Access, request: &HandlerRequest, key: &str) -> Result<WholeResponse, Denial> {
    let sight = access.sight()?;
    let context = match context(request) {
        Ok(context) => context,
        Err(mut refused) => {
            if request.head.fields.has(Known::ContentType) && refused.status == 400 {
                refused.body = json!({ "key": key, "errorCode": "PARSE_ERROR" }).to_string().into();
            }
            return Ok(refused);
        }
    };
    let Some(text) = decided_text(&sight, key, &context) else {
        return Ok(reply::json(404, json!({ "key": key, "errorCode": "FLAG_NOT_FOUND" }).to_string()));
    };
    Ok(match serde_json::from_slice::<Decided>(&text) {
        Ok(decided) => reply::json(200, decided.evaluation().to_string()),
        Err(_) => reply::empty(500),
    })
}

impl Decided {
    fn evaluation(&self) -> Value {
        let (value, variant) = match &self.variant {
            DecidedVariant { enabled: true, payload: Some(payload), name } => (payload.typed(), name.as_str()),
            DecidedVariant { enabled: true, payload: None, name } => (Value::Bool(self.enabled), name.as_str()),
            _ => (Value::Bool(self.enabled), if self.enabled { "enabled" } else { "disabled" }),
        };
        json!({
            "key": self.name,
            "value": value,
            "reason": if self.enabled { "TARGETING_MATCH" } else { "DISABLED" },
            "variant": variant,
            "metadata": { "impressionData": self.impression_data },
        })
    }
}

impl Payload {
    /// The value by its type. One that does not fit its type is a text.
    fn typed(&self) -> Value {
        let text = || Value::String(self.value.clone());
        match self.kind.as_str() {
            "number" => self.value.trim().parse::<serde_json::Number>().map_or_else(|_| text(), Value::Number),
            "json" => serde_json::from_str(&self.value).unwrap_or_else(|_| text()),
            _ => text(),
        }
    }
}
