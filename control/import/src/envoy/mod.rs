//! Envoy: the static resources of a bootstrap, in YAML or JSON.
//!
//! | file | concept |
//! |---|---|
//! | `listener` | listeners and their filter chains |
//! | `manager` | the filter `http_connection_manager` of a listener |
//! | `arrival` | headers that Envoy rewrites before it selects a route |
//! | `route` | virtual hosts and routes |
//! | `target` | where the requests of a route go |
//! | `action` | timeouts, rewrites and retries of a route |
//! | `headers` | changes of headers by a route |
//! | `cluster` | clusters become upstreams |
//! | `tls` | certificates and authorities of both sides |
//! | `keys` | keys that no counterpart reads |

mod action;
mod arrival;
mod cluster;
mod headers;
mod keys;
mod listener;
mod manager;
mod route;
mod target;
mod tls;

use std::collections::HashMap;

use self::arrival::Arrival;
use crate::model::{Config, Names};
use crate::note::Mistake;
use crate::quantity::protobuf_duration;
use crate::toml::Value;
use crate::yaml::{self, Node};

/// A conversion under way.
struct Importer<'n> {
    config: Config,
    listener_names: Names,
    route_names: Names,
    upstream_names: Names,
    clusters: HashMap<&'n str, &'n Node>,
    /// Upstreams that have been made, by cluster and protocol.
    made: HashMap<(String, &'static str), String>,
    /// The treatment of requests by the listener under way.
    arrival: Arrival,
    /// Changes of headers that this listener makes in every request.
    every_request: Vec<Value>,
    /// The domain of its routes.
    domain: String,
}

/// Reads a configuration.
pub(crate) fn read(name: &str, text: &str) -> Result<Config, Mistake> {
    let tree = yaml::parse(name, text)?;
    let Some(resources) = tree.get("static_resources") else {
        return Err(Mistake::new(&tree.place, "there are no static_resources; resources from xDS cannot be imported"));
    };
    let mut importer = Importer {
        config: Config::default(),
        listener_names: Names::default(),
        route_names: Names::default(),
        upstream_names: Names::default(),
        clusters: HashMap::new(),
        made: HashMap::new(),
        arrival: Arrival::default(),
        every_request: Vec::new(),
        domain: String::new(),
    };
    importer.rest(&tree, &["static_resources", "admin", "node"], "");
    if let Some(admin) = tree.get("admin") {
        let why = "the admin server of Weir has an address and figures of its own";
        importer.note(admin, "admin", why, "[admin], /metrics, weir top");
    }
    importer.rest(resources, &["listeners", "clusters"], "");
    for cluster in resources.items_at("clusters") {
        let Some(name) = cluster.text_at("name") else {
            return Err(Mistake::new(&cluster.place, "a cluster needs a name"));
        };
        importer.clusters.insert(name, cluster);
    }
    for listener in resources.items_at("listeners") {
        importer.listener(listener)?;
    }
    for cluster in resources.items_at("clusters") {
        let name = cluster.text_at("name").unwrap_or_default();
        if !importer.made.keys().any(|(made, _)| made == name) {
            importer.note(cluster, &format!("cluster {name}"), "nothing that was imported sends requests to it", "");
        }
    }
    match importer.config.listeners.is_empty() {
        true => Err(Mistake::new(&resources.place, "there is no listener that could be imported")),
        false => Ok(importer.config),
    }
}

/// The milliseconds of a duration below a path of keys.
fn millis(node: &Node, path: &str) -> Result<Option<u64>, Mistake> {
    let Some(found) = node.at(path) else { return Ok(None) };
    let wrong = || Mistake::new(&found.place, format!("{path} is no duration: write it as 5s or 0.25s"));
    protobuf_duration(found.text()).ok_or_else(wrong).map(Some)
}

/// A duration in the bounds of Weir.
fn duration(millis: u64, max: u64) -> Value {
    Value::millis(millis.clamp(1, max))
}

/// The address of a `socket_address` or a `pipe`.
fn address(node: &Node) -> Result<String, Mistake> {
    if let Some(path) = node.text_at("pipe.path") {
        return Ok(format!("unix:{path}"));
    }
    let (host, port) = (node.text_at("socket_address.address"), node.at("socket_address.port_value"));
    let (Some(host), Some(port)) = (host, port) else {
        return Err(Mistake::new(&node.place, "an address needs socket_address with address and port_value"));
    };
    let port = port.number("port_value")?;
    Ok(if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") })
}
