//! The edge of feature flags: a listener that speaks the API of Unleash and of its edges, in front of an Unleash server or a file.
//!
//! It stands on `weir-http`, which has no word of flags: a handler serves each request. The pure parts are elsewhere: documents in
//! `weir-flags-codec`; tokens, evaluation, deltas and sums in `weir-flags-session`. States and invariants: `LIFECYCLE.md`.
//!
//! The path of a request, top to bottom: `handler` finds the endpoint (`surface`) and the rights of its token (`access`), and an API
//! responds from the immutable state that all workers share (`edge`, `environment`). The keeper on the first worker replaces that state.
//!
//! | file | concept |
//! |---|---|
//! | `settings` / `limits` | settings of a listener; limits with their reasons |
//! | `service` / `http` | a listener on one worker; the HTTP listener that it stands on |
//! | `edge` | the state that all workers share of a listener, and its replacement |
//! | `environment` / `document` | the flags of an environment, and the documents that are made of them once |
//! | `selector` / `recent` / `results` | parts that queries select; things that are kept while they have room; results in codings |
//! | `flight` | work that is done once for all who want its result at the same time |
//! | `handler` / `surface` / `access` / `reply` | one request; paths and methods; rights; responses |
//! | `client_api` / `streaming` | the API of SDKs that evaluate flags; changes as events |
//! | `frontend_api` / `ofrep` | the APIs of SDKs that get results: Unleash's, and OpenFeature's |
//! | `metrics_api` / `usage` | metrics and registrations of clients; their counts for operators |
//! | `validate_api` / `backstage` | rights of tokens for other edges; endpoints for operators |
//! | `shares` | places that the sources of requests share |
//! | `counts` / `metrics` | counts of all workers; the cells that this room writes |
//! | `identity` | names of this process |
//! | `keeper` | the task that fetches flags, validates tokens, and sends metrics |

#![forbid(unsafe_code)]
// A refusal ends a request, and a box would cost more than its moves.
#![allow(clippy::result_large_err)]

mod access;
mod backstage;
mod client_api;
mod counts;
mod document;
mod edge;
mod environment;
mod flight;
mod frontend_api;
mod handler;
mod http;
mod identity;
mod keeper;
mod limits;
mod metrics;
mod metrics_api;
mod ofrep;
mod recent;
mod reply;
mod results;
mod selector;
mod service;
pub mod settings;
mod shares;
mod streaming;
mod surface;
mod usage;
mod validate_api;

pub use edge::Edge;
pub use service::Service;
