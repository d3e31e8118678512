//! The files that a configuration refers to: missed once and not twice, noted away from its machine, and tried on it.

use std::path::Path;

use crate::support::Memory;
use weir_config::{Diagnostics, Severity, Snapshot, check, redacted};

const HTTP: &str = "[[listener]]\nname = \"l\"\nbind = \"127.0.0.1:8080\"\nprotocol = \"http\"\nupstream = \"u\"\n\
                    [[upstream]]\nname = \"u\"\nendpoints = [\"127.0.0.1:1\"]\n";
const REDIS: &str = "[[listener]]\nname = \"l\"\nbind = \"127.0.0.1:6380\"\nprotocol = \"redis\"\nupstream = \"u\"\n\
                     [[upstream]]\nname = \"u\"\nendpoints = [\"127.0.0.1:1\"]\n";

fn judged(source: &str, surroundings: &Memory) -> Result<Snapshot, Diagnostics> {
    check(source, "weir.toml", Path::new(""), surroundings)
}

/// A file with lines added to its listener and its upstream, and at its end.
fn varied(file: &str, listener: &str, upstream: &str, rest: &str) -> String {
    let (head, tail) = file.split_once("[[upstream]]").expect("two tables");
    format!("{head}{listener}\n[[upstream]]{tail}{upstream}\n{rest}\n")
}

/// Files in which one reference leads nowhere, and the key that it stands at.
fn dangling() -> Vec<(String, &'static str)> {
    let redis = |listener: &str, upstream: &str| varied(REDIS, listener, upstream, "");
    let http = |listener: &str, rest: &str| varied(HTTP, listener, "", rest);
    vec![
        (
            http("[listener.http.api_key]\nkey = [{ name = \"a\", key = { env = \"UNSET\" } }]", ""),
            "listener[0].http.api_key.key[0].key",
        ),
        (
            http(
                "[listener.http.basic_auth]\nusers_file = \"none\"\n[[listener.http.rate_limit]]\nname = \"r\"\nrequests = 1\nkey = \"identity\"",
                "[[route]]\nname = \"r\"\npath = \"/\"\nupstream = \"u\"",
            ),
            "listener[0].http.basic_auth.users_file",
        ),
        (
            http("[listener.http.jwt]\nprovider = [{ jwks_file = \"none\", algorithms = [\"EdDSA\"] }]", ""),
            "listener[0].http.jwt.provider[0].jwks_file",
        ),
        (redis("[listener.redis]\nuser = \"a\"\npassword = { env = \"UNSET\" }", ""), "listener[0].redis.password"),
        (
            redis("[[listener.user]]\nname = \"a\"\nrules = \"on ~* +@all\"\npassword = { env = \"UNSET\" }", ""),
            "listener[0].user[0].password",
        ),
        (
            redis(
                "[[listener.user]]\nname = \"a\"\nrules = \"on nopass ~* +@all\"\nupstream_user = \"b\"\nupstream_password = { file = \"none\" }",
                "",
            ),
            "listener[0].user[0].upstream_password",
        ),
        (redis("users_file = \"none\"\nuser = [{ name = \"alice\" }]", ""), "listener[0].users_file"),
        (redis("knee = \"none\"\nknee_warn = 0.5", ""), "listener[0].knee"),
        (redis("", "[upstream.redis]\nuser = \"a\"\npassword = { env = \"UNSET\" }"), "upstream[0].redis.password"),
        (
            redis(
                "",
                "topology = \"sentinel\"\n[upstream.sentinel]\nservice = \"s\"\nuser = \"a\"\npassword = { env = \"UNSET\" }",
            ),
            "upstream[0].sentinel.password",
        ),
        (
            redis("", "[upstream.tls]\nserver_name = \"a\"\ncert_file = \"server.crt\"\nkey_file = \"none\""),
            "upstream[0].tls.key_file",
        ),
        (
            redis("", "[upstream.tls]\nserver_name = \"a\"\ncert_file = \"none\"\nkey_file = \"server.key\""),
            "upstream[0].tls.cert_file",
        ),
        (
            redis(
                "[listener.tls]\ncert_file = \"server.crt\"\nkey_file = \"server.key\"\nclient_auth = \"required\"\nclient_ca_file = \"none\"",
                "",
            ),
            "listener[0].tls.client_ca_file",
        ),
        (redis("[listener.tls]\ncert_file = \"none\"\nkey_file = \"server.key\"", ""), "listener[0].tls.cert_file"),
        (varied(REDIS, "", "", "[admin]\nbind = \"0.0.0.0:9900\"\ntoken = { env = \"UNSET\" }"), "admin.token"),
    ]
}

/// The machine of the file, where `path` leads somewhere.
fn with_all(path: &str) -> Memory {
    let mut memory = Memory::furnished();
    memory.variables.insert("UNSET", "correct-horse-battery-staple".to_owned());
    let kinds = [
        ("basic_auth.users_file", "users.htpasswd"),
        ("users_file", "users.acl"),
        ("jwks_file", "jwks.json"),
        ("knee", "knee.json"),
        ("password", "password"),
        ("key_file", "server.key"),
        ("_file", "server.crt"),
    ];
    if let Some((_, like)) = kinds.iter().find(|(end, _)| path.ends_with(end)) {
        memory.files.insert("none", memory.files[like].clone());
    }
    memory
}

/// `weir check` said of an unset variable that it is not set, and that one of two keys is missing.
#[test]
fn a_dead_reference_is_one_mistake() {
    for (source, path) in dangling() {
        let found = judged(&source, &Memory::furnished()).expect_err(path);
        let paths: Vec<&str> = found.iter().map(|one| one.path.as_str()).collect();
        assert_eq!(paths, [path], "{source}\n{found}");
    }
}

#[test]
fn missing_files_are_a_note_offline() {
    let offline = Memory { is_offline: true, ..Memory::furnished() };
    for (source, path) in dangling() {
        let snapshot = judged(&source, &offline).unwrap_or_else(|found| panic!("{source}\n{found}"));
        let told: Vec<_> = snapshot.warnings.iter().map(|one| (one.severity, one.path.as_str())).collect();
        assert_eq!(told, [(Severity::Note, path)], "{source}\n{}", snapshot.warnings);
        assert_eq!((snapshot.listeners.len(), snapshot.upstreams.len()), (1, 1), "{source}");
        let note = snapshot.warnings.to_string();
        assert!(note.contains("was not checked") && note.contains("--offline") && note.ends_with("1 note"), "{note}");
        // The gap is shown as the running gateway shows the reference, so that the two can be compared.
        let running = judged(&source, &with_all(path)).unwrap_or_else(|found| panic!("{source}\n{found}"));
        assert_eq!(redacted(&snapshot), redacted(&running), "{source}");
    }
}

#[test]
fn files_that_exist_are_checked_offline_too() {
    let offline = Memory { is_offline: true, ..Memory::furnished() };
    let source = varied(REDIS, "[listener.redis]\npassword = { env = \"EMPTY\" }", "", "");
    assert!(judged(&source, &offline).expect_err("empty").to_string().contains("0 bytes"));
    // A copy under version control has another mode.
    let source = varied(REDIS, "[listener.tls]\ncert_file = \"server.crt\"\nkey_file = \"open.key\"", "", "");
    assert!(judged(&source, &Memory::furnished()).expect_err("open").to_string().contains("other users can read"));
    assert!(judged(&source, &offline).expect("its mode says nothing").warnings.is_empty());
    // The cores of this machine are not those of the other.
    let source = varied(REDIS, "knee = \"knee-of-4.json\"", "", "");
    assert!(judged(&source, &Memory::furnished()).expect_err("2 cores").to_string().contains("4 vCPU"));
    judged(&source, &offline).expect("who knows");
    for wrong in ["upstream = \"nowhere\"", "upstrem = \"u\"", "upstream = 7"] {
        let source = REDIS.replacen("upstream = \"u\"", wrong, 1);
        assert!(judged(&source, &offline).expect_err(wrong).errors() >= 1);
    }
}

#[test]
fn an_address_that_is_taken_is_a_mistake_unless_a_gateway_has_it() {
    let taken = Memory { taken: vec!["127.0.0.1:6380", "127.0.0.1:9900"], ..Memory::furnished() };
    let found = judged(REDIS, &taken).expect_err("taken");
    let paths: Vec<&str> = found.iter().map(|one| one.path.as_str()).collect();
    assert_eq!(paths, ["admin.bind", "listener[0].bind"], "{found}");
    assert!(found.to_string().contains("process 2 (x) listens there already"), "{found}");
    let served = Memory { taken: vec!["127.0.0.1:6380"], gateway: Some("127.0.0.1:6380"), ..Memory::furnished() };
    let snapshot = judged(REDIS, &served).expect("a gateway has it");
    let told: Vec<_> = snapshot.warnings.iter().map(|one| (one.severity, one.path.as_str())).collect();
    assert_eq!(told, [(Severity::Note, "listener[0].bind")], "{}", snapshot.warnings);
    // The packaged gateway has a capability, so the kernel hides it from `sudo -u weir weir check`.
    let hidden = Memory { hidden: Some("127.0.0.1:6380"), ..Memory::furnished() };
    let snapshot = judged(REDIS, &hidden).expect("it may be the gateway of this file");
    let notes: Vec<_> = snapshot.warnings.iter().map(|one| (one.severity, one.path.as_str())).collect();
    assert_eq!(notes, [(Severity::Note, "listener[0].bind")], "{}", snapshot.warnings);
    assert!(snapshot.warnings.to_string().contains("may not see"), "{}", snapshot.warnings);
}

#[test]
fn an_access_log_that_cannot_be_opened_is_a_mistake_with_its_directory() {
    let log = |path: &str| varied(REDIS, "", "", &format!("[telemetry.access_log]\ntarget = \"file:{path}\""));
    judged(&log("/some/access.log"), &Memory::furnished()).expect("it can be opened");
    let found = judged(&log("/none/access.log"), &Memory::furnished()).expect_err("it cannot");
    assert_eq!(
        found.iter().map(|one| (one.line, one.path.as_str())).collect::<Vec<_>>(),
        [(12, "telemetry.access_log.target")]
    );
    assert!(found.to_string().contains("create the directory /none"), "{found}");
}

#[test]
fn a_unix_socket_is_not_shared() {
    let unix = REDIS.replacen("127.0.0.1:6380", "unix:/run/a.sock", 1);
    let found = judged(&varied(&unix, "reuse_port = true", "", ""), &Memory::furnished()).expect_err("it is not");
    assert!(found.errors() == 1 && found.to_string().contains("reuse_port"), "{found}");
    judged(&varied(REDIS, "reuse_port = true", "", ""), &Memory::furnished()).expect("a port is");
}
