//! The gateways that the lab knows, each with one thread.

use std::path::Path;

use anyhow::{Context, Result};
use weir_parties::Peer;
use weir_parties::peer::Setting;

use super::Arm;
use crate::bench::load::Goal;
use crate::bench::place::Place;

/// Client connections that must fit: those of the largest row, and room.
const CONNECTIONS: u32 = 4_000;

/// Starts the peer called `known` as the arm `name`; `program` stands for the one that would be found.
pub(crate) fn start(
    place: &Place,
    (name, known): (&'static str, &str),
    origin: u16,
    program: Option<&Path>,
) -> Result<Arm> {
    let peer = Peer::built_in(known).with_context(|| format!("the lab knows no {known}"))?;
    let setting = Setting {
        origin: &format!("127.0.0.1:{origin}"),
        workers: 1,
        connections: CONNECTIONS,
        cpus: Some(&place.gateway_cpu),
        share: None,
        program,
    };
    let running = peer.start(&setting, place.path())?;
    Ok(Arm {
        name,
        goal: Goal { port: running.port, tls_ca: None },
        process: Some(running.process),
        version: format!("{}, one thread", running.version),
        config: peer.config.map(|config| (config.file, running.config)),
    })
}
