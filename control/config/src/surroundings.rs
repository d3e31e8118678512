//! What a configuration refers to outside its own text: environment variables, files, the memory limit, TLS contexts.
//!
//! The core asks this trait and nothing else, so it can be fuzzed and tested without a file system.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use weir_engine::settings::{TlsClientSettings, TlsServerSettings};
use weir_engine::tls::{self, TlsConfigError};
use weir_engine::{host, net};
use weir_telemetry::Level;

/// Contents of a file, and who may read it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileContents {
    /// The bytes, at most as many as were asked for.
    pub bytes: Vec<u8>,
    /// Permission bits (`st_mode & 0o777`); `None` where the platform has none.
    pub mode: Option<u32>,
    /// True if the superuser owns it.
    pub is_root_owned: bool,
}

/// What a reload cannot change of the process that asks for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Running {
    /// Worker threads.
    pub workers: usize,
    /// What is measured.
    pub level: Level,
}

/// Everything outside the text.
pub trait Surroundings {
    /// Value of an environment variable; `None` if it is not set or not UTF-8.
    fn variable(&self, name: &str) -> Option<String>;

    /// Reads a regular file of at most `bytes_max` bytes.
    ///
    /// # Errors
    /// Missing, not readable, not a regular file, or larger.
    fn file(&self, path: &Path, bytes_max: u64) -> io::Result<FileContents>;

    /// Bytes of memory that this process may use; `None` if there is no limit to be found.
    fn memory_limit(&self) -> Option<u64>;

    /// Cores that this process may use: its workers, if the file names no number.
    fn cores(&self) -> usize;

    /// The gateway that will run the file; `None`: it is not started yet.
    fn running(&self) -> Option<Running>;

    /// The time since 1970, to which certificates are compared.
    fn now(&self) -> Duration;

    /// Release of the kernel, if it can be told.
    fn kernel(&self) -> Option<String>;

    /// Model of the processor, if it can be told.
    fn cpu_model(&self) -> Option<String>;

    /// Builds the TLS context of a listener and throws it away, to learn whether it can be built.
    ///
    /// # Errors
    /// What the engine would say when the listener starts.
    fn tls_server(&self, settings: &TlsServerSettings) -> Result<(), TlsConfigError>;

    /// The same for an upstream.
    ///
    /// # Errors
    /// What the engine would say at the first connect.
    fn tls_client(&self, settings: &TlsClientSettings) -> Result<(), TlsConfigError>;
}

/// This machine, with the environment behind a function: the caller may layer its own.
pub struct Machine<'a> {
    env: &'a dyn Fn(&str) -> Option<String>,
    running: Option<Running>,
}

impl<'a> Machine<'a> {
    /// `env` answers for environment variables; usually `&|name| std::env::var(name).ok()`.
    pub fn new(env: &'a dyn Fn(&str) -> Option<String>) -> Self {
        Self { env, running: None }
    }

    /// The same for a gateway that runs already.
    #[must_use]
    pub fn under(self, running: Running) -> Self {
        Self { running: Some(running), ..self }
    }
}

impl Surroundings for Machine<'_> {
    fn variable(&self, name: &str) -> Option<String> {
        (self.env)(name)
    }

    fn file(&self, path: &Path, bytes_max: u64) -> io::Result<FileContents> {
        // Looked at before it is opened: opening a pipe without a writer would wait for ever.
        let metadata = std::fs::metadata(path)?;
        if !metadata.is_file() {
            return Err(io::Error::other("it is not a regular file"));
        }
        let mut bytes = Vec::new();
        File::open(path)?.take(bytes_max + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > bytes_max {
            return Err(io::Error::other(format!("it is larger than {bytes_max} bytes")));
        }
        let (mode, is_root_owned) = access(&metadata);
        Ok(FileContents { bytes, mode, is_root_owned })
    }

    fn memory_limit(&self) -> Option<u64> {
        memory_limit(&|path| std::fs::read_to_string(path).ok())
    }

    fn cores(&self) -> usize {
        net::allowed_cpus().len()
    }

    fn running(&self) -> Option<Running> {
        self.running
    }

    fn now(&self) -> Duration {
        SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
    }

    fn kernel(&self) -> Option<String> {
        host::kernel()
    }

    fn cpu_model(&self) -> Option<String> {
        host::cpu_model()
    }

    fn tls_server(&self, settings: &TlsServerSettings) -> Result<(), TlsConfigError> {
        tls::server_config(settings).map(drop)
    }

    fn tls_client(&self, settings: &TlsClientSettings) -> Result<(), TlsConfigError> {
        tls::client_config(settings).map(drop)
    }
}

#[cfg(unix)]
fn access(metadata: &std::fs::Metadata) -> (Option<u32>, bool) {
    use std::os::unix::fs::MetadataExt as _;
    (Some(metadata.mode() & 0o777), metadata.uid() == 0)
}

#[cfg(not(unix))]
fn access(_: &std::fs::Metadata) -> (Option<u32>, bool) {
    (None, false)
}

/// The smaller of the cgroup's limit and the machine's memory.
fn memory_limit(read: &dyn Fn(&str) -> Option<String>) -> Option<u64> {
    // Inside a container the own cgroup is mounted at the root; version 2 first, then version 1, whose
    // "no limit" is a number near 2^63 and loses against the machine's memory.
    let cgroup = ["/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"]
        .iter()
        .find_map(|path| read(path)?.trim().parse::<u64>().ok());
    let machine = read("/proc/meminfo").and_then(|text| {
        let line = text.lines().find(|line| line.starts_with("MemTotal:"))?;
        let kib: u64 = line.split_ascii_whitespace().nth(1)?.parse().ok()?;
        kib.checked_mul(1024)
    });
    match (cgroup, machine) {
        (Some(cgroup), Some(machine)) => Some(cgroup.min(machine)),
        (cgroup, machine) => cgroup.or(machine),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_limit_is_the_smaller_of_cgroup_and_machine() {
        let limit = |v2: Option<&str>, v1: Option<&str>, meminfo: Option<&str>| {
            memory_limit(&|path| {
                let text = match path {
                    "/sys/fs/cgroup/memory.max" => v2,
                    "/proc/meminfo" => meminfo,
                    _ => v1,
                };
                text.map(str::to_owned)
            })
        };
        let meminfo = Some("MemTotal:       1024 kB\nMemFree: 1 kB\n");
        assert_eq!(limit(Some("524288\n"), None, meminfo), Some(524_288));
        assert_eq!(limit(Some("max\n"), None, meminfo), Some(1_048_576));
        assert_eq!(limit(None, Some("9223372036854771712"), meminfo), Some(1_048_576));
        assert_eq!(limit(None, None, None), None);
        assert_eq!(limit(None, None, Some("MemTotal: x kB")), None);
    }

    #[test]
    fn only_regular_files_of_bounded_size_are_read() {
        let machine = Machine::new(&|_| None);
        let directory = tempfile::tempdir().expect("temporary directory");
        assert!(machine.file(directory.path(), 10).is_err());
        let file = directory.path().join("f");
        std::fs::write(&file, "0123456789").expect("write");
        assert_eq!(machine.file(&file, 10).expect("fits").bytes, b"0123456789");
        assert!(machine.file(&file, 9).is_err());
        assert!(machine.file(&directory.path().join("none"), 9).is_err());
    }
}
