use std::cell::RefCell;

use weir_mongodb_codec::bson::{self, Document, Writer};

use super::super::rules::{Policy, RuleSettings, Settings};
use super::*;

fn rule(name: &str, action: Action, change: impl FnOnce(&mut RuleSettings)) -> RuleSettings {
    let mut rule = RuleSettings {
        name: name.to_owned(),
        action,
        users: Vec::new(),
        databases: Vec::new(),
        collections: Vec::new(),
        classes: Vec::new(),
        commands: Vec::new(),
        is_about_javascript: false,
    };
    change(&mut rule);
    rule
}

fn texts(list: &[&str]) -> Vec<String> {
    list.iter().map(|text| (*text).to_owned()).collect()
}

fn deny(change: impl FnOnce(&mut RuleSettings)) -> UserPolicy {
    policy(Settings { rules: vec![rule("no", Action::Deny, change)], ..Settings::default() })
}

fn policy(settings: Settings) -> UserPolicy {
    Policy::new(&settings).expect("a policy").user(Some(b"app"))
}

/// The verdict on a command in the database `shop`; an empty word: it passes.
fn judged_beside<'b>(
    policy: &UserPolicy,
    beside: Option<&[(&'static str, &'b [u8])]>,
    body: impl FnOnce(&mut Writer<'_>),
    seen: &RefCell<Vec<String>>,
) -> String {
    let mut out = Vec::new();
    bson::document(&mut out, body);
    let command = Command::read_in(Document::read(&out).expect("a document"), Some(b"shop")).expect("a command");
    let arguments = beside.map(|list| {
        let one = |(name, bytes): &(&'static str, &'b [u8])| Argument {
            name: name.as_bytes(),
            document: Document::read(bytes).expect("a document"),
        };
        list.iter().map(one).collect::<Vec<_>>()
    });
    let verdict = policy.check(&command, arguments, |name| seen.borrow_mut().push(name.to_owned()));
    verdict.err().map_or_else(String::new, |denial| denial.reason.word().to_owned())
}

fn judged(policy: &UserPolicy, body: impl FnOnce(&mut Writer<'_>)) -> String {
    judged_beside(policy, Some(&[]), body, &RefCell::default())
}

fn named(name: &'static str) -> impl FnOnce(&mut Writer<'_>) {
    move |body| body.string(name, "orders")
}

fn aggregate(stage: &'static str, value: &'static str) -> impl FnOnce(&mut Writer<'_>) {
    move |body| {
        body.string("aggregate", "orders");
        body.array("pipeline", 0..1, |writer, name, _| writer.document(name, |one| one.string(stage, value)));
    }
}

#[test]
fn without_rules_only_dangerous_commands_are_refused() {
    let open = policy(Settings::default());
    assert!(open.is_unrestricted());
    for name in ["find", "insert", "drop", "createUser", "unknownCommand", "getMore", "commitTransaction"] {
        assert_eq!(judged(&open, named(name)), "", "{name}");
    }
    for name in ["eval", "fsync", "shutdown", "configureFailPoint"] {
        assert_eq!(judged(&open, named(name)), "dangerous", "{name}");
    }
}

#[test]
fn a_dangerous_command_passes_only_by_its_name_or_class() {
    let allow = |change: fn(&mut RuleSettings)| {
        policy(Settings { rules: vec![rule("yes", Action::Allow, change)], ..Settings::default() })
    };
    for (policy, word) in [
        (allow(|_| ()), "dangerous"),
        (allow(|rule| rule.users = texts(&["app"])), "dangerous"),
        (allow(|rule| rule.classes = vec![Class::Admin]), "dangerous"),
        (allow(|rule| rule.commands = texts(&["fsync"])), ""),
        (allow(|rule| rule.classes = vec![Class::Dangerous]), ""),
    ] {
        assert_eq!(judged(&policy, named("fsync")), word, "{policy:?}");
    }
}

#[test]
fn classes_follow_what_a_command_does() {
    let no_writes = deny(|rule| rule.classes = vec![Class::Write]);
    for name in ["insert", "update", "findAndModify", "findandmodify", "bulkWrite"] {
        assert_eq!(judged(&no_writes, named(name)), "no", "{name}");
    }
    assert_eq!(judged(&no_writes, aggregate("$match", "x")), "");
    assert_eq!(judged(&no_writes, aggregate("$out", "copy")), "no");
    let no_admin = deny(|rule| rule.classes = vec![Class::Admin]);
    assert_eq!(judged(&no_admin, aggregate("$currentOp", "x")), "no");
    assert_eq!(judged(&no_admin, named("unknownCommand")), "no");
}

#[test]
fn a_command_has_its_rule_in_each_of_its_forms() {
    let no_change = deny(|rule| rule.commands = texts(&["findAndModify"]));
    assert_eq!(judged(&no_change, named("findandmodify")), "no");
    assert_eq!(judged(&no_change, named("find")), "");
}

#[test]
fn a_collection_is_found_wherever_a_command_names_it() {
    let no_secrets = deny(|rule| {
        rule.databases = texts(&["shop"]);
        rule.collections = texts(&["secret*"]);
    });
    let of = |collection: &'static str| move |body: &mut Writer<'_>| body.string("find", collection);
    assert_eq!(judged(&no_secrets, of("secrets")), "no");
    assert_eq!(judged(&no_secrets, of("orders")), "");
    assert_eq!(judged(&no_secrets, aggregate("$unionWith", "secrets")), "no");
    assert_eq!(judged(&no_secrets, aggregate("$out", "secret2")), "no");
    assert_eq!(judged(&no_secrets, |body| body.int32("dropDatabase", 1)), "no", "it has all collections");
    assert_eq!(judged(&no_secrets, |body| body.int32("listCollections", 1)), "");
    assert_eq!(judged(&no_secrets, |body| body.string("newCommand", "secrets")), "no", "as most commands name it");
    let rename = |body: &mut Writer<'_>| {
        body.string("renameCollection", "shop.a");
        body.string("to", "shop.secrets");
    };
    assert_eq!(judged(&no_secrets, rename), "no");
    let elsewhere = |body: &mut Writer<'_>| {
        body.string("renameCollection", "other.a");
        body.string("to", "other.secrets");
    };
    assert_eq!(judged(&no_secrets, elsewhere), "", "database and collection fit one name");
    let elsewhere = |body: &mut Writer<'_>| {
        body.string("cloneCollectionAsCapped", "orders");
        body.string("toCollection", "secrets");
    };
    assert_eq!(judged(&no_secrets, elsewhere), "no");
    let view = |body: &mut Writer<'_>| {
        body.string("create", "view");
        body.string("viewOn", "orders");
        body.array("pipeline", 0..1, |writer, name, _| {
            writer.document(name, |stage| stage.document("$lookup", |lookup| lookup.string("from", "secrets")));
        });
    };
    assert_eq!(judged(&no_secrets, view), "no");
}

#[test]
fn a_view_of_a_collection_is_a_read_of_it() {
    let view = |name: &'static str| {
        move |body: &mut Writer<'_>| {
            body.string(name, "v1");
            body.string("viewOn", "secrets");
            body.array("pipeline", [0; 0], |_, _, _| {});
        }
    };
    let no_secrets = deny(|rule| rule.collections = texts(&["secrets"]));
    let only_views = policy(Settings {
        rules: vec![rule("views", Action::Allow, |rule| rule.collections = texts(&["v*"]))],
        denies_others: true,
        ..Settings::default()
    });
    for name in ["create", "collMod"] {
        assert_eq!(judged(&no_secrets, view(name)), "no", "{name}");
        assert_eq!(judged(&only_views, view(name)), "default", "{name}");
    }
    assert_eq!(judged(&only_views, |body| body.string("create", "v1")), "");
}

#[test]
fn a_change_stream_of_many_collections_reaches_all_of_them() {
    let stream = |of_cluster: bool| {
        move |body: &mut Writer<'_>| {
            body.int32("aggregate", 1);
            body.array("pipeline", 0..1, |writer, name, _| {
                writer.document(name, |stage| {
                    stage.document("$changeStream", |options| options.bool("allChangesForCluster", of_cluster));
                });
            });
        }
    };
    let no_secrets = deny(|rule| rule.collections = texts(&["secrets"]));
    let elsewhere = deny(|rule| rule.databases = texts(&["other"]));
    for (policy, of_cluster, word) in
        [(&no_secrets, false, "no"), (&no_secrets, true, "no"), (&elsewhere, false, ""), (&elsewhere, true, "no")]
    {
        assert_eq!(judged(policy, stream(of_cluster)), word, "{policy:?} {of_cluster}");
    }
    let only_shop = policy(Settings {
        rules: vec![rule("shop", Action::Allow, |rule| rule.databases = texts(&["shop"]))],
        denies_others: true,
        ..Settings::default()
    });
    assert_eq!(
        (judged(&only_shop, stream(false)), judged(&only_shop, stream(true))),
        (String::new(), "default".into())
    );
}

#[test]
fn a_collection_without_its_name_is_not_passed_where_a_rule_may_be_about_it() {
    let no_secrets = deny(|rule| rule.collections = texts(&["secrets"]));
    for name in ["find", "count", "aggregate", "listIndexes"] {
        assert_eq!(judged(&no_secrets, |body| body.binary(name, 4, &[7; 16])), "not_analysed", "{name}");
    }
    let root = |body: &mut Writer<'_>| {
        body.int32("filemd5", 1);
        body.string("root", "secrets");
    };
    assert_eq!(judged(&no_secrets, root), "not_analysed");
    assert_eq!(judged(&no_secrets, |body| body.int32("listCollections", 1)), "");
}

#[test]
fn a_database_in_the_value_of_a_command_is_that_of_the_command() {
    let no_shop = deny(|rule| rule.databases = texts(&["store"]));
    for name in ["enableSharding", "movePrimary"] {
        assert_eq!(judged(&no_shop, |body| body.string(name, "store")), "no", "{name}");
        assert_eq!(judged(&no_shop, |body| body.string(name, "other")), "", "{name}");
    }
    assert_eq!(judged(&no_shop, |body| body.string("commitReshardCollection", "store.a")), "no");
}

#[test]
fn a_sequence_that_a_command_does_not_have_is_not_passed() {
    let mut stage = Vec::new();
    bson::document(&mut stage, |stage| stage.string("$out", "copy"));
    let beside = Some(&[("pipeline", &stage[..])][..]);
    let (seen, body) = (RefCell::default(), || |body: &mut Writer<'_>| body.string("aggregate", "orders"));
    let no_writes = deny(|rule| rule.classes = vec![Class::Write]);
    assert_eq!(judged_beside(&no_writes, beside, body(), &seen), "not_analysed");
    assert_eq!(judged_beside(&no_writes, None, body(), &seen), "not_analysed");
    let reader = policy(Settings { read_only_users: texts(&["app"]), ..Settings::default() });
    assert_eq!(judged_beside(&reader, beside, body(), &seen), "read_only");
    assert_eq!(judged_beside(&reader, Some(&[]), body(), &seen), "");
}

#[test]
fn case_does_not_make_a_dangerous_command_harmless() {
    let open = policy(Settings::default());
    for name in ["SHUTDOWN", "Eval", "APPLYOPS"] {
        assert_eq!(judged(&open, named(name)), "dangerous", "{name}");
    }
    assert_eq!(judged(&open, named("FIND")), "");
    let reader = policy(Settings { read_only_users: texts(&["app"]), ..Settings::default() });
    assert_eq!(judged(&reader, named("FIND")), "read_only", "it is a command that is not known");
}

#[test]
fn bulk_writes_are_judged_by_their_names_even_beside_the_body() {
    let no_secrets = deny(|rule| rule.collections = texts(&["secrets"]));
    let bulk = |body: &mut Writer<'_>| body.int32("bulkWrite", 1);
    let info = |name: &str| {
        let mut out = Vec::new();
        bson::document(&mut out, |info| info.string("ns", name));
        out
    };
    let seen = RefCell::default();
    let (secrets, orders) = (info("shop.secrets"), info("shop.orders"));
    assert_eq!(judged_beside(&no_secrets, Some(&[("nsInfo", &secrets)]), bulk, &seen), "no");
    assert_eq!(judged_beside(&no_secrets, Some(&[("nsInfo", &orders)]), bulk, &seen), "");
    assert_eq!(judged_beside(&no_secrets, None, bulk, &seen), "not_analysed");
    let no_ddl = deny(|rule| rule.classes = vec![Class::Ddl]);
    assert_eq!(judged_beside(&no_ddl, None, bulk, &seen), "", "no rule asks for names");
}

#[test]
fn javascript_is_found_and_stored_documents_are_not_looked_at() {
    let no_javascript = deny(|rule| rule.is_about_javascript = true);
    let filter = |body: &mut Writer<'_>| {
        body.string("find", "orders");
        body.document("filter", |filter| filter.string("$where", "1"));
    };
    assert_eq!(judged(&no_javascript, filter), "no");
    assert_eq!(judged(&no_javascript, named("mapReduce")), "no");
    assert_eq!(judged(&no_javascript, named("find")), "");
    let mut stored = Vec::new();
    bson::document(&mut stored, |document| document.string("$where", "1"));
    let seen = RefCell::default();
    assert_eq!(judged_beside(&no_javascript, Some(&[("documents", &stored)]), named("insert"), &seen), "");
    assert_eq!(judged_beside(&no_javascript, Some(&[("updates", &stored)]), named("update"), &seen), "no");
    assert_eq!(judged_beside(&no_javascript, None, named("update"), &seen), "not_analysed");
    assert_eq!(judged_beside(&no_javascript, None, named("insert"), &seen), "");
}

#[test]
fn a_command_beyond_the_budget_is_denied_where_a_rule_may_be_about_it() {
    let deep = |body: &mut Writer<'_>| {
        body.string("aggregate", "orders");
        body.array("pipeline", 0..1, |writer, name, _| {
            writer.document(name, |stage| {
                stage.array("$match", 0..300_000, |writer, name, _| writer.int32(name, 1));
            });
        });
    };
    let no_secrets = deny(|rule| rule.collections = texts(&["secrets"]));
    assert_eq!(judged(&no_secrets, deep), "not_analysed");
    let no_drop = deny(|rule| rule.commands = texts(&["drop"]));
    assert_eq!(judged(&no_drop, deep), "");
    let readers = policy(Settings {
        rules: vec![rule("reads", Action::Allow, |rule| rule.classes = vec![Class::Read])],
        denies_others: true,
        ..Settings::default()
    });
    assert_eq!(judged(&readers, deep), "default", "it may be more than a read");
}

#[test]
fn the_first_rule_that_allows_or_denies_decides_and_others_observe() {
    let rules = vec![
        rule("seen", Action::Observe, |rule| rule.collections = texts(&["orders"])),
        rule("mine", Action::Allow, |rule| rule.users = texts(&["owner"])),
        rule("no-ddl", Action::Deny, |rule| rule.classes = vec![Class::Ddl]),
        rule("late", Action::Observe, |_| ()),
    ];
    let policy = Policy::new(&Settings { rules, ..Settings::default() }).expect("a policy");
    for (user, command, word, names) in [
        (Some(&b"app"[..]), "drop", "no-ddl", &["seen"][..]),
        (Some(b"owner"), "drop", "", &["seen"]),
        (None, "drop", "no-ddl", &["seen"]),
        (None, "find", "", &["seen", "late"]),
    ] {
        let seen = RefCell::default();
        assert_eq!(judged_beside(&policy.user(user), Some(&[]), named(command), &seen), word, "{user:?} {command}");
        assert_eq!(seen.into_inner(), names, "{user:?} {command}");
    }
}

#[test]
fn a_list_of_what_is_allowed_leaves_cursors_and_transactions_usable() {
    let readers = policy(Settings {
        rules: vec![rule("reads", Action::Allow, |rule| {
            rule.classes = vec![Class::Read];
            rule.databases = texts(&["sh*"]);
        })],
        denies_others: true,
        ..Settings::default()
    });
    for name in ["find", "getMore", "endSessions", "commitTransaction", "buildInfo"] {
        assert_eq!(judged(&readers, named(name)), "", "{name}");
    }
    assert_eq!(judged(&readers, named("insert")), "default");
    assert_eq!(judged(&readers, named("createUser")), "default");
}

#[test]
fn an_allowed_command_names_nothing_else() {
    let orders = policy(Settings {
        rules: vec![rule("orders", Action::Allow, |rule| rule.collections = texts(&["orders"]))],
        denies_others: true,
        ..Settings::default()
    });
    assert_eq!(judged(&orders, named("find")), "");
    assert_eq!(judged(&orders, aggregate("$unionWith", "secrets")), "default");
    assert_eq!(judged(&orders, |body| body.int32("listCollections", 1)), "default");
    assert_eq!(judged(&orders, |body| body.int32("dropDatabase", 1)), "default");
}

#[test]
fn a_read_only_user_changes_nothing() {
    let readers = Settings { read_only_users: texts(&["app"]), ..Settings::default() };
    let reader = policy(readers.clone());
    for name in ["find", "count", "getMore", "abortTransaction", "ping"] {
        assert_eq!(judged(&reader, named(name)), "", "{name}");
    }
    for name in ["insert", "create", "createUser", "serverStatus", "fsync", "unknownCommand", "validate", "group"] {
        assert_eq!(judged(&reader, named(name)), "read_only", "{name}");
    }
    assert_eq!(judged(&reader, aggregate("$merge", "copy")), "read_only");
    assert_eq!(judged(&reader, aggregate("$currentOp", "x")), "read_only");
    let other = Policy::new(&readers).expect("a policy").user(Some(b"writer"));
    assert!(other.is_unrestricted());
}

#[test]
fn settings_that_are_wrong_are_named() {
    let of = |rules: Vec<RuleSettings>| {
        Policy::new(&Settings { rules, ..Settings::default() }).expect_err("wrong").to_string()
    };
    let twice = vec![rule("a", Action::Deny, |_| ()), rule("a", Action::Allow, |_| ())];
    assert!(of(twice).contains("names one rule"));
    assert!(of(vec![rule("", Action::Deny, |_| ())]).contains("1 to 63 bytes"));
    assert!(of(vec![rule("a", Action::Deny, |rule| rule.collections = texts(&[""]))]).contains("is empty"));
    let many = (0..=256).map(|number| rule(&number.to_string(), Action::Observe, |_| ())).collect();
    assert!(of(many).contains("at most 256"));
}

#[test]
fn an_error_names_the_command_the_database_and_the_rule() {
    let policy = deny(|rule| rule.classes = vec![Class::Write]);
    let mut out = Vec::new();
    bson::document(&mut out, named("insert"));
    let command = Command::read_in(Document::read(&out).expect("a document"), Some(b"shop")).expect("a command");
    let denial = policy.check(&command, None::<[Argument<'_>; 0]>, |_| ()).expect_err("denied");
    let text = "not authorized on shop to execute command insert: denied by rule \"no\" of the gateway";
    assert_eq!(denial.to_string(), text);
}
