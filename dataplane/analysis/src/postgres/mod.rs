//! A PostgreSQL statement becomes facts: what kind it is, what it does to its session, which tables and functions it
//! names.
//!
//! | file | concept |
//! |---|---|
//! | `analyse` | the way from a text to an [`Analysis`] |
//! | `lexer`, `words`, `tokens` | tokens as PostgreSQL cuts them, keywords, statements |
//! | `build` | the command word leads to one of the grammars |
//! | `query` | tables and functions of a query |
//! | `setting`, `transaction`, `prepared`, `session`, `copy`, `schema` | the grammars of the other statements |
//! | `effect`, `statement`, `range` | the facts |
//! | `function`, `reading` | built-in functions that do more than compute; those that only read |
//! | `name` | the one form of a name |
//! | `fingerprint` | one number for texts that differ in data only |
//! | `quick` | one pass that proves a text plain |
//! | `cache` | analyses by text, within a bound of memory |
//! | `limits` | the budget of one analysis |
//!
//! Call order for a text: [`Cache::analyse`]. A text that was seen before costs one hash. Without a cache, or for
//! texts that are rarely seen twice, [`quick`] first: it proves most texts plain in a fraction of the time of
//! [`analyse`].
//!
//! The direction of errors is chosen. Effects, tables and writes are rather found where there are none than missed; a
//! text that could be read in two ways is not whole, and nothing is known of it. Views and functions of the database's
//! own, and texts in strings (DO, `query_to_xml`), cannot be seen through: [`Effect::Opaque`] says so where the text
//! shows it.
//!
//! A client encoding in which a byte below 0x80 can be the second of a character (SJIS, BIG5, GBK, UHC, GB18030, JOHAB)
//! changes where strings end. The caller must not analyse texts of such a session that have a byte of 0x80 or above
//! (`encoding.rs` of `weir-postgres-session`).
//!
//! # Why a lexer of our own
//!
//! | | `pg_query` (libpg_query) | `sqlparser` | this |
//! |---|---|---|---|
//! | kind | PostgreSQL's parser, in C | a parser for many dialects | the scanner's rules, and grammar where a fact needs it |
//! | build | C sources of a server, bindgen with libclang, protobuf: minutes, and C on hostile bytes in the gateway | seconds | nothing |
//! | wrong | follows one major version; a parse fails for syntax of a newer one; no reading but `standard_conforming_strings = on`, so a session that escapes is read wrongly | refuses part of what the server takes, and takes what it refuses: a refused text has no facts at all. Recursion over the input; nested comments, E-strings and operators differ in corners. `tests/it/postgres/differences.txt` lists what the corpus shows | no tree: columns, types and expressions stay unknown. Names in front of a parenthesis in DDL count as functions; a forward reference in WITH RECURSIVE counts as a table |
//! | cost of a text | a tree in memory | a tree in memory | one buffer of tokens |
//! | fingerprint | from the tree | none | from the tokens |
//!
//! A pooler must be sure of class and effects for every text, and needs a tree for none.

mod analyse;
mod build;
mod cache;
mod copy;
mod cursor;
mod effect;
mod fingerprint;
mod function;
mod lexer;
mod limits;
mod name;
mod prepared;
mod query;
mod quick;
mod range;
mod reading;
mod schema;
mod session;
mod setting;
mod statement;
mod tokens;
mod transaction;
mod words;

pub use analyse::{analyse, analyse_as};
pub use cache::Cache;
pub use effect::{Effect, Name, Scope, Value};
pub use fingerprint::normal_form;
pub use function::{SideEffect, side_effect};
pub use lexer::Reading;
pub use limits::{Limits, NAME_BYTES_MAX};
pub use name::{QualifiedName, name};
pub use quick::{Quick, quick};
pub use range::Range;
pub use reading::only_reads;
pub use statement::{Analysis, Class, CopyMedium, CopyPlan, Flaw, Statement, Verb, Verbs};
