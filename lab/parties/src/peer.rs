//! Gateways that can be measured, each described by a small TOML file: how it is found, configured and started.
//!
//! The built-in ones are such files too (`lab/parties/src/peers`), so they are the examples for a user's own. In
//! `arguments` and in the text of the configuration these words are filled in:
//!
//! | word | becomes |
//! |---|---|
//! | `{port}` | the port on 127.0.0.1 that clients will connect to |
//! | `{admin_port}` | another free port |
//! | `{origin}` | the server behind, as `host:port` |
//! | `{origin_host}`, `{origin_port}` | its two parts |
//! | `{workers}` | threads that carry load |
//! | `{connections}` | client connections that must fit |
//! | `{path}` | target of an HTTP request |
//! | `{folder}` | a folder for what it writes; others write there too |
//! | `{certificate}`, `{key}`, `{certificate_and_key}` | files of PEM that the lab makes where clients speak TLS |
//! | `{user}`, `{verifier}` | the user of clients of PostgreSQL, and the SCRAM verifier of its password |
//! | `{config}` | path of the configuration file; in `arguments` only |
//!
//! `{each origin}...{end}` stands once for each of what stands behind, and `{each route}...{end}` once for each of
//! 100 paths, the last of which is `{path}`: see [`Change`].

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::getuid;
use serde::Deserialize;

use crate::certificate;
use crate::cgroup::Group;
use crate::place::free_port;
use crate::process::{Launch, Process};
use crate::words::{Words, check_known};

mod built_in;

pub use built_in::Telemetry;

/// Name of the arm without a gateway, which no peer may have.
pub const DIRECT: &str = "direct";

/// Bytes of the file of a peer, or of a load program. 64 KiB: a configuration for one listener is far smaller.
pub const FILE_BYTES_MAX: u64 = 64 * 1024;

const VERSION_UNKNOWN: &str = "version unknown";
/// How long a program may take to tell its version.
const VERSION_SECONDS: &str = "5";

/// The program of this project.
const WEIR_PROGRAM: &str = "weir";
/// Paths of [`Change::Routes`].
const ROUTES: usize = 100;

const WORDS: [&str; 15] = [
    "{port}",
    "{admin_port}",
    "{origin}",
    "{origin_host}",
    "{origin_port}",
    "{workers}",
    "{connections}",
    "{path}",
    "{folder}",
    "{user}",
    "{verifier}",
    certificate::CERTIFICATE.0,
    certificate::KEY.0,
    certificate::BOTH.0,
    "{config}",
];

/// A property that every gateway of a comparison gets in addition to its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Clients speak TLS.
    Tls,
    /// 100 routes, of which the one that is requested comes last, and a line of the access log for every request.
    Routes,
    /// Clients log in with a password, which the gateway checks by SCRAM-SHA-256.
    Scram,
}

impl Change {
    /// As files and the command line call it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tls => "tls",
            Self::Routes => "routes",
            Self::Scram => "scram",
        }
    }
}

/// A gateway that can be started.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Peer {
    /// As tables call it: small letters, digits, `-`.
    pub name: String,
    /// Its protocols, in the words of scenarios: `redis`, `http1` and so on.
    pub protocols: Vec<String>,
    /// Name of the program, or a path to it.
    pub program: String,
    /// How to install it.
    pub install: String,
    /// Most threads that it can carry load with; absent: as many as configured.
    pub workers_max: Option<u32>,
    /// Arguments of the command that starts it in the foreground.
    pub arguments: Vec<String>,
    /// More of them where the lab runs as root: some programs then want the name of another user.
    #[serde(default)]
    pub root_arguments: Vec<String>,
    /// Variables of its environment, besides those of the lab.
    #[serde(default)]
    pub environment: BTreeMap<String, String>,
    /// Arguments with which it tells its version; empty: it cannot.
    #[serde(default)]
    pub version: Vec<String>,
    /// It may respond to a request by itself, so that what stands behind counts fewer.
    #[serde(default)]
    pub answers_itself: bool,
    /// Header lines that every request of HTTP to it must have: for gateways that are configured so.
    #[serde(default)]
    pub fields: Vec<String>,
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
    /// With [`Change::Tls`], what stands in the text and what takes its place; empty: it cannot.
    #[serde(default)]
    pub tls: Vec<[String; 2]>,
    /// The same with [`Change::Routes`].
    #[serde(default)]
    pub routes: Vec<[String; 2]>,
    /// The same with [`Change::Scram`].
    #[serde(default)]
    pub scram: Vec<[String; 2]>,
    /// Further files beside it: `{folder}/NAME-FILE`.
    #[serde(default)]
    pub more: Vec<MoreConfig>,
}

/// A further file of a configuration.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MoreConfig {
    /// Its name, behind the peer's and a dash.
    pub file: String,
    /// Its text.
    pub text: String,
}

impl Config {
    fn edits(&self, change: Change) -> &[[String; 2]] {
        match change {
            Change::Tls => &self.tls,
            Change::Routes => &self.routes,
            Change::Scram => &self.scram,
        }
    }
}

/// The settings of one instance.
#[derive(Clone, Copy, Debug)]
pub struct Setting<'a> {
    /// Upstream servers, at least one: `host:port`, or `unix:/path` for gateways that can connect to it.
    pub origins: &'a [String],
    /// Threads that carry load.
    pub workers: u32,
    /// Client connections that must fit.
    pub connections: u32,
    /// The target of a request of HTTP.
    pub path: &'a str,
    /// CPUs as `taskset -c` reads them; `None`: wherever the scheduler likes.
    pub cpus: Option<&'a str>,
    /// Share of one CPU, 0.1 to 1; `None`: all of its CPUs.
    pub share: Option<f64>,
    /// The program; `None`: it is looked for.
    pub program: Option<&'a Path>,
    /// How clients of PostgreSQL log in; `None`: without a password.
    pub login: Option<Login<'a>>,
}

/// A user that has a password.
#[derive(Clone, Copy, Debug)]
pub struct Login<'a> {
    /// Its name.
    pub user: &'a str,
    /// The SCRAM verifier of the password.
    pub verifier: &'a str,
}

/// A peer that runs. Dropped, it ends.
pub struct Running {
    /// The peer's name.
    pub name: String,
    /// Its first process.
    pub process: Process,
    /// Share of one CPU that it may use; `None`: all of its CPUs.
    pub share: Option<f64>,
    /// On 127.0.0.1, for clients.
    pub port: u16,
    /// As [`Peer::answers_itself`].
    pub answers_itself: bool,
    /// As [`Peer::fields`], filled in.
    pub fields: Vec<String>,
    /// The first line that it tells of itself.
    pub version: String,
    /// The command that started it.
    pub command: String,
    /// The configuration as it was written, except the folder, which is `.` here; empty without one.
    pub config: String,
}

impl Peer {
    /// Whether its program is the one of this project.
    #[must_use]
    pub fn is_weir(&self) -> bool {
        self.program == WEIR_PROGRAM
    }

    /// Whether it may carry a load of `protocol`.
    #[must_use]
    pub fn speaks(&self, protocol: &str) -> bool {
        self.protocols.iter().any(|spoken| spoken == protocol)
    }

    /// Reads a user's file.
    ///
    /// # Errors
    /// It cannot be read, or is wrong; with file and line.
    pub fn read(path: &Path) -> Result<Self> {
        Self::parse(&path.display().to_string(), &read_small(path)?)
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
        check_known(file, &peer.arguments, &WORDS)?;
        check_known(file, &peer.root_arguments, &WORDS)?;
        check_known(file, &peer.fields, &WORDS)?;
        check_known(file, &peer.environment.values().cloned().collect::<Vec<_>>(), &WORDS)?;
        let is_line = |line: &String| line.contains(": ") && line.bytes().all(|byte| (b' '..=b'~').contains(&byte));
        ensure!(peer.fields.iter().all(is_line), "{file}: `fields` are header lines: [\"x-name: value\"]");
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
            for name in config.more.iter().map(|more| &more.file).chain([&config.file]) {
                let is_plain = Path::new(name).file_name() == Some(name.as_ref());
                ensure!(is_plain, "{file}: `config.file` is a name without folders");
            }
            let is_given = peer.arguments.iter().any(|argument| argument.contains("{config}"));
            ensure!(is_given, "{file}: `arguments` do not give {{config}} to the program");
            let is_circular = config.text.contains("{config}");
            ensure!(!is_circular, "{file}: `config.text` has {{config}}, its own path; only `arguments` know it");
            for (key, edits) in [("tls", &config.tls), ("routes", &config.routes), ("scram", &config.scram)] {
                for [old, _] in edits {
                    let count = config.text.matches(&**old).count();
                    ensure!(
                        count == 1,
                        "{file}: `config.{key}` changes {old:?}, which `config.text` has {count} times"
                    );
                }
            }
        }
        Ok(peer)
    }

    /// The same with a change in its configuration.
    ///
    /// # Errors
    /// Its file does not say how.
    pub fn changed(mut self, change: Change) -> Result<Self> {
        let (name, key) = (&self.name, change.name());
        let config = self.config.as_mut().filter(|config| !config.edits(change).is_empty());
        let config = config.with_context(|| format!("{name} cannot be compared so: its file has no `config.{key}`"))?;
        for [old, new] in config.edits(change).to_vec() {
            // Another change may have taken it away.
            ensure!(
                config.text.contains(&*old),
                "{name}: `config.{key}` changes {old:?}, which another change took away"
            );
            config.text = config.text.replace(&*old, &new);
        }
        Ok(self)
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
    /// It is not installed (with how to get it), does not start (with its last words), or cannot be configured so.
    pub fn start(&self, setting: &Setting<'_>, folder: &Path) -> Result<Running> {
        let name = &self.name;
        if let Some(most) = self.workers_max.filter(|most| *most < setting.workers) {
            bail!("{name} has at most {most} threads that carry load, and {} were requested", setting.workers);
        }
        let program = setting.program.map(Path::to_owned).or_else(|| self.find());
        let program = program.with_context(|| format!("{} is not installed: {}", self.program, self.install))?;
        let port = free_port()?;
        let mut filled = setting.words(port)?;
        // As printed in results, without the path of this run's folder, which would be of no use there.
        let mut named = filled.clone();
        named.add("{folder}", ".");
        filled.add("{folder}", folder.to_string_lossy());
        let config = match &self.config {
            None => String::new(),
            Some(Config { file, text, more, .. }) => {
                for MoreConfig { file, text } in more {
                    let text = filled.fill(text.trim_start(), &WORDS).with_context(|| name.clone())?;
                    let path = folder.join(format!("{name}-{file}"));
                    // It may hold a secret, and gateways refuse one that others can read.
                    let mut options = std::fs::OpenOptions::new();
                    let file = options.write(true).create(true).truncate(true).mode(0o600).open(&path);
                    let written = file.and_then(|mut file| file.write_all(text.as_bytes()));
                    written.with_context(|| path.display().to_string())?;
                }
                let shown = named.fill(text.trim_start(), &WORDS).with_context(|| name.clone())?;
                let text = filled.fill(text.trim_start(), &WORDS).with_context(|| name.clone())?;
                let file = format!("{name}-{file}");
                let path = folder.join(&file);
                named.add("{config}", file);
                std::fs::write(&path, &text).with_context(|| path.display().to_string())?;
                filled.add("{config}", path.to_string_lossy());
                shown
            }
        };
        let all = |words: &Words| {
            let more = if getuid().is_root() { &self.root_arguments[..] } else { &[] };
            self.arguments.iter().chain(more).map(|argument| words.fill(argument, &WORDS)).collect::<Result<Vec<_>>>()
        };
        let (arguments, shown) = (all(&filled)?, all(&named)?);
        let command = format!("{} {}", self.program, shown.join(" "));
        let fields = self.fields.iter().map(|field| filled.fill(field, &WORDS)).collect::<Result<Vec<_>>>()?;
        let words = [program.clone().into_os_string()].into_iter().chain(arguments.into_iter().map(OsString::from));
        let variable = |(name, value): (&String, &String)| Ok((name.clone(), filled.fill(value, &WORDS)?.into()));
        let environment = self.environment.iter().map(variable).collect::<Result<Vec<_>>>()?;
        // Without one the CPU time comes from the threads of the process.
        let cgroup = match Group::create(name, setting.share) {
            Err(error) if setting.share.is_some() => return Err(error),
            made => made.ok(),
        };
        let launch = Launch { cgroup, environment, ..Launch::new(name, setting.cpus, words) };
        let mut process = Process::start(launch, folder)?;
        process.wait_for_port(port)?;
        let version = self.version_of(&program);
        Ok(Running {
            name: name.clone(),
            process,
            share: setting.share,
            port,
            answers_itself: self.answers_itself,
            fields,
            version,
            command,
            config,
        })
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

impl Setting<'_> {
    /// Values of its words, except files. `{folder}` may occur in them.
    fn words(&self, port: u16) -> Result<Words> {
        let mut words = Words::of_origin(self.origins.first().context("nothing stands behind")?);
        words.add("{port}", port.to_string());
        words.add("{admin_port}", free_port()?.to_string());
        words.add("{workers}", self.workers.to_string());
        words.add("{user}", self.login.map_or("postgres", |login| login.user));
        words.add("{verifier}", self.login.map_or("", |login| login.verifier));
        words.add("{connections}", self.connections.to_string());
        for (word, file) in [certificate::CERTIFICATE, certificate::KEY, certificate::BOTH] {
            words.add(word, format!("{{folder}}/{file}"));
        }
        words.add_list("origin", self.origins.iter().map(|origin| Words::of_origin(origin)).collect());
        let others = (1..ROUTES).map(|number| format!("/service-{number}"));
        let route = |(number, path): (usize, String)| {
            let mut words = Words::default();
            words.add("{route}", path);
            words.add("{number}", number.to_string());
            words
        };
        words.add_list("route", others.chain([self.path.to_owned()]).enumerate().map(route).collect());
        words.add("{path}", self.path);
        Ok(words)
    }
}

/// A user's file that describes a program.
pub(crate) fn read_small(path: &Path) -> Result<String> {
    let shown = path.display();
    let length = std::fs::metadata(path).with_context(|| shown.to_string())?.len();
    ensure!(
        length <= FILE_BYTES_MAX,
        "{shown}: more than {FILE_BYTES_MAX} bytes; the description of a program is a small file"
    );
    std::fs::read_to_string(path).with_context(|| shown.to_string())
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
        let ours = ["weir", "weir-telemetry-off", "weir-capture-all", "weir-polling"];
        // Redis, AI, flags, HTTP, MongoDB, PostgreSQL, TCP.
        let ours = [&ours[..], &["weir-cache"], &ours, &ours, &ours, &ours, &ours, &ours].concat();
        let (weir, others) = names.split_at(ours.len());
        assert_eq!(weir, ours);
        assert!(others.is_sorted_by(|one, next| one < next), "a name twice, or out of order: {others:?}");
        assert!(others.len() >= 15 && !others.contains(&"nginx-origin".to_owned()), "{others:?}");
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
            ("install = ", "fields = [\"no colon\"]\ninstall = ", "`fields` are header lines"),
            ("install = ", "fields = [\"x: {what}\"]\ninstall = ", "{what}, which is not filled in"),
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
    fn a_change_is_made_as_the_file_says_or_refused() {
        let text = ECHO.replace("{port}\"", "{port}\", \"{config}\"")
            + "[config]\nfile = \"x\"\ntext = \"bind\"\ntls = [[\"bind\", \"bind {certificate}\"]]\n";
        let peer = Peer::parse("echo.toml", &text).expect("right");
        let changed = peer.clone().changed(Change::Tls).expect("it says how");
        assert_eq!(changed.config.expect("a configuration").text, "bind {certificate}");
        let refusal = peer.changed(Change::Routes).expect_err("it does not").to_string();
        assert_eq!(refusal, "echo cannot be compared so: its file has no `config.routes`");
        let wrong = Peer::parse("echo.toml", &text.replace("[\"bind\"", "[\"listen\"")).expect_err("not in the text");
        assert!(wrong.to_string().contains("`config.tls` changes \"listen\""), "{wrong}");
    }

    #[test]
    fn missing_tools_are_named_with_how_to_get_them() {
        let folder = std::env::temp_dir();
        let setting = Setting {
            origins: &["127.0.0.1:1".to_owned()],
            workers: 1,
            connections: 1,
            path: "/",
            cpus: None,
            share: None,
            program: None,
            login: None,
        };
        let absent =
            Peer::parse("x", &ECHO.replace("program = \"echo\"", "program = \"no-such-gateway\"")).expect("right");
        let told = |peer: &Peer, setting| peer.start(setting, &folder).map(|_| ()).expect_err("it cannot").to_string();
        assert_eq!(told(&absent, &setting), "no-such-gateway is not installed: it is everywhere");
        let single = Peer { workers_max: Some(1), ..absent };
        assert!(told(&single, &Setting { workers: 2, ..setting }).contains("at most 1 threads"));
    }
}
