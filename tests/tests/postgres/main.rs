//! PostgreSQL with real servers, drivers and programs.
#![forbid(unsafe_code)]

mod console;
mod drivers;
mod gateway;
mod hostile;
mod hostile_logins;
mod import;
mod isolation;
mod logins;
mod rules;
mod servers;
mod torture;
