//! The flags session, without I/O and without a clock: the state of an environment, its evaluation, and the documents for clients.
//!
//! Sources: unleash-server 7.5, Unleash Edge 19.15, the engine Yggdrasil 0.21 and the client specification 6.1.0, which
//! `tests/it/specification.rs` runs.
//!
//! | file | concept |
//! |---|---|
//! | [`token`] | [`Token`]: type, environment, projects; the API that it may use; its display |
//! | [`token_table`] | [`TokenTable`]: tokens that are good, bad or unknown, and their validation |
//! | [`projects`] | [`Projects`]: a set of projects, or all; the fewest tokens that see everything |
//! | [`state`] | [`FlagState`]: the flags of an environment, from documents and events of several tokens |
//! | [`history`] | [`History`]: the last changes, for clients that know an earlier revision |
//! | [`snapshot`] | [`Snapshot`]: a state compiled once, which all workers read |
//! | `compile.rs`, `rule.rs`, `condition.rs`, `variant.rs`, `parent.rs` | flags as an evaluation reads them |
//! | `values.rs` | the values of a context by number |
//! | `murmur.rs`, `text_set.rs`, `network.rs` | hashes of rollouts, sets of texts, networks |
//! | [`frontend`] | [`Decisions`]: which flags are on for a context, their entity tag and their document |
//! | [`client`] | the document of all flags for SDKs that evaluate themselves |
//! | [`delta`] | changes for a client of `/delta` and of `/streaming` |
//! | [`metrics`] | sums of metrics by hour, batches for the upstream, the wait until the next |
//! | [`limits`] | every bound with its reason |
//!
//! The path of one evaluation: [`Snapshot::decide`] numbers the values of the context, runs the rules of each flag in the scope of the token
//! and notes the result of each in a list. The entity tag is a hash of that list, so a client that has the response gets a 304 before anything is
//! written. [`Decisions::write`] copies a text for each result, which the compilation has prepared. Nothing is allocated per flag.

#![forbid(unsafe_code)]

pub mod client;
mod compile;
mod condition;
pub mod delta;
pub mod frontend;
pub mod history;
pub mod limits;
pub mod metrics;
mod murmur;
mod network;
mod parent;
pub mod projects;
mod rule;
pub mod snapshot;
pub mod state;
mod text_set;
pub mod token;
pub mod token_table;
mod values;
mod variant;

pub use compile::Warning;
pub use frontend::{Decisions, Listing};
pub use history::History;
pub use projects::{Projects, minimal};
pub use snapshot::{Scope, Snapshot};
pub use state::{FlagState, Refused, first_own_revision};
pub use token::{Api, Token, TokenError, TokenType};
pub use token_table::{Standing, TokenTable};
