//! The HTTP session: where listener, codec, route and upstream meet.
//!
//! The path of one request, top to bottom: a head arrives (`http1`, `http2`), passes the stages of `exchange`, takes a lane of the
//! upstream (`dispatch`), and head and bodies flow both ways at once (`attempt`) until both are over. Each file uses files below its
//! own stage only: there is no cycle among them. States, owners and invariants: `LIFECYCLE.md`.
//!
//! | file | concept |
//! |---|---|
//! | `limits` / `options` / `settings` | limits with their reasons; options of listeners and routes; the settings of a listener |
//! | `service` / `reload` | one listener on one worker; the state that new settings take over |
//! | `serve` | the life of a connection, in the version of its client |
//! | `connection` | one client connection, and the wakers of its tasks |
//! | `http1` / `http2` | clients of each version, and how their requests arrive |
//! | `client` | the client's side of an exchange, for every version of HTTP |
//! | `input` | received bytes of a connection that are not consumed yet |
//! | `exchange` | one request and its response, as a list of stages |
//! | `request_context` | the properties of a request that decide its handling |
//! | `routing` / `policy_check` | route, judge: the route of a request; the policies of that route in their order |
//! | `facts` / `routes` / `destination` | the facts of a request for the routes; their actions; the destination of a request |
//! | `policies` | the policies of a route |
//! | `buffering` / `buffered_body` / `body_change` | inspect: bodies that are read before an origin gets the request; a body in memory; the change with which it goes on |
//! | `choice` | the choice of a filter: the upstream, its head and its body |
//! | `upstream_request` / `dispatch` | attempt: the state that the attempts of a request share; a lane for each |
//! | `attempt` / `failure` / `retry` | one attempt at a request; its outcome; retries |
//! | `fallback` | after a failed attempt the filter may choose again |
//! | `response_relay` | respond: the response of an origin on its way to the client |
//! | `remainder` | the rest of a response whose client has left, for its filter |
//! | `local_reply` / `respond` / `local_response` | responses without an upstream |
//! | `completion` / `access` / `access_notes` | settle: the counters and the log line of an exchange that is over |
//! | `filter` | HTTP filters and handlers: another room takes part in the exchanges of a route |
//! | `filter_handle` / `body_inspection` / `taps` / `handler` | the filter of an exchange, with its last call; a request body under inspection; a response body that is followed or edited; a request served by a handler |
//! | `held_body` | a response body that is held whole, so that its filter can replace it |
//! | `stopwatch` | the time of an exchange in its phases, for its filter |
//! | `wait` | waits that end when the client disconnects |
//! | `grpc` | statuses, timeouts and trailers of gRPC |
//! | `variables` | variables of header values |
//! | `explain` | the route of a request, and the reason, for operators |
//! | `forward` | changes of a request head on its way |
//! | `affinity` | session affinity: requests that go to the same endpoint |
//! | `upstream` / `origin` | upstreams and their lanes; the origin's side of an exchange, whatever version of HTTP it speaks |
//! | `body` / `upload` / `http1_body` | bodies, their sources and sinks; a request body on its way; framing of HTTP/1.1 |
//! | `subrequest` | requests that the gateway makes for itself |
//! | `ext_auth` | an external service decides on a request |
//! | `jwks` | keys of tokens, fetched from their issuer |
//! | `fault` | fault injection |
//! | `mirror` | copies of requests for a second upstream |
//! | `compression` | responses compressed for clients that accept it |
//! | `cookies` | changes to cookies that origins set |
//! | `upgrade` | upgrades of a connection or a stream |
//! | `endpoint_responses` | the responses of an endpoint: counted, and judged for its health |
//! | `tunnel` / `tunnel_io` | WebSocket: frames both ways behind a 101; their readers and writers |
//! | `refusal` / `refusal_format` / `date` | every refusal, in HTTP's words; the form that a listener or a filter gives them; the Date of local responses |
//! | `pooled_parser` | parsers of heads whose memory serves the next message |
//! | `probe` | health checks of origins |
//! | `trace` | request id and trace context |
//! | `metrics` | the cells this room writes |

#![forbid(unsafe_code)]

mod access;
mod access_notes;
mod affinity;
mod attempt;
mod body;
mod body_change;
mod body_inspection;
mod buffered_body;
mod buffering;
mod choice;
mod client;
mod completion;
pub mod compression;
mod connection;
pub mod cookies;
mod date;
mod destination;
mod dispatch;
mod endpoint_responses;
mod exchange;
pub mod explain;
pub mod ext_auth;
mod facts;
mod failure;
mod fallback;
pub mod fault;
pub mod filter;
mod filter_handle;
mod forward;
mod grpc;
mod handler;
mod held_body;
mod http1;
mod http1_body;
mod http2;
mod input;
pub mod jwks;
mod limits;
mod local_reply;
mod local_response;
mod metrics;
mod mirror;
mod options;
mod origin;
mod own_request;
mod own_response;
pub mod policies;
mod policy_check;
mod pooled_parser;
mod probe;
mod refusal;
pub mod refusal_format;
mod reload;
mod remainder;
mod request_context;
mod respond;
mod response_class;
mod response_relay;
pub mod retry;
pub mod routes;
mod routing;
mod serve;
mod service;
pub mod settings;
mod stopwatch;
mod subrequest;
mod taps;
mod trace;
mod tunnel;
mod tunnel_io;
mod upgrade;
mod upload;
mod upstream;
mod upstream_request;
mod variables;
mod wait;

pub use http2::origin::{Http2Connection, Http2Multiplexer, Http2OriginSettings};
pub use probe::{HttpProbe, ProbeKind};
pub use service::Service;
pub use upstream::HttpUpstream;
