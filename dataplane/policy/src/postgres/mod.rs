//! Statements of a user become a verdict: read-only users, rules by class, verb, table and function, statements per text.
//!
//! | file | concept |
//! |---|---|
//! | `rules` | settings, compiled at load: [`Policy`], and the part of it for one user, [`UserPolicy`] |
//! | `pattern` | names with `*` |
//! | `verdict` | may this user run this text: [`Denial`], or nothing |
//!
//! Call order: [`Policy::new`] on the control thread; [`Policy::user`] at the login of a client; then for each text
//! [`UserPolicy::check`], unless [`UserPolicy::is_unrestricted`]. A cached analysis can keep its verdict: it depends on the
//! text and the user alone.
//!
//! The rules see what the text shows. A view reads its tables, and a function of the database's own runs anything: rights in
//! the database stay necessary. DO, CALL and built-in functions that run a text fit every rule that denies, unless an earlier
//! one allows them. EXECUTE passes here because PREPARE was checked.

mod pattern;
mod rules;
mod verdict;

pub use pattern::{PATTERN_BYTES_MAX, PatternError};
pub use rules::{Action, Policy, PolicyError, RULE_NAME_BYTES_MAX, RULES_MAX, RuleSettings, Settings, UserPolicy};
pub use verdict::{Denial, DenialReason, SQLSTATE};
