//! Query and response of `/api/v1/ai/requests`.

use std::str::FromStr;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The query to the workers. The server has checked the limit already.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AiRequestQuery {
    /// Entries wanted, 1 to [`PAGE_MAX`](crate::limits::PAGE_MAX).
    pub limit: usize,
    /// Only those whose members have these texts. The members have the names of the usage log.
    pub members: Vec<(&'static str, String)>,
    /// Only those with this tag among `tags`.
    pub tag: Option<String>,
    /// Only those for this model, by the name of clients or of the provider.
    pub model: Option<String>,
    /// Only those with such a status.
    pub status: Option<StatusFilter>,
    /// Their bodies, too, as far as they are kept.
    pub has_bodies: bool,
    /// Only those that have ended at this Unix time or later.
    pub since: Option<Duration>,
}

/// A status, or a class of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StatusFilter {
    /// One, such as 429; 0: there was no response.
    One(u16),
    /// A class by its first digit: `4xx`.
    Class(u16),
}

impl StatusFilter {
    /// True if the status is meant.
    pub fn matches(self, status: u64) -> bool {
        match self {
            Self::One(one) => status == u64::from(one),
            Self::Class(class) => status / 100 == u64::from(class),
        }
    }
}

impl FromStr for StatusFilter {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let class =
            text.strip_suffix("xx").and_then(|digit| digit.parse().ok()).filter(|class| (1..=5).contains(class));
        let one = text.parse().ok().filter(|status| *status == 0 || (100..600).contains(status));
        let found = class.map(Self::Class).or(one.map(Self::One));
        found.ok_or_else(|| format!("{text:?} is not a status: write a status such as 429, or a class such as 4xx"))
    }
}

/// Response of `/api/v1/ai/requests`, newest first.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AiRequestList {
    /// The OpenTelemetry schema of members with a name that begins with `gen_ai.`, and of `error.type`.
    pub schema_url: String,
    /// Version of the table of these names.
    pub attributes_version: u32,
    /// Maximum number of requests that the process keeps; 0 if it keeps none.
    pub recent_requests: u64,
    /// The requests. Members without an OpenTelemetry name have the name of the usage log.
    pub requests: Vec<Map<String, Value>>,
    /// Workers that did not respond in time. Their requests are missing.
    pub workers_silent: Vec<u32>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_one_or_a_class() {
        let matches = |text: &str, status| text.parse::<StatusFilter>().map(|filter| filter.matches(status));
        assert_eq!([matches("429", 429), matches("429", 400), matches("0", 0)], [Ok(true), Ok(false), Ok(true)]);
        assert_eq!([matches("4xx", 429), matches("4xx", 500), matches("5xx", 503)], [Ok(true), Ok(false), Ok(true)]);
        for wrong in ["", "xx", "6xx", "44xx", "99", "600", "-1", "4x"] {
            assert!(wrong.parse::<StatusFilter>().is_err(), "{wrong}");
        }
    }
}
