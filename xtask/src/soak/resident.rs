//! Memory and descriptors of a process, from procfs.

use anyhow::{Context, Result, bail};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Descriptors that this process needs beside its connections.
const SPARE_DESCRIPTORS: u64 = 512;

/// What a process holds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Resident {
    /// Resident memory, bytes. Buffers of sockets belong to the kernel and are not in it.
    pub(crate) bytes: u64,
    /// The part of it that is not backed by a file: heap and stacks, without the program itself.
    pub(crate) anonymous_bytes: u64,
    /// Open descriptors.
    pub(crate) descriptors: usize,
}

impl Resident {
    /// Of a running process.
    pub(crate) fn of(process: u32) -> Result<Self> {
        let path = format!("/proc/{process}/status");
        let status = std::fs::read_to_string(&path).with_context(|| path.clone())?;
        let descriptors = std::fs::read_dir(format!("/proc/{process}/fd"))?.count();
        Ok(Self { bytes: field(&status, "VmRSS")?, anonymous_bytes: field(&status, "RssAnon")?, descriptors })
    }
}

/// A line `Name:   123 kB`, in bytes.
fn field(status: &str, name: &str) -> Result<u64> {
    let value = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    let kib: u64 = value
        .and_then(|value| value.trim().strip_suffix(" kB"))
        .and_then(|value| value.trim().parse().ok())
        .with_context(|| format!("no {name} in the status of the process"))?;
    Ok(kib * 1_024)
}

/// Bytes as MiB, for the table.
pub(crate) fn mib(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / (1 << 20) as f64)
}

/// Lets this process, and what it starts, open `connections` and some more.
pub(crate) fn raise_descriptor_limit(connections: usize) -> Result<()> {
    let wanted = connections as u64 + SPARE_DESCRIPTORS;
    let now = getrlimit(Resource::Nofile);
    let hard = now.maximum.unwrap_or(u64::MAX);
    // Only a privileged process may raise the hard limit; it is tried and then judged by the result.
    let limit = Rlimit { current: Some(hard.max(wanted)), maximum: Some(hard.max(wanted)) };
    if setrlimit(Resource::Nofile, limit).is_err() && hard < wanted {
        bail!("{connections} idle connections need {wanted} descriptors and the limit is {hard}: raise `ulimit -Hn`");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_memory_and_descriptors() {
        let before = Resident::of(std::process::id()).unwrap();
        assert!(before.bytes > before.anonymous_bytes && before.anonymous_bytes > 0);
        assert!(before.descriptors >= 3);
        assert_eq!(mib(3 << 19), "1.5 MiB");
    }
}
