//! An imported configuration of PgBouncer: the program itself and Weir serve the same psql sessions alike.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use weir_tests::gateway::{Gateway, program};
use weir_tests::import::{Imported, import};
use weir_tests::port;
use weir_tests::postgres::{Major, PASSWORD, Pgbouncer, PoolMode, Postgres, USER};
use weir_tests::stream::Address;

/// A run of psql.
#[derive(Clone, Copy)]
struct Session {
    name: &'static str,
    /// Each is a statement, or several in one message.
    commands: &'static [&'static str],
    /// A part of the output, or of the errors, of both.
    wanted: &'static str,
    /// Standard input.
    input: &'static str,
    database: &'static str,
    user: &'static str,
    password: &'static str,
    environment: &'static [(&'static str, &'static str)],
}

const PLAIN: Session = Session {
    name: "",
    commands: &[],
    wanted: "",
    input: "",
    database: USER,
    user: USER,
    password: PASSWORD,
    environment: &[],
};

/// Sessions that mean the same in every pool mode.
const ANYWHERE: [Session; 17] = [
    Session {
        name: "rows",
        wanted: "500|row 500|",
        commands: &["select n, 'row ' || n, null from generate_series(1, 500) n"],
        ..PLAIN
    },
    Session { name: "no rows", commands: &["select 1 where false", ""], ..PLAIN },
    Session { name: "a large row", wanted: "xxxxxxxx", commands: &["select repeat('x', 3000000)"], ..PLAIN },
    Session { name: "several statements", wanted: "1\n2\n3\n", commands: &["select 1; select 2; select 3"], ..PLAIN },
    Session { name: "a syntax error", wanted: "42601", commands: &["selec 1"], ..PLAIN },
    Session { name: "a missing table", wanted: "42P01", commands: &["select * from nothing"], ..PLAIN },
    Session { name: "an error and more", wanted: "7\n", commands: &["select 1/0", "select 7"], ..PLAIN },
    Session {
        name: "an error among several",
        wanted: "22012",
        commands: &["select 1; select 1/0; select 3", "select 4"],
        ..PLAIN
    },
    Session { name: "a notice", wanted: "seen", commands: &["do $$ begin raise notice 'seen'; end $$"], ..PLAIN },
    Session { name: "a refused right", wanted: "42501", commands: &["select rolpassword from pg_authid"], ..PLAIN },
    Session {
        name: "copy out",
        wanted: "300\t-300\n",
        commands: &["copy (select n, -n from generate_series(1, 300) n) to stdout"],
        ..PLAIN
    },
    Session {
        name: "copy in",
        wanted: "3|6\n",
        commands: &["truncate items", "copy items from stdin", "select count(*), sum(n) from items"],
        input: "1\tone\n2\ttwo\n3\t\\N\n\\.\n",
        ..PLAIN
    },
    Session {
        name: "copy in with an error",
        wanted: "22P02",
        commands: &["truncate items", "copy items from stdin", "select count(*) from items"],
        input: "1\tone\nx\ttwo\n\\.\n",
        ..PLAIN
    },
    Session { name: "a description", wanted: "integer", commands: &["\\d items", "\\dn"], ..PLAIN },
    Session {
        name: "an encoding",
        wanted: "UTF8\né|1\n",
        commands: &["show client_encoding", "select 'é', length('é')"],
        environment: &[("PGCLIENTENCODING", "UTF8")],
        ..PLAIN
    },
    Session {
        name: "an application name",
        wanted: "named\n",
        commands: &["show application_name"],
        environment: &[("PGAPPNAME", "named")],
        ..PLAIN
    },
    Session {
        name: "a missing database",
        wanted: "database \"nowhere\" does not exist",
        commands: &["select 1"],
        database: "nowhere",
        ..PLAIN
    },
];

/// Sessions with transaction blocks.
const BLOCKS: [Session; 5] = [
    Session {
        name: "a rollback",
        wanted: "ROLLBACK\n",
        commands: &["truncate items", "begin", "insert into items values (1, 'a')", "rollback", "table items"],
        ..PLAIN
    },
    Session {
        name: "a commit",
        wanted: "9|b\n",
        commands: &["begin", "insert into items values (9, 'b')", "commit", "table items", "truncate items"],
        ..PLAIN
    },
    Session {
        name: "a failed block",
        wanted: "25P02",
        commands: &["begin", "select 1/0", "select 2", "rollback", "select 3"],
        ..PLAIN
    },
    Session {
        name: "a savepoint",
        wanted: "5\nCOMMIT",
        commands: &["begin", "savepoint a", "select 1/0", "rollback to a", "select 5", "commit"],
        ..PLAIN
    },
    Session {
        name: "a prepared statement in a block",
        wanted: "3\nDEALLOCATE",
        commands: &["begin; prepare p as select $1::int + 1; execute p(2); deallocate p; commit"],
        ..PLAIN
    },
];

/// Sessions in which the two differ, part of PgBouncer's output, part of Weir's.
const DIFFERENCES: [(Session, &str, &str); 3] = [
    // PgBouncer does not say which user.
    (
        Session { name: "a wrong password", commands: &["select 1"], password: "wrong", ..PLAIN },
        "authentication failed",
        "password authentication failed for user \"app\"",
    ),
    (
        Session { name: "an unknown user", commands: &["select 1"], user: "nobody", ..PLAIN },
        "FATAL",
        "password authentication failed for user \"nobody\"",
    ),
    // PgBouncer 1.18 refuses startup parameters that it does not keep; Weir keeps them all.
    (
        Session {
            name: "startup options",
            commands: &["show statement_timeout"],
            environment: &[("PGOPTIONS", "-c statement_timeout=4321")],
            ..PLAIN
        },
        "unsupported startup parameter: options",
        "4321ms",
    ),
];

/// A session that has state.
const TEMPORARY: &[&str] = &["create temp table kept (n int)", "insert into kept values (1)", "select * from kept"];

/// Output, errors without the port, and exit status.
type Outcome = (String, String, Option<i32>);

impl Session {
    fn run(&self, port: u16) -> Outcome {
        let mut psql = Command::new("psql");
        psql.args(["-XAt", "-v", "VERBOSITY=verbose", "-h", "127.0.0.1", "-p", &port.to_string()]);
        psql.args(["-U", self.user, "-d", self.database]);
        psql.args(self.commands.iter().flat_map(|command| ["-c", command]));
        psql.env("PGPASSWORD", self.password).envs(self.environment.iter().copied());
        psql.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = psql.spawn().expect("psql starts");
        let mut input = child.stdin.take().expect("an input");
        // A psql that could not connect reads nothing.
        let _ = input.write_all(self.input.as_bytes());
        drop(input);
        let output = child.wait_with_output().expect("it ends");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).replace(&format!("port {port}"), "port N");
        (text(&output.stdout), text(&output.stderr), output.status.code())
    }
}

/// PgBouncer in front of a server, and Weir with its configuration.
struct Pair {
    theirs: Pgbouncer,
    ours: Gateway,
    imported: Imported,
}

impl Pair {
    fn start(server: &Postgres, mode: PoolMode, lines: &str) -> Self {
        let theirs = Pgbouncer::before(server, mode, 1, lines);
        let (old, new) = (theirs.address.tcp().port(), port::free());
        let text = theirs.configuration().replace(&format!("listen_port = {old}"), &format!("listen_port = {new}"));
        let imported = import("pgbouncer", &text);
        assert!(!imported.toml.contains(PASSWORD) && !imported.notes.contains(PASSWORD), "{}", imported.toml);
        let password = ("APP_PASSWORD".to_owned(), PASSWORD.to_owned());
        let ours = Gateway::with_environment(&imported.toml, Address::port(new), &[password]);
        Self { theirs, ours, imported }
    }

    fn run(&self, session: &Session) -> (Outcome, Outcome) {
        (session.run(self.theirs.address.tcp().port()), session.run(self.ours.address.tcp().port()))
    }

    fn same(&self, sessions: &[Session]) {
        for session in sessions {
            let (theirs, ours) = self.run(session);
            assert_eq!(theirs, ours, "PgBouncer, then Weir: {}\n{}", session.name, self.ours.log());
            let is_there = ours.0.contains(session.wanted) || ours.1.contains(session.wanted);
            assert!(is_there, "{}: no `{}`: {ours:?}", session.name, session.wanted);
        }
    }

    fn differ(&self, session: &Session, theirs: &str, ours: &str) {
        let (old, new) = self.run(session);
        assert_ne!(old, new, "{}: no difference any more", session.name);
        for ((out, error, _), words) in [(old, theirs), (new, ours)] {
            assert!(out.contains(words) || error.contains(words), "{}: no `{words}`: {out}{error}", session.name);
        }
    }
}

fn server() -> Postgres {
    let server = Postgres::start(Major::Fifteen);
    server.sql_in(USER, "create table items (n int, t text); alter table items owner to app");
    server
}

#[test]
fn pgbouncer_and_weir_serve_alike_in_session_mode() {
    let server = server();
    let pair = Pair::start(&server, PoolMode::Session, "");
    assert!(pair.imported.toml.contains("pool_mode = \"session\""), "{}", pair.imported.toml);
    pair.same(&ANYWHERE);
    pair.same(&BLOCKS);
    let settings = Session {
        name: "settings",
        wanted: "SET\n",
        commands: &["set search_path = pg_temp", "show search_path"],
        ..PLAIN
    };
    let fresh =
        Session { name: "no foreign setting", wanted: "\"$user\", public", commands: &["show search_path"], ..PLAIN };

    let kept = Session { name: "a temporary table", wanted: "1\n", commands: TEMPORARY, ..PLAIN };
    pair.same(&[settings, fresh, kept, fresh]);
    for (session, theirs, ours) in &DIFFERENCES {
        pair.differ(session, theirs, ours);
    }
}

#[test]
fn pgbouncer_and_weir_serve_alike_in_transaction_mode() {
    let server = server();
    let pair = Pair::start(&server, PoolMode::Transaction, "idle_transaction_timeout = 30\nserver_lifetime = 0");
    pair.same(&ANYWHERE);
    pair.same(&BLOCKS);
    for (session, theirs, ours) in &DIFFERENCES {
        pair.differ(session, theirs, ours);
    }
    drop(pair);
    // PgBouncer passes a setting on to the next client of its server; Weir does not.
    let pair = Pair::start(&server, PoolMode::Transaction, "");
    pair.same(&[Session {
        name: "settings",
        wanted: "SET\n",
        commands: &["set search_path = pg_temp", "select 1"],
        ..PLAIN
    }]);
    let fresh = Session { name: "a foreign setting", commands: &["show search_path"], ..PLAIN };
    pair.differ(&fresh, "pg_temp", "\"$user\", public");
}

#[test]
fn pgbouncer_and_weir_serve_alike_in_statement_mode_with_md5() {
    let server = server();
    let pair = Pair::start(&server, PoolMode::Statement, "auth_type = md5");
    assert!(pair.imported.toml.contains("auth = \"md5\""), "{}", pair.imported.toml);
    pair.same(&ANYWHERE);
    let block = Session { name: "a block", commands: &["begin", "select 1"], ..PLAIN };
    pair.differ(&block, "transaction blocks not allowed", "0A000");
}

#[test]
fn imported_files_pass_the_check() {
    let inputs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../control/import/tests/pgbouncer");
    let folder = tempfile::tempdir().expect("a folder");
    for name in ["debian.ini", "trust.ini", "full.ini"] {
        let file = folder.path().join(name).with_extension("toml");
        let mut weir = Command::new(program());
        weir.args(["import", "pgbouncer"]).arg(inputs.join(name)).arg("--output").arg(&file);
        let done = weir.output().expect("weir runs");
        let notes = String::from_utf8_lossy(&done.stderr).into_owned();
        assert!(done.status.success() && notes.contains(" notes: they are comments in the result too"), "{notes}");
        let done = Command::new(program()).args(["check", "--offline"]).arg(&file).output().expect("weir runs");
        assert!(done.status.success(), "{name}: {}", String::from_utf8_lossy(&done.stderr));
    }
}
