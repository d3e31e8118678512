//! Keys without effect because of the values of other keys. They are read and legal, and a user may rely on them.

use weir_telemetry::Level;

use crate::checks::warn_at;
use crate::reader::Reader;
use crate::section::Section;
use crate::sections::{FileSection, TelemetrySection};
use crate::snapshot::LogTarget;

/// Checks the keys that every protocol has.
pub(super) fn file(file: &FileSection, reader: &mut Reader<'_>) {
    telemetry(file, &file.telemetry, reader);
    for (index, section) in file.upstream.iter().enumerate() {
        if !section.health.enabled.value {
            let path = format!("upstream[{index}]");
            unless_empty_but(&section.health, &["enabled"], &path, "health", "enabled is false", reader);
        }
    }
}

fn telemetry(file: &FileSection, section: &TelemetrySection, reader: &mut Reader<'_>) {
    let log = &section.access_log;
    let path = "telemetry.access_log";
    if log.target.value == LogTarget::Off {
        let why = "target is \"off\"";
        unless_empty_but(log, &["target"], "telemetry", "access_log", why, reader);
        for (index, listener) in file.listener.iter().enumerate() {
            if let Some(sample) = listener.access_log_sample.as_ref().filter(|sample| sample.value.0 > 0.0) {
                let what = "has no effect: telemetry.access_log.target is \"off\"";
                let help = "write a target, or remove it";
                warn_at(sample, &format!("listener[{index}]"), "access_log_sample", what, help, reader);
            }
        }
    } else if !matches!(log.target.value, LogTarget::File(_)) {
        let (what, help) = ("has no effect: only files are rotated", "write target = \"file:/path\", or remove it");
        if let Some(size) = &log.rotate_size {
            warn_at(size, path, "rotate_size", what, help, reader);
        }
    }
    if section.stage_sample.is_given && section.level.value != Level::Full && section.stage_sample.value.0 > 0.0 {
        let what = "has no effect: stages are measured only with level = \"full\"";
        warn_at(&section.stage_sample, "telemetry", "stage_sample", what, "remove it, or set level = \"full\"", reader);
    }
}

/// Keys beside `enabled = false`.
pub(crate) fn switched_off(section: &impl Section, is_enabled: bool, path: &str, reader: &mut Reader<'_>) {
    let (above, table) = path.rsplit_once('.').unwrap_or(("", path));
    if !is_enabled {
        unless_empty_but(section, &["enabled"], above, table, "enabled is false", reader);
    }
}

/// Warns of a table in which something is written, though nothing of it has an effect.
pub(crate) fn unless_empty(section: &impl Section, path: &str, table: &str, why: &str, reader: &mut Reader<'_>) {
    unless_empty_but(section, &[], path, table, why, reader);
}

/// The same, if these keys are not all that is written.
pub(crate) fn unless_empty_but(
    section: &impl Section,
    but: &[&str],
    path: &str,
    table: &str,
    why: &str,
    reader: &mut Reader<'_>,
) {
    let mut given = Vec::new();
    section.given("", &mut given);
    if let Some(key) = given.iter().find(|key| !but.contains(&&*key.path)) {
        let path = format!("{path}.{table}.{}", key.path);
        let message = format!("`{path}` has no effect: {why}");
        reader.problems.warning(
            &key.span,
            &path,
            message,
            "remove it, or change the configuration so that it has an effect",
        );
    }
}
