//! Why a request is not admitted, in values that every dialect can express.
//!
//! The words are those of OpenAI's errors, which SDKs of all dialects branch on: status, `type`, `code`, and whether an
//! SDK should send the request again. No text holds a prompt, a key or a name of a client's.

use std::{fmt, time::Duration};

/// The budget that is used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Exhausted {
    /// Tokens of the day.
    DayTokens,
    /// Money of the day.
    DayMoney,
    /// Tokens of the month.
    MonthTokens,
    /// Money of the month.
    MonthMoney,
    /// None: at an upgrade, the rest belongs to the other process for a moment.
    Lease,
    /// None: the rest is not claimed from the store yet, belongs to other gateways, or the store does not respond.
    Store,
}

use Exhausted::{Lease, Store};

/// Why a request is not admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Denial {
    /// The request has no key.
    NoKey,
    /// The key is not known, or not well formed.
    UnknownKey,
    /// The key is disabled.
    DisabledKey,
    /// The key is past its end.
    ExpiredKey,
    /// The secret was replaced, and the overlap is over.
    SupersededKey,
    /// The key may not be used from this address.
    Source,
    /// The key may not use this model.
    Model,
    /// The model has no price, and the key has a budget in money.
    UnpricedModel,
    /// The key may not use a tool of the request.
    Tool,
    /// More tools than the key may declare.
    Tools {
        /// The most.
        limit: u32,
    },
    /// A longer prompt than the key may send.
    Prompt {
        /// The most bytes.
        limit: u64,
    },
    /// More output tokens than the key may request.
    Output {
        /// The most tokens.
        limit: u64,
    },
    /// As many requests in flight as the key may have.
    Concurrency {
        /// The most.
        limit: u32,
    },
    /// Requests per minute.
    Requests {
        /// Until one more may come.
        retry_after: Duration,
    },
    /// Tokens per minute.
    Tokens {
        /// Until one more request may come.
        retry_after: Duration,
    },
    /// Calls of tools and agents per minute.
    ToolCalls {
        /// Until one more may come.
        retry_after: Duration,
    },
    /// A budget has less left than the request may cost.
    Budget {
        /// Which.
        exhausted: Exhausted,
    },
    /// The journal cannot be written, so a budget would not survive the process.
    Journal,
}

/// Until a request may come again that was refused for what is in flight.
const CONCURRENCY_RETRY: Duration = Duration::from_secs(1);

/// Until a request may come again that was refused for the journal.
const JOURNAL_RETRY: Duration = Duration::from_secs(5);

/// Until a request may come again whose budget another process or another gateway has for a moment.
const LEASE_RETRY: Duration = Duration::from_secs(1);

const CANNOT_ACCOUNT: &str = "The gateway cannot account for this request now. Try again later.";

const INVALID: &str = "invalid_request_error";

impl Denial {
    /// Status of the response, as HTTP numbers them.
    pub fn status(&self) -> u16 {
        match self {
            Self::NoKey | Self::UnknownKey | Self::DisabledKey | Self::ExpiredKey | Self::SupersededKey => 401,
            Self::Source | Self::Model | Self::UnpricedModel | Self::Tool => 403,
            Self::Tools { .. } | Self::Prompt { .. } | Self::Output { .. } => 400,
            Self::Journal | Self::Budget { exhausted: Lease | Store } => 503,
            Self::Concurrency { .. } | Self::Requests { .. } | Self::Tokens { .. } => 429,
            Self::ToolCalls { .. } | Self::Budget { .. } => 429,
        }
    }

    /// `type` of the error object.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Concurrency { .. } | Self::Requests { .. } | Self::ToolCalls { .. } => "requests",
            Self::Tokens { .. } => "tokens",
            Self::Journal | Self::Budget { exhausted: Lease | Store } => "server_error",
            Self::Budget { .. } => "insufficient_quota",
            _ => INVALID,
        }
    }

    /// `code` of the error object; `None` is written as null.
    pub fn code(&self) -> Option<&'static str> {
        Some(match self {
            Self::NoKey | Self::UnknownKey | Self::DisabledKey | Self::ExpiredKey | Self::SupersededKey => {
                "invalid_api_key"
            }
            Self::Source => "source_not_allowed",
            Self::Model | Self::UnpricedModel => "model_not_allowed",
            Self::Tool => "tool_not_allowed",
            Self::Prompt { .. } => "context_length_exceeded",
            Self::Tools { .. } | Self::Output { .. } => return None,
            Self::Concurrency { .. } | Self::Requests { .. } | Self::Tokens { .. } => "rate_limit_exceeded",
            Self::Journal | Self::Budget { exhausted: Lease | Store } => "overloaded",
            Self::ToolCalls { .. } => "rate_limit_exceeded",
            Self::Budget { .. } => "insufficient_quota",
        })
    }

    /// `param` of the error object: the field of the request at fault, if one is.
    pub fn param(&self) -> Option<&'static str> {
        match self {
            Self::Model | Self::UnpricedModel => Some("model"),
            Self::Tool | Self::Tools { .. } => Some("tools"),
            Self::Output { .. } => Some("max_tokens"),
            _ => None,
        }
    }

    /// `x-should-retry`, which SDKs obey before they look at the status. `None`: leave it out, the status decides.
    pub fn should_retry(&self) -> Option<bool> {
        match self.status() {
            401 => Some(false),
            429 if matches!(self, Self::Budget { .. }) => Some(false),
            _ => None,
        }
    }

    /// Until the request may come again; for `retry-after` and `retry-after-ms`. The budgets have none: a month is no wait.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Requests { retry_after } | Self::Tokens { retry_after } | Self::ToolCalls { retry_after } => {
                Some(*retry_after)
            }
            Self::Concurrency { .. } => Some(CONCURRENCY_RETRY),
            Self::Budget { exhausted: Lease | Store } => Some(LEASE_RETRY),
            Self::Journal => Some(JOURNAL_RETRY),
            _ => None,
        }
    }

    /// The reason for logs and metrics: one of a fixed set, more exact than `code`. Clients do not learn it.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::NoKey => "key_missing",
            Self::UnknownKey => "key_unknown",
            Self::DisabledKey => "key_disabled",
            Self::ExpiredKey => "key_expired",
            Self::SupersededKey => "key_superseded",
            Self::Source => "source_not_allowed",
            Self::Model => "model_not_allowed",
            Self::UnpricedModel => "model_unpriced",
            Self::Tool => "tool_not_allowed",
            Self::Tools { .. } => "tools_max",
            Self::Prompt { .. } => "prompt_bytes_max",
            Self::Output { .. } => "output_tokens_max",
            Self::Concurrency { .. } => "concurrent_requests",
            Self::Requests { .. } => "requests_per_minute",
            Self::Tokens { .. } => "tokens_per_minute",
            Self::ToolCalls { .. } => "tool_calls_per_minute",
            Self::Budget { exhausted: Exhausted::DayTokens } => "budget_day_tokens",
            Self::Budget { exhausted: Exhausted::DayMoney } => "budget_day_money",
            Self::Budget { exhausted: Exhausted::MonthTokens } => "budget_month_tokens",
            Self::Budget { exhausted: Exhausted::MonthMoney } => "budget_month_money",
            Self::Budget { exhausted: Exhausted::Lease } => "budget_lease",
            Self::Budget { exhausted: Exhausted::Store } => "budget_store",
            Self::Journal => "journal_unwritable",
        }
    }
}

/// `message` of the error object. All keys that are no key have one text: it must not tell which exist.
impl fmt::Display for Denial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoKey => f.write_str("No API key was sent. Send it as `Authorization: Bearer <key>`."),
            Self::UnknownKey | Self::DisabledKey | Self::ExpiredKey | Self::SupersededKey => {
                f.write_str("The API key is not valid.")
            }
            Self::Source => f.write_str("The API key may not be used from this address."),
            Self::Model => f.write_str("The API key may not use this model."),
            Self::UnpricedModel => {
                f.write_str("The model has no price, and the API key has a budget in money: it may not use the model.")
            }
            Self::Tool => f.write_str("The API key may not use one of the tools of the request."),
            Self::Tools { limit } => write!(f, "The request declares more than {limit} tools."),
            Self::Prompt { limit } => write!(f, "The prompt is longer than {limit} bytes."),
            Self::Output { limit } => write!(f, "The request wants more than {limit} output tokens."),
            Self::Concurrency { limit } => write!(f, "{limit} requests of the API key are in flight already."),
            Self::Requests { retry_after } => {
                write!(f, "Rate limit of requests per minute reached. Try again in {}.", seconds(*retry_after))
            }
            Self::Tokens { retry_after } => {
                write!(f, "Rate limit of tokens per minute reached. Try again in {}.", seconds(*retry_after))
            }
            Self::ToolCalls { retry_after } => {
                write!(f, "Rate limit of tool calls per minute reached. Try again in {}.", seconds(*retry_after))
            }
            Self::Budget { exhausted } => {
                let window = match exhausted {
                    Exhausted::DayTokens => "tokens of the day",
                    Exhausted::DayMoney => "money of the day",
                    Exhausted::MonthTokens => "tokens of the month",
                    Exhausted::MonthMoney => "money of the month",
                    // Nothing is used up: the right to spend is elsewhere for a moment.
                    Lease | Store => return f.write_str(CANNOT_ACCOUNT),
                };
                write!(f, "The budget of the API key has not enough {window} left for this request.")
            }
            Self::Journal => f.write_str(CANNOT_ACCOUNT),
        }
    }
}

impl std::error::Error for Denial {}

fn seconds(span: Duration) -> String {
    format!("{:.3}s", span.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// Refusal, status, type, code, `x-should-retry`, and whether there is a time to wait.
    type Row = (Denial, u16, &'static str, Option<&'static str>, Option<bool>, bool);

    #[test]
    fn refusals_have_the_status_type_and_code_that_sdks_branch_on() {
        let rows: &[Row] = &[
            (Denial::UnknownKey, 401, INVALID, Some("invalid_api_key"), Some(false), false),
            (Denial::Model, 403, INVALID, Some("model_not_allowed"), None, false),
            (Denial::Tool, 403, INVALID, Some("tool_not_allowed"), None, false),
            (Denial::Tools { limit: 3 }, 400, INVALID, None, None, false),
            (Denial::Prompt { limit: 3 }, 400, INVALID, Some("context_length_exceeded"), None, false),
            (Denial::Requests { retry_after: SECOND }, 429, "requests", Some("rate_limit_exceeded"), None, true),
            (Denial::Tokens { retry_after: SECOND }, 429, "tokens", Some("rate_limit_exceeded"), None, true),
            (Denial::ToolCalls { retry_after: SECOND }, 429, "requests", Some("rate_limit_exceeded"), None, true),
            (
                Denial::Budget { exhausted: Exhausted::DayMoney },
                429,
                "insufficient_quota",
                Some("insufficient_quota"),
                Some(false),
                false,
            ),
            (Denial::Journal, 503, "server_error", Some("overloaded"), None, true),
            (Denial::Budget { exhausted: Exhausted::Lease }, 503, "server_error", Some("overloaded"), None, true),
            (Denial::Budget { exhausted: Exhausted::Store }, 503, "server_error", Some("overloaded"), None, true),
        ];
        for (denial, status, kind, code, should_retry, waits) in rows {
            assert_eq!(denial.status(), *status, "{denial:?}");
            assert_eq!(denial.kind(), *kind, "{denial:?}");
            assert_eq!(denial.code(), *code, "{denial:?}");
            assert_eq!(denial.should_retry(), *should_retry, "{denial:?}");
            assert_eq!(denial.retry_after().is_some(), *waits, "{denial:?}");
        }
    }

    #[test]
    fn a_client_cannot_tell_a_disabled_key_from_an_unknown_one() {
        let dead = [Denial::UnknownKey, Denial::DisabledKey, Denial::ExpiredKey, Denial::SupersededKey];
        for denial in dead {
            assert_eq!(denial.to_string(), Denial::UnknownKey.to_string());
            assert_eq!((denial.status(), denial.code()), (401, Some("invalid_api_key")));
        }
        let reasons: std::collections::HashSet<_> = dead.iter().map(Denial::reason).collect();
        assert_eq!(reasons.len(), dead.len(), "an operator can");
    }
}
