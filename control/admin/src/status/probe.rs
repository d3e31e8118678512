//! Responses of `/livez`, `/readyz` and `/startupz`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One check of a probe, as the gateway reports it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Check {
    /// Stable snake_case name, such as `listeners_bound` or `driver`.
    pub name: String,
    /// Its result.
    pub verdict: Verdict,
    /// The observation, for a person; shown with `?verbose` only.
    pub detail: String,
}

impl Check {
    /// A check that decides its probe, with its result and what was seen.
    pub fn new(name: impl Into<String>, passed: bool, detail: impl Into<String>) -> Self {
        let verdict = if passed { Verdict::Pass } else { Verdict::Fail };
        Self { name: name.into(), verdict, detail: detail.into() }
    }

    /// A check that does not decide its probe: `warn` if it is not in order.
    pub fn warning(name: impl Into<String>, passed: bool, detail: impl Into<String>) -> Self {
        let verdict = if passed { Verdict::Pass } else { Verdict::Warn };
        Self { name: name.into(), verdict, detail: detail.into() }
    }
}

/// Result of a check or of a whole probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// In order.
    Pass,
    /// A problem that does not make the probe fail. Only checks have this verdict.
    Warn,
    /// Not in order.
    Fail,
}

/// One check in the response of a probe.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CheckResult {
    /// Stable name of the check.
    pub name: String,
    /// Its result.
    pub status: Verdict,
    /// The observation behind the result; only with `?verbose`, and only with the token if one is set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

/// Response of a probe: 503 if a check fails, else 200.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ProbeResponse {
    /// `fail` if a check fails, else `pass`.
    pub status: Verdict,
    /// Every check by name.
    pub checks: Vec<CheckResult>,
}

impl ProbeResponse {
    /// The response for these checks, with details or without.
    pub(crate) fn of(checks: Vec<Check>, with_details: bool) -> Self {
        let fails = checks.iter().any(|check| check.verdict == Verdict::Fail);
        let status = if fails { Verdict::Fail } else { Verdict::Pass };
        let checks = checks
            .into_iter()
            .map(|check| CheckResult {
                name: check.name,
                status: check.verdict,
                detail: with_details.then_some(check.detail),
            })
            .collect();
        Self { status, checks }
    }
}
