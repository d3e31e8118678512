//! Rules about the statements of clients.

use weir_policy::postgres::{Action, PolicyError, RuleSettings};
use weir_postgres::rules::{Rule, RuleAction, StatementRules};

use super::keys::ListenerPostgresSection;
use crate::checks::error_at;
use crate::document::At;
use crate::protocols::ListenerContext;
use crate::reader::Reader;
use crate::section::section;
use crate::texts::{Choice, Text, Word};

section! {
    /// A rule about statements of a PostgreSQL listener. Every list that is there has to fit. The first fitting rule that
    /// allows or denies decides. A denied statement gets SQLSTATE 42501 and the rule's name.
    pub(crate) struct RuleSection {
        /// Its name, in errors, in the log and as a label of metrics. Unique in the listener.
        required name: Word;
        /// `allow`, `deny`, `log` (a line and a count; the rules go on), or `count`. DO, CALL and functions that run a text may do anything:
        /// each `deny` fits them, and `allow` only if it has no list or names them.
        required action: RuleAction;
        /// Users whom it is for. Absent: all.
        optional users: Vec<At<Text>>;
        /// Databases that it is for, by the names that clients give. Absent: all.
        optional databases: Vec<At<Text>>;
        /// Classes of statements: `read`, `write`, `ddl`, `transaction`, `session`, `copy`, `admin`, `unknown`; the guide has a table. COPY FROM
        /// is `copy`, and for all but `allow` also `write`.
        optional classes: Vec<At<Word>>;
        /// Verbs of statements, such as `truncate`: the first word; that of a statement in EXPLAIN ANALYZE, PREPARE, DECLARE or COPY; INSERT,
        /// UPDATE, DELETE and MERGE in WITH; `create` for SELECT INTO. Allow fits if all that the statement has are among them, the others if
        /// one is.
        optional verbs: Vec<At<Word>>;
        /// Tables, as `orders`, `sales.orders`, `audit.*`. A name without schema may be in any. Allow fits if all tables of the statement are
        /// among them, the others if one is.
        optional tables: Vec<At<Text>>;
        /// Functions, in the same way.
        optional functions: Vec<At<Text>>;
    }
}

/// The verdict on a statement that no rule fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RuleDefault {
    Allow,
    Deny,
}

impl Choice for RuleDefault {
    const WORDS: &'static [(&'static str, Self)] = &[("allow", Self::Allow), ("deny", Self::Deny)];
}

impl Choice for RuleAction {
    const WORDS: &'static [(&'static str, Self)] =
        &[("deny", Self::Deny), ("allow", Self::Allow), ("log", Self::Log), ("count", Self::Count)];
}

/// The rules of a listener.
pub(super) fn rules(of: &ListenerContext<'_>, reader: &mut Reader<'_>) -> StatementRules {
    let section = &of.section.own.postgres.postgres;
    let path = format!("{}.postgres", of.path);
    let mut rules = StatementRules {
        rules: Vec::new(),
        read_only_users: texts(section.read_only_users.as_ref()),
        denies_others: section.rule_default.value == RuleDefault::Deny,
        statements_max: section.statements_max.as_ref().map(|count| count.value as usize),
    };
    for (index, one) in section.rule.iter().enumerate() {
        let (Some(name), Some(action)) = (&one.name, &one.action) else { continue };
        rules.rules.push(Rule {
            conditions: RuleSettings {
                name: name.value.0.clone(),
                action: Action::Deny,
                users: texts(one.users.as_ref()),
                classes: words(one.classes.as_ref()),
                verbs: words(one.verbs.as_ref()),
                tables: texts(one.tables.as_ref()),
                functions: texts(one.functions.as_ref()),
            },
            databases: texts(one.databases.as_ref()),
            action: action.value,
        });
        // Rules before this one were right.
        if let Err(error) = rules.check() {
            rules.rules.pop();
            report(&error, section, index, &path, reader);
        }
    }
    rules
}

/// Reports what is wrong with a rule, at the key that it is about.
fn report(error: &PolicyError, section: &ListenerPostgresSection, index: usize, path: &str, reader: &mut Reader<'_>) {
    let rule = &section.rule[index];
    let path = format!("{path}.rule[{index}]");
    let key = match error {
        PolicyError::Class(..) => rule.classes.as_ref().map(|at| ("classes", at.span.clone())),
        PolicyError::Verb(..) => rule.verbs.as_ref().map(|at| ("verbs", at.span.clone())),
        PolicyError::Pattern(..) => {
            let tables = rule.tables.as_ref().map(|at| ("tables", at.span.clone()));
            tables.or_else(|| rule.functions.as_ref().map(|at| ("functions", at.span.clone())))
        }
        _ => None,
    };
    let name = rule.name.as_ref().map(|name| ("name", name.span.clone()));
    let Some((key, span)) = key.or(name) else { return };
    let at = At { value: (), span, is_given: true };
    error_at(&at, &path, key, &format!("is wrong: {error}"), "see PostgreSQL, Rules, in the guide", reader);
}

fn texts(list: Option<&At<Vec<At<Text>>>>) -> Vec<String> {
    list.iter().flat_map(|list| &list.value).map(|text| text.value.0.clone()).collect()
}

fn words(list: Option<&At<Vec<At<Word>>>>) -> Vec<String> {
    list.iter().flat_map(|list| &list.value).map(|word| word.value.0.clone()).collect()
}
