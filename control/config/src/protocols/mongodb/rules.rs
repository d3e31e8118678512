//! Rules about the commands of clients.

use std::sync::Arc;

use weir_analysis::mongodb::Class;
use weir_policy::mongodb::{Action, Policy, PolicyError, RuleSettings, Settings};

use super::keys::ListenerMongodbSection;
use crate::checks::error_at;
use crate::document::At;
use crate::protocols::ListenerContext;
use crate::reader::Reader;
use crate::section::section;
use crate::texts::{Choice, Text, Word};

section! {
    /// A rule about commands of a MongoDB listener. A rule fits a command if all its conditions fit. The first `allow` or `deny` rule
    /// that fits decides. A denied command gets the error 13 (Unauthorized) with the name of the rule.
    pub(crate) struct RuleSection {
        /// Name of the rule in errors, in the log and in metrics. Must be unique in the listener.
        required name: Word;
        /// `allow`, `deny`, or `observe` (writes a line and counts). After `observe`, later rules still apply. A dangerous command
        /// needs an `allow` rule that lists the command or the class `dangerous`.
        required action: Action;
        /// Users to whom the rule applies. If absent, all.
        optional users: Vec<At<Text>>;
        /// Databases, such as `shop`, `test_*`. An `allow` rule fits if it lists the databases of all collections of the command,
        /// other rules if they list one.
        optional databases: Vec<At<Text>>;
        /// Collections, such as `orders`, `system.*`. With `databases`, both must fit the same collection. Matched in the same way
        /// as `databases`; stages such as `$lookup` and `$out` count. `dropDatabase` is on all collections of its database.
        optional collections: Vec<At<Text>>;
        /// Classes of commands: `read`, `write`, `ddl`, `transaction`, `session`, `admin`, `dangerous`; the guide has a table.
        optional classes: Vec<At<Class>>;
        /// Commands, such as `findAndModify`. Case does not count.
        optional commands: Vec<At<Word>>;
        /// If `true`, the rule fits only commands with JavaScript: `$where`, `$function`, `$accumulator`, mapReduce.
        default javascript: bool = false;
    }
}

/// The verdict on a command that no rule fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RuleDefault {
    Allow,
    Deny,
}

impl Choice for RuleDefault {
    const WORDS: &'static [(&'static str, Self)] = &[("allow", Self::Allow), ("deny", Self::Deny)];
}

impl Choice for Action {
    const WORDS: &'static [(&'static str, Self)] =
        &[("deny", Self::Deny), ("allow", Self::Allow), ("observe", Self::Observe)];
}

/// Commands of the class connection are answered without a look at the rules.
impl Choice for Class {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("read", Self::Read),
        ("write", Self::Write),
        ("ddl", Self::Ddl),
        ("transaction", Self::Transaction),
        ("session", Self::Session),
        ("admin", Self::Admin),
        ("dangerous", Self::Dangerous),
    ];
}

/// The policy of a listener. Rules that are wrong are reported.
pub(super) fn policy(of: &ListenerContext<'_>, reader: &mut Reader<'_>) -> Arc<Policy> {
    let section = &of.section.own.mongodb.mongodb;
    let path = format!("{}.mongodb", of.path);
    let mut settings = Settings {
        read_only_users: texts(section.read_only_users.as_ref()),
        rules: Vec::new(),
        denies_others: section.rule_default.value == RuleDefault::Deny,
    };
    let mut policy = Policy::default();
    if let Ok(made) = Policy::new(&settings) {
        policy = made;
    }
    for (index, one) in section.rule.iter().enumerate() {
        let (Some(name), Some(action)) = (&one.name, &one.action) else { continue };
        settings.rules.push(RuleSettings {
            name: name.value.0.clone(),
            action: action.value,
            users: texts(one.users.as_ref()),
            databases: texts(one.databases.as_ref()),
            collections: texts(one.collections.as_ref()),
            classes: one.classes.iter().flat_map(|list| &list.value).map(|class| class.value).collect(),
            commands: one.commands.iter().flat_map(|list| &list.value).map(|word| word.value.0.clone()).collect(),
            is_about_javascript: one.javascript.value,
        });
        // Rules before this one were right.
        match Policy::new(&settings) {
            Ok(made) => policy = made,
            Err(error) => {
                settings.rules.pop();
                report(&error, section, index, &path, reader);
            }
        }
    }
    Arc::new(policy)
}

/// Reports what is wrong with a rule, at the key that it is about.
fn report(error: &PolicyError, section: &ListenerMongodbSection, index: usize, path: &str, reader: &mut Reader<'_>) {
    let rule = &section.rule[index];
    let path = format!("{path}.rule[{index}]");
    let lists = [("databases", &rule.databases), ("collections", &rule.collections)];
    let wrong = |text: &str| {
        let entries = |(key, list): &(&'static str, &Option<At<Vec<At<Text>>>>)| {
            let entry = list.iter().flat_map(|list| &list.value).find(|entry| entry.value.0 == text)?;
            Some((*key, entry.span.clone()))
        };
        lists.iter().find_map(entries)
    };
    let (found, help) = match error {
        PolicyError::Pattern(_, text) => (wrong(text), "write a name, such as \"orders\" or \"audit*\""),
        PolicyError::Name(_) => (None, "give each rule a short name of its own"),
        PolicyError::TooManyRules(_) => (None, "make one rule of several, with patterns"),
    };
    let name = rule.name.as_ref().map(|name| ("name", name.span.clone()));
    let Some((key, span)) = found.or(name) else { return };
    let at = At { value: (), span, is_given: true };
    error_at(&at, &path, key, &format!("is wrong: {error}"), help, reader);
}

fn texts(list: Option<&At<Vec<At<Text>>>>) -> Vec<String> {
    list.iter().flat_map(|list| &list.value).map(|text| text.value.0.clone()).collect()
}
