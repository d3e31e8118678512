//! HTTP end to end: a real gateway process, raw and real clients, scripted and real origins, with the driver that
//! `WEIR_TEST_DRIVER` names.
#![forbid(unsafe_code)]

mod conformance;
mod http2;
mod messages;
mod origins;
mod refusals;
mod routes;
mod service;
