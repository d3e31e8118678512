//! The things outside of its text to which a configuration refers: environment variables, files, the memory limit, TLS contexts.
//!
//! The core asks this trait and nothing else, so it can be fuzzed and tested without a file system.

use std::cell::Cell;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use weir_engine::occupant::{self, Occupant};
use weir_engine::settings::{Address, TlsClientSettings, TlsServerSettings};
use weir_engine::tls::{self, TlsConfigError};
use weir_engine::{attempt, host, net};

/// Contents of a file, and who may read it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileContents {
    /// The bytes, at most as many as were requested.
    pub bytes: Vec<u8>,
    /// Permission bits (`st_mode & 0o777`); `None` where the platform has none.
    pub mode: Option<u32>,
    /// True if the superuser owns it.
    pub is_root_owned: bool,
}

/// Facts about the running process that a reload cannot change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Running {
    /// Worker threads.
    pub workers: usize,
}

/// The result of an attempt to listen at an address.
#[derive(Debug)]
pub enum Listening {
    /// It can be done, or was not tried.
    Possible,
    /// A gateway listens there; its description. The file may well be its own.
    ByGateway(String),
    /// A process listens there, and the kernel hides it: that of another user, or one with more capabilities, as a packaged gateway
    /// is. So this may be the gateway of the file.
    ByHidden,
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

    /// Finds out whether the gateway could listen at `address`. Creates and removes no file.
    fn listen(&self, address: &Address, reuse_port: bool) -> Listening;

    /// Finds out whether a log can be opened to append to it, or created. Creates and removes no file.
    ///
    /// # Errors
    /// As `open(2)`.
    fn append(&self, path: &Path) -> io::Result<()>;

    /// The time since 1970, to which certificates are compared.
    fn now(&self) -> Duration;

    /// Release of the kernel, if it is known.
    fn kernel(&self) -> Option<String>;

    /// Model of the processor, if it is known.
    fn cpu_model(&self) -> Option<String>;

    /// Builds the TLS context of a listener and throws it away, to learn whether it can be built.
    ///
    /// # Errors
    /// The error that the engine would report when the listener starts.
    fn tls_server(&self, settings: &TlsServerSettings) -> Result<(), TlsConfigError>;

    /// The same for an upstream.
    ///
    /// # Errors
    /// The error that the engine would report at the first connect.
    fn tls_client(&self, settings: &TlsClientSettings) -> Result<(), TlsConfigError>;
}

/// The purpose of a file.
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
    /// Addresses are waited for since then, all together.
    waiting_since: Cell<Option<Instant>>,
}

impl<'a> Machine<'a> {
    /// `env` answers for environment variables; usually `&|name| std::env::var(name).ok()`.
    pub fn new(env: &'a dyn Fn(&str) -> Option<String>) -> Self {
        Self { env, running: None, purpose: Purpose::Run, waiting_since: Cell::new(None) }
    }

    /// The same, for a check that tries what a start will need: addresses, and the file of the access log.
    #[must_use]
    pub fn rehearsing(self) -> Self {
        Self { purpose: Purpose::Rehearsal, ..self }
    }

    /// The same, for a check away from the machine that the file is for. Environment variables and files that are not here, or not to
    /// be read, are noted; the memory, the cores and the processor of this machine do not count.
    #[must_use]
    pub fn offline(self) -> Self {
        Self { purpose: Purpose::Offline, ..self }
    }

    /// The same for a gateway that runs already.
    #[must_use]
    pub fn under(self, running: Running) -> Self {
        Self { running: Some(running), ..self }
    }

    /// A start waits for a process that is about to end, so this does too. A Unix path is not waited for.
    fn becomes_free(&self, address: &Address) -> bool {
        if matches!(address, Address::Unix(_)) {
            return false;
        }
        let begun = self.waiting_since.get().unwrap_or_else(Instant::now);
        self.waiting_since.set(Some(begun));
        net::wait_for_sole_use_since(address, begun).unwrap_or(false)
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
        match attempt::bind(address, reuse_port) {
            Ok(()) => Listening::Possible,
            Err(error) if is_taken(&error, address) => match Occupant::of(address) {
                Some(occupant) if occupant.is_same_program() => Listening::ByGateway(occupant.to_string()),
                None if occupant::is_listened_on(address) => Listening::ByHidden,
                _ if !reuse_port && self.becomes_free(address) => Listening::Possible,
                _ => Listening::Refused(occupant::in_use(address)),
            },
            Err(error) => Listening::Refused(error),
        }
    }

    fn append(&self, path: &Path) -> io::Result<()> {
        if self.purpose != Purpose::Rehearsal {
            return Ok(());
        }
        attempt::append(path)
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
        if self.is_offline() && !files.all(|file| can_be_read(file)) {
            return Ok(());
        }
        tls::server_config(settings).map(drop)
    }

    fn tls_client(&self, settings: &TlsClientSettings) -> Result<(), TlsConfigError> {
        let mut files = [&settings.ca_file, &settings.cert_file, &settings.key_file].into_iter().flatten();
        // Without `ca_file` there is the bundle of the platform, which need not be installed here.
        let is_whole = settings.ca_file.is_some() && files.all(|file| can_be_read(file));
        if self.is_offline() && !is_whole {
            return Ok(());
        }
        tls::client_config(settings).map(drop)
    }
}

fn can_be_read(file: &Path) -> bool {
    File::open(file).is_ok()
}

/// True if an attempt to bind `address` failed for a socket that is there. A port below 1024 may be the gateway's, and closed to this
/// user: the socket counts then.
fn is_taken(error: &io::Error, address: &Address) -> bool {
    match error.kind() {
        io::ErrorKind::AddrInUse => true,
        io::ErrorKind::PermissionDenied => occupant::is_listened_on(address),
        _ => false,
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
    use std::net::{SocketAddr, TcpListener};
    use std::os::fd::{AsFd as _, OwnedFd};
    use std::process::Command;

    use socket2::{Domain, Socket, Type};
    use weir_engine::handover::Channel;

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
    fn a_rehearsal_tries_the_log_and_a_start_does_not() {
        let directory = tempfile::tempdir().expect("temporary directory");
        let (start, rehearsal) = (Machine::new(&|_| None), Machine::new(&|_| None).rehearsing());
        let (log, nowhere) = (directory.path().join("access.log"), directory.path().join("none/access.log"));
        rehearsal.append(&log).expect("it can be written");
        assert!(!log.exists());
        assert_eq!(rehearsal.append(&nowhere).expect_err("no directory").kind(), io::ErrorKind::NotFound);
        start.append(&nowhere).expect("the start finds out later");
    }

    /// `weir check` before each start of the unit failed right after a crash, where the start itself would have waited.
    #[test]
    fn an_address_that_becomes_free_soon_is_waited_for() {
        // Bound, as by a process that is about to listen, at an address that no connection of another process has.
        let other = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
        other.bind(&SocketAddr::from(([127, 77, 0, 9], 0)).into()).expect("a free port");
        let address = Address::Socket(other.local_addr().ok().and_then(|bound| bound.as_socket()).expect("bound"));
        let leaving = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(50));
            drop(other);
        });
        let found = Machine::new(&|_| None).rehearsing().listen(&address, false);
        assert!(matches!(found, Listening::Possible), "{found:?}");
        leaving.join().expect("no panic");
    }

    /// A process that listens has half a second. The wait for an address without one goes on beyond that.
    #[test]
    fn an_address_that_another_program_holds_does_not_end_the_wait_for_the_next_one() {
        let held = TcpListener::bind("127.77.0.11:0").expect("a free port");
        let held_address = Address::Socket(held.local_addr().expect("bound"));
        let mut holder = Command::new("sleep").arg("60").stdin(OwnedFd::from(held)).spawn().expect("sleep runs");
        let next = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
        next.bind(&SocketAddr::from(([127, 77, 0, 11], 0)).into()).expect("a free port");
        let next_address = Address::Socket(next.local_addr().ok().and_then(|bound| bound.as_socket()).expect("bound"));
        let rehearsal = Machine::new(&|_| None).rehearsing();
        let first = rehearsal.listen(&held_address, false);
        let leaving = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(300));
            drop(next);
        });
        let second = rehearsal.listen(&next_address, false);
        holder.kill().and_then(|()| holder.wait()).expect("it ends");
        assert!(matches!(&first, Listening::Refused(error) if error.to_string().contains("(sleep)")), "{first:?}");
        assert!(matches!(second, Listening::Possible), "{second:?}");
        leaving.join().expect("no panic");
    }

    /// A bound socket that does not listen is as one of a connection: it is waited for as long as a process that has crashed.
    #[test]
    fn addresses_in_use_are_waited_for_together_and_no_process_is_blamed() {
        let bound = [(); 10].map(|()| {
            let one = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
            one.bind(&SocketAddr::from(([127, 77, 0, 10], 0)).into()).expect("a free port");
            one
        });
        let (rehearsal, begun) = (Machine::new(&|_| None).rehearsing(), Instant::now());
        for one in &bound {
            let address = one.local_addr().ok().and_then(|bound| bound.as_socket()).expect("bound");
            let found = rehearsal.listen(&Address::Socket(address), false);
            let Listening::Refused(error) = found else { panic!("{found:?}") };
            assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
            let text = error.to_string();
            assert!(text.contains("no process listens there") && text.contains("a process that is starting"), "{text}");
        }
        // One by one it would be half a minute.
        assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    }

    #[test]
    fn a_hidden_process_and_a_file_that_is_no_socket_are_told_apart() {
        let rehearsal = Machine::new(&|_| None).rehearsing();
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = Address::Socket(listener.local_addr().expect("bound"));
        // Between two processes a socket is in none of them.
        let (channel, _other) = Channel::pair().expect("a pair");
        channel.send(b"x", &[listener.as_fd()]).expect("sent");
        drop(listener);
        let found = rehearsal.listen(&address, false);
        assert!(matches!(found, Listening::ByHidden), "{found:?}");
        let directory = tempfile::tempdir().expect("temporary directory");
        let path = directory.path().join("file");
        std::fs::write(&path, "no socket").expect("write");
        assert!(matches!(rehearsal.listen(&Address::Unix(path), false), Listening::Refused(_)));
    }

    #[test]
    fn a_rehearsal_finds_the_listening_process_and_a_start_does_not_look() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
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

    /// A listener at every address of the machine is none at an address that the machine does not have.
    #[test]
    fn an_address_of_another_machine_is_refused_beside_a_listener_at_every_address() {
        let listener = TcpListener::bind("0.0.0.0:0").expect("a free port");
        let port = listener.local_addr().expect("bound").port();
        let address = Address::Socket(SocketAddr::from(([192, 0, 2, 77], port)));
        let found = Machine::new(&|_| None).rehearsing().listen(&address, false);
        assert!(
            matches!(&found, Listening::Refused(error) if error.kind() == io::ErrorKind::AddrNotAvailable),
            "{found:?}"
        );
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
