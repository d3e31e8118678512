//! PostgreSQL with real servers, drivers and programs.
#![forbid(unsafe_code)]

mod changes;
mod console;
mod drivers;
mod gateway;
mod hostile;
mod hostile_logins;
mod import;
mod isolation;
mod listen;
mod logins;
mod model;
mod newest;
mod outages;
mod reads;
mod routing;
mod rules;
mod servers;
mod torture;
