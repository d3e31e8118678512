//! Exchanges of both sides, byte for byte.

mod exchange;
mod hostile;
mod vectors;
