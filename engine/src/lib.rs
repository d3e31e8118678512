//! The engine: one [compio](https://docs.rs/compio) runtime per core, and the byte streams that run on it.
//!
//! A connection lives on one core from accept to close (law 1). A worker is a pinned thread with its own runtime,
//! buffers, timer wheel and mailbox; nothing here takes a lock on the request path.
//!
//! | file | concept |
//! |---|---|
//! | `settings` | options that an operator may choose: workers, driver, TLS files, addresses |
//! | `driver` | io_uring or polling: the flag ladder, and which one really runs |
//! | `worker` | the thread: loop turns, CPU pinning, heartbeat, mailbox |
//! | `coalesce` | the pause in which requests gather |
//! | `host` | kernel and processor, which figures of capacity belong to |
//! | `attempt` | whether a start would get an address or a log, without a trace |
//! | `occupant` | the process that listens at an address already |
//! | `net` | sockets: bind, accept, connect, limits on descriptors |
//! | `names` | host names of servers, and the addresses that they had last |
//! | `accept` | the accept loop, error classes, hand-off to the least-loaded worker |
//! | `handover` | messages with open descriptors to another process |
//! | `socket` | a data socket: direct calls, and the epoll instance that says when |
//! | `datagram` | a UDP socket of one worker |
//! | `chunk` | received bytes, in a warm buffer |
//! | `account` | the account that an output charges for its memory |
//! | `reader` / `output` / `stream` | a connection: receive a chunk, append to the output |
//! | `before_send` | work that precedes the next bytes which leave a worker |
//! | `flush` | the sends of all outputs at the end of a turn |
//! | `traffic` | the bytes that a connection moves, counted as they flow |
//! | `tls` | rustls between the wire and the two queues |
//! | `wheel` | coarse deadlines |
//! | `timers` | precise timers of single tasks |
//! | `alarm` | the end of a worker's sleep at a time |
//! | `blocking` | work that takes milliseconds, on other threads |
//!
//! It is the only crate of the workspace that may use `unsafe`; each use says why it is sound.

#![deny(clippy::undocumented_unsafe_blocks)]

pub mod accept;
mod account;
mod alarm;
pub mod attempt;
mod batch;
mod before_send;
pub mod blocking;
pub mod chunk;
mod coalesce;
pub mod datagram;
pub mod driver;
mod flush;
mod gate;
pub mod handover;
pub mod host;
pub mod mailbox;
mod names;
pub mod net;
pub mod occupant;
pub mod output;
pub mod reader;
mod recycled;
pub mod settings;
mod socket;
pub mod stream;
mod tasks;
mod timers;
pub mod tls;
mod traffic;
pub mod wheel;
pub mod worker;

pub use account::Account;
pub use before_send::before_send;
pub use blocking::run_blocking;
pub use chunk::Chunk;
pub use coalesce::{ClientWait, note_reply_time};
pub use compio_executor::JoinHandle;
pub use driver::Driver;
pub use mailbox::{Inbox, Mailbox, mailbox, wake_elsewhere};
pub use output::Output;
pub use reader::{PeerWatch, Reader};
pub use recycled::{Recycled, RecycledBox, recycled};
pub use settings::Watermarks;
pub use stream::{Cutter, Stream, StreamOptions};
pub use tasks::spawn;
pub use timers::{sleep, timeout};
pub use traffic::Traffic;
pub use wheel::Deadline;
pub use worker::{Worker, WorkerState, deadline, yield_now};
