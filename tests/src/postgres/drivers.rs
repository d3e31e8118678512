//! The drivers of PostgreSQL, each as a program that runs a list of checks against a URL (`tests/clients/postgres`), and the
//! outcomes of their checks.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use crate::postgres::{Postgres, programs, url};
use crate::suite::bounded;
use crate::suite::checks::read;
use crate::suite::outcome::TestOutcomes;
use crate::tools;

/// For all checks of a driver; each check has 30 s by itself.
const DEADLINE: Duration = Duration::from_secs(240);

/// Drivers that run at a time.
const AT_A_TIME: usize = 3;

/// A driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Driver {
    /// psycopg 3, blocking.
    Psycopg3,
    /// psycopg 3 with asyncio.
    Psycopg3Async,
    /// psycopg2.
    Psycopg2,
    /// asyncpg.
    Asyncpg,
    /// SQLAlchemy over the three.
    Sqlalchemy,
    /// pgx.
    Pgx,
    /// lib/pq.
    Pq,
    /// JDBC.
    Jdbc,
    /// node-postgres.
    Node,
    /// tokio-postgres.
    Tokio,
    /// psql, pg_dump, pg_restore and pgbench.
    Programs,
}

impl Driver {
    /// All, the slow ones first.
    pub const ALL: [Self; 11] = [
        Self::Psycopg3,
        Self::Jdbc,
        Self::Programs,
        Self::Sqlalchemy,
        Self::Asyncpg,
        Self::Node,
        Self::Tokio,
        Self::Pgx,
        Self::Psycopg3Async,
        Self::Psycopg2,
        Self::Pq,
    ];

    /// The first part of the names of its checks.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Psycopg3 => "psycopg 3",
            Self::Psycopg3Async => "psycopg 3 async",
            Self::Psycopg2 => "psycopg2",
            Self::Asyncpg => "asyncpg",
            Self::Sqlalchemy => "SQLAlchemy",
            Self::Pgx => "pgx",
            Self::Pq => "lib/pq",
            Self::Jdbc => "JDBC",
            Self::Node => "node-postgres",
            Self::Tokio => "tokio-postgres",
            Self::Programs => "programs",
        }
    }

    /// A name for a database of its own.
    fn database(self) -> String {
        self.name().replace([' ', '/', '-'], "_").to_lowercase()
    }

    fn command(self) -> Command {
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("clients/postgres");
        let python = |script: &str| command(&tools::python_installed(), [sources.join("python").join(script)]);
        let go = |driver: &str| command(&tools::postgres("go/postgres"), [driver]);
        match self {
            Self::Psycopg3 => python("psycopg3_sync.py"),
            Self::Psycopg3Async => python("psycopg3_async.py"),
            Self::Psycopg2 => python("psycopg2_driver.py"),
            Self::Asyncpg => python("asyncpg_driver.py"),
            Self::Sqlalchemy => python("sqlalchemy_driver.py"),
            Self::Pgx => go("pgx"),
            Self::Pq => go("pq"),
            Self::Jdbc => {
                let classes = tools::postgres("java/classes/drivers/Main.class");
                let folder = classes.ancestors().nth(3).expect("a folder of builds").display();
                let path = format!("{folder}/classes:{folder}/libraries/*");
                command(Path::new("java"), ["-XX:TieredStopAtLevel=1", "-cp", &path, "drivers.Main"])
            }
            Self::Node => command(Path::new("node"), [sources.join("node/driver.js")]),
            Self::Tokio => command(&tools::postgres("rust/debug/tokio-postgres-driver"), [""; 0]),
            Self::Programs => unreachable!("they run one by one"),
        }
    }

    /// Runs its checks in a database of `server`, connected to `port`: the server's own, or that of a gateway.
    fn run(self, server: &Postgres, port: u16) -> TestOutcomes {
        let database = self.database();
        server.sql(&format!("drop database if exists \"{database}\" with (force)"));
        server.create_database(&database);
        if self == Self::Programs {
            return programs::run(self.name(), server.major, port, &database);
        }
        let folder = tempfile::tempdir().expect("a temporary folder");
        let output = folder.path().join("output");
        let mut command = self.command();
        command.arg(url(port, &database)).env("PYTHONDONTWRITEBYTECODE", "1").current_dir(folder.path());
        let end = bounded::run(&mut command, &output, DEADLINE);
        read(self.name(), &bounded::written(&output), &end)
    }
}

/// Runs the checks of `drivers` through `port`, some drivers at a time.
///
/// # Panics
/// If a program cannot be started.
#[must_use]
pub fn run(drivers: &[Driver], server: &Postgres, port: u16) -> TestOutcomes {
    let (waiting, all) = (Mutex::new(drivers.iter()), Mutex::new(TestOutcomes::default()));
    thread::scope(|scope| {
        for _ in 0..AT_A_TIME {
            scope.spawn(|| {
                loop {
                    let Some(driver) = waiting.lock().expect("a driver").next() else { break };
                    let outcomes = driver.run(server, port);
                    let mut all = all.lock().expect("the outcomes");
                    all.tests.extend(outcomes.tests);
                    all.problems.extend(outcomes.problems);
                }
            });
        }
    });
    all.into_inner().expect("the outcomes")
}

/// Runs the checks of an admin console by pgx and lib/pq, as a user that may do everything there.
///
/// # Panics
/// If the program is not installed.
#[must_use]
pub fn run_console(url: &str) -> TestOutcomes {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let output = folder.path().join("output");
    let mut command = command(&tools::postgres("go/postgres"), ["console", url]);
    let end = bounded::run(&mut command, &output, DEADLINE);
    read("console", &bounded::written(&output), &end)
}

fn command<I: IntoIterator<Item: AsRef<std::ffi::OsStr>>>(program: &Path, words: I) -> Command {
    let mut command = Command::new(program);
    command.args(words);
    command
}

/// The drivers whose checks `names` are.
#[must_use]
pub fn of_checks<'a>(names: impl Iterator<Item = &'a str>) -> Vec<Driver> {
    let named: Vec<&str> = names.filter_map(|name| name.split_once(": ")).map(|(driver, _)| driver).collect();
    Driver::ALL.into_iter().filter(|driver| named.contains(&driver.name())).collect()
}

/// The list of the checks that differ through `gateway`: `tests/clients/postgres/<gateway>.toml`.
#[must_use]
pub fn list_file(gateway: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("clients/postgres").join(format!("{gateway}.toml"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_driver_of_a_check_is_known_by_its_name() {
        let names = ["psycopg 3 async: a", "lib/pq: b", "lib/pq: c"];
        assert_eq!(of_checks(names.into_iter()), [Driver::Psycopg3Async, Driver::Pq]);
    }
}
