//! Installs what the tests need, once: real servers and real client libraries.
//!
//! Nothing here runs when it is already there, and nothing starts a system service: Debian's
//! packages are installed with their service start held back (see `packages.rs`).

mod ai_peers;
pub mod clients;
mod flags;
mod flags_peer;
mod mongodb;
mod packages;
mod postgres;
mod python;
pub mod suites;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Error, Result, bail};

use crate::command;
use crate::workspace::Workspace;

pub use ai_peers::folders as ai_peers;
pub use flags_peer::folder as flags_peer;
pub use python::{environment, python, valkey_server};

/// How often a command that uses the network is tried, and the wait after the first failure
/// (doubled each time): registries drop a connection now and then.
const ATTEMPTS: u32 = 4;
const FIRST_WAIT: Duration = Duration::from_secs(3);

/// Something that can be installed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// A C and a C++ compiler (system packages).
    Compiler,
    /// Redis 7.0, redis-cli, curl, openssl, pkill and ip (system packages), Valkey 9 (a wheel with the server in it).
    Servers,
    /// HAProxy, twemproxy, nginx, and the load programs wrk, h2load and redis-benchmark (system packages), Envoy (a wheel).
    Peers,
    /// nghttp and h2load (system packages), h2spec and gRPC's interoperability cases (Go modules), and an origin and a client of
    /// net/http (Go sources of the tests).
    Http2,
    /// Chromium (a system package).
    Browser,
    /// Prometheus and promtool (a system package).
    Prometheus,
    /// systemd, shells and other programs that a package is tested with (system packages), hadolint (a wheel).
    Packaging,
    /// redis-py, websockets and pytest.
    Python,
    /// ioredis and ws.
    Node,
    /// go-redis.
    Go,
    /// Jedis and Lettuce.
    Java,
    /// Redis's own tests: its source package, and Tcl.
    RedisSuite,
    /// redis-py's own tests: its source distribution, and pytest with what they need.
    RedisPySuite,
    /// go-redis's own tests: its module, and what they need.
    GoRedisSuite,
    /// PostgreSQL 15 with its programs, PgBouncer and Pgpool-II (system packages), PostgreSQL 16 and 18 (a wheel with both servers).
    Postgres,
    /// psycopg 2 and 3, asyncpg, SQLAlchemy, pgx, lib/pq, JDBC, node-postgres and tokio-postgres, each with the program that checks it.
    PostgresDrivers,
    /// asyncpg's own tests: its source distribution.
    AsyncpgSuite,
    /// The SDKs of OpenAI and Anthropic, LangChain and Vercel's AI SDK, MCP and A2A, for Python and Node.
    AiSdks,
    /// A real Unleash server (an npm package), which needs PostgreSQL.
    Unleash,
    /// The SDKs of Unleash for Node, browsers, Python, Go and Java, OpenFeature's for Node, each with the program that checks it, and the
    /// specification that they share.
    FlagSdks,
    /// versitygw, a server with the API of S3 (a Go module).
    S3,
    /// FerretDB (a Go module), embedded and as a program with logins; mongo-java-server.
    Mongodb,
    /// PyMongo, also an older one, the drivers of Node, Go and Java, and Mongoose, each with the program that checks it.
    MongodbDrivers,
    /// PyMongo's own tests: its source distribution.
    PymongoSuite,
    /// LiteLLM (a Python package, in an environment of its own) and Portkey (an npm package), beside which `bench ai` measures.
    AiPeers,
    /// Unleash Edge (built from a crate), beside which `bench flags` measures. Only where it is named: it compiles for long.
    FlagsPeer,
}

impl Part {
    /// In the order of their declaration.
    pub const ALL: [Self; 26] = [
        Self::Compiler,
        Self::Servers,
        Self::Peers,
        Self::Http2,
        Self::Browser,
        Self::Prometheus,
        Self::Packaging,
        Self::Python,
        Self::Node,
        Self::Go,
        Self::Java,
        Self::RedisSuite,
        Self::RedisPySuite,
        Self::GoRedisSuite,
        Self::Postgres,
        Self::PostgresDrivers,
        Self::AsyncpgSuite,
        Self::AiSdks,
        Self::Unleash,
        Self::FlagSdks,
        Self::S3,
        Self::Mongodb,
        Self::MongodbDrivers,
        Self::PymongoSuite,
        Self::AiPeers,
        Self::FlagsPeer,
    ];

    /// The word of the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Compiler => "compiler",
            Self::Servers => "servers",
            Self::Peers => "peers",
            Self::Http2 => "http2",
            Self::Browser => "browser",
            Self::Prometheus => "prometheus",
            Self::Packaging => "packaging",
            Self::Python => "python",
            Self::Node => "node",
            Self::Go => "go",
            Self::Java => "java",
            Self::RedisSuite => "suite-redis",
            Self::RedisPySuite => "suite-redis-py",
            Self::GoRedisSuite => "suite-go-redis",
            Self::Postgres => "postgres",
            Self::PostgresDrivers => "postgres-drivers",
            Self::AsyncpgSuite => "suite-asyncpg",
            Self::AiSdks => "ai-sdks",
            Self::Unleash => "unleash",
            Self::FlagSdks => "flag-sdks",
            Self::S3 => "s3",
            Self::Mongodb => "mongodb",
            Self::MongodbDrivers => "mongodb-drivers",
            Self::PymongoSuite => "suite-pymongo",
            Self::AiPeers => "ai-peers",
            Self::FlagsPeer => "flags-peer",
        }
    }

    /// It has a virtual environment of Python.
    fn needs_python(self) -> bool {
        match self {
            Self::Servers | Self::Peers | Self::Packaging | Self::Python | Self::RedisPySuite => true,
            Self::Postgres | Self::PostgresDrivers | Self::AsyncpgSuite | Self::AiSdks | Self::AiPeers => true,
            Self::FlagSdks | Self::MongodbDrivers | Self::PymongoSuite => true,
            Self::Compiler | Self::Http2 | Self::Browser | Self::Prometheus | Self::FlagsPeer | Self::S3 => false,
            Self::Mongodb => false,
            Self::Node | Self::Go | Self::Java | Self::RedisSuite | Self::GoRedisSuite | Self::Unleash => false,
        }
    }

    /// No word: all parts that a test needs, or that are there soon.
    pub fn parse_all(words: &[&str]) -> Result<Vec<Self>> {
        if words.is_empty() {
            return Ok(Self::ALL.into_iter().filter(|part| *part != Self::FlagsPeer).collect());
        }
        let mut parts = Vec::new();
        for word in words {
            match Self::ALL.into_iter().find(|part| part.name() == *word) {
                Some(part) => parts.push(part),
                None => {
                    let names = Self::ALL.map(Self::name).join(" ");
                    bail!("unknown part `{word}`; parts: {names}")
                }
            }
        }
        Ok(parts)
    }
}

/// Installs the given parts.
///
/// # Errors
/// One of them cannot be installed.
pub fn run(workspace: &Workspace, parts: &[Part]) -> Result<()> {
    let installation = Installation::default();
    installation.run(workspace, parts);
    installation.wait(parts)
}

/// Parts that are being installed while something else goes on.
#[derive(Debug, Default)]
pub struct Installation {
    /// Each part that is done, and why not if it failed.
    done: Mutex<BTreeMap<Part, Result<(), String>>>,
    changed: Condvar,
}

impl Installation {
    /// Installs `parts`: first what they need of the system in one step, then the rest of each beside that of the others.
    /// Returns when all are done.
    pub fn run(&self, workspace: &Workspace, parts: &[Part]) {
        let parts: BTreeSet<Part> = parts.iter().copied().collect();
        let all: Vec<Part> = parts.iter().copied().collect();
        let _end = End { installation: self, parts: &all };
        let prepared = fs::create_dir_all(workspace.tools()).map_err(Error::from).and_then(|()| packages::ensure(&all));
        if let Err(error) = prepared {
            eprintln!("setup: {error:#}; each part tries for itself");
        }
        thread::scope(|scope| {
            for part in parts {
                // One package that cannot be installed keeps all others from it: a part needs its own alone.
                if let Err(error) = packages::ensure(&[part]) {
                    self.finish(part, Err(format!("{}: {error:#}", part.name())));
                    continue;
                }
                scope.spawn(move || {
                    let installed = install(workspace, part).map_err(|error| format!("{}: {error:#}", part.name()));
                    self.finish(part, installed);
                });
            }
        });
    }

    fn finish(&self, part: Part, installed: Result<(), String>) {
        self.done.lock().unwrap_or_else(PoisonError::into_inner).insert(part, installed);
        self.changed.notify_all();
    }

    /// Waits until all of `parts` are done. They must be among those that are being installed.
    ///
    /// # Errors
    /// One of them cannot be installed.
    pub fn wait(&self, parts: &[Part]) -> Result<()> {
        let mut done = self.done.lock().unwrap_or_else(PoisonError::into_inner);
        for part in parts {
            while !done.contains_key(part) {
                done = self.changed.wait(done).unwrap_or_else(PoisonError::into_inner);
            }
            done[part].clone().map_err(Error::msg)?;
        }
        Ok(())
    }
}

/// Marks an installation as ended on drop, also after a panic, so that no thread waits for a part that will not come.
struct End<'a> {
    installation: &'a Installation,
    parts: &'a [Part],
}

impl Drop for End<'_> {
    fn drop(&mut self) {
        let mut done = self.installation.done.lock().unwrap_or_else(PoisonError::into_inner);
        for part in self.parts {
            done.entry(*part).or_insert_with(|| Err(format!("{}: its installation broke off", part.name())));
        }
        self.installation.changed.notify_all();
    }
}

/// The parts of an installation besides its packages.
fn install(workspace: &Workspace, part: Part) -> Result<()> {
    match part {
        Part::Compiler | Part::Browser | Part::Prometheus => Ok(()),
        Part::Servers => {
            python::ensure(workspace)?;
            let server = python::valkey_server(workspace)?;
            println!("setup: Valkey server at {}", server.display());
            Ok(())
        }
        Part::Peers | Part::Packaging | Part::Python | Part::Postgres => python::ensure(workspace),
        Part::Http2 => http2_programs(workspace),
        Part::Node => clients::node(workspace),
        Part::Go => clients::go(workspace),
        Part::Java => clients::java(workspace),
        Part::RedisSuite => suites::redis(workspace),
        Part::RedisPySuite => suites::redis_py(workspace),
        Part::GoRedisSuite => suites::go_redis(workspace),
        Part::PostgresDrivers => postgres::drivers(workspace),
        Part::AsyncpgSuite => suites::asyncpg(workspace),
        Part::AiSdks => ai_sdks(workspace),
        Part::Unleash => flags::server(workspace),
        Part::FlagSdks => flags::sdks(workspace),
        Part::S3 => go_programs(workspace, &S3_PROGRAMS),
        Part::Mongodb => mongodb::servers(workspace),
        Part::MongodbDrivers => mongodb::drivers(workspace),
        Part::PymongoSuite => suites::pymongo(workspace),
        Part::AiPeers => ai_peers::ensure(workspace),
        Part::FlagsPeer => flags_peer::ensure(workspace),
    }
}

/// The SDKs of language models, for Python and for Node.
fn ai_sdks(workspace: &Workspace) -> Result<()> {
    let requirements = workspace.root.join("tests/clients/ai/python/requirements.txt");
    python::ensure_in(workspace, &workspace.tools().join("ai-sdks"), &requirements)?;
    clients::need(&["node", "npm"], "Node.js 20 or later with npm")?;
    clients::npm(&clients::suite_folder(workspace, "ai/node"))
}

/// Programs built from Go modules, and the folder of each: h2spec, and the interoperability cases of grpc-go.
const HTTP2_PROGRAMS: [(&str, &str); 3] = [
    ("h2spec", "github.com/summerwind/h2spec/cmd/h2spec@v2.2.1+incompatible"),
    ("grpc/client", "google.golang.org/grpc/interop/client@v1.67.1"),
    ("grpc/server", "google.golang.org/grpc/interop/server@v1.67.1"),
];

/// The server with the API of S3.
const S3_PROGRAMS: [(&str, &str); 1] = [("versitygw", "github.com/versity/versitygw/cmd/versitygw@v1.8.0")];

fn http2_programs(workspace: &Workspace) -> Result<()> {
    go_programs(workspace, &HTTP2_PROGRAMS)?;
    // This workspace's own program may have changed; Go itself detects whether it has.
    let into = workspace.tools().join("go").to_string_lossy().into_owned();
    run_with_retries(&clients::suite_folder(workspace, "net-http"), &["go", "install", "."], &[("GOBIN", &into)])
}

/// Builds programs into the folder of tools.
fn go_programs(workspace: &Workspace, programs: &[(&str, &str)]) -> Result<()> {
    for (name, module) in programs {
        let program = workspace.tools().join("go").join(name);
        if program.is_file() {
            continue;
        }
        clients::need(&["go"], "Go 1.25 or later")?;
        let folder = program.parent().unwrap_or(&program);
        std::fs::create_dir_all(folder)?;
        let into = folder.to_string_lossy().into_owned();
        run_with_retries(&workspace.root, &["go", "install", module], &[("GOBIN", &into)])?;
    }
    Ok(())
}

/// Runs a command that uses the network, again after a failure.
fn run_with_retries(folder: &Path, words: &[&str], environment: &[(&str, &str)]) -> Result<()> {
    let (mut wait, begun) = (FIRST_WAIT, Instant::now());
    for attempt in 1..=ATTEMPTS {
        let mut command: Command = command::command(folder, words);
        command.envs(environment.iter().copied());
        match command::run(&mut command) {
            Ok(()) => return Ok(()),
            // A try that took so long is not repeated.
            Err(error) if attempt == ATTEMPTS || begun.elapsed() > command::RUN_DEADLINE => return Err(error),
            Err(error) => {
                eprintln!("setup: attempt {attempt} of {ATTEMPTS}: {error}; again in {} s", wait.as_secs());
                std::thread::sleep(wait);
                wait *= 2;
            }
        }
    }
    unreachable!("the last attempt returns")
}
