//! The HTTP session: where listener, codec, route and upstream meet.
//!
//! The path of one request, top to bottom: a head arrives (`http1`, `http2`), passes the stages of `exchange`, takes a lane of the
//! upstream (`dispatch`), and head and bodies flow both ways at once (`attempt`) until both are over. Each file uses files below its
//! own stage only: there is no cycle among them. States, owners and invariants: `LIFECYCLE.md`.
//!
//! | file | concept |
//! |---|---|
//! | `limits` / `options` / `settings` | limits with their reasons; what a listener and a route may choose; what a listener has chosen |
//! | `service` / `reload` | one listener on one worker; the state that new settings take over |
//! | `serve` | the life of a connection, in the version of its client |
//! | `connection` | one client connection, and how it is told to end |
//! | `http1` / `http2` | how clients of each version bring their requests |
//! | `client` | what an exchange needs of its client, whatever version that speaks |
//! | `input` | bytes of a connection that are received and not spent yet |
//! | `exchange` | one request and its response, as a list of stages |
//! | `asked` | what of a request decides on how it is answered |
//! | `routing` / `judge` | route, judge: from a request to its route; what is asked of it before it goes anywhere |
//! | `facts` / `routes` / `routed` | what a request tells the routes; what they do with it; where it goes |
//! | `policies` | the policies of a route |
//! | `buffering` / `kept` | inspect: uploads that are read before an origin is asked; a body in memory |
//! | `passage` / `dispatch` | attempt: what the attempts of a request share; a lane for each |
//! | `attempt` / `failure` / `retry` | one try to have a request answered; how it ends; when another one is made |
//! | `answer` | respond: what comes back |
//! | `local` / `respond` / `response` | responses without an upstream |
//! | `settle` / `access` / `notes` | settle: what is counted and logged of an exchange that is over |
//! | `doors` | where another room takes part in the exchanges of a route |
//! | `company` / `inspecting` / `tapped` / `handling` | the doors under way: the companion of an exchange, which hears of its end; a body looked at; a response followed or edited; a request answered here |
//! | `waiting` | waits, while the client waits |
//! | `grpc` | what gRPC adds |
//! | `variables` | what stands in header values for something of the request |
//! | `explain` | which route takes a request, and why, for operators |
//! | `forward` | what the gateway changes in a head |
//! | `affinity` | what keeps requests together at one endpoint |
//! | `upstream` / `origin` | upstreams and their lanes; the origin's side of an exchange, whatever version of HTTP it speaks |
//! | `body` / `upload` / `wire` | bodies, where they come from and go; a request's on its way; how HTTP/1.1 frames them |
//! | `subrequest` | requests that the gateway makes for itself |
//! | `ext_auth` | another service decides on a request |
//! | `jwks` | keys of tokens, fetched from who issues them |
//! | `fault` | failures made on purpose |
//! | `mirror` | copies of requests for a second upstream |
//! | `compression` | answers compressed for clients that take that |
//! | `cookies` | what changes in the cookies that origins set |
//! | `upgrade` | what a connection or a stream is to become |
//! | `endpoint_responses` | the responses of an endpoint: counted, and judged for its health |
//! | `tunnel` / `ends` | WebSocket: frames both ways behind a 101; where they come from and go |
//! | `refusal` / `date` | every way to say no, in HTTP's words; the Date of answers of the gateway's own |
//! | `probe` | whether an origin answers |
//! | `trace` | request id and trace context |
//! | `metrics` | the cells this room writes |

#![forbid(unsafe_code)]

mod access;
mod affinity;
mod answer;
mod asked;
mod attempt;
mod body;
mod buffering;
mod client;
mod company;
pub mod compression;
mod connection;
pub mod cookies;
mod date;
mod dispatch;
pub mod doors;
mod endpoint_responses;
mod ends;
mod exchange;
pub mod explain;
pub mod ext_auth;
mod facts;
mod failure;
pub mod fault;
mod forward;
mod grpc;
mod handling;
mod http1;
mod http2;
mod input;
mod inspecting;
mod judge;
pub mod jwks;
mod kept;
mod limits;
mod local;
mod metrics;
mod mirror;
mod notes;
mod options;
mod origin;
mod passage;
pub mod policies;
mod probe;
mod refusal;
mod reload;
mod respond;
mod response;
mod response_class;
pub mod retry;
mod routed;
pub mod routes;
mod routing;
mod serve;
mod service;
pub mod settings;
mod settle;
mod subrequest;
mod tapped;
mod trace;
mod tunnel;
mod upgrade;
mod upload;
mod upstream;
mod variables;
mod waiting;
mod wire;

pub use http2::origin::{Http2Connection, Http2OriginSettings, Http2Origins};
pub use probe::{HttpProbe, Question};
pub use service::Service;
pub use upstream::HttpUpstream;
