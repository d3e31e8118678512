//! Answers of `/livez`, `/readyz` and `/startupz`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One thing that a probe looked at, as the gateway reports it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Check {
    /// Stable snake_case name, such as `listeners_bound` or `driver`.
    pub name: String,
    /// True if it is in order.
    pub passed: bool,
    /// What was seen, for a person; shown with `?verbose` only.
    pub detail: String,
}

impl Check {
    /// A check with its result and what was seen.
    pub fn new(name: impl Into<String>, passed: bool, detail: impl Into<String>) -> Self {
        Self { name: name.into(), passed, detail: detail.into() }
    }
}

/// Result of a check or of a whole probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// In order.
    Pass,
    /// Not in order.
    Fail,
}

impl From<bool> for Verdict {
    fn from(passed: bool) -> Self {
        if passed { Self::Pass } else { Self::Fail }
    }
}

/// One check in a probe's answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CheckResult {
    /// Stable name of the check.
    pub name: String,
    /// Its result.
    pub status: Verdict,
    /// What was seen; only with `?verbose`, and only with the token if one is set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

/// Answer of a probe: 200 if all checks pass, else 503.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ProbeAnswer {
    /// `pass` if every check passes.
    pub status: Verdict,
    /// Every check by name.
    pub checks: Vec<CheckResult>,
}

impl ProbeAnswer {
    /// The answer for these checks, with details or without.
    pub(crate) fn of(checks: Vec<Check>, with_details: bool) -> Self {
        let status = checks.iter().all(|check| check.passed).into();
        let checks = checks
            .into_iter()
            .map(|check| CheckResult {
                name: check.name,
                status: check.passed.into(),
                detail: with_details.then_some(check.detail),
            })
            .collect();
        Self { status, checks }
    }
}
