//! The command line of a key and its policy. Flags have the names of `[[listener.ai.key]]`; those of LiteLLM are aliases.

use std::time::Duration;

use clap::Args;
use weir_admin::status::{AiKeyChange, AiKeyPolicy};

use super::from_now;

// Listener and end of a key.
#[derive(Debug, Default, Args)]
pub struct TermFlags {
    /// The listener that accepts the key [default: every listener with keys = "required"].
    #[arg(long, value_name = "NAME")]
    listener: Option<String>,

    /// Expiry of the key, a time in UTC such as 2027-01-31T00:00:00Z.
    #[arg(long, value_name = "TIME")]
    expires: Option<String>,

    /// Expiry of the key, as a time from now, such as 12h or 30d.
    #[arg(long, value_name = "SPAN", conflicts_with = "expires", value_parser = span)]
    duration: Option<Duration>,
}

impl TermFlags {
    /// A flag is there.
    pub fn is_given(&self) -> bool {
        self.listener.is_some() || self.expires.is_some() || self.duration.is_some()
    }

    /// The members that they mean.
    ///
    /// # Errors
    /// In words: the end is no time.
    pub fn change(&self) -> Result<AiKeyChange, String> {
        if let Some(text) = &self.expires
            && weir_base::time::from_rfc3339(text).is_none()
        {
            return Err(format!("--expires {text} is not a time in UTC: write it as in 2027-01-31T00:00:00Z"));
        }
        let expires = self.duration.map(from_now).or_else(|| self.expires.clone());
        Ok(AiKeyChange { listener: self.listener.clone(), expires, ..AiKeyChange::default() })
    }
}

// The limits of a key.
#[derive(Debug, Default, Args)]
pub struct PolicyFlags {
    /// Models that the key may use, as clients name them, separated by commas; `*` matches any text.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    models: Vec<String>,

    /// Models that the key may not use.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    models_denied: Vec<String>,

    /// Tools that requests with the key may declare.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    tools: Vec<String>,

    /// Maximum number of tools per request.
    #[arg(long, value_name = "N")]
    tools_max: Option<u32>,

    /// Tools of MCP servers that the key may call, such as github/create_issue or github/*.
    #[arg(long, value_name = "TOOLS", value_delimiter = ',')]
    mcp_tools: Vec<String>,

    /// A2A agents that the key may reach.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    a2a_agents: Vec<String>,

    /// Tool and agent calls per minute.
    #[arg(long, value_name = "N")]
    tool_calls_per_minute: Option<u64>,

    /// Maximum size of a prompt, in bytes.
    #[arg(long, value_name = "BYTES")]
    prompt_bytes_max: Option<u64>,

    /// Maximum number of output tokens of each choice (`n`) in a response.
    #[arg(long, value_name = "N")]
    output_tokens_max: Option<u64>,

    /// Client networks that may use the key, such as 10.0.0.0/8.
    #[arg(long, value_name = "NETWORKS", value_delimiter = ',')]
    sources: Vec<String>,

    /// Requests per minute.
    #[arg(long, value_name = "N", visible_alias = "rpm-limit")]
    requests_per_minute: Option<u64>,

    /// Tokens per minute.
    #[arg(long, value_name = "N", visible_alias = "tpm-limit")]
    tokens_per_minute: Option<u64>,

    /// Concurrent requests.
    #[arg(long, value_name = "N", visible_alias = "max-parallel-requests")]
    concurrent_max: Option<u32>,

    /// Tokens per day (UTC).
    #[arg(long, value_name = "N")]
    day_tokens: Option<u64>,

    /// Tokens per month (UTC).
    #[arg(long, value_name = "N")]
    month_tokens: Option<u64>,

    /// Money per day (UTC), such as 2.50, in the currency of the configured prices.
    #[arg(long, value_name = "AMOUNT")]
    day_money: Option<String>,

    /// Money per month (UTC), in the currency of the configured prices.
    #[arg(long, value_name = "AMOUNT")]
    month_money: Option<String>,

    /// Time for which a cached response is used for equal requests, such as 5m or 1h.
    #[arg(long, value_name = "SPAN")]
    cache_ttl: Option<String>,

    /// Cache also sampled requests (temperature above 0, n or best_of above 1); --cache-sampled=false turns this off.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    cache_sampled: Option<bool>,

    /// Treatment of requests that break the limits: `enforce` refuses them, `observe` only counts them.
    #[arg(long, value_name = "MODE", value_parser = ["enforce", "observe"])]
    mode: Option<String>,
}

impl PolicyFlags {
    /// The policy that they mean; `None`: no flag is there.
    pub fn policy(&self) -> Option<AiKeyPolicy> {
        let list = |names: &Vec<String>| Some(names.clone()).filter(|names| !names.is_empty());
        let policy = AiKeyPolicy {
            models: list(&self.models),
            models_denied: list(&self.models_denied),
            tools: list(&self.tools),
            tools_max: self.tools_max,
            mcp_tools: list(&self.mcp_tools),
            a2a_agents: list(&self.a2a_agents),
            tool_calls_per_minute: self.tool_calls_per_minute,
            prompt_bytes_max: self.prompt_bytes_max,
            output_tokens_max: self.output_tokens_max,
            sources: list(&self.sources),
            requests_per_minute: self.requests_per_minute,
            tokens_per_minute: self.tokens_per_minute,
            concurrent_max: self.concurrent_max,
            day_tokens: self.day_tokens,
            month_tokens: self.month_tokens,
            day_money: self.day_money.clone(),
            month_money: self.month_money.clone(),
            cache_ttl: self.cache_ttl.clone(),
            cache_sampled: self.cache_sampled,
            mode: self.mode.clone(),
        };
        (policy != AiKeyPolicy::default()).then_some(policy)
    }
}

/// A span of time: a whole number and `s`, `m`, `h` or `d`.
///
/// # Errors
/// In words: it is none.
pub fn span(text: &str) -> Result<Duration, String> {
    let wrong = || "write a whole number and s, m, h or d, such as 30m, 24h or 7d".to_owned();
    let (at, unit) = text.char_indices().last().ok_or_else(wrong)?;
    let seconds = match unit {
        's' => 1,
        'm' => 60,
        'h' => 3_600,
        'd' => 86_400,
        _ => return Err(wrong()),
    };
    let count: u64 = text[..at].parse().map_err(|_| wrong())?;
    count.checked_mul(seconds).map(Duration::from_secs).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_is_a_number_and_a_unit() {
        assert_eq!(
            [span("90s"), span("24h"), span("7d")].map(|span| span.map(|span| span.as_secs())),
            [Ok(90), Ok(86_400), Ok(604_800)]
        );
        for wrong in ["", "d", "7", "7w", "-1d", "1.5h", "99999999999999999999d", "9999999999999999999d", "7ä"] {
            assert!(span(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn flags_that_are_not_given_are_no_members() {
        assert_eq!(PolicyFlags::default().policy(), None);
        let flags = PolicyFlags { models: vec!["a".to_owned()], day_tokens: Some(5), ..PolicyFlags::default() };
        let text = serde_json::to_string(&flags.policy()).expect("JSON");
        assert_eq!(text, r#"{"models":["a"],"day_tokens":5}"#);
        let wrong = TermFlags { expires: Some("tomorrow".to_owned()), ..TermFlags::default() };
        assert!(wrong.change().is_err() && wrong.is_given() && !TermFlags::default().is_given());
    }
}
