//! PostgreSQL 18 and its own clients: protocol 3.2 with its long cancel keys, and parameters that are new in its reports.

use std::process::{Command, Stdio};
use std::time::Duration;

use weir_tests::deadline::until_true;
use weir_tests::gateway::{Config, Gateway};
use weir_tests::postgres::torture::wire::{V3_0, Wire, cancel, query};
use weir_tests::postgres::torture::{self, Torture};
use weir_tests::postgres::{Major, Options, Postgres, USER, url};
use weir_tests::seed;

use crate::gateway::{before, text};
use crate::hostile::{login, running, value};

const V3_2: u32 = V3_0 + 2;

/// psql of the same major, with the newest protocol that both sides have.
fn psql(port: u16, words: &[&str]) -> Command {
    let mut psql = Command::new(Major::Eighteen.program("psql"));
    psql.args(["-XAtq", "-v", "VERBOSITY=verbose", "-d", &format!("{}?max_protocol_version=latest", url(port, USER))]);
    psql.args(words).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    psql
}

#[test]
fn its_own_client_speaks_its_protocol_with_the_gateway_and_cancels() {
    let server = Postgres::start(Major::Eighteen);
    let folder = tempfile::tempdir().expect("a folder");
    let gateway = Gateway::start(before(&server, folder.path(), "", "pool_size = 4").workers(2));
    let ports = [server.port(), gateway.address.tcp().port()];
    for port in ports {
        let (out, error) = text(&psql(port, &["-c", "\\conninfo"]).output().expect("psql"));
        let version = out.lines().find(|line| line.starts_with("Protocol Version")).unwrap_or_default();
        assert_eq!(version, "Protocol Version|3.2", "{out} {error}");
    }
    for port in ports {
        let sleeper = psql(port, &["-c", "select pg_sleep(60)"]).spawn().expect("psql starts");
        until_true("a query runs", || running(&server, "pg_sleep(60)") == "1");
        let pid = rustix::process::Pid::from_raw(sleeper.id() as i32).expect("a process id");
        rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("signalled");
        let (_, error) = text(&sleeper.wait_with_output().expect("it ends"));
        assert!(error.contains("57014"), "{error}\n{}", gateway.log());
    }
    // Commands of psql 18 that pipeline, with statements of the protocol.
    let script = "select $1::int + 1 \\parse plus\n\\startpipeline\n\\bind_named plus 1 \\sendpipeline\n\
        \\bind_named plus 2 \\sendpipeline\n\\syncpipeline\n\\bind_named plus 3 \\sendpipeline\n\\endpipeline\n\\close_prepared plus\n";
    let file = folder.path().join("pipeline.sql");
    std::fs::write(&file, script).expect("written");
    for port in ports {
        let (out, error) = text(&psql(port, &["-f", &file.to_string_lossy()]).output().expect("psql"));
        assert_eq!((out.as_str(), error.as_str()), ("2\n3\n4", ""), "{}", gateway.log());
    }
}

#[test]
fn a_key_of_protocol_3_2_is_long_and_cancels_its_own_query_alone() {
    let server = Postgres::start(Major::Eighteen);
    let folder = tempfile::tempdir().expect("a folder");
    let gateway = Gateway::start(before(&server, folder.path(), "", "pool_size = 4").workers(2));
    let port = gateway.address.tcp().port();
    let words = ["user", USER, "database", USER];
    let mut old = Wire::connect_with(port, V3_0, &words).expect("a login");
    let mut new = Wire::connect_with(port, V3_2, &words).expect("a login");
    assert_eq!(old.key.len(), 8, "a secret of 4 bytes");
    assert!(new.key.len() >= 4 + 16, "{} bytes of key", new.key.len());
    new.send(&query("select pg_sleep(60), 'own'")).expect("sent");
    old.send(&query("select pg_sleep(2), 'other'")).expect("sent");
    until_true("both run", || running(&server, "pg_sleep") == "2");
    // A wrong last byte, and only the first four bytes of the secret.
    let mut wrong = new.key.clone();
    *wrong.last_mut().expect("a secret") ^= 1;
    for wrong in [&wrong[..], &new.key[..8]] {
        cancel(port, wrong).expect("sent");
    }
    assert_eq!(running(&server, "''own''"), "1", "a wrong key cancels nothing");
    // A worker takes two requests of one source at once, and then 20 a second.
    std::thread::sleep(Duration::from_millis(300));
    cancel(port, &new.key).expect("sent");
    assert_eq!(new.reply().expect("a reply").state(), "57014");
    assert_eq!(old.reply().expect("a reply").rows, [["", "other"]]);
}

/// It reports `search_path`: the client sees its own changes, at the login and afterwards, and no other's.
#[test]
fn the_reports_of_search_path_are_those_of_the_client() {
    let server = Postgres::start(Major::Eighteen);
    let folder = tempfile::tempdir().expect("a folder");
    let gateway = Gateway::start(before(&server, folder.path(), "", "pool_size = 1"));
    let reports = |wire: &mut Wire, text: &str| {
        wire.send(&query(text)).expect("sent");
        let mut reports = Vec::new();
        loop {
            let (tag, body) = wire.message().expect("a message");
            match tag {
                b'S' if body.starts_with(b"search_path\0") => {
                    reports.push(String::from_utf8_lossy(&body[12..body.len() - 1]).into_owned());
                }
                b'Z' => return reports,
                _ => {}
            }
        }
    };
    let mut one = login(&gateway);
    let mut other = login(&gateway);
    assert_eq!(reports(&mut one, "set search_path = pg_catalog"), ["pg_catalog"]);
    assert!(reports(&mut other, "select 1").iter().all(|path| path != "pg_catalog"), "the path of another");
    assert_eq!(value(&mut other, "show search_path"), "\"$user\", public");
    assert_eq!(value(&mut one, "show search_path"), "pg_catalog");
    for (text, path) in
        [("begin", None), ("set local search_path = public", Some("public")), ("commit", Some("pg_catalog"))]
    {
        assert_eq!(reports(&mut one, text), Vec::from_iter(path), "{text}");
    }
    // The text does not show the value: the report does.
    value(&mut other, "select set_config('search_path', 'pub' || 'lic', false)");
    assert_eq!(value(&mut one, "show search_path"), "pg_catalog");
    assert_eq!(value(&mut other, "show search_path"), "public");
    assert!(super::isolation::pins(&gateway).is_empty(), "what the server reports needs no pin");
}

#[test]
fn the_torture_finds_nothing_in_front_of_it() {
    let server = Postgres::start_with(Major::Eighteen, Options { hba: torture::hba(), ..Options::default() });
    torture::prepare(&server);
    let config = Config::to(&server.address).workers(2).listener("[listener.postgres]\nauth = \"trust\"");
    // Logins of a busy machine are slow, and nothing that is looked for here.
    let config = config.upstream("connect_timeout = \"10s\"\n[upstream.postgres]\npool_size = 10");
    let gateway = Gateway::start(Config { protocol: "postgres", ..config });
    let (port, duration) = (gateway.address.tcp().port(), Duration::from_secs(6));
    let report = Torture { port, clients: 60, duration, seed: seed::seeded().next_u64() }.run();
    eprintln!("{report}");
    assert!(report.findings.is_empty(), "{report}");
    gateway.finish();
}
