//! The shell of the PostgreSQL session: where listener and upstream meet the state machines of `weir-postgres-session`.
//!
//! | file | concept |
//! |---|---|
//! | `settings` | options that an operator may choose |

#![forbid(unsafe_code)]

pub mod settings;
