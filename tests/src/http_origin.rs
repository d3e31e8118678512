//! Real HTTP servers that say what they were given: nginx, Node and Go.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard};

use serde_json::Value;

use crate::nginx::Nginx;
use crate::port;
use crate::stream::Address;
use crate::tools;

/// Which one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// nginx, in front of itself so that it reads bodies.
    Nginx,
    /// The server of Node's own library.
    Node,
    /// net/http.
    Go,
    /// Node's, with a page for browsers; it does not say what it was given.
    Page,
}

impl Kind {
    /// Those that respond to every request with its method and target.
    pub const ALL: [Self; 3] = [Self::Nginx, Self::Node, Self::Go];
}

/// A request as the origin understood it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ReceivedRequest {
    /// The method.
    pub method: String,
    /// As it stood in the request line.
    pub target: String,
    /// The Host field.
    pub host: String,
    /// The Content-Length field, or nothing.
    pub length: String,
    /// The Transfer-Encoding field, or nothing.
    pub encoding: String,
    /// The body.
    pub body: String,
    /// It came to its end and was answered.
    pub is_whole: bool,
}

/// A running server that responds to every request with its method and target.
pub struct HttpOrigin {
    /// Where it listens.
    pub address: Address,
    log: Log,
    _running: Running,
}

/// Where it writes what it sees.
enum Log {
    File(PathBuf),
    Lines(Arc<Mutex<Vec<ReceivedRequest>>>),
}

#[expect(dead_code, reason = "kept for its end")]
enum Running {
    Nginx(Nginx),
    Process(Ended),
}

/// A process that ends with this value.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A line of JSON for each request.
const LOG_FORMAT: &str = concat!(
    r#"log_format seen escape=json '{"method":"$request_method","target":"$request_uri","host":"$http_host","#,
    r#""length":"$http_content_length","encoding":"$http_transfer_encoding","body":"$request_body","status":"$status"}';"#
);

impl HttpOrigin {
    /// Starts one.
    ///
    /// # Panics
    /// If it is not installed, or does not listen.
    pub fn start(kind: Kind) -> Self {
        let clients = Path::new(env!("CARGO_MANIFEST_DIR")).join("clients");
        let mut command = match kind {
            Kind::Nginx => return Self::nginx(),
            Kind::Node | Kind::Page => {
                let script = if kind == Kind::Node { "http_origin.js" } else { "browser_origin.js" };
                let mut node = Command::new("node");
                node.arg(clients.join("node").join(script));
                node
            }
            Kind::Go => {
                let mut go = Command::new(tools::go("net-http"));
                go.arg("origin");
                go
            }
        };
        let mut child = command.stdout(Stdio::piped()).spawn().expect("the origin starts");
        let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        let running = Running::Process(Ended(child));
        let port = lines.next().and_then(Result::ok).and_then(|line| line.parse().ok());
        let address = Address::port(port.unwrap_or_else(|| panic!("{kind:?} did not say its port")));
        let seen = Arc::<Mutex<Vec<ReceivedRequest>>>::default();
        let all = seen.clone();
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                lock(&all).push(parsed(&line));
            }
        });
        Self { address, log: Log::Lines(seen), _running: running }
    }

    fn nginx() -> Self {
        let behind = port::free();
        let server = format!(
            "keepalive_requests 1000000; keepalive_timeout 120s; access_log seen.log seen; client_body_buffer_size 1m;
             location / {{ proxy_pass http://127.0.0.1:{behind}; proxy_http_version 1.1; }} }}
             server {{ listen 127.0.0.1:{behind}; location / {{ return 200 \"$request_method $request_uri\"; }}"
        );
        let nginx = Nginx::logging(LOG_FORMAT, &server);
        let file = nginx.folder().join("seen.log");
        Self { address: nginx.address.clone(), log: Log::File(file), _running: Running::Nginx(nginx) }
    }

    /// Every request so far.
    ///
    /// # Panics
    /// If its log cannot be read.
    pub fn seen(&self) -> Vec<ReceivedRequest> {
        match &self.log {
            Log::Lines(seen) => lock(seen).clone(),
            Log::File(file) => {
                let text = std::fs::read(file).expect("a log");
                String::from_utf8_lossy(&text)
                    .split_inclusive('\n')
                    .filter(|line| line.ends_with('\n'))
                    .map(parsed)
                    .collect()
            }
        }
    }
}

fn lock(seen: &Mutex<Vec<ReceivedRequest>>) -> MutexGuard<'_, Vec<ReceivedRequest>> {
    seen.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

fn parsed(line: &str) -> ReceivedRequest {
    let value: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{line:?}: {error}"));
    let text = |name: &str| value[name].as_str().unwrap_or_default().to_owned();
    let is_whole = value["is_whole"].as_bool().unwrap_or_else(|| text("status") == "200");
    ReceivedRequest {
        method: text("method"),
        target: text("target"),
        host: text("host"),
        length: text("length"),
        encoding: text("encoding"),
        body: text("body"),
        is_whole,
    }
}
