//! The admin server: probes, metrics and the JSON API, on a thread and a tokio runtime of its own.
//!
//! It reads what the workers publish and never makes them wait, so it responds while they are saturated.
//! The binary implements [`Gateway`] and calls [`AdminServer::start`].
//!
//! | path | response |
//! |---|---|
//! | `/livez` `/readyz` `/startupz` | 200 or 503, each check by name; `?verbose` adds the details |
//! | `/metrics` | Prometheus text |
//! | `/api/v1/...` | JSON; `/api/v1/openapi.json` describes it, made from the same table as the router |
//!
//! Access: without a token the server binds only to loopback, and refuses a request whose `Host` is not a loopback name
//! or whose `Origin` is another site, so that a web page cannot reach it through a browser. With a
//! token, everything but the index and the probes requires `Authorization: Bearer`, compared in constant time.
//!
//! A `POST` without parameters takes no body, or an empty JSON object. Bodies are `application/json`: another type, such as that of an
//! HTML form, is refused.
//!
//! How much: see [`limits`]. One deadline covers a whole request head, one a whole response, and a silent
//! connection makes room for a newcomer when the seats are full.
#![forbid(unsafe_code)]

mod document;
mod gateway;
mod guard;
mod handlers;
pub mod limits;
mod problem;
mod process;
mod routes;
mod seats;
mod server;
mod settings;
pub mod status;
mod stream;

pub use document::openapi_document;
pub use gateway::{BoxFuture, Gateway};
pub use guard::AdminAccess;
pub use problem::Problem;
pub use server::{AdminServer, AdminStopper, bind};
pub use settings::{AdminSettings, Deadlines, StartError};
