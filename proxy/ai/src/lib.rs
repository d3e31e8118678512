//! The AI gateway: a listener that speaks OpenAI's and Anthropic's APIs, in front of providers of language models.
//!
//! It stands on `weir-http`, which has no word of models: each exchange has a filter ([`weir_http::filter`]). The pure parts are
//! elsewhere: facts of a body in `weir-analysis`, edits and streams in `weir-ai-session`, keys, prices and budgets in `weir-spend`.
//! States and invariants: `LIFECYCLE.md`.
//!
//! | file | concept |
//! |---|---|
//! | `settings` | settings of a listener, of a provider, of the account |
//! | `service` | a listener on one worker, around an HTTP listener |
//! | `http` | the settings of that HTTP listener |
//! | `spend` | budgets and usage log of the process |
//! | `share` | the state that all listeners share on one worker |
//! | `worker` | the state that all filters of a listener share on one worker |
//! | `filter`, `filter/settle` | one exchange: the order of all the rest; its bill |
//! | `surface` | the paths and methods of the APIs |
//! | `credentials` | the key of a client, and the key of a provider in its place |
//! | `attribution` | user, agent, conversation and tags of a request by fields of its head |
//! | `ring` | the keys of a listener, those that the admin API has issued among them |
//! | `plan` | the targets of a model, in the order in which they are tried |
//! | `balance` | that order by the time to the first token, or by price |
//! | `stored` | the upstreams that made stored responses |
//! | `admission` | key, policy, rates and budgets of a request |
//! | `cache` | the exact cache: a response serves equal requests |
//! | `translate`, `translated` | the translation of an attempt between the dialects of client and provider: its request, its response |
//! | `response` | the response of a provider while it passes, and its usage |
//! | `retry_after` | the pause that a provider demands |
//! | `web_page` | requests that a web page of a foreign site makes a browser send |
//! | `agents` | servers of MCP and agents of A2A, with filters of their own |
//! | `account` | settlement and usage record of a request that is over |
//! | [`store`] | budgets that several gateways share in a Redis server |
//! | `recent` | the last requests, for the admin API, and their bodies if an operator wants so |
//! | `connection` | the connection as the admin API shows it |
//! | `error` | refusals in the form of the dialect |
//! | `models`, `model_list` | the list of models: the gateway's own, and that of a provider without those that a key may not use |
//! | `metrics` | the cells that this room writes |

#![forbid(unsafe_code)]
// A refusal of 128 bytes ends a request, and a box would cost more than its moves.
#![allow(clippy::result_large_err)]

mod account;
mod added_fields;
mod admission;
mod agents;
mod attribution;
mod balance;
mod cache;
mod connection;
mod credentials;
mod error;
mod filter;
mod http;
mod metrics;
mod model_list;
mod models;
mod plan;
mod recent;
mod response;
mod retry_after;
mod ring;
mod service;
pub mod settings;
mod share;
mod spend;
pub mod store;
mod stored;
mod surface;
mod translate;
mod translated;
mod web_page;
mod worker;

pub use cache::{Evictions, ResponseCache};
pub use recent::{RecentBodies, RecentBody, RecentMessage, RecentRequest, RecentRequests};
pub use service::{AiUpstream, Service};
pub use share::WorkerShare;
pub use spend::{Spend, SpendError};
pub use stored::StoredResponses;
