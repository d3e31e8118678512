//! The MongoDB origin: its conversations, as drivers have them.
//!
//! | file | concept |
//! |---|---|
//! | `client` | a raw client: commands out, replies in |
//! | `handshake` | hello in its forms, also one that waits; faces; logins |
//! | `reads` | documents that follow from the request; cursors, exhaust streams, change streams |
//! | `stored` | an origin that stores documents |
//! | `writes` | inserts, updates, deletes; sessions and transactions |
//! | `wire` | forms of messages: pieces, compression, old opcodes, and those that end the connection |
//! | `faults` | fail points, delays and limits |

mod client;
mod faults;
mod handshake;
mod reads;
mod stored;
mod wire;
mod writes;
