//! End to end: a real gateway process in front of real servers, with the driver that
//! `WEIR_TEST_DRIVER` names.
#![forbid(unsafe_code)]

mod access;
mod admin;
mod check;
mod clients;
mod cluster;
mod drain;
mod insight;
mod integrity;
mod keys_parity;
mod knee;
mod large_values;
mod moved_slots;
mod one_line;
mod parity;
mod pins;
mod pipelining;
mod proxy_protocol;
mod pubsub;
mod reload;
mod replicas;
mod reply_cache;
mod secrets;
mod sharding;
mod telemetry;
mod tls;
mod tracking;
mod traffic;
mod transport;
mod tutorial;
mod upgrade;
mod upstream;
mod users;
mod users_parity;
mod values;
mod workers;
