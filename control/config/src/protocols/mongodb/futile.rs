//! Settings that look like a limit or like protection and are none.

use weir_analysis::mongodb::{COMMANDS, Class, Target, lookup};
use weir_base::nearest;
use weir_mongodb::settings::{Auth, FaceChoice};
use weir_policy::mongodb::Action;

use super::keys::ListenerMongodbSection;
use super::rules::RuleSection;
use crate::checks::{warn_at, warn_repeated};
use crate::document::At;
use crate::protocols::ListenerContext;
use crate::reader::Reader;
use crate::texts::{Text, Word};

/// Those of a listener.
pub(super) fn check(of: &ListenerContext<'_>, reader: &mut Reader<'_>) {
    let section = &of.section.own.mongodb.mongodb;
    let path = format!("{}.mongodb", of.path);
    if let Some(compressors) = &section.compressors {
        warn_repeated(compressors, &path, "compressors", reader);
    }
    let has_set = of.upstream.is_some_and(|upstream| upstream.own.mongodb.mongodb.replica_set.is_some());
    if section.face.value == FaceChoice::Standalone && has_set {
        let what = "keeps drivers from transactions and retryable writes, which the replica set of the upstream has";
        warn_at(&section.face, &path, "face", what, "write face = \"mongos\", or remove it", reader);
    }
    check_rules(of, section, &path, reader);
}

fn check_rules(of: &ListenerContext<'_>, section: &ListenerMongodbSection, path: &str, reader: &mut Reader<'_>) {
    let users = users(of);
    check_users(section.read_only_users.as_ref(), users.as_deref(), (path, "read_only_users"), reader);
    for (index, rule) in section.rule.iter().enumerate() {
        let path = format!("{path}.rule[{index}]");
        check_users(rule.users.as_ref(), users.as_deref(), (&path, "users"), reader);
        check_commands(rule.commands.as_ref(), &path, reader);
        check_collections(rule.collections.as_ref(), &path, reader);
        let Some(name) = &rule.name else { continue };
        if is_empty(rule) {
            let what = "fits no command: none has all that its conditions want";
            warn_at(name, &path, "name", what, "make a rule of each condition: all of one rule must fit", reader);
        }
        if let Some(earlier) = section.rule[..index].iter().find(|earlier| covers(earlier, rule)) {
            let earlier = earlier.name.as_ref().map_or("", |name| name.value.0.as_str());
            let what = format!("never decides: rule \"{earlier}\" before it does so for each command that it fits");
            warn_at(name, &path, "name", &what, "move this rule before that one, or remove it", reader);
        }
    }
}

/// The names of all users that can log in; `None`: they are not in the file.
fn users<'s>(of: &ListenerContext<'s>) -> Option<Vec<&'s str>> {
    let listed = of.section.own.redis.user.iter().filter_map(|user| user.name.as_ref());
    match of.section.own.mongodb.mongodb.auth.value {
        Auth::Scram | Auth::Plain => Some(listed.map(|name| name.value.0.as_str()).collect()),
        // No client has a name.
        Auth::None => Some(Vec::new()),
        Auth::X509 | Auth::Passthrough => None,
    }
}

fn check_users(
    list: Option<&At<Vec<At<Text>>>>,
    known: Option<&[&str]>,
    (path, key): (&str, &str),
    reader: &mut Reader<'_>,
) {
    let (Some(list), Some(known)) = (list, known) else { return };
    for name in list.value.iter().filter(|name| !known.contains(&name.value.0.as_str())) {
        let what = format!("names \"{}\": no user of this listener has the name", name.value.0);
        warn_at(name, path, key, &what, "correct the name, or remove it", reader);
    }
}

fn check_commands(list: Option<&At<Vec<At<Word>>>>, path: &str, reader: &mut Reader<'_>) {
    let Some(list) = list else { return };
    for word in &list.value {
        let name = word.value.0.as_str();
        let is_known = COMMANDS.iter().any(|row| row.name.eq_ignore_ascii_case(name));
        if !is_known {
            let what = format!("has \"{name}\", which no server of MongoDB 2.2 to 8.2 knows");
            let help = match nearest(name, COMMANDS.iter().map(|row| row.name)) {
                Some(meant) => format!("did you mean \"{meant}\"?"),
                None => "correct the name, unless your server has this command".to_owned(),
            };
            warn_at(word, path, "commands", &what, help, reader);
        }
        let is_local = lookup(name.as_bytes()).is_some_and(|row| row.class == Class::Connection);
        if is_local {
            let what = format!("has \"{name}\", to which no rule applies: it reaches no data");
            warn_at(word, path, "commands", &what, "remove it", reader);
        }
    }
}

/// A full name is no collection of a database, though its name may have dots.
fn check_collections(list: Option<&At<Vec<At<Text>>>>, path: &str, reader: &mut Reader<'_>) {
    let known = ["system", "fs", "enxcol_"];
    for name in list.iter().flat_map(|list| &list.value) {
        let Some((first, rest)) = name.value.0.split_once('.') else { continue };
        if !first.is_empty() && !rest.is_empty() && !known.contains(&first) && !first.contains('*') {
            let what = format!("has \"{}\", the collection of this whole name in any database", name.value.0);
            let help =
                format!("write databases = [\"{first}\"] and collections = [\"{rest}\"], if {first} is a database");
            warn_at(name, path, "collections", &what, help, reader);
        }
    }
}

fn is_absent<T>(list: &Option<At<Vec<At<T>>>>) -> bool {
    list.as_ref().is_none_or(|list| list.value.is_empty())
}

/// Whether `earlier` decides about every command that `later` could decide about.
fn covers(earlier: &RuleSection, later: &RuleSection) -> bool {
    let decides = |rule: &RuleSection| {
        rule.action.as_ref().is_some_and(|action| matches!(action.value, Action::Allow | Action::Deny))
    };
    let has_all = |earlier: &Option<At<Vec<At<Text>>>>, later: &Option<At<Vec<At<Text>>>>| {
        let is_in =
            |name: &At<Text>| earlier.iter().flat_map(|list| &list.value).any(|known| known.value.0 == name.value.0);
        is_absent(earlier) || (!is_absent(later) && later.iter().flat_map(|list| &list.value).all(is_in))
    };
    let allows = |rule: &RuleSection| rule.action.as_ref().is_some_and(|action| action.value == Action::Allow);
    // A dangerous command passes only by its name or class.
    let is_about_dangerous = !is_absent(&later.commands)
        || later.classes.iter().flat_map(|list| &list.value).any(|class| class.value == Class::Dangerous);
    decides(earlier)
        && decides(later)
        && !(allows(earlier) && is_about_dangerous)
        && is_absent(&earlier.classes)
        && is_absent(&earlier.commands)
        && is_absent(&earlier.databases)
        && is_absent(&earlier.collections)
        && !earlier.javascript.value
        && has_all(&earlier.users, &later.users)
}

/// Whether no command fits all conditions of the rule.
fn is_empty(rule: &RuleSection) -> bool {
    let classes: Vec<Class> = rule.classes.iter().flat_map(|list| &list.value).map(|class| class.value).collect();
    let is_impossible = |word: &At<Word>| {
        let Some(row) = COMMANDS.iter().find(|row| row.name.eq_ignore_ascii_case(&word.value.0)) else { return false };
        // Stages may make more of these.
        let may_be_more = matches!(row.name, "aggregate" | "explain");
        let has_class = classes.is_empty() || classes.contains(&row.class) || may_be_more;
        let has_collection = row.target != Target::None || matches!(row.name, "dropDatabase" | "repairDatabase");
        let wants_collection = !is_absent(&rule.collections) && row.class != Class::Dangerous;
        !has_class || (wants_collection && !has_collection)
    };
    let mut commands = rule.commands.iter().flat_map(|list| &list.value);
    let only_transactions = !classes.is_empty() && classes.iter().all(|class| *class == Class::Transaction);
    (!is_absent(&rule.commands) && commands.all(is_impossible)) || (only_transactions && !is_absent(&rule.collections))
}
