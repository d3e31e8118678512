//! The AI origin over real connections: replies by every way to choose them, streams at their pace, faults, and the ledger.
mod client;
mod faults;
mod ledger;
mod replies;
mod streams;
