//! Tests of the MongoDB session from outside: logins of both sides together, handshakes, exchanges.
mod exchanges;
mod handshake;
mod hostile;
mod owners;
mod support;
mod together;
