//! The shell of the Redis session: where listener and upstream meet the state machine of `weir-redis-session`.
//!
//! The logic of a session is without I/O in `weir-redis-session`; this crate owns the sockets, the lanes, the tasks and the
//! deadlines, and answers what a session asks.
//!
//! | file | concept |
//! |---|---|
//! | `service` | one listener on one worker: settings, upstream, cells |
//! | `connection` | the shell around a session: tasks, queues, deadlines |
//! | `patience` | deadlines of messages, of silence, of slow reading |
//! | `lane` | RESP on an upstream connection: greeting, framing, probe |
//! | `discovery` | reports of servers and sentinels about each other |
//! | `hub` | the subscription lanes of one upstream on one worker |
//! | `tracker` | its tracking lanes |
//! | `metrics` | the cells this room writes |
//! | `spare_lists` | memory of lists that no connection needs at the moment |

#![forbid(unsafe_code)]

mod connection;
mod discovery;
mod hub;
mod lane;
mod metrics;
mod patience;
mod service;
mod spare_lists;
mod tracker;

pub use connection::Connection;
pub use lane::RespLane;
pub use service::{RedisShare, RedisUpstream, Service};
pub use weir_redis_session::{
    insight::{self, Insight, InsightReport, InsightShare},
    moving::{MOVED_INPUT_BYTES_MAX, MovedSession},
    settings,
    users::ListenerShare,
};
