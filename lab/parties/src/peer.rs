//! Gateways that can be measured, each described by a small TOML file: how it is found, configured and started.
//!
//! The built-in ones are such files too (`lab/parties/src/peers`), so they are the examples for a user's own. In
//! `arguments` and in the text of the configuration these words are filled in:
//!
//! | word | becomes |
//! |---|---|
//! | `{port}` | the port on 127.0.0.1 that clients will connect to |
//! | `{admin_port}` | another free port |
//! | `{origin}` | what stands behind, as `host:port` |
//! | `{origin_host}`, `{origin_port}` | its two parts |
//! | `{workers}` | threads that carry load |
//! | `{connections}` | client connections that must fit |
//! | `{folder}` | a folder for what it writes; others write there too |
//! | `{config}` | path of the configuration file; in `arguments` only |

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;

use crate::cgroup::Group;
use crate::place::free_port;
use crate::process::{Launch, Process};

/// Name of the arm without a gateway, which no peer may have.
pub const DIRECT: &str = "direct";

/// Bytes of a peer's file. 64 KiB: a configuration for one listener is far smaller.
pub const FILE_BYTES_MAX: u64 = 64 * 1024;

const VERSION_UNKNOWN: &str = "version unknown";
/// How long a program may take to tell its version.
const VERSION_SECONDS: &str = "5";

const NGINX_ORIGIN: &str = include_str!("peers/nginx-origin.toml");

// `WEIR`, the gateway of this project with a file for each family of protocols, and `OTHERS`: see `build.rs`.
include!(concat!(env!("OUT_DIR"), "/peers.rs"));
const WORDS: [&str; 9] = [
    "{port}",
    "{admin_port}",
    "{origin}",
    "{origin_host}",
    "{origin_port}",
    "{workers}",
    "{connections}",
    "{folder}",
    "{config}",
];

/// How much the gateway of this project observes of itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Telemetry {
    /// Nothing but gauges.
    Off,
    /// As it is delivered.
    #[default]
    On,
    /// The stages of every exchange timed, and a line of the access log for each, written to nowhere. What the log cannot
    /// take is dropped, as in service.
    CaptureAll,
}

impl Telemetry {
    /// Every level.
    pub const ALL: [Self; 3] = [Self::Off, Self::On, Self::CaptureAll];

    /// As results name it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::On => "on",
            Self::CaptureAll => "capture-all",
        }
    }

    /// As tables call the gateway of this project with this much of it.
    #[must_use]
    pub const fn peer_name(self) -> &'static str {
        self.variant().0
    }

    /// The peer's name, and what its `[telemetry]` has more.
    const fn variant(self) -> (&'static str, &'static str) {
        match self {
            Self::Off => ("weir-telemetry-off", "level = \"off\"\n"),
            Self::On => ("weir", ""),
            Self::CaptureAll => {
                ("weir-capture-all", "stage_sample = 1.0\naccess_log = { target = \"file:/dev/null\", sample = 1.0 }\n")
            }
        }
    }

    fn text(self, family: &str) -> String {
        let (name, more) = self.variant();
        family
            .replace("name = \"weir\"", &format!("name = \"{name}\""))
            .replace("[telemetry]\n", &format!("[telemetry]\n{more}"))
    }
}

/// A gateway that can be started.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Peer {
    /// As tables call it: small letters, digits, `-`.
    pub name: String,
    /// What it speaks, in the words of scenarios: `redis`, `http1` and so on.
    pub protocols: Vec<String>,
    /// Name of the program, or a path to it.
    pub program: String,
    /// How to get it, for whoever does not have it.
    pub install: String,
    /// Most threads that it can carry load with; absent: as many as it is told.
    pub workers_max: Option<u32>,
    /// Of the command that starts it in the foreground.
    pub arguments: Vec<String>,
    /// Arguments with which it tells its version; empty: it cannot.
    #[serde(default)]
    pub version: Vec<String>,
    /// Its configuration file; absent: all stands in the arguments.
    pub config: Option<Config>,
}

/// A configuration file to be filled in and written.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Its name; some programs look at the ending.
    pub file: String,
    /// Its text.
    pub text: String,
}

/// What one instance is asked to be.
#[derive(Clone, Copy, Debug)]
pub struct Setting<'a> {
    /// What stands behind: `host:port`, or `unix:/path` for those that can.
    pub origin: &'a str,
    /// Threads that carry load.
    pub workers: u32,
    /// Client connections that must fit.
    pub connections: u32,
    /// CPUs as `taskset -c` reads them; `None`: wherever the scheduler likes.
    pub cpus: Option<&'a str>,
    /// Of one CPU, 0.1 to 1; `None`: all of those that it has.
    pub share: Option<f64>,
    /// The program; `None`: it is looked for.
    pub program: Option<&'a Path>,
}

/// A peer that runs. Dropped, it ends.
pub struct Running {
    /// The peer's name.
    pub name: String,
    /// Its first process.
    pub process: Process,
    /// Of one CPU, what it may use; `None`: all of those that it has.
    pub share: Option<f64>,
    /// On 127.0.0.1, for clients.
    pub port: u16,
    /// The first line that it tells of itself.
    pub version: String,
    /// The command that started it.
    pub command: String,
    /// The configuration as it was written, but for the folder, which is `.` here; empty without one.
    pub config: String,
}

impl Peer {
    /// The gateway of this project in front of what speaks `protocol`; `None`: it does not speak it.
    ///
    /// # Panics
    /// Its file, which is part of this crate, is wrong.
    #[must_use]
    pub fn weir(telemetry: Telemetry, protocol: &str) -> Option<Self> {
        WEIR.iter().map(|family| Self::of_built_in(&telemetry.text(family))).find(|peer| peer.speaks(protocol))
    }

    /// Whether it is the gateway of this project, whatever it observes.
    #[must_use]
    pub fn is_weir(&self) -> bool {
        weir_texts().any(|text| *self == Self::of_built_in(&text))
    }

    /// Whether it may carry a load of `protocol`.
    #[must_use]
    pub fn speaks(&self, protocol: &str) -> bool {
        self.protocols.iter().any(|spoken| spoken == protocol)
    }

    /// nginx as what stands behind: it serves what is in `files` of the folder that it is started with.
    ///
    /// # Panics
    /// Its file, which is part of this crate, is wrong.
    #[must_use]
    pub fn nginx_origin() -> Self {
        Self::of_built_in(NGINX_ORIGIN)
    }

    /// One of those that the lab knows.
    ///
    /// # Panics
    /// A file that is part of this crate is wrong.
    #[must_use]
    pub fn built_in(name: &str) -> Option<Self> {
        Self::all_built_in().find(|peer| peer.name == name)
    }

    /// The one that the lab knows by this name for `protocol`: `envoy` is `envoy-http2` in front of HTTP/2. If none speaks it,
    /// the one of that very name.
    ///
    /// # Panics
    /// A file that is part of this crate is wrong.
    #[must_use]
    pub fn built_in_for(name: &str, protocol: &str) -> Option<Self> {
        let names = [name.to_owned(), format!("{name}-{protocol}"), format!("{name}-http")];
        let found = Self::all_built_in().find(|peer| names.contains(&peer.name) && peer.speaks(protocol));
        found.or_else(|| Self::built_in(name))
    }

    /// Those that the lab knows.
    ///
    /// # Panics
    /// A file that is part of this crate is wrong.
    pub fn all_built_in() -> impl Iterator<Item = Self> {
        built_in_texts().map(|text| Self::of_built_in(&text))
    }

    /// The file of one of those that the lab knows: a pattern for others.
    #[must_use]
    pub fn built_in_text(name: &str) -> Option<String> {
        built_in_texts().find(|text| Self::of_built_in(text).name == name)
    }

    fn of_built_in(text: &str) -> Self {
        Self::parse("built-in peer", text).expect("a right file")
    }

    /// Reads a user's file.
    ///
    /// # Errors
    /// It cannot be read, or is wrong; with file and line.
    pub fn read(path: &Path) -> Result<Self> {
        let shown = path.display();
        let length = std::fs::metadata(path).with_context(|| shown.to_string())?.len();
        ensure!(length <= FILE_BYTES_MAX, "{shown}: more than {FILE_BYTES_MAX} bytes; a peer is a small file");
        Self::parse(&shown.to_string(), &std::fs::read_to_string(path).with_context(|| shown.to_string())?)
    }

    /// Reads the text of a file; `file` stands in messages.
    ///
    /// # Errors
    /// No TOML, an unknown or missing key, or something that could not work.
    pub fn parse(file: &str, text: &str) -> Result<Self> {
        let peer: Self = toml::from_str(text).map_err(|error| {
            let line = error.span().map_or(1, |span| 1 + text[..span.start].matches('\n').count());
            anyhow::anyhow!("{file}:{line}: {}", error.message())
        })?;
        let is_name = |name: &str| !name.is_empty() && name.len() <= 32 && name.bytes().all(is_of_a_name);
        ensure!(is_name(&peer.name), "{file}: `name` has 1 to 32 of a-z, 0-9 and -");
        ensure!(peer.name != DIRECT, "{file}: `{DIRECT}` is the arm without a gateway; choose another `name`");
        ensure!(!peer.program.is_empty(), "{file}: `program` is empty; write the name of the program, or its path");
        ensure!(!peer.protocols.is_empty(), "{file}: `protocols` is empty; write [\"redis\"]");
        for argument in &peer.arguments {
            if let Some(word) = words_of(argument).find(|word| !WORDS.contains(word)) {
                bail!("{file}: `arguments` has {word}, which is not filled in; there are {}", WORDS.join(" "));
            }
        }
        let config = peer.config.as_ref();
        let is_named = |word: &str| {
            peer.arguments.iter().any(|argument| argument.contains(word))
                || config.is_some_and(|config| config.text.contains(word))
        };
        ensure!(
            is_named("{port}"),
            "{file}: neither `arguments` nor `config.text` has {{port}}, where clients connect"
        );
        if let Some(config) = config {
            let is_plain = Path::new(&config.file).file_name() == Some(config.file.as_ref());
            ensure!(is_plain, "{file}: `config.file` is a name without folders");
            let is_given = peer.arguments.iter().any(|argument| argument.contains("{config}"));
            ensure!(is_given, "{file}: `arguments` do not give {{config}} to the program");
            let is_circular = config.text.contains("{config}");
            ensure!(!is_circular, "{file}: `config.text` has {{config}}, its own path; only `arguments` know it");
        }
        Ok(peer)
    }

    /// The program, if it is on this machine.
    #[must_use]
    pub fn find(&self) -> Option<PathBuf> {
        if self.program.contains('/') {
            return Some(PathBuf::from(&self.program)).filter(|file| file.is_file());
        }
        find_program(&self.program)
    }

    /// Starts it on free ports and waits until it takes connections. Its files are in `folder`.
    ///
    /// # Errors
    /// It is not installed (with how to get it), does not start (with its last words), or cannot be what is asked.
    pub fn start(&self, setting: &Setting<'_>, folder: &Path) -> Result<Running> {
        let name = &self.name;
        if let Some(most) = self.workers_max.filter(|most| *most < setting.workers) {
            bail!("{name} has at most {most} threads that carry load, and {} were asked for", setting.workers);
        }
        let program = setting.program.map(Path::to_owned).or_else(|| self.find());
        let program = program.with_context(|| format!("{} is not installed: {}", self.program, self.install))?;
        let port = free_port()?;
        let mut filled = Filled::new(setting, port)?;
        // As results tell it: where a file of this run lay helps nobody.
        let mut named = filled.clone();
        named.words.push(("{folder}", ".".to_owned()));
        filled.words.push(("{folder}", folder.to_string_lossy().into_owned()));
        let config = match &self.config {
            None => String::new(),
            Some(Config { file, text }) => {
                let shown = named.fill(text.trim_start()).with_context(|| name.clone())?;
                let text = filled.fill(text.trim_start()).with_context(|| name.clone())?;
                let file = format!("{name}-{file}");
                let path = folder.join(&file);
                named.words.push(("{config}", file));
                std::fs::write(&path, &text).with_context(|| path.display().to_string())?;
                filled.words.push(("{config}", path.to_string_lossy().into_owned()));
                shown
            }
        };
        let all =
            |filled: &Filled| self.arguments.iter().map(|argument| filled.fill(argument)).collect::<Result<Vec<_>>>();
        let (arguments, shown) = (all(&filled)?, all(&named)?);
        let command = format!("{} {}", self.program, shown.join(" "));
        let words = [program.clone().into_os_string()].into_iter().chain(arguments.into_iter().map(OsString::from));
        // Without one the CPU time comes from the threads of the process.
        let cgroup = match Group::create(name, setting.share) {
            Err(error) if setting.share.is_some() => return Err(error),
            made => made.ok(),
        };
        let launch = Launch { cgroup, ..Launch::new(name, setting.cpus, words) };
        let mut process = Process::start(launch, folder)?;
        process.wait_for_port(port)?;
        let version = self.version_of(&program);
        Ok(Running { name: name.clone(), process, share: setting.share, port, version, command, config })
    }

    fn version_of(&self, program: &Path) -> String {
        if self.version.is_empty() {
            return VERSION_UNKNOWN.to_owned();
        }
        let line = version_line(program, &self.version);
        // Some repeat their path in front, which says nothing.
        match line.split_once("version: ") {
            Some((path, rest)) if path.contains('/') => rest.to_owned(),
            _ => line,
        }
    }
}

fn built_in_texts() -> impl Iterator<Item = String> {
    weir_texts().chain(OTHERS.iter().copied().map(str::to_owned))
}

/// The gateway of this project, first with Redis: those of the other families have the same names.
fn weir_texts() -> impl Iterator<Item = String> {
    WEIR.iter().flat_map(|family| Telemetry::ALL.into_iter().map(|telemetry| telemetry.text(family)))
}

/// A program on the PATH, in the active Python environment, or where Debian keeps servers.
#[must_use]
pub fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let environment = std::env::var_os("VIRTUAL_ENV").map(|folder| PathBuf::from(folder).join("bin"));
    let servers = [PathBuf::from("/usr/sbin"), PathBuf::from("/usr/local/sbin")];
    let folders = std::env::split_paths(&path).chain(environment).chain(servers);
    folders.map(|folder| folder.join(name)).find(|file| file.is_file())
}

/// The first line that a program prints about itself, on either stream. One that does not end within seconds, because it
/// takes the question for an order to serve, is ended.
#[must_use]
pub fn version_line<W: AsRef<OsStr>>(program: impl AsRef<OsStr>, arguments: &[W]) -> String {
    let mut command = Command::new("timeout");
    command.args(["--signal=KILL", VERSION_SECONDS]).arg(program.as_ref()).args(arguments).stdin(Stdio::null());
    let text = command.output().map(|output| [output.stdout, output.stderr].concat()).unwrap_or_default();
    let text = String::from_utf8_lossy(&text).into_owned();
    let line = text.lines().map(str::trim).find(|line| !line.is_empty());
    line.unwrap_or(VERSION_UNKNOWN).to_owned()
}

/// What the words become.
#[derive(Clone)]
struct Filled {
    words: Vec<(&'static str, String)>,
}

impl Filled {
    fn new(setting: &Setting<'_>, port: u16) -> Result<Self> {
        let mut words = vec![
            ("{port}", port.to_string()),
            ("{admin_port}", free_port()?.to_string()),
            ("{origin}", setting.origin.to_owned()),
            ("{workers}", setting.workers.to_string()),
            ("{connections}", setting.connections.to_string()),
        ];
        let parts = setting.origin.rsplit_once(':').filter(|(scheme, _)| *scheme != "unix");
        if let Some((host, port)) = parts {
            let host = host.trim_start_matches('[').trim_end_matches(']');
            words.extend([("{origin_host}", host.to_owned()), ("{origin_port}", port.to_owned())]);
        }
        Ok(Self { words })
    }

    fn fill(&self, text: &str) -> Result<String> {
        let filled = self.words.iter().fold(text.to_owned(), |text, (word, value)| text.replace(word, value));
        match WORDS.iter().find(|word| filled.contains(**word)) {
            Some(word) => bail!("nothing can stand for {word} here: is what stands behind a Unix socket?"),
            None => Ok(filled),
        }
    }
}

/// Parts that look like words to be filled in: `{name}`.
fn words_of(text: &str) -> impl Iterator<Item = &str> {
    text.match_indices('{').filter_map(move |(at, _)| {
        let length = text[at..].find('}')?;
        let is_word = text[at + 1..at + length].bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
        is_word.then(|| &text[at..=at + length])
    })
}

fn is_of_a_name(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-'
}

#[cfg(test)]
mod tests {
    use super::*;

    const ECHO: &str = r#"
name = "echo"
protocols = ["redis"]
program = "echo"
install = "it is everywhere"
arguments = ["{port}", "{origin}"]
"#;

    fn refusal(text: &str) -> String {
        format!("{:#}", Peer::parse("echo.toml", text).expect_err(text))
    }

    #[test]
    fn the_built_in_peers_are_right_and_have_names_of_their_own() {
        let names: Vec<String> = Peer::all_built_in().map(|peer| peer.name).collect();
        let ours = Telemetry::ALL.map(Telemetry::peer_name);
        let (weir, others) = names.split_at(ours.len() * WEIR.len());
        assert!(weir.chunks(ours.len()).all(|family| family == ours), "{weir:?}");
        assert!(others.is_sorted_by(|one, next| one < next), "a name twice, or out of order: {others:?}");
        assert!(others.len() >= 11 && !others.contains(&"nginx-origin".to_owned()), "{others:?}");
        for protocol in ["redis", "http1", "http2", "websocket", "tcp"] {
            let ours = Peer::weir(Telemetry::Off, protocol).expect("it speaks it");
            assert!(ours.is_weir() && ours.speaks(protocol));
            for name in ["envoy", "haproxy"] {
                let peer = Peer::built_in_for(name, protocol).expect("it is there");
                assert!(peer.speaks(protocol) && peer.name.starts_with(name) && !peer.is_weir(), "{name} {protocol}");
            }
        }
        assert_eq!(Peer::nginx_origin().name, "nginx-origin");
        let name = |name, protocol| Peer::built_in_for(name, protocol).map(|peer| peer.name);
        assert_eq!(name("nginx", "websocket").as_deref(), Some("nginx-websocket"));
        assert_eq!(name("envoy", "websocket").as_deref(), Some("envoy-http"));
        assert_eq!(name("nginx", "redis").as_deref(), Some("nginx"), "so that it can be told what it does not speak");
        assert_eq!((Peer::weir(Telemetry::On, "smtp"), name("caddy", "http1")), (None, None));
        let text = Peer::built_in_text("weir-capture-all").expect("it is there");
        assert!(text.contains("sample = 1.0"), "{text}");
        assert_eq!(Peer::built_in("caddy"), None);
    }

    #[test]
    fn a_wrong_file_is_refused_with_its_line_or_key() {
        assert!(Peer::parse("echo.toml", ECHO).is_ok());
        assert!(refusal(&format!("{ECHO}colour = 1\n")).starts_with("echo.toml:7: unknown field `colour`"));
        assert!(refusal("name = ").starts_with("echo.toml:1: "));
        for (from, to, part) in [
            ("\"echo\"\np", "\"Echo!\"\np", "`name` has"),
            ("\"echo\"\np", "\"direct\"\np", "without a gateway"),
            ("{port}", "6379", "where clients connect"),
            ("{origin}", "{upstream}", "{upstream}, which is not filled in"),
            ("[\"redis\"]", "[]", "`protocols` is empty"),
        ] {
            let text = ECHO.replacen(from, to, 1);
            assert_ne!(text, ECHO, "{from}");
            assert!(refusal(&text).contains(part), "{part}: {}", refusal(&text));
        }
        let ungiven = format!("{ECHO}[config]\nfile = \"x\"\ntext = \"\"\n");
        assert!(refusal(&ungiven).contains("do not give {config}"));
        let circular =
            ungiven.replace("{port}\",", "{port}\", \"{config}\",").replace("text = \"\"", "text = \"{config}\"");
        assert!(refusal(&circular).contains("its own path"));
        let elsewhere = ungiven.replace("{port}\",", "{port}\", \"{config}\",").replace("\"x\"", "\"../x\"");
        assert!(refusal(&elsewhere).contains("without folders"));
    }

    #[test]
    fn words_are_filled_in_and_braces_of_the_format_stay() {
        let setting =
            Setting { origin: "[::1]:6379", workers: 2, connections: 50, cpus: None, share: None, program: None };
        let filled = Filled::new(&setting, 7_000).expect("free ports");
        let text = filled.fill("{ port: {port} } {origin_host} {origin_port} {workers} {connections} {origin}");
        assert_eq!(text.expect("all known"), "{ port: 7000 } ::1 6379 2 50 [::1]:6379");
        let unix = Filled::new(&Setting { origin: "unix:/run/x", ..setting }, 7_000).expect("free ports");
        assert_eq!(unix.fill("{origin}").expect("known"), "unix:/run/x");
        assert!(unix.fill("{origin_port}").is_err());
    }

    #[test]
    fn what_is_not_there_is_named_with_how_to_get_it() {
        let folder = std::env::temp_dir();
        let setting =
            Setting { origin: "127.0.0.1:1", workers: 1, connections: 1, cpus: None, share: None, program: None };
        let absent =
            Peer::parse("x", &ECHO.replace("program = \"echo\"", "program = \"no-such-gateway\"")).expect("right");
        let told = |peer: &Peer, setting| peer.start(setting, &folder).map(|_| ()).expect_err("it cannot").to_string();
        assert_eq!(told(&absent, &setting), "no-such-gateway is not installed: it is everywhere");
        let single = Peer { workers_max: Some(1), ..absent };
        assert!(told(&single, &Setting { workers: 2, ..setting }).contains("at most 1 threads"));
    }
}
