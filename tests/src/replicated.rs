//! A primary with replicas, and sentinels that watch over them.

use std::time::Duration;

use tempfile::TempDir;

use crate::client::Client;
use crate::deadline::until;
use crate::port;
use crate::process::Process;
use crate::server::{Kind, Options, Server};
use crate::stream::{Address, Stream};
use crate::wire::bulk_array;

/// For a replica to have its data; the first of a server takes a second.
const SYNC: Duration = Duration::from_secs(30);
/// After this a silent server is taken for dead (`down-after-milliseconds`).
const DOWN_AFTER_MS: u32 = 2_000;

/// The first is the primary at the start.
pub struct Replicated {
    /// All servers.
    pub servers: Vec<Server>,
}

impl Replicated {
    /// A primary and `replicas` in step with it.
    ///
    /// # Panics
    /// If they do not come up.
    pub fn start(kind: Kind, replicas: usize, password: Option<&str>) -> Self {
        let start = |primary: Option<&Server>| {
            let mut flags: Vec<String> = ["--repl-diskless-sync-delay", "0"].map(str::to_owned).to_vec();
            if let Some(primary) = primary {
                let address = primary.address.tcp();
                flags.extend(["--replicaof".to_owned(), address.ip().to_string(), address.port().to_string()]);
            }
            if let Some(password) = password {
                flags.extend(["--masterauth".to_owned(), password.to_owned()]);
            }
            Server::start_with(kind, Options { flags, password: password.map(str::to_owned), ..Options::default() })
        };
        let primary = start(None);
        let mut servers: Vec<Server> = (0..replicas).map(|_| start(Some(&primary))).collect();
        servers.insert(0, primary);
        let all = Self { servers };
        all.servers[1..].iter().for_each(wait_linked);
        until("the primary to know its replicas", SYNC, || {
            (all.servers[0].info("replication", "connected_slaves") == replicas.to_string()).then_some(())
        });
        all
    }

    /// Makes server `at` the primary and the others its replicas.
    pub fn promote(&self, at: usize) {
        self.servers[at].connect().expect(&["REPLICAOF", "NO", "ONE"], b"+OK\r\n");
        let address = self.servers[at].address.tcp();
        let (host, port) = (address.ip().to_string(), address.port().to_string());
        for (other, server) in self.servers.iter().enumerate() {
            if other != at {
                server.connect().expect(&["REPLICAOF", &host, &port], b"+OK\r\n");
            }
        }
    }

    /// The addresses of all servers.
    pub fn addresses(&self) -> impl DoubleEndedIterator<Item = &Address> {
        self.servers.iter().map(|server| &server.address)
    }
}

/// Waits until a replica is in step.
///
/// # Panics
/// If that takes too long.
pub fn wait_linked(replica: &Server) {
    until("a replica to be in step", SYNC, || {
        (replica.info("replication", "master_link_status") == "up").then_some(())
    });
}

/// Sentinels that watch over one primary, which they call `main`.
pub struct Sentinels {
    /// Where they listen.
    pub addresses: Vec<Address>,
    processes: Vec<Process>,
    _folder: TempDir,
}

impl Sentinels {
    /// Starts `count` of them and waits until they know each other and all replicas.
    ///
    /// # Panics
    /// If that takes too long.
    pub fn start(count: usize, over: &Replicated, password: Option<&str>) -> Self {
        let folder = tempfile::Builder::new().prefix("weir-sentinel-").tempdir().expect("a temporary folder");
        let primary = over.servers[0].address.tcp();
        let quorum = count / 2 + 1;
        let mut sentinels = Self { addresses: Vec::new(), processes: Vec::new(), _folder: folder };
        for _ in 0..count {
            let port = port::free();
            let mut text = format!(
                "port {port}\nbind 127.0.0.1\nsentinel monitor main {} {} {quorum}\n\
                 sentinel down-after-milliseconds main {DOWN_AFTER_MS}\nsentinel failover-timeout main 3000\n",
                primary.ip(),
                primary.port()
            );
            if let Some(password) = password {
                text += &format!("sentinel auth-pass main {password}\n");
            }
            let file = sentinels._folder.path().join(format!("sentinel-{port}.conf"));
            std::fs::write(&file, text).expect("written");
            let words = ["redis-server".to_owned(), file.to_string_lossy().into_owned(), "--sentinel".to_owned()];
            let log = sentinels._folder.path().join(format!("sentinel-{port}.log"));
            sentinels.processes.push(Process::start("sentinel", &words, &log, &[]));
            let address = Address::port(port);
            until("a sentinel to listen", SYNC, || Stream::connect(&address).ok());
            sentinels.addresses.push(address);
        }
        let replicas = over.servers.len() - 1;
        for address in &sentinels.addresses {
            until("the sentinels to know everybody", SYNC, || {
                let known = |field: &str| field_of(address, field).and_then(|text| text.parse::<usize>().ok());
                (known("num-slaves") == Some(replicas) && known("num-other-sentinels") == Some(count - 1)).then_some(())
            });
        }
        sentinels
    }

    /// Port of the primary, as the first sentinel reports it.
    pub fn primary(&self) -> u16 {
        let reply = Client::connect(&self.addresses[0]).call(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", "main"]);
        String::from_utf8(bulk_array(&reply)[1].clone()).expect("text").parse().expect("a port")
    }

    /// Orders a failover although the primary is well.
    pub fn fail_over(&self) {
        Client::connect(&self.addresses[0]).expect(&["SENTINEL", "FAILOVER", "main"], b"+OK\r\n");
    }
}

/// A field of what a sentinel says of the primary.
fn field_of(address: &Address, field: &str) -> Option<String> {
    let reply = Client::connect(address).call(&["SENTINEL", "MASTER", "main"]);
    let texts = bulk_array(&reply);
    let pair = texts.chunks_exact(2).find(|pair| pair[0] == field.as_bytes())?;
    String::from_utf8(pair[1].clone()).ok()
}
