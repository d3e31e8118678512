//! Tests of whole exchanges in one process: a scripted client, the gateway's worker, a scripted origin.
mod choosing;
mod completion;
mod deadlines;
mod edits;
mod fallback;
mod filters;
mod formats;
mod handlers;
mod http2;
mod inspection;
mod messages;
mod policies;
mod refusals;
mod retries;
mod routes;
mod support;
mod tapping;
