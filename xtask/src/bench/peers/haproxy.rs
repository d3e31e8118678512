//! HAProxy in TCP mode: the control that forwards bytes and parses nothing.

use anyhow::{Context, Result};

use super::{Arm, name, on_path, version_line};
use crate::bench::load::Goal;
use weir_parties::place::free_port;

use crate::bench::place::Place;
use weir_parties::process::{Launch, Process};

/// How to get it.
pub(crate) const INSTALL: &str = "apt install haproxy";

/// One thread; timeouts that no idle connection of the benchmark reaches; the rest by default.
pub(crate) fn config(port: u16, origin: u16) -> String {
    format!(
        "global
    nbthread 1
    maxconn 4000

defaults
    mode tcp
    timeout connect 5s
    timeout client 10m
    timeout server 10m

listen redis
    bind 127.0.0.1:{port}
    server origin 127.0.0.1:{origin}
"
    )
}

/// Starts it in the foreground.
pub(crate) fn start(place: &Place, origin: u16) -> Result<Arm> {
    let program = on_path("haproxy").with_context(|| format!("no haproxy found: {INSTALL}"))?;
    let program = program.to_string_lossy().into_owned();
    let port = free_port()?;
    let text = config(port, origin);
    let file = place.write("haproxy.cfg", &text)?.to_string_lossy().into_owned();
    let words = [program.as_str(), "-db", "-f", &file];
    let mut process = Process::start(&Launch::new(name::HAPROXY, Some(&place.gateway_cpu), words), place.path())?;
    process.wait_for_port(port)?;
    let version = version_line(&[&program, "-v"]);
    let version = version.split(" - ").next().unwrap_or_default().to_owned();
    Ok(Arm {
        name: name::HAPROXY,
        goal: Goal { port, tls_ca: None },
        process: Some(process),
        version: format!("{version}, nbthread 1"),
        config: Some(("haproxy.cfg".into(), text)),
    })
}
