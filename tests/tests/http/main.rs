//! HTTP end to end: a real gateway process, raw and real clients, scripted and real origins, with the driver that
//! `WEIR_TEST_DRIVER` names.
#![forbid(unsafe_code)]

mod access;
mod blackholes;
mod browser;
mod buffering;
mod catalogue;
mod changes;
mod clients;
mod conformance;
mod delegated;
mod desync;
mod desync_responses;
mod distance;
mod failures;
mod grpc;
mod hostile;
mod http2;
mod http2_origins;
mod imports;
mod lab_origin;
mod leaving;
mod leftovers;
mod messages;
mod one_line;
mod origins;
mod policies;
mod prometheus;
mod quota;
mod refusals;
mod restarts;
mod routes;
mod service;
mod state;
mod tcp;
mod tls;
mod traffic;
mod tutorial;
mod upstreams;
mod websocket;
mod websocket_clients;
mod websocket_http2;
mod windows;
