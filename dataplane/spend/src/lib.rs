//! Spend: the right to use a model, its rate and its budget; and a durable account of both.
//!
//! | module | concept |
//! |---|---|
//! | [`keys`] | virtual keys, an immutable snapshot of them, and those that the admin API has issued |
//! | [`policy`] | facts of a request become a verdict (pure) |
//! | [`denial`] | refusals with status, type, code and whether an SDK may retry |
//! | [`prices`] | tokens become money, in integers |
//! | [`rate`] | requests and tokens per minute |
//! | [`budget`] | budgets per day and month: reserve, then settle |
//! | [`journal`] | budgets survive the process |
//! | [`usage`] | one line per request, which adds up to the budgets |
//! | [`meter`] | the order of all these on a worker |
//! | [`shared`] | budgets that several gateways share |
//!
//! The crate knows no HTTP and no dialect of a provider. Time is an argument; the only I/O is that of `journal`, `usage` and
//! the file of issued keys.
#![forbid(unsafe_code)]

pub mod amount;
pub mod budget;
pub mod denial;
mod glob;
pub mod journal;
pub mod keys;
pub mod meter;
pub mod policy;
pub mod prices;
pub mod rate;
pub mod shared;
pub mod usage;

pub use amount::{Amount, Tokens, estimate};
pub use denial::{Denial, Exhausted};
pub use glob::{Glob, GlobError};
