//! Refusals in the form of the dialect, with the fields that SDKs obey.

use std::{borrow::Cow, time::Duration};

use weir_ai_session::Failure;
use weir_ai_translate::Mistake;
use weir_analysis::ai::BodyError;
use weir_http::{
    filter::WholeResponse,
    refusal_format::{FormattedRefusal, RefusalFacts, RefusalFormat},
};
use weir_http_codec::{Fields, Known};
use weir_json_codec::write::string;
use weir_spend::Denial;

const INVALID: &str = "invalid_request_error";
const SERVER: &str = "server_error";

/// Until a request may come again that found no room.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// The form of errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ErrorForm {
    OpenAi,
    Anthropic,
}

impl ErrorForm {
    /// The form for the clients of a path.
    pub(crate) fn of_path(path: &str) -> Self {
        // Slashes are merged behind the first look at a path.
        let path = path.trim_start_matches('/');
        let path = path.strip_prefix("v1/").unwrap_or(path).trim_start_matches('/');
        if path.starts_with("messages") { Self::Anthropic } else { Self::OpenAi }
    }
}

/// A refusal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ApiError {
    pub(crate) status: u16,
    /// `type`, in OpenAI's words; Anthropic's follow from the status.
    pub(crate) kind: &'static str,
    pub(crate) code: Option<&'static str>,
    pub(crate) param: Option<&'static str>,
    /// It quotes nothing of the request.
    pub(crate) message: Cow<'static, str>,
    /// `x-should-retry`, which SDKs obey before they look at the status.
    pub(crate) should_retry: Option<bool>,
    pub(crate) retry_after: Option<Duration>,
    /// `Allow` of a 405.
    pub(crate) allow: Option<&'static str>,
    /// The word of the metrics.
    pub(crate) reason: &'static str,
}

impl ApiError {
    /// One whose words are fixed; `at_fault`: the field of the request.
    const fn fixed(status: u16, code: &'static str, at_fault: Option<&'static str>, message: &'static str) -> Self {
        Self {
            status,
            kind: if status >= 500 { SERVER } else { INVALID },
            code: Some(code),
            param: at_fault,
            message: Cow::Borrowed(message),
            should_retry: None,
            retry_after: if status == 503 { Some(RETRY_AFTER) } else { None },
            allow: None,
            reason: code,
        }
    }

    pub(crate) const UNKNOWN_URL: Self =
        Self::fixed(404, "unknown_url", None, "Unknown request URL. See the list of endpoints of the gateway.");
    pub(crate) const NOT_ACCOUNTED: Self = Self::fixed(
        404,
        "unknown_url",
        None,
        "The gateway does not account for this endpoint, so it cannot be used with a key of the gateway.",
    );
    pub(crate) const TOO_LARGE: Self = Self::fixed(413, "request_too_large", None, "The request body is too large.");
    pub(crate) const CODING: Self = Self::fixed(
        415,
        "unsupported_media_type",
        None,
        "The gateway reads the body: send it without Content-Encoding.",
    );
    pub(crate) const NO_MODEL: Self =
        Self::fixed(404, "model_not_found", Some("model"), "The model does not exist, or the API key may not use it.");
    pub(crate) const OTHER_DIALECT: Self = Self::fixed(
        400,
        "unsupported_endpoint",
        Some("model"),
        "The provider of the model has no such endpoint, and the gateway has no translation for it.",
    );
    pub(crate) const MISSING_MODEL: Self =
        Self::fixed(400, "missing_required_parameter", Some("model"), "The request names no model.");
    pub(crate) const WEB_PAGE: Self = Self::fixed(
        403,
        "origin_not_allowed",
        None,
        "The gateway takes no requests of web pages of other sites, and none for a name of another machine.",
    );
    pub(crate) const BACKGROUND: Self = Self::fixed(
        400,
        "unsupported_endpoint",
        Some("background"),
        "The gateway does not account for responses in the background, so a key of the gateway cannot request one.",
    );
    pub(crate) const UNREADABLE_LIST: Self = Self::fixed(
        502,
        "upstream_bad_response",
        None,
        "The provider sent no list of models that the gateway can read.",
    );
    pub(crate) const NO_ROOM: Self =
        Self::fixed(503, "overloaded", None, "The gateway has no room for the request. Try again later.");

    pub(crate) fn wrong_method(allow: &'static str) -> Self {
        let message = "The endpoint does not have this method. See Allow.";
        Self { allow: Some(allow), ..Self::fixed(405, "method_not_allowed", None, message) }
    }

    /// Why a body has no facts.
    pub(crate) fn of_body(error: BodyError) -> Self {
        let (code, param) = (error.code(), error.param());
        Self { code, message: error.text(), reason: error.reason(), ..Self::fixed(400, "", param, "") }
    }

    /// Why a request cannot be translated for its provider.
    pub(crate) fn of_mistake(mistake: &Mistake) -> Self {
        let at_fault = if let Cow::Borrowed(param) = mistake.param { Some(param) } else { None };
        let error = Self::fixed(400, "not_translatable", at_fault.filter(|param| !param.is_empty()), "");
        Self { code: None, message: mistake.to_string().into(), ..error }
    }

    /// A response that cannot be translated. The provider has billed it: another try costs as much again, and ends no better.
    pub(crate) fn untranslatable() -> Self {
        let message = "The provider sent a response that cannot be translated.";
        Self { should_retry: Some(false), ..Self::fixed(502, "upstream_bad_response", None, message) }
    }

    /// The last failure of a provider, where no other target can take the request. 0: it gave no status.
    pub(crate) fn no_other(status: u16) -> Self {
        let message = "The provider failed, and no other target of the model can take the request.";
        match status {
            429 => Self { kind: "requests", ..Self::fixed(429, "rate_limit_exceeded", None, message) },
            503 | 529 => Self::fixed(503, "overloaded", None, message),
            _ => Self::fixed(502, "upstream_bad_response", None, message),
        }
    }

    pub(crate) fn of_denial(denial: &Denial) -> Self {
        Self {
            status: denial.status(),
            kind: denial.kind(),
            code: denial.code(),
            param: denial.param(),
            message: denial.to_string().into(),
            should_retry: denial.should_retry(),
            retry_after: denial.retry_after(),
            allow: None,
            reason: denial.reason(),
        }
    }

    /// A refusal of the HTTP session: a limit, or a provider that failed.
    fn of_http(facts: &RefusalFacts) -> Self {
        let code = match (facts.status, facts.reason) {
            (_, "no_healthy_endpoint") => "no_healthy_upstream",
            (_, "first_byte_timeout") => "ttft_timeout",
            (_, "idle_timeout") => "idle_timeout",
            (404, _) => "unknown_url",
            (405, _) => "method_not_allowed",
            (408, _) => "request_timeout",
            (413, _) => "request_too_large",
            (502, _) => "upstream_bad_response",
            (503, _) => "overloaded",
            (504, _) => "upstream_timeout",
            (500.., _) => "internal_error",
            _ => "invalid_request",
        };
        let retry_after = facts.retry_after.map(Duration::from_secs);
        // The provider has billed a response that could not be held. One that broke off is tried again, as without a gateway.
        let should_retry = matches!(facts.reason, "response_too_long" | "response_no_room").then_some(false);
        Self { retry_after, should_retry, reason: facts.reason, ..Self::fixed(facts.status, code, None, facts.text) }
    }

    /// The error object with what is around it.
    pub(crate) fn body(&self, form: ErrorForm) -> Vec<u8> {
        let mut out = Vec::with_capacity(256);
        match form {
            ErrorForm::OpenAi => {
                out.extend_from_slice(b"{\"error\":{\"message\":");
                string(&mut out, &self.message);
                out.extend_from_slice(b",\"type\":");
                string(&mut out, self.kind);
                for (name, text) in [("param", self.param), ("code", self.code)] {
                    out.extend_from_slice(b",\"");
                    out.extend_from_slice(name.as_bytes());
                    out.extend_from_slice(b"\":");
                    match text {
                        Some(text) => string(&mut out, text),
                        None => out.extend_from_slice(b"null"),
                    }
                }
                out.extend_from_slice(b"}}");
            }
            ErrorForm::Anthropic => {
                out.extend_from_slice(b"{\"type\":\"error\",\"error\":{\"type\":");
                string(&mut out, anthropic_kind(self.status));
                out.extend_from_slice(b",\"message\":");
                string(&mut out, &self.message);
                out.extend_from_slice(b"}}");
            }
        }
        out
    }

    fn fields(&self) -> Fields {
        let mut fields = Fields::new();
        if let Some(should_retry) = self.should_retry {
            fields.push(b"x-should-retry", if should_retry { b"true" } else { b"false" });
        }
        if let Some(wait) = self.retry_after {
            // SDKs read the milliseconds first.
            let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
            fields.set(Known::RetryAfter, seconds.to_string().as_bytes());
            fields.push(b"retry-after-ms", wait.as_nanos().div_ceil(1_000_000).to_string().as_bytes());
        }
        if let Some(allow) = self.allow {
            fields.set(Known::Allow, allow.as_bytes());
        }
        fields
    }

    /// The response.
    pub(crate) fn response(&self, form: ErrorForm) -> WholeResponse {
        let mut fields = self.fields();
        fields.set(Known::ContentType, CONTENT_TYPE.as_bytes());
        WholeResponse { status: self.status, fields, body: self.body(form).into() }
    }
}

/// The media type of errors.
const CONTENT_TYPE: &str = "application/json";

/// The form of a refusal of the HTTP session.
pub(crate) fn formatted(facts: &RefusalFacts, form: ErrorForm) -> FormattedRefusal {
    let error = ApiError::of_http(facts);
    FormattedRefusal { content_type: CONTENT_TYPE, body: error.body(form).into(), fields: error.fields() }
}

impl RefusalFormat for ErrorForm {
    fn format(&self, facts: &RefusalFacts) -> FormattedRefusal {
        formatted(facts, *self)
    }

    fn for_target(&self, target: &[u8]) -> Option<&'static dyn RefusalFormat> {
        match Self::of_path(std::str::from_utf8(target).unwrap_or_default()) {
            Self::OpenAi => None,
            Self::Anthropic => Some(&Self::Anthropic),
        }
    }
}

/// Anthropic's words for a class of errors.
fn anthropic_kind(status: u16) -> &'static str {
    match status {
        401 => "authentication_error",
        403 => "permission_error",
        404 => "not_found_error",
        413 => "request_too_large",
        429 => "rate_limit_error",
        503 | 529 => "overloaded_error",
        500.. => "api_error",
        _ => INVALID,
    }
}

/// The failure of a stream for which there is no memory.
pub(crate) const fn no_room() -> Failure<'static> {
    let message = "The gateway has no room for the response.";
    Failure { kind: SERVER, anthropic_kind: "overloaded_error", code: "overloaded", message }
}

/// The failure of a stream that breaks off for a reason of the HTTP session.
pub(crate) fn failure(reason: &str) -> Failure<'static> {
    let (code, message) = match reason {
        "idle_timeout" => ("idle_timeout", "The provider paused for too long."),
        "call_expired" => ("upstream_timeout", "The response took longer than it may."),
        "drain_cut" => ("draining", "The gateway is about to end."),
        _ => ("upstream_bad_response", "The response of the provider broke off."),
    };
    Failure { kind: SERVER, anthropic_kind: "api_error", code, message }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read(error: &ApiError, form: ErrorForm) -> Value {
        serde_json::from_slice(&error.body(form)).expect("JSON")
    }

    #[test]
    fn each_dialect_has_its_error_object() {
        let error = ApiError::of_denial(&Denial::Model);
        let message = "The API key may not use this model.";
        let open_ai =
            json!({"error": {"message": message, "type": INVALID, "param": "model", "code": "model_not_allowed"}});
        assert_eq!(read(&error, ErrorForm::OpenAi), open_ai);
        let anthropic = json!({"type": "error", "error": {"type": "permission_error", "message": message}});
        assert_eq!(read(&error, ErrorForm::Anthropic), anthropic);
        assert_eq!(
            read(&ApiError::of_body(BodyError::NotAnObject), ErrorForm::OpenAi)["error"]["code"],
            "invalid_json"
        );
        assert_eq!(ErrorForm::of_path("/v1/messages"), ErrorForm::Anthropic);
        assert_eq!(ErrorForm::of_path("//v1//messages"), ErrorForm::Anthropic);
        assert_eq!(ErrorForm::of_path("/messages/count_tokens"), ErrorForm::Anthropic);
        assert_eq!(ErrorForm::of_path("/v1/chat/completions"), ErrorForm::OpenAi);
    }

    #[test]
    fn waits_are_in_seconds_and_in_milliseconds() {
        let wait = Duration::from_millis(1_250);
        let response = ApiError::of_denial(&Denial::Requests { retry_after: wait }).response(ErrorForm::OpenAi);
        let field = |name: &str| response.fields.all_named(name.as_bytes()).next().map(<[u8]>::to_vec);
        assert_eq!((field("retry-after"), field("retry-after-ms")), (Some(b"2".to_vec()), Some(b"1250".to_vec())));
        assert_eq!(field("x-should-retry"), None);
        let unknown = ApiError::of_denial(&Denial::UnknownKey).response(ErrorForm::OpenAi);
        assert_eq!(unknown.fields.all_named(b"x-should-retry").next(), Some(&b"false"[..]));
    }

    #[test]
    fn refusals_of_the_http_session_have_codes_of_their_own() {
        let code = |status, reason| {
            let facts = RefusalFacts { status, reason, text: "t", retry_after: None };
            let body: Value = serde_json::from_slice(&formatted(&facts, ErrorForm::OpenAi).body).expect("JSON");
            body["error"]["code"].as_str().unwrap_or_default().to_owned()
        };
        assert_eq!(code(504, "first_byte_timeout"), "ttft_timeout");
        assert_eq!(code(504, "response_timeout"), "upstream_timeout");
        assert_eq!(code(503, "no_healthy_endpoint"), "no_healthy_upstream");
        assert_eq!(code(413, "body_too_long"), "request_too_large");
        assert_eq!(code(502, "connect"), "upstream_bad_response");
    }
}
