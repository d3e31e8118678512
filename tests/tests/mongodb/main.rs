//! MongoDB with real servers, drivers, the scripted server of the lab, and peers that break rules.
#![forbid(unsafe_code)]

mod drivers;
mod failover;
mod gateway;
mod hostile;
mod hostile_owners;
mod hostile_pins;
mod hostile_servers;
mod isolation;
mod logins;
mod logins_tls;
mod losses;
mod rules;
mod scripted;
mod slow_readers;
mod swarm;
mod traffic;
