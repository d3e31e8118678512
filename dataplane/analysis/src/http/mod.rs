//! Facts of an HTTP request that routing and policy are decided on.
//!
//! | module | part of the request | fact |
//! |---|---|---|
//! | [`path`] | path of the target | normalised path: the one that is matched *and* forwarded |
//! | [`host`] | Host, `:authority` | canonical host, port |
//! | [`query`] | query of the target | names and values |
//! | [`cookie`] | Cookie | value of a named cookie |
//!
//! Two spellings of one resource must not be judged by one spelling and served by the other. So a part has one form, and
//! what could be read in two ways by the servers behind is refused with a name.

pub mod cookie;
pub mod host;
pub mod path;
mod percent;
pub mod query;
