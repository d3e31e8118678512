//! An Unleash server that has none: an upstream of feature flags whose data sets are known, and that changes when it is to.
//!
//! | path | reply |
//! |---|---|
//! | GET `/api/client/features`, `/api/client/features/NAME` | the flags that the token may see, with `ETag: "<query>:<revision>:v1"`; 304 |
//! | GET `/api/client/delta` | the events behind the revision in `If-None-Match`, or all flags as one |
//! | GET `/api/client/streaming` | the same as server-sent events, and each change as it comes |
//! | GET, POST `/api/frontend` | the flags of the unchanged data set that are on for the context: 501 once a flag has changed |
//! | POST `/edge/validate` | those of the tokens that are valid |
//! | POST `/api/client/register`, `/metrics`, `/metrics/bulk` | 202; the ledger has them |
//! | GET `/health`, `/requests` | that it serves, and the number of requests so far |
//!
//! Tests control it by further paths, which no token protects:
//!
//! | path | effect |
//! |---|---|
//! | GET, DELETE `/lab/ledger` | the requests since the start or the last DELETE; see [`Ledger`] |
//! | POST `/lab/edit?environment=E&count=N` | so many edits of the flags, one after the other |
//! | PUT `/lab/features?environment=E` | the document in the body takes the place of all flags and segments |
//! | POST `/lab/events?environment=E` | `{"events":[…]}` of a delta changes flags and segments; revisions are those of the origin |
//! | POST `/lab/broadcast` | the body goes to all open streams as it is |
//! | PUT, DELETE `/lab/faults` | `{"faults":[…]}`: replies that go wrong; see [`Fault`] |
//! | PUT `/lab/tokens` | `{"tokens":[…]}` as in a reply of `/edge/validate`: these are valid from now on, and no others |
//! | DELETE `/lab/streams` | all open streams end |
//!
//! ```no_run
//! use weir_origin::flags::{FlagsOriginSettings, start};
//!
//! let origin = start(FlagsOriginSettings::default())?; // 350 flags, 127.0.0.1, any free port
//! println!("curl -H 'Authorization: *:development.lab-backend' http://{}/api/client/features", origin.addresses()[0]);
//! origin.stop()?;
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! Flags and evaluations go out as gzip where the client takes that.
//!
//! It differs from unleash-server 7.5 in this: deltas and streams exist, segments are never put into constraints, and no token is kept in
//! a database.
//!
//! | file | concept |
//! |---|---|
//! | `settings`, `server`, `connection` | options; workers; one connection: requests in, replies out |
//! | `route`, `respond`, `control` | the endpoint of a request; the replies of the API; those of the paths for tests |
//! | `token`, `scope` | tokens and their rights; the flags of a token and a prefix |
//! | `state`, `environment`, `edit` | all that workers share; flags, segments and events of an environment; changes over time |
//! | `document`, `frontend` | flags as bytes; those that are on for a context |
//! | `streaming` | events on an open connection |
//! | `fault`, `ledger` | replies that go wrong; requests so far |

mod connection;
mod control;
mod document;
mod edit;
mod environment;
mod fault;
mod frontend;
mod ledger;
mod respond;
mod route;
mod scope;
mod server;
mod settings;
mod state;
mod streaming;
mod token;

pub use crate::server::{Origin, OriginStats};
pub use fault::Fault;
pub use ledger::Ledger;
pub use server::start;
pub use settings::{CONNECTIONS_MAX, FlagsOriginSettings, REQUEST_BYTES_MAX};
pub use token::{Token, TokenKind};
pub use weir_flagsets::DataSet;
