//! Policy: facts and rules become a verdict. No I/O, no clock.
//!
//! | module | facts | verdict |
//! |---|---|---|
//! | [`http`] | head of a request, its peer; the policies of a listener or route | a response of the gateway's own, or none |
//! | [`mongodb`] | class, collections and JavaScript of a command; the rules of a user | whether the user may run it |
//! | [`postgres`] | statements of a text; the rules of a user | whether the user may run it |
//! | [`redis`] | command, keys, channels of a request; a user's rules | whether the user may run it |
//!
//! Rules are read and compiled once, when a configuration is loaded. Asking costs a bit test for the command and a match
//! per key; a user without restrictions is known as such and not checked at all.
#![forbid(unsafe_code)]

pub mod http;
mod limits;
pub mod mongodb;
pub mod postgres;
pub mod redis;
mod star;
