//! Limits that the rules of several protocols share.

/// Rules of a listener. Default limit 256: each is looked at for each command or statement of a user whom it concerns.
pub const RULES_MAX: usize = 256;
/// Bytes of a rule's name. It stands in the error that clients get, and may be a metric label. Default 63, as names of PostgreSQL.
pub const RULE_NAME_BYTES_MAX: usize = 63;
