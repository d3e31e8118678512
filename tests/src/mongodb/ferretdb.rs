//! FerretDB with its SQLite backend.

use std::net::TcpStream;
use std::path::Path;

use tempfile::TempDir;

use crate::certificate::Certificates;
use crate::port;
use crate::process::Process;
use crate::stream::Address;
use crate::tools;

/// The user of a server with logins.
pub const USER: &str = "app";
/// Its password.
pub const PASSWORD: &str = "app-password";
/// The database in which the server makes its user.
const SETUP_DATABASE: &str = "admin";

/// A running server without data. It ends with this value.
pub struct FerretDb {
    /// Where it listens.
    pub address: Address,
    process: Process,
    words: Vec<String>,
    folder: TempDir,
}

impl FerretDb {
    /// Starts the embedded form, which has no logins.
    ///
    /// # Panics
    /// If it does not come up.
    #[must_use]
    pub fn start() -> Self {
        Self::run("ferretdb/ferretdb", |address, folder| vec![address.to_owned(), folder.to_owned()])
    }

    /// Starts its own program, at which [`USER`] has to log in with SCRAM.
    ///
    /// # Panics
    /// If it does not come up.
    #[must_use]
    pub fn start_with_logins() -> Self {
        Self::run("ferretdb/with-logins", |address, folder| {
            [words_with_logins(folder), vec![format!("--listen-addr={address}")]].concat()
        })
    }

    /// The same over TLS; clients show a certificate of the authority as well.
    ///
    /// # Panics
    /// If it does not come up.
    #[must_use]
    pub fn start_with_logins_over_tls(files: &Certificates) -> Self {
        let file = |name: &str, path: &Path| format!("--listen-tls-{name}-file={}", path.display());
        Self::run("ferretdb/with-logins", |address, folder| {
            let tls = [
                // It listens without TLS as well.
                format!("--listen-addr={}", Address::port(port::free()).text()),
                format!("--listen-tls={address}"),
                file("cert", &files.server),
                file("key", &files.server_key),
                file("ca", &files.authority),
            ];
            [words_with_logins(folder), tls.to_vec()].concat()
        })
    }

    fn run(program: &str, words: impl Fn(&str, &str) -> Vec<String>) -> Self {
        let folder = tempfile::Builder::new().prefix("weir-ferretdb-").tempdir().expect("a temporary folder");
        let address = Address::port(port::free());
        let program = tools::mongodb(program).to_string_lossy().into_owned();
        let words = [vec![program], words(&address.text(), &folder.path().to_string_lossy())].concat();
        let process = started(&words, &address, &folder);
        Self { address, process, words, folder }
    }

    /// Ends the process at once: the kernel resets its connections.
    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// Starts it again on its port, with its data.
    ///
    /// # Panics
    /// If it does not come up.
    pub fn start_again(&mut self) {
        self.process = started(&self.words, &self.address, &self.folder);
    }
}

fn words_with_logins(folder: &str) -> Vec<String> {
    let url = format!("--sqlite-url=file:{folder}/");
    let words = [
        "--handler=sqlite",
        &url,
        "--telemetry=disable",
        "--test-enable-new-auth",
        &format!("--state-dir={folder}"),
        "--debug-addr=-",
        &format!("--setup-database={SETUP_DATABASE}"),
        &format!("--setup-username={USER}"),
        &format!("--setup-password={PASSWORD}"),
    ];
    words.map(str::to_owned).to_vec()
}

fn started(words: &[String], address: &Address, folder: &TempDir) -> Process {
    let mut process = Process::start("FerretDB", words, &folder.path().join("ferretdb.log"), &[]);
    process.wait_ready(|| TcpStream::connect(address.tcp()).is_ok());
    process
}
