//! Tests of the RESP codec from outside: streams, cuts, hostile bytes, another codec beside it.
mod differential;
mod hostile;
mod split;
mod streaming;
mod support;
