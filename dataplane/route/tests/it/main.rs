//! Tests of routing from outside: precedence, rewrites, hostile paths, a naive reference.
mod hostile;
mod precedence;
mod reference;
mod rewrites;
mod support;
