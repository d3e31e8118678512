//! Users that the server knows: `auth_query` behind a gateway that has no password of theirs.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use weir_tests::deadline::until_true;
use weir_tests::gateway::{Config, Gateway, secret_file};
use weir_tests::postgres::{Major, Options, PASSWORD, Postgres, USER};

use super::through::login;

/// A server that logs every statement with the name of its application.
fn server() -> Postgres {
    let settings = ["log_statement=all", "log_line_prefix=%a|%u|%d "].map(str::to_owned).to_vec();
    Postgres::start_with(Major::Fifteen, Options { settings, ..Options::default() })
}

/// A gateway whose users log in as themselves; the superuser is listed, and looks for the others.
fn gateway(server: &Postgres, folder: &Path, lines: &str) -> Gateway {
    let password = secret_file(folder, "password", PASSWORD);
    let listener = format!(
        "[listener.postgres]\nauth_user = \"postgres\"\n{lines}\n\
         [[listener.user]]\nname = \"postgres\"\npassword = {{ file = \"{password}\" }}"
    );
    Gateway::start(Config { protocol: "postgres", ..Config::to(&server.address) }.listener(&listener))
}

fn enter(gateway: &Gateway, user: &str, password: &str, words: &str) -> Result<String, String> {
    login(gateway, words, (user, password), "select current_user")
}

/// Auth queries that the server has run.
fn lookups(server: &Postgres) -> usize {
    server.log().lines().filter(|line| line.starts_with("weir auth_query|") && line.contains("execute")).count()
}

fn is_wrong_password(result: &Result<String, String>) -> bool {
    result.as_ref().is_err_and(|error| error.contains("password authentication failed for user"))
}

#[test]
fn users_of_the_server_log_in_with_keys_of_their_own_proof() {
    let server = server();
    server.sql(
        "create role expired login password 'pencil' valid until '2020-01-01'; create role group1 password 'pencil'",
    );
    server.sql("create role later login password 'pencil' valid until '2999-01-01'");
    let folder = tempfile::tempdir().expect("a folder");
    let gateway = gateway(&server, folder.path(), "");
    assert_eq!(enter(&gateway, USER, PASSWORD, "").as_deref(), Ok(USER), "{}", gateway.log());
    assert_eq!(enter(&gateway, "later", "pencil", "").as_deref(), Ok("later"), "{}", gateway.log());
    // An expired password, a role that may not log in, no such user, a name that the server would cut, and one that is no text.
    let long = "x".repeat(70);
    for (user, password) in
        [("expired", "pencil"), ("group1", "pencil"), ("nobody", "pencil"), (USER, "wrong"), (&long, "x")]
    {
        let refused = enter(&gateway, user, password, "");
        assert!(is_wrong_password(&refused), "{user}: {refused:?}\n{}", gateway.log());
    }
    // One query serves all that come within its lifetime, also those that come together.
    let (before, port) = (lookups(&server), gateway.address.tcp().port());
    let logins = (0..12).map(|_| {
        let target = format!("host=127.0.0.1 port={port} user=later dbname={USER}");
        let mut psql = Command::new("psql");
        psql.args(["-XAtq", &target, "-c", "select 7"]).env("PGPASSWORD", "pencil").stdin(Stdio::null());
        psql.stdout(Stdio::piped()).spawn().expect("psql starts")
    });
    let logins: Vec<_> = logins.collect();
    for login in logins {
        let output = login.wait_with_output().expect("it ends");
        assert_eq!(output.stdout, b"7\n", "{}", gateway.log());
    }
    let more = lookups(&server) - before;
    assert!(more <= 2, "{more} queries for twelve logins of one user");
    changed_passwords_are_seen(&server, &gateway);
    let (log, verifier) = (gateway.log(), server.sql("select rolpassword from pg_authid where rolname = 'later'"));
    for secret in [PASSWORD, "pencil", "quill", verifier.as_str(), "SCRAM-SHA-256$"] {
        assert!(!log.contains(secret), "the log has a secret: {log}");
    }
}

/// The new password opens as soon as the result is out of date; the old one does not open any more then.
fn changed_passwords_are_seen(server: &Postgres, gateway: &Gateway) {
    server.sql("alter role later password 'quill'");
    until_true("the new password opens", || enter(gateway, "later", "quill", "").is_ok());
    assert!(is_wrong_password(&enter(gateway, "later", "pencil", "")));
    // The same password with another salt: the keys that are known open no connection of the server any more.
    server.sql("alter role later password 'quill'");
    server.sql("select pg_terminate_backend(pid) from pg_stat_activity where usename = 'later'");
    until_true("the new salt is known", || enter(gateway, "later", "quill", "").is_ok());
}

/// The query has names without schemas, and a client wants them to be those of its own tables.
#[test]
fn p6_no_setting_of_a_client_or_of_the_database_reaches_the_auth_query() {
    let server = server();
    server.sql_in(
        USER,
        "create schema evil; \
         create table evil.pg_authid (rolname name, rolpassword text); \
         insert into evil.pg_authid values ('app', 'canary'), ('eve', 'canary'); \
         grant all on schema evil to public; grant all on evil.pg_authid to public",
    );
    server.sql(&format!(
        "alter database {USER} set search_path = evil, public; alter role postgres set search_path = evil"
    ));
    let folder = tempfile::tempdir().expect("a folder");
    let query = "auth_query = \"select rolname, rolpassword from pg_authid where rolname = $1\"";
    let gateway = gateway(&server, folder.path(), &format!("auth_dbname = \"{USER}\"\n{query}"));
    let options = "options='-c search_path=evil,pg_catalog'";
    for words in ["", options] {
        for user in [USER, "eve"] {
            let refused = enter(&gateway, user, "canary", words);
            assert!(is_wrong_password(&refused), "{user} {words}: {refused:?}\n{}", gateway.log());
        }
        assert_eq!(enter(&gateway, USER, PASSWORD, words).as_deref(), Ok(USER), "{}", gateway.log());
    }
    // A session with such a path, as the very user that looks: its server is none of the lookups'.
    let statement = "set search_path = evil, pg_catalog; select count(*) from pg_authid";
    let seen = login(&gateway, "", ("postgres", PASSWORD), statement);
    assert_eq!(seen.as_deref(), Ok("2"), "{}", gateway.log());
    // A reload forgets the results.
    gateway.rewrite(|text| text.replace("[listener.postgres]", "[listener.postgres]\nquery_timeout = \"77s\""));
    let reload = gateway.admin.post("/api/v1/reload", "");
    assert_eq!(reload.json()["outcome"], "applied", "{}", reload.body);
    let before = lookups(&server);
    assert!(is_wrong_password(&enter(&gateway, USER, "canary", options)));
    assert_eq!(enter(&gateway, USER, PASSWORD, options).as_deref(), Ok(USER), "{}", gateway.log());
    assert!(lookups(&server) > before, "it was looked for again");
}

#[test]
fn a_server_that_is_slow_or_down_refuses_in_time_and_is_no_wrong_password() {
    let mut server = server();
    let slow = |body: &str| {
        format!(
            "create or replace function public.look(name, out text, out text) language plpgsql as \
             $$ begin {body} select rolname, rolpassword into $2, $3 from pg_catalog.pg_authid where rolname = $1; end $$"
        )
    };
    server.sql(&slow("perform pg_catalog.pg_sleep(60);"));
    let folder = tempfile::tempdir().expect("a folder");
    let query = "auth_query = \"select * from public.look($1)\"\nquery_wait_timeout = \"700ms\"";
    let gateway = gateway(&server, folder.path(), query);
    let is_refused = |what: &str| {
        let begun = Instant::now();
        let error = enter(&gateway, USER, PASSWORD, "").expect_err(what);
        assert!(error.contains("the user cannot be looked up now"), "{what}: {error}\n{}", gateway.log());
        assert!(begun.elapsed() < Duration::from_secs(20), "{what}: {:?}", begun.elapsed());
    };
    for _ in 0..3 {
        is_refused("a slow query");
    }
    let asleep =
        "select count(*) from pg_stat_activity where application_name = 'weir auth_query' and state = 'active'";
    until_true("no query goes on at the server", || server.sql(asleep) == "0");
    // Users that are listed need no query.
    assert_eq!(enter(&gateway, "postgres", PASSWORD, "").as_deref(), Ok("postgres"), "{}", gateway.log());
    server.sql(&slow(""));
    until_true("a fast query", || enter(&gateway, USER, PASSWORD, "").is_ok());
    assert_eq!(gateway.metric("weir_auth_failures_total"), 0.0);
    // Names that were not looked for before.
    let is_unavailable =
        |name: &str| enter(&gateway, name, "x", "").is_err_and(|error| error.contains("the user cannot be looked up"));
    server.stop();
    assert!(is_unavailable("first"), "the server is down");
    server.start_again();
    assert_eq!(gateway.metric("weir_auth_failures_total"), 0.0);
    until_true("the server is back", || is_wrong_password(&enter(&gateway, "second", "x", "")));
    // A query that the server refuses is a mistake of the configuration, and is logged.
    server.sql("drop function public.look");
    let failures = gateway.metric("weir_auth_failures_total");
    assert!(is_unavailable("third"));
    gateway.wait_log("auth_query: function public.look(unknown) does not exist");
    assert_eq!(gateway.metric("weir_auth_failures_total"), failures);
}
