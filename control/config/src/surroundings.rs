//! What a configuration refers to outside its own text: environment variables, files, the memory limit, TLS contexts.
//!
//! The core asks this trait and nothing else, so it can be fuzzed and tested without a file system.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use weir_engine::net::SocketFile;
use weir_engine::occupant::{self, Occupant};
use weir_engine::settings::{Address, TlsClientSettings, TlsServerSettings};
use weir_engine::tls::{self, TlsConfigError};
use weir_engine::{host, net};

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
}

/// What came of an attempt to listen at an address.
#[derive(Debug)]
pub enum Listening {
    /// It can be done, or was not tried.
    Possible,
    /// A gateway listens there; its description. The file may well be its own.
    ByGateway(String),
    /// It cannot be done.
    Refused(io::Error),
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

    /// True if the file is checked away from the machine that it is for: what it refers to may be missing.
    fn is_offline(&self) -> bool;

    /// Tries to listen at `address` as the gateway would, and leaves nothing behind.
    fn listen(&self, address: &Address, reuse_port: bool) -> Listening;

    /// Tries to open a log that is appended to, and leaves nothing behind.
    ///
    /// # Errors
    /// As `open(2)`.
    fn append(&self, path: &Path) -> io::Result<()>;

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

/// What a file is read for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    /// To run it: what it needs of the machine is not tried before.
    Run,
    /// To know whether this machine could run it.
    Rehearsal,
    /// To know whether it is right, on another machine than the one that will run it.
    Offline,
}

/// This machine, with the environment behind a function: the caller may layer its own.
pub struct Machine<'a> {
    env: &'a dyn Fn(&str) -> Option<String>,
    running: Option<Running>,
    purpose: Purpose,
}

impl<'a> Machine<'a> {
    /// `env` answers for environment variables; usually `&|name| std::env::var(name).ok()`.
    pub fn new(env: &'a dyn Fn(&str) -> Option<String>) -> Self {
        Self { env, running: None, purpose: Purpose::Run }
    }

    /// The same, for a check that tries what a start will need: addresses, and the file of the access log.
    #[must_use]
    pub fn rehearsing(self) -> Self {
        Self { purpose: Purpose::Rehearsal, ..self }
    }

    /// The same, for a check away from the machine that the file is for. Environment variables and files that are not here are
    /// noted; the memory, the cores and the processor of this machine do not count.
    #[must_use]
    pub fn offline(self) -> Self {
        Self { purpose: Purpose::Offline, ..self }
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
        match self.is_offline() {
            true => Some(u64::MAX),
            false => memory_limit(&|path| std::fs::read_to_string(path).ok()),
        }
    }

    fn cores(&self) -> usize {
        net::allowed_cpus().len()
    }

    fn running(&self) -> Option<Running> {
        self.running
    }

    fn is_offline(&self) -> bool {
        self.purpose == Purpose::Offline
    }

    fn listen(&self, address: &Address, reuse_port: bool) -> Listening {
        if self.purpose != Purpose::Rehearsal {
            return Listening::Possible;
        }
        match try_to_listen(address, reuse_port) {
            Ok(()) => Listening::Possible,
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => match Occupant::of(address) {
                Some(occupant) if occupant.is_same_program() => Listening::ByGateway(occupant.to_string()),
                _ => Listening::Refused(occupant::in_use(address)),
            },
            Err(error) => Listening::Refused(error),
        }
    }

    fn append(&self, path: &Path) -> io::Result<()> {
        if self.purpose != Purpose::Rehearsal {
            return Ok(());
        }
        let is_new = std::fs::symlink_metadata(path).is_err();
        OpenOptions::new().create(true).append(true).open(path)?;
        // An empty file of this user could keep that of the gateway from it.
        if is_new { std::fs::remove_file(path) } else { Ok(()) }
    }

    fn now(&self) -> Duration {
        SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
    }

    fn kernel(&self) -> Option<String> {
        host::kernel().filter(|_| !self.is_offline())
    }

    fn cpu_model(&self) -> Option<String> {
        host::cpu_model().filter(|_| !self.is_offline())
    }

    fn tls_server(&self, settings: &TlsServerSettings) -> Result<(), TlsConfigError> {
        let named = settings.certificates.iter().flat_map(|one| [&one.cert_file, &one.key_file]);
        let mut files =
            [&settings.cert_file, &settings.key_file].into_iter().chain(&settings.client_ca_file).chain(named);
        if self.is_offline() && !files.all(|file| file.exists()) {
            return Ok(());
        }
        tls::server_config(settings).map(drop)
    }

    fn tls_client(&self, settings: &TlsClientSettings) -> Result<(), TlsConfigError> {
        let mut files = [&settings.ca_file, &settings.cert_file, &settings.key_file].into_iter().flatten();
        // Without `ca_file` there is the bundle of the platform, which need not be installed here.
        let is_whole = settings.ca_file.is_some() && files.all(|file| file.exists());
        if self.is_offline() && !is_whole {
            return Ok(());
        }
        tls::client_config(settings).map(drop)
    }
}

/// Binds `address` as a start does, and lets it go again.
fn try_to_listen(address: &Address, reuse_port: bool) -> io::Result<()> {
    if !reuse_port && !net::is_free(address)? {
        return Err(io::ErrorKind::AddrInUse.into());
    }
    let _bound = net::bind(address)?;
    match address {
        Address::Unix(path) => SocketFile::at(path)?.remove(),
        _ => Ok(()),
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
    fn a_rehearsal_leaves_nothing_behind() {
        let machine = Machine::new(&|_| None).rehearsing();
        let directory = tempfile::tempdir().expect("temporary directory");
        let (log, kept) = (directory.path().join("access.log"), directory.path().join("kept.log"));
        std::fs::write(&kept, "a line\n").expect("write");
        machine.append(&log).expect("it can be written");
        machine.append(&kept).expect("it can be written");
        assert!(!log.exists() && std::fs::read(&kept).expect("read") == b"a line\n");
        let missing = machine.append(&directory.path().join("none/access.log")).expect_err("no directory");
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
        let socket = Address::Unix(directory.path().join("s.sock"));
        assert!(matches!(machine.listen(&socket, false), Listening::Possible));
        assert!(!directory.path().join("s.sock").exists());
    }

    #[test]
    fn a_rehearsal_finds_who_listens_and_a_start_does_not_look() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = Address::Socket(listener.local_addr().expect("bound"));
        let start = Machine::new(&|_| None);
        assert!(matches!(start.listen(&address, false), Listening::Possible));
        // The process that listens is this one, so its program is the same.
        let own = std::process::id().to_string();
        let rehearsal = Machine::new(&|_| None).rehearsing();
        for reuse_port in [false, true] {
            let found = rehearsal.listen(&address, reuse_port);
            assert!(matches!(&found, Listening::ByGateway(who) if who.contains(&own)), "{found:?}");
        }
        drop(listener);
        assert!(matches!(rehearsal.listen(&address, false), Listening::Possible));
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
