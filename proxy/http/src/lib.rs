//! The HTTP session: where listener, codec, route and upstream meet.
//!
//! The path of one request, top to bottom: a head arrives (`http1`, `http2`), is judged and made ready to go on (`exchange`,
//! `forward`), takes a lane of the upstream, and head and bodies flow both ways at once (`relay`) until both are over.
//!
//! | file | concept |
//! |---|---|
//! | `settings` | what an operator may choose |
//! | `service` | one listener on one worker: settings, upstream, connections |
//! | `connection` | one client connection, its end, and how it is told to end |
//! | `http1` / `http2` | how clients of each version bring their requests |
//! | `client` | what an exchange needs of its client, whatever version that speaks |
//! | `input` | bytes of a connection that are received and not spent yet |
//! | `exchange` / `answer` | one request; what comes back |
//! | `buffering` / `kept` | uploads that are read before an origin is asked; a body in memory |
//! | `grpc` | what gRPC adds |
//! | `routing` | from a request to its route |
//! | `facts` / `routes` | what a request tells the routes / what they do with it |
//! | `variables` | what stands in header values for something of the request |
//! | `explain` | which route takes a request, and why, for operators |
//! | `policies` | what is asked of a request before it goes anywhere |
//! | `forward` | what the gateway changes in a head |
//! | `attempt` / `retry` | one try to have a request answered; when another one is made |
//! | `affinity` | what keeps requests together at one endpoint |
//! | `origin` | the origin's side of an exchange, whatever version of HTTP it speaks |
//! | `relay` / `wire` | bodies, both ways at once; how HTTP/1.1 frames them |
//! | `subrequest` | requests that the gateway makes for itself |
//! | `ext_auth` | another service decides on a request |
//! | `jwks` | keys of tokens, fetched from who issues them |
//! | `fault` | failures made on purpose |
//! | `mirror` | copies of requests for a second upstream |
//! | `compression` | answers compressed for clients that take that |
//! | `cookies` | what changes in the cookies that origins set |
//! | `tunnel` / `ends` | WebSocket: frames both ways behind a 101; where they come from and go |
//! | `refusal` / `date` | every way to say no, in HTTP's words; the Date of answers of the gateway's own |
//! | `probe` | whether an origin answers |
//! | `access` | what the access log and the metrics of routes say of a request |
//! | `trace` | request id and trace context |
//! | `metrics` | the cells this room writes |

#![forbid(unsafe_code)]

mod access;
mod affinity;
mod answer;
mod attempt;
mod buffering;
mod client;
pub mod compression;
mod connection;
pub mod cookies;
mod date;
mod ends;
mod exchange;
pub mod explain;
pub mod ext_auth;
mod facts;
pub mod fault;
mod forward;
mod grpc;
mod http1;
mod http2;
mod input;
pub mod jwks;
mod kept;
mod metrics;
mod mirror;
mod origin;
pub mod policies;
mod probe;
mod refusal;
mod relay;
pub mod retry;
pub mod routes;
mod routing;
mod service;
pub mod settings;
mod subrequest;
mod trace;
mod tunnel;
mod variables;
mod wire;

pub use http2::origin::{Http2Connection, Http2OriginSettings, Http2Origins};
pub use probe::{HttpProbe, Question};
pub use service::{HttpUpstream, Service};
