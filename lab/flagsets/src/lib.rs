//! Data sets of feature flags for the lab: made from a fixed seed, the same on every machine, without I/O and without a clock.
//!
//! The origin serves a set and the load knows it, so each response is compared with the set itself. A set also says by its
//! construction which of its flags are on for a [`Visitor`]: that is a check of a gateway's evaluation by other code.
//!
//! | file | concept |
//! |---|---|
//! | `set.rs` | [`FlagSet`]: flags and segments, made for a [`DataSet`] |
//! | `mix.rs` | the kinds of flags, and how many of each a set has |
//! | `flag.rs` | [`Flag`]: a flag, its JSON, and whether it is on |
//! | `visitor.rs` | [`Visitor`]: a context, and how it decides about rollouts and variants |
//! | `murmur.rs` | the hash by which every SDK decides about them |
//!
//! Without a user, no flag of a set is decided by chance: entity tags stand still.
#![forbid(unsafe_code)]

mod flag;
mod mix;
mod murmur;
mod set;
mod visitor;

pub use flag::{Flag, Rule, Segment, Variant};
pub use set::{DataSet, FlagSet};
pub use visitor::Visitor;
