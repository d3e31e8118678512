//! The floor: a relay of our own that does nothing but carry bytes and pair replies with clients.

use anyhow::{Context, Result};

use super::{Arm, Goal, name};
use weir_parties::place::free_port;

use crate::bench::place::Place;
use crate::bench::relay::PAUSE;
use weir_parties::process::{Launch, Process};

/// How it relates clients and connections to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// One connection for all clients; it knows where replies of Redis end.
    Shared,
    /// One for each, and bytes are bytes.
    Pairs,
}

/// Starts it: this very program once more, as a process of its own.
pub(crate) fn start(place: &Place, origin: u16, way: Way) -> Result<Arm> {
    let program = std::env::current_exe().context("this program does not know its own path")?;
    let port = free_port()?;
    let words = ["relay", "--listen", &port.to_string(), "--origin", &origin.to_string()].map(Into::into);
    let words =
        [program.into_os_string()].into_iter().chain(words).chain((way == Way::Pairs).then(|| "--pairs".into()));
    let how = match way {
        Way::Shared => format!("pause {PAUSE:?}"),
        Way::Pairs => "a connection to the server for each client, nothing parsed".into(),
    };
    let mut process = Process::start(Launch::new(name::FLOOR, Some(&place.gateway_cpu), words), place.path())?;
    process.wait_for_port(port)?;
    Ok(Arm {
        name: name::FLOOR,
        goal: Goal { port, tls_ca: None },
        process: Some(process),
        version: format!("`xtask relay` of this commit, single-threaded, {how}"),
        config: None,
    })
}
