//! An exporter of PgBouncer's figures for Prometheus (`tests/clients/postgres/exporter`), in front of an admin console.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use tempfile::TempDir;

use crate::metrics::Metrics;
use crate::process::Process;
use crate::{port, tools};

/// For a scrape, in which the console gets four commands.
const SCRAPE_WAIT: Duration = Duration::from_secs(30);

/// A running exporter. It ends with this value.
pub struct Exporter {
    port: u16,
    process: Process,
    _folder: TempDir,
}

impl Exporter {
    /// Reads the console of the database `pgbouncer` at `port`, as that user.
    ///
    /// # Panics
    /// If it is not installed, or does not listen.
    #[must_use]
    pub fn before(console: u16, user: &str, password: &str) -> Self {
        let (folder, port) = (tempfile::tempdir().expect("a temporary folder"), port::free());
        let config = folder.path().join("exporter.yml");
        let text = format!(
            "exporter_host: 127.0.0.1\nexporter_port: {port}\npgbouncers:\n  - dsn: \
             postgresql://{user}:{password}@127.0.0.1:{console}/pgbouncer\n    connect_timeout: 10\n"
        );
        std::fs::write(&config, text).expect("written");
        let python = tools::exporter().to_string_lossy().into_owned();
        let config = config.to_string_lossy().into_owned();
        let words = [&python, "-W", "ignore", "-m", "prometheus_pgbouncer_exporter.cli", "--config", &config];
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        let mut process = Process::start("exporter", &words, &folder.path().join("exporter.log"), &[]);
        process.wait_ready(|| TcpStream::connect(("127.0.0.1", port)).is_ok());
        Self { port, process, _folder: folder }
    }

    /// The figures of now.
    ///
    /// # Panics
    /// If there are none.
    #[must_use]
    pub fn scrape(&self) -> Metrics {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).expect("the exporter accepts");
        stream.set_read_timeout(Some(SCRAPE_WAIT)).expect("a time limit can be set");
        // HTTP/1.0: the end of the response is that of the connection.
        stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").expect("sent");
        let mut response = String::new();
        stream.read_to_string(&mut response).expect("a response");
        let (_, body) = response.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no response: {response}"));
        Metrics::parse(body)
    }

    /// Its log.
    #[must_use]
    pub fn log(&self) -> String {
        self.process.log()
    }
}
