//! The harness of the end-to-end tests: real servers and a real gateway process on free ports, raw
//! clients for byte-exact comparison, scripted upstreams that misbehave, and the checks that every
//! test ends with (no panic in the log, every permit back, clean exit).
//!
//! TESTING.md says how the tests are run. Rules that hold for all of it:
//!
//! * a wait has a deadline and names what it waited for ([`deadline`]); nothing sleeps for luck;
//! * a missing server or gateway is a failure, never a skipped test;
//! * a process that a test starts ends with it, by process id.
#![forbid(unsafe_code)]

pub mod admin;
pub mod ai;
pub mod byte_counts;
pub mod catalogue;
pub mod certificate;
pub mod client;
pub mod cluster;
pub mod deadline;
pub mod desync;
pub mod envoy;
pub mod faulty;
pub mod flags;
pub mod gateway;
pub mod haproxy;
pub mod http;
pub mod http2;
pub mod http_origin;
pub mod import;
pub mod isolation;
pub mod lab_origin;
pub mod mcp;
pub mod metrics;
pub mod mongodb;
pub mod nginx;
pub mod parity;
pub mod port;
pub mod postgres;
pub mod process;
pub mod prometheus;
pub mod replicated;
pub mod seed;
pub mod server;
pub mod slow_reader;
pub mod soak;
pub mod stream;
pub mod suite;
pub mod tap;
pub mod tools;
pub mod traffic;
pub mod tutorial;
pub mod victim;
pub mod websocket;
pub mod wire;
