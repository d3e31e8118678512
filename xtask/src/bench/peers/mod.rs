//! The parties of a comparison: how each is found, configured and started, and what its version is.
//!
//! Every gateway gets one thread and stands in front of the same server, or servers. Settings are the party's defaults
//! wherever they do not hinder it; its file in `lab/parties` says what is set and why.

pub(crate) mod backend;
pub(crate) mod floor;
pub(crate) mod origin;
pub(crate) mod peer;
pub(crate) mod weir;

use std::path::PathBuf;

use weir_parties::process::Process;

/// Where a run goes.
#[derive(Clone, Debug)]
pub(crate) struct Goal {
    /// Port on loopback.
    pub(crate) port: u16,
    /// The authority that signed the peer's certificate, if it speaks TLS.
    pub(crate) tls_ca: Option<PathBuf>,
}

/// One side of the comparison, running.
pub(crate) struct Arm {
    /// As the table names it.
    pub(crate) name: &'static str,
    /// Where its clients connect to.
    pub(crate) goal: Goal,
    /// The gateway; `None` for the direct arm.
    pub(crate) process: Option<Process>,
    /// Version and what else identifies it.
    pub(crate) version: String,
    /// Name and text of its configuration file, if it has one.
    pub(crate) config: Option<(String, String)>,
}

impl Arm {
    /// What stands behind the gateways, without one.
    pub(crate) fn direct(goal: Goal) -> Self {
        Self { name: name::DIRECT, goal, process: None, version: "no gateway".into(), config: None }
    }
}

/// Names of the arms, as options and targets use them.
pub(crate) mod name {
    /// The gateway as it is delivered.
    pub(crate) const WEIR: &str = "weir";
    /// Envoy: its redis_proxy, or its HTTP proxy.
    pub(crate) const ENVOY: &str = "envoy";
    /// twemproxy, which Debian calls nutcracker.
    pub(crate) const TWEMPROXY: &str = "twemproxy";
    /// HAProxy in TCP mode: forwards bytes and knows nothing of Redis.
    pub(crate) const HAPROXY_TCP: &str = "haproxy-tcp";
    /// HAProxy in HTTP mode.
    pub(crate) const HAPROXY: &str = "haproxy";
    /// nginx.
    pub(crate) const NGINX: &str = "nginx";
    /// The least that a relay with sockets can cost.
    pub(crate) const FLOOR: &str = "floor";
    /// No gateway.
    pub(crate) const DIRECT: &str = "direct";
    /// Weir on the polling driver.
    pub(crate) const WEIR_POLLING: &str = "weir-polling";
    /// Weir with TLS towards its clients.
    pub(crate) const WEIR_TLS: &str = "weir-tls";
    /// Weir with telemetry off.
    pub(crate) const WEIR_TELEMETRY_OFF: &str = "weir-telemetry-off";
    /// All in front of an HTTP origin, in the order of a block.
    pub(crate) const HTTP: [&str; 8] = [WEIR, NGINX, HAPROXY, ENVOY, FLOOR, DIRECT, WEIR_POLLING, WEIR_TELEMETRY_OFF];
    /// All in front of one Redis server, in the order of a block.
    pub(crate) const REDIS: [&str; 9] =
        [WEIR, ENVOY, TWEMPROXY, HAPROXY_TCP, FLOOR, DIRECT, WEIR_POLLING, WEIR_TLS, WEIR_TELEMETRY_OFF];
}
