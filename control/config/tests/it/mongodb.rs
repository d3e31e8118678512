//! MongoDB listeners: the smallest file, doubtful settings, and the rules of the example.

use std::path::Path;
use std::sync::Arc;

use crate::support::Memory;
use weir_analysis::mongodb::Argument;
use weir_config::{ListenerProtocol, Snapshot, UpstreamProtocol, check};
use weir_mongodb::settings::{Auth, MongodbListenerSettings, MongodbUpstreamSettings};
use weir_mongodb_codec::bson::{self, Document, Writer};
use weir_mongodb_codec::command::Command;

/// The smallest file, as it stands in the guide.
const SMALLEST: &str = r#"
[[listener]]
name = "mongo"
protocol = "mongodb"
bind = "127.0.0.1:27018"
upstream = "mongo-main"
[listener.mongodb]
auth = "none"                 # none (loopback or explicit) | scram | x509 | passthrough

[[upstream]]
name = "mongo-main"
endpoints = ["127.0.0.1:27017"]
[upstream.mongodb]
user = "app"                  # absent: no login
password = "env:MONGO_PASSWORD"
"#;

fn good(source: &str) -> Snapshot {
    let mut surroundings = Memory::furnished();
    surroundings.variables.insert("MONGO_PASSWORD", "from the environment".to_owned());
    check(source, "weir.toml", Path::new(""), &surroundings).unwrap_or_else(|errors| panic!("{source}: {errors}"))
}

fn listener(snapshot: &Snapshot) -> Arc<MongodbListenerSettings> {
    let ListenerProtocol::Mongodb(own) = &snapshot.listeners[0].protocol else { panic!("a MongoDB listener") };
    own.clone()
}

#[test]
fn the_smallest_file_has_the_defaults_of_the_room() {
    let snapshot = good(SMALLEST);
    assert!(snapshot.warnings.is_empty(), "{}", snapshot.warnings);
    let (own, defaults) = (listener(&snapshot), MongodbListenerSettings::default());
    assert_eq!(own.auth, Auth::None);
    let as_default = MongodbListenerSettings { auth: Auth::default(), ..(*own).clone() };
    assert_eq!(format!("{as_default:?}"), format!("{defaults:?}"));
    let UpstreamProtocol::Mongodb(upstream) = &snapshot.upstreams[0].protocol else { panic!("a MongoDB upstream") };
    let password = upstream.password.as_ref().map(|password| password.expose().to_vec());
    assert_eq!(password.as_deref(), Some(&b"from the environment"[..]));
    let expected = MongodbUpstreamSettings {
        user: Some("app".to_owned()),
        password: upstream.password.clone(),
        ..MongodbUpstreamSettings::default()
    };
    assert_eq!(**upstream, expected);
    assert!(!format!("{snapshot:?}").contains("from the environment"));
}

#[test]
fn every_client_may_be_let_in_where_that_is_said() {
    let public = SMALLEST.replace("127.0.0.1:27018", "203.0.113.1:27018");
    let told = |source: &str| good(source).warnings.to_string();
    let said = public.replace("auth = \"none\"", "auth = \"none\"\nallow_none = true");
    assert!(good(&said).warnings.is_empty());
    let socket = SMALLEST.replace("127.0.0.1:27018", "unix:/run/weir/mongo");
    assert!(good(&socket).warnings.is_empty());
    let needless = SMALLEST.replace("auth = \"none\"", "auth = \"none\"\nallow_none = true");
    assert!(told(&needless).contains("changes nothing here"), "{}", told(&needless));
}

/// The warnings about a listener with SCRAM, a user `app` and these lines, and an upstream with those.
fn warnings(lines: &str, upstream: &str) -> String {
    let file = format!(
        "[[listener]]\nname = \"mongo\"\nprotocol = \"mongodb\"\nbind = \"127.0.0.1:27018\"\nupstream = \"mongo\"\n\
         [listener.mongodb]\n{lines}\n[[listener.user]]\nname = \"app\"\npassword = \"env:REDIS_PASSWORD\"\n\
         [[upstream]]\nname = \"mongo\"\nendpoints = [\"127.0.0.1:27017\"]\n[upstream.mongodb]\n{upstream}\n"
    );
    let warnings = good(&file).warnings;
    if warnings.is_empty() { String::new() } else { warnings.to_string() }
}

#[test]
fn a_key_that_does_nothing_or_harms_is_warned_about() {
    for (lines, upstream, word) in [
        ("", "", ""),
        ("face = \"standalone\"", "", ""),
        ("face = \"standalone\"", "replica_set = \"rs0\"", "transactions and retryable writes"),
        ("compressors = [\"zstd\", \"zstd\"]", "", "an entry twice"),
        ("read_only_users = [\"ap\"]", "", "no user of this listener"),
        ("read_only_users = [\"app\"]", "", ""),
        ("", "min_pool_size = 101", "no pool has so many"),
    ] {
        let said = warnings(lines, upstream);
        let is_right = if word.is_empty() { said.is_empty() } else { said.contains(word) };
        assert!(is_right, "{lines} {upstream}: {said}");
    }
}

#[test]
fn pools_that_no_listener_uses_are_warned_about() {
    let passthrough = SMALLEST.replace("\"none\"", "\"passthrough\"");
    let (head, _) = passthrough.split_once("user = ").expect("a user");
    let told = |more: &str| good(&format!("{head}pool_size = 5\n{more}")).warnings;
    let warnings = told("");
    let paths: Vec<&str> = warnings.iter().map(|one| one.path.as_str()).collect();
    assert_eq!(paths, ["upstream[0].mongodb.pool_size"], "{warnings}");
    let other = "[[listener]]\nname = \"other\"\nprotocol = \"mongodb\"\nbind = \"127.0.0.1:27019\"\n\
                 upstream = \"mongo-main\"\nmongodb.auth = \"none\"\n";
    assert!(told(other).is_empty(), "another listener uses them");
}

#[test]
fn a_rule_that_fits_none_or_never_decides_is_reported() {
    let rule = |name: &str, action: &str, lists: &str| {
        let lists = lists.replace("; ", "\n");
        format!("[[listener.mongodb.rule]]\nname = \"{name}\"\naction = \"{action}\"\n{lists}\n")
    };
    for (lines, word) in [
        (rule("a", "deny", "users = [\"ap\"]"), "no user of this listener"),
        (rule("a", "deny", "users = [\"app\"]"), ""),
        (rule("a", "deny", "commands = [\"findAndModfy\"]"), "did you mean \"findAndModify\""),
        (rule("a", "deny", "commands = [\"FINDANDMODIFY\"]"), ""),
        (rule("a", "deny", "commands = [\"hello\"]"), "no rule applies"),
        (rule("a", "deny", "commands = [\"insert\"]; classes = [\"read\"]"), "fits no command"),
        (rule("a", "deny", "commands = [\"insert\", \"find\"]; classes = [\"read\"]"), ""),
        (rule("a", "deny", "commands = [\"aggregate\"]; classes = [\"write\"]"), ""),
        (rule("a", "deny", "commands = [\"listDatabases\"]; collections = [\"orders\"]"), "fits no command"),
        (rule("a", "deny", "commands = [\"dropDatabase\"]; collections = [\"orders\"]"), ""),
        (rule("a", "deny", "classes = [\"transaction\"]; collections = [\"orders\"]"), "fits no command"),
        (rule("a", "allow", "") + &rule("b", "deny", "classes = [\"ddl\"]"), "never decides"),
        (rule("a", "allow", "") + &rule("b", "deny", "commands = [\"fsync\"]"), ""),
        (rule("a", "deny", "") + &rule("b", "allow", "commands = [\"fsync\"]"), "never decides"),
        (rule("a", "observe", "") + &rule("b", "deny", "classes = [\"ddl\"]"), ""),
        (rule("a", "allow", "javascript = true") + &rule("b", "deny", "classes = [\"ddl\"]"), ""),
        (rule("a", "deny", "collections = [\"shop.orders\"]"), "the collection of this whole name"),
        (rule("a", "deny", "collections = [\"fs.files\", \"system.users\", \"*.chunks\"]"), ""),
    ] {
        let said = warnings(&lines, "");
        let is_right = if word.is_empty() { said.is_empty() } else { said.contains(word) };
        assert!(is_right, "{lines}: {said}");
    }
}

/// A rule that is copied from the example has to protect.
#[test]
fn the_rules_of_the_example_do_what_they_say() {
    let snapshot = crate::examples::loaded("mongodb-full.toml");
    let policy = listener(&snapshot).policy.clone();
    let judged = |user: &str, body: fn(&mut Writer<'_>)| {
        let mut out = Vec::new();
        bson::document(&mut out, |writer| {
            body(writer);
            writer.string("$db", "shop");
        });
        let command = Command::read(Document::read(&out).expect("a document")).expect("a command");
        let verdict = policy.user(Some(user.as_bytes()));
        let beside = Some([] as [Argument<'_>; 0]);
        let verdict = verdict.check(&command, beside, |_| ());
        verdict.err().map(|denial| denial.reason.word().to_owned()).unwrap_or_default()
    };
    assert_eq!(judged("app", |body| body.string("find", "orders")), "");
    assert_eq!(judged("app", |body| body.string("insert", "orders")), "");
    assert_eq!(judged("app", |body| body.string("drop", "orders")), "no-ddl");
    assert_eq!(judged("admin", |body| body.string("drop", "orders")), "");
    assert_eq!(judged("admin", |body| body.string("find", "secrets")), "no-secrets");
    assert_eq!(judged("app", |body| body.string("find", "audit_2026")), "no-secrets");
    assert_eq!(judged("app", |body| body.string("mapReduce", "orders")), "no-javascript");
    assert_eq!(judged("app", |body| body.int32("fsync", 1)), "dangerous");
    assert_eq!(judged("admin", |body| body.int32("fsync", 1)), "");
    assert_eq!(judged("reports", |body| body.string("insert", "orders")), "read_only");
    assert_eq!(judged("reports", |body| body.string("count", "orders")), "");
}
