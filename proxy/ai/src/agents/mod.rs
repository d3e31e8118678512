//! Agents: MCP servers at `/mcp/<server>`, and agents of A2A at `/a2a/<agent>`, with the keys and limits of the listener.
//!
//! | file | concept |
//! |---|---|
//! | `settings` | servers and agents |
//! | `surface` | the paths and methods |
//! | `session` | the id of a session at the gateway: the endpoint and the server's own id, sealed |
//! | `filter` | one exchange: the order of all the rest; in `filter/federated.rs` for several servers under one name |
//! | `admission` | key, tool, header and rates of a message |
//! | `response` | a list of tools while it passes, and the session of a response |
//! | `refusal` | refusals as errors of JSON-RPC |
//! | `account` | usage record and counters of a message |

mod account;
mod admission;
mod filter;
mod refusal;
mod response;
mod session;
pub(crate) mod settings;
mod surface;

use std::sync::Arc;

use weir_http::HttpUpstream;
use weir_upstream::affinity_hash;

pub(crate) use self::{account::AgentMetrics, filter::AgentFilter, surface::is_agent_path};

/// The endpoints of an upstream by the hashes of their addresses, in the order of its settings.
pub(crate) type EndpointHashes = Arc<[u64]>;

/// The hashes of the endpoints of an upstream: the same on each worker, whatever the order of the configuration.
pub(crate) fn endpoint_hashes(upstream: &HttpUpstream) -> EndpointHashes {
    upstream.settings().endpoints.iter().map(|endpoint| affinity_hash(endpoint.to_string().as_bytes())).collect()
}
