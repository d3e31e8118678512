//! Developer commands: test, setup, tidy, bench, generate. `cargo xtask help` lists them.
//!
//! A *lane* is one kind of check (formatting, unit tests, end-to-end tests, the client suite of one language …). `cargo xtask
//! test` runs in full the lanes that the change can reach and a core of the others. At the end it shows again what failing lanes
//! said, prints a table with the time of each lane and the reason for it, and closes with one machine-readable line,
//! `N passed, N failed`.
#![forbid(unsafe_code)]
// A tool for developers: its pages link to private items on purpose.
#![allow(rustdoc::private_intra_doc_links)]

pub mod bench;
pub mod change;
pub mod command;
mod evidence;
pub mod generate;
pub mod generate_commands;
pub mod lane;
pub mod lanes;
pub mod package;
pub mod plan;
pub mod programs;
pub mod reach;
pub mod setup;
pub mod summary;
pub mod tidy;
pub mod totals;
pub mod workspace;
