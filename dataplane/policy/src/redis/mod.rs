//! Users and their rules in Redis's own language ("Access control list"; Redis 7.0 `acl.c`).
//!
//! | file | concept |
//! |---|---|
//! | `glob` | patterns of keys and channels |
//! | `password` | hashes, and candidates compared with them |
//! | `selector` | rules about commands, keys and channels |
//! | `user` | a name, passwords and selectors; what a rule changes |
//! | `rules` | words of a rule text, and what can be wrong with them |
//! | `file` | the format of Redis's `aclfile` |
//! | `verdict` | may this user run this command? |
//! | `describe` | a user as rules again, for ACL LIST and GETUSER |
//! | `log` | denied commands and logins, for ACL LOG |

mod describe;
mod file;
mod glob;
mod log;
mod password;
mod rules;
mod selector;
mod user;
mod verdict;

pub use file::{FileError, parse_file};
pub use glob::Glob;
pub use log::{AclLog, Context, ENTRIES_MAX, Entry, Event, GROUPING_MAX, OBJECT_BYTES_MAX, Reason};
pub use password::{PasswordHash, random_password};
pub use rules::{BadRule, RuleError, words};
pub use selector::{CATEGORIES, KeyPattern, Selector, category};
pub use user::{Sanitize, User};
pub use verdict::{DeniedPart, NoPermission};
