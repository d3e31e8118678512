//! The engine over real sockets, on both drivers.

mod datagram;
mod panics;
mod stream;
mod wakes;
