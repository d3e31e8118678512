//! The lab's origin of feature flags as a process.

use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use super::api::{Reply, call};
use crate::deadline::until_true;
use crate::gateway::program;
use crate::port;
use crate::stream::Address;

/// `weir lab origin flags`; it ends with this value.
pub struct FlagOrigin {
    child: Child,
    /// Where it listens.
    pub address: Address,
    words: Vec<String>,
}

impl FlagOrigin {
    /// With the small set of flags, which changes when a test says so.
    ///
    /// # Panics
    /// If it does not listen.
    #[must_use]
    pub fn start() -> Self {
        Self::start_with(&["--data", "small"])
    }

    /// With these words on its command line.
    ///
    /// # Panics
    /// If it does not listen.
    #[must_use]
    pub fn start_with(words: &[&str]) -> Self {
        let address = Address::port(port::free());
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        Self { child: run(&address, &words), address, words }
    }

    /// Ends the process at once.
    ///
    /// # Panics
    /// If it cannot be ended.
    pub fn kill(&mut self) {
        self.child.kill().expect("a child may be killed");
        self.child.wait().expect("a child ends");
    }

    /// Starts it again on its port, with its first state.
    ///
    /// # Panics
    /// If it does not listen.
    pub fn restart(&mut self) {
        self.child = run(&self.address, &self.words);
    }

    /// Its account of requests.
    #[must_use]
    pub fn ledger(&self) -> Value {
        self.control("GET", "/lab/ledger", "").json()
    }

    /// Requests for an endpoint with a status so far.
    #[must_use]
    pub fn requests(&self, endpoint: &str, status: u16) -> u64 {
        self.ledger()["requests"][endpoint][status.to_string()].as_u64().unwrap_or(0)
    }

    /// Requests for an endpoint so far, whatever their status.
    #[must_use]
    pub fn all_requests(&self, endpoint: &str) -> u64 {
        let ledger = self.ledger();
        let statuses = ledger["requests"][endpoint].as_object();
        statuses.map_or(0, |statuses| statuses.values().filter_map(Value::as_u64).sum())
    }

    /// Puts other flags in place of those of `development`.
    pub fn replace(&self, document: &str) {
        self.control("PUT", "/lab/features?environment=development", document);
    }

    /// Has requests go wrong from now on: a list of faults of the lab.
    pub fn faults(&self, faults: &str) {
        self.control("PUT", "/lab/faults", &format!("{{\"faults\":[{faults}]}}"));
    }

    /// No request goes wrong any more.
    pub fn heal(&self) {
        self.control("DELETE", "/lab/faults", "");
    }

    /// The valid tokens from now on: type and text.
    pub fn tokens(&self, tokens: &[(&str, &str)]) {
        let one = |(kind, text): &(&str, &str)| {
            let (project, rest) = text.split_once(':').expect("a token");
            let (environment, _) = rest.split_once('.').expect("a token");
            serde_json::json!({ "token": text, "type": kind, "environment": environment, "projects": [project] })
        };
        let all: Vec<Value> = tokens.iter().map(one).collect();
        self.control("PUT", "/lab/tokens", &serde_json::json!({ "tokens": all }).to_string());
    }

    /// A request for a path of control.
    ///
    /// # Panics
    /// If it is refused.
    pub fn control(&self, method: &str, path: &str, body: &str) -> Reply {
        let reply = call(&self.address, method, path, "", &[], body);
        assert_eq!(reply.status, 200, "{method} {path}: {}", reply.body);
        reply
    }
}

fn run(address: &Address, words: &[String]) -> Child {
    let mut command = Command::new(program());
    command.args(["lab", "origin", "flags", "--bind", &address.text()]).args(words);
    let child = command.stdout(Stdio::null()).spawn().expect("the origin starts");
    until_true("the origin to listen", || TcpStream::connect(address.tcp()).is_ok());
    child
}

impl Drop for FlagOrigin {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
