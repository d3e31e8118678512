//! Fuzz targets as plain functions: each takes any bytes and panics if an invariant does not hold.
//!
//! The committed corpus runs through them in `cargo test`; libFuzzer finds new inputs (see `README.md`).
//! A new target is a function, a row in [`TARGETS`], a file in `targets/` with its `[[test]]`, and a corpus folder.
#![forbid(unsafe_code)]

mod ai;
mod ai_translate;
mod differential;
mod flags;
/// The gateway between scripted peers, as the tests of `weir-http` have it.
#[path = "../../proxy/http/tests/it/support/mod.rs"]
#[expect(dead_code, reason = "the tests use more of it")]
mod gateway;
mod http;
mod http2;
mod http2_connection;
mod http_exchange;
mod mcp;
mod mongodb;
mod pieces;
mod postgres;
mod postgres_session;
mod postgres_sql;
mod reply;
mod request;
mod sasl;
mod session;
mod spend;
mod tcp;
mod websocket;

pub use ai::{ai_events, ai_request, ai_usage};
pub use ai_translate::ai_translate;
pub use differential::redis_differential_reply;
pub use flags::{flags_context, flags_evaluation};
pub use http::{http_chunks, http_request, http_response};
pub use http_exchange::http_exchange;
pub use http2::http2_header_block;
pub use http2_connection::http2_connection;
pub use mcp::mcp_session;
pub use mongodb::{mongodb_bson, mongodb_inflate, mongodb_messages, mongodb_session};
pub use postgres::{postgres_messages, postgres_startup};
pub use postgres_session::postgres_session;
pub use postgres_sql::postgres_sql;
pub use reply::redis_reply_framer;
pub use request::{redis_request_parser, redis_split_invariance};
pub use sasl::{sasl_scram_client, sasl_scram_server};
pub use session::redis_session;
pub use spend::spend_journal;
pub use tcp::tcp_client_hello;
pub use websocket::{websocket, websocket_header};

/// A target: any bytes, panics on a broken invariant.
pub type Target = fn(&[u8]);

/// Every target by the name of its program and of its corpus folder. The first word is the protocol: it names the dictionary,
/// and `cargo xtask tidy` wants a target for each protocol of the gateway.
pub const TARGETS: &[(&str, Target)] = &[
    ("redis_request_parser", redis_request_parser),
    ("redis_reply_framer", redis_reply_framer),
    ("redis_differential_reply", redis_differential_reply),
    ("redis_split_invariance", redis_split_invariance),
    ("redis_session", redis_session),
    ("websocket", websocket),
    ("websocket_header", websocket_header),
    ("http_request", http_request),
    ("http_response", http_response),
    ("http_chunks", http_chunks),
    ("http_exchange", http_exchange),
    ("http2_header_block", http2_header_block),
    ("http2_connection", http2_connection),
    ("postgres_sql", postgres_sql),
    ("tcp_client_hello", tcp_client_hello),
    ("postgres_session", postgres_session),
    ("postgres_startup", postgres_startup),
    ("postgres_messages", postgres_messages),
    ("mongodb_messages", mongodb_messages),
    ("mongodb_bson", mongodb_bson),
    ("mongodb_inflate", mongodb_inflate),
    ("mongodb_session", mongodb_session),
    ("sasl_scram_server", sasl_scram_server),
    ("sasl_scram_client", sasl_scram_client),
    ("ai_events", ai_events),
    ("ai_request", ai_request),
    ("ai_usage", ai_usage),
    ("ai_translate", ai_translate),
    ("mcp_session", mcp_session),
    ("spend_journal", spend_journal),
    ("flags_context", flags_context),
    ("flags_evaluation", flags_evaluation),
];
