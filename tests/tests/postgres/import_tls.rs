//! The modes of TLS of an imported configuration: a real PgBouncer and Weir let the same clients in, and log in at the same servers.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;

use weir_tests::certificate::Certificates;
use weir_tests::gateway::Gateway;
use weir_tests::import::import;
use weir_tests::port;
use weir_tests::postgres::{Major, Options, PASSWORD, Pgbouncer, PoolMode, Postgres, USER};
use weir_tests::stream::Address;

use super::logins::through::login_at;

/// PgBouncer in front of `server`, and Weir with its configuration.
struct Pair {
    theirs: Pgbouncer,
    ours: Gateway,
    toml: String,
    notes: String,
}

impl Pair {
    fn start(server: &Postgres, lines: &str) -> Self {
        let theirs = Pgbouncer::before(server, PoolMode::Transaction, 2, lines);
        let (old, new) = (theirs.address.tcp().port(), port::free());
        let text = theirs.configuration().replace(&format!("listen_port = {old}"), &format!("listen_port = {new}"));
        let imported = import("pgbouncer", &text);
        let password = ("APP_PASSWORD".to_owned(), PASSWORD.to_owned());
        let ours = Gateway::with_environment(&imported.toml, Address::port(new), &[password]);
        Self { theirs, ours, toml: imported.toml, notes: imported.notes }
    }

    /// The outcomes of a statement, or of the login, at PgBouncer and at Weir.
    fn run(&self, words: &str, statement: &str) -> [Result<String, String>; 2] {
        let ports = [self.theirs.address.tcp().port(), self.ours.address.tcp().port()];
        ports.map(|port| login_at(port, words, (USER, PASSWORD), statement))
    }
}

/// Files that the account of PgBouncer reads.
fn files(folder: &std::path::Path) -> Certificates {
    let files = Certificates::create(folder);
    let all = [&files.authority, &files.server, &files.server_key, &files.client, &files.client_key];
    for path in std::iter::once(folder).chain(all.map(std::path::PathBuf::as_path)) {
        weir_tests::postgres::give(path);
    }
    files
}

/// Clients with these words of libpq, and whether each mode of `client_tls_sslmode` lets them in.
#[test]
fn every_mode_of_client_tls_lets_the_same_clients_in_as_pgbouncer() {
    let server = Postgres::start(Major::Fifteen);
    let folder = Postgres::folder_of_files();
    let files = files(folder.path());
    let place = tempfile::tempdir().expect("a folder");
    let own = Certificates::create(place.path());
    let stranger = format!("sslcert={} sslkey={}", own.client.display(), own.client_key.display());
    let key = own.client_key.with_file_name("copied.key");
    std::fs::copy(&files.client_key, &key).expect("copied");
    // libpq takes no key that others may read, or that belongs to another account.
    for file in [&key, &own.client_key] {
        std::fs::set_permissions(file, Permissions::from_mode(0o600)).expect("set");
    }
    let known = format!("sslcert={} sslkey={}", files.client.display(), key.display());
    let (plain, tls) = ("sslmode=disable".to_owned(), "sslmode=require".to_owned());
    let clients = [plain, tls, format!("sslmode=require {known}"), format!("sslmode=require {stranger}")];
    let pair = format!(
        "client_tls_cert_file = {}\nclient_tls_key_file = {}\nclient_tls_ca_file = {}",
        files.server.display(),
        files.server_key.display(),
        files.authority.display()
    );
    for (mode, wanted) in [
        ("disable", [true, false, false, false]),
        ("allow", [true, true, true, true]),
        ("prefer", [true, true, true, true]),
        ("require", [false, true, true, true]),
        ("verify-ca", [false, false, true, false]),
        ("verify-full", [false, false, true, false]),
    ] {
        let pair = Pair::start(&server, &format!("client_tls_sslmode = {mode}\n{pair}"));
        for (at, (words, is_let_in)) in clients.iter().zip(wanted).enumerate() {
            let [theirs, ours] = pair.run(words, "select 7");
            let shown = format!("{mode}, {words}: {theirs:?} {ours:?}\n{}\n{}", pair.toml, pair.ours.log());
            assert_eq!(ours.is_ok(), is_let_in, "Weir: {shown}");
            // PgBouncer refuses a certificate of a stranger where it demands none. Such a client comes in without it.
            assert_eq!(theirs.is_ok(), is_let_in && at < 3, "PgBouncer: {shown}");
        }
    }
    drop(folder);
}

/// The server has TLS, and its certificate is of its own authority.
#[test]
fn every_mode_of_server_tls_reaches_the_same_servers_as_pgbouncer_or_says_the_difference() {
    let server = Postgres::start_with(Major::Fifteen, Options { tls: true, ..Options::default() });
    let own = server.certificates.as_ref().expect("a server with TLS");
    let folder = Postgres::folder_of_files();
    let other = files(folder.path());
    let tls = "select ssl from pg_stat_ssl where pid = pg_backend_pid()";
    for (mode, theirs_has, ours_has, note) in [
        ("disable", "f", "f", ""),
        // The counterpart is clear text: Weir does not negotiate.
        ("allow", "t", "f", "are in clear text"),
        ("prefer", "t", "f", "are in clear text"),
        ("require", "t", "t", "any certificate of the server is accepted"),
        ("verify-ca", "t", "t", "the name in the server's certificate is checked too"),
        ("verify-full", "t", "t", ""),
    ] {
        let lines = |authority: &Certificates| {
            format!("server_tls_sslmode = {mode}\nserver_tls_ca_file = {}", authority.authority.display())
        };
        let pair = Pair::start(&server, &lines(own));
        assert!(pair.notes.contains(note), "{mode}: {}", pair.notes);
        let [theirs, ours] = pair.run("", tls);
        let shown = format!("{mode}: {}\n{}", pair.toml, pair.ours.log());
        assert_eq!((theirs.as_deref(), ours.as_deref()), (Ok(theirs_has), Ok(ours_has)), "{shown}");
        if mode.starts_with("verify") {
            let pair = Pair::start(&server, &format!("query_wait_timeout = 3\n{}", lines(&other)));
            let [theirs, ours] = pair.run("", tls);
            assert!(theirs.is_err() && ours.is_err(), "another authority: {mode}: {theirs:?} {ours:?}");
        }
    }
    drop(folder);
}
