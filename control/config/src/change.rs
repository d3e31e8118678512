//! The differences between two snapshots.

use weir_telemetry::Level;

use crate::section::Section as _;
use crate::snapshot::Snapshot;

/// Keys whose change takes effect only at the next start, or tables of such keys: threads, the memory of requests, the access log and
/// the journal of budgets, and the exact cache, are laid out once, and the admin server must stay reachable where it is.
const RESTART: [&str; 16] = [
    "runtime",
    "admin.bind",
    "telemetry.log_format",
    "telemetry.access_log.target",
    "telemetry.access_log.format",
    "telemetry.access_log.fields",
    "telemetry.access_log.rotate_size",
    "telemetry.access_log.rotate_keep",
    "telemetry.keys",
    "telemetry.slow_log",
    "ai.state",
    "ai.cache_bytes_max",
    "ai.cache_response_bytes_max",
    "ai.recent_requests",
    "ai.recent_bodies_bytes_max",
    "ai.store",
];

/// The part of a telemetry level that takes effect only at the next start, if it changes to or from `off`.
const INSIGHT: &str = "telemetry.level \"off\" (hot keys, big keys, slow log)";

/// The changes of a reload. Each entry is a key, such as `listener.cache.idle_timeout`, or a table and what became of it,
/// such as `upstream.old removed`. Values are left out: they may be secrets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// In force with the new snapshot.
    pub applied: Vec<String>,
    /// Kept as they were until the process is started again.
    pub needs_restart: Vec<String>,
}

impl Change {
    /// True if the two snapshots configure the same.
    pub fn is_empty(&self) -> bool {
        self.applied.is_empty() && self.needs_restart.is_empty()
    }
}

/// Compares two snapshots. A renewed certificate and a changed secret count as changes of their key.
pub fn diff(old: &Snapshot, new: &Snapshot) -> Change {
    let mut found = Vec::new();
    old.file.differences(&new.file, "", &mut found);
    let (mut needs_restart, applied): (Vec<_>, Vec<_>) = found.into_iter().partition(|path| needs_restart(path));
    if (old.telemetry.level == Level::Off) != (new.telemetry.level == Level::Off) {
        needs_restart.push(INSIGHT.to_owned());
    }
    Change { applied, needs_restart }
}

/// True if a change of the key takes effect at the next start only. The path is as in [`Change`].
pub fn needs_restart(path: &str) -> bool {
    RESTART.iter().any(|key| {
        let rest = path.strip_prefix(key);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    })
}
