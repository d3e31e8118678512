//! What a figure of capacity belongs to besides the configuration: the kernel and the processor.

use std::fs;

/// Release of the kernel, as `uname -r`; `None` if it cannot be read.
#[must_use]
pub fn kernel() -> Option<String> {
    Some(fs::read_to_string("/proc/sys/kernel/osrelease").ok()?.trim().to_owned())
}

/// Model of the (first) processor, in the kernel's words; `None` where it names none.
#[must_use]
pub fn cpu_model() -> Option<String> {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = cpuinfo.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}
