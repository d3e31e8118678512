//! The reason why a message ends, in the words of both dialects.

use crate::loss::Losses;

/// A `finish_reason` of a chat for a `stop_reason` of Anthropic's. Those that a chat cannot tell apart are losses.
pub(crate) fn to_chat(stop_reason: &str, losses: &mut Losses) -> &'static str {
    match stop_reason {
        "end_turn" => "stop",
        "max_tokens" => "length",
        "tool_use" => "tool_calls",
        "refusal" => "content_filter",
        "model_context_window_exceeded" => "length",
        // `stop_sequence` itself is reported as lost.
        "stop_sequence" => "stop",
        _ => {
            losses.add("", "stop_reason");
            "stop"
        }
    }
}

/// The end of a chat's choice, and its causes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Finish {
    /// `finish_reason`, if it is known.
    pub(crate) reason: Option<Reason>,
    /// There was a refusal.
    pub(crate) has_refusal: bool,
    /// There was a call of a tool.
    pub(crate) has_calls: bool,
}

/// A `finish_reason` of a chat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    Stop,
    Length,
    Calls,
    Filter,
}

impl Reason {
    /// By its word. `None`: the provider has failed. An unknown word is a loss, and means a cut: a message that is not
    /// known to be whole must not seem so.
    pub(crate) fn of(word: &str, losses: &mut Losses) -> Option<Self> {
        Some(match word {
            // OpenRouter's word, and DeepSeek's.
            "error" | "insufficient_system_resource" => return None,
            "stop" => Self::Stop,
            "length" => Self::Length,
            "tool_calls" | "function_call" => Self::Calls,
            "content_filter" => Self::Filter,
            "eos" | "eos_token" | "end_turn" | "stop_sequence" => {
                losses.add("choices", "finish_reason");
                Self::Stop
            }
            _ => {
                losses.add("choices", "finish_reason");
                Self::Length
            }
        })
    }
}

impl Finish {
    /// The text of a call may lack its end: the limit, or a filter, has cut it.
    pub(crate) fn is_cut(self) -> bool {
        matches!(self.reason, Some(Reason::Length | Reason::Filter))
    }

    /// The reason is a call, and there is none. Its client would wait for one.
    pub(crate) fn lacks_calls(self) -> bool {
        self.reason == Some(Reason::Calls) && !self.has_calls
    }

    /// Anthropic's `stop_reason`. A chat whose tool was chosen by the request ends with `stop` and has a call all the
    /// same.
    pub(crate) fn stop_reason(self, has_matched: bool) -> &'static str {
        match self.reason.unwrap_or(Reason::Stop) {
            Reason::Length => "max_tokens",
            Reason::Filter => "refusal",
            _ if self.has_refusal => "refusal",
            _ if self.has_calls => "tool_use",
            _ if has_matched => "stop_sequence",
            _ => "end_turn",
        }
    }
}
