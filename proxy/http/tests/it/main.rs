//! Tests of whole exchanges in one process: a scripted client, the gateway's worker, a scripted origin.
mod doors;
mod messages;
mod policies;
mod refusals;
mod retries;
mod routes;
mod support;
