//! The PostgreSQL session: a state machine from bytes to bytes, without I/O.
//!
//! The path of one message, top to bottom: a client's bytes become messages (`client`), each gets an entry in the queue of
//! replies that its server owes (`outstanding`), and goes to the server as it is or under the server's names. The server's bytes are
//! followed message by message (`scan`) and go back in whole runs. With the last reply the server is judged (`checkin`) and serves
//! another client. `LIFECYCLE.md` describes states, owners and invariants. The shell is `weir-postgres`.
//!
//! | file | concept |
//! |---|---|
//! | `login` | a client from its first byte to its password: encryption, version, rules, proof |
//! | `hba` | which method of authentication a client needs, by address, user, database and TLS |
//! | `users` | passwords of users: from the configuration, a file of PgBouncer, an auth query |
//! | `server_login` | the gateway's own login at a server |
//! | `cancel_key` | keys that the gateway gives to its clients, and the connection that each names |
//! | `settings` | options that an operator may choose |
//! | `io` | the interface between a session and its shell |
//! | `session` | one client: bytes in, what to do next |
//! | `client` / `feed` | messages of a client, one by one; its input on the way to the server |
//! | `simple` / `extended` | Query; Parse, Bind, Describe, Execute |
//! | `close` | Close |
//! | `route` | which server a statement may have |
//! | `facts` | effects of a text on its session |
//! | `encoding` | texts that cannot be read in the encoding of their client |
//! | `evidence` | statements that some server has taken, for all workers |
//! | `statements` | prepared statements: texts of a worker, names of a client, slots of a server |
//! | `variables` | SET and its kin: what a client wants, what a server has, and the difference |
//! | `startup` | parameters of the startup packet, which RESET brings back |
//! | `attach` | a client gets a server, or loses it |
//! | `server` | facts of a server connection, from its login to its end |
//! | `outstanding` | the replies that a server owes, in order |
//! | `scan` / `replies` | a server's bytes, message by message; their way to the client and what they change |
//! | `tag` | command tags that show a change of the session |
//! | `retry` | a batch that runs again because its plan was outdated |
//! | `checkin` | whether a server may serve another client |
//! | `recovery` | a server that its client has left |
//! | `judge` | rules about statements |
//! | `deadline` | time limits |
//! | `slow` | statements that take longer than a limit |
//! | `pin` | why a client keeps its server |
//! | `listening` | LISTEN and NOTIFY of one client |
//! | `position` | which writes a standby has |
//! | `notify` | LISTEN for all clients of a database through one connection |
//! | `refusal` | every way to say no, in PostgreSQL's words |
//! | `share` | objects that the sessions of a worker share |

#![forbid(unsafe_code)]

mod attach;
pub mod cancel_key;
pub mod checkin;
mod client;
mod close;
mod deadline;
mod encoding;
mod errors;
mod evidence;
mod extended;
mod facts;
mod feed;
pub mod hba;
pub mod io;
mod judge;
mod listening;
pub mod login;
pub mod notify;
mod outstanding;
mod pin;
mod portals;
pub mod position;
mod recovery;
mod refusal;
mod replies;
mod retry;
mod route;
mod row_type;
mod scan;
mod server;
pub mod server_login;
mod session;
pub mod settings;
mod share;
mod simple;
mod slow;
mod startup;
mod statements;
mod tag;
mod uncommitted;
pub mod users;
mod variables;

pub use evidence::Proofs;
pub use io::Io;
pub use judge::Judge;
pub use pin::{Pin, PinReasons};
pub use recovery::{Recovered, Recovery};
pub use refusal::Refusal;
pub use route::Access;
pub use server::{CancelTarget, ServerParcel, ServerState};
pub use session::{Cleanliness, End, Next, ServerStep, Session, Taken, Want};
pub use settings::{PoolMode, SessionSettings};
pub use share::WorkerShare;
pub use slow::SlowStatement;
pub use variables::{Value, Variables, reported_name};
