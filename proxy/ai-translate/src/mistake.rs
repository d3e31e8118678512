//! A body that cannot be translated.

use std::borrow::Cow;
use std::fmt;

use weir_ai_session::{Dialect, Failure};
use weir_json_codec::JsonError;

use crate::error::Report;

/// A request that has no counterpart, or a body that is no message of its dialect. Neither text quotes the body.
///
/// In a request the client is at fault: [`body`](Self::body) with status 400. In a response the provider is: the status
/// is 502, and a stream ends with [`failure`](Self::failure). The provider has billed it already, and clients repeat a
/// 502: the shell adds the header `x-should-retry: false`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    /// The member at fault, such as `messages.content`. Empty: the body itself.
    pub param: Cow<'static, str>,
    /// The text for people.
    pub text: &'static str,
}

impl Mistake {
    pub(crate) fn new(param: impl Into<Cow<'static, str>>, text: &'static str) -> Self {
        Self { param: param.into(), text }
    }

    /// The body of an error with status 400 for a client that speaks `client`.
    pub fn body(&self, client: Dialect) -> Vec<u8> {
        let message = self.to_string();
        let param = (!self.param.is_empty()).then_some(&*self.param);
        Report::new("invalid_request_error", "invalid_request_error", None, &message).body(client, param)
    }

    /// The failure of a response with such a mistake. It names no member: the mistake itself is for the log.
    pub const fn failure() -> Failure<'static> {
        Failure {
            kind: "server_error",
            anthropic_kind: "api_error",
            code: "upstream_bad_response",
            message: "The provider sent a response that cannot be translated.",
        }
    }
}

impl From<JsonError> for Mistake {
    fn from(error: JsonError) -> Self {
        Self::new("", error.rule.text())
    }
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.param.is_empty() {
            return write!(f, "The body cannot be translated: {}.", self.text);
        }
        write!(f, "'{}' cannot be translated: {}.", self.param, self.text)
    }
}

impl std::error::Error for Mistake {}
