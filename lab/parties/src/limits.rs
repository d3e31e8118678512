//! Resources that must not run out, or overflow, during a measurement: descriptors, ports, memory, queues of the kernel.

use std::collections::HashSet;

use anyhow::{Context, Result};

/// Descriptors of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Descriptors {
    /// Open now.
    pub open: u64,
    /// The soft limit.
    pub limit: u64,
}

impl Descriptors {
    /// Descriptors of a running process.
    ///
    /// # Errors
    /// There is no such process, or it is another user's.
    pub fn of(process: u32) -> Result<Self> {
        let folder = format!("/proc/{process}/fd");
        let open = std::fs::read_dir(&folder).with_context(|| folder.clone())?.count() as u64;
        let path = format!("/proc/{process}/limits");
        let limits = std::fs::read_to_string(&path).with_context(|| path.clone())?;
        let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"));
        // `unlimited` is no number: nothing limits it.
        let limit = line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0);
        Ok(Self { open, limit })
    }

    /// Share in use; 0 if nothing limits it.
    #[must_use]
    pub fn share(&self) -> f64 {
        if self.limit == 0 { 0.0 } else { self.open as f64 / self.limit as f64 }
    }
}

/// Resident memory of a process in bytes, from `/proc/<pid>/statm`.
///
/// # Errors
/// There is no such process.
pub fn resident_bytes(process: u32) -> Result<u64> {
    let path = format!("/proc/{process}/statm");
    let text = std::fs::read_to_string(&path).with_context(|| path.clone())?;
    let pages: u64 =
        text.split_whitespace().nth(1).and_then(|word| word.parse().ok()).context("a statm without pages")?;
    Ok(pages * rustix::param::page_size() as u64)
}

/// Ports that the kernel may give to outgoing connections towards one address.
///
/// # Errors
/// The setting cannot be read.
pub fn ephemeral_ports() -> Result<u64> {
    let path = "/proc/sys/net/ipv4/ip_local_port_range";
    let text = std::fs::read_to_string(path).context(path)?;
    let bounds: Vec<u64> = text.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    let [first, last] = bounds[..] else { anyhow::bail!("{path} holds {text:?}") };
    Ok((last + 1).saturating_sub(first))
}

/// Counters of the kernel that must stand still.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KernelCounters {
    /// ListenOverflows, ListenDrops and RcvbufErrors of this network namespace.
    pub drops: u64,
    /// Pages swapped in and out.
    pub swapped: u64,
}

impl KernelCounters {
    /// As they stand now.
    ///
    /// # Errors
    /// `/proc/net/netstat` or `/proc/vmstat` cannot be read.
    pub fn now() -> Result<Self> {
        let read = |path: &'static str| std::fs::read_to_string(path).context(path);
        let (netstat, snmp, vmstat) = (read("/proc/net/netstat")?, read("/proc/net/snmp")?, read("/proc/vmstat")?);
        let drops =
            sum_of_pairs(&netstat, &["ListenOverflows", "ListenDrops"]) + sum_of_pairs(&snmp, &["RcvbufErrors"]);
        let swapped = ["pswpin ", "pswpout "].iter().filter_map(|name| {
            vmstat.lines().find_map(|line| line.strip_prefix(name)).and_then(|count| count.trim().parse::<u64>().ok())
        });
        Ok(Self { drops, swapped: swapped.sum() })
    }

    /// Increase since an earlier look.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        Self { drops: self.drops.saturating_sub(earlier.drops), swapped: self.swapped.saturating_sub(earlier.swapped) }
    }
}

/// Sums named counters of files that have a line of names, then one of numbers, per protocol.
fn sum_of_pairs(text: &str, names: &[&str]) -> u64 {
    let wanted: HashSet<&str> = names.iter().copied().collect();
    let lines: Vec<&str> = text.lines().collect();
    let pairs = lines.chunks_exact(2).flat_map(|pair| pair[0].split_whitespace().zip(pair[1].split_whitespace()));
    pairs.filter(|(name, _)| wanted.contains(name)).filter_map(|(_, count)| count.parse::<u64>().ok()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_found_by_name_in_pairs_of_lines() {
        let text = "TcpExt: SyncookiesSent ListenOverflows ListenDrops\nTcpExt: 7 2 3\nIpExt: InNoRoutes\nIpExt: 9\n";
        assert_eq!(sum_of_pairs(text, &["ListenOverflows", "ListenDrops"]), 5);
    }

    #[test]
    fn the_machine_has_limits() {
        assert!(ephemeral_ports().expect("a range") > 1_000);
        let own = Descriptors::of(std::process::id()).expect("this process");
        let file = std::fs::File::open("/proc/self/status").expect("a file");
        assert!(
            Descriptors::of(std::process::id()).expect("this process").open > own.open.saturating_sub(2)
                && own.open > 2
        );
        drop(file);
        let now = KernelCounters::now().expect("counters");
        assert_eq!(now.since(now), KernelCounters::default());
    }
}
