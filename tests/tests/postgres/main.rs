//! PostgreSQL with real servers, drivers and programs.
#![forbid(unsafe_code)]

mod logins;
mod servers;
