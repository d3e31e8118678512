//! The two logins of the gateway as machines, with a small blocking shell: real clients log in at one, the other logs in at
//! real servers.

mod client;
mod server;
mod shell;
