//! The configuration of a test gateway: one listener, one upstream, and whatever a test adds.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use crate::gateway::driver;
use crate::port;
use crate::stream::Address;

/// Becomes a `weir.toml`. Fields hold TOML lines, so that a test shows the keys it is about.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where the listener listens.
    pub bind: Address,
    /// Listen on a socket file in the gateway's folder instead.
    pub unix: bool,
    /// Protocol of the listener.
    pub protocol: &'static str,
    /// Worker threads; one unless a test is about several.
    pub workers: u32,
    /// Endpoints of the upstream.
    pub endpoints: Vec<String>,
    /// Keys and sub-tables of the listener.
    pub listener: String,
    /// Keys and sub-tables of the upstream.
    pub upstream: String,
    /// Whole tables: `[limits]`, `[log]`, a second listener ...
    pub tables: String,
    /// Keys of `[admin]` besides `bind`.
    pub admin: String,
    /// Keys of `[drain]`; without them draining does not wait for load balancers.
    pub drain: String,
    /// Environment of the process, for secrets.
    pub environment: Vec<(String, String)>,
    /// Another path to the gateway program, which a test may replace.
    pub program: Option<PathBuf>,
}

impl Config {
    /// In front of one address.
    pub fn to(upstream: &Address) -> Self {
        Self::to_all([upstream])
    }

    /// In front of an HTTP origin.
    pub fn http(origin: &Address) -> Self {
        Self { protocol: "http", ..Self::to(origin) }
    }

    /// In front of several shards; how keys are spread is for the test to add.
    pub fn to_all<'a>(shards: impl IntoIterator<Item = &'a Address>) -> Self {
        Self {
            bind: Address::port(port::free()),
            unix: false,
            protocol: "redis",
            workers: 1,
            endpoints: shards.into_iter().map(Address::text).collect(),
            listener: String::new(),
            upstream: String::new(),
            tables: String::new(),
            admin: String::new(),
            drain: "settle = \"0s\"\ntimeout = \"3s\"\n".to_owned(),
            environment: Vec::new(),
            program: None,
        }
    }

    /// Adds lines to the listener.
    pub fn listener(mut self, lines: &str) -> Self {
        self.listener += lines;
        self.listener.push('\n');
        self
    }

    /// Adds lines to the upstream.
    pub fn upstream(mut self, lines: &str) -> Self {
        self.upstream += lines;
        self.upstream.push('\n');
        self
    }

    /// Adds whole tables.
    pub fn tables(mut self, lines: &str) -> Self {
        self.tables += lines;
        self.tables.push('\n');
        self
    }

    /// Several workers.
    pub fn workers(mut self, workers: u32) -> Self {
        self.workers = workers;
        self
    }

    /// A password at the listener, through a file in `folder` that only its owner reads.
    ///
    /// # Panics
    /// If the file cannot be written.
    pub fn listener_password(self, folder: &Path, password: &str) -> Self {
        let file = secret_file(folder, "listener-password", password);
        self.listener(&format!("[listener.redis]\npassword = {{ file = \"{file}\" }}"))
    }

    /// The upstream's own credentials.
    ///
    /// # Panics
    /// If the file cannot be written.
    pub fn upstream_password(self, folder: &Path, user: Option<&str>, password: &str) -> Self {
        let file = secret_file(folder, "upstream-password", password);
        let user = user.map_or(String::new(), |user| format!("user = \"{user}\"\n"));
        self.upstream(&format!("[upstream.redis]\n{user}password = {{ file = \"{file}\" }}"))
    }

    /// The file's text.
    pub fn text(&self, admin_port: u16) -> String {
        let mut text = String::new();
        let mut line = |part: &str| {
            let _ = writeln!(text, "{part}");
        };
        line("[runtime]");
        line(&format!("workers = {}", self.workers));
        line(&format!("driver = \"{}\"", driver()));
        line("\n[admin]");
        line(&format!("bind = \"127.0.0.1:{admin_port}\""));
        line(&self.admin);
        line("[drain]");
        line(&self.drain);
        line("[[listener]]");
        line("name = \"test\"");
        line(&format!("protocol = \"{}\"", self.protocol));
        line(&format!("bind = \"{}\"", self.bind.text()));
        line("upstream = \"server\"");
        line(&self.listener);
        line("[[upstream]]");
        line("name = \"server\"");
        line(&format!("endpoints = {:?}", self.endpoints));
        line(&self.upstream);
        line(&self.tables);
        text
    }
}

/// A file that only its owner reads, with a secret in it; returns its path as text.
///
/// # Panics
/// If it cannot be written.
pub fn secret_file(folder: &Path, name: &str, secret: &str) -> String {
    use std::os::unix::fs::PermissionsExt as _;
    let path = folder.join(name);
    std::fs::write(&path, secret).expect("a secret file can be written");
    let owner_only = std::fs::Permissions::from_mode(0o600);
    std::fs::set_permissions(&path, owner_only).expect("permissions can be set");
    path.to_string_lossy().into_owned()
}
