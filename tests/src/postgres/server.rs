//! One cluster of PostgreSQL and its server process.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::certificate::Certificates;
use crate::deadline::until;
use crate::port;
use crate::postgres::{Major, account, url};
use crate::process::Process;
use crate::stream::Address;

/// The user of tests. It owns the databases that a test makes, and is no superuser.
pub const USER: &str = "app";

/// Password of that user, and of the superuser `postgres` over TCP.
pub const PASSWORD: &str = "test-password";

/// Time for an immediate shutdown.
const STOP_WAIT: Duration = Duration::from_secs(40);

/// Settings that no test needs otherwise: nothing here survives a crash of the machine, and memory is for the tests.
const SETTINGS: [&str; 9] = [
    "listen_addresses=127.0.0.1",
    "fsync=off",
    "full_page_writes=off",
    "synchronous_commit=off",
    "password_encryption=scram-sha-256",
    "max_connections=300",
    "max_prepared_transactions=20",
    "shared_buffers=32MB",
    "log_line_prefix=%m [%p] %q%u@%d ",
];

/// How a server is started.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Settings beside the fixture's, which they override: `name=value`.
    pub settings: Vec<String>,
    /// Lines of `pg_hba.conf` before those of initdb: local connections without a password, SCRAM over TCP.
    pub hba: Vec<String>,
    /// Serve TLS on the same port.
    pub tls: bool,
}

/// A running server. It ends with this value.
pub struct Postgres {
    /// Which.
    pub major: Major,
    /// The TCP address.
    pub address: Address,
    /// Its certificates, with TLS.
    pub certificates: Option<Certificates>,
    words: Vec<String>,
    process: Process,
    pub(super) options: Options,
    pub(super) folder: TempDir,
}

impl Postgres {
    /// A new cluster with the default options.
    #[must_use]
    pub fn start(major: Major) -> Self {
        Self::start_with(major, Options::default())
    }

    /// A new cluster with the user [`USER`] and its database of the same name.
    ///
    /// # Panics
    /// If the programs are missing or the server does not come up.
    #[must_use]
    pub fn start_with(major: Major, options: Options) -> Self {
        let folder = Self::new_folder();
        let password = folder.path().join("password");
        std::fs::write(&password, PASSWORD).expect("written");
        account::give(&password);
        let text = |path: &Path| path.to_string_lossy().into_owned();
        let mut words = vec![text(&major.program("initdb")), "--pgdata".into(), text(&data(&folder))];
        words.extend(["--pwfile".into(), text(&password)]);
        for word in ["--username=postgres", "--auth-local=trust", "--auth-host=scram-sha-256"] {
            words.push(word.into());
        }
        words.extend(["--no-sync", "--no-instructions", "--encoding=UTF8", "--locale=C.UTF-8"].map(str::to_owned));
        run("initdb", &words);
        let hba = data(&folder).join("pg_hba.conf");
        let rules = std::fs::read_to_string(&hba).expect("the rules of initdb");
        std::fs::write(&hba, format!("{}\n{rules}", options.hba.join("\n"))).expect("written");
        let server = Self::over(major, options, folder);
        server.sql(&format!("create role {USER} login createdb password '{PASSWORD}'"));
        server.create_database(USER);
        server
    }

    /// A folder for files that servers read, which belongs to their account.
    ///
    /// # Panics
    /// If there is no room for it.
    #[must_use]
    pub fn folder_of_files() -> TempDir {
        Self::new_folder()
    }

    pub(super) fn new_folder() -> TempDir {
        let folder = tempfile::Builder::new().prefix("weir-postgres-").tempdir().expect("a temporary folder");
        account::give(folder.path());
        folder
    }

    /// Starts the server over a cluster that exists.
    pub(super) fn over(major: Major, options: Options, folder: TempDir) -> Self {
        assert!(!options.tls || major.has_tls(), "PostgreSQL {} of the wheel has no TLS", major.number());
        let port = port::free();
        let mut words = vec![major.program("postgres").to_string_lossy().into_owned()];
        words.extend(["-D".into(), data(&folder).to_string_lossy().into_owned(), "-p".into(), port.to_string()]);
        let mut set = |setting: String| words.extend(["-c".to_owned(), setting]);
        SETTINGS.iter().for_each(|setting| set((*setting).to_owned()));
        set(format!("unix_socket_directories={}", folder.path().display()));
        let certificates = options.tls.then(|| certificates(&folder));
        if let Some(files) = &certificates {
            set("ssl=on".into());
            set(format!("ssl_cert_file={}", files.server.display()));
            set(format!("ssl_key_file={}", files.server_key.display()));
            set(format!("ssl_ca_file={}", files.authority.display()));
        }
        options.settings.iter().for_each(|setting| set(setting.clone()));
        let process = start(&words, &folder);
        let mut server = Self { major, address: Address::port(port), certificates, words, process, options, folder };
        server.wait_ready();
        server
    }

    /// The port, on TCP and in the name of the socket.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.address.tcp().port()
    }

    /// The folder of the Unix socket.
    #[must_use]
    pub fn socket_folder(&self) -> &Path {
        self.folder.path()
    }

    /// A connection URL of the test user.
    #[must_use]
    pub fn url(&self, database: &str) -> String {
        url(self.port(), database)
    }

    /// A new database that belongs to the test user.
    pub fn create_database(&self, name: &str) {
        self.sql(&format!("create database \"{name}\" owner {USER}"));
    }

    /// Runs statements as the superuser in the database `postgres`; rows as psql prints them unaligned, divided by `|`.
    ///
    /// # Panics
    /// If one of them fails.
    pub fn sql(&self, text: &str) -> String {
        self.sql_in("postgres", text)
    }

    /// The same in another database.
    ///
    /// # Panics
    /// If one of them fails.
    pub fn sql_in(&self, database: &str, text: &str) -> String {
        self.try_sql(database, text).unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    /// The same.
    ///
    /// # Errors
    /// The messages of psql.
    pub fn try_sql(&self, database: &str, text: &str) -> Result<String, String> {
        let mut psql = Command::new("psql");
        psql.args(["-XAtq", "-v", "ON_ERROR_STOP=1", "-U", "postgres", "-d", database, "-c", text]);
        psql.arg("-h").arg(self.socket_folder()).args(["-p", &self.port().to_string()]);
        let output = psql.output().expect("psql starts: `cargo xtask setup postgres` installs it");
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).trim_end().to_owned());
        }
        Err(String::from_utf8_lossy(&output.stderr).trim_end().to_owned())
    }

    /// The process, for signals, the log and figures.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    /// Its log so far.
    #[must_use]
    pub fn log(&self) -> String {
        self.process.log()
    }

    /// `kill -9` of the postmaster, reaped: its port refuses connections afterwards. Its children end by themselves.
    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// `kill -9` of all its processes: no session gets a word.
    ///
    /// # Panics
    /// If `pkill` is missing.
    pub fn crash(&mut self) {
        // Otherwise it would start others.
        self.process.signal("STOP");
        let words = ["-KILL", "-P", &self.process.id().to_string()];
        let status = Command::new("pkill").args(words).status().expect("pkill starts");
        assert!(status.success(), "a server has children: {status}");
        self.process.kill();
    }

    /// An immediate shutdown: sessions get 57P01, and the next start recovers.
    ///
    /// # Panics
    /// If it does not end.
    pub fn stop_at_once(&mut self) {
        self.process.signal("QUIT");
        self.process.wait(STOP_WAIT);
    }

    /// A fast shutdown: sessions get 57P01, transactions are rolled back.
    ///
    /// # Panics
    /// If it does not end.
    pub fn stop(&mut self) {
        self.process.signal("INT");
        self.process.wait(STOP_WAIT);
    }

    /// Starts it again on the same address with the same data, after [`Postgres::stop`] or [`Postgres::kill`].
    ///
    /// # Panics
    /// If it does not come up.
    pub fn start_again(&mut self) {
        // Sessions of a killed server end when they notice, and no other one starts before.
        until("the sessions of the last server to end", STOP_WAIT, || (!self.is_attached()).then_some(()));
        self.process = start(&self.words, &self.folder);
        self.wait_ready();
    }

    /// A process of the last server has its shared memory, whose number is in the seventh line of `postmaster.pid`.
    fn is_attached(&self) -> bool {
        let Ok(lines) = std::fs::read_to_string(self.folder.path().join("data/postmaster.pid")) else { return false };
        let Some(id) = lines.lines().nth(6).and_then(|line| line.split_whitespace().nth(1)) else { return false };
        let segments = std::fs::read_to_string("/proc/sysvipc/shm").expect("segments of shared memory");
        let columns = segments.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        columns.into_iter().any(|columns| columns.get(1) == Some(&id) && columns.get(6) != Some(&"0"))
    }

    fn wait_ready(&mut self) {
        let (folder, port) = (self.folder.path().to_path_buf(), self.port().to_string());
        let (socket, program) = (folder.join(format!(".s.PGSQL.{port}")), self.major.program("pg_isready"));
        self.process.wait_ready(|| {
            // A program for each look is dear: it waits for the socket.
            socket.exists()
                && Command::new(&program)
                    .args(["-q", "-p", &port, "-h"])
                    .arg(&folder)
                    .status()
                    .is_ok_and(|status| status.success())
        });
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        // Immediate: children and shared memory go, and nothing is written.
        self.process.signal("QUIT");
        let begun = Instant::now();
        while self.process.try_wait().is_none() && begun.elapsed() < STOP_WAIT {
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

/// The folder of the cluster.
pub(super) fn data(folder: &TempDir) -> PathBuf {
    folder.path().join("data")
}

fn start(words: &[String], folder: &TempDir) -> Process {
    Process::start("postgres", &account::command_line(words, "QUIT"), &folder.path().join("server.log"), &[])
}

/// Runs a program of PostgreSQL as the account of servers, to its end.
pub(super) fn run(name: &str, words: &[String]) {
    let words = account::command_line(words, "KILL");
    let output = Command::new(&words[0]).args(&words[1..]).current_dir("/").output();
    let output = output.unwrap_or_else(|error| panic!("{name} does not start: {error}"));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name} ends with {}: {errors}", output.status);
}

/// Made by the test, and read by the server, which insists on a private key.
fn certificates(folder: &TempDir) -> Certificates {
    let files = Certificates::create(folder.path());
    std::fs::set_permissions(&files.server_key, Permissions::from_mode(0o600)).expect("permissions are set");
    for file in [&files.server, &files.server_key, &files.authority] {
        account::give(file);
    }
    files
}
