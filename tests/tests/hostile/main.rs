//! Hostile clients, hostile upstreams, exhausted resources. Test names carry the ids of the cases
//! in THREAT-MODEL.md (R1 ... for RESP, X1 ... across protocols); each asserts the invariants:
//! memory follows bytes received, one counter per close, the protocol's own refusal then a close,
//! the server sees nothing of a rejected message, a victim flow sees no error, and at the end every
//! permit is back (the harness checks that whenever a gateway is dropped).
#![forbid(unsafe_code)]

mod abuse;
mod policy;
mod pressure;
mod protocol;
mod reconnects;
mod resources;
mod scene;
mod sessions;
mod slow_readers;
mod upstreams;
