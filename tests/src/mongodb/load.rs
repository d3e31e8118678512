//! A client of PyMongo that writes until it is stopped, and then looks for what it wrote.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use serde::Deserialize;

use crate::tools;

/// A running client.
pub struct Load {
    child: Child,
    output: BufReader<ChildStdout>,
}

/// The figures of a client.
#[derive(Debug, Deserialize)]
pub struct LoadReport {
    /// Acknowledged writes.
    pub acknowledged: u64,
    /// The first errors, in words.
    pub errors: Vec<String>,
    /// Writes that failed.
    pub error_count: u64,
    /// Acknowledged writes that were not found.
    pub lost: Vec<String>,
    /// The longest time of a write, seconds.
    pub longest: f64,
}

impl Load {
    /// Starts one with so many threads, and waits until it writes.
    ///
    /// # Panics
    /// If it does not begin.
    #[must_use]
    pub fn start(url: &str, threads: u32) -> Self {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("clients/mongodb/python/load.py");
        let mut command = Command::new(tools::mongodb("pymongo/bin/python"));
        command.arg(script).args([url, &threads.to_string()]).env("PYTHONDONTWRITEBYTECODE", "1");
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the load starts");
        let mut load = Self { output: BufReader::new(child.stdout.take().expect("its output")), child };
        assert_eq!(load.line(), "begun", "the load begins");
        load
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("a line of the load");
        line.trim_end().to_owned()
    }

    /// Lets it write for a while, stops it, and returns its figures.
    ///
    /// # Panics
    /// If it has died.
    #[must_use]
    pub fn stop_after(mut self, time: Duration) -> LoadReport {
        std::thread::sleep(time);
        drop(self.child.stdin.take());
        let line = self.line();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("the figures of the load: {error}: {line:?}"))
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
