//! What an operator may choose. Plain data, already checked by whoever made it.

use std::{sync::Arc, time::Duration};

use weir_base::Names;
use weir_listener::proxy_protocol::ProxyVersion;

/// How long a connection may be silent in both directions. Default 10 min, as nginx's `proxy_timeout`.
pub const IDLE_TIMEOUT: Duration = Duration::from_secs(600);

/// A TCP listener.
#[derive(Clone, Debug)]
pub struct TcpListenerSettings {
    /// What [`Names`] and [`TcpListenerSettings::default_upstream`] count in.
    pub upstreams: Vec<Arc<str>>,
    /// The PROXY header that endpoints are sent, in the order of the upstreams.
    pub proxy_headers: Vec<Option<ProxyVersion>>,
    /// Of connections that no name leads elsewhere.
    pub default_upstream: usize,
    /// The first bytes are TLS's, and say which name the client asks for. `None`: they may be anything.
    pub names: Option<Names<usize>>,
}
