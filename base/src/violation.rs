//! A peer broke a rule or a limit.

use std::borrow::Cow;
use std::fmt;

use crate::error::Culprit;

/// One broken rule, from which the counter, the log line, the access-log reason and the protocol's refusal are all
/// derived, so that they cannot drift apart.
///
/// `text` may name the rule and the remedy but never quotes what the peer sent.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "a violation that is not reported is a silent close"]
pub struct Violation {
    /// Stable snake_case word; the value of the `reason` label. Never derived from input.
    pub reason: &'static str,
    /// The party that broke the rule.
    pub culprit: Culprit,
    /// The text for an operator: the rule and, where there is one, the setting that governs it.
    pub text: Cow<'static, str>,
    /// The observed value, in the unit of `limit`; zero where the rule has no number.
    pub count: u64,
    /// The allowed value; zero where the rule has no number.
    pub limit: u64,
}

impl Violation {
    /// A broken limit: `count` was seen where `limit` is allowed.
    pub fn limit(
        reason: &'static str,
        culprit: Culprit,
        text: impl Into<Cow<'static, str>>,
        count: u64,
        limit: u64,
    ) -> Violation {
        Violation { reason, culprit, text: text.into(), count, limit }
    }

    /// A broken rule of the protocol, without a number.
    pub fn rule(reason: &'static str, culprit: Culprit, text: impl Into<Cow<'static, str>>) -> Violation {
        Violation { reason, culprit, text: text.into(), count: 0, limit: 0 }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}, {})", self.text, self.reason, self.culprit)?;
        if self.limit > 0 || self.count > 0 {
            write!(f, ": {} where {} is allowed", self.count, self.limit)?;
        }
        Ok(())
    }
}

impl std::error::Error for Violation {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_violation_reads_as_a_sentence() {
        let limit = Violation::limit("line_too_long", Culprit::Client, "inline command too long", 70_000, 65_536);
        assert_eq!(limit.to_string(), "inline command too long (line_too_long, client): 70000 where 65536 is allowed");
        let rule = Violation::rule("bad_type_byte", Culprit::Upstream, "reply starts with an unknown type");
        assert_eq!(rule.to_string(), "reply starts with an unknown type (bad_type_byte, upstream)");
    }
}
