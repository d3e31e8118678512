//! May this user run this command?

use std::fmt;

use weir_analysis::mongodb::{Argument, Class, Namespace, Reach, Row, classify, lookup_in_another_case};
use weir_mongodb_codec::command::Command;

use super::rules::{Action, Rule, UserPolicy, bit};
use super::subject::Subject;
use crate::star::fits;

/// Why a command may not run. Prints the message of the error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Denial<'a> {
    /// The reason.
    pub reason: DenialReason<'a>,
    /// The command's word in the table; `other` for one that is not there.
    pub command: &'static str,
    /// Its database.
    pub db: &'a [u8],
}

/// The part of a policy that denies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DenialReason<'a> {
    /// The rule of this name.
    Rule(&'a str),
    /// No rule fits, and the default is to deny.
    Default,
    /// The user is read-only, the command is not.
    ReadOnly,
    /// No rule allows a dangerous command by its class or name.
    Dangerous,
    /// The command is too long or too deep, is not there as a whole, or does not name its collection, and a rule may deny it.
    Unknown,
}

impl DenialReason<'_> {
    /// The name for logs and metrics: the rule's, or a word of this crate.
    pub const fn word(&self) -> &str {
        match self {
            Self::Rule(name) => name,
            Self::Default => "default",
            Self::ReadOnly => "read_only",
            Self::Dangerous => "dangerous",
            Self::Unknown => "not_analysed",
        }
    }
}

impl fmt::Display for Denial<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let db = self.db.escape_ascii();
        write!(f, "not authorized on {db} to execute command {}: ", self.command)?;
        match self.reason {
            DenialReason::Rule(name) => write!(f, "denied by rule \"{name}\" of the gateway"),
            DenialReason::Default => f.write_str("no rule of the gateway allows it"),
            DenialReason::ReadOnly => f.write_str("the user may only read"),
            DenialReason::Dangerous => f.write_str("the gateway permits dangerous commands only by a rule"),
            DenialReason::Unknown => f.write_str("the gateway cannot check it against its rules"),
        }
    }
}

/// Whether a condition fits a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fit {
    No,
    /// Something is missing that could decide.
    Perhaps,
    Yes,
}

impl Fit {
    fn of(is_fit: bool, is_whole: bool) -> Self {
        match (is_fit, is_whole) {
            (true, _) => Self::Yes,
            (false, true) => Self::No,
            (false, false) => Self::Perhaps,
        }
    }
}

impl UserPolicy {
    /// Whether the user may run a command. `beside`: the documents of the message beside its body; `None`: not all of them are there. They
    /// are looked at only if a rule asks for them. `observe` gets the name of each rule that takes notice.
    ///
    /// # Errors
    /// The first reason against it.
    pub fn check<'a>(
        &'a self,
        command: &Command<'a>,
        beside: Option<impl IntoIterator<Item = Argument<'a>>>,
        observe: impl FnMut(&str),
    ) -> Result<(), Denial<'a>> {
        let found = kind(command);
        let reason = self.reason(command, found, beside, observe);
        let word = found.0.map_or("other", |row| row.name);
        reason.map_or(Ok(()), |reason| Err(Denial { reason, command: word, db: command.db }))
    }

    fn reason<'a>(
        &'a self,
        command: &Command<'a>,
        found: (Option<&'static Row>, Class),
        beside: Option<impl IntoIterator<Item = Argument<'a>>>,
        mut observe: impl FnMut(&str),
    ) -> Option<DenialReason<'a>> {
        // Nothing of them reaches data.
        if found.1 == Class::Connection {
            return None;
        }
        if self.is_unrestricted() {
            return (found.1 == Class::Dangerous).then_some(DenialReason::Dangerous);
        }
        let subject = Subject::new(command, found, beside, self);
        if self.is_read_only && !subject.is_read_only() {
            return Some(DenialReason::ReadOnly);
        }
        for rule in &self.rules {
            match (rule.action, rule.fit(&subject)) {
                (_, Fit::No) | (Action::Allow | Action::Observe, Fit::Perhaps) => {}
                (Action::Observe, Fit::Yes) => observe(&rule.name),
                (Action::Allow, Fit::Yes) => return None,
                (Action::Deny, Fit::Yes) => return Some(DenialReason::Rule(&rule.name)),
                (Action::Deny, Fit::Perhaps) => return Some(DenialReason::Unknown),
            }
        }
        match subject.class {
            Class::Dangerous => Some(DenialReason::Dangerous),
            Class::Session | Class::Transaction => None,
            _ => self.denies_others.then_some(DenialReason::Default),
        }
    }
}

/// The row of a command and its class. One whose name differs from that of a row in case alone is as dangerous as that: a server may
/// not see the difference.
fn kind(command: &Command<'_>) -> (Option<&'static Row>, Class) {
    let (row, class) = classify(command);
    match lookup_in_another_case(command.name) {
        Some(alike) => (None, class.or_more(alike.class)),
        None => (row, class),
    }
}

impl Rule {
    fn fit(&self, subject: &Subject<'_>) -> Fit {
        if !self.has_command(subject.name) || !self.may_be_about_dangerous(subject) {
            return Fit::No;
        }
        let javascript = !self.is_about_javascript || subject.runs_javascript;
        self.class_fit(subject).min(self.names_fit(subject)).min(Fit::of(javascript, subject.is_whole))
    }

    fn has_command(&self, name: &[u8]) -> bool {
        self.commands.is_empty() || self.commands.iter().any(|one| one.eq_ignore_ascii_case(name))
    }

    /// A dangerous command needs a rule that allows it by its name or class.
    fn may_be_about_dangerous(&self, subject: &Subject<'_>) -> bool {
        let names_it = !self.commands.is_empty() || self.classes & bit(Class::Dangerous) != 0;
        self.action != Action::Allow || subject.class != Class::Dangerous || names_it
    }

    fn class_fit(&self, subject: &Subject<'_>) -> Fit {
        let is_fit = self.classes == 0 || self.classes & bit(subject.class) != 0;
        match self.action {
            // The missing part may make the class another one.
            Action::Allow if self.classes != 0 && !subject.is_whole => Fit::Perhaps.min(Fit::of(is_fit, true)),
            _ => Fit::of(is_fit, subject.is_whole),
        }
    }

    /// Allow is for all collections if each fits, other rules for one that fits.
    fn names_fit(&self, subject: &Subject<'_>) -> Fit {
        if !self.has_names() {
            return Fit::Yes;
        }
        let has = |patterns: &[Box<[u8]>], name: &[u8]| {
            patterns.is_empty() || patterns.iter().any(|pattern| fits(pattern, name))
        };
        let is_one = |one: &Namespace<'_>| has(&self.databases, one.db) && has(&self.collections, one.collection);
        let on_database = has(&self.databases, subject.db);
        let is_of_database = self.collections.is_empty() && on_database;
        if self.action == Action::Allow {
            let reach = match subject.reach {
                Reach::Named => true,
                Reach::Database => is_of_database,
                Reach::Everything => false,
            };
            let names = match &subject.namespaces[..] {
                [] => is_of_database,
                all => all.iter().all(is_one),
            };
            return if reach && names && subject.is_whole { Fit::Yes } else { Fit::No };
        }
        let reach = match subject.reach {
            Reach::Named => false,
            Reach::Database => on_database,
            Reach::Everything => true,
        };
        let names = match &subject.namespaces[..] {
            [] => is_of_database,
            all => all.iter().any(is_one),
        };
        Fit::of(reach || names, subject.is_whole)
    }
}

#[cfg(test)]
mod tests;
