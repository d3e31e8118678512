//! The processes of the demo: two servers of Redis and of HTTP, one of PostgreSQL, and the gateway.

use std::{
    fmt, fs,
    net::TcpListener,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, anyhow};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use weir_admin::{
    limits,
    status::{UpgradeOutcome, VersionStatus},
};
use weir_parties::{Launch, Process, interrupt, place};
use weir_upstream::placement::Placement;

use crate::{admin_client::Admin, upgrade::request::is_running};

/// The ports of the gateway, if nothing else has them; others then.
const REDIS_PORT: u16 = 7380;
const HTTP_PORT: u16 = 7381;
const POSTGRES_PORT: u16 = 7382;
const ADMIN_PORT: u16 = 7390;
/// Limit for one response of the admin server.
const ADMIN_LIMIT: Duration = Duration::from_secs(5);
/// Limit for a graceful end of the gateway. At that time only the user may still be connected.
const END_WAIT: Duration = Duration::from_secs(10);

/// A synthetic server, which can be killed and started again.
pub struct Server {
    /// Where it listens.
    pub address: String,
    kind: &'static str,
    port: u16,
    folder: PathBuf,
    process: Option<Process>,
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.process {
            Some(process) => write!(f, "process {} on {}", process.id(), self.address),
            None => write!(f, "{}", self.address),
        }
    }
}

impl Server {
    fn on_free_port(kind: &'static str, folder: &Path) -> Result<Self> {
        let port = place::free_port()?;
        let address = format!("127.0.0.1:{port}");
        let mut server = Self { address, kind, port, folder: folder.to_owned(), process: None };
        server.start()?;
        Ok(server)
    }

    /// Starts it, and waits until it listens.
    pub fn start(&mut self) -> Result<()> {
        let program = std::env::current_exe().context("the path of this program")?;
        let words = [program.into_os_string(), "lab".into(), "origin".into(), self.kind.into()];
        let words = words.into_iter().chain(["--bind".into(), self.address.clone().into()]);
        let mut process =
            Process::start(Launch::new(&format!("{}-{}", self.kind, self.port), None, words), &self.folder)?;
        process.wait_for_port(self.port)?;
        self.process = Some(process);
        Ok(())
    }

    /// SIGKILL: the kernel resets its connections.
    pub fn kill(&mut self) {
        self.process = None;
    }
}

/// The result of an upgrade.
pub struct Upgrade {
    old: u32,
    new: u32,
    /// Until the new process served.
    served: Duration,
    /// Until the old one had ended.
    ended: Duration,
    moved: u64,
}

impl fmt::Display for Upgrade {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "process {} took over from {} after {:.0} ms; the old process ended {:.0} ms later\n  {} Redis connections \
             moved; those of HTTP end after a response, those of PostgreSQL after a transaction",
            self.new,
            self.old,
            self.served.as_secs_f64() * 1e3,
            (self.ended - self.served).as_secs_f64() * 1e3,
            self.moved
        )
    }
}

/// All processes. Dropped, they end.
pub struct Stage {
    /// Listener of the gateway.
    pub redis: String,
    /// Listener of the gateway.
    pub http: String,
    /// Listener of the gateway.
    pub postgres: String,
    /// URL of the admin server.
    pub admin_url: String,
    /// Two shards.
    pub redis_servers: Vec<Server>,
    /// Two servers with the same content.
    pub http_servers: Vec<Server>,
    /// One, with the accounts of pgbench.
    pub postgres_server: Server,
    /// The process that was started first. It leads the group of those that upgrades start.
    gateway: Process,
    /// The process that serves now.
    serving: u32,
    placement: Placement,
    admin: Admin,
    /// Folder of the configuration and the logs. The last field, so that it outlives the processes.
    _folder: TempDir,
}

impl Stage {
    /// Starts the servers and the gateway, and waits until clients can connect.
    pub fn start() -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("weir-demo-").tempdir().context("a temporary folder")?;
        let pair = |kind| (0..2).map(|_| Server::on_free_port(kind, folder.path())).collect::<Result<Vec<_>>>();
        let (redis_servers, http_servers) = (pair("redis")?, pair("http")?);
        let postgres_server = Server::on_free_port("postgres", folder.path())?;
        let ports = [port(REDIS_PORT)?, port(HTTP_PORT)?, port(POSTGRES_PORT)?, port(ADMIN_PORT)?];
        let [redis, http, postgres, admin] = ports;
        let file = folder.path().join("weir.toml");
        let text = config(ports, &redis_servers, &http_servers, &postgres_server);
        fs::write(&file, text).context("the configuration")?;
        let snapshot = weir_config::load(&file, &|_| None).map_err(|mistakes| anyhow!("{mistakes}"))?;
        let settings = &snapshot.upstream("redis").context("the upstream of Redis")?.settings;
        let placement = Placement::new(settings.placement.clone().context("shards")?, &settings.endpoints);
        let program = std::env::current_exe().context("the path of this program")?;
        let words = [program.into_os_string(), "run".into(), "--config".into(), file.into_os_string()];
        let mut gateway = Process::start(Launch::new("gateway", None, words), folder.path())?;
        for port in [admin, redis, http, postgres] {
            gateway.wait_for_port(port)?;
        }
        let admin_url = format!("http://127.0.0.1:{admin}");
        Ok(Self {
            redis: format!("127.0.0.1:{redis}"),
            http: format!("127.0.0.1:{http}"),
            postgres: format!("127.0.0.1:{postgres}"),
            admin: Admin::new(&admin_url, None),
            admin_url,
            redis_servers,
            http_servers,
            postgres_server,
            serving: gateway.id(),
            gateway,
            placement,
            _folder: folder,
        })
    }

    /// A key of client number `client` that the shard holds.
    pub fn key_on(&self, shard: u16, client: u16) -> String {
        let keys = (0u32..).map(|number| format!("demo:{client}:{number}"));
        keys.into_iter().find(|key| self.placement.place(key.as_bytes()) == shard).unwrap_or_default()
    }

    /// The sum of a metric over the series that have all these labels.
    pub fn metric(&self, name: &str, labels: &[(&str, &str)]) -> Result<u64> {
        let text = self.admin.text("/metrics", ADMIN_LIMIT).map_err(anyhow::Error::msg)?;
        let wanted: Vec<String> = labels.iter().map(|(label, value)| format!("{label}=\"{value}\"")).collect();
        let is_wanted = |line: &&str| {
            let rest = line.strip_prefix(name);
            rest.is_some_and(|rest| rest.starts_with(['{', ' ']) && wanted.iter().all(|label| rest.contains(label)))
        };
        let values = text.lines().filter(is_wanted).filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
        Ok(values.sum::<f64>() as u64)
    }

    /// Has the gateway replace itself, and waits until the old process has ended.
    pub fn upgrade(&mut self, limit: Duration) -> Result<Upgrade> {
        let begun = Instant::now();
        let wait = limits::UPGRADE_DEADLINE + ADMIN_LIMIT;
        let outcome: UpgradeOutcome = self.admin.post("/api/v1/upgrade", wait).map_err(anyhow::Error::msg)?;
        let served = begun.elapsed();
        let new = outcome.successor.context("the upgrade names no new process")?;
        self.serving = new;
        interrupt::wait_until("the old process to end", limit, || {
            let version: VersionStatus = self.admin.json("/api/v1/version", ADMIN_LIMIT).map_err(anyhow::Error::msg)?;
            Ok(version.pid == new && version.draining_predecessor.is_none())
        })?;
        let ended = begun.elapsed();
        let moved = self.metric("weir_connections_moved_total", &[])?;
        Ok(Upgrade { old: outcome.pid, new, served, ended, moved })
    }

    /// The last lines of the gateway's log.
    pub fn log_tail(&self) -> String {
        self.gateway.tail()
    }

    /// Ends the gateway in order, then the servers.
    pub fn end(self) -> Result<()> {
        let number = i32::try_from(self.serving)?;
        kill_process(Pid::from_raw(number).context("a process id")?, Signal::TERM).context("cannot end the gateway")?;
        // The signal that ends the demo does not end this wait.
        let begun = Instant::now();
        while is_running(number) {
            anyhow::ensure!(begun.elapsed() < END_WAIT, "the gateway does not end; {}", self.gateway.tail());
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }
}

/// The port that the lines to try name, or another one while it is taken.
fn port(wanted: u16) -> Result<u16> {
    if TcpListener::bind(("127.0.0.1", wanted)).is_ok() { Ok(wanted) } else { place::free_port() }
}

fn config(
    [redis, http, postgres, admin]: [u16; 4],
    redis_servers: &[Server],
    http_servers: &[Server],
    postgres_server: &Server,
) -> String {
    let endpoints = |servers: &[Server]| {
        let quoted: Vec<String> = servers.iter().map(|server| format!("\"{}\"", server.address)).collect();
        quoted.join(", ")
    };
    format!(
        r#"# Servers, clients and workers share the cores.
[runtime]
pin = false

[admin]
bind = "127.0.0.1:{admin}"

# No balancer has to take notice.
[drain]
settle = "0s"

[[listener]]
name = "cache"
protocol = "redis"
bind = "127.0.0.1:{redis}"
upstream = "redis"

[[listener]]
name = "web"
protocol = "http"
bind = "127.0.0.1:{http}"
upstream = "http"

[[listener]]
name = "database"
protocol = "postgres"
bind = "127.0.0.1:{postgres}"
upstream = "postgres"

[listener.postgres]
auth = "trust" # on loopback

[[upstream]]
name = "redis"
endpoints = [{}]

[upstream.sharding]
distribution = "maglev"

[[upstream]]
name = "http"
endpoints = [{}]

[[upstream]]
name = "postgres"
endpoints = ["{}"]
"#,
        endpoints(redis_servers),
        endpoints(http_servers),
        postgres_server.address
    )
}
