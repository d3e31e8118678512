//! The drivers of MongoDB, each as a program that runs a list of checks against a URL (`tests/clients/mongodb`), and the outcomes of their
//! checks.

use std::path::Path;
use std::process::Command;
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use crate::mongodb::java_server::class_path;
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
    /// PyMongo, blocking.
    Pymongo,
    /// PyMongo with asyncio.
    PymongoAsync,
    /// A PyMongo that knows servers of wire version 6 and later.
    PymongoOlder,
    /// The driver of Node.
    Node,
    /// Mongoose, over the driver of Node.
    Mongoose,
    /// The driver of Go, version 2.
    Go,
    /// The blocking driver of Java.
    Java,
}

/// A list of checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checks {
    /// Those that any server of documents holds.
    Server,
    /// Those that need the scripted server of the lab.
    Scripted,
    /// The same, and the server stores documents: effects of transactions and of repeated writes.
    Stored,
    /// Logins: the URL has a user and a password.
    Login,
}

impl Driver {
    /// All that know today's servers.
    pub const ALL: [Self; 6] = [Self::Pymongo, Self::Java, Self::Node, Self::Go, Self::PymongoAsync, Self::Mongoose];

    /// Those that check forms which differ in little.
    pub const TWO: [Self; 2] = [Self::Pymongo, Self::Java];

    /// Those with logins of their own: the others log in as one of these does.
    pub const WITH_LOGINS: [Self; 4] = [Self::Pymongo, Self::Java, Self::Node, Self::Go];

    /// The first part of the names of its checks.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Pymongo => "PyMongo",
            Self::PymongoAsync => "PyMongo async",
            Self::PymongoOlder => "PyMongo 4.10",
            Self::Node => "Node",
            Self::Mongoose => "Mongoose",
            Self::Go => "Go",
            Self::Java => "Java",
        }
    }

    fn command(self) -> Command {
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("clients/mongodb");
        let python = |environment: &str, script: &str| {
            let mut command = Command::new(tools::mongodb(&format!("{environment}/bin/python")));
            // The list of checks and its lines are those of the drivers of PostgreSQL.
            command.arg(sources.join("python").join(script)).env("PYTHONPATH", sources.join("../postgres/python"));
            command
        };
        let node = |script: &str| {
            let mut command = Command::new("node");
            command.arg(sources.join("node").join(script));
            command
        };
        match self {
            Self::Pymongo => python("pymongo", "pymongo_sync.py"),
            Self::PymongoAsync => python("pymongo", "pymongo_async.py"),
            Self::PymongoOlder => python("pymongo-older", "pymongo_sync.py"),
            Self::Node => node("driver.js"),
            Self::Mongoose => node("mongoose.js"),
            Self::Go => Command::new(tools::mongodb("go/mongodb")),
            Self::Java => {
                let mut command = Command::new("java");
                let path = class_path("java", "drivers/Main.class");
                command.args(["-XX:TieredStopAtLevel=1", "-cp", &path, "drivers.Main"]);
                command
            }
        }
    }

    fn run(self, url: &str, checks: Checks) -> TestOutcomes {
        let list = match checks {
            Checks::Server => "server",
            Checks::Scripted => "scripted",
            Checks::Stored => "stored",
            Checks::Login => "login",
        };
        let folder = tempfile::tempdir().expect("a temporary folder");
        let output = folder.path().join("output");
        let mut command = self.command();
        command.args([url, list]).env("PYTHONDONTWRITEBYTECODE", "1").current_dir(folder.path());
        let end = bounded::run(&mut command, &output, DEADLINE);
        read(self.name(), &bounded::written(&output), &end)
    }
}

/// Calls `work` for each of `drivers`, some at a time.
///
/// # Panics
/// If `work` does.
#[must_use]
pub fn each<R: Send>(drivers: &[Driver], work: impl Fn(Driver) -> R + Sync) -> Vec<(Driver, R)> {
    let (waiting, done) = (Mutex::new(drivers.iter()), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for _ in 0..AT_A_TIME {
            scope.spawn(|| {
                loop {
                    let Some(driver) = waiting.lock().expect("a driver").next() else { break };
                    let result = work(*driver);
                    done.lock().expect("the results").push((*driver, result));
                }
            });
        }
    });
    done.into_inner().expect("the results")
}

/// Runs a list of checks of `drivers` against a URL, one driver after the other: FerretDB ends a cursor with the connection that opened it,
/// so that a driver that leaves amid a reply may end the cursors of another one behind one gateway.
///
/// # Panics
/// If a program is not installed.
#[must_use]
pub fn run(drivers: &[Driver], url: &str, checks: Checks) -> TestOutcomes {
    let mut all = TestOutcomes::default();
    for outcomes in drivers.iter().map(|driver| driver.run(url, checks)) {
        all.tests.extend(outcomes.tests);
        all.problems.extend(outcomes.problems);
    }
    all
}
