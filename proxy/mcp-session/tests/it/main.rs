//! Tests of messages, lists of tools and errors, wherever the bytes are cut.

mod events;
mod federation;
mod lists;
mod messages;
