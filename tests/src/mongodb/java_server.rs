//! mongo-java-server, in memory.

use std::net::TcpStream;

use tempfile::TempDir;

use crate::port;
use crate::process::Process;
use crate::stream::Address;
use crate::tools;

/// A running server. It ends with this value.
pub struct JavaServer {
    /// Where it listens.
    pub address: Address,
    _process: Process,
    _folder: TempDir,
}

impl JavaServer {
    /// Starts one.
    ///
    /// # Panics
    /// If it does not come up.
    #[must_use]
    pub fn start() -> Self {
        let address = Address::port(port::free());
        let path = class_path("java-server", "server/Main.class");
        let port = address.tcp().port().to_string();
        let words = ["java", "-XX:TieredStopAtLevel=1", "-cp", &path, "server.Main", &port].map(str::to_owned);
        let folder = tempfile::tempdir().expect("a temporary folder");
        let mut process = Process::start("mongo-java-server", &words, &folder.path().join("server.log"), &[]);
        process.wait_ready(|| TcpStream::connect(address.tcp()).is_ok());
        Self { address, _process: process, _folder: folder }
    }
}

/// The class path of a program of Java: its classes, and the libraries beside them.
pub(super) fn class_path(program: &str, class: &str) -> String {
    let class_file = tools::mongodb(&format!("{program}/classes/{class}"));
    let folder = class_file.ancestors().nth(3).expect("a folder of builds").display();
    format!("{folder}/classes:{folder}/libraries/*")
}
