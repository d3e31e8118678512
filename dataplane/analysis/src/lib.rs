//! Analysis: a message becomes facts. No I/O, no clock, no decisions; what to do about a fact is the session's and the
//! policy's business.
//!
//! | module | input | facts |
//! |---|---|---|
//! | [`redis`] | command name and arguments | command, class, access, arity, keys |
//! | [`postgres`] | text of a query | statements: class, effects on the session, tables, functions, fingerprint |
//! | [`mongodb`] | body of a MongoDB command | command, class, collections, JavaScript, shape |
//! | [`ai`] | body of an AI request | model, limits, attribution, tools, prompts |
//! | [`http`] | path, authority, query and Cookie of a request | the one form of each that is matched and forwarded |
//!
//! The Redis command table is generated from what real servers say about themselves (`redis/table.rs`); what they
//! cannot say, how a gateway must treat a command, is written by hand with a reason per entry (`redis/class.rs`).
//!
//! Costs: a lookup of a command allocates nothing and probes a compile-time hash index about once; keys are kept as
//! ranges, so a request with a million keys costs no more than one with a single key. A path or host that is already in
//! its one form is scanned once and borrowed.
#![forbid(unsafe_code)]

pub mod ai;
pub mod http;
pub mod mongodb;
pub mod postgres;
pub mod redis;
