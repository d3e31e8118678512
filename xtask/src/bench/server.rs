//! A PostgreSQL of Debian with pgbench's tables, on CPUs of its own. It is removed with this value.

use std::ffi::OsString;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;
use weir_parties::place::free_port;
use weir_parties::{Launch, Process};

use crate::command::output;

/// Where Debian keeps the programs of the server.
const PROGRAMS: &str = "/usr/lib/postgresql/15/bin";
/// The system user that Debian's package makes: PostgreSQL refuses to run as root.
const ACCOUNT: &str = "postgres";
/// Scale of the tables: a million accounts, and branches enough that transactions seldom wait for each other.
const SCALE: &str = "10";
/// How long the end of the server may take.
const END_WAIT: Duration = Duration::from_secs(20);

/// Nothing here survives a crash of the machine, and the log is for failures.
const SETTINGS: [&str; 8] = [
    "listen_addresses=127.0.0.1",
    "unix_socket_directories=",
    "fsync=off",
    "synchronous_commit=off",
    "max_connections=800",
    "shared_buffers=256MB",
    "log_min_messages=fatal",
    "password_encryption=scram-sha-256",
];

/// Makes the tables readable for the user that logs in with a password.
const STORM: &str = "CREATE ROLE storm LOGIN PASSWORD 'storm' IN ROLE pg_read_all_data";

/// The sums that every transaction of TPC-B keeps equal.
const SUMS: &str = "SELECT (SELECT sum(abalance) FROM pgbench_accounts) = sum(tbalance) AND sum(tbalance) = (SELECT \
sum(bbalance) FROM pgbench_branches) AND sum(tbalance) = (SELECT coalesce(sum(delta), 0) FROM pgbench_history) FROM \
pgbench_tellers";

/// A running server.
pub struct Server {
    port: u16,
    process: Process,
    /// Behind the process, so that it outlives it.
    _folder: TempDir,
}

impl Server {
    /// A new cluster on `cpus` (as `taskset -c` reads them): everyone is let in, `storm` with its password.
    ///
    /// # Errors
    /// The programs are missing, or the server does not start.
    pub fn start(cpus: &str) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("weir-bench-").tempdir()?;
        let data = folder.path().join("data");
        std::fs::create_dir(&data)?;
        give(folder.path())?;
        give(&data)?;
        let text = |path: &Path| path.to_string_lossy().into_owned();
        let initdb = ["-D", &*text(&data), "-A", "trust", "-U", "postgres", "--no-sync", "-E", "UTF8"];
        output(&mut of_words(&server_words("initdb", &initdb)?))?;
        let rules = data.join("pg_hba.conf");
        let all = std::fs::read_to_string(&rules)?;
        std::fs::write(&rules, format!("host all storm 127.0.0.1/32 scram-sha-256\n{all}"))?;
        let port = free_port()?;
        let (data, number) = (text(&data), port.to_string());
        let mut words = vec!["-D", &*data, "-p", &*number];
        words.extend(SETTINGS.iter().flat_map(|setting| ["-c", setting]));
        let words = server_words("postgres", &words)?.into_iter().map(OsString::from);
        let mut process = Process::start(Launch::new("postgres", Some(cpus), words), folder.path())?;
        process.wait_for_port(port)?;
        let server = Self { port, process, _folder: folder };
        server.pgbench(&["-i", "-q", "-s", SCALE])?;
        server.sql(STORM)?;
        Ok(server)
    }

    /// On 127.0.0.1.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Balances of accounts, tellers and branches agree with the history.
    ///
    /// # Errors
    /// They do not: a transaction was lost, or took effect in part.
    pub fn audit(&self) -> Result<()> {
        let found = self.sql(SUMS)?;
        ensure!(found.trim() == "t", "the balances of pgbench's tables do not agree");
        Ok(())
    }

    fn sql(&self, text: &str) -> Result<String> {
        output(self.client("psql").args(["-XAtq", "-v", "ON_ERROR_STOP=1", "-c", text]))
    }

    fn pgbench(&self, words: &[&str]) -> Result<String> {
        output(self.client("pgbench").args(words))
    }

    fn client(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.env("PGHOST", "127.0.0.1").env("PGPORT", self.port.to_string()).env("PGUSER", "postgres");
        command.env("PGDATABASE", "postgres");
        command
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Immediate: its children end with it, and nothing is written. The value kills a server that stays.
        let _ = self.process.signal(rustix::process::Signal::QUIT).and_then(|()| self.process.wait(END_WAIT).map(drop));
    }
}

/// A program of the server with its arguments, as its account.
fn server_words(program: &str, arguments: &[&str]) -> Result<Vec<String>> {
    let file = PathBuf::from(PROGRAMS).join(program);
    ensure!(file.is_file(), "{} is not installed: cargo xtask setup postgres", file.display());
    let mut words = Vec::new();
    if let Some((user, group)) = account()? {
        words.extend(["setpriv".to_owned(), format!("--reuid={user}"), format!("--regid={group}")]);
        // A change of account clears the signal at the end of the parent.
        words.extend(["--clear-groups", "--pdeathsig", "QUIT"].map(str::to_owned));
    }
    words.push(file.to_string_lossy().into_owned());
    words.extend(arguments.iter().map(|word| (*word).to_owned()));
    Ok(words)
}

fn of_words(words: &[String]) -> Command {
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).current_dir("/");
    command
}

/// User and group of the server; `None`: this process is not root, and the server has its account.
fn account() -> Result<Option<(u32, u32)>> {
    if !rustix::process::getuid().is_root() {
        return Ok(None);
    }
    let id = |flag: &str| -> Result<u32> {
        let text = output(Command::new("id").args([flag, ACCOUNT]));
        let text = text.with_context(|| format!("no user {ACCOUNT}: cargo xtask setup postgres"))?;
        Ok(text.trim().parse()?)
    };
    Ok(Some((id("-u")?, id("-g")?)))
}

/// Gives a folder to the account of the server.
fn give(path: &Path) -> Result<()> {
    match account()? {
        Some((user, group)) => chown(path, Some(user), Some(group)).with_context(|| path.display().to_string()),
        None => Ok(()),
    }
}
