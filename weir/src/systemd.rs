//! Notifications for the service manager: sd_notify(3), datagrams to the socket that `NOTIFY_SOCKET` names.
//!
//! Not the `sd-notify` crate: its watchdog is off in a process whose id is not `WATCHDOG_PID`, which is every one that an
//! upgrade started; and a manager that does not read must not stop the gateway, so nothing here waits for longer than a moment.

use std::{
    env, io,
    os::{
        linux::net::SocketAddrExt,
        unix::{
            ffi::OsStrExt,
            net::{SocketAddr, UnixDatagram},
        },
    },
    time::Duration,
};

/// How long the manager may take to make room for what it has to know. Default 1 s: it reads in between all that it does, and
/// only threads wait that serve no client.
const PATIENCE: Duration = Duration::from_secs(1);

/// Tells one or more lines that the manager has to know, such as `READY=1`: without them it takes the service for hung, or the
/// wrong process for the service. Without a manager nothing happens. Not for a worker: waits for up to a second.
pub fn notify(lines: &str) {
    if let Err(error) = send(lines, Some(PATIENCE)) {
        tracing::warn!(%error, lines, "the service manager could not be notified");
    }
}

/// Tells lines that may be lost, such as one of many `WATCHDOG=1`. Never waits.
pub fn mention(lines: &str) {
    if let Err(error) = send(lines, None) {
        tracing::debug!(%error, lines, "the service manager got no notification");
    }
}

fn send(lines: &str, patience: Option<Duration>) -> io::Result<()> {
    let Some(name) = env::var_os("NOTIFY_SOCKET") else { return Ok(()) };
    let address = match name.as_bytes() {
        [b'@', rest @ ..] => SocketAddr::from_abstract_name(rest),
        _ => SocketAddr::from_pathname(&name),
    };
    send_to(&address?, lines, patience)
}

fn send_to(address: &SocketAddr, lines: &str, patience: Option<Duration>) -> io::Result<()> {
    let socket = UnixDatagram::unbound()?;
    match patience {
        Some(patience) => socket.set_write_timeout(Some(patience))?,
        None => socket.set_nonblocking(true)?,
    }
    socket.send_to_addr(lines.as_bytes(), address).map(drop)
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

    /// More than any queue of datagrams holds (`net.unix.max_dgram_qlen`).
    const FLOOD: usize = 10_000;

    #[test]
    fn a_manager_that_is_slow_to_read_gets_the_necessary_lines() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("notify");
        let manager = UnixDatagram::bind(&path).expect("a socket");
        let address = SocketAddr::from_pathname(&path).expect("an address");
        let full = (0..FLOOD).find_map(|_| send_to(&address, "WATCHDOG=1", None).err()).expect("the queue is finite");
        assert_eq!(full.kind(), io::ErrorKind::WouldBlock);
        let short = Some(Duration::from_millis(1));
        assert!(send_to(&address, "READY=1", short).is_err(), "a manager that does not read holds nobody for ever");
        std::thread::scope(|scope| {
            let told = scope.spawn(|| send_to(&address, "READY=1", Some(Duration::from_secs(60))));
            let mut bytes = [0; 64];
            while manager.recv(&mut bytes).map(|length| bytes[..length] == *b"READY=1").is_ok_and(|is_it| !is_it) {}
            told.join().expect("no panic").expect("told");
        });
    }

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
