//! Rules, compiled when a configuration is loaded.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use weir_analysis::postgres::{Class, Verb, Verbs};

use super::pattern::{Pattern, PatternError};
pub use crate::limits::{RULE_NAME_BYTES_MAX, RULES_MAX};

/// The verdict of a rule on a statement that it fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Run it.
    Allow,
    /// Refuse it.
    Deny,
}

/// A rule as it is configured. Every list that is not empty must fit the statement; the first rule that fits decides.
///
/// A statement may run what its text does not show: DO, CALL, functions that run a text, such as `query_to_xml`. Deny fits it, whatever its
/// lists are. Allow fits it only if it has no list, or one that names the statement: its functions, or the class or verb of DO and CALL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleSettings {
    /// Its name, for errors and logs: unique.
    pub name: String,
    /// Its verdict.
    pub action: Action,
    /// Users whom it concerns; empty: all.
    pub users: Vec<String>,
    /// Classes, by [`Class::word`]. One must be the statement's.
    pub classes: Vec<String>,
    /// Verbs, by [`Verb::word`]. A statement may have several ([`Statement::verbs`](weir_analysis::postgres::Statement::verbs)): Deny fits if
    /// one is listed, Allow if all are.
    pub verbs: Vec<String>,
    /// Tables: `name`, `schema.name`, with `*`. Deny fits if the statement may name one of them; Allow if it names some,
    /// and surely only these. A name without schema may be in any schema.
    pub tables: Vec<String>,
    /// Functions, in the same way.
    pub functions: Vec<String>,
}

/// The policy of a listener as it is configured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Users who may run only what is read-only by its text.
    pub read_only_users: Vec<String>,
    /// Rules in order.
    pub rules: Vec<RuleSettings>,
    /// The verdict on a statement that no rule fits.
    pub default: Action,
    /// Statements of a text; absent: as many as are analysed.
    pub statements_max: Option<usize>,
    /// Whether a text of which nothing is known (over a budget, or ambiguous) passes. It does not if rules shall protect.
    pub passes_unknown: bool,
}

/// Why settings are no policy. Prints what to change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PolicyError {
    /// More than [`RULES_MAX`] rules.
    TooManyRules(usize),
    /// A rule's name is empty, too long, or used twice.
    Name(String),
    /// No class has this word.
    Class(String, String),
    /// No verb has this word.
    Verb(String, String),
    /// A table or function is no pattern.
    Pattern(String, String, PatternError),
    /// A text may have no statement at all.
    NoStatements,
}

impl fmt::Display for PolicyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooManyRules(count) => write!(f, "{count} rules; at most {RULES_MAX} are possible: use patterns"),
            Self::Name(name) => {
                write!(f, "rule \"{name}\": a name has 1 to {RULE_NAME_BYTES_MAX} bytes and names one rule")
            }
            Self::Class(rule, word) => {
                let words: Vec<_> = Class::ALL.iter().map(|class| class.word()).collect();
                write!(f, "rule \"{rule}\": no class \"{word}\"; use one of {}", words.join(", "))
            }
            Self::Verb(rule, word) => {
                write!(f, "rule \"{rule}\": no verb \"{word}\"; use the first word of a statement, such as \"select\"")
            }
            Self::Pattern(rule, text, error) => write!(f, "rule \"{rule}\": name \"{text}\": {error}"),
            Self::NoStatements => f.write_str("statements_max is 0; use 1 or more"),
        }
    }
}

impl std::error::Error for PolicyError {}

#[derive(Debug)]
pub(super) struct Rule {
    pub name: Box<str>,
    pub action: Action,
    users: BTreeSet<Box<[u8]>>,
    /// Bits of the classes; 0: all.
    pub classes: u16,
    /// None: all.
    pub verbs: Verbs,
    pub tables: Vec<Pattern>,
    pub functions: Vec<Pattern>,
}

const _: () = assert!(Class::ALL.len() <= 16);

/// The policy of a listener: does not change once it is built.
#[derive(Debug)]
pub struct Policy {
    read_only_users: BTreeSet<Box<[u8]>>,
    rules: Vec<Arc<Rule>>,
    default: Action,
    statements_max: Option<usize>,
    passes_unknown: bool,
}

/// The part of a policy that concerns one user.
#[derive(Clone, Debug)]
pub struct UserPolicy {
    pub(super) is_read_only: bool,
    pub(super) rules: Vec<Arc<Rule>>,
    pub(super) default: Action,
    pub(super) statements_max: Option<usize>,
    pub(super) passes_unknown: bool,
}

fn names(list: &[String]) -> BTreeSet<Box<[u8]>> {
    list.iter().map(|name| Box::from(name.as_bytes())).collect()
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
        if settings.statements_max == Some(0) {
            return Err(PolicyError::NoStatements);
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
        Ok(Self {
            read_only_users: names(&settings.read_only_users),
            rules,
            default: settings.default,
            statements_max: settings.statements_max,
            passes_unknown: settings.passes_unknown,
        })
    }

    /// The part for `user`, as the client has logged in.
    pub fn user(&self, user: &[u8]) -> UserPolicy {
        let concerns = |rule: &&Arc<Rule>| rule.users.is_empty() || rule.users.contains(user);
        UserPolicy {
            is_read_only: self.read_only_users.contains(user),
            rules: self.rules.iter().filter(concerns).cloned().collect(),
            default: self.default,
            statements_max: self.statements_max,
            passes_unknown: self.passes_unknown,
        }
    }
}

impl UserPolicy {
    /// Whether every text passes, so that none needs an analysis for the policy's sake.
    pub fn is_unrestricted(&self) -> bool {
        let denies = self.rules.iter().any(|rule| rule.action == Action::Deny);
        !self.is_read_only && !denies && self.default == Action::Allow && self.statements_max.is_none()
    }
}

impl Rule {
    fn new(settings: &RuleSettings) -> Result<Self, PolicyError> {
        let name = &settings.name;
        let (mut classes, mut verbs) = (0, Verbs::default());
        for word in &settings.classes {
            let at = Class::ALL.iter().position(|class| class.word() == word);
            classes |= 1 << at.ok_or_else(|| PolicyError::Class(name.clone(), word.clone()))?;
        }
        for word in &settings.verbs {
            let verb = Verb::ALL.iter().find(|verb| verb.word() == word);
            verbs.insert(*verb.ok_or_else(|| PolicyError::Verb(name.clone(), word.clone()))?);
        }
        let patterns = |list: &[String]| {
            let pattern = |text: &String| {
                Pattern::new(text).map_err(|error| PolicyError::Pattern(name.clone(), text.clone(), error))
            };
            list.iter().map(pattern).collect::<Result<Vec<_>, _>>()
        };
        Ok(Self {
            name: name.as_str().into(),
            action: settings.action,
            users: names(&settings.users),
            classes,
            verbs,
            tables: patterns(&settings.tables)?,
            functions: patterns(&settings.functions)?,
        })
    }
}
