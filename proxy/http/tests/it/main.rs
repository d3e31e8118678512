//! Tests of whole exchanges in one process: a scripted client, the gateway's worker, a scripted origin.
mod companions;
mod handling;
mod http2;
mod inspecting;
mod messages;
mod policies;
mod refusals;
mod retries;
mod routes;
mod settling;
mod support;
mod tapping;
