//! The hitless upgrade: a new process of the program takes the listening sockets, then the old one drains.
//!
//! | file | concept |
//! |---|---|
//! | `program` | which file is started |
//! | `message` | messages between the two processes, and the sockets that go along |
//! | `connection` | a client's connection that moves |
//! | `orders` | orders of operators that the new process goes on with |
//! | `successor` | the new process as the old one sees it: started, waited for, killed if it does not come |
//! | `predecessor` | the old process as the new one sees it |
//! | `ask` | `weir upgrade`: asks a running gateway and waits for the outcome |
//!
//! The new process gets one end of a channel as its standard input (`weir_engine::handover` says why). Then:
//!
//! | step | from | says | meaning |
//! |---|---|---|---|
//! | 1 | old | `hello`, `sockets` | the identity of the old process; the listening sockets |
//! | 2 | new | `ready` | configuration read, workers run, addresses bound: I could serve, and have accepted nothing |
//! | 3 | old | `take`, `orders` | do, and go on with these orders; the journal of budgets is yours. I take no order of operators until 4 |
//! | 4 | new | `serving` | I have the journal, accept, and take orders. Pauses go to the old one too, in `paused` |
//! | 5 | old | `connection` | accepts no more; each connection without TLS moves in its first quiet moment, the others drain |
//! | 6 | old | | the end of the channel tells the new one that it has ended |
//!
//! Until step 5 the old one accepts and can go on as if nothing had happened; it takes the journal back. The new one may instead of 2 or 4 say `failed` and
//! why. If the channel ends before 3, the new one ends too: two generations of processes that do not know of each other must not
//! serve at the same time.

pub mod connection;
pub mod message;
pub mod orders;
pub mod predecessor;
pub mod program;
pub mod request;
pub mod successor;

use std::net::TcpListener;

use crate::gateway::Inherited;

/// Names the process that started this one for an upgrade; its channel is standard input then.
pub const VARIABLE: &str = "WEIR_UPGRADE_FROM";

/// Sockets and state from the predecessor; empty if there was none.
#[derive(Default)]
pub struct Inheritance {
    /// Sockets of listeners, with the address as that configuration had it.
    pub listeners: Inherited,
    /// The socket of the admin server, likewise.
    pub admin: Option<(String, TcpListener)>,
    /// How many upgrades led to this process.
    pub restart_epoch: u64,
    /// Numbers of connections below this one belong to the processes before.
    pub first_connection_id: u64,
    /// Process id of the one before.
    pub predecessor: Option<u32>,
    /// The one before takes orders for its clients while it drains.
    pub takes_orders: bool,
}
