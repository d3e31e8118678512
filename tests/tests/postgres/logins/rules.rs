//! Rules by address, database, user and TLS, in front of a server that has the same ones in its `pg_hba.conf`.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use weir_tests::certificate::Certificates;
use weir_tests::gateway::{Config, Gateway, secret_file};
use weir_tests::postgres::{Major, Options, PASSWORD, Postgres, USER};

use super::through::text;

/// A login with `words` at a port: the output, or the errors without the port.
fn enter(port: u16, user: &str, words: &str) -> Result<String, String> {
    let target = format!("port={port} user='{user}' {words}");
    let mut psql = Command::new("psql");
    psql.args(["-XAtq", &target, "-c", "select current_user"]).env("PGPASSWORD", PASSWORD).stdin(Stdio::null());
    let output = psql.output().expect("psql starts");
    let errors = text(&output.stderr).replace(&port.to_string(), "N");
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(errors) }
}

#[test]
fn rules_decide_as_those_of_a_server_and_refuse_in_its_words() {
    // The last one keeps clients from those that initdb has made.
    let rules = [
        ("host", "all", "eve", "all", "reject"),
        ("hostssl", "all", "tester", "127.0.0.0/8", "cert"),
        ("hostnossl", "app", "open,other", "127.0.0.1/32", "trust"),
        ("host", "sameuser", "all", "127.0.0.1/32", "scram-sha-256"),
        ("host", "shop", "app", "10.0.0.0/8", "trust"),
        ("host", "all", "all", "all", "reject"),
    ];
    let hba =
        rules.map(|(kind, database, user, address, method)| format!("{kind} {database} {user} {address} {method}"));
    // The gateway itself comes by the Unix socket, where the server trusts everybody.
    let server = Postgres::start_with(Major::Fifteen, Options { tls: true, hba: hba.to_vec(), ..Options::default() });
    server.sql(
        "create role eve login password 'x'; create role tester login; create role open login; create role other login",
    );
    server.create_database("shop");
    let folder = tempfile::tempdir().expect("a folder");
    let files = server.certificates.as_ref().expect("certificates");
    let gateway = gateway(&server, folder.path(), files, &rules);
    let client = format!("sslcert={} sslkey={}", files.client.display(), files.client_key.display());
    let (plain, tls) = ("host=127.0.0.1 sslmode=disable", "host=localhost hostaddr=127.0.0.1 sslmode=require");
    let cases = [
        (USER, format!("{plain} dbname=app"), true),
        (USER, format!("{tls} dbname=app"), true),
        (USER, format!("{plain} dbname=shop"), false),
        (USER, format!("{tls} dbname=shop"), false),
        ("eve", format!("{plain} dbname=app"), false),
        ("open", format!("{plain} dbname=app"), true),
        ("other", format!("{plain} dbname=app"), true),
        ("open", format!("{tls} dbname=app"), false),
        ("tester", format!("{tls} dbname=app {client}"), true),
        ("tester", format!("{plain} dbname=app"), false),
        (USER, format!("{tls} dbname=shop {client}"), false),
    ];
    for (user, words, is_in) in &cases {
        let (theirs, ours) = (enter(server.port(), user, words), enter(gateway.address.tcp().port(), user, words));
        assert_eq!(ours.is_ok(), *is_in, "{user} {words}: {ours:?}\n{}", gateway.log());
        assert_eq!(theirs, ours, "the server, then the gateway: {user} {words}");
    }
}

/// A gateway with these rules but the last: without a rule that fits, a client is refused too.
fn gateway(
    server: &Postgres,
    folder: &std::path::Path,
    files: &Certificates,
    rules: &[(&str, &str, &str, &str, &str)],
) -> Gateway {
    let password = secret_file(folder, "password", PASSWORD);
    let tables: String = rules
        .iter()
        .map(|(kind, database, user, address, method)| {
            format!(
                "[[listener.postgres.hba]]\ntype = \"{kind}\"\ndatabase = \"{database}\"\nuser = \"{user}\"\n\
                 address = \"{address}\"\nmethod = \"{method}\"\n"
            )
        })
        .collect();
    let listener = format!(
        "[listener.tls]\ncert_file = \"{}\"\nkey_file = \"{}\"\nclient_ca_file = \"{}\"\nclient_auth = \"optional\"\n\
         {tables}[[listener.user]]\nname = \"{USER}\"\npassword = {{ file = \"{password}\" }}",
        files.server.display(),
        files.server_key.display(),
        files.authority.display(),
    );
    let socket = server.socket_folder().join(format!(".s.PGSQL.{}", server.port()));
    let upstream = weir_tests::stream::Address::Unix(socket);
    Gateway::start(Config { protocol: "postgres", ..Config::to(&upstream) }.listener(&listener))
}

#[test]
fn a_client_that_no_rule_fits_is_refused_with_28000() {
    let server = Postgres::start(Major::Fifteen);
    let folder = tempfile::tempdir().expect("a folder");
    let password = secret_file(folder.path(), "password", PASSWORD);
    let listener = format!(
        "[[listener.postgres.hba]]\ntype = \"host\"\nuser = \"{USER}\"\nmethod = \"scram-sha-256\"\n\
         [[listener.user]]\nname = \"{USER}\"\npassword = {{ file = \"{password}\" }}"
    );
    let gateway = Gateway::start(Config { protocol: "postgres", ..Config::to(&server.address) }.listener(&listener));
    let port = gateway.address.tcp().port();
    assert_eq!(enter(port, USER, "host=127.0.0.1").as_deref(), Ok(USER));
    // Whether the user exists makes no difference.
    for user in ["postgres", "nobody"] {
        let error = enter(port, user, "host=127.0.0.1 dbname=app").expect_err("a refusal");
        let words = "no pg_hba.conf entry for host \"127.0.0.1\", user";
        assert!(error.contains(&format!("FATAL:  {words} \"{user}\", database \"app\", no encryption")), "{error}");
    }
}

#[test]
fn wrong_passwords_slow_the_logins_of_their_address() {
    let server = Postgres::start(Major::Fifteen);
    let folder = tempfile::tempdir().expect("a folder");
    let password = secret_file(folder.path(), "password", PASSWORD);
    let login = format!("password = {{ file = \"{password}\" }}");
    let config = Config { protocol: "postgres", ..Config::to(&server.address) }
        .listener(&format!("[[listener.user]]\nname = \"{USER}\"\n{login}"))
        .upstream(&format!("[upstream.postgres]\nuser = \"{USER}\"\n{login}"));
    let gateway = Gateway::start(config.workers(1));
    let port = gateway.address.tcp().port();
    let words = "host=127.0.0.1 dbname=app sslmode=disable";
    let guess = || {
        let target = format!("port={port} user={USER} {words}");
        let mut psql = Command::new("psql");
        psql.args(["-XAtq", &target, "-c", "select 1"]).env("PGPASSWORD", "wrong").stdin(Stdio::null());
        text(&psql.output().expect("psql starts").stderr)
    };
    let begun = Instant::now();
    enter(port, USER, words).expect("the first login");
    assert!(begun.elapsed() < Duration::from_millis(1_500), "{:?}", begun.elapsed());
    for _ in 0..5 {
        assert!(guess().contains("password authentication failed"));
    }
    let begun = Instant::now();
    enter(port, USER, words).expect("the password is right");
    assert!(begun.elapsed() >= Duration::from_millis(1_900), "{:?}", begun.elapsed());
    let said: Vec<String> = std::thread::scope(|scope| {
        let all: Vec<_> = (0..120).map(|_| scope.spawn(guess)).collect();
        all.into_iter().map(|one| one.join().expect("psql ends")).collect()
    });
    assert!(said.iter().any(|said| said.contains("too many clients")), "{said:?}");
    // The first ones end after 2, 4, 6 and 8 s, and leave room for clients that start late on a busy machine.
    let guesses = said.iter().filter(|said| said.contains("password authentication failed")).count();
    assert!(guesses <= 104, "{guesses}: {said:?}");
}
