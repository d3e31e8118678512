//! twemproxy (Debian: nutcracker).

use anyhow::{Context, Result};

use super::{Arm, name, on_path, version_line};
use crate::bench::load::Goal;
use weir_parties::place::free_port;

use crate::bench::place::Place;
use weir_parties::process::{Launch, Process};

/// How to get it.
pub(crate) const INSTALL: &str = "apt install nutcracker";

/// Everything by default; one server, so the distribution is the cheapest. It is single-threaded by design.
pub(crate) fn config(port: u16, origin: u16) -> String {
    format!(
        "bench:
  listen: 127.0.0.1:{port}
  redis: true
  hash: fnv1a_64
  distribution: modula
  preconnect: true
  servers:
   - 127.0.0.1:{origin}:1
"
    )
}

/// Starts it.
pub(crate) fn start(place: &Place, origin: u16) -> Result<Arm> {
    let program = on_path("nutcracker").with_context(|| format!("no nutcracker found: {INSTALL}"))?;
    let program = program.to_string_lossy().into_owned();
    let (port, statistics) = (free_port()?, free_port()?.to_string());
    let text = config(port, origin);
    let file = place.write("twemproxy.yml", &text)?.to_string_lossy().into_owned();
    // Level 1 logs what is critical only.
    let words = [program.as_str(), "-c", &file, "-a", "127.0.0.1", "-s", &statistics, "-v", "1"];
    let mut process = Process::start(&Launch::new(name::TWEMPROXY, Some(&place.gateway_cpu), words), place.path())?;
    process.wait_for_port(port)?;
    let version = version_line(&[&program, "-V"]);
    Ok(Arm {
        name: name::TWEMPROXY,
        goal: Goal { port, tls_ca: None },
        process: Some(process),
        version: format!("twemproxy ({}), single-threaded", version.trim_start_matches("This is ")),
        config: Some(("twemproxy.yml".into(), text)),
    })
}
