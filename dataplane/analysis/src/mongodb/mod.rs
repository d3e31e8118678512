//! A MongoDB command becomes facts: its kind, the collections that it reads and writes, the shape of its query.
//!
//! | file | concept |
//! |---|---|
//! | `class` | kinds of commands |
//! | `table` | every command of the servers, with its kind and the place of its namespace |
//! | `facts` | the way from a command to [`Facts`] |
//! | `namespace` | database and collection; names with both |
//! | `operators` | stages and operators that do more than read: `$out`, `$merge`, `$lookup`, JavaScript |
//! | `shape` | one number for commands that differ in values alone |
//! | `limits` | the budget of one analysis |
//!
//! Call order: [`lookup`] costs one search in the table and is enough to route a command. [`classify`] also sees whether an aggregation
//! writes. [`analyse`] and [`shape`] look at every element within [`Limits`].
//!
//! The direction of errors is chosen. Writes, collections and JavaScript are rather found where there are none than missed: a
//! stage counts wherever its name is a key. An unknown command is administrative. Views are collections here, and `$lookup` inside of
//! a view stays unseen.

mod class;
mod facts;
mod limits;
mod namespace;
mod operators;
mod shape;
mod table;

pub use class::{Class, Reach, Target};
pub use facts::{Argument, Facts, Flaw, analyse, classify, names_collection};
pub use limits::Limits;
pub use namespace::Namespace;
pub use shape::{normal_form, shape};
pub use table::{COMMANDS, Row, lookup, lookup_in_another_case};
