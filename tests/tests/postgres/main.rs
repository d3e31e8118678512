//! PostgreSQL with real servers, drivers and programs.
#![forbid(unsafe_code)]

mod certificates;
mod changes;
mod console;
mod drivers;
mod full_standby;
mod gateway;
mod hostile;
mod hostile_logins;
mod import;
mod import_tls;
mod isolation;
mod listen;
mod logins;
mod model;
mod newest;
mod outages;
mod pauses;
mod reads;
mod routing;
mod rules;
mod servers;
mod slow;
mod torture;
mod traffic;
mod upgrades;
