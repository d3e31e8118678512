//! Errors of a provider in the form of the other dialect, with status, type and code.

use std::borrow::Cow;

use weir_ai_session::Dialect;
use weir_sse_codec::write::event;

use crate::direction::Direction;
use crate::json::{Json, Object};
use crate::limits::{BODY_BYTES_MAX, MESSAGE_BYTES_MAX};
use crate::write::Members;

/// Translates an error response with a status of 400 or more: the client's status, and the client's body.
///
/// Anthropic's 529 is 503 to a client of a chat, and the other way round. The headers `retry-after` and
/// `x-should-retry` are the same in both. A body that is no JSON error, such as a page of a proxy, does not pass.
pub fn translate_error(direction: Direction, status: u16, body: &[u8]) -> (u16, Vec<u8>) {
    let report = Report::read(direction.provider(), Some(status), body);
    let status = match (direction, status) {
        (Direction::ChatToMessages, 529) => 503,
        (Direction::MessagesToChat, 503) => 529,
        _ => status,
    };
    (status, report.body(direction.client(), None))
}

/// The class of an error in the words of both dialects.
struct Class {
    /// A status of it.
    status: u16,
    /// Anthropic's type.
    anthropic: &'static str,
    /// OpenAI's type and code.
    kind: &'static str,
    code: Option<&'static str>,
}

const fn class(status: u16, anthropic: &'static str, kind: &'static str, code: Option<&'static str>) -> Class {
    Class { status, anthropic, kind, code }
}

/// The first is that of all other errors of clients, the last that of all other errors.
static CLASSES: [Class; 12] = [
    class(400, "invalid_request_error", "invalid_request_error", None),
    class(401, "authentication_error", "invalid_request_error", Some("invalid_api_key")),
    class(402, "billing_error", "insufficient_quota", Some("insufficient_quota")),
    class(403, "permission_error", "invalid_request_error", Some("forbidden")),
    class(404, "not_found_error", "invalid_request_error", Some("model_not_found")),
    class(409, "conflict_error", "invalid_request_error", Some("conflict")),
    class(413, "request_too_large", "invalid_request_error", Some("request_too_large")),
    class(429, "rate_limit_error", "requests", Some("rate_limit_exceeded")),
    class(504, "timeout_error", "server_error", Some("upstream_timeout")),
    class(529, "overloaded_error", "server_error", Some("overloaded")),
    class(503, "overloaded_error", "server_error", Some("overloaded")),
    class(500, "api_error", "server_error", None),
];

/// An error of a provider, or of the gateway, in the words of both dialects.
#[derive(Debug)]
pub(crate) struct Report<'a> {
    kind: &'static str,
    anthropic: &'static str,
    code: Option<&'static str>,
    message: Cow<'a, str>,
}

impl<'a> Report<'a> {
    pub(crate) fn new(
        kind: &'static str,
        anthropic: &'static str,
        code: Option<&'static str>,
        message: &'a str,
    ) -> Self {
        Self { kind, anthropic, code, message: message.into() }
    }

    /// Reads an error of `provider`. `status` is `None` within a stream. Anything that is no error has the usual words
    /// of its status.
    pub(crate) fn read(provider: Dialect, status: Option<u16>, body: &'a [u8]) -> Self {
        let body = &body[..body.len().min(BODY_BYTES_MAX)];
        let object = Json::check(body).and_then(|json| Object::read(json, ""));
        let mut facts = Facts::default();
        if let Ok(mut object) = object {
            facts.read(&mut object);
        }
        let class = facts.class(provider, status);
        let message = match facts.message {
            Some(message) if !message.is_empty() => cut(message),
            _ => "The provider reported an error.".into(),
        };
        let is_too_long = class.status == 400 && message.starts_with("prompt is too long");
        // Clients of chats shorten a conversation at this code, for which Anthropic has a text alone.
        let code = if is_too_long { Some("context_length_exceeded") } else { class.code };
        Self { kind: class.kind, anthropic: class.anthropic, code, message }
    }

    /// The body of a response.
    pub(crate) fn body(&self, client: Dialect, param: Option<&str>) -> Vec<u8> {
        let mut out = Vec::with_capacity(128 + self.message.len());
        let mut body = Members::new(&mut out);
        if client == Dialect::Anthropic {
            body.text("type", "error");
            body.object("error").text("type", self.anthropic).text("message", &self.message);
        } else {
            let mut error = body.object("error");
            error.text("message", &self.message).text("type", self.kind);
            match param {
                Some(param) => error.text("param", param),
                None => error.raw("param", "null"),
            };
            match self.code {
                Some(code) => error.text("code", code),
                None => error.raw("code", "null"),
            };
        }
        drop(body);
        out
    }

    /// The event that ends a stream.
    pub(crate) fn event(&self, client: Dialect, out: &mut Vec<u8>) {
        event(out, (client == Dialect::Anthropic).then_some("error"), &self.body(client, None));
    }
}

/// The members of an error, in any of the forms that compatible servers have.
#[derive(Default)]
struct Facts<'a> {
    message: Option<Cow<'a, str>>,
    kind: Option<Cow<'a, str>>,
    code: Option<Cow<'a, str>>,
    /// A code that is a status, as OpenRouter and vLLM send.
    status: Option<u16>,
}

impl<'a> Facts<'a> {
    /// `{"error":{…}}`, `{"error":"…"}`, or the members at the top.
    fn read(&mut self, body: &mut Object<'a>) {
        let Some(error) = body.take("error") else { return self.read_members(body) };
        match Object::read(error, "error") {
            Ok(mut error) => self.read_members(&mut error),
            Err(_) => self.message = error.text(),
        }
    }

    fn read_members(&mut self, error: &mut Object<'a>) {
        let code = error.take("code");
        self.status = code.and_then(|code| code.raw().parse().ok()).filter(|status| (400..600).contains(status));
        let mut text = |name| error.take(name).and_then(Json::text);
        (self.message, self.kind) = (text("message").or_else(|| text("detail")), text("type"));
        self.code = code.and_then(Json::text);
    }

    /// The class of the error: Anthropic's by its words, a chat's by its status, and each by the other if that says
    /// nothing.
    fn class(&self, provider: Dialect, status: Option<u16>) -> &'static Class {
        let status = status.or(self.status);
        let [kind, code] = [&self.kind, &self.code].map(|word| word.as_deref().unwrap_or_default());
        let by_words = |class: &&Class| match provider {
            Dialect::Anthropic => class.anthropic == kind,
            _ => match class.code {
                Some(known) => known == code || (class.status == 429 && matches!(kind, "requests" | "tokens")),
                None => class.kind == kind,
            },
        };
        let by_status = |class: &&Class| Some(class.status) == status;
        let find = |by: &dyn Fn(&&Class) -> bool| CLASSES.iter().find(by);
        let found = match (provider, status) {
            // A spent budget has the status of a rate limit.
            (Dialect::Chat, _) if [kind, code].contains(&"insufficient_quota") => Some(&CLASSES[2]),
            (Dialect::Chat, Some(_)) => find(&by_status).or_else(|| find(&by_words)),
            _ => find(&by_words).or_else(|| find(&by_status)),
        };
        let is_client = status.is_some_and(|status| status < 500);
        found.unwrap_or(if is_client { &CLASSES[0] } else { &CLASSES[CLASSES.len() - 1] })
    }
}

/// A message of at most [`MESSAGE_BYTES_MAX`] bytes.
fn cut(message: Cow<'_, str>) -> Cow<'_, str> {
    if message.len() <= MESSAGE_BYTES_MAX {
        return message;
    }
    message[..message.floor_char_boundary(MESSAGE_BYTES_MAX)].to_owned().into()
}
