//! The gateway as these tests start it.

use weir_tests::gateway::{Config, Gateway};
use weir_tests::stream::Address;

/// In front of `server`, without logins on either side.
pub(crate) fn before(server: &Address, listener: &str, upstream: &str) -> Config {
    Config { protocol: "mongodb", ..Config::to(server) }
        .listener(&format!("[listener.mongodb]\nauth = \"none\"\n{listener}"))
        .upstream(&format!("[upstream.mongodb]\n{upstream}"))
}

/// The port of its listener.
pub(crate) fn port(gateway: &Gateway) -> u16 {
    gateway.address.tcp().port()
}

/// Defensive closes for this reason so far.
pub(crate) fn closes(gateway: &Gateway, reason: &str) -> f64 {
    gateway.metrics().sum_where("weir_defensive_closes_total", &[("reason", reason)])
}
