//! The MongoDB session: a state machine from messages to messages, without I/O.
//!
//! The path of one request, top to bottom: its body becomes a command (`request`), the handshake and logins are answered here (`hello`,
//! `login`), pins decide whether one server alone can have it (`route`, `pins`), and its reply is checked and changes the pins
//! (`exchange`, `session`). Bytes of requests and replies pass as they came. `LIFECYCLE.md` describes states, owners and invariants. The
//! shell is `weir-mongodb`.
//!
//! | file | concept |
//! |---|---|
//! | `session` | one client: requests in, the next task of the shell out |
//! | `request` | a request, and a reply in its form |
//! | `face` | the server that clients see |
//! | `hello` | hello: its fields, its reply |
//! | `monitor` | a hello that waits for a change |
//! | `users` | users, and the owners of cursors and transactions |
//! | `login` | the login of a client |
//! | `server_login` | the gateway's own login at a server |
//! | `server_hello` | facts of a server, from its reply to hello |
//! | `route` | which server a command may have |
//! | `exchange` | one request and its replies |
//! | `pins` | cursors and transactions, and their servers |
//! | `refusal` | every way to say no, in MongoDB's words |
//! | `io` | the interface between a session and its shell |

#![forbid(unsafe_code)]

mod exchange;
pub mod face;
pub mod hello;
pub mod io;
pub mod login;
mod monitor;
pub mod pins;
mod refusal;
mod request;
mod route;
pub mod server_hello;
pub mod server_login;
mod session;
pub mod users;

pub use io::Io;
pub use monitor::{AWAIT_MAX, STREAM_AWAIT_MIN};
pub use refusal::Refusal;
pub use request::{Asker, Form, Request};
pub use route::{ENDED_SESSIONS_MAX, KILLED_CURSORS_MAX, ReadMode, Want};
pub use session::{AfterRelay, AfterReply, Leave, Lost, Next, Session};
