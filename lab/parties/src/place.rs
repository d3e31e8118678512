//! CPUs that this process may use, and ports that no other process uses.

use std::net::TcpListener;
use std::sync::atomic::{AtomicU16, Ordering};

use anyhow::{Context, Result, bail};

/// Ports are taken from here upwards: below the range from which the kernel takes the ports of outgoing connections
/// (32768 by default), so that no client sits on the port of a server that is being restarted.
const PORT_FIRST: u16 = 20_000;
const PORT_LAST: u16 = 32_000;

/// A port of loopback that nothing listens on now.
pub fn free_port() -> Result<u16> {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let span = PORT_LAST - PORT_FIRST;
    // Two runs side by side start at different places.
    let start = u16::try_from(std::process::id() % u32::from(span))?;
    for _ in 0..span {
        let step = NEXT.fetch_add(1, Ordering::Relaxed);
        let port = PORT_FIRST + (start.wrapping_add(step)) % span;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return Ok(port);
        }
    }
    bail!("no free port between {PORT_FIRST} and {PORT_LAST}")
}

/// CPUs that this process may use, from `Cpus_allowed_list` (`0-3,8`).
pub fn allowed_cpus() -> Result<Vec<u32>> {
    let status = std::fs::read_to_string("/proc/self/status").context("/proc/self/status")?;
    let list =
        status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).context("no Cpus_allowed_list")?;
    parse_cpus(list.trim())
}

fn parse_cpus(list: &str) -> Result<Vec<u32>> {
    let mut cpus = Vec::new();
    for part in list.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        cpus.extend(first.parse::<u32>()?..=last.parse::<u32>()?);
    }
    if cpus.is_empty() {
        bail!("an empty list of CPUs");
    }
    Ok(cpus)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_lists_of_the_kernel_are_read() {
        assert_eq!(parse_cpus("0-2,8").unwrap(), [0, 1, 2, 8]);
        assert_eq!(parse_cpus("5").unwrap(), [5]);
        assert!(parse_cpus("").is_err());
    }
}
