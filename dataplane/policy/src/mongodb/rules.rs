//! Rules, compiled when a configuration is loaded.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use weir_analysis::mongodb::Class;

pub use crate::limits::{RULE_NAME_BYTES_MAX, RULES_MAX};

/// Bytes of the pattern of a name. Default 255, as servers limit a database with its collection.
pub const PATTERN_BYTES_MAX: usize = 255;

/// The consequence of a rule that fits a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// The command passes, whatever later rules say.
    Allow,
    /// The command is refused.
    Deny,
    /// The command is counted and logged. The rules go on.
    Observe,
}

/// A rule as it is configured. Every condition that is there must fit the command. The first rule that fits and allows or
/// denies decides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleSettings {
    /// Its name, for errors and logs: unique.
    pub name: String,
    /// Its consequence.
    pub action: Action,
    /// Users whom it concerns; empty: all.
    pub users: Vec<String>,
    /// Databases, with `*` for any bytes. Allow fits if they are those of every collection of the command, other rules if one is.
    pub databases: Vec<String>,
    /// Collections, in the same way. With databases, both must fit one collection. A command on a whole database is on its collections as
    /// well for rules that deny or observe.
    pub collections: Vec<String>,
    /// Classes. One must be that of the command.
    pub classes: Vec<Class>,
    /// Commands by name. Case does not count: some have two forms.
    pub commands: Vec<String>,
    /// The rule is only for commands with JavaScript.
    pub is_about_javascript: bool,
}

/// The policy of a listener as it is configured. The default lets everything pass but commands of the class dangerous.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// Users who may only read.
    pub read_only_users: Vec<String>,
    /// Rules in order.
    pub rules: Vec<RuleSettings>,
    /// Commands that no rule fits are refused. Transactions, cursors and sessions are not: they belong to commands that were allowed.
    pub denies_others: bool,
}

/// Why settings are no policy. Prints what to change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PolicyError {
    /// More than [`RULES_MAX`] rules.
    TooManyRules(usize),
    /// A rule's name is empty, too long, or used twice.
    Name(String),
    /// The name of a database or a collection is empty, too long, or cannot be one.
    Pattern(String, String),
}

impl fmt::Display for PolicyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooManyRules(count) => write!(f, "{count} rules; at most {RULES_MAX} are possible: use patterns"),
            Self::Name(name) => {
                write!(f, "rule \"{name}\": a name has 1 to {RULE_NAME_BYTES_MAX} bytes and names one rule")
            }
            Self::Pattern(rule, text) => {
                write!(f, "rule \"{rule}\": \"{text}\" is empty, longer than {PATTERN_BYTES_MAX} bytes, or has a NUL")
            }
        }
    }
}

impl std::error::Error for PolicyError {}

/// A rule, compiled.
#[derive(Debug)]
pub(super) struct Rule {
    pub name: Box<str>,
    pub action: Action,
    users: BTreeSet<Box<[u8]>>,
    /// None: all.
    pub databases: Vec<Box<[u8]>>,
    /// None: all, and commands without any.
    pub collections: Vec<Box<[u8]>>,
    /// Bits of the classes; 0: all.
    pub classes: u8,
    /// None: all.
    pub commands: Vec<Box<[u8]>>,
    pub is_about_javascript: bool,
}

const _: () = assert!(Class::ALL.len() <= 8);

/// The bit of a class.
pub(super) const fn bit(class: Class) -> u8 {
    1 << class as u8
}

/// The policy of a listener: does not change once it is built.
#[derive(Debug, Default)]
pub struct Policy {
    read_only_users: BTreeSet<Box<[u8]>>,
    rules: Vec<Arc<Rule>>,
    denies_others: bool,
}

/// The part of a policy that concerns one user.
#[derive(Clone, Debug, Default)]
pub struct UserPolicy {
    pub(super) is_read_only: bool,
    pub(super) rules: Vec<Arc<Rule>>,
    pub(super) denies_others: bool,
    /// A rule asks for names of databases or collections.
    pub(super) asks_for_names: bool,
    /// A rule asks for JavaScript.
    pub(super) asks_for_javascript: bool,
}

fn bytes(list: &[String]) -> impl Iterator<Item = Box<[u8]>> {
    list.iter().map(|text| Box::from(text.as_bytes()))
}

impl Policy {
    /// Checks and compiles settings.
    ///
    /// # Errors
    /// The first setting that is wrong.
    pub fn new(settings: &Settings) -> Result<Self, PolicyError> {
        if settings.rules.len() > RULES_MAX {
            return Err(PolicyError::TooManyRules(settings.rules.len()));
        }
        let mut seen = BTreeSet::new();
        let mut rules = Vec::with_capacity(settings.rules.len());
        for rule in &settings.rules {
            let is_name = (1..=RULE_NAME_BYTES_MAX).contains(&rule.name.len());
            if !is_name || !seen.insert(&rule.name) {
                return Err(PolicyError::Name(rule.name.clone()));
            }
            rules.push(Arc::new(Rule::new(rule)?));
        }
        let read_only_users = bytes(&settings.read_only_users).collect();
        Ok(Self { read_only_users, rules, denies_others: settings.denies_others })
    }

    /// The part for a user, by its name; `None`: clients of the listener do not log in.
    pub fn user(&self, user: Option<&[u8]>) -> UserPolicy {
        let is_in = |names: &BTreeSet<Box<[u8]>>| user.is_some_and(|user| names.contains(user));
        let rules = self.rules.iter().filter(|rule| rule.users.is_empty() || is_in(&rule.users));
        let rules: Vec<_> = rules.cloned().collect();
        UserPolicy {
            is_read_only: is_in(&self.read_only_users),
            denies_others: self.denies_others,
            asks_for_names: rules.iter().any(|rule| rule.has_names()),
            asks_for_javascript: rules.iter().any(|rule| rule.is_about_javascript),
            rules,
        }
    }
}

impl UserPolicy {
    /// Every command passes but those of the class dangerous.
    pub fn is_unrestricted(&self) -> bool {
        !self.is_read_only && !self.denies_others && self.rules.is_empty()
    }
}

impl Rule {
    fn new(settings: &RuleSettings) -> Result<Self, PolicyError> {
        let patterns = settings.databases.iter().chain(&settings.collections);
        let is_wrong = |text: &&String| text.is_empty() || text.len() > PATTERN_BYTES_MAX || text.contains('\0');
        if let Some(text) = patterns.chain(&settings.commands).find(is_wrong) {
            return Err(PolicyError::Pattern(settings.name.clone(), text.clone()));
        }
        Ok(Self {
            name: settings.name.as_str().into(),
            action: settings.action,
            users: bytes(&settings.users).collect(),
            databases: bytes(&settings.databases).collect(),
            collections: bytes(&settings.collections).collect(),
            classes: settings.classes.iter().fold(0, |bits, class| bits | bit(*class)),
            commands: bytes(&settings.commands).collect(),
            is_about_javascript: settings.is_about_javascript,
        })
    }

    pub fn has_names(&self) -> bool {
        !self.databases.is_empty() || !self.collections.is_empty()
    }
}
