//! The server behind every gateway: one redis-server that keeps nothing on disk.

use std::time::Duration;

use anyhow::{Context, Result};

use super::Goal;
use weir_parties::peer::{find_program, version_line};
use weir_parties::place::free_port;

use crate::bench::place::Place;
use crate::bench::resp::Connection;
use weir_parties::process::{Launch, Process};

/// A running redis-server.
pub(crate) struct Origin {
    /// The server.
    pub(crate) process: Process,
    /// Its port on loopback.
    pub(crate) port: u16,
    /// As it calls itself.
    pub(crate) version: String,
}

/// Counters of the server, to prove that the load reached it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counters {
    /// Commands executed.
    pub(crate) commands: u64,
}

impl Origin {
    /// Starts it on a port of its own.
    pub(crate) fn start(place: &Place) -> Result<Self> {
        Self::start_on(place, free_port()?, &[])
    }

    /// Starts it on a given port, as a restart does, with further `flags`.
    pub(crate) fn start_on(place: &Place, port: u16, flags: &[&str]) -> Result<Self> {
        let program =
            find_program("redis-server").context("no redis-server on the PATH (Debian: apt install redis-server)")?;
        let program = program.to_string_lossy().into_owned();
        let port_word = port.to_string();
        // Every restart writes its own log, so that the first one stays readable.
        let name = format!("redis-server-{}", std::fs::read_dir(place.path())?.count());
        let mut words = vec![program.as_str(), "--port", &port_word, "--bind", "127.0.0.1"];
        words.extend(["--save", "", "--appendonly", "no", "--maxclients", "20000"]);
        words.extend(flags);
        let mut process = Process::start(Launch::new(&name, Some(&place.origin_cpu), words), place.path())?;
        process.wait_for_port(port)?;
        Ok(Self { process, port, version: version_line(&program, &["--version"]) })
    }

    /// The server without a gateway.
    pub(crate) fn goal(&self) -> Goal {
        Goal { port: self.port, tls_ca: None }
    }

    /// A connection beside the load, for questions to the server.
    pub(crate) fn connect(&self) -> Result<Connection> {
        Ok(Connection::open(self.port, Duration::from_secs(10))?)
    }
}

/// What the server has counted.
pub(crate) fn counters(connection: &mut Connection) -> Result<Counters> {
    let values = connection.info("stats", &["total_commands_processed"])?;
    Ok(Counters { commands: values[0] })
}
