//! SDKs, each as a program that evaluates one flag over and over, prints its state at each change, and at the end its counts.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use super::clients;
use crate::stream::Address;
use crate::tools;

/// A change of a flag on its way through the server, the gateway and an SDK, on a loaded machine.
const CHANGE: Duration = Duration::from_secs(60);

/// An SDK.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sdk {
    /// npm's `unleash-client`, which polls.
    Node,
    /// The same with streams.
    NodeStreaming,
    /// npm's `unleash-proxy-client` in Chromium.
    Browser,
    /// PyPI's `UnleashClient`.
    Python,
    /// `unleash-client-go`.
    Go,
    /// `unleash-client-java`.
    Java,
    /// OpenFeature's SDK with its provider for remote evaluation. It counts nothing.
    Ofrep,
}

impl Sdk {
    /// All.
    pub const ALL: [Self; 7] =
        [Self::Node, Self::NodeStreaming, Self::Browser, Self::Python, Self::Go, Self::Java, Self::Ofrep];

    /// The name of its application.
    #[must_use]
    pub fn application(self) -> &'static str {
        match self {
            Self::Node => "node-app",
            Self::NodeStreaming => "node-streaming-app",
            Self::Browser => "browser-app",
            Self::Python => "python-app",
            Self::Go => "go-app",
            Self::Java => "java-app",
            Self::Ofrep => "ofrep-app",
        }
    }

    /// It evaluates nothing itself, and has a frontend token.
    #[must_use]
    pub fn is_frontend(self) -> bool {
        matches!(self, Self::Browser | Self::Ofrep)
    }

    /// It reports its evaluations.
    #[must_use]
    pub fn counts(self) -> bool {
        self != Self::Ofrep
    }

    fn command(self) -> Command {
        let node = |name: &str| {
            let mut command = Command::new("node");
            command.arg(clients().join("node").join(name));
            command
        };
        match self {
            Self::Node | Self::NodeStreaming => node("server_sdk.js"),
            Self::Browser => node("browser_sdk.js"),
            Self::Ofrep => node("ofrep_sdk.js"),
            Self::Python => {
                let mut command = Command::new(tools::flag_sdks());
                command.arg(clients().join("python/watch.py")).env("PYTHONDONTWRITEBYTECODE", "1");
                command
            }
            Self::Go => Command::new(tools::flags("go/flags")),
            Self::Java => {
                let jar = tools::flags("java/flag-sdks-0.1.0.jar");
                let libraries = jar.parent().expect("a folder").join("libraries/*");
                let mut command = Command::new("java");
                command.arg("-cp").arg(format!("{}:{}", jar.display(), libraries.display())).arg("weir.Flags");
                command
            }
        }
    }

    /// Starts its program against a gateway.
    ///
    /// # Panics
    /// If it is not installed.
    #[must_use]
    pub fn start(self, gateway: &Address, token: &str, flag: &str) -> SdkProcess {
        let mut command = self.command();
        command.args([&format!("http://{}", gateway.text()), token, flag, self.application()]);
        match self {
            Self::Node => drop(command.arg("polling")),
            Self::NodeStreaming => drop(command.arg("streaming")),
            // Chromium is Debian's: `cargo xtask setup browser`.
            Self::Browser => drop(command.arg("chromium")),
            _ => {}
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap_or_else(|error| panic!("{self:?} starts: {error}"));
        let (sender, lines) = channel();
        for reader in [
            Box::new(child.stdout.take().expect("a pipe")) as Box<dyn std::io::Read + Send>,
            Box::new(child.stderr.take().expect("a pipe")),
        ] {
            let sender = sender.clone();
            thread::spawn(move || {
                BufReader::new(reader).lines().map_while(Result::ok).try_for_each(|line| sender.send(line))
            });
        }
        let input = child.stdin.take();
        SdkProcess { sdk: self, child, input, lines, seen: Vec::new() }
    }
}

/// A program of an SDK that runs. It ends with this value.
pub struct SdkProcess {
    /// Which.
    pub sdk: Sdk,
    child: Child,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
    seen: Vec<String>,
}

impl SdkProcess {
    /// Waits until the flag has a state: `on` or `off`.
    ///
    /// # Panics
    /// If it does not come, with all that the program has printed.
    pub fn wait_state(&mut self, state: &str) {
        let wanted = format!("state {state}");
        self.wait_line(&format!("{wanted} in {:?}", self.sdk), |line| line == wanted);
    }

    /// Ends the program. Returns how often the flag was on, and off.
    ///
    /// # Panics
    /// If it does not say so.
    #[must_use]
    pub fn finish(&mut self) -> (u64, u64) {
        drop(self.input.take());
        let line = self.wait_line(&format!("counts of {:?}", self.sdk), |line| line.starts_with("counts "));
        let mut numbers = line.split(' ').skip(1).map(|number| number.parse().expect("a number"));
        (numbers.next().expect("two numbers"), numbers.next().expect("two numbers"))
    }

    fn wait_line(&mut self, what: &str, is_it: impl Fn(&str) -> bool) -> String {
        let begun = Instant::now();
        loop {
            let left = CHANGE.saturating_sub(begun.elapsed());
            match self.lines.recv_timeout(left) {
                Ok(line) if is_it(&line) => return line,
                Ok(line) => self.seen.push(line),
                Err(error) => {
                    let why = if error == RecvTimeoutError::Timeout { "in time" } else { "before the program ended" };
                    panic!("no {what} {why}; it has printed:\n{}", self.seen.join("\n"));
                }
            }
        }
    }
}

impl Drop for SdkProcess {
    fn drop(&mut self) {
        drop(self.input.take());
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
