//! Settings of an operator. Plain data, already checked.

use std::{sync::Arc, time::Duration};

use weir_base::Names;
use weir_listener::proxy_protocol::ProxyVersion;

/// Longest silence of a connection in both directions. Default 10 min, as nginx's `proxy_timeout`.
pub const IDLE_TIMEOUT: Duration = Duration::from_secs(600);

/// A TCP listener.
#[derive(Clone, Debug)]
pub struct TcpListenerSettings {
    /// Upstreams that [`Names`] and [`TcpListenerSettings::default_upstream`] count.
    pub upstreams: Vec<Arc<str>>,
    /// The PROXY header that endpoints are sent, in the order of the upstreams.
    pub proxy_headers: Vec<Option<ProxyVersion>>,
    /// The upstream of connections without a configured server name.
    pub default_upstream: usize,
    /// The first bytes are a TLS client hello, which has the server name. `None`: they may be anything.
    pub names: Option<Names<usize>>,
}
