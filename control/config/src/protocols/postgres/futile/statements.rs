//! Rules about statements that fit none, or never decide.

use weir_postgres::{rules::RuleAction, settings::Method};

use super::super::database::OTHERS;
use super::super::keys::ListenerPostgresSection;
use super::super::statement_rules::RuleSection;
use crate::checks::warn_at;
use crate::document::At;
use crate::protocols::ListenerContext;
use crate::reader::Reader;
use crate::texts::{Text, Word};

/// Warns of rules without effect, and of names that are not there.
pub(super) fn check(of: &ListenerContext<'_>, reader: &mut Reader<'_>) {
    let section = &of.section.own.postgres.postgres;
    let (users, databases) = (users(of), databases(section));
    let path = format!("{}.postgres", of.path);
    let nowhere = "no user of this listener has the name";
    check_names(section.read_only_users.as_ref(), users.as_deref(), (&path, "read_only_users"), nowhere, reader);
    for (index, rule) in section.rule.iter().enumerate() {
        let path = format!("{path}.rule[{index}]");
        check_names(rule.users.as_ref(), users.as_deref(), (&path, "users"), nowhere, reader);
        let elsewhere = "no database of this listener has the name";
        check_names(rule.databases.as_ref(), databases.as_deref(), (&path, "databases"), elsewhere, reader);
        for (key, list) in [("tables", &rule.tables), ("functions", &rule.functions)] {
            check_case(list.as_ref(), (&path, key), reader);
        }
        check_schemas(rule, &path, reader);
        let Some(name) = &rule.name else { continue };
        if is_empty(rule) {
            let what = "fits no statement: none has all that its lists want";
            warn_at(name, &path, "name", what, "make a rule of each list: all lists of one must fit", reader);
        }
        if let Some(earlier) = section.rule[..index].iter().find(|earlier| covers(earlier, rule)) {
            let earlier = earlier.name.as_ref().map_or("", |name| name.value.0.as_str());
            let what = format!("never decides: rule \"{earlier}\" before it does so for each statement that it fits");
            warn_at(name, &path, "name", &what, "move this rule before that one, or remove it", reader);
        }
    }
}

fn check_names(
    list: Option<&At<Vec<At<Text>>>>,
    known: Option<&[&[u8]]>,
    (path, key): (&str, &str),
    what: &str,
    reader: &mut Reader<'_>,
) {
    let (Some(list), Some(known)) = (list, known) else { return };
    for name in list.value.iter().filter(|name| !known.contains(&name.value.0.as_bytes())) {
        let what = format!("names \"{}\": {what}", name.value.0);
        warn_at(name, path, key, &what, "correct the name, or remove it", reader);
    }
}

/// The server folds names to lower case, unless they stand in double quotes.
fn check_case(list: Option<&At<Vec<At<Text>>>>, (path, key): (&str, &str), reader: &mut Reader<'_>) {
    let Some(list) = list else { return };
    for name in &list.value {
        let lower = name.value.0.to_ascii_lowercase();
        if lower != name.value.0 && !list.value.iter().any(|other| other.value.0 == lower) {
            let what = format!("has \"{}\", which only a name in double quotes is in a statement", name.value.0);
            warn_at(name, path, key, &what, format!("add \"{lower}\" to the list, or write it so"), reader);
        }
    }
}

/// A name without schema may be in any, so a rule about all of a schema also denies what clients name without one.
fn check_schemas(rule: &RuleSection, path: &str, reader: &mut Reader<'_>) {
    let denies = rule.action.as_ref().is_some_and(|action| action.value == RuleAction::Deny);
    let lists = [("tables", &rule.tables), ("functions", &rule.functions)];
    for (key, name) in lists
        .into_iter()
        .flat_map(|(key, list)| list.iter().flat_map(move |list| list.value.iter().map(move |name| (key, name))))
    {
        if denies && name.value.0.ends_with(".*") && name.value.0 != "*.*" {
            let what = format!("has \"{}\", which also fits every name without schema", name.value.0);
            warn_at(
                name,
                path,
                key,
                &what,
                "list the names of the schema, unless all statements of clients name schemas",
                reader,
            );
        }
    }
}

/// The names of all users that can log in; `None`: they are not all in the file.
fn users<'s>(of: &ListenerContext<'s>) -> Option<Vec<&'s [u8]>> {
    let section = &of.section.own.postgres.postgres;
    let needs_list = |method: Method| !matches!(method, Method::Trust | Method::Cert);
    let mut methods = section.hba.iter().filter_map(|rule| rule.method.as_ref()).map(|method| method.value.method());
    let is_known = match section.hba.is_empty() {
        true => needs_list(section.auth.value),
        false => methods.all(needs_list),
    };
    if !is_known || section.auth_user.is_some() {
        return None;
    }
    let listed = of.section.own.redis.user.iter().filter_map(|user| user.name.as_ref());
    let in_file = section.userlist.iter().flat_map(|file| &file.value.users).map(|(name, _)| &**name);
    Some(listed.map(|name| name.value.0.as_bytes()).chain(in_file).collect())
}

/// The names of all databases that clients can give; `None`: any name.
fn databases(section: &ListenerPostgresSection) -> Option<Vec<&[u8]>> {
    let names: Vec<_> = section.database.iter().filter_map(|one| one.name.as_ref()).collect();
    let is_open = names.is_empty() || names.iter().any(|name| name.value.0 == OTHERS);
    (!is_open).then(|| names.into_iter().map(|name| name.value.0.as_bytes()).collect())
}

fn is_absent<T>(list: &Option<At<Vec<At<T>>>>) -> bool {
    list.as_ref().is_none_or(|list| list.value.is_empty())
}

/// Whether `earlier` decides about every statement that `later` could decide about.
fn covers(earlier: &RuleSection, later: &RuleSection) -> bool {
    let decides = |rule: &RuleSection| {
        rule.action.as_ref().is_some_and(|action| matches!(action.value, RuleAction::Allow | RuleAction::Deny))
    };
    let has_all = |earlier: &Option<At<Vec<At<Text>>>>, later: &Option<At<Vec<At<Text>>>>| {
        let is_in =
            |name: &At<Text>| earlier.iter().flat_map(|list| &list.value).any(|known| known.value.0 == name.value.0);
        is_absent(earlier) || (!is_absent(later) && later.iter().flat_map(|list| &list.value).all(is_in))
    };
    let fits_all = is_absent(&earlier.classes)
        && is_absent(&earlier.verbs)
        && is_absent(&earlier.tables)
        && is_absent(&earlier.functions);
    decides(earlier)
        && decides(later)
        && fits_all
        && has_all(&earlier.users, &later.users)
        && has_all(&earlier.databases, &later.databases)
}

/// A statement with a verb: its class, and whether it can name tables and functions.
struct Shape {
    class: &'static str,
    has_tables: bool,
    has_functions: bool,
}

/// The shape of statements with verbs that have one only.
fn shape(verb: &str) -> Option<Shape> {
    let of = |class, has_tables| Some(Shape { class, has_tables, has_functions: false });
    match verb {
        "truncate" | "lock" => of("write", true),
        "drop" | "grant" | "revoke" | "comment" | "security" | "import" | "reassign" | "refresh" => of("ddl", true),
        "vacuum" | "analyze" | "cluster" | "reindex" => of("admin", true),
        "checkpoint" | "load" => of("admin", false),
        "abort" | "begin" | "commit" | "end" | "release" | "rollback" | "savepoint" | "start" => {
            of("transaction", false)
        }
        "close" | "deallocate" | "discard" | "listen" | "notify" | "reset" | "unlisten" => of("session", false),
        "fetch" | "move" | "show" => of("read", false),
        _ => None,
    }
}

/// Whether no statement fits all lists of the rule.
fn is_empty(rule: &RuleSection) -> bool {
    let words = |list: &Option<At<Vec<At<Word>>>>| -> Vec<String> {
        list.iter().flat_map(|list| &list.value).map(|word| word.value.0.clone()).collect()
    };
    let (classes, verbs) = (words(&rule.classes), words(&rule.verbs));
    let (wants_tables, wants_functions) = (!is_absent(&rule.tables), !is_absent(&rule.functions));
    let is_impossible = |verb: &String| {
        shape(verb).is_some_and(|shape| {
            let is_of_class = classes.is_empty() || classes.iter().any(|class| class == shape.class);
            !is_of_class || (wants_tables && !shape.has_tables) || (wants_functions && !shape.has_functions)
        })
    };
    let only_transactions = !classes.is_empty() && classes.iter().all(|class| class == "transaction");
    (!verbs.is_empty() && verbs.iter().all(is_impossible)) || (only_transactions && (wants_tables || wants_functions))
}
