//! The admin server over real sockets on loopback, with a gateway made of fixed responses.

mod document;
mod hostile;
mod keys;
mod operations;
mod reading;
mod security;
mod support;
