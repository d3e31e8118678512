//! Tests of the HTTP/1 codec from outside: heads and bodies.
mod bodies;
mod heads;
