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
    /// A rule about statements of a PostgreSQL listener. A rule fits a statement if all its lists fit. The first `allow` or `deny`
    /// rule that fits decides. A denied statement gets SQLSTATE 42501 and the name of the rule.
    pub(crate) struct RuleSection {
        /// Name of the rule in errors, in the log and in metrics. Must be unique in the listener.
        required name: Word;
        /// `allow`, `deny`, `log` (writes a line and counts), or `count`. After `log` and `count`, later rules still apply. DO,
        /// CALL and functions that run a text may do anything: every `deny` rule for the user and database fits them. An `allow`
        /// rule fits them only if it names them, or has no `classes`, `verbs`, `tables` and `functions`.
        required action: RuleAction;
        /// Users to whom the rule applies. If absent, all.
        optional users: Vec<At<Text>>;
        /// Databases to which the rule applies, by the names that clients give. If absent, all.
        optional databases: Vec<At<Text>>;
        /// Classes of statements: `read`, `write`, `ddl`, `transaction`, `session`, `copy`, `admin`, `unknown`; the guide has a
        /// table. COPY FROM is `copy`. Rules other than `allow` also treat it as `write`.
        optional classes: Vec<At<Word>>;
        /// Verbs of statements, such as `truncate`: the first word, also of a statement in EXPLAIN ANALYZE, PREPARE, DECLARE or
        /// COPY. INSERT, UPDATE, DELETE and MERGE in WITH are verbs too. SELECT INTO has `create`. An `allow` rule fits if it lists
        /// all verbs of the statement, other rules if they list one.
        optional verbs: Vec<At<Word>>;
        /// Tables, such as `orders`, `sales.orders`, `audit.*`. A name without schema may be in any schema. An `allow` rule fits if
        /// it lists all tables of the statement, other rules if they list one.
        optional tables: Vec<At<Text>>;
        /// Functions, matched in the same way as `tables`.
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
