//! Facts about the machine, and when the run was.

use std::fs;
use std::time::{Duration, SystemTime};

use crate::record::Host;

/// What can be read without privileges; `None` where it cannot.
pub(super) fn facts() -> Host {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let cpus = cpuinfo.lines().filter(|line| line.starts_with("processor")).count() as u32;
    Host {
        kernel: weir_engine::host::kernel(),
        cpu_model: weir_engine::host::cpu_model(),
        cpus: (cpus > 0).then_some(cpus),
        nofile: nofile(),
        somaxconn: line_of("/proc/sys/net/core/somaxconn").and_then(|text| text.parse().ok()),
        clocksource: line_of("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
        ..Host::default()
    }
}

fn line_of(path: &str) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.trim().to_owned())
}

/// The soft limit of open descriptors.
fn nofile() -> Option<u64> {
    let limits = fs::read_to_string("/proc/self/limits").ok()?;
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Unique on one machine: time and process.
pub(super) fn run_id() -> String {
    format!("{:x}-{:x}", since_epoch().as_millis(), std::process::id())
}

/// RFC 3339 in UTC, to the second.
pub(super) fn timestamp() -> String {
    rfc3339(since_epoch().as_secs())
}

fn since_epoch() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}

/// The civil calendar of H. Hinnant, "chrono-Compatible Low-Level Date Algorithms" (`civil_from_days`).
fn rfc3339(seconds: u64) -> String {
    let (days, time) = (seconds / 86_400 + 719_468, seconds % 86_400);
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    // Years of this count begin in March.
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z", time / 3_600, time / 60 % 60, time % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_767_323_045, "2026-01-02T03:04:05Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(rfc3339(seconds), text);
        }
    }
}
