//! S10: configurations that look like protection and are none.

use std::process::Command;

use weir_tests::gateway::{Config, program, secret_file};
use weir_tests::stream::Address;

/// Lines of the listener and of the upstream, each a mistake in a good configuration; and a word of the refusal.
const MISTAKES: &[(&str, &str, &str)] = &[
    // No client has to prove these passwords.
    (
        "[listener.postgres]\nauth = \"trust\"\n[[listener.user]]\nname = \"app\"\npassword = { env = \"SECRET\" }",
        "[upstream.postgres]\nuser = \"app\"\npassword = { env = \"SECRET\" }",
        "accepts every client",
    ),
    // No client can show a certificate.
    ("[listener.postgres]\nauth = \"cert\"", "", "certificate"),
    ("[listener.postgres]\nauth = \"SCRAM-SHA-256\"", "", "auth"),
    ("[listener.redis]\nstream_bytes = \"64KiB\"", "", "redis"),
    ("[listener.http]\nrequest_id = true", "", "http"),
    ("[[listener.user]]\nname = \"app\"\nrules = \"on ~* +@all\"\npassword = { env = \"SECRET\" }", "", "rules"),
    ("[[listener.user]]\nname = \"app\"\nconnections_max = 5\npassword = { env = \"SECRET\" }", "", "connections_max"),
    ("users_file = \"users.acl\"", "", "users_file"),
    ("idle_timeout = \"5s\"", "", "idle_timeout"),
    ("", "[upstream.redis]\nuser = \"app\"\npassword = { env = \"SECRET\" }", "redis"),
    ("", "[upstream.postgres]\npassword = { env = \"SECRET\" }", "user"),
    // It can never be reached.
    ("", "[upstream.postgres]\npool_size = 5\nmin_pool_size = 9", "min_pool_size"),
    ("", "[upstream.postgres]\npool_size = 5\nmax_db_connections = 3", "max_db_connections"),
    (
        "[listener.postgres]\nauth = \"trust\"\n[[listener.postgres.database]]\nname = \"*\"\nread_upstream = \"reads\"\n\
         replica_lag_max = \"200ms\"",
        "[upstream.postgres]\nuser = \"app\"\npassword = { env = \"SECRET\" }\ntarget_session_attrs = \"primary\"\n\
         [[upstream]]\nname = \"reads\"\nendpoints = [\"127.0.0.1:2\"]\n[upstream.postgres]\nuser = \"app\"\n\
         password = { env = \"SECRET\" }\ntarget_session_attrs = \"standby\"",
        "replica_lag_max",
    ),
    ("", "[upstream.postgres]\npool_size = 5\nreserve_pool_timeout = \"9s\"", "reserve_pool_timeout"),
    // No client is refused by the second rule, which was to be the first.
    (
        "[listener.postgres]\n[[listener.postgres.hba]]\ntype = \"host\"\nmethod = \"trust\"\n\
         [[listener.postgres.hba]]\ntype = \"host\"\nuser = \"eve\"\nmethod = \"reject\"",
        "",
        "never reached",
    ),
    (
        "[listener.postgres]\n[[listener.postgres.hba]]\ntype = \"hostssl\"\nmethod = \"trust\"",
        "",
        "the listener has no TLS",
    ),
    (
        "[listener.postgres]\nauth = \"trust\"\n[[listener.postgres.rule]]\nname = \"no\"\naction = \"deny\"\n\
         classes = [\"ddl\"]\nverbs = [\"truncate\"]",
        "",
        "fits no statement",
    ),
    (
        "[listener.postgres]\nauth = \"trust\"\n[[listener.postgres.rule]]\nname = \"all\"\naction = \"allow\"\n\
         [[listener.postgres.rule]]\nname = \"no\"\naction = \"deny\"\nclasses = [\"ddl\"]",
        "",
        "never decides",
    ),
    (
        "[listener.postgres]\nauth = \"trust\"\n[[listener.postgres.rule]]\nname = \"no\"\naction = \"deny\"\n\
         tables = [\"Orders\"]",
        "",
        "double quotes",
    ),
];

const GOOD: &str = "[listener.postgres]\nauth = \"trust\"";

/// `weir check --strict`.
fn checked(listener: &str, upstream: &str) -> Result<(), String> {
    let config = Config { protocol: "postgres", ..Config::to(&Address::port(1)) };
    // A mistake that needs no other listener stands in one that is good.
    let listener = if listener.contains("[listener.postgres]") || listener.contains("user]]") {
        listener.to_owned()
    } else {
        format!("{listener}\n{GOOD}")
    };
    let folder = tempfile::tempdir().expect("a folder");
    secret_file(folder.path(), "users.acl", "user app on nopass ~* +@all\n");
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
