//! The gateways that the lab knows, each with one thread.

use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use weir_parties::Peer;
use weir_parties::peer::Setting;

use super::backend::{Backend, Behind};
use super::{Arm, Goal};
use crate::bench::place::Place;

/// Client connections that must fit: those of the largest row, and room.
const CONNECTIONS: u32 = 4_000;

/// The one server of the file, which becomes several.
const TWEMPROXY_SERVER: &str = "   - {origin_host}:{origin_port}:1";
const ENVOY_ENDPOINT: &str =
    "        - endpoint: { address: { socket_address: { address: {origin_host}, port_value: {origin_port} } } }\n";
/// The kind of cluster that asks its nodes.
const ENVOY_CLUSTER: &str = "lb_policy: CLUSTER_PROVIDED
    cluster_type:
      name: envoy.clusters.redis
      typed_config:
        \"@type\": type.googleapis.com/envoy.extensions.clusters.redis.v3.RedisClusterConfig
        cluster_refresh_rate: 5s";

/// Starts the peer called `known` in front of Redis as the arm `name`; `program` stands for the one that would be found.
pub(crate) fn start_redis(
    place: &Place,
    (name, known): (&'static str, &str),
    backend: &Backend,
    program: Option<&Path>,
) -> Result<Arm> {
    let text = built_in(known)?;
    start(place, name, (known, &in_front_of(backend, known, text)?), backend.servers[0].port, program)
}

/// The file of a peer that the lab knows.
pub(crate) fn built_in(known: &str) -> Result<String> {
    Peer::built_in_text(known).with_context(|| format!("the lab knows no {known}"))
}

/// Starts a peer, given by the name and the text of its file, in front of the port `origin`.
pub(crate) fn start(
    place: &Place,
    name: &'static str,
    (file, text): (&str, &str),
    origin: u16,
    program: Option<&Path>,
) -> Result<Arm> {
    let peer = Peer::parse(file, text)?;
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

/// The peer's file, changed for several servers.
fn in_front_of(backend: &Backend, known: &str, text: String) -> Result<String> {
    let ports = backend.ports();
    let changes: Vec<(&str, String)> = match (backend.behind, known) {
        (Behind::One, _) => Vec::new(),
        (Behind::Shards, "twemproxy") => {
            let servers: Vec<String> = ports.iter().map(|port| format!("   - 127.0.0.1:{port}:1")).collect();
            vec![("distribution: modula", "distribution: ketama".into()), (TWEMPROXY_SERVER, servers.join("\n"))]
        }
        (Behind::Shards, "envoy") => {
            vec![
                ("type: STATIC", "type: STATIC\n    lb_policy: MAGLEV".into()),
                (ENVOY_ENDPOINT, envoy_endpoints(&ports)),
            ]
        }
        (Behind::Cluster, "envoy") => vec![
            ("op_timeout: 5s", "op_timeout: 5s, enable_redirection: true".into()),
            ("type: STATIC", ENVOY_CLUSTER.into()),
            (ENVOY_ENDPOINT, envoy_endpoints(&ports)),
        ],
        (behind, _) => bail!("{known} cannot stand in front of {behind:?}"),
    };
    changes.into_iter().try_fold(text, |text, (old, new)| {
        ensure!(text.contains(old), "the file of {known} has no longer `{old}`");
        Ok(text.replace(old, &new))
    })
}

fn envoy_endpoints(ports: &[u16]) -> String {
    ports.iter().fold(String::new(), |text, port| {
        text + &ENVOY_ENDPOINT.replace("{origin_host}", "127.0.0.1").replace("{origin_port}", &port.to_string())
    })
}
