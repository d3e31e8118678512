//! Facts about the machine, and when the run was.

use std::fs;

use super::barrier::unix_micros;
use crate::record::Host;

/// The figures that need no privileges; `None` where it cannot.
pub(super) fn facts() -> Host {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let cpus = cpuinfo.lines().filter(|line| line.starts_with("processor")).count() as u32;
    Host {
        kernel: weir_engine::host::kernel(),
        cpu_model: weir_engine::host::cpu_model(),
        cpus: (cpus > 0).then_some(cpus),
        nofile: nofile(),
        pmu: fs::read_dir("/sys/bus/event_source/devices")
            .ok()
            .map(|devices| devices.flatten().any(|device| is_pmu_of_cores(&device.file_name().to_string_lossy()))),
        somaxconn: line_of("/proc/sys/net/core/somaxconn").and_then(|text| text.parse().ok()),
        clocksource: line_of("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
        ..Host::default()
    }
}

/// As the kernel names what counts the events of cores: one for all, one per kind of core, or by the design of the core.
fn is_pmu_of_cores(name: &str) -> bool {
    matches!(name, "cpu" | "cpu_core" | "cpu_atom") || name.starts_with("armv")
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

/// A new one for a run, unique on one machine: time and process.
#[must_use]
pub fn run_id() -> String {
    format!("{:x}-{:x}", unix_micros() / 1_000, std::process::id())
}
