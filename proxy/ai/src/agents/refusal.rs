//! Refusals of messages, as errors of JSON-RPC, with the status that MCP names.

use std::{borrow::Cow, time::Duration};

use weir_http::{
    filter::WholeResponse,
    refusal_format::{FormattedRefusal, RefusalFacts},
};
use weir_http_codec::{Fields, Known};
use weir_mcp_session::{
    ErrorReply, Message, MessageError,
    error::{
        HEADER_MISMATCH, INTERNAL_ERROR, INVALID_PARAMS, INVALID_REQUEST, METHOD_NOT_FOUND, REFUSED, SESSION_NOT_FOUND,
    },
};
use weir_spend::Denial;

/// The media type of errors.
const CONTENT_TYPE: &str = "application/json";

/// Until a message may come again that found no room.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// A refusal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AgentRefusal {
    pub(crate) status: u16,
    /// That of JSON-RPC.
    code: i32,
    /// It quotes nothing of the request.
    message: Cow<'static, str>,
    /// The word for programs of the client.
    word: &'static str,
    /// The word of the metrics.
    pub(crate) reason: &'static str,
    retry_after: Option<Duration>,
    /// `Allow` of a 405.
    allow: Option<&'static str>,
}

impl AgentRefusal {
    const fn fixed(status: u16, code: i32, word: &'static str, message: &'static str) -> Self {
        let message = Cow::Borrowed(message);
        let retry_after = if status == 503 { Some(RETRY_AFTER) } else { None };
        Self { status, code, message, word, reason: word, retry_after, allow: None }
    }

    pub(crate) const UNKNOWN: Self = Self::fixed(
        404,
        INVALID_REQUEST,
        "server_not_found",
        "There is no such server, or the API key may not use it.",
    );
    pub(crate) const WEB_PAGE: Self = Self::fixed(
        403,
        INVALID_REQUEST,
        "origin_not_allowed",
        "The gateway takes no requests of web pages of other sites, and none for a name of another machine.",
    );
    pub(crate) const TOO_LARGE: Self =
        Self::fixed(413, INVALID_REQUEST, "request_too_large", "The message is too large.");
    pub(crate) const CODING: Self = Self::fixed(
        415,
        INVALID_REQUEST,
        "unsupported_media_type",
        "The gateway reads the message: send it without Content-Encoding.",
    );
    pub(crate) const UNEXPECTED_BODY: Self =
        Self::fixed(400, INVALID_REQUEST, "unexpected_body", "Only a POST has a body.");
    pub(crate) const SESSIONS: Self =
        Self::fixed(400, INVALID_REQUEST, "session_ambiguous", "The request names more than one session.");
    pub(crate) const NO_SESSION: Self =
        Self::fixed(404, SESSION_NOT_FOUND, "session_not_found", "Session not found: initialize another one.");
    pub(crate) const MISMATCH: Self = Self::fixed(
        400,
        HEADER_MISMATCH,
        "header_mismatch",
        "Mcp-Method or Mcp-Name says something else than the message.",
    );
    pub(crate) const NO_NAME: Self =
        Self::fixed(400, INVALID_PARAMS, "tool_unnamed", "params.name is no string of at most 1,024 bytes.");
    pub(crate) const NO_ROOM: Self =
        Self::fixed(503, REFUSED, "overloaded", "The gateway has no room for the message. Try again later.");
    /// A protocol error of MCP, which has status 200: SDKs raise it as they raise that of a server without the tool.
    pub(crate) const TOOL: Self = Self::fixed(
        200,
        INVALID_PARAMS,
        "tool_not_allowed",
        "Unknown tool: it does not exist, or the API key may not call it.",
    );
    pub(crate) const BAD_LIST: Self = Self::fixed(
        502,
        INTERNAL_ERROR,
        "upstream_bad_response",
        "The server sent a list of tools that cannot be read.",
    );

    pub(crate) const PROMPT: Self =
        Self::fixed(200, INVALID_PARAMS, "prompt_not_found", "Unknown prompt: no server of this name has it.");
    pub(crate) const NO_METHOD: Self = Self::fixed(
        200,
        METHOD_NOT_FOUND,
        "method_not_found",
        "Method not found: several servers do not have it as one.",
    );
    pub(crate) const NEEDS_SESSION: Self =
        Self::fixed(400, INVALID_REQUEST, "session_required", "The request names no session: initialize one.");
    pub(crate) const NO_REVISION: Self = Self::fixed(
        200,
        INVALID_PARAMS,
        "revision_missing",
        "params.protocolVersion is no revision of MCP from 2025-03-26 on.",
    );
    pub(crate) const ALL_DOWN: Self =
        Self::fixed(502, INTERNAL_ERROR, "upstream_unavailable", "None of the servers of this name responds.");

    pub(crate) fn wrong_method(allow: &'static str) -> Self {
        let message = "The path does not have this method. See Allow.";
        Self { allow: Some(allow), ..Self::fixed(405, INVALID_REQUEST, "method_not_allowed", message) }
    }

    pub(crate) fn of_message(error: &MessageError) -> Self {
        let (message, reason) = (error.text(), error.reason());
        Self { message, reason, ..Self::fixed(400, error.code(), "invalid_message", "") }
    }

    pub(crate) fn of_denial(denial: &Denial) -> Self {
        Self {
            status: denial.status(),
            code: REFUSED,
            message: denial.to_string().into(),
            word: denial.code().unwrap_or("refused"),
            reason: denial.reason(),
            retry_after: denial.retry_after(),
            allow: None,
        }
    }

    /// A refusal of the HTTP session: a limit, or a server that failed.
    fn of_http(facts: &RefusalFacts) -> Self {
        let retry_after = facts.retry_after.map(Duration::from_secs);
        let code = if facts.status >= 500 { INTERNAL_ERROR } else { INVALID_REQUEST };
        Self { retry_after, ..Self::fixed(facts.status, code, facts.reason, facts.text) }
    }

    fn fields(&self) -> Fields {
        let mut fields = Fields::new();
        if let Some(wait) = self.retry_after {
            let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
            fields.set(Known::RetryAfter, seconds.to_string().as_bytes());
        }
        if let Some(allow) = self.allow {
            fields.set(Known::Allow, allow.as_bytes());
        }
        fields
    }

    /// The error, for the request if it is known.
    pub(crate) fn body(&self, message: Option<&Message>) -> Vec<u8> {
        let retry_after_ms =
            self.retry_after.map(|wait| u64::try_from(wait.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX));
        ErrorReply {
            id: message.and_then(|message| message.id.as_deref()),
            code: self.code,
            message: &self.message,
            reason: Some(self.word),
            retry_after_ms,
        }
        .bytes()
    }

    /// The response. One without an id cannot be a protocol error: then the status says that the message was refused.
    pub(crate) fn response(&self, message: Option<&Message>) -> WholeResponse {
        let has_id = message.is_some_and(|message| message.id.is_some());
        let mut fields = self.fields();
        fields.set(Known::ContentType, CONTENT_TYPE.as_bytes());
        let status = if self.status == 200 && !has_id { 403 } else { self.status };
        WholeResponse { status, fields, body: self.body(message).into() }
    }
}

/// The form of a refusal of the HTTP session.
pub(crate) fn formatted(facts: &RefusalFacts, message: Option<&Message>) -> FormattedRefusal {
    let refusal = AgentRefusal::of_http(facts);
    FormattedRefusal { content_type: CONTENT_TYPE, body: refusal.body(message).into(), fields: refusal.fields() }
}
