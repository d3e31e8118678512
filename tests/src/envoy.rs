//! A real Envoy, for comparison.

use tempfile::TempDir;

use crate::port;
use crate::process::Process;
use crate::stream::{Address, Stream};

/// The program. The lab's own setup puts it into a Python environment.
pub fn program() -> String {
    let installed = std::env::var("VIRTUAL_ENV").map(|folder| format!("{folder}/bin/envoy"));
    installed.unwrap_or_else(|_| "envoy".to_owned())
}

/// A running Envoy with one worker; it ends with this value.
pub struct Envoy {
    /// Where it listens.
    pub address: Address,
    process: Process,
    _folder: TempDir,
}

impl Envoy {
    /// Starts one with a bootstrap that listens on this port.
    ///
    /// # Panics
    /// If it is not installed, or does not listen.
    pub fn start(config: impl FnOnce(u16) -> String) -> Self {
        let (folder, port) = (tempfile::tempdir().expect("a temporary folder"), port::free());
        let file = folder.path().join("envoy.yaml");
        std::fs::write(&file, config(port)).expect("written");
        let (program, file) = (program(), file.to_string_lossy());
        let words = [&*program, "--concurrency", "1", "--disable-hot-restart", "--log-level", "warn", "-c", &*file];
        let mut process = Process::start("envoy", &words.map(str::to_owned), &folder.path().join("log"), &[]);
        let address = Address::port(port);
        process.wait_ready(|| Stream::connect(&address).is_ok());
        Self { address, process, _folder: folder }
    }

    /// Its log so far.
    pub fn log(&self) -> String {
        self.process.log()
    }
}
