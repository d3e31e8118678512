//! Servers of MCP and agents of A2A. Plain data, already checked.

use std::{sync::Arc, time::Duration};

use weir_http::filter::OWN_REQUESTS_MAX;

/// Longest pause within a response. Default 1 h: the stream of a session is silent while its server has nothing to say.
pub const AGENT_IDLE_TIMEOUT: Duration = Duration::from_secs(3_600);

/// Servers of a federation. Default 16, the requests that an exchange may make at once.
pub const FEDERATED_SERVERS_MAX: usize = 16;

const _: () = assert!(FEDERATED_SERVERS_MAX <= OWN_REQUESTS_MAX);

/// The protocol of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AgentProtocol {
    /// MCP over streamable HTTP, revisions 2025-03-26 to 2026-07-28.
    Mcp,
    /// A2A over JSON-RPC, versions 0.3 and 1.0.
    A2a,
}

impl AgentProtocol {
    /// The first segment of its paths, and the label of its metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Mcp => "mcp",
            Self::A2a => "a2a",
        }
    }
}

/// A server of MCP, or an agent of A2A.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentServer {
    /// Its protocol.
    pub protocol: AgentProtocol,
    /// Its name in the path of the gateway, and in rules.
    pub name: Arc<str>,
    /// The position of its upstream in [`AiListenerSettings::upstreams`](crate::settings::AiListenerSettings::upstreams).
    pub upstream: usize,
    /// Its path there.
    pub path: Box<str>,
    /// See [`AGENT_IDLE_TIMEOUT`].
    pub idle_timeout: Duration,
}

/// Several servers of MCP under one name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Federation {
    /// Its name in the path of the gateway. No server has the same.
    pub name: Arc<str>,
    /// Its servers, by their positions in [`AiListenerSettings::agents`](crate::settings::AiListenerSettings::agents), in the order of
    /// lists; at most [`FEDERATED_SERVERS_MAX`].
    pub servers: Vec<usize>,
}
