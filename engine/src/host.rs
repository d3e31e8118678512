//! This machine: its name, and what a figure of capacity belongs to besides the configuration, kernel and processor.

use std::{fs, sync::OnceLock};

/// Release of the kernel, as `uname -r`; `None` if it cannot be read.
#[must_use]
pub fn kernel() -> Option<String> {
    Some(fs::read_to_string("/proc/sys/kernel/osrelease").ok()?.trim().to_owned())
}

/// Name of this machine, as `hostname`; `None` if it cannot be read.
#[must_use]
pub fn name() -> Option<&'static str> {
    static NAME: OnceLock<Option<String>> = OnceLock::new();
    let read = || Some(fs::read_to_string("/proc/sys/kernel/hostname").ok()?.trim().to_owned());
    NAME.get_or_init(read).as_deref()
}

/// Model of the (first) processor, in the kernel's words; `None` where it names none.
#[must_use]
pub fn cpu_model() -> Option<String> {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = cpuinfo.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}
