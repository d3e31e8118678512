//! The two logins of the gateway as machines, with a small blocking shell: real clients log in at one, the other logs in at
//! real servers. And logins of real clients through the gateway itself.

mod binding;
mod client;
mod lookup;
mod rules;
mod server;
mod shell;
pub(crate) mod through;
mod userlist;
