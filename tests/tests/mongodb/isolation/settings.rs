//! S10: configurations that look like protection and are none.

use std::process::Command;

use weir_tests::gateway::{Config, program};
use weir_tests::stream::Address;

/// Lines of the listener and of the upstream, each a mistake in a good configuration; and a word of the refusal.
const MISTAKES: &[(&str, &str, &str)] = &[
    // No client has to prove these passwords.
    (
        "[listener.mongodb]\nauth = \"none\"\n[[listener.user]]\nname = \"app\"\npassword = { env = \"SECRET\" }",
        "[upstream.mongodb]\nuser = \"app\"\npassword = { env = \"SECRET\" }",
        "user",
    ),
    // No client can log in.
    ("[listener.mongodb]\nauth = \"scram\"", "", "user"),
    // No client can show a certificate, or may send a password in clear text.
    ("[listener.mongodb]\nauth = \"x509\"", "", "tls"),
    (
        "[listener.mongodb]\nauth = \"plain\"\n[[listener.user]]\nname = \"app\"\npassword = { env = \"SECRET\" }",
        "",
        "tls",
    ),
    ("[listener.mongodb]\nauth = \"SCRAM\"", "", "auth"),
    (
        "[listener.mongodb]\nauth = \"passthrough\"",
        "[upstream.mongodb]\nuser = \"app\"\npassword = { env = \"SECRET\" }",
        "user",
    ),
    ("[listener.postgres]\nauth = \"trust\"", "", "postgres"),
    ("[listener.redis]\nadmin_commands = true", "", "redis"),
    ("users_file = \"users.acl\"", "", "users_file"),
    ("[[listener.user]]\nname = \"app\"\nrules = \"on ~* +@all\"\npassword = { env = \"SECRET\" }", "", "rules"),
    ("", "[upstream.redis]\nuser = \"app\"\npassword = { env = \"SECRET\" }", "redis"),
    ("", "[upstream.mongodb]\npassword = { env = \"SECRET\" }", "user"),
    // A password in clear text, without encryption.
    ("", "[upstream.mongodb]\nuser = \"app\"\npassword = { env = \"SECRET\" }\nauth_mechanism = \"plain\"", "tls"),
    // It can never be reached.
    ("", "[upstream.mongodb]\npool_size = 5\nmin_pool_size = 9", "min_pool_size"),
    // No command is refused by the second rule, which was to be the first.
    (
        "[listener.mongodb]\nauth = \"none\"\n[[listener.mongodb.rule]]\nname = \"all\"\naction = \"allow\"\n\
         [[listener.mongodb.rule]]\nname = \"no\"\naction = \"deny\"\nclasses = [\"ddl\"]",
        "",
        "never",
    ),
    // A command that does not exist, and conditions that no command fits.
    (
        "[listener.mongodb]\nauth = \"none\"\n[[listener.mongodb.rule]]\nname = \"no\"\naction = \"deny\"\ncommands = [\"dropDatabse\"]",
        "",
        "dropDatabse",
    ),
    // A user that cannot log in.
    ("[listener.mongodb]\nauth = \"none\"\nread_only_users = [\"reports\"]", "", "read_only_users"),
    // Load-balanced mode is what a client asks for.
    ("[listener.mongodb]\nauth = \"none\"\nface = \"load-balancer\"", "", "face"),
    ("[listener.mongodb]\nauth = \"none\"\ncompressors = [\"gzip\"]", "", "compressors"),
];

const GOOD: &str = "[listener.mongodb]\nauth = \"none\"";

/// `weir check --strict`.
fn checked(listener: &str, upstream: &str) -> Result<(), String> {
    let config = Config { protocol: "mongodb", ..Config::to(&Address::port(1)) };
    // A mistake that needs no other listener stands in one that is good.
    let listener =
        if listener.contains("[listener.mongodb]") { listener.to_owned() } else { format!("{listener}\n{GOOD}") };
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("weir.toml");
    std::fs::write(&file, config.listener(&listener).upstream(upstream).text(2)).expect("written");
    let mut check = Command::new(program());
    let output =
        check.args(["check", "--strict"]).arg(&file).env("SECRET", "a long word").output().expect("weir check");
    let said = [output.stdout, output.stderr].concat();
    if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&said).into_owned()) }
}

#[test]
fn s10_settings_that_look_like_protection_and_are_none_are_a_mistake() {
    checked("", "").expect("a good one");
    let mut faults = Vec::new();
    for (listener, upstream, word) in MISTAKES {
        match checked(listener, upstream) {
            Ok(()) => faults.push(format!("called good: {listener:?} {upstream:?}")),
            Err(said) if said.contains("unknown key") || !said.contains(word) => {
                faults.push(format!("{listener:?} {upstream:?}: {said}"));
            }
            Err(_) => {}
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}
