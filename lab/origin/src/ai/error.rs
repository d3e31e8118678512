//! Refusals in the form of OpenAI and of Anthropic, with the headers by which their SDKs go on.

use super::{
    directive::{Directives, WrongPair},
    json::{Part, parts},
    reply::Whole,
};

/// A request that gets an error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Status of the reply.
    pub status: u16,
    /// For people.
    pub message: String,
    /// `type`; the usual one of the status if `None`.
    pub kind: Option<String>,
    /// `code`.
    pub code: Option<String>,
    /// `param`.
    pub param: Option<&'static str>,
    /// Header lines.
    pub fields: Vec<u8>,
}

impl Refusal {
    /// With a code of its own.
    pub fn new(status: u16, code: &str, message: impl Into<String>) -> Self {
        let code = Some(code.to_owned()).filter(|code| !code.is_empty());
        Self { status, message: message.into(), kind: None, code, param: None, fields: Vec::new() }
    }

    /// The body is no JSON, or has a field of the wrong type.
    pub fn json(error: &serde_json::Error) -> Self {
        Self::new(400, "invalid_json", format!("the body is no JSON of this endpoint: {error}"))
    }

    /// A field is not there.
    pub fn missing(field: &'static str) -> Self {
        let message = format!("you must provide a {field} parameter");
        Self { param: Some(field), ..Self::new(400, "missing_required_parameter", message) }
    }

    /// A pair of directives is wrong.
    pub fn directive(WrongPair(pair): WrongPair) -> Self {
        Self::new(400, "wrong_directive", format!("the directive `{pair}` means nothing to the lab's origin"))
    }

    /// No such model.
    pub fn no_model(model: &str) -> Self {
        let message = format!("The model `{model}` does not exist or you do not have access to it.");
        Self { param: Some("model"), ..Self::new(404, "model_not_found", message) }
    }

    /// The error that a request chooses; `None`: it chooses none.
    pub fn chosen(directives: &Directives) -> Option<Self> {
        let status = directives.status?;
        let usual = usual(status);
        let code = directives.code.as_deref().unwrap_or(usual.code);
        let message = format!("the request chose status {status}");
        let mut refusal = Self { kind: directives.kind.clone(), ..Self::new(status, code, message) };
        refusal.add_fields(directives);
        Some(refusal)
    }

    fn add_fields(&mut self, directives: &Directives) {
        let is_limit = self.status == 429;
        let Directives { retry_after, retry_after_ms, should_retry, .. } = directives;
        let usual = (is_limit && retry_after_ms.is_none()).then_some(1);
        let numbers = [("retry-after", retry_after.or(usual)), ("retry-after-ms", *retry_after_ms)];
        for (name, value) in numbers {
            if let Some(value) = value {
                self.fields.extend_from_slice(format!("{name}: {value}\r\n").as_bytes());
            }
        }
        if let Some(value) = should_retry {
            self.fields.extend_from_slice(format!("x-should-retry: {value}\r\n").as_bytes());
        }
        if is_limit {
            self.fields.extend_from_slice(RATE_FIELDS);
        }
    }

    /// The reply.
    pub fn reply(self, is_anthropic: bool) -> Whole {
        let body = if is_anthropic { self.anthropic() } else { self.openai() };
        Whole { status: self.status, fields: self.fields, body, content_type: "application/json" }
    }

    /// OpenAI's body, which an error event has too.
    pub fn openai(&self) -> Vec<u8> {
        use Part::{Raw, Text};
        let kind = self.kind.as_deref().unwrap_or(usual(self.status).kind);
        let text = |text: Option<&str>| text.map_or("null".to_owned(), |text| format!("\"{text}\""));
        let (param, code) = (text(self.param), self.code.as_deref());
        let mut out = Vec::new();
        parts(&[Raw("{\"error\":{\"message\":"), Text(&self.message), Raw(",\"type\":"), Text(kind)], &mut out);
        parts(&[Raw(",\"param\":"), Raw(&param), Raw(",\"code\":")], &mut out);
        parts(&[code.map_or(Raw("null"), Text), Raw("}}")], &mut out);
        out
    }

    /// Anthropic's.
    pub fn anthropic(&self) -> Vec<u8> {
        use Part::{Raw, Text};
        let kind = self.kind.as_deref().unwrap_or(usual(self.status).anthropic);
        let mut out = Vec::new();
        parts(&[Raw("{\"type\":\"error\",\"error\":{\"type\":"), Text(kind)], &mut out);
        parts(&[Raw(",\"message\":"), Text(&self.message), Raw("}}")], &mut out);
        out
    }
}

/// The state of the provider's own limits.
const RATE_FIELDS: &[u8] = b"x-ratelimit-limit-requests: 500\r\nx-ratelimit-limit-tokens: 30000\r\n\
    x-ratelimit-remaining-requests: 0\r\nx-ratelimit-remaining-tokens: 0\r\n\
    x-ratelimit-reset-requests: 120ms\r\nx-ratelimit-reset-tokens: 6m0s\r\n";

/// Words of a status.
struct Usual {
    kind: &'static str,
    code: &'static str,
    anthropic: &'static str,
}

const fn usual(status: u16) -> Usual {
    let (kind, code, anthropic) = match status {
        401 => ("invalid_request_error", "invalid_api_key", "authentication_error"),
        403 => ("invalid_request_error", "forbidden", "permission_error"),
        404 => ("invalid_request_error", "not_found", "not_found_error"),
        405 => ("invalid_request_error", "method_not_allowed", "invalid_request_error"),
        413 => ("invalid_request_error", "request_too_large", "request_too_large"),
        429 => ("requests", "rate_limit_exceeded", "rate_limit_error"),
        503 => ("server_error", "overloaded", "overloaded_error"),
        529 => ("server_error", "overloaded", "overloaded_error"),
        _ if status < 500 => ("invalid_request_error", "", "invalid_request_error"),
        _ => ("server_error", "", "api_error"),
    };
    Usual { kind, code, anthropic }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn chosen(text: &str) -> Refusal {
        let mut directives = Directives::default();
        directives.read(text).expect("right");
        Refusal::chosen(&directives).expect("an error")
    }

    #[test]
    fn an_error_has_the_form_of_its_dialect() {
        let refusal = chosen("status=429 retry_after_ms=20");
        let value: Value = serde_json::from_slice(&refusal.openai()).expect("JSON");
        assert_eq!(
            (&value["error"]["type"], &value["error"]["code"]),
            (&json!("requests"), &json!("rate_limit_exceeded"))
        );
        assert_eq!(value["error"]["param"], Value::Null);
        let fields = String::from_utf8(refusal.fields.clone()).expect("text");
        assert!(fields.starts_with("retry-after-ms: 20\r\nx-ratelimit-limit-requests: 500\r\n"), "{fields}");
        let value: Value = serde_json::from_slice(&refusal.anthropic()).expect("JSON");
        assert_eq!((&value["type"], &value["error"]["type"]), (&json!("error"), &json!("rate_limit_error")));
    }

    #[test]
    fn a_request_may_choose_every_word_of_its_error() {
        let refusal =
            chosen("status=429 type=insufficient_quota code=insufficient_quota retry_after=7 should_retry=false");
        let text = String::from_utf8([refusal.openai(), refusal.fields].concat()).expect("text");
        for part in ["\"type\":\"insufficient_quota\"", "retry-after: 7\r\n", "x-should-retry: false\r\n"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(String::from_utf8(chosen("status=500").openai()).expect("text").contains("\"code\":null"));
    }
}
