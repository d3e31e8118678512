//! The Redis session: a state machine from bytes to verdict and reply, without I/O.
//!
//! The path of one command, top to bottom: bytes are parsed and judged (`session`), ride a shared lane or the client's own
//! ([`Io`]), and the reply goes out in the order of the requests. The other modules have no I/O either: the registry of
//! subscriptions, the table of keys that clients have read, the reply cache, a worker's record of its requests.
//! `LIFECYCLE.md` describes the states, owners and invariants of a session. The shell is `weir-redis`.
//!
//! | file | concept |
//! |---|---|
//! | `settings` | options that an operator may choose |
//! | `io` | the interface between a session and its shell |
//! | `lane` | lanes to servers by name, and the frames that come on them |
//! | `session` | bytes in, what to do next |
//! | `request` / `state` | one command; what is known between two of them |
//! | `judge` | the class of a command, whether it may pass, and which way it goes |
//! | `access` | permissions of the client's user |
//! | `users` / `login_failures` | users that may log in, and their counts over all workers; sources of wrong passwords |
//! | `forward` | requests to the upstream, replies back |
//! | `spread` | where a command goes: whole to a shard, in parts to some, or to all |
//! | `shards` / `gather` | commands over shards; the replies of several become one |
//! | `redirect` | nodes of a cluster that send a request elsewhere |
//! | `cluster` | the cluster as one node, for clients that ask |
//! | `batch` | plain commands that leave as one |
//! | `ordering` | replies in the order of requests |
//! | `spares` | memory that a session has only while it needs it |
//! | `cache` | replies kept for as long as they hold |
//! | `pin` / `pin_reason` | when a client needs a lane of its own, and when no longer; the reasons |
//! | `stream` | commands too large to hold |
//! | `transaction` / `exec_reply` | MULTI … EXEC, queued here and sent as one unit; its reply |
//! | `subscription` | SUBSCRIBE and its kin, and messages between replies |
//! | `pubsub` | the subscriptions of all clients of a worker, shared |
//! | `tracking` | CLIENT TRACKING: clients that keep what they read |
//! | `tunnel` | MONITOR |
//! | `info` | INFO, with a section of the gateway's own |
//! | `pause` / `client_pause` | the pause of a listener; CLIENT PAUSE, and commands that wait for its end |
//! | `local` / `hello` / `client` / `acl` / `database` / `local_replies` | commands that the gateway answers itself, and where |
//! | `insight` | the record that a worker keeps of its requests: hot keys, big keys, slow ones |
//! | `client_filter` | which clients CLIENT LIST and CLIENT KILL mean |
//! | `unblock` | CLIENT UNBLOCK: the server releases a client that waits at it |
//! | `invariants` | the rules that hold between two events |
//! | `moving` | a connection goes to another process, at an upgrade |
//! | `refusal` | every way to say no, in Redis's words |

#![forbid(unsafe_code)]

mod access;
mod acl;
mod batch;
pub mod cache;
pub mod client;
mod client_filter;
mod client_pause;
mod cluster;
mod database;
mod exec_reply;
mod forward;
mod gather;
mod hello;
mod info;
pub mod insight;
mod invariants;
pub mod io;
mod judge;
pub mod lane;
mod local;
mod local_replies;
mod login_failures;
pub mod moving;
mod ordering;
mod pause;
mod pin;
mod pin_reason;
pub mod pubsub;
pub mod redirect;
pub mod refusal;
mod request;
pub mod session;
pub mod settings;
mod shards;
pub mod spares;
mod spread;
mod state;
mod stream;
mod subscription;
pub mod tracking;
mod transaction;
mod tunnel;
mod unblock;
pub mod users;

pub use invariants::HeldLanes;
pub use io::Io;
pub use pin_reason::PinReason;
pub use session::{Next, Session};
pub use spares::Spares;
