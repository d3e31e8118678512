//! What the service manager is told: sd_notify(3), datagrams to the socket that `NOTIFY_SOCKET` names.
//!
//! Not the `sd-notify` crate: its watchdog is off in a process whose id is not `WATCHDOG_PID`, which is every one that an
//! upgrade started; and a manager that does not read must not stop the gateway, so nothing here may block.

use std::{
    env,
    os::{
        linux::net::SocketAddrExt,
        unix::{
            ffi::OsStrExt,
            net::{SocketAddr, UnixDatagram},
        },
    },
    time::Duration,
};

/// Sends one or more lines such as `READY=1`. Without a service manager nothing happens; one that does not read loses them.
pub fn notify(lines: &str) {
    let Some(name) = env::var_os("NOTIFY_SOCKET") else { return };
    let address = match name.as_bytes() {
        [b'@', rest @ ..] => SocketAddr::from_abstract_name(rest),
        _ => SocketAddr::from_pathname(&name),
    };
    let sent = address.and_then(|address| {
        let socket = UnixDatagram::unbound()?;
        socket.set_nonblocking(true)?;
        socket.send_to_addr(lines.as_bytes(), &address)
    });
    if let Err(error) = sent {
        tracing::debug!(%error, "the service manager was not told");
    }
}

/// A reload begins. The time lets the manager tell it from the one before (`Type=notify-reload`).
pub fn reloading() {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let micros = now.tv_sec * 1_000_000 + now.tv_nsec / 1_000;
    notify(&format!("RELOADING=1\nMONOTONIC_USEC={micros}"));
}

/// The end begins.
pub fn stopping() {
    notify("STOPPING=1\nSTATUS=draining");
}

/// How often the manager wants to hear `WATCHDOG=1` from this process: half of the time after which it takes it for hung
/// (sd_watchdog_enabled(3)). `is_upgraded`: another process was started as the one to watch, and this one is its successor.
pub fn watchdog_interval(is_upgraded: bool) -> Option<Duration> {
    let number = |name| env::var(name).ok()?.parse::<u64>().ok();
    interval(number("WATCHDOG_USEC"), number("WATCHDOG_PID"), std::process::id().into(), is_upgraded)
}

fn interval(micros: Option<u64>, watched: Option<u64>, own: u64, is_upgraded: bool) -> Option<Duration> {
    let is_meant = is_upgraded || watched.is_none_or(|pid| pid == own);
    micros.filter(|micros| is_meant && *micros > 0).map(|micros| Duration::from_micros((micros / 2).max(1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_watchdog_is_fed_by_the_process_that_is_meant_and_by_its_successors() {
        let half = Some(Duration::from_secs(10));
        assert_eq!(interval(Some(20_000_000), Some(7), 7, false), half);
        assert_eq!(interval(Some(20_000_000), None, 7, false), half);
        assert_eq!(interval(Some(20_000_000), Some(6), 7, false), None);
        assert_eq!(interval(Some(20_000_000), Some(6), 7, true), half);
        assert_eq!(interval(Some(0), None, 7, false), None);
        assert_eq!(interval(None, Some(7), 7, true), None);
    }
}
