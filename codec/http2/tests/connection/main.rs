//! The connection: raw frames against one machine, and two machines against each other.

mod exchange;
mod floods;
mod going;
mod messages;
mod pair;
mod peer;
mod responses;
mod sending;
mod settings;
mod states;
mod windows;
