//! Tests of the MongoDB codec from outside: streams, cuts, hostile bytes, other libraries beside it.
mod differential;
mod hostile;
mod inflate;
mod split;
mod support;
