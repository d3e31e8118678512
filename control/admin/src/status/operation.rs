//! Answers of `/api/v1/version`, `/api/v1/reload`, `/api/v1/upgrade` and `/api/v1/drain`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Answer of `/api/v1/version`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct VersionStatus {
    /// Version of the program.
    pub version: String,
    /// Commit it was built from, twelve digits; `unknown` if the build did not know it.
    pub commit: String,
    /// Platform it was built for, such as `x86_64-linux`.
    pub target: String,
    /// True if it was built without optimisation.
    pub debug: bool,
    /// Process id.
    pub pid: u32,
    /// Seconds since the process started.
    pub uptime_seconds: f64,
    /// Generation of the configuration in force.
    pub generation: u64,
    /// How many upgrades led to this process, from 0.
    #[serde(default)]
    pub restart_epoch: u64,
    /// Process id of the process before this one, while it still drains.
    #[serde(default)]
    pub draining_predecessor: Option<u32>,
}

/// The result of a reload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ReloadResult {
    /// Valid, and in force from the workers' next turn.
    Applied,
    /// Valid and equal to what is in force.
    Unchanged,
    /// Not valid; the last good configuration stays in force.
    Rejected,
}

/// How much a diagnostic weighs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// The file cannot be used.
    Error,
    /// It can, but something in it is hardly meant.
    Warning,
}

/// One remark on the configuration file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Diagnostic {
    /// How much it weighs.
    pub severity: Severity,
    /// File, if it is known.
    pub file: Option<String>,
    /// Line, from 1.
    pub line: Option<u32>,
    /// Column, from 1.
    pub column: Option<u32>,
    /// Key, such as `listener[0].bind`.
    pub key: Option<String>,
    /// The mistake.
    pub message: String,
    /// How to mend it, if there is one way.
    pub remedy: Option<String>,
}

/// Answer of `POST /api/v1/reload`: 200 if applied or unchanged, 422 if rejected.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ReloadOutcome {
    /// Its result.
    pub outcome: ReloadResult,
    /// Generation in force after it.
    pub generation: u64,
    /// Changes that are in force now, one sentence each.
    pub applied: Vec<String>,
    /// Changes that wait for a restart, one sentence each.
    pub needs_restart: Vec<String>,
    /// Every mistake of a rejected file; the warnings on one that was accepted.
    pub diagnostics: Vec<Diagnostic>,
}

/// The result of an upgrade.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum UpgradeResult {
    /// The new process serves, and this one drains.
    Done,
    /// The new process does not serve; this one goes on as before.
    Failed,
    /// Nothing was tried: another upgrade is not over, or this process cannot be upgraded.
    Refused,
}

/// Answer of `POST /api/v1/upgrade`: 200 if done, 422 if failed, 409 if refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UpgradeOutcome {
    /// Its result.
    pub result: UpgradeResult,
    /// Process id of the process that answers.
    pub pid: u32,
    /// Process id of the one that serves now in its place; only if done.
    pub successor: Option<u32>,
    /// How many upgrades led to the process that serves now.
    pub restart_epoch: u64,
    /// Why not, unless it is done.
    pub reason: Option<String>,
}

/// How far a drain is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DrainState {
    /// This call began it.
    Started,
    /// It was under way already.
    Draining,
    /// All exchanges are finished.
    Drained,
}

/// Answer of `POST /api/v1/drain`: 202.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DrainStatus {
    /// How far it is.
    pub state: DrainState,
    /// Client connections open.
    pub connections_open: u64,
    /// Requests whose reply is not complete yet.
    pub requests_in_flight: u64,
    /// Seconds until what is left is cut.
    pub remaining_seconds: f64,
}
