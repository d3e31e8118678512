//! Random messages of a client. Everything that it may do to a session is among them.

use weir_base::Rng;
use weir_postgres_codec::{frontend, frontend::Kind};

use crate::server::{ADVISORY_LOCK, ModelServer};
use crate::state::Block;

/// The next messages of a client. `direct` is its own server, `mark` its own text.
pub fn messages(rng: &mut Rng, mark: &str, direct: &ModelServer) -> Vec<u8> {
    let mut out = Vec::new();
    if direct.is_copying() {
        copy_message(rng, &mut out);
        return out;
    }
    // In a failed block a server cannot prepare what it lacks: the errors of a batch differ (LIFECYCLE.md, "Known differences").
    let kinds = if direct.state().block == Block::Failed { 8 } else { 20 };
    match rng.below(kinds) {
        0..=7 => frontend::query(&mut out, texts(rng, mark).as_bytes()),
        8..=14 => batch(rng, mark, &mut out),
        15 => frontend::sync(&mut out),
        16 => copy(rng, &mut out),
        17 => stray(rng, &mut out),
        // Most are those of large objects: others pin.
        18 => frontend::function_call(&mut out, [952, 952, 957, ADVISORY_LOCK][rng.below(4) as usize], []),
        _ => frontend::query(&mut out, b""),
    }
    out
}

fn pick<'t>(rng: &mut Rng, all: &[&'t str]) -> &'t str {
    all[rng.below(all.len() as u64) as usize]
}

fn texts(rng: &mut Rng, mark: &str) -> String {
    if rng.below(30) == 0 {
        return pick(rng, &["DEALLOCATE s1", "DEALLOCATE s2"]).to_owned();
    }
    let count = [1, 1, 1, 2, 3][rng.below(5) as usize];
    let all: Vec<_> = (0..count).map(|_| text(rng, mark)).collect();
    // Alone: behind the end of a failed block a name may be unknown to the server (LIFECYCLE.md, "Known differences").
    match all.iter().find(|text| names_statement(text)) {
        Some(alone) => alone.clone(),
        None => all.join("; "),
    }
}

/// One statement.
fn text(rng: &mut Rng, mark: &str) -> String {
    match rng.below(10) {
        0..=1 => format!("SELECT '{mark}'"),
        2 => pick(rng, &["BEGIN", "BEGIN", "COMMIT", "ROLLBACK"]).to_owned(),
        3 => {
            let name = pick(rng, &["a", "b"]);
            let verb = pick(rng, &["SAVEPOINT", "ROLLBACK TO SAVEPOINT", "RELEASE SAVEPOINT"]);
            format!("{verb} {name}")
        }
        4..=5 => setting(rng, mark),
        6 => sql_statement(rng, mark),
        7..=8 => object(rng),
        _ => pick(rng, &["SELECT 1/0", "nonsense", "COPY t TO STDOUT", "SHOW app.x", "SHOW timezone"]).to_owned(),
    }
}

fn setting(rng: &mut Rng, mark: &str) -> String {
    let name = pick(rng, &["app.x", "app.y", "TimeZone", "application_name", "work_mem", "log_statement"]);
    match rng.below(9) {
        0..=2 => format!("SET {name} = '{mark}{}'", rng.below(3)),
        3 => format!("SET LOCAL {name} = '{mark}'"),
        4 => format!("RESET {name}"),
        5 => format!("SHOW {name}"),
        6 => pick(rng, &["RESET ALL", "DISCARD ALL", "RESET ROLE"]).to_owned(),
        7 => format!("SELECT set_config('{name}', '{mark}c', false)"),
        _ => format!("SET {}ROLE '{}'", pick(rng, &["", "", "LOCAL "]), pick(rng, &[mark, "adm"])),
    }
}

fn sql_statement(rng: &mut Rng, mark: &str) -> String {
    let name = pick(rng, &["q1", "q2"]);
    // A client has `weir_1` itself, by Parse: SQL of these is a known difference.
    let reserved = pick(rng, &["weir_2", "weir_3", "weir_4"]);
    match rng.below(7) {
        0..=1 => format!("PREPARE {name} AS {}", prepared(rng, mark)),
        2..=3 => format!("EXECUTE {name}"),
        4 => format!("DEALLOCATE {name}"),
        5 => format!("{} {reserved}", pick(rng, &["EXECUTE", "DEALLOCATE"])),
        _ => "DEALLOCATE ALL".to_owned(),
    }
}

/// The statement behind SQL's PREPARE.
fn prepared(rng: &mut Rng, mark: &str) -> String {
    match rng.below(6) {
        0 => "SELECT pg_advisory_lock(1)".to_owned(),
        1 => format!("SELECT set_config('app.x', '{mark}e', false)"),
        2 => pick(rng, &["SELECT pg_advisory_unlock_all()", "SELECT 1/0"]).to_owned(),
        _ => format!("SELECT '{mark}q'"),
    }
}

fn object(rng: &mut Rng) -> String {
    let table = pick(rng, &["t1", "t2"]);
    match rng.below(14) {
        12 => format!("CREATE TABLE {table} (a int)"),
        13 => pick(
            rng,
            &[
                "SET search_path = pg_temp",
                "SET LOCAL search_path = pg_temp",
                "SELECT set_config('search_path', 'pg_temp', false)",
                "SET search_path = public",
            ],
        )
        .to_owned(),
        0 => format!("CREATE TEMP TABLE {table} (a int)"),
        1..=3 => format!("SELECT a FROM {table}"),
        4 => format!("DROP TABLE {table}"),
        5 => "DECLARE c1 CURSOR WITH HOLD FOR SELECT 1".to_owned(),
        6 => "FETCH 1 FROM c1".to_owned(),
        7 => pick(rng, &["CLOSE c1", "CLOSE ALL"]).to_owned(),
        8 => pick(rng, &["LISTEN news", "LISTEN more", "UNLISTEN news", "UNLISTEN more", "UNLISTEN *"]).to_owned(),
        9 => "SELECT pg_advisory_lock(1)".to_owned(),
        10 => pick(rng, &["SELECT pg_advisory_unlock(1)", "SELECT pg_advisory_unlock(99)"]).to_owned(),
        _ => pick(rng, &["DISCARD TEMP", "SELECT pg_advisory_unlock_all()"]).to_owned(),
    }
}

/// Messages of the extended protocol in any order, mostly with a Sync.
fn batch(rng: &mut Rng, mark: &str, out: &mut Vec<u8>) {
    if rng.below(2) == 0 {
        usual(rng, mark, out);
    } else {
        for _ in 0..1 + rng.below(6) {
            message(rng, mark, out);
        }
    }
    match rng.below(20) {
        0 => {}
        1 => frontend::query(out, format!("SELECT '{mark}'").as_bytes()),
        2 => {
            frontend::sync(out);
            frontend::sync(out);
        }
        _ => frontend::sync(out),
    }
}

/// The batches of drivers.
fn usual(rng: &mut Rng, mark: &str, out: &mut Vec<u8>) {
    let name = pick(rng, &["", "s1", "s2", "s3"]);
    if name.is_empty() || rng.below(3) == 0 {
        frontend::parse(out, name.as_bytes(), b"SELECT $1::text", &[]);
    }
    if rng.below(3) == 0 {
        frontend::describe(out, Kind::Statement, name.as_bytes());
    }
    frontend::bind(out, b"", name.as_bytes(), [Some(mark.as_bytes())]);
    if rng.below(2) == 0 {
        frontend::describe(out, Kind::Portal, b"");
    }
    frontend::execute(out, b"", 0);
}

fn message(rng: &mut Rng, mark: &str, out: &mut Vec<u8>) {
    let name = pick(rng, &["", "s1", "s2", "s3", "weir_1", "q1"]).as_bytes();
    let portal = pick(rng, &["", "p1"]).as_bytes();
    match rng.below(12) {
        0..=2 if name != b"q1" => {
            let text = match rng.below(4) {
                0 => "SELECT $1::text".to_owned(),
                1 => format!("SELECT '{mark}' FROM generate_series(1, 3)"),
                2 => pick(rng, &["nonsense", "select 1; select 2", "BEGIN", "COMMIT", "ROLLBACK", ""]).to_owned(),
                _ => extended_text(rng, mark),
            };
            frontend::parse(out, name, text.as_bytes(), &[]);
        }
        3..=5 if name != b"q1" => {
            let argument = (rng.below(2) == 0).then_some(Some(mark.as_bytes()));
            frontend::bind(out, portal, name, argument);
        }
        6 if name != b"q1" => frontend::describe(out, Kind::Statement, name),
        7 => frontend::describe(out, Kind::Portal, portal),
        8 | 9 => frontend::execute(out, portal, [0, 1, 2][rng.below(3) as usize]),
        10 => {
            let kind = if rng.below(2) == 0 { Kind::Statement } else { Kind::Portal };
            frontend::close(out, kind, if kind == Kind::Statement { name } else { portal });
        }
        _ => frontend::flush(out),
    }
}

/// SQL's PREPARE is left out: within a batch its names are those of the server (see LIFECYCLE.md).
fn extended_text(rng: &mut Rng, mark: &str) -> String {
    loop {
        let text = text(rng, mark);
        if !names_statement(&text) {
            return text;
        }
    }
}

fn names_statement(text: &str) -> bool {
    ["PREPARE", "EXECUTE", "DEALLOCATE"].iter().any(|word| text.starts_with(word))
}

/// COPY from the client, with data that wait for nothing.
fn copy(rng: &mut Rng, out: &mut Vec<u8>) {
    if rng.below(2) == 0 {
        frontend::query(out, pick(rng, &["COPY t FROM STDIN", "COPY t FROM STDIN; COPY t FROM STDIN"]).as_bytes());
    } else {
        frontend::parse(out, b"", b"COPY t FROM STDIN", &[]);
        frontend::bind(out, b"", b"", []);
        frontend::execute(out, b"", 0);
        if rng.below(2) == 0 {
            frontend::sync(out);
        }
    }
    if rng.below(2) == 0 {
        frontend::copy_data(out, b"1\n");
        copy_message(rng, out);
    }
}

fn copy_message(rng: &mut Rng, out: &mut Vec<u8>) {
    match rng.below(8) {
        0..=2 => frontend::copy_data(out, b"1\n"),
        3 => {
            // A client that does not know yet that the COPY has failed ends it some day.
            frontend::copy_data(out, b"bad");
            frontend::copy_done(out);
        }
        4..=5 => frontend::copy_done(out),
        6 => frontend::copy_fail(out, b"enough"),
        // A Sync among the data is in a scene: no server says how many replies it gets.
        _ => frontend::flush(out),
    }
}

/// Messages that a server ignores.
fn stray(rng: &mut Rng, out: &mut Vec<u8>) {
    match rng.below(4) {
        0 => frontend::copy_data(out, b"late"),
        1 => frontend::copy_done(out),
        2 => frontend::flush(out),
        _ => frontend::copy_fail(out, b"late"),
    }
}
