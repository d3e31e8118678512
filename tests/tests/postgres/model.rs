//! The model server of the simulation against PostgreSQL: the same messages, the same replies. The proofs of the random runs about the
//! gateway hold in front of a server that behaves like this.

use weir_postgres_codec::{backend, frame, frontend, frontend::Kind};
use weir_postgres_simulation::ModelServer;
use weir_tests::postgres::torture::wire::Wire;
use weir_tests::postgres::{Major, Options, Postgres, USER};

/// Messages of a client.
type Messages = Vec<u8>;

fn bytes(encode: impl FnOnce(&mut Vec<u8>)) -> Messages {
    let mut out = Vec::new();
    encode(&mut out);
    out
}

fn query(text: &str) -> Messages {
    bytes(|out| frontend::query(out, text.as_bytes()))
}

fn parse(name: &str, text: &str) -> Messages {
    bytes(|out| frontend::parse(out, name.as_bytes(), text.as_bytes(), &[]))
}

fn bind(portal: &str, name: &str) -> Messages {
    bytes(|out| frontend::bind(out, portal.as_bytes(), name.as_bytes(), []))
}

fn describe(kind: Kind, name: &str) -> Messages {
    bytes(|out| frontend::describe(out, kind, name.as_bytes()))
}

fn execute(portal: &str, rows: u32) -> Messages {
    bytes(|out| frontend::execute(out, portal.as_bytes(), rows.cast_signed()))
}

fn close(kind: Kind, name: &str) -> Messages {
    bytes(|out| frontend::close(out, kind, name.as_bytes()))
}

fn data(text: &str) -> Messages {
    bytes(|out| frontend::copy_data(out, text.as_bytes()))
}

fn sync() -> Messages {
    bytes(frontend::sync)
}

fn flush() -> Messages {
    bytes(frontend::flush)
}

fn done() -> Messages {
    bytes(frontend::copy_done)
}

fn fail() -> Messages {
    bytes(|out| frontend::copy_fail(out, b"enough"))
}

/// Bind, Execute and Sync.
fn run(name: &str) -> Messages {
    [bind("", name), execute("", 0), sync()].concat()
}

/// A message without its last byte, the end of its text.
fn unended(message: &[u8]) -> Messages {
    let length = (message.len() as u32 - 2).to_be_bytes();
    [&message[..1], &length, &message[5..message.len() - 1]].concat()
}

/// The part of a reply that drivers and the gateway go by; `None`: a notice or a parameter, whose place is not fixed.
fn essence(tag: u8, body: &[u8]) -> Option<String> {
    let text = || String::from_utf8_lossy(body).trim_end_matches('\0').to_owned();
    let rest = match tag {
        b'N' | b'S' => return None,
        b'E' => {
            let fields = backend::ErrorFields::read(body).expect("fields");
            format!("{}{}", fields.sqlstate().expect("a SQLSTATE"), if fields.is_fatal() { " fatal" } else { "" })
        }
        b'C' | b'Z' | b'D' | b'd' => text(),
        _ => String::new(),
    };
    Some(format!("{}{rest}", char::from(tag)))
}

fn of_model(messages: &[u8]) -> Vec<String> {
    let mut model = ModelServer::new();
    model.receive(messages);
    model.run();
    let output = model.take_output();
    let (mut at, mut found) = (0, Vec::new());
    while let Some(head) = frame::head(&output[at..]).expect("lengths") {
        found.extend(essence(head.tag, &output[at + frame::HEAD_BYTES..at + head.whole()]));
        at += head.whole();
    }
    found
}

/// The first `count` replies, or all up to the end of the connection.
fn of_server(wire: &mut Wire, messages: &[u8], count: usize) -> Vec<String> {
    wire.send(messages).expect("sent");
    let mut found = Vec::new();
    while found.len() < count {
        let Ok((tag, body)) = wire.message() else { break };
        found.extend(essence(tag, &body));
    }
    found
}

/// Each case at a session of its own; behind all but those that end it, a Query shows that nothing more has come.
fn compare(cases: &[(&str, Messages)]) {
    let hba = vec!["host all all 127.0.0.1/32 trust".to_owned()];
    let server = Postgres::start_with(Major::Fifteen, Options { hba, ..Options::default() });
    let connect = || Wire::connect(server.port(), USER, USER, "").unwrap_or_else(|error| panic!("{error}"));
    let made = connect().query("create table t (a int)").expect("a reply");
    assert!(made.errors.is_empty(), "{made:?}");
    for (name, messages) in cases {
        let fresh = connect().query("truncate t; insert into t values (1)").expect("a reply");
        assert!(fresh.errors.is_empty(), "{fresh:?}");
        let with_end = [&messages[..], &query("SELECT 'end'")].concat();
        let ends = of_model(messages).last().is_some_and(|last| last.ends_with("fatal"));
        let sent = if ends { messages } else { &with_end };
        let expected = of_model(sent);
        assert!(ends || expected.last().is_some_and(|last| last.starts_with('Z')), "{name}: {expected:?}");
        assert_eq!(of_server(&mut connect(), sent, expected.len()), expected, "{name}");
    }
}

/// Section 2.4 of the reference.
#[test]
fn the_model_speaks_the_extended_protocol_as_postgresql_does() {
    let wrong = parse("", "nonsense");
    let text = "SELECT 'a' FROM generate_series(1, 3)";
    let many = [parse("s", text), bind("p", "s"), execute("p", 2)].concat();
    let cases = [
        ("each Sync has its ReadyForQuery", [wrong.clone(), sync(), sync()].concat()),
        ("a Query before the Sync is skipped", [wrong, flush(), query("SELECT 'b'"), sync()].concat()),
        (
            "nothing behind an error is prepared",
            [parse("", "SELECT 1/0"), bind("", ""), execute("", 0), parse("a", text), sync(), run("a")].concat(),
        ),
        ("a name that is taken", [parse("s", text), parse("s", text), sync(), run("s")].concat()),
        ("the unnamed statement again", [parse("", text), parse("", "SELECT 'b'"), sync(), run("")].concat()),
        ("Close of nothing", [close(Kind::Statement, "s"), close(Kind::Portal, "p"), sync()].concat()),
        ("a Query ends the unnamed statement", [parse("", text), sync(), query("SELECT 'b'"), run("")].concat()),
        (
            "statements survive a rollback",
            [query("BEGIN"), parse("s", text), sync(), query("ROLLBACK"), run("s")].concat(),
        ),
        (
            "a failed block prepares nothing",
            [query("BEGIN"), query("SELECT 1/0"), parse("s", text), sync(), parse("r", "ROLLBACK"), run("r")].concat(),
        ),
        (
            "one space of names",
            [query("PREPARE a AS SELECT 'q'"), run("a"), close(Kind::Statement, "a"), sync(), query("EXECUTE a")]
                .concat(),
        ),
        ("two statements", [parse("", "select 1; select 2"), sync()].concat()),
        ("Sync alone, Flush alone", [sync(), flush(), sync()].concat()),
        ("nothing to do", [query(""), query(";"), parse("", ""), run("")].concat()),
        ("a text without its end", [unended(&query("SELECT 'a'")), unended(&parse("", text)), sync()].concat()),
        ("DISCARD ALL in a block", [query("BEGIN"), query("DISCARD ALL"), query("COMMIT")].concat()),
        ("a limit of rows", [many.clone(), execute("p", 2), execute("p", 0), sync()].concat()),
        ("a portal ends with its transaction", [many.clone(), sync(), execute("p", 0), sync()].concat()),
        ("a portal within a block", [query("BEGIN"), many, sync(), execute("p", 0), sync()].concat()),
        (
            "descriptions",
            [parse("s", text), describe(Kind::Statement, "s"), bind("", "s"), describe(Kind::Portal, ""), sync()]
                .concat(),
        ),
        ("DISCARD ALL ends statements", [parse("s", text), sync(), query("DISCARD ALL"), run("s")].concat()),
        ("names of nobody", [query("EXECUTE weir_none"), query("DEALLOCATE weir_none"), run("weir_0")].concat()),
    ];
    compare(&cases);
}

/// Section 2.6 of the reference.
#[test]
fn the_model_copies_as_postgresql_does() {
    let begin = [parse("", "COPY t FROM STDIN"), bind("", ""), execute("", 0)].concat();
    let copy = query("COPY t FROM STDIN");
    let cases = [
        ("a Sync before the data", [begin.clone(), sync(), data("1\n"), done(), sync()].concat()),
        ("a Flush among the data", [copy.clone(), data("1\n"), flush(), data("2\n"), done()].concat()),
        ("late data", [copy.clone(), data("bad\n"), data("1\n"), done(), fail(), query("SELECT 'b'")].concat()),
        ("all up to the Sync is skipped", [begin.clone(), data("bad\n"), done(), query("SELECT 'b'"), sync()].concat()),
        ("a Query among the data", [copy.clone(), data("1\n"), query("SELECT 'b'")].concat()),
        ("a Parse among the data", [begin.clone(), data("1\n"), parse("s", "SELECT 'b'"), sync()].concat()),
        ("messages of no COPY", [data("1\n"), done(), fail(), query("SELECT 'b'")].concat()),
        ("two in one Query", [query("COPY t FROM STDIN; COPY t FROM STDIN"), done(), data("1\n"), done()].concat()),
        ("the first of two fails", [query("COPY t FROM STDIN; COPY t FROM STDIN"), fail(), done()].concat()),
        ("CopyFail", [copy, data("1\n"), fail(), begin, fail(), sync()].concat()),
        ("out", query("COPY t TO STDOUT")),
    ];
    compare(&cases);
}

/// State that a pool has to know.
#[test]
fn the_model_keeps_and_undoes_state_as_postgresql_does() {
    let all = |texts: &[&str]| texts.iter().flat_map(|text| query(text)).collect::<Vec<_>>();
    let cases = [
        ("SET and a rollback", all(&["SET app.x = 'a'", "BEGIN", "SET app.x = 'b'", "ROLLBACK", "SHOW app.x"])),
        ("SET and a failure", all(&["SET app.x = 'a'", "SET app.x = 'b'; SELECT 1/0", "SHOW app.x"])),
        (
            "SET LOCAL",
            all(&["SET app.x = 'a'", "BEGIN", "SET LOCAL app.x = 'b'", "SHOW app.x", "COMMIT", "SHOW app.x"]),
        ),
        (
            "savepoints",
            all(&[
                "SET app.x = 'a'",
                "BEGIN",
                "SAVEPOINT s",
                "SET app.x = 'b'",
                "ROLLBACK TO SAVEPOINT s",
                "SHOW app.x",
                "RELEASE SAVEPOINT s",
                "ROLLBACK TO SAVEPOINT s",
                "COMMIT",
                "SHOW app.x",
            ]),
        ),
        ("rights", all(&["SET log_statement = 'all'", "SELECT set_config('log_statement', 'all', false)"])),
        ("rights of RESET", all(&["RESET log_statement", "RESET ALL"])),
        ("settings by PREPARE", {
            all(&["PREPARE p AS SELECT set_config('app.x', 'p', false)", "EXECUTE p", "SHOW app.x"])
        }),
        (
            "locks",
            all(&[
                "SELECT pg_advisory_lock(1)",
                "SELECT pg_advisory_unlock(99)",
                "SELECT pg_advisory_unlock(1)",
                "SELECT pg_advisory_unlock(1)",
                "BEGIN",
                "SELECT pg_advisory_lock(1)",
                "ROLLBACK",
                "SELECT FROM pg_catalog.pg_locks WHERE locktype OPERATOR(pg_catalog.=) 'advisory' AND pid \
                 OPERATOR(pg_catalog.=) pg_catalog.pg_backend_pid()",
            ]),
        ),
        (
            "temporary tables",
            all(&[
                "SET search_path = pg_temp",
                "CREATE TABLE t1 (a int)",
                "SET search_path = public",
                "SELECT a FROM t1",
            ]),
        ),
        (
            "tables that end with their session",
            all(&["CREATE TEMP TABLE t1 (a int)", "SELECT a FROM t1", "DISCARD TEMP", "SELECT a FROM t1"]),
        ),
        ("cursors", all(&["DECLARE c CURSOR WITH HOLD FOR SELECT 'c'", "FETCH 1 FROM c", "CLOSE c", "FETCH 1 FROM c"])),
        ("channels", all(&["LISTEN a", "LISTEN b", "UNLISTEN a", "UNLISTEN *"])),
    ];
    compare(&cases);
}
