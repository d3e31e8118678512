//! Load programs of others, each described by a small TOML file: how it is found and started, and how its output is read.
//!
//! In `arguments` these words are filled in:
//!
//! | word | becomes |
//! |---|---|
//! | `{host}`, `{port}` | where it connects |
//! | `{scheme}` | `http`, or `https` where clients speak TLS |
//! | `{connections}` | all of its connections |
//! | `{pipeline}`, `{streams}` | requests under way on each of them |
//! | `{shards}` | its threads |
//! | `{seconds}` | the length of a run, or |
//! | `{requests}` | how many requests it has |
//! | `{payload}` | bytes of a value, or of the body of a response |
//! | `{path}`, `{name}` | target of an HTTP request, and its host |
//! | `{command}`, `{keys}` | which command of a mix, and how many keys there are |
//! | `{user}`, `{database}` | the login of PostgreSQL |
//! | `{query}`, `{script}` | `simple`, `extended` or `prepared`; `select-only` or `tpcb-like` |
//! | `{sslmode}` | `disable`, or `require` where clients speak TLS |
//! | `{password}` | in `environment` only: of the login of PostgreSQL |
//!
//! A setting of the scenario that no word names must have its simplest value; the start of the program checks that. For the
//! parsing of the output see [`output`].

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;

use crate::interrupt;
use crate::peer::{find_program, read_small, version_line};
use crate::process::{Launch, Process};
use crate::words::{Words, check_known};

pub mod output;

pub use output::{LoadFigures, Output};

macro_rules! loads {
    ($($name:literal),+ $(,)?) => { &[$(include_str!(concat!("loads/", $name, ".toml"))),+] };
}

/// Those that the lab knows.
const ALL: &[&str] = loads!["wrk", "h2load", "redis-benchmark", "pgbench"];

const WORDS: [&str; 19] = [
    "{host}",
    "{port}",
    "{scheme}",
    "{connections}",
    "{pipeline}",
    "{streams}",
    "{shards}",
    "{seconds}",
    "{requests}",
    "{payload}",
    "{path}",
    "{name}",
    "{command}",
    "{keys}",
    "{user}",
    "{database}",
    "{query}",
    "{script}",
    "{sslmode}",
];

/// Words of the environment. A command is shown, and a password is not.
const SECRET_WORDS: [&str; 1] = [PASSWORD];
const PASSWORD: &str = "{password}";

/// Pause between two looks at a program that runs: its end must be seen at once, because CPU time is read then.
const LOOK: Duration = Duration::from_millis(5);

/// A load program.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Load {
    /// As the command line calls it.
    pub name: String,
    /// Its protocols, in the words of scenarios.
    pub protocols: Vec<String>,
    /// Name of the program.
    pub program: String,
    /// How to install it.
    pub install: String,
    /// Arguments with which it tells its version.
    pub version: Vec<String>,
    /// Arguments of every run.
    pub arguments: Vec<String>,
    /// More of them where clients speak TLS; absent: it does not.
    pub tls: Option<Vec<String>>,
    /// More of them where each request has a connection of its own; absent: it cannot.
    pub churn: Option<Vec<String>>,
    /// Variables of its environment.
    #[serde(default)]
    pub environment: BTreeMap<String, String>,
    /// By the word of a scenario, what `{command}` becomes.
    #[serde(default)]
    pub commands: BTreeMap<String, String>,
    /// The keys that it asks for; absent: it has none.
    pub keys: Option<Keys>,
    /// How its output is read.
    pub output: Output,
}

/// Names of keys: a prefix, and a number with leading zeros.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Keys {
    /// In front of the number.
    pub prefix: String,
    /// Digits of the number in the name of a key.
    pub digits: usize,
}

/// The settings of one run.
#[derive(Clone, Debug)]
pub struct Run<'a> {
    /// Where it connects.
    pub host: &'a str,
    /// As `host`.
    pub port: &'a str,
    /// In TLS.
    pub is_tls: bool,
    /// A connection for each request.
    pub is_churn: bool,
    /// All of its connections.
    pub connections: u32,
    /// Requests under way on each.
    pub pipeline: u32,
    /// Its threads.
    pub shards: u32,
    /// How long it takes.
    pub length: Length,
    /// Bytes of a value, or of the body of a response.
    pub payload: usize,
    /// The target of a request of HTTP.
    pub path: &'a str,
    /// Name of the program.
    pub name: &'a str,
    /// As the file has it.
    pub command: &'a str,
    /// How many there are.
    pub keys: u64,
    /// The user of PostgreSQL.
    pub user: &'a str,
    /// Its database.
    pub database: &'a str,
    /// How a statement is sent to it.
    pub query: &'a str,
    /// The statements of a request.
    pub script: &'a str,
    /// The password of the user; `None`: there is none.
    pub password: Option<&'a [u8]>,
}

/// The reason why a run ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Length {
    /// Whole seconds.
    Seconds(u64),
    /// Requests.
    Requests(u64),
}

impl Load {
    /// One of those that the lab knows, or that of a user's file, whose name ends in `.toml`.
    ///
    /// # Errors
    /// It knows no such one; the file cannot be read, or is wrong.
    pub fn named(name: &str) -> Result<Self> {
        if name.ends_with(".toml") {
            return Self::parse(name, &read_small(Path::new(name))?);
        }
        let found = Self::all().find(|load| load.name == name);
        found.with_context(|| {
            let names: Vec<String> = Self::all().map(|load| load.name).collect();
            format!("no load program `{name}`; there are {}, or a file that ends in .toml", names.join(", "))
        })
    }

    /// Those that the lab knows.
    ///
    /// # Panics
    /// A file that is part of this crate is wrong.
    pub fn all() -> impl Iterator<Item = Self> {
        ALL.iter().map(|text| Self::parse("built-in load program", text).expect("a right file"))
    }

    /// Reads the text of a file; `file` stands in messages.
    ///
    /// # Errors
    /// No TOML, an unknown or missing key, or something that could not work.
    pub fn parse(file: &str, text: &str) -> Result<Self> {
        let load: Self = toml::from_str(text).map_err(|error| {
            let line = error.span().map_or(1, |span| 1 + text[..span.start].matches('\n').count());
            anyhow::anyhow!("{file}:{line}: {}", error.message())
        })?;
        ensure!(!load.protocols.is_empty(), "{file}: `protocols` is empty; write [\"http1\"]");
        check_known(file, &load.arguments, &WORDS)?;
        for more in [&load.tls, &load.churn] {
            check_known(file, more.as_deref().unwrap_or_default(), &WORDS)?;
        }
        let values: Vec<String> = load.environment.values().cloned().collect();
        check_known(file, &values, &SECRET_WORDS)?;
        for word in ["{port}", "{connections}"] {
            ensure!(load.has(word), "{file}: `arguments` lack {word}");
        }
        ensure!(
            load.has("{seconds}") != load.has("{requests}"),
            "{file}: `arguments` have either {{seconds}} or {{requests}}, which end a run"
        );
        load.output.check(file)?;
        Ok(load)
    }

    /// Whether its arguments name a word.
    #[must_use]
    pub fn has(&self, word: &str) -> bool {
        self.arguments.iter().any(|argument| argument.contains(word))
    }

    /// Whether it logs in with a password.
    #[must_use]
    pub fn has_password(&self) -> bool {
        self.environment.values().any(|value| value.contains(PASSWORD))
    }

    /// Whether a run ends after so many requests, and not after so many seconds.
    #[must_use]
    pub fn counts_requests(&self) -> bool {
        self.has("{requests}")
    }

    /// The program.
    ///
    /// # Errors
    /// It is not installed; with how to get it.
    pub fn find(&self) -> Result<PathBuf> {
        find_program(&self.program).with_context(|| format!("{} is not installed: {}", self.program, self.install))
    }

    /// The first line that it tells of itself.
    #[must_use]
    pub fn version(&self) -> String {
        version_line(&self.program, &self.version)
    }

    /// The command of a run.
    ///
    /// # Errors
    /// It does not speak TLS, or keeps its connections.
    pub fn command(&self, run: &Run<'_>) -> Result<Vec<String>> {
        let tls = match (&self.tls, run.is_tls) {
            (_, false) => &[][..],
            (Some(more), true) => more,
            (None, true) => bail!("{} does not speak TLS", self.name),
        };
        let churn = match (&self.churn, run.is_churn) {
            (_, false) => &[][..],
            (Some(more), true) => more,
            (None, true) => bail!("{} keeps its connections", self.name),
        };
        let words = run.words();
        let filled = self.arguments.iter().chain(tls).chain(churn).map(|argument| words.fill(argument, &WORDS));
        [Ok(self.program.clone())].into_iter().chain(filled).collect()
    }

    /// Starts a run on `cpus`; its output goes to a file in `folder`.
    ///
    /// # Errors
    /// It is not installed or does not start.
    pub fn start(&self, run: &Run<'_>, cpus: Option<&str>, folder: &Path) -> Result<RunningLoad<'_>> {
        let program = self.find()?.into_os_string();
        let words = self.command(run)?.into_iter().skip(1).map(OsString::from);
        let password = run.password.unwrap_or_default();
        let environment = self.environment.iter().map(|(name, value)| {
            let text = value.replace(PASSWORD, &String::from_utf8_lossy(password));
            (name.clone(), OsString::from(text))
        });
        let launch = Launch {
            environment: environment.collect(),
            ..Launch::new(&self.name, cpus, [program].into_iter().chain(words))
        };
        let process = Process::start(launch, folder)?;
        Ok(RunningLoad { load: self, process })
    }
}

impl Run<'_> {
    fn words(&self) -> Words {
        let mut words = Words::default();
        words.add("{host}", self.host);
        words.add("{port}", self.port);
        words.add("{scheme}", if self.is_tls { "https" } else { "http" });
        words.add("{connections}", self.connections.to_string());
        words.add("{pipeline}", self.pipeline.to_string());
        words.add("{streams}", self.pipeline.to_string());
        words.add("{shards}", self.shards.to_string());
        match self.length {
            Length::Seconds(seconds) => words.add("{seconds}", seconds.to_string()),
            Length::Requests(requests) => words.add("{requests}", requests.to_string()),
        }
        words.add("{payload}", self.payload.to_string());
        words.add("{path}", self.path);
        words.add("{name}", self.name);
        words.add("{command}", self.command);
        words.add("{keys}", self.keys.to_string());
        words.add("{user}", self.user);
        words.add("{database}", self.database);
        words.add("{query}", self.query);
        words.add("{script}", self.script);
        words.add("{sslmode}", if self.is_tls { "require" } else { "disable" });
        words
    }
}

/// A run that is under way. Dropped, it ends.
pub struct RunningLoad<'a> {
    load: &'a Load,
    process: Process,
}

impl RunningLoad<'_> {
    /// Waits for its end, and calls `each` meanwhile.
    ///
    /// # Errors
    /// It does not end within `limit`, ends with an error, tells of one, or cannot be read; Ctrl-C.
    pub fn finish(mut self, limit: Duration, mut each: impl FnMut() -> Result<()>) -> Result<LoadOutput> {
        let (name, begun) = (&self.load.name, Instant::now());
        let status = loop {
            interrupt::check()?;
            if let Some(status) = self.process.try_wait()? {
                break status;
            }
            ensure!(begun.elapsed() < limit, "{name} did not end within {limit:?}; {}", self.process.tail());
            each()?;
            thread::sleep(LOOK);
        };
        let output = self.process.output();
        // An error in its output says more than its exit status.
        if let Some(line) = self.load.output.error(&output) {
            bail!("{name}: {line}");
        }
        ensure!(status.success(), "{name} ended with {status}; {}", self.process.tail());
        Ok(LoadOutput { name: name.clone(), output })
    }
}

/// The output of a program that ended without an error.
#[derive(Debug)]
pub struct LoadOutput {
    name: String,
    output: String,
}

impl LoadOutput {
    /// Figures from its output. `load` is the one that was started.
    ///
    /// # Errors
    /// Its output lacks a figure, or it completed nothing.
    pub fn figures(&self, load: &Load) -> Result<LoadFigures> {
        load.output
            .read(&self.output)
            .with_context(|| format!("the output of {} cannot be read:\n{}", self.name, self.output))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(length: Length) -> Run<'static> {
        Run {
            host: "127.0.0.1",
            port: "7000",
            is_tls: false,
            connections: 50,
            pipeline: 16,
            shards: 1,
            length,
            payload: 64,
            path: "/64",
            name: "lab.example",
            command: "get",
            keys: 1,
            user: "app",
            database: "shop",
            query: "prepared",
            script: "tpcb-like",
            password: Some(b"a secret"),
            is_churn: false,
        }
    }

    #[test]
    fn every_file_is_right_and_its_words_become_a_command() {
        for load in Load::all() {
            let length = if load.counts_requests() { Length::Requests(9) } else { Length::Seconds(9) };
            let command = load.command(&run(length)).expect("all words are known").join(" ");
            assert!(command.starts_with(&load.program) && !command.contains('{'), "{command}");
            assert!(command.contains("7000") && command.contains("50"), "{command}");
            let tls = load.command(&Run { is_tls: true, ..run(length) });
            assert_eq!(tls.is_ok(), load.tls.is_some(), "{command}");
            assert!(tls.map_or(true, |tls| tls.join(" ") != command));
            let churn = load.command(&Run { is_churn: true, ..run(length) });
            assert_eq!(churn.is_ok(), load.churn.is_some(), "{command}");
            assert!(!command.contains("a secret"), "{command}");
        }
        let refusal = Load::named("ab").expect_err("it is none").to_string();
        assert_eq!(
            refusal,
            "no load program `ab`; there are wrk, h2load, redis-benchmark, pgbench, or a file that ends in .toml"
        );
    }

    #[test]
    fn a_wrong_file_is_refused_with_its_line_or_key() {
        let right = ALL[0];
        let refusal = |text: &str| format!("{:#}", Load::parse("l.toml", text).expect_err(text));
        assert!(refusal("name = ").starts_with("l.toml:1: "));
        for (from, to, part) in [
            ("{connections}", "{clients}", "{clients}, which is not filled in"),
            ("{port}", "80", "lack {port}"),
            ("{seconds}", "3", "either {seconds} or {requests}"),
            ("completed = ", "finished = ", "unknown field `finished`"),
        ] {
            assert!(refusal(&right.replace(from, to)).contains(part), "{part}: {}", refusal(&right.replace(from, to)));
        }
    }

    #[test]
    fn a_program_that_is_not_there_is_named_with_how_to_get_it() {
        let absent = Load { program: "no-such-load".to_owned(), ..Load::named("wrk").expect("it is there") };
        let refusal = absent.find().expect_err("it is not").to_string();
        assert_eq!(refusal, "no-such-load is not installed: apt install wrk");
    }
}
