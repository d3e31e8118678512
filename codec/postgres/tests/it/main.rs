//! Tests of the PostgreSQL codec from outside: streams, cuts, hostile bytes, another codec beside it.
mod differential;
mod hostile;
mod split;
mod support;
mod views;
