//! A real Envoy, for comparison.

use tempfile::TempDir;

use crate::port;
use crate::process::Process;
use crate::stream::{Address, Stream};

/// The words of its command line, before the name of its file: one worker. The lab's own setup puts the program into a Python
/// environment.
pub fn words() -> Vec<String> {
    let installed = std::env::var("VIRTUAL_ENV").map(|folder| format!("{folder}/bin/envoy"));
    let program = installed.unwrap_or_else(|_| "envoy".to_owned());
    [&*program, "--concurrency", "1", "--disable-hot-restart", "--log-level", "warn", "-c"].map(str::to_owned).to_vec()
}

/// A running Envoy with one worker; it ends with this value.
pub struct Envoy {
    /// Where it listens.
    pub address: Address,
    _process: Process,
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
        let words = [words(), vec![file.to_string_lossy().into_owned()]].concat();
        let mut process = Process::start("envoy", &words, &folder.path().join("log"), &[]);
        let address = Address::port(port);
        process.wait_ready(|| Stream::connect(&address).is_ok());
        Self { address, _process: process, _folder: folder }
    }
}
