//! PostgreSQL with real servers, drivers and programs.
#![forbid(unsafe_code)]

mod drivers;
mod gateway;
mod import;
mod logins;
mod servers;
mod torture;
