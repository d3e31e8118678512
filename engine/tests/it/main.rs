//! The engine over real sockets, on both drivers.

mod datagram;
mod stream;
mod wakes;
