//! Rules about commands, with messages as drivers send them: documents beside the body, long messages that go on while they come,
//! compressed ones. A denied command gets its code, counts under its rule, and nothing of it reaches the server.

use std::collections::BTreeMap;

use weir_mongodb_codec::bson::Writer;
use weir_mongodb_codec::compressed::{self, Compressor};
use weir_mongodb_codec::message::Message;
use weir_tests::deadline::until_true;
use weir_tests::gateway::{Config, Gateway, secret_file};
use weir_tests::mongodb::fake::Fake;
use weir_tests::mongodb::raw::{ID, body, sections, sequence};
use weir_tests::mongodb::wire::{Wire, document, end, find, get_more, login, transaction};

use crate::gateway::{before, closes, port};

const RULES: &str = r#"[listener.mongodb]
auth = "scram"
mechanisms = ["SCRAM-SHA-256"]
compressors = ["snappy"]
read_only_users = ["reader"]
[[listener.mongodb.rule]]
name = "seen"
action = "observe"
users = ["app"]
collections = ["notes"]
[[listener.mongodb.rule]]
name = "backup"
action = "allow"
users = ["backup"]
commands = ["fsync"]
[[listener.mongodb.rule]]
name = "no-ddl"
action = "deny"
users = ["app"]
classes = ["ddl", "admin"]
[[listener.mongodb.rule]]
name = "no-secrets"
action = "deny"
users = ["app", "maker"]
databases = ["test"]
collections = ["secret*"]
[[listener.mongodb.rule]]
name = "no-writes"
action = "deny"
users = ["watcher"]
classes = ["write"]
[[listener.mongodb.rule]]
name = "no-javascript"
action = "deny"
users = ["scripter"]
javascript = true
"#;
const USERS: [&str; 7] = ["app", "backup", "maker", "owner", "reader", "scripter", "watcher"];
const PASSWORD: &str = "word";
/// A value that no log may have.
const VALUE: &str = "value-of-a-filter";
/// Documents of a message that is longer than `held_bytes_max`.
const LONG: usize = 3_000;

/// A command of a user.
struct Case {
    what: &'static str,
    user: &'static str,
    message: Vec<u8>,
    /// The rule that denies it, or the reason beside rules; empty: it passes.
    denied_by: &'static str,
}

type Row = (&'static str, Vec<u8>, &'static str);

/// The cases of one user.
fn of(user: &'static str, rows: impl IntoIterator<Item = Row>) -> Vec<Case> {
    rows.into_iter().map(|(what, message, denied_by)| Case { what, user, message, denied_by }).collect()
}

/// The body of a command on a collection of the database `test`.
fn body_on(command: &str, collection: &str, further: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
    body(|body| {
        body.string(command, collection);
        further(body);
        body.string("$db", "test");
    })
}

/// A command on a collection, with further fields.
fn with(command: &str, collection: &str, further: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
    sections(0, &[body_on(command, collection, further)])
}

/// A command on a collection.
fn on(command: &str, collection: &str) -> Vec<u8> {
    with(command, collection, |_| {})
}

/// A command on a database, or on none.
fn at(database: &str, command: &str, further: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
    sections(
        0,
        &[body(|body| {
            body.int32(command, 1);
            further(body);
            body.string("$db", database);
        })],
    )
}

/// A command on a collection, with documents beside its body.
fn beside(command: &str, collection: &str, identifier: &str, documents: &[u8]) -> Vec<u8> {
    sections(0, &[body_on(command, collection, |_| {}), sequence(identifier, documents)])
}

/// A bulkWrite of one operation on a collection, both beside its body.
fn bulk(operations: &[u8], namespace: &str) -> Vec<u8> {
    let head = body(|body| {
        body.int32("bulkWrite", 1);
        body.string("$db", "admin");
    });
    let info = document(|info| info.string("ns", namespace));
    sections(0, &[head, sequence("ops", operations), sequence("nsInfo", &info)])
}

/// A pipeline of one stage.
fn pipeline(body: &mut Writer<'_>, stage: impl Fn(&mut Writer<'_>)) {
    body.array("pipeline", [()], |array, name, ()| array.document(name, &stage));
}

/// An aggregate of `notes` with one stage.
fn aggregate(stage: impl Fn(&mut Writer<'_>)) -> Vec<u8> {
    with("aggregate", "notes", |body| pipeline(body, stage))
}

/// `{q: {}, u: ..}` of an update, or the like.
fn change(further: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
    document(|change| {
        change.document("q", |_| {});
        further(change);
    })
}

fn where_clause(body: &mut Writer<'_>) {
    body.string("$where", "this.n > 1");
}

fn collections_of_app() -> Vec<Case> {
    let one = document(|one| one.int32("_id", 1));
    let filter = |body: &mut Writer<'_>| body.document("filter", |filter| filter.string("text", VALUE));
    let elsewhere = sections(
        0,
        &[body(|body| {
            body.string("find", "secrets");
            body.string("$db", "other");
        })],
    );
    of(
        "app",
        [
            ("a find", with("find", "notes", filter), ""),
            ("a find of another collection", with("find", "secrets", filter), "no-secrets"),
            ("a find in another database", elsewhere, ""),
            ("an insert beside the body", beside("insert", "notes", "documents", &one), ""),
            ("an insert beside the body, elsewhere", beside("insert", "secrets", "documents", &one), "no-secrets"),
            ("an aggregate", aggregate(|stage| stage.document("$match", |_| {})), ""),
            (
                "a join",
                aggregate(|stage| stage.document("$lookup", |lookup| lookup.string("from", "secrets"))),
                "no-secrets",
            ),
            ("a union", aggregate(|stage| stage.string("$unionWith", "secrets")), "no-secrets"),
            (
                "a union within a facet",
                aggregate(|stage| {
                    stage.document("$facet", |facet| {
                        facet.array("a", [()], |array, name, ()| {
                            array.document(name, |one| one.string("$unionWith", "secrets"));
                        });
                    });
                }),
                "no-secrets",
            ),
            ("an $out", aggregate(|stage| stage.string("$out", "copy")), ""),
            ("an $out elsewhere", aggregate(|stage| stage.string("$out", "secret2")), "no-secrets"),
            (
                "a $merge elsewhere",
                aggregate(|stage| stage.document("$merge", |merge| merge.string("into", "secret2"))),
                "no-secrets",
            ),
            ("a bulkWrite", bulk(&one, "test.notes"), ""),
            ("a bulkWrite elsewhere", bulk(&one, "test.secrets"), "no-secrets"),
            ("a drop", on("drop", "notes"), "no-ddl"),
            ("an index", on("createIndexes", "notes"), "no-ddl"),
            ("a drop of the database", at("test", "dropDatabase", |_| {}), "no-ddl"),
            ("a state of the server", at("admin", "serverStatus", |_| {}), "no-ddl"),
            ("a command that is not known", on("frobnicate", "notes"), "no-ddl"),
            ("a dangerous command", at("admin", "fsync", |_| {}), "dangerous"),
        ],
    )
}

/// Collections that a command names in other places, or not at all.
fn collections_of_maker() -> Vec<Case> {
    let view = |body: &mut Writer<'_>| body.string("viewOn", "secrets");
    let stream = |body: &mut Writer<'_>| pipeline(body, |stage| stage.document("$changeStream", |_| {}));
    let of_cluster = |body: &mut Writer<'_>| {
        pipeline(body, |stage| {
            stage.document("$changeStream", |options| options.bool("allChangesForCluster", true));
        });
    };
    let by_number = sections(
        0,
        &[body(|body| {
            body.binary("find", 4, &[7; 16]);
            body.string("$db", "test");
        })],
    );
    let renamed = sections(
        0,
        &[body(|body| {
            body.string("renameCollection", "test.notes");
            body.string("to", "test.secrets");
            body.string("$db", "admin");
        })],
    );
    let more = sections(0, &[body(|body| get_more(body, 5, "secrets"))]);
    let explained = at_document("explain", |inner| inner.string("find", "secrets"));
    of(
        "maker",
        [
            ("a collection", on("create", "notes"), ""),
            ("a view", with("create", "v", view), "no-secrets"),
            ("a view that is changed", with("collMod", "v", view), "no-secrets"),
            (
                "a copy",
                with("cloneCollectionAsCapped", "notes", |body| body.string("toCollection", "secrets")),
                "no-secrets",
            ),
            ("another name", renamed, "no-secrets"),
            ("a find by number", by_number, "not_analysed"),
            ("an explain", explained, "no-secrets"),
            ("a getMore", more, "no-secrets"),
            ("a list of collections", at("test", "listCollections", |_| {}), ""),
            ("a drop of the database", at("test", "dropDatabase", |_| {}), "no-secrets"),
            ("a drop of another database", at("other", "dropDatabase", |_| {}), ""),
            ("a change stream of a collection", with("aggregate", "notes", stream), ""),
            ("a change stream of the database", at("test", "aggregate", stream), "no-secrets"),
            ("a change stream of another database", at("other", "aggregate", stream), ""),
            ("a change stream of the cluster", at("admin", "aggregate", of_cluster), "no-secrets"),
        ],
    )
}

/// A command whose value is another one.
fn at_document(command: &str, inner: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
    sections(
        0,
        &[body(|body| {
            body.document(command, inner);
            body.string("$db", "test");
        })],
    )
}

fn classes_of_watcher() -> Vec<Case> {
    let one = document(|one| one.int32("_id", 1));
    of(
        "watcher",
        [
            ("a find", on("find", "notes"), ""),
            ("an insert", beside("insert", "notes", "documents", &one), "no-writes"),
            ("an update", beside("update", "notes", "updates", &change(|_| {})), "no-writes"),
            ("a delete", beside("delete", "notes", "deletes", &change(|_| {})), "no-writes"),
            ("a bulkWrite", bulk(&one, "test.notes"), "no-writes"),
            ("a findAndModify", on("findAndModify", "notes"), "no-writes"),
            ("the same in its other form", on("findandmodify", "notes"), "no-writes"),
            ("an aggregate", aggregate(|stage| stage.document("$sort", |sort| sort.int32("_id", 1))), ""),
            ("an $out", aggregate(|stage| stage.string("$out", "copy")), "no-writes"),
            (
                "a $merge",
                aggregate(|stage| stage.document("$merge", |merge| merge.string("into", "copy"))),
                "no-writes",
            ),
            ("a mapReduce", on("mapReduce", "notes"), "no-writes"),
            ("a collection", on("create", "notes"), ""),
        ],
    )
}

fn commands_of_reader() -> Vec<Case> {
    let one = document(|one| one.int32("_id", 1));
    let explained = at_document("explain", |inner| inner.string("find", "notes"));
    let explained_write = at_document("explain", |inner| inner.string("delete", "notes"));
    of(
        "reader",
        [
            ("a find", on("find", "notes"), ""),
            ("a count", on("count", "notes"), ""),
            ("an explain", explained, ""),
            ("an explain of a write", explained_write, "read_only"),
            ("an insert", beside("insert", "notes", "documents", &one), "read_only"),
            ("a bulkWrite", bulk(&one, "test.notes"), "read_only"),
            ("an aggregate", aggregate(|stage| stage.document("$match", |_| {})), ""),
            ("an $out", aggregate(|stage| stage.string("$out", "copy")), "read_only"),
            (
                "a $merge",
                aggregate(|stage| stage.document("$merge", |merge| merge.string("into", "copy"))),
                "read_only",
            ),
            ("operations of others", aggregate(|stage| stage.document("$currentOp", |_| {})), "read_only"),
            ("a collection", on("create", "notes"), "read_only"),
            ("a state of the server", at("admin", "serverStatus", |_| {}), "read_only"),
            ("a command that is not known", on("frobnicate", "notes"), "read_only"),
            ("a dangerous command", at("admin", "fsync", |_| {}), "read_only"),
        ],
    )
}

fn javascript_of_scripter() -> Vec<Case> {
    let stored = document(where_clause);
    let function = |body: &mut Writer<'_>| body.document("$function", |function| function.string("lang", "js"));
    let update = |value: fn(&mut Writer<'_>)| change(|change| change.document("u", value));
    let in_filter = |body: &mut Writer<'_>| body.document("filter", where_clause);
    let deep = |body: &mut Writer<'_>| body.document("filter", |filter| filter.document("$expr", function));
    let plain_update = update(|u| u.document("$set", |set| set.int32("n", 1)));
    let odd_update = update(|u| u.document("$set", |set| set.document("n", |n| n.document("$function", |_| {}))));
    of(
        "scripter",
        [
            ("a find", on("find", "notes"), ""),
            ("a find with a function", with("find", "notes", in_filter), "no-javascript"),
            ("a find with a function in an expression", with("find", "notes", deep), "no-javascript"),
            ("an update beside the body", beside("update", "notes", "updates", &plain_update), ""),
            ("an update with a function", beside("update", "notes", "updates", &odd_update), "no-javascript"),
            (
                "a delete with a function",
                beside("delete", "notes", "deletes", &document(|delete| delete.document("q", where_clause))),
                "no-javascript",
            ),
            (
                "a bulkWrite with a function",
                bulk(&document(|op| op.document("filter", where_clause)), "test.notes"),
                "no-javascript",
            ),
            ("a mapReduce", on("mapReduce", "notes"), "no-javascript"),
            ("a document with the text of one", beside("insert", "notes", "documents", &stored), ""),
        ],
    )
}

fn dangerous_commands() -> Vec<Case> {
    let owners = ["eval", "shutdown", "setParameter", "configureFailPoint", "applyOps", "replSetStepDown"];
    let mut cases = of("owner", owners.map(|name| ("a dangerous command", at("admin", name, |_| {}), "dangerous")));
    cases.extend(of("owner", [("a drop", on("drop", "notes"), ""), ("another one", on("frobnicate", "notes"), "")]));
    cases.extend(of(
        "backup",
        [
            ("the one that a rule allows", at("admin", "fsync", |_| {}), ""),
            ("another one", at("admin", "shutdown", |_| {}), "dangerous"),
        ],
    ));
    cases
}

fn scene() -> (Gateway, Fake) {
    let server = Fake::honest();
    let folder = tempfile::tempdir().expect("a folder");
    let password = secret_file(folder.path(), "password", PASSWORD);
    let user = |name: &str| format!("[[listener.user]]\nname = \"{name}\"\npassword = {{ file = \"{password}\" }}\n");
    let listener = format!("{RULES}{}", USERS.map(user).concat());
    let config = Config { protocol: "mongodb", ..Config::to(&server.address) };
    let gateway = Gateway::start(config.listener(&listener).upstream("[upstream.mongodb]\npool_size = 4"));
    (gateway, server)
}

/// Commands that were denied for this reason.
fn denials(gateway: &Gateway, reason: Option<&str>) -> f64 {
    let rule = reason.map(|reason| ("rule", reason));
    let labels: Vec<_> = [("action", "deny")].into_iter().chain(rule).collect();
    gateway.metrics().sum_where("weir_mongodb_rules_total", &labels)
}

/// The name of a command that is not compressed.
fn name_of(message: &[u8]) -> String {
    let first = Message::read(message).expect("a message").body.first_element().expect("an element");
    String::from_utf8_lossy(first.expect("an element").name).into_owned()
}

/// Sends the message of a case in one of its forms.
fn judge((gateway, server): (&Gateway, &Fake), wire: &mut Wire, case: &Case, message: &[u8]) {
    let Case { what, user, denied_by, .. } = case;
    let (name, reason) = (name_of(&case.message), Some(*denied_by).filter(|word| !word.is_empty()));
    let (arrived, all, by) = (server.count(&name), denials(gateway, None), denials(gateway, reason));
    wire.send(message).expect("sent");
    let reply = wire.reply().unwrap_or_else(|error| panic!("{what} of {user}: {error}"));
    assert_eq!(reply.response_to, ID, "{what} of {user}");
    let code = if reason.is_some() { 13 } else { 0 };
    assert_eq!(reply.code(), code, "{what} of {user}: {reply:?}");
    assert_eq!(server.count(&name) - arrived, u64::from(reason.is_none()), "{what} of {user} at the server");
    let denied = if reason.is_some() { 1.0 } else { 0.0 };
    assert_eq!(denials(gateway, None), all + denied, "{what} of {user}");
    assert_eq!(denials(gateway, reason), by + denied, "{what} of {user}, by {denied_by}");
}

#[test]
fn a_denied_command_gets_code_13_and_nothing_of_it_reaches_the_server() {
    let (gateway, server) = scene();
    let mut wires = BTreeMap::new();
    let cases = [
        collections_of_app(),
        collections_of_maker(),
        classes_of_watcher(),
        commands_of_reader(),
        javascript_of_scripter(),
        dangerous_commands(),
    ];
    for case in cases.iter().flatten() {
        let wire = wires.entry(case.user).or_insert_with(|| login(port(&gateway), case.user, PASSWORD));
        let mut compressed = Vec::new();
        compressed::write(&mut compressed, &case.message, Compressor::Snappy).expect("a message");
        for message in [&case.message, &compressed] {
            judge((&gateway, &server), wire, case, message);
        }
    }
    let seen = [("rule", "seen"), ("action", "observe")];
    assert!(gateway.metrics().sum_where("weir_mongodb_rules_total", &seen) >= 2.0);
    gateway.wait_log("fits find of");
    assert!(!gateway.log().contains(VALUE), "{}", gateway.log());
    drop(wires);
    gateway.finish();
}

/// Many documents.
fn many(one: &[u8]) -> Vec<u8> {
    one.repeat(LONG)
}

#[test]
fn a_message_that_goes_on_while_it_comes_is_judged_by_its_body() {
    let (gateway, server) = scene();
    let one = document(|one| one.string("text", "x".repeat(1_000)));
    let update = change(|change| change.document("u", |u| u.string("text", "x".repeat(1_000))));
    let stage = document(|stage| stage.string("$out", "x".repeat(1_000)));
    let cases = [
        of("watcher", [("a long insert", beside("insert", "notes", "documents", &many(&one)), "no-writes")]),
        of(
            "app",
            [
                ("a long insert", beside("insert", "notes", "documents", &many(&one)), ""),
                ("a long insert elsewhere", beside("insert", "secrets", "documents", &many(&one)), "no-secrets"),
            ],
        ),
        of(
            "reader",
            [
                ("a long update", beside("update", "notes", "updates", &many(&update)), "read_only"),
                ("stages beside the body", beside("aggregate", "notes", "pipeline", &many(&stage)), "read_only"),
            ],
        ),
        // The names come behind the operations, and the functions as well.
        of("maker", [("a long bulkWrite", bulk(&many(&one), "test.notes"), "not_analysed")]),
        of("owner", [("a long bulkWrite", bulk(&many(&one), "test.notes"), "")]),
        of(
            "scripter",
            [
                ("a long update", beside("update", "notes", "updates", &many(&update)), "not_analysed"),
                ("a long insert", beside("insert", "notes", "documents", &many(&one)), ""),
            ],
        ),
    ];
    for case in cases.iter().flatten() {
        let mut wire = login(port(&gateway), case.user, PASSWORD);
        judge((&gateway, &server), &mut wire, case, &case.message);
        assert_eq!(wire.call(|body| find(body, "notes", 2)).batch(), [1, 2], "{}: the connection goes on", case.what);
    }
    // Where no rule asks for them, they are on their way when the gateway sees them.
    let mut wire = login(port(&gateway), "owner", PASSWORD);
    let aggregates = server.count("aggregate");
    let before = closes(&gateway, "mongodb_sequence");
    let _ = wire.send(&beside("aggregate", "notes", "pipeline", &many(&stage)));
    assert!(wire.until_closed().expect("the connection ends").is_empty());
    gateway.wait_metric("weir_defensive_closes_total", &[("reason", "mongodb_sequence")], before + 1.0);
    assert_eq!(server.count("aggregate"), aggregates);
    drop(wire);
    gateway.finish();
}

/// Some servers make a field of the body from any document sequence, and even let it replace one.
#[test]
fn documents_beside_the_body_that_the_command_does_not_have_are_refused() {
    let (gateway, server) = scene();
    let stage = document(|stage| stage.string("$out", "copy"));
    let twice = |body: &mut Writer<'_>| {
        body.array("documents", [1], |array, name, id| array.document(name, |one| one.int32("_id", id)));
    };
    let cases: [(&str, Vec<u8>); 5] = [
        ("stages", beside("aggregate", "notes", "pipeline", &stage)),
        ("a filter", beside("find", "notes", "filter", &document(where_clause))),
        ("documents of an update", beside("update", "notes", "documents", &stage)),
        ("a database", beside("insert", "notes", "$db", &stage)),
        ("documents twice", sections(0, &[body_on("insert", "notes", twice), sequence("documents", &stage)])),
    ];
    for user in ["owner", "reader"] {
        let mut wire = login(port(&gateway), user, PASSWORD);
        for (what, message) in &cases {
            let arrived = server.count(&name_of(message));
            wire.send(message).expect("sent");
            let reply = wire.reply().unwrap_or_else(|error| panic!("{what}: {error}"));
            assert_eq!((reply.code(), reply.response_to), (9, ID), "{what} of {user}: {reply:?}");
            assert_eq!(server.count(&name_of(message)), arrived, "{what} of {user}");
        }
        assert_eq!(wire.call(|body| find(body, "notes", 2)).batch(), [1, 2], "the connection goes on");
    }
    assert_eq!(denials(&gateway, None), 0.0, "no rule has to do with it");
    gateway.finish();
}

#[test]
fn a_list_of_what_may_pass_leaves_cursors_and_transactions_usable_and_a_reload_changes_it() {
    let server = Fake::honest();
    let rule = "rule_default = \"deny\"\n[[listener.mongodb.rule]]\nname = \"reads\"\naction = \"allow\"\n\
                classes = [\"read\"]\ncollections = [\"notes\"]";
    let mut gateway = Gateway::start(before(&server.address, rule, "pool_size = 2"));
    let mut wire = Wire::connect(port(&gateway));
    let cursor = wire.call(|body| find(body, "notes", 2)).cursor();
    assert_eq!(wire.call(|body| get_more(body, cursor, "notes")).batch(), [3, 4, 5]);
    let within = |body: &mut Writer<'_>| {
        find(body, "notes", 2);
        transaction(body, [3; 16], 1, true);
    };
    assert!(wire.call(within).is_ok());
    assert!(wire.call(|body| end(body, "commitTransaction", [3; 16], 1)).is_ok());
    let insert = |body: &mut Writer<'_>| {
        body.string("insert", "notes");
        body.string("$db", "test");
    };
    assert_eq!(wire.call(|body| find(body, "others", 2)).code(), 13);
    assert_eq!(wire.call(insert).code(), 13);
    assert_eq!((server.count("insert"), denials(&gateway, Some("default"))), (0, 2.0));
    let generation = gateway.metric("weir_worker_config_generation");
    gateway.rewrite(|text| text.replace("rule_default = \"deny\"", "rule_default = \"allow\""));
    gateway.process().signal("HUP");
    until_true("the worker has the rules", || gateway.metric("weir_worker_config_generation") > generation);
    assert!(wire.call(insert).is_ok(), "the same connection");
    assert_eq!(server.count("insert"), 1);
    drop(wire);
    gateway.finish();
}
