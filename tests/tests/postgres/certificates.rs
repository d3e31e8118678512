//! New certificates at a listener and at its server while clients are connected: new connections use the new ones, old ones live on.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use weir_tests::certificate::Certificates;
use weir_tests::gateway::{Config, Gateway, secret_file};
use weir_tests::postgres::{Major, Options, PASSWORD, Postgres, USER};

use super::logins::through::login;

/// psql that stays connected.
struct Session {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Session {
    fn new(gateway: &Gateway, files: &Certificates) -> Self {
        let port = gateway.address.tcp().port();
        let target = format!("{} port={port} user={USER} dbname={USER}", words(files));
        let mut psql = Command::new("psql");
        psql.args(["-XAtq", &target]).env("PGPASSWORD", PASSWORD);
        let mut child = psql.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("psql starts");
        let (input, output) = (child.stdin.take().expect("an input"), child.stdout.take().expect("an output"));
        Self { child, input, output: BufReader::new(output) }
    }

    /// The row of a statement.
    fn row(&mut self, text: &str) -> String {
        writeln!(self.input, "{text};").expect("sent");
        let mut line = String::new();
        self.output.read_line(&mut line).expect("a row");
        line.trim_end().to_owned()
    }

    fn run(&mut self, text: &str) {
        writeln!(self.input, "{text};").expect("sent");
    }

    fn end(self) {
        let Self { mut child, input, .. } = self;
        drop(input);
        assert!(child.wait().expect("it ends").success());
    }
}

fn words(files: &Certificates) -> String {
    format!("host=localhost hostaddr=127.0.0.1 sslmode=verify-full sslrootcert={}", files.authority.display())
}

/// The content alone: the owner and the rights of the file stay.
fn replace(new: &Path, old: &Path) {
    std::fs::write(old, std::fs::read(new).expect("a file")).expect("written");
}

#[test]
fn new_certificates_on_both_sides_serve_new_connections_and_end_no_session() {
    let server = Postgres::start_with(Major::Fifteen, Options { tls: true, ..Options::default() });
    let folder = tempfile::tempdir().expect("a folder");
    let files = Certificates::create(&folder.path().join("first"));
    let old = Certificates::create(&folder.path().join("old"));
    for (from, to) in [(&files.server, &old.server), (&files.authority, &old.authority)] {
        replace(from, to);
    }
    let own = server.certificates.as_ref().expect("a server with TLS");
    let authority = folder.path().join("authority-of-server.pem");
    std::fs::copy(&own.authority, &authority).expect("copied");
    let password = secret_file(folder.path(), "password", PASSWORD);
    let config = Config { protocol: "postgres", ..Config::to(&server.address) }
        .listener(&format!(
            "[listener.postgres]\nquery_wait_timeout = \"3s\"\n[listener.tls]\ncert_file = \"{}\"\nkey_file = \"{}\"\n\
             [[listener.user]]\nname = \"{USER}\"\npassword = {{ file = \"{password}\" }}",
            files.server.display(),
            files.server_key.display(),
        ))
        .upstream(&format!("[upstream.tls]\nca_file = \"{}\"", authority.display()));
    let gateway = Gateway::start(config.workers(2));
    let pid = "select pg_backend_pid()";
    let tls = "select ssl from pg_stat_ssl where pid = pg_backend_pid()";
    let (mut busy, mut idle) = (Session::new(&gateway, &files), Session::new(&gateway, &files));
    assert_eq!((busy.row(tls), idle.row(tls)), ("t".to_owned(), "t".to_owned()));
    busy.run("begin");
    let first = busy.row(pid);

    let (listener, upstream) =
        (Certificates::create(&folder.path().join("second")), Certificates::create(&folder.path().join("third")));
    replace(&listener.server, &files.server);
    replace(&listener.server_key, &files.server_key);
    for (from, to) in [(&upstream.server, &own.server), (&upstream.server_key, &own.server_key)] {
        replace(from, to);
    }
    replace(&upstream.authority, &authority);
    server.sql("select pg_reload_conf()");
    let reload = gateway.admin.post("/api/v1/reload", "");
    assert_eq!(reload.json()["outcome"], "applied", "{}", reload.body);

    // The session within a transaction keeps its server; both go on, and change to a connection that trusts the new authority.
    assert_eq!(busy.row(pid), first, "{}", gateway.log());
    busy.run("commit");
    assert_ne!(busy.row(pid), first, "its old connection ends with the transaction\n{}", gateway.log());
    assert_eq!((busy.row(tls), idle.row(tls)), ("t".to_owned(), "t".to_owned()), "{}", gateway.log());
    let enter = |files: &Certificates| login(&gateway, &words(files), (USER, PASSWORD), "select 7");
    assert_eq!(enter(&listener).as_deref(), Ok("7"), "{}", gateway.log());
    assert!(enter(&old).is_err(), "the old authority has not signed the new certificate");
    busy.end();
    idle.end();

    // A server with a certificate of another authority gets no new connection.
    replace(&own.authority, &authority);
    let reload = gateway.admin.post("/api/v1/reload", "");
    assert_eq!(reload.json()["outcome"], "applied", "{}", reload.body);
    assert!(enter(&listener).is_err(), "its certificate is of an authority that is trusted no longer");
}
