//! Real servers: Redis 7.0 from the system, Valkey 9 from its wheel.

use std::path::PathBuf;

use tempfile::TempDir;

use crate::certificate::Certificates;
use crate::client::Client;
use crate::deadline::{WAIT, until, until_true};
use crate::port;
use crate::process::Process;
use crate::stream::{Address, Stream};
use crate::wire::{bulk, encode};

/// Which server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `redis-server` of the PATH, 7.0.
    Redis,
    /// `valkey-server` of the wheel, 9.
    Valkey,
}

impl Kind {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Redis, Self::Valkey];

    /// Name for messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Redis => "redis",
            Self::Valkey => "valkey",
        }
    }

    fn program(self) -> PathBuf {
        match self {
            Self::Redis => PathBuf::from("redis-server"),
            Self::Valkey => valkey_program(),
        }
    }
}

/// Path of the Valkey server: from the environment, else where `cargo xtask setup` puts it.
fn valkey_program() -> PathBuf {
    const VARIABLE: &str = "WEIR_TEST_VALKEY_SERVER";
    if let Some(path) = std::env::var_os(VARIABLE) {
        return PathBuf::from(path);
    }
    let test = std::env::current_exe().expect("the test has a path");
    let library = test.ancestors().map(|folder| folder.join("tools/python/lib")).find(|folder| folder.is_dir());
    library
        .and_then(|folder| find(&folder, "valkey-server"))
        .unwrap_or_else(|| panic!("no Valkey server: run `cargo xtask setup servers`, or name it in {VARIABLE}"))
}

fn find(folder: &std::path::Path, name: &str) -> Option<PathBuf> {
    for entry in std::fs::read_dir(folder).ok()?.flatten() {
        let path = entry.path();
        if path.is_dir() {
            if let Some(found) = find(&path, name) {
                return Some(found);
            }
        } else if path.file_name().is_some_and(|file| file == name) {
            return Some(path);
        }
    }
    None
}

/// How a server is started.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Password of the user `default`.
    pub password: Option<String>,
    /// Another user with all rights: name and password.
    pub user: Option<(String, String)>,
    /// Listen on a Unix socket only.
    pub unix: bool,
    /// Serve TLS beside plain TCP; clients must show a certificate if `tls_clients`.
    pub tls: bool,
    /// With `tls`: demand a client certificate.
    pub tls_clients: bool,
    /// Keep its files in memory, where there is such a folder: it then never waits for a disk.
    pub in_memory: bool,
    /// More command-line words, e.g. `--maxmemory 10mb`.
    pub flags: Vec<String>,
}

/// A running server.
pub struct Server {
    /// Which.
    pub kind: Kind,
    /// Where it listens without TLS.
    pub address: Address,
    /// Where it listens with TLS.
    pub tls_address: Option<Address>,
    /// Its certificates, with TLS.
    pub certificates: Option<Certificates>,
    process: Process,
    options: Options,
    words: Vec<String>,
    folder: TempDir,
}

impl Server {
    /// Starts with default options.
    pub fn start(kind: Kind) -> Self {
        Self::start_with(kind, Options::default())
    }

    /// Starts and waits for PONG.
    ///
    /// # Panics
    /// If the program is missing or does not come up.
    pub fn start_with(kind: Kind, options: Options) -> Self {
        let folder = folder(options.in_memory);
        let (address, mut words) = listen_words(kind, &options, &folder);
        let mut certificates = None;
        let mut tls_address = None;
        if options.tls {
            let files = Certificates::create(folder.path());
            let port = port::free();
            words.extend(tls_words(port, &files, options.tls_clients));
            tls_address = Some(Address::port(port));
            certificates = Some(files);
        }
        if let Some(password) = &options.password {
            words.extend(["--requirepass".to_owned(), password.clone()]);
        }
        if let Some((user, password)) = &options.user {
            let rule = format!("{user} on >{password} ~* &* +@all");
            words.push("--user".to_owned());
            words.extend(rule.split(' ').map(str::to_owned));
        }
        words.extend(options.flags.iter().cloned());
        let log = folder.path().join("server.log");
        let process = Process::start(kind.name(), &words, &log, &[]);
        let mut server = Self { kind, address, tls_address, certificates, process, options, words, folder };
        server.wait_ready();
        server
    }

    fn wait_ready(&mut self) {
        let address = self.address.clone();
        self.process.wait_ready(|| {
            crate::stream::Stream::connect(&address).is_ok_and(|stream| {
                let mut client = Client::over(stream);
                client.try_send(b"PING\r\n").is_ok()
                    && client
                        .try_reply(std::time::Duration::from_secs(1))
                        .is_ok_and(|reply| reply == b"+PONG\r\n" || reply.starts_with(b"-NOAUTH"))
            })
        });
    }

    /// A direct connection, authenticated if the server asks for it.
    pub fn connect(&self) -> Client {
        let mut client = Client::connect(&self.address);
        if let Some(password) = &self.options.password {
            client.expect(&["AUTH", password], b"+OK\r\n");
        }
        client
    }

    /// The process, for signals and figures.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    /// `kill -9`, reaped: its port refuses connections afterwards.
    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// Starts it again on the same address with the same options and empty data.
    pub fn restart(&mut self) {
        self.process.kill();
        let log = self.folder.path().join("server.log");
        self.process = Process::start(self.kind.name(), &self.words, &log, &[]);
        self.wait_ready();
    }

    /// Makes the server answer no client for that long; returns the connection that requested it, once the server has begun.
    ///
    /// # Panics
    /// If the server is gone.
    pub fn sleep(&self, time: std::time::Duration) -> Client {
        let mut client = self.connect();
        client.command(&["DEBUG", "SLEEP", &format!("{}", time.as_secs_f64())]);
        // Asleep as soon as it does not answer a PING any more.
        let mut probe = Client::connect(&self.address);
        probe.command(&["PING"]);
        while probe.try_reply(std::time::Duration::from_millis(30)).is_ok() {
            probe.command(&["PING"]);
        }
        client
    }

    /// Stops the process until the returned value is dropped: it accepts connections and bytes, and answers no client.
    ///
    /// # Panics
    /// If it does not stop.
    pub fn freeze(&self) -> FrozenServer<'_> {
        self.process.signal("STOP");
        let stat = format!("/proc/{}/stat", self.process.id());
        until_true("the server to stand still", || {
            std::fs::read_to_string(&stat).is_ok_and(|text| text.contains(") T "))
        });
        FrozenServer(&self.process)
    }

    /// A section of INFO. A process that makes a server a replica may end all connections of the server (sentinels do), this one
    /// too: the request is then repeated.
    fn section(&self, section: &str) -> String {
        until(format!("INFO {section}"), WAIT, || {
            let mut client = Client::over(Stream::connect(&self.address).ok()?);
            let mut ask = |words: &[&str]| {
                client.try_send(&encode(words)).ok()?;
                client.try_reply(WAIT).ok()
            };
            if let Some(password) = &self.options.password {
                ask(&["AUTH", password])?;
            }
            let reply = ask(&["INFO", section])?;
            Some(String::from_utf8_lossy(&bulk(&reply)).into_owned())
        })
    }

    /// One field of INFO, as text.
    ///
    /// # Panics
    /// If the field is not there.
    pub fn info(&self, section: &str, field: &str) -> String {
        let text = self.section(section);
        text.lines()
            .find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))
            .unwrap_or_else(|| panic!("INFO {section} has no {field}:\n{text}"))
            .to_owned()
    }

    /// Calls of a command so far; 0 if it was never called. Containers as `client|list`.
    pub fn calls(&self, command: &str) -> u64 {
        let text = self.section("commandstats");
        let prefix = format!("cmdstat_{command}:calls=");
        text.lines()
            .find_map(|line| line.strip_prefix(prefix.as_str()))
            .and_then(|rest| rest.split(',').next())
            .and_then(|digits| digits.parse().ok())
            .unwrap_or(0)
    }
}

/// A server that stands still until this is dropped.
pub struct FrozenServer<'a>(&'a Process);

impl Drop for FrozenServer<'_> {
    fn drop(&mut self) {
        self.0.signal("CONT");
    }
}

/// Linux's folder in memory; not every container has it, or lets us write there.
const MEMORY: &str = "/dev/shm";

fn folder(in_memory: bool) -> TempDir {
    let mut builder = tempfile::Builder::new();
    builder.prefix("weir-server-");
    let found = if in_memory { builder.tempdir_in(MEMORY).ok() } else { None };
    found.unwrap_or_else(|| builder.tempdir().expect("a temporary folder"))
}

fn listen_words(kind: Kind, options: &Options, folder: &TempDir) -> (Address, Vec<String>) {
    let mut words = vec![kind.program().to_string_lossy().into_owned()];
    let address = if options.unix {
        let path = folder.path().join("server.sock");
        words.extend(["--port".into(), "0".into(), "--unixsocket".into()]);
        words.push(path.to_string_lossy().into_owned());
        Address::Unix(path)
    } else {
        let port = port::free();
        words.extend(["--port".into(), port.to_string()]);
        words.extend(["--bind".into(), "127.0.0.1".into()]);
        Address::port(port)
    };
    let folder = folder.path().to_string_lossy().into_owned();
    for word in ["--dir", &folder, "--save", "", "--appendonly", "no"] {
        words.push(word.to_owned());
    }
    words.extend(["--enable-debug-command".into(), "local".into()]);
    (address, words)
}

fn tls_words(port: u16, files: &Certificates, demand_clients: bool) -> Vec<String> {
    let path = |path: &PathBuf| path.to_string_lossy().into_owned();
    vec![
        "--tls-port".into(),
        port.to_string(),
        "--tls-cert-file".into(),
        path(&files.server),
        "--tls-key-file".into(),
        path(&files.server_key),
        "--tls-ca-cert-file".into(),
        path(&files.authority),
        "--tls-auth-clients".into(),
        if demand_clients { "yes" } else { "no" }.into(),
    ]
}
