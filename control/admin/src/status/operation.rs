//! Responses of `/api/v1/version`, `/api/v1/reload`, `/api/v1/upgrade` and `/api/v1/drain`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Response of `/api/v1/version`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct VersionStatus {
    /// Version of the program.
    pub version: String,
    /// Commit of the build, twelve digits; `unknown` if the build did not know the commit.
    pub commit: String,
    /// Platform of the build, such as `x86_64-linux`.
    pub target: String,
    /// True if the program was built without optimisation.
    pub debug: bool,
    /// Process id.
    pub pid: u32,
    /// Seconds since the process started.
    pub uptime_seconds: f64,
    /// Generation of the configuration in force.
    pub generation: u64,
    /// Number of upgrades that led to this process, from 0.
    #[serde(default)]
    pub restart_epoch: u64,
    /// Process id of the previous process, while it still drains.
    #[serde(default)]
    pub draining_predecessor: Option<u32>,
}

/// The result of a reload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ReloadResult {
    /// Valid, and in force from the next loop iteration of each worker.
    Applied,
    /// Valid, and equal to the configuration in force.
    Unchanged,
    /// Not valid; the last good configuration stays in force.
    Rejected,
}

/// Severity of a diagnostic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// The file cannot be used.
    Error,
    /// The file can be used, but part of it is probably a mistake.
    Warning,
}

/// One diagnostic about the configuration file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Diagnostic {
    /// Severity of the diagnostic.
    pub severity: Severity,
    /// Name of the file, if it is known.
    pub file: Option<String>,
    /// Line, from 1.
    pub line: Option<u32>,
    /// Column, from 1.
    pub column: Option<u32>,
    /// Key, such as `listener[0].bind`.
    pub key: Option<String>,
    /// The mistake.
    pub message: String,
    /// How to fix it, if there is exactly one way.
    pub remedy: Option<String>,
}

/// Response of `POST /api/v1/reload`: 200 if applied or unchanged, 422 if rejected.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ReloadOutcome {
    /// Result of the reload.
    pub outcome: ReloadResult,
    /// Generation in force after the reload.
    pub generation: u64,
    /// Changes that are in force now, one sentence each.
    pub applied: Vec<String>,
    /// Changes that wait for a restart, one sentence each.
    pub needs_restart: Vec<String>,
    /// Every mistake of a rejected file, or the warnings about an accepted file.
    pub diagnostics: Vec<Diagnostic>,
}

/// The result of an upgrade.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum UpgradeResult {
    /// The new process serves, and this one drains.
    Done,
    /// The new process failed to serve; this process continues to serve.
    Failed,
    /// Nothing was attempted: another upgrade is in progress, or this process cannot be upgraded.
    Refused,
}

/// Response of `POST /api/v1/upgrade`: 200 if done, 422 if failed, 409 if refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UpgradeOutcome {
    /// Result of the upgrade.
    pub result: UpgradeResult,
    /// Process id of the process that responds.
    pub pid: u32,
    /// Process id of the new process, which serves now; only if done.
    pub successor: Option<u32>,
    /// Number of upgrades that led to the process that serves now.
    pub restart_epoch: u64,
    /// Reason for the failure or refusal.
    pub reason: Option<String>,
}

/// State of a drain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DrainState {
    /// This call began the drain.
    Started,
    /// The drain was in progress already.
    Draining,
    /// All exchanges are finished.
    Drained,
}

/// Response of `POST /api/v1/drain`: 202.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DrainStatus {
    /// State of the drain.
    pub state: DrainState,
    /// Client connections open.
    pub connections_open: u64,
    /// Requests whose reply is not complete yet.
    pub requests_in_flight: u64,
    /// Seconds until the gateway cuts the remaining connections.
    pub remaining_seconds: f64,
}
