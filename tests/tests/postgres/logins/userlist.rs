//! Users from a file of PgBouncer, behind a gateway and behind PgBouncer itself.

use std::path::{Path, PathBuf};

use weir_tests::gateway::{Config, Gateway, secret_file};
use weir_tests::postgres::{Major, Options, PASSWORD, Postgres, USER};

use super::through::login;

/// A file of users that others cannot read.
fn file(folder: &Path, text: &str) -> PathBuf {
    PathBuf::from(secret_file(folder, "userlist.txt", text))
}

/// A gateway whose clients are in that file and log in at the server as themselves.
fn gateway(server: &Postgres, file: &Path, auth: &str, more: &str) -> Gateway {
    let postgres = format!("[listener.postgres]\nauth = \"{auth}\"\nuserlist = \"{}\"\n{more}", file.display());
    Gateway::start(Config { protocol: "postgres", ..Config::to(&server.address) }.listener(&postgres))
}

#[test]
fn users_of_the_file_log_in_and_a_reload_reads_it_again() {
    let server = Postgres::start(Major::Fifteen);
    server.sql("create role \"a \"\"b\"\"\" login password 'with \"quotes\"'");
    let verifier = server.sql(&format!("select rolpassword from pg_authid where rolname = '{USER}'"));
    let folder = tempfile::tempdir().expect("a folder");
    let quoted = "\"a \"\"b\"\"\" \"with \"\"quotes\"\"\"\n";
    let list = file(folder.path(), &format!("; users\n\"{USER}\" \"{verifier}\"\n{quoted}"));
    let password = secret_file(folder.path(), "password", PASSWORD);
    let listed = format!("[[listener.user]]\nname = \"postgres\"\npassword = {{ file = \"{password}\" }}");
    let gateway = gateway(&server, &list, "scram-sha-256", &listed);
    let enter = |user: &str, password: &str| {
        login(&gateway, "", (user, password), "select current_user").map_err(|error| {
            assert!(error.contains("28P01") || error.contains("password authentication failed"), "{error}");
            error
        })
    };
    // By the server's verifier, by a plain password with quotes, and by a table beside the file.
    for (user, password) in [(USER, PASSWORD), ("a \"b\"", "with \"quotes\""), ("postgres", PASSWORD)] {
        assert_eq!(enter(user, password).as_deref(), Ok(user), "{}", gateway.log());
        assert!(enter(user, "wrong").is_err());
    }
    file(folder.path(), &format!("\"{USER}\" \"{verifier}\"\n\"new\" \"pencil\"\n"));
    server.sql("create role new login password 'pencil'");
    let reload = gateway.admin.post("/api/v1/reload", "");
    assert_eq!(reload.json()["outcome"], "applied", "{}", reload.body);
    assert_eq!(enter("new", "pencil").as_deref(), Ok("new"));
    assert_eq!(enter(USER, PASSWORD).as_deref(), Ok(USER));
    assert!(enter("a \"b\"", "with \"quotes\"").is_err(), "it is gone");
    // A line that is none: the file in force stays, and nothing of a password is repeated.
    file(folder.path(), "\"new\" \"pencil\"\nnew canary\n");
    let reload = gateway.admin.post("/api/v1/reload", "");
    assert_ne!(reload.status, 200, "{}", reload.body);
    assert!(reload.body.contains("userlist.txt:2") && !reload.body.contains("canary"), "{}", reload.body);
    assert_eq!(enter("new", "pencil").as_deref(), Ok("new"));
    let log = gateway.log();
    for secret in [PASSWORD, "pencil", "canary", verifier.as_str()] {
        assert!(!log.contains(secret), "the log has a secret: {log}");
    }
}

/// The hash is enough for a client with the password, and for a server that wants the hash.
#[test]
fn an_md5_hash_of_the_file_logs_in_on_both_sides() {
    let hba = vec!["host all hashed 127.0.0.1/32 md5".to_owned()];
    let server = Postgres::start_with(Major::Fifteen, Options { hba, ..Options::default() });
    server.sql("set password_encryption = 'md5'; create role hashed login password 'pencil'");
    let hash = server.sql("select rolpassword from pg_authid where rolname = 'hashed'");
    assert!(hash.starts_with("md5"), "{hash}");
    let folder = tempfile::tempdir().expect("a folder");
    let list = file(folder.path(), &format!("\"hashed\" \"{hash}\"\n"));
    let gateway = gateway(&server, &list, "md5", "");
    let entered = login(&gateway, "", ("hashed", "pencil"), "select current_user");
    assert_eq!(entered.as_deref(), Ok("hashed"), "{}", gateway.log());
    assert!(login(&gateway, "", ("hashed", "pen"), "select 1").is_err());
    assert!(!gateway.log().contains(&hash), "{}", gateway.log());
}

/// The proof of a client gives keys of the verifier that is listed; the server takes those of its own.
#[test]
fn a_verifier_that_is_not_that_of_the_server_opens_nothing_until_it_is_mended() {
    let server = Postgres::start(Major::Fifteen);
    server.sql("create role shop login password 'pencil'; create role twin login password 'pencil'");
    let verifier = |role: &str| server.sql(&format!("select rolpassword from pg_authid where rolname = '{role}'"));
    let folder = tempfile::tempdir().expect("a folder");
    let list = file(folder.path(), &format!("\"shop\" \"{}\"\n", verifier("twin")));
    let gateway = gateway(&server, &list, "scram-sha-256", "");
    let enter = || login(&gateway, "", ("shop", "pencil"), "select current_user");
    let error = enter().expect_err("another salt");
    assert!(error.contains("no server of pool shop@app accepts the login of the gateway"), "{error}");
    assert_eq!(gateway.metric("weir_auth_failures_total"), 0.0, "the client is not to blame");
    assert!(gateway.log().contains("belong to another verifier than the server's"), "{}", gateway.log());
    file(folder.path(), &format!("\"shop\" \"{}\"\n", verifier("shop")));
    let reload = gateway.admin.post("/api/v1/reload", "");
    assert_eq!(reload.json()["outcome"], "applied", "{}", reload.body);
    assert_eq!(enter().as_deref(), Ok("shop"), "{}", gateway.log());
}
