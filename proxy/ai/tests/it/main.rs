//! The AI gateway in one process: the real listener on one worker, between scripted clients and scripted providers.

mod accounts;
mod agents;
mod balance;
mod bills;
mod cache;
mod federation;
mod federation_limits;
mod gateway;
mod heads;
/// A scripted client of HTTP/2, as the tests of `weir-http` have it.
#[path = "../../../http/tests/it/http2.rs"]
#[expect(dead_code, reason = "the tests of weir-http use more of it")]
mod http2;
mod keys;
mod model_list;
mod requests;
mod stored;
mod streams;
/// The worker with scripted peers, as the tests of `weir-http` have it.
#[path = "../../../http/tests/it/support/mod.rs"]
#[expect(dead_code, reason = "the tests of weir-http use more of it")]
mod support;
mod targets;
mod translated_streams;
mod translation;
