//! Routing: facts of an HTTP request become a route, and what the route says about the request's target. No I/O, no clock.
//!
//! | module | concept |
//! |---|---|
//! | [`facts`] | the facts of a request: [`RequestFacts`] |
//! | [`host`], [`path`], [`condition`], [`text`] | conditions of a route on host, path, method, headers, query, one value |
//! | [`route`] | a route, and the order of precedence |
//! | [`table`] | all routes of a listener: [`RouteTable::find`] |
//! | [`explain`] | why it was this route |
//! | `shadow`, `reach` | routes that no request can have |
//! | [`rewrite`], [`redirect`] | another path, another host; the Location of a redirect |
//! | [`split`] | weighted choice among targets |
//! | [`variables`] | header values with `%VARIABLES%` |
//!
//! The order in which routes are tried is computed once, when a table is built, and it is total: no two runs and no two
//! machines differ. The host decides first and finally: see [`table`].
//!
//! Costs: a lookup allocates nothing (except for repeated headers, see [`RequestFacts::header`]). Host and exact path are a
//! hash each, prefixes one binary search; regexes of the host are tried one by one, so a few hundred of them are felt.
#![forbid(unsafe_code)]

pub mod condition;
mod error;
pub mod explain;
pub mod facts;
pub mod host;
pub mod limits;
pub mod path;
mod prefixes;
mod reach;
pub mod redirect;
pub mod rewrite;
pub mod route;
mod shadow;
pub mod split;
pub mod table;
pub mod text;
pub mod variables;

pub use error::RouteError;
pub use facts::RequestFacts;
pub use route::Route;
pub use table::RouteTable;
