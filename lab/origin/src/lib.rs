//! Origins: synthetic back ends of the lab, on the same engine as the gateway they stand behind.
//!
//! An origin speaks the whole wire protocol and does almost no work, so that what is measured in front of it is the
//! gateway. It is for demos, tests and capacity runs on one machine; it is not a database: nothing is stored on disk.
//!
//! | module | protocol |
//! |---|---|
//! | [`ai`] | OpenAI's and Anthropic's HTTP APIs: texts, events, calls and usage that follow from the request, and a ledger of what was billed |
//! | [`flags`] | Unleash's client API: feature flags that change, deltas, events, tokens, and a ledger of what was requested |
//! | [`http`] | HTTP/1.1, HTTP/2 by prior knowledge: fixed replies of any size; WebSocket: echo |
//! | [`mongodb`] | MongoDB's OP_MSG: documents that follow from the request, cursors, transactions, fail points |
//! | [`postgres`] | PostgreSQL 3.0: rows that follow from the request, transaction blocks, prepared statements |
//! | [`redis`] | RESP2 and RESP3: a small store in memory, or fixed replies |
//! | [`tcp`] | TCP: every byte comes back |
//!
//! [`relay`] is what may stand between clients and an origin in the place of a gateway: the least that one can cost.
#![forbid(unsafe_code)]

pub mod ai;
mod delayed_replies;
pub mod flags;
pub mod http;
mod input;
pub mod mongodb;
pub mod postgres;
pub mod redis;
pub mod relay;
mod server;
pub mod tcp;

pub use server::{Origin, OriginStats};
