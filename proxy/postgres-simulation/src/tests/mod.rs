//! Scenes first, then random runs.

use weir_postgres_codec::{frontend, frontend::Kind};
use weir_postgres_session::SessionSettings;

use scene::Scene;

mod encoding;
mod foreign;
mod healing;
mod large;
mod leases;
mod listening;
mod losses;
mod raw;
mod refusals;
mod row_types;
mod rules;
mod scene;
mod scenes;
mod split;
mod swarm;

fn bytes(encode: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    encode(&mut out);
    out
}

fn query(text: &str) -> Vec<u8> {
    bytes(|out| frontend::query(out, text.as_bytes()))
}

/// Bind, Describe, Execute and Sync of a statement.
fn run(name: &str) -> Vec<u8> {
    bytes(|out| {
        frontend::bind(out, b"", name.as_bytes(), []);
        frontend::describe(out, Kind::Portal, b"");
        frontend::execute(out, b"", 0);
        frontend::sync(out);
    })
}

fn prepare(name: &str, text: &str) -> Vec<u8> {
    bytes(|out| {
        frontend::parse(out, name.as_bytes(), text.as_bytes(), &[]);
        frontend::sync(out);
    })
}

fn scene() -> Scene {
    Scene::new(SessionSettings::default(), &[])
}

/// LISTEN stays with the server.
fn unshared() -> Scene {
    Scene::new(SessionSettings { shares_listen: false, ..SessionSettings::default() }, &[])
}
