//! The Redis session: where listener, codec, analysis and upstream meet.
//!
//! The path of one command, top to bottom: bytes arrive (`connection`), are parsed and judged (`session`), ride a
//! shared lane or the client's own ([`Io`]), and the reply goes out in the order of the requests. What a session does is
//! a state machine without I/O; `LIFECYCLE.md` tells its states, owners and invariants.
//!
//! | file | concept |
//! |---|---|
//! | `settings` | what an operator may choose |
//! | `service` | one listener on one worker: settings, upstream, cells |
//! | `connection` | the shell around a session: tasks, queues, deadlines |
//! | `patience` | deadlines of messages, of silence, of slow reading |
//! | `io` | what a session asks of its shell |
//! | `session` | bytes in, what to do next |
//! | `request` / `state` | one command; what is known between two of them |
//! | `judge` | what is a command, may it pass, which way does it go |
//! | `access` | what the client's user may do |
//! | `users` / `guesses` | who may log in, and what of it the workers count together; who gives wrong passwords |
//! | `forward` | requests to the upstream, replies back |
//! | `spread` | where a command goes: whole to a shard, in parts to some, or to all |
//! | `shards` / `gather` | commands over shards; the replies of several become one |
//! | `redirect` | nodes of a cluster that send a request elsewhere |
//! | `cluster` | the cluster as one node, for clients that ask |
//! | `batch` | plain commands that leave as one |
//! | `ordering` | replies in the order of requests |
//! | `cache` | replies kept for as long as they hold |
//! | `pin` | when a client needs a lane of its own, and when no longer |
//! | `stream` | commands too large to hold |
//! | `transaction` | MULTI … EXEC, queued here and sent as one unit |
//! | `subscription` | SUBSCRIBE and its kin, and messages between replies |
//! | `pubsub` | the subscriptions of all clients of a worker, shared |
//! | `tracking` | CLIENT TRACKING: clients that keep what they read |
//! | `tunnel` | MONITOR |
//! | `info` | INFO, with a section of the gateway's own |
//! | `pause` | CLIENT PAUSE: commands of a listener's clients wait |
//! | `local` / `hello` / `client` / `acl` | commands that the gateway answers itself |
//! | `insight` | what a worker remembers of its requests: hot keys, big keys, slow ones |
//! | `client_filter` | which clients CLIENT LIST and CLIENT KILL mean |
//! | `unblock` | CLIENT UNBLOCK: the server lets go who waits at it |
//! | `lane` | RESP on an upstream connection: greeting, framing, probe |
//! | `discovery` | what servers and sentinels say of each other |
//! | `moving` | a connection goes to another process, at an upgrade |
//! | `refusal` | every way to say no, in Redis's words |
//! | `metrics` | the cells this room writes |
//! | `simulation` | a session in a world of its own, for tests and fuzzing |

#![forbid(unsafe_code)]

mod access;
mod acl;
mod answers;
mod batch;
mod cache;
mod client;
mod client_filter;
mod cluster;
mod connection;
mod database;
mod discovery;
mod exec_reply;
mod forward;
mod gather;
mod guesses;
mod hello;
mod info;
pub mod insight;
mod io;
mod judge;
mod lane;
mod local;
mod metrics;
mod moving;
mod ordering;
mod patience;
mod pause;
mod pin;
mod pubsub;
mod redirect;
mod refusal;
mod request;
mod service;
mod session;
pub mod settings;
mod shards;
#[cfg(any(test, feature = "simulation"))]
pub mod simulation;
mod spread;
mod state;
mod stream;
mod subscription;
#[cfg(test)]
mod tests;
mod tracking;
mod transaction;
mod tunnel;
mod unblock;
mod users;

pub use cache::Cache;
pub use connection::Connection;
pub use insight::{Insight, InsightReport, InsightShare};
pub use io::{Full, Io, NoSubscription, Pinning, Sample, Ticket, Track};
pub use lane::{LaneKey, RespLane, ServerInfo};
pub use moving::{MOVED_INPUT_BYTES_MAX, MovedSession};
pub use pin::PinReason;
pub use pubsub::{Kind, Name};
pub use service::{RedisShare, RedisUpstream, Service};
pub use session::{Next, Session};
pub use tracking::Scope;
pub use users::{DEFAULT_USER, ListenerShare, OWN_LOGIN, UpstreamLogin, UserSettings, Users};
