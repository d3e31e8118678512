//! Checks of PostgreSQL's own client programs: psql, pg_dump, pg_restore, pgbench.

use std::fmt::Display;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::postgres::pgbench::{Pgbench, Protocol};
use crate::postgres::{Major, url};
use crate::suite::outcome::{TestOutcome, TestOutcomes};

/// Where the programs connect, and a folder for their files.
struct Scene<'a> {
    /// pg_dump refuses a newer server.
    major: Major,
    port: u16,
    database: &'a str,
    folder: &'a Path,
}

type Check = (&'static str, fn(&Scene<'_>) -> Result<(), String>);

const CHECKS: [Check; 10] = [
    ("psql copies both ways", copies),
    ("psql runs a script with its commands", script),
    ("psql stops at an error and says where", error_in_script),
    ("psql runs a file as one transaction", single_transaction),
    ("pg_dump in text restores by psql", dump_text),
    ("pg_dump in its own format restores by pg_restore", dump_custom),
    ("pgbench with simple queries", |scene| pgbench(scene, Protocol::Simple, &[])),
    ("pgbench with extended queries", |scene| pgbench(scene, Protocol::Extended, &[])),
    ("pgbench with prepared statements", |scene| pgbench(scene, Protocol::Prepared, &[])),
    ("pgbench with a connection for each transaction", |scene| pgbench(scene, Protocol::Simple, &["-C"])),
];

/// Runs all of them, one after the other.
pub fn run(driver: &str, major: Major, port: u16, database: &str) -> TestOutcomes {
    let mut outcomes = TestOutcomes::default();
    for (name, body) in CHECKS {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let end = body(&Scene { major, port, database, folder: folder.path() });
        let outcome = end.map_or_else(TestOutcome::Failed, |()| TestOutcome::Passed);
        outcomes.add(format!("{driver}: {name}"), outcome);
    }
    outcomes
}

impl Scene<'_> {
    fn url(&self) -> String {
        url(self.port, self.database)
    }

    /// Runs a program; its output.
    fn call(&self, program: &str, words: &[&str]) -> Result<String, String> {
        let mut command = Command::new("timeout");
        command.args(["60", program]).args(words).current_dir(self.folder).stdin(Stdio::null());
        let output = command.output().map_err(|error| format!("{program}: {error}"))?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        let errors = String::from_utf8_lossy(&output.stderr);
        Err(format!(
            "{program} ends with {}: {}",
            output.status,
            errors.split_whitespace().collect::<Vec<_>>().join(" ")
        ))
    }

    fn psql(&self, words: &[&str]) -> Result<String, String> {
        let url = self.url();
        let all = [&["-XAtq", "-v", "ON_ERROR_STOP=1", "-d", &url], words].concat();
        self.call("psql", &all)
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.folder.join(name), text).expect("a file for a program");
    }
}

fn is<T: PartialEq + Display>(got: T, want: T) -> Result<(), String> {
    if got == want { Ok(()) } else { Err(format!("{got} instead of {want}")) }
}

fn copies(scene: &Scene<'_>) -> Result<(), String> {
    let lines: String = (0..20_000).map(|number| format!("{number}\trow {number}\n")).collect();
    scene.write("in.txt", &lines);
    scene.write("bad.txt", "1\tone\nx\ttwo\n");
    scene.psql(&["-c", "create table psql_copied (n int, t text)", "-c", "\\copy psql_copied from 'in.txt'"])?;
    scene.psql(&["-c", "\\copy (select * from psql_copied order by n) to 'out.txt'"])?;
    let out = std::fs::read_to_string(scene.folder.join("out.txt")).map_err(|error| error.to_string())?;
    is(out == lines, true)?;
    let refusal = scene.psql(&["-c", "\\copy psql_copied from 'bad.txt'"]).expect_err("a row is bad");
    is(refusal.contains("invalid input syntax"), true).map_err(|_| refusal)?;
    is(scene.psql(&["-c", "select count(*) from psql_copied"])?.trim(), "20000")
}

fn script(scene: &Scene<'_>) -> Result<(), String> {
    scene.write(
        "script.sql",
        "\\set table psql_script\ncreate table :table (n int);\ninsert into :table select generate_series(1, 10);\n\
         select max(n) as top from :table \\gset\nbegin;\nset local work_mem = '5MB';\nshow work_mem;\ncommit;\n\
         select :top \\; select 2;\n\\d :table\n\\echo done\n",
    );
    let got = scene.psql(&["-f", "script.sql"])?;
    is(got.split_whitespace().collect::<Vec<_>>().join(" ").as_str(), "5MB 10 2 n|integer||| done")
}

fn error_in_script(scene: &Scene<'_>) -> Result<(), String> {
    scene.write("wrong.sql", "select 1;\nselect missing;\nselect 3;\n");
    let refusal = scene.psql(&["-f", "wrong.sql"]).expect_err("a column is missing");
    is(refusal.contains("wrong.sql:2: ERROR: column \"missing\" does not exist"), true).map_err(|_| refusal)
}

fn single_transaction(scene: &Scene<'_>) -> Result<(), String> {
    scene.write("half.sql", "create table psql_half (n int);\nselect 1/0;\n");
    scene.psql(&["-1", "-f", "half.sql"]).expect_err("a division by zero");
    is(scene.psql(&["-c", "select to_regclass('psql_half') is null"])?.trim(), "t")
}

const DUMPED: &str = "drop schema if exists dumped cascade; create schema dumped; \
    create table dumped.parent (id int primary key, t text); \
    create table dumped.child (id int references dumped.parent, b bytea); \
    insert into dumped.parent select n, 'row' || n from generate_series(1, 2000) n; \
    insert into dumped.child select n, decode(md5(n::text), 'hex') from generate_series(1, 2000) n; \
    create view dumped.seen as select * from dumped.parent where id < 10; \
    create function dumped.twice(n int) returns int language sql as 'select 2 * n'";

const DIGEST: &str = "select md5(string_agg(p::text || c::text, ',' order by p.id)) || dumped.twice(21) \
    from dumped.parent p join dumped.child c using (id) group by ()";

/// Dumps with `words`, drops, restores, and compares. The session of pg_dump changes settings that later sessions must not have.
fn dump(scene: &Scene<'_>, words: &[&str], restore: impl Fn() -> Result<String, String>) -> Result<(), String> {
    scene.psql(&["-c", DUMPED])?;
    let before = scene.psql(&["-c", DIGEST])?;
    let url = scene.url();
    scene.call(
        &scene.major.program("pg_dump").to_string_lossy(),
        &[&["--schema=dumped", "--no-owner", "-d", &url], words].concat(),
    )?;
    scene.psql(&["-c", "drop schema dumped cascade"])?;
    restore()?;
    is(scene.psql(&["-c", DIGEST])?, before)?;
    is(scene.psql(&["-c", "show search_path"])?.trim(), "\"$user\", public")
}

fn dump_text(scene: &Scene<'_>) -> Result<(), String> {
    dump(scene, &["-f", "dump.sql"], || scene.psql(&["-f", "dump.sql"]))
}

fn dump_custom(scene: &Scene<'_>) -> Result<(), String> {
    let url = scene.url();
    dump(scene, &["-Fc", "-f", "dump.bin"], || {
        let program = scene.major.program("pg_restore");
        scene.call(&program.to_string_lossy(), &["--exit-on-error", "--no-owner", "-j", "2", "-d", &url, "dump.bin"])
    })
}

fn pgbench(scene: &Scene<'_>, protocol: Protocol, words: &[&str]) -> Result<(), String> {
    let url = scene.url();
    scene.call("pgbench", &["-i", "-q", "-s", "1", &url])?;
    let words = words.iter().map(|word| (*word).to_owned()).collect();
    let figures = Pgbench { protocol, clients: 8, transactions: 20, words }.run(scene.port, scene.database)?;
    is(figures.transactions, 160)?;
    is(figures.failed, 0)
}
