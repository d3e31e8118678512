//! The admin server over real sockets on loopback, with a gateway made of fixed answers.

mod document;
mod hostile;
mod operations;
mod reading;
mod security;
mod support;
