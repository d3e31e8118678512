//! May this user run this text?

use std::fmt;

use weir_analysis::postgres::{Analysis, Class, Effect, Range, SideEffect, Statement, Verb, name, side_effect};

use super::pattern::Pattern;
use super::rules::{Action, Rule, UserPolicy};

/// SQLSTATE of every denial: `insufficient_privilege`.
pub const SQLSTATE: &str = "42501";

/// Why a text may not run. Prints the message of the error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Denial<'a> {
    /// The reason.
    pub reason: DenialReason<'a>,
    /// The statement, counted from 0.
    pub statement: usize,
}

/// The part of a policy that denies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DenialReason<'a> {
    /// The rule of this name.
    Rule(&'a str),
    /// No rule fits, and the default is to deny.
    Default,
    /// The user is read-only, the statement is not.
    ReadOnly,
    /// The text has more statements than `statements_max`.
    Statements(usize),
    /// Nothing is known of the text, and such texts do not pass.
    Unknown,
}

impl DenialReason<'_> {
    /// The name for logs and metrics: the rule's, or a word of this crate.
    pub const fn word(&self) -> &str {
        match self {
            Self::Rule(name) => name,
            Self::Default => "default",
            Self::ReadOnly => "read_only",
            Self::Statements(_) => "statements_max",
            Self::Unknown => "not_analysed",
        }
    }
}

impl fmt::Display for Denial<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.reason {
            DenialReason::Rule(name) => write!(f, "permission denied by rule \"{name}\""),
            DenialReason::Default => f.write_str("permission denied: no rule allows this statement"),
            DenialReason::ReadOnly => f.write_str("permission denied: the user is read-only"),
            DenialReason::Statements(max) => write!(f, "permission denied: more than {max} statements in one query"),
            DenialReason::Unknown => f.write_str("permission denied: the query is too long or too deep to be checked"),
        }
    }
}

impl UserPolicy {
    /// Whether the user may run `text`, of which `analysis` is the analysis. A text of several statements runs whole or
    /// not at all.
    ///
    /// # Errors
    /// The first reason against it.
    pub fn check(&self, text: &[u8], analysis: &Analysis) -> Result<(), Denial<'_>> {
        let denied = |reason, statement| Err(Denial { reason, statement });
        if self.is_unrestricted() {
            return Ok(());
        }
        if !analysis.is_whole {
            return if self.passes_unknown { Ok(()) } else { denied(DenialReason::Unknown, 0) };
        }
        if let Some(max) = self.statements_max.filter(|&max| analysis.statements.len() > max) {
            return denied(DenialReason::Statements(max), max);
        }
        for (at, statement) in analysis.statements.iter().enumerate() {
            if self.is_read_only && !reads_only(text, statement) {
                return denied(DenialReason::ReadOnly, at);
            }
            let is_open = runs_anything(text, statement);
            let rule = self.rules.iter().find(|rule| rule.fits(text, statement, is_open));
            match rule.map_or(self.default, |rule| rule.action) {
                Action::Allow => {}
                Action::Deny => {
                    return denied(rule.map_or(DenialReason::Default, |rule| DenialReason::Rule(&rule.name)), at);
                }
            }
        }
        Ok(())
    }

    /// Whether a rule is about one of the statements: for rules that only take notice. They count what a text shows; one that cannot be read
    /// is about nothing.
    pub fn concerns(&self, text: &[u8], analysis: &Analysis) -> bool {
        let is_meant = |statement: &Statement| self.rules.iter().any(|rule| rule.lists_fit(text, statement));
        analysis.is_whole && analysis.statements.iter().any(is_meant)
    }
}

/// Whether something runs that the text does not show: DO, CALL, a function that runs a text, a statement that is not known.
fn runs_anything(text: &[u8], statement: &Statement) -> bool {
    let runs_text = |&function: &Range| {
        matches!(side_effect(&name(text, function).object), Some(SideEffect::Opaque | SideEffect::OpaqueAdmin))
    };
    let is_opaque = statement.class == Class::Unknown || statement.effects.contains(&Effect::Opaque);
    is_opaque || statement.functions.iter().any(runs_text)
}

/// Whether a read-only user may run it. EXECUTE and LISTEN are not read-only in the sense of a standby, but write nothing:
/// PREPARE was checked, and so are the functions in the arguments.
fn reads_only(text: &[u8], statement: &Statement) -> bool {
    let passes = matches!(statement.verb, Verb::Execute | Verb::Listen) && statement.class == Class::Session;
    let writes = |&function: &Range| side_effect(&name(text, function).object).is_some_and(|does| !does.is_read_only());
    statement.is_read_only || passes && !statement.functions.iter().any(writes)
}

impl Rule {
    /// A statement that may run anything may do what a Deny is for, whatever that is. It may do more than an Allow is for, unless that names
    /// it: by its class, its verb or its functions.
    fn fits(&self, text: &[u8], statement: &Statement, runs_anything: bool) -> bool {
        match self.action {
            Action::Deny if runs_anything => true,
            Action::Allow if runs_anything => self.names(statement) && self.lists_fit(text, statement),
            Action::Deny | Action::Allow => self.lists_fit(text, statement),
        }
    }

    /// Whether the rule has a list that is for statements such as this one, or no list at all.
    fn names(&self, statement: &Statement) -> bool {
        let is_unknown = statement.class == Class::Unknown;
        let has_no_lists =
            self.classes == 0 && self.verbs.is_empty() && self.tables.is_empty() && self.functions.is_empty();
        has_no_lists || !self.functions.is_empty() || is_unknown && (self.classes != 0 || !self.verbs.is_empty())
    }

    fn lists_fit(&self, text: &[u8], statement: &Statement) -> bool {
        self.class_fits(statement)
            && self.verbs_fit(statement)
            && self.names_fit(text, &self.tables, &statement.tables)
            && self.names_fit(text, &self.functions, &statement.functions)
    }

    fn class_fits(&self, statement: &Statement) -> bool {
        let bit = |class: Class| Class::ALL.iter().position(|known| *known == class).map_or(0, |at| 1_u16 << at);
        // COPY FROM changes tables as INSERT does. An Allow for writes is not for it, and one for copies is.
        let is_load = self.action == Action::Deny && statement.copy.is_some_and(|copy| copy.is_from);
        let also = if is_load { bit(Class::Write) } else { 0 };
        self.classes == 0 || self.classes & (bit(statement.class) | also) != 0
    }

    /// Deny is for one verb of all that the statement has, Allow for all if each is listed.
    fn verbs_fit(&self, statement: &Statement) -> bool {
        self.verbs.is_empty()
            || match self.action {
                Action::Deny => statement.verbs.overlaps(self.verbs),
                Action::Allow => statement.verbs.is_within(self.verbs),
            }
    }

    /// Deny is for one name that may be meant, Allow for all names if each is surely meant.
    fn names_fit(&self, text: &[u8], patterns: &[Pattern], ranges: &[Range]) -> bool {
        let mut names = ranges.iter().map(|&range| name(text, range));
        patterns.is_empty()
            || match self.action {
                Action::Deny => names.any(|name| patterns.iter().any(|pattern| pattern.touches(&name))),
                Action::Allow => {
                    !ranges.is_empty() && names.all(|name| patterns.iter().any(|pattern| pattern.covers(&name)))
                }
            }
    }
}

#[cfg(test)]
mod tests;
