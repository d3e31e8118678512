//! Requests and tokens per minute, shared by all workers.
//!
//! A [`Bucket`] is one number: the time at which all that was taken will have been earned (the generic cell rate algorithm,
//! ITU-T I.371, in its form of virtual scheduling). To take is one atomic exchange, so no worker has a share of its own and
//! a client with one connection gets the whole limit.
//!
//! **Error bound.** The exchange is exact: takes have one order. In any span of `t` seconds at most
//! `burst + limit x (t + s) / 60` requests are admitted, where `s` is the difference between the clocks that the workers
//! pass in: the length of a loop turn, a few milliseconds. For tokens, at most one request more, the one that brings
//! the bucket into debt, and what settlements in the span give back of requests from before it. `tests/it/rates.rs` holds
//! both bounds with threads.
//!
//! The limit is an argument and no part of a bucket. A reload that changes it keeps the debts.

mod bucket;
mod state;

pub use bucket::{Bucket, TokenCharge};
pub use state::{Pace, RateState, duration_text};
