//! The programs of a measurement: what stands behind, the sink that calibrates the generator, the gateways.

use std::ffi::OsStr;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use tempfile::TempDir;
use weir_engine::settings::Address;
use weir_knee::Backend;
use weir_load::Scenario;
use weir_load::protocols::{Count, Family, Protocol};
use weir_parties::peer::{Change, Login, Peer, Running, Setting, Telemetry};
use weir_parties::place::free_port;
use weir_parties::{Launch, Process, certificate};

use crate::comparison::Arm;
use crate::placement::{Placement, list_of};

/// Client connections that a gateway has room for beyond the scenario's connections.
const CONNECTIONS_SPARE: u32 = 64;

/// Kind of server behind the gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UpstreamKind {
    /// The lab's own origin, started for the search.
    Origin,
    /// nginx, started for the measurement: HTTP/1.1, and one file of the payload's size.
    Nginx,
    /// Servers that run already, at least one.
    Servers(Vec<Address>),
}

/// As results name it.
impl std::fmt::Display for UpstreamKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Origin => f.write_str("an origin of the lab"),
            Self::Nginx => f.write_str("nginx with a file"),
            Self::Servers(all) => f.write_str(&all.iter().map(Address::to_string).collect::<Vec<_>>().join(", ")),
        }
    }
}

impl UpstreamKind {
    /// All that a command line names; without any the lab's own origin.
    ///
    /// # Errors
    /// Several, and one of them is no server that runs already.
    pub fn together(all: Vec<Self>) -> Result<Self> {
        if all.len() < 2 {
            return Ok(all.into_iter().next().unwrap_or(Self::Origin));
        }
        let mut servers = Vec::new();
        for one in all {
            match one {
                Self::Servers(some) => servers.extend(some),
                Self::Origin | Self::Nginx => bail!("several servers behind the gateways are addresses; {one} is none"),
            }
        }
        Ok(Self::Servers(servers))
    }

    /// Which ceiling bounds the search, and what a plan may be made for.
    #[must_use]
    pub fn backend(&self) -> Backend {
        match self {
            Self::Origin => Backend::Synthetic,
            Self::Nginx | Self::Servers(_) => Backend::Real,
        }
    }

    /// `scenario` as it can be sent to what stands behind.
    ///
    /// # Errors
    /// It cannot.
    pub fn adapted(&self, scenario: &Scenario) -> Result<Scenario> {
        let mut scenario = scenario.clone();
        if *self == Self::Nginx {
            ensure!(
                scenario.protocol.is_served_by_files() && scenario.payload.sizes().len() == 1,
                "nginx can stand behind a scenario with protocol = \"http1\" and one size of payload; {} is another",
                scenario.name
            );
            ensure!(scenario.request.path.is_none(), "nginx has one file of its own; leave `request.path` out");
            scenario.request.path = Some(format!("/{FILE}"));
        }
        Ok(scenario)
    }
}

/// The file that nginx serves.
const FILE: &str = "payload";

/// The programs behind the gateways, and where they listen. Dropped, they end.
pub(crate) struct Stage {
    weir: PathBuf,
    protocol: &'static dyn Protocol,
    origin_words: OriginWords,
    folder: TempDir,
    placement: Placement,
    share: Option<f64>,
    connections: u32,
    path: String,
    /// User and verifier, where clients have a password.
    login: Option<(String, String)>,
    origin: Option<Process>,
    server: Option<Arm>,
    behind: Vec<Address>,
}

impl Stage {
    /// Starts the origin of `scenario` with the program `weir`, or reaches for the server that is there. Gateways get `share`
    /// of their CPU, and have room for as many connections as clients will make, or streams on them.
    pub(crate) fn start(
        weir: &Path,
        behind: &UpstreamKind,
        placement: &Placement,
        share: Option<f64>,
        scenario: &Scenario,
    ) -> Result<Self> {
        let protocol = scenario.protocol;
        let origin_words = OriginWords { family: protocol.family(), more: protocol.origin_words(scenario) };
        let of_phases = scenario.phases.iter().map(|phase| connections_of(&scenario.alone(phase)));
        let connections = of_phases.fold(connections_of(scenario), u32::max);
        let folder = tempfile::Builder::new().prefix("weir-lab-").tempdir()?;
        let mut server = None;
        let (origin, behind) = match behind {
            UpstreamKind::Servers(all) => {
                ensure!(!all.is_empty(), "nothing stands behind the gateways");
                all.iter().try_for_each(reach)?;
                (None, all.clone())
            }
            UpstreamKind::Nginx => {
                let (process, address, facts) = start_nginx(scenario, placement, folder.path())?;
                server = Some(facts);
                (Some(process), vec![address])
            }
            UpstreamKind::Origin => {
                let (process, address) = start_origin(weir, &origin_words, "origin", &placement.origin, folder.path())?;
                (Some(process), vec![address])
            }
        };
        let (weir, placement, path) = (weir.to_owned(), placement.clone(), scenario.path());
        let verifier = scenario.postgres.verifier();
        let login = verifier
            .map(|verifier| (scenario.postgres.user.clone(), String::from_utf8_lossy(verifier.expose()).into_owned()));
        Ok(Self {
            weir,
            protocol,
            origin_words,
            folder,
            placement,
            share,
            connections,
            path,
            login,
            origin,
            server,
            behind,
        })
    }

    /// Makes what gateways need that speak TLS with their clients.
    pub(crate) fn make_certificate(&self) -> Result<()> {
        certificate::make(self.folder.path())
    }

    /// The gateway of this project, for what stands behind.
    ///
    /// # Errors
    /// It does not speak the protocol.
    pub(crate) fn weir(&self, telemetry: Telemetry) -> Result<Peer> {
        let protocol = self.protocol.to_string();
        Peer::weir(telemetry, &protocol).with_context(|| format!("this build does not speak {protocol}"))
    }

    /// Starts a gateway in front of it, on its CPUs. Where clients have a password it checks that; a relay without a configuration
    /// leaves it to the server.
    pub(crate) fn start_gateway(&self, peer: &Peer) -> Result<Running> {
        let peer = match (&self.login, &peer.config) {
            (Some(_), Some(_)) => peer.clone().changed(Change::Scram)?,
            _ => peer.clone(),
        };
        let login = self.login.as_ref().map(|(user, verifier)| Login { user, verifier });
        let setting = Setting {
            origins: &self.behind.iter().map(Address::to_string).collect::<Vec<_>>(),
            workers: self.placement.gateway.len() as u32,
            connections: self.connections + CONNECTIONS_SPARE,
            path: &self.path,
            cpus: Some(&list_of(&self.placement.gateway)),
            share: self.share,
            // This very build, whatever else is installed.
            program: peer.is_weir().then_some(&*self.weir),
            login,
        };
        peer.start(&setting, self.folder.path())
    }

    /// An origin of the lab on the gateway's CPUs, which are idle while the generator is calibrated: it has them for itself.
    pub(crate) fn start_sink(&self) -> Result<(Process, Address)> {
        start_origin(&self.weir, &self.origin_words, "sink", &self.placement.gateway, self.folder.path())
    }

    /// Where clients of what stands behind connect: of several servers the first.
    pub(crate) fn behind(&self) -> &Address {
        &self.behind[0]
    }

    /// Where files of a run belong. It goes with the stage.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Requests that all behind the gateways have replied to so far; `None`: they cannot tell.
    pub(crate) fn count(&self) -> Result<Option<u64>> {
        let Some(count) = self.protocol.count() else { return Ok(None) };
        // An origin with several cores reports only the counter of the core that accepted the connection, and the number of
        // cores of another server is unknown.
        let is_single = self.origin.is_some() && self.server.is_none() && self.placement.origin.len() == 1;
        if self.protocol.family().has_workers() && !is_single {
            return Ok(None);
        }
        self.behind.iter().map(|address| query_count(address, &count)).sum()
    }

    /// The server of others that was started to stand behind.
    pub(crate) fn server(&self) -> Option<&Arm> {
        self.server.as_ref()
    }

    /// Where the generator runs, perhaps not alone.
    pub(crate) fn generator_cpus(&self) -> &[u32] {
        &self.placement.generator
    }

    pub(crate) fn origin(&self) -> Option<u32> {
        self.origin.as_ref().map(Process::id)
    }

    /// An error with its last words if the origin has ended.
    pub(crate) fn check(&mut self) -> Result<()> {
        self.origin.as_mut().map_or(Ok(()), Process::check_running)
    }
}

/// Those that clients make, or streams on them: behind the gateway a stream needs a connection.
fn connections_of(scenario: &Scenario) -> u32 {
    let per_connection = if scenario.protocol.is_multiplexed() { scenario.pipeline } else { 1 };
    scenario.connections.saturating_mul(per_connection)
}

/// Where clients of a gateway connect.
pub(crate) fn front_of(gateway: &Running) -> Address {
    loopback(gateway.port)
}

/// How long a server may take to tell how many requests it has replied to.
const COUNT_LIMIT: Duration = Duration::from_secs(2);

/// Counter of one server; `None`: it has none.
fn query_count(address: &Address, count: &Count) -> Result<Option<u64>> {
    match address {
        Address::Unix(path) => {
            let stream = UnixStream::connect(path)?;
            stream.set_read_timeout(Some(COUNT_LIMIT))?;
            read_count(stream, count)
        }
        _ => {
            let stream = TcpStream::connect(address.to_string())?;
            stream.set_read_timeout(Some(COUNT_LIMIT))?;
            read_count(stream, count)
        }
    }
}

fn read_count(mut stream: impl Read + Write, count: &Count) -> Result<Option<u64>> {
    stream.write_all(count.question)?;
    let (mut reply, mut chunk) = (Vec::new(), [0; 4096]);
    loop {
        // One that says nothing cannot tell.
        let Ok(length) = stream.read(&mut chunk) else { return Ok(None) };
        reply.extend_from_slice(&chunk[..length]);
        let found = (count.read)(&reply);
        if found.is_some() || length == 0 {
            return Ok(found);
        }
    }
}

/// Before anything is started, so that nothing is measured in vain.
fn reach(address: &Address) -> Result<()> {
    let text = address.to_string();
    let reached = match address {
        Address::Unix(path) => UnixStream::connect(path).map(drop),
        _ => TcpStream::connect(&text).map(drop),
    };
    reached.with_context(|| format!("cannot reach {text}; nothing was sent. Start the server, or mend the address"))
}

/// The command of the origin of a scenario.
struct OriginWords {
    family: &'static Family,
    /// Behind those that every scenario of the protocol has.
    more: Vec<String>,
}

fn start_origin(
    weir: &Path,
    words: &OriginWords,
    name: &str,
    cpus: &[u32],
    folder: &Path,
) -> Result<(Process, Address)> {
    let port = free_port()?;
    let arguments = words.family.origin_arguments(&format!("127.0.0.1:{port}"), cpus.len());
    let words = [weir.as_os_str()].into_iter().chain(arguments.iter().chain(&words.more).map(OsStr::new));
    let mut process = Process::start(Launch::new(name, Some(&list_of(cpus)), words), folder)?;
    process.wait_for_port(port)?;
    Ok((process, loopback(port)))
}

/// With a file as large as the payload of `scenario`, one worker for each CPU that it has.
fn start_nginx(scenario: &Scenario, placement: &Placement, folder: &Path) -> Result<(Process, Address, Arm)> {
    let files = folder.join("files");
    std::fs::create_dir(&files)?;
    std::fs::write(files.join(FILE), "x".repeat(scenario.payload.bytes_max()))?;
    let setting = Setting {
        origins: &[String::new()],
        workers: placement.origin.len() as u32,
        connections: 0,
        path: "/",
        cpus: Some(&list_of(&placement.origin)),
        share: None,
        program: None,
        login: None,
    };
    let running = Peer::nginx_origin().start(&setting, folder)?;
    let Running { name, process, port, version, command, config, .. } = running;
    Ok((process, loopback(port), Arm { name, version, command, config }))
}

fn loopback(port: u16) -> Address {
    std::net::SocketAddr::from(([127, 0, 0, 1], port)).into()
}
