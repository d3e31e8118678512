//! Commands of a user become a verdict: read-only users, rules by database, collection, class, command and JavaScript.
//!
//! | file | concept |
//! |---|---|
//! | `rules` | settings, compiled at load: [`Policy`], and the part of it for one user, [`UserPolicy`] |
//! | `subject` | the facts of a command, as far as the rules ask for them |
//! | `verdict` | may this user run this command: [`Denial`], or nothing |
//!
//! Call order: [`Policy::new`] on the control thread; [`Policy::user`] at the login of a client; then [`UserPolicy::check`] for each
//! command. Without rules a check costs one search in the table of commands.
//!
//! The rules see what the command shows. A view reads its collections, and JavaScript runs anything that a server lets it: rights at
//! the server stay necessary.

mod rules;
mod subject;
mod verdict;

pub use rules::{
    Action, PATTERN_BYTES_MAX, Policy, PolicyError, RULE_NAME_BYTES_MAX, RULES_MAX, RuleSettings, Settings, UserPolicy,
};
pub use verdict::{Denial, DenialReason};
