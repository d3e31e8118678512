//! Weir itself: built, configured and started; and its admin port, asked by hand.

use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, anyhow};

use weir_parties::interrupt;
use weir_parties::peer::version_line;
use weir_parties::place::free_port;

use crate::command;
use crate::workspace::Workspace;
use weir_parties::process::{Launch, Process};

/// How long one answer of the admin port may take.
const ADMIN_LIMIT: Duration = Duration::from_secs(10);
/// How long the gateway may take until it is ready.
const READY_LIMIT: Duration = Duration::from_secs(20);

/// How Weir is started: words divided by blanks, with `{config}`, `{port}` and `{origin}` to be filled in.
#[derive(Clone, Debug)]
pub(crate) struct Program(String);

/// What one instance is asked to be.
#[derive(Clone, Debug, Default)]
pub(crate) struct Settings {
    /// Clients connect here.
    pub(crate) port: u16,
    /// Probes and API.
    pub(crate) admin: u16,
    /// The server behind.
    pub(crate) origin: u16,
    /// Worker threads; `None`: as many as the cores it may use, which is its default.
    pub(crate) workers: Option<u32>,
    /// `io_uring` or `polling`; `None`: its own choice.
    pub(crate) driver: Option<&'static str>,
    /// Telemetry level; `None`: full, which is its default.
    pub(crate) telemetry: Option<&'static str>,
    /// Certificate and key towards clients.
    pub(crate) tls: Option<(PathBuf, PathBuf)>,
    /// Client connections, in total and from this machine; `None`: its default.
    pub(crate) connections: Option<u32>,
    /// Settle time and time-out of a drain; `None`: its defaults.
    pub(crate) drain: Option<(&'static str, &'static str)>,
    /// Servers behind besides `origin`.
    pub(crate) more_origins: Vec<u16>,
    /// Further lines of the upstream, such as how keys are placed, and further tables.
    pub(crate) upstream_lines: String,
    /// A file with a line for every request.
    pub(crate) access_log: Option<PathBuf>,
    /// Further lines of the listener, such as a timeout that a reload changes.
    pub(crate) listener_lines: String,
}

impl Settings {
    /// One worker in front of `origin`, on free ports.
    pub(crate) fn new(origin: u16) -> Result<Self> {
        Ok(Self { port: free_port()?, admin: free_port()?, origin, workers: Some(1), ..Self::default() })
    }

    /// `weir.toml`.
    pub(crate) fn toml(&self) -> String {
        let mut text = format!("[admin]\nbind = \"127.0.0.1:{}\"\n\n[runtime]\n", self.admin);
        // Writing to a string does not fail.
        if let Some(workers) = self.workers {
            let _ = writeln!(text, "workers = {workers}");
        }
        if let Some(driver) = self.driver {
            let _ = writeln!(text, "driver = \"{driver}\"");
        }
        text.push_str("\n[telemetry]\nlog_level = \"warn\"\n");
        if let Some(level) = self.telemetry {
            let _ = writeln!(text, "level = \"{level}\"");
        }
        if let Some(file) = &self.access_log {
            let _ = writeln!(text, "access_log = {{ target = \"file:{}\", sample = 1.0 }}", file.display());
        }
        if let Some(count) = self.connections {
            let _ = write!(text, "\n[limits]\nconnections = {count}\nconnections_per_source = {count}\n");
        }
        if let Some((settle, timeout)) = self.drain {
            let _ = write!(text, "\n[drain]\nsettle = \"{settle}\"\ntimeout = \"{timeout}\"\n");
        }
        let _ = write!(
            text,
            "\n[[listener]]\nname = \"cache\"\nprotocol = \"redis\"\nbind = \"127.0.0.1:{}\"\n\
             upstream = \"redis-main\"\n{}",
            self.port, self.listener_lines
        );
        if let Some((certificate, key)) = &self.tls {
            let (certificate, key) = (certificate.display(), key.display());
            let _ = write!(text, "\n[listener.tls]\ncert_file = \"{certificate}\"\nkey_file = \"{key}\"\n");
        }
        let origins = [self.origin].into_iter().chain(self.more_origins.iter().copied());
        let endpoints: Vec<String> = origins.map(|port| format!("\"127.0.0.1:{port}\"")).collect();
        let (endpoints, lines) = (endpoints.join(", "), &self.upstream_lines);
        let _ = write!(text, "\n[[upstream]]\nname = \"redis-main\"\nendpoints = [{endpoints}]\n{lines}");
        text
    }
}

/// A fresh release build of the program.
pub(crate) fn release_build(workspace: &Workspace) -> Result<PathBuf> {
    let words = ["cargo", "build", "--release", "--locked", "--package", "weir"];
    command::run(&mut command::command(&workspace.root, &words)).context("cannot build weir")?;
    Ok(workspace.target.join("release/weir"))
}

impl Program {
    /// The given command, or `weir run` of a fresh release build.
    pub(crate) fn find(workspace: &Workspace, command: Option<&str>) -> Result<Self> {
        if let Some(command) = command {
            return Ok(Self(command.to_owned()));
        }
        Ok(Self(format!("{} run --config {{config}}", release_build(workspace)?.display())))
    }

    /// The given command.
    pub(crate) fn command(words: &str) -> Self {
        Self(words.to_owned())
    }

    /// Whether it reads the configuration at all; a stand-in may not.
    pub(crate) fn is_configurable(&self) -> bool {
        self.0.contains("{config}")
    }

    /// Its version.
    pub(crate) fn version(&self) -> String {
        let program = self.0.split_whitespace().next().unwrap_or_default();
        if self.is_configurable() { version_line(program, &["--version"]) } else { format!("stand-in: {}", self.0) }
    }

    /// Starts it and waits until it serves.
    pub(crate) fn start(&self, name: &str, settings: &Settings, cpus: Option<&str>, folder: &Path) -> Result<Process> {
        let config = folder.join(format!("{name}.toml"));
        std::fs::write(&config, settings.toml())?;
        let fill = |word: &str| {
            let word = word.replace("{config}", &config.to_string_lossy());
            word.replace("{port}", &settings.port.to_string()).replace("{origin}", &settings.origin.to_string())
        };
        let mut process = Process::start(Launch::new(name, cpus, self.0.split_whitespace().map(fill)), folder)?;
        if self.is_configurable() {
            // The port alone does not tell: with SO_REUSEPORT another instance may answer on it.
            interrupt::wait_until(&format!("{name} to be ready"), READY_LIMIT, || {
                process.check_running()?;
                Ok(ask(settings.admin, "GET", "/readyz").is_ok_and(|answer| answer.status == 200))
            })
            .map_err(|error| anyhow!("{error:#}; {}", process.tail()))?;
        }
        process.wait_for_port(settings.port)?;
        Ok(process)
    }
}

/// An answer of the admin port.
pub(crate) struct Answer {
    /// HTTP status.
    pub(crate) status: u16,
    /// Everything behind the head.
    pub(crate) body: String,
}

/// Asks the admin port. HTTP/1.0, so that the end of the stream is the end of the answer.
pub(crate) fn ask(port: u16, method: &str, path: &str) -> Result<Answer> {
    let mut stream = TcpStream::connect_timeout(&SocketAddr::from(([127, 0, 0, 1], port)), ADMIN_LIMIT)?;
    stream.set_read_timeout(Some(ADMIN_LIMIT))?;
    stream.set_write_timeout(Some(ADMIN_LIMIT))?;
    write!(stream, "{method} {path} HTTP/1.0\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n")?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    let text = String::from_utf8_lossy(&answer);
    let (head, body) = text.split_once("\r\n\r\n").context("an answer without a head")?;
    let status = head.split(' ').nth(1).and_then(|word| word.parse().ok()).context("an answer without a status")?;
    Ok(Answer { status, body: body.to_owned() })
}
