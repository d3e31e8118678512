//! Sockets: bind, accept, connect, and the descriptor limit. TCP and Unix sockets are one type here.

use std::{
    cell::Cell,
    io,
    net::{SocketAddr, ToSocketAddrs},
    os::{
        fd::{AsRawFd, RawFd},
        unix::fs::{FileTypeExt, MetadataExt},
    },
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use compio::driver::{SharedFd, op::Connect};
use socket2::{Domain, Protocol, SockAddr, Socket, Type};

use crate::{blocking, driver::Operation, names, occupant::Occupant, settings::Address};

/// Keep-alive probes find peers that vanished without a word.
const KEEPALIVE_AFTER: Duration = Duration::from_secs(60);

/// How long the listeners of a process may take to go that is about to end.
const LISTENERS_GONE_TIME: Duration = Duration::from_millis(500);
/// The same for those of a process that has ended, on a busy machine.
const LISTENERS_GONE_TIME_MAX: Duration = Duration::from_secs(3);
const LISTENERS_GONE_RETRY: Duration = Duration::from_millis(5);

/// Waits until no process listens on `address`. False if one still does after half a second, or after three seconds if no
/// listening process can be seen.
///
/// With `SO_REUSEPORT` two processes share the connections of an address: a replacement wants that, an accident does not.
/// And the kernel takes down the rings of a killed process, with the listeners they hold, some milliseconds after the
/// process has gone: a new one that is quicker would lose the connections that still reach the old listeners.
///
/// # Errors
/// As `bind(2)`, except `AddrInUse`.
pub fn wait_for_sole_use(address: &Address) -> io::Result<bool> {
    wait_for_sole_use_since(address, Instant::now())
}

/// As [`wait_for_sole_use`], with the time counted from `begun`, so that several addresses are waited for together. Looks once in any
/// case.
///
/// # Errors
/// As `bind(2)`, except `AddrInUse`.
pub fn wait_for_sole_use_since(address: &Address, begun: Instant) -> io::Result<bool> {
    let wait = |limit: Duration| -> io::Result<bool> {
        while !is_free(address)? {
            if begun.elapsed() > limit {
                return Ok(false);
            }
            std::thread::sleep(LISTENERS_GONE_RETRY);
        }
        Ok(true)
    };
    Ok(wait(LISTENERS_GONE_TIME)? || (Occupant::of(address).is_none() && wait(LISTENERS_GONE_TIME_MAX)?))
}

/// Returns true if no process listens on `address` now. For a path the result is always true: [`bind`] finds out.
///
/// # Errors
/// As `bind(2)`, except `AddrInUse`.
pub fn is_free(address: &Address) -> io::Result<bool> {
    if matches!(address, Address::Unix(_)) {
        return Ok(true);
    }
    let target = resolve_one(address)?;
    match tcp_socket(target)?.bind(&target.into()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => Ok(false),
        Err(error) => Err(error),
    }
}

fn tcp_socket(target: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(target), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    if target.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    Ok(socket)
}

/// Binds a socket that is to listen, non-blocking. TCP sockets get `SO_REUSEADDR` and `SO_REUSEPORT`, so that each worker
/// has its own queue. See [`wait_for_sole_use`]. No connection comes in before [`listen`].
///
/// Replaces a Unix path whose socket has no listener.
///
/// # Errors
/// As `bind(2)`.
pub fn bind(address: &Address) -> io::Result<Socket> {
    let (socket, address) = match address {
        Address::Unix(path) => {
            if is_unused_socket(path)? {
                std::fs::remove_file(path)?;
            }
            (Socket::new(Domain::UNIX, Type::STREAM, None)?, SockAddr::unix(path)?)
        }
        other => {
            let target = resolve_one(other)?;
            let socket = tcp_socket(target)?;
            socket.set_reuse_port(true)?;
            (socket, target.into())
        }
    };
    socket.set_nonblocking(true)?;
    socket.bind(&address)?;
    Ok(socket)
}

/// Returns true if `path` is a Unix socket on which no process listens.
pub(crate) fn is_unused_socket(path: &Path) -> io::Result<bool> {
    if !std::fs::symlink_metadata(path).is_ok_and(|metadata| metadata.file_type().is_socket()) {
        return Ok(false);
    }
    let probe = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    // A queue that is full is no reason to wait: somebody listens.
    probe.set_nonblocking(true)?;
    let connected = probe.connect(&SockAddr::unix(path)?);
    Ok(connected.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused))
}

/// The file of a Unix socket, which another process may replace by its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SocketFile {
    path: PathBuf,
    device: u64,
    inode: u64,
    /// Numbers of files are used again: seconds and nanoseconds.
    changed: (i64, i64),
}

impl SocketFile {
    /// The one at `path` now.
    ///
    /// # Errors
    /// There is none.
    pub fn at(path: &Path) -> io::Result<Self> {
        let metadata = std::fs::symlink_metadata(path)?;
        let changed = (metadata.ctime(), metadata.ctime_nsec());
        Ok(Self { path: path.to_owned(), device: metadata.dev(), inode: metadata.ino(), changed })
    }

    /// Removes it, unless it is gone or another one by now.
    ///
    /// # Errors
    /// As `unlink(2)`.
    pub fn remove(&self) -> io::Result<()> {
        match Self::at(&self.path).is_ok_and(|now| now == *self) {
            true => std::fs::remove_file(&self.path),
            false => Ok(()),
        }
    }
}

/// Lets connections in; of a socket that listens already, changes only how many may wait. Accepted connections inherit the options
/// of data connections from it, which saves four calls for each.
///
/// # Errors
/// As `listen(2)`.
pub fn listen(socket: &Socket, backlog: u32) -> io::Result<()> {
    prepare(socket)?;
    socket.listen(backlog.min(i32::MAX as u32) as i32)
}

/// As [`listen`], for the first socket of a TCP address that no other process may share. [`wait_for_sole_use`] does not see a
/// process that has bound the address and does not listen yet; of two such processes at most one comes through here, for the
/// kernel looks again when a socket without `SO_REUSEPORT` begins to listen. Further sockets of this process may listen behind it.
///
/// # Errors
/// As `listen(2)`; `AddrInUse` if somebody else listens.
pub fn listen_alone(socket: &Socket, backlog: u32) -> io::Result<()> {
    socket.set_reuse_port(false)?;
    let listening = listen(socket, backlog);
    socket.set_reuse_port(true)?;
    listening
}

pub(crate) fn resolve_one(address: &Address) -> io::Result<SocketAddr> {
    resolve(address)?
        .into_iter()
        .next()
        .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "the name has no address"))
}

/// The socket addresses of `address`; blocks on a host name.
fn resolve(address: &Address) -> io::Result<Vec<SocketAddr>> {
    match address {
        Address::Socket(address) => Ok(vec![*address]),
        Address::Host { name, port } => Ok((&**name, *port).to_socket_addrs()?.collect()),
        Address::Unix(_) => Err(io::Error::new(io::ErrorKind::InvalidInput, "a Unix path has no IP address")),
    }
}

/// Connects to `address` on this worker within `limit`. The addresses of a host name are tried in turn, and share the time:
/// one that does not respond leaves some for the others.
///
/// # Errors
/// The last refusal; `TimedOut` if it was none.
pub async fn connect(address: &Address, limit: Duration) -> io::Result<Socket> {
    let begun = Instant::now();
    let targets = match address {
        Address::Unix(path) => vec![SockAddr::unix(path)?],
        Address::Socket(address) => vec![SockAddr::from(*address)],
        Address::Host { name, port } => {
            let host = address.clone();
            let resolved = async |under_way| {
                let resolved = blocking::on_helper(under_way, move || resolve(&host));
                // Half of the time is for the connection, to the last good address if need be.
                let resolved = crate::timeout(limit / 2, resolved).await.map_err(|_| io::ErrorKind::TimedOut)?;
                resolved?
            };
            let mut addresses = names::addresses((name, *port), resolved).await?;
            in_turn(&mut addresses);
            addresses.into_iter().map(SockAddr::from).collect()
        }
    };
    connect_any(targets, limit.saturating_sub(begun.elapsed())).await
}

/// Each address of a name is the first one in turn, among those of the family that the resolver prefers (RFC 6724): else all
/// connections would go to one of the machines behind the name.
fn in_turn(addresses: &mut [SocketAddr]) {
    thread_local! {
        static TURN: Cell<u64> = const { Cell::new(0) };
    }
    let preferred = addresses.iter().take_while(|address| address.is_ipv4() == addresses[0].is_ipv4()).count();
    if preferred > 1 {
        // Mixed (Fibonacci hashing): names that are connected to in lock-step would else always have the same turns.
        let turn = TURN.replace(TURN.get().wrapping_add(1)).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
        addresses[..preferred].rotate_left(turn as usize % preferred);
    }
}

async fn connect_any(targets: Vec<SockAddr>, limit: Duration) -> io::Result<Socket> {
    let begun = Instant::now();
    let mut refusal = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    let mut left = targets.len() as u32;
    for target in targets {
        let share = limit.saturating_sub(begun.elapsed()) / left;
        left -= 1;
        match crate::timeout(share, connect_one(target)).await {
            Ok(Ok(socket)) => return Ok(socket),
            Ok(Err(error)) => refusal = error,
            Err(_) => refusal = io::ErrorKind::TimedOut.into(),
        }
    }
    Err(refusal)
}

async fn connect_one(target: SockAddr) -> io::Result<Socket> {
    let socket = Socket::new(target.domain(), Type::STREAM, None)?;
    let is_polling = compio::runtime::Runtime::with_current(|runtime| !runtime.driver_type().is_iouring());
    socket.set_nonblocking(is_polling)?;
    prepare(&socket)?;
    let copy = socket.try_clone()?;
    // SAFETY: the descriptor is open and owned by `copy`; the epoll and io_uring drivers need no registration.
    let shared = unsafe { SharedFd::new_unchecked(copy) };
    let _operation = Operation::begin();
    let (result, _) = compio::runtime::submit(Connect::new(shared, target)).await.into_parts();
    result?;
    Ok(socket)
}

/// Options of every data connection: no Nagle delay, keep-alive.
fn prepare(socket: &Socket) -> io::Result<()> {
    if socket.domain()? != Domain::UNIX {
        socket.set_tcp_nodelay(true)?;
        socket.set_tcp_keepalive(&socket2::TcpKeepalive::new().with_time(KEEPALIVE_AFTER))?;
    }
    Ok(())
}

/// Accepts one pending connection without blocking.
///
/// # Errors
/// `WouldBlock` if none is pending; otherwise see [`crate::accept::classify`].
pub(crate) fn accept_one(listener: &Socket) -> io::Result<(Socket, SockAddr)> {
    listener.accept()
}

/// Which of these listening sockets have a connection waiting.
pub fn has_waiting(sockets: &[RawFd]) -> Vec<bool> {
    poll_now(sockets, libc::POLLIN)
}

/// Which of these connections have been closed or broken by their peers.
pub fn hung_up(sockets: &[RawFd]) -> Vec<bool> {
    sockets.iter().copied().for_each(settle);
    poll_now(sockets, libc::POLLRDHUP)
}

/// Waits until no other thread is in a call on `socket`. Events that arrive meanwhile, the end of the connection included, are
/// deferred until that call is over, which may take a while: a thread may lose its processor in the middle of one.
fn settle(socket: RawFd) {
    let mut unread: libc::c_int = 0;
    // SAFETY: a valid pointer to a local, which the kernel writes; a descriptor that is no socket any more is an error only.
    unsafe { libc::ioctl(socket, libc::FIONREAD, &raw mut unread) };
}

/// Which of `sockets` have one of `events` now; those that are broken have all of them.
fn poll_now(sockets: &[RawFd], events: i16) -> Vec<bool> {
    let mut all: Vec<_> = sockets.iter().map(|&fd| libc::pollfd { fd, events, revents: 0 }).collect();
    if !all.is_empty() {
        // SAFETY: a valid pointer to that many entries; the kernel writes what has happened into each.
        unsafe { libc::poll(all.as_mut_ptr(), all.len() as libc::nfds_t, 0) };
    }
    all.iter().map(|one| one.revents != 0).collect()
}

/// Raises the soft limit of open descriptors to the hard one and returns it (istio/ztunnel#1585: a proxy that kept the
/// shell's default of 1,024 stopped accepting under load).
///
/// # Errors
/// As `getrlimit(2)` and `setrlimit(2)`.
pub fn raise_descriptor_limit() -> io::Result<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: both calls get a valid pointer to a local that outlives them.
    unsafe {
        if libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) != 0 {
            return Err(io::Error::last_os_error());
        }
        limit.rlim_cur = limit.rlim_max;
        if libc::setrlimit(libc::RLIMIT_NOFILE, &limit) != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(limit.rlim_cur)
}

/// Lets short sleeps of the calling thread end on time; the default slack of 50 us would double them.
pub(crate) fn set_timer_slack(slack: std::time::Duration) {
    // SAFETY: takes plain numbers and changes nothing but the calling thread's timers.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, slack.as_nanos() as libc::c_ulong) };
}

/// Takes the program's code and constants out of the resident set. Most of the pages that the start needed are not used again; the
/// others come back from the page cache at their next use, for a microsecond each.
///
/// # Errors
/// The mappings of the process cannot be read.
pub fn release_program_pages() -> io::Result<()> {
    let program = std::fs::read_link("/proc/self/exe")?;
    let program = program.to_string_lossy();
    for line in std::fs::read_to_string("/proc/self/maps")?.lines().filter(|line| line.ends_with(&*program)) {
        // The first segment is that of the constants. A later one has the results of relocations, which the file cannot restore.
        let Some((range, _)) = line.split_once(" r-xp ").or_else(|| line.split_once(" r--p 00000000 ")) else {
            continue;
        };
        let bounds = range.split_once('-').map(|(from, to)| [from, to].map(|at| usize::from_str_radix(at, 16)));
        let Some([Ok(from), Ok(to)]) = bounds else { continue };
        // SAFETY: the range is mapped from the program's file and never written: what is dropped is read from there again.
        unsafe { libc::madvise(from as *mut libc::c_void, to - from, libc::MADV_DONTNEED) };
    }
    Ok(())
}

/// Gives free heap pages back to the kernel. Costs milliseconds with a large heap, so call it seldom and not on a worker.
pub fn release_free_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: takes a plain number; glibc locks its arenas itself.
    unsafe {
        libc::malloc_trim(0)
    };
}

/// Processor time of the calling thread in nanoseconds.
pub fn thread_cpu_nanos() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a valid pointer to a local; the clock id is a constant that Linux knows.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// The processors this process may run on, in order.
pub fn allowed_cpus() -> Vec<usize> {
    // SAFETY: `cpu_set_t` is plain bits for which zero is valid; the kernel fills at most its size.
    let set = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        if libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &mut set) != 0 {
            return vec![0];
        }
        set
    };
    // SAFETY: the index stays below CPU_SETSIZE.
    let is_allowed = |cpu: &usize| unsafe { libc::CPU_ISSET(*cpu, &set) };
    (0..libc::CPU_SETSIZE as usize).filter(is_allowed).collect()
}

/// The process at the other end of a Unix socket when it connected; `None` if it is none that can be seen from here (another
/// PID namespace).
pub fn peer_process(socket: &impl AsRawFd) -> Option<u32> {
    let mut peer = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut size = size_of::<libc::ucred>() as libc::socklen_t;
    let into = (&raw mut peer).cast();
    // SAFETY: the kernel writes at most `size` bytes, into a local of that size; for any other socket it only fails.
    let failed =
        unsafe { libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_PEERCRED, into, &raw mut size) };
    u32::try_from(peer.pid).ok().filter(|pid| failed == 0 && *pid != 0)
}

/// The peer for logs: an address, or `unix` with its descriptor number.
pub(crate) fn peer_name(socket: &Socket, address: &SockAddr) -> String {
    match address.as_socket() {
        Some(address) => address.to_string(),
        None => format!("unix:{}", socket.as_raw_fd()),
    }
}

#[cfg(test)]
mod tests {
    use std::{
        net::TcpListener,
        sync::{Arc, mpsc},
    };

    use super::*;
    use crate::{
        Worker,
        settings::{DriverChoice, RuntimeSettings},
    };

    /// A listener whose queue is full: the kernel accepts no further connection. The sockets keep it so.
    fn black_hole() -> (Socket, Vec<Socket>) {
        let listener = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
        listener.bind(&SockAddr::from(SocketAddr::from(([127, 0, 0, 1], 0)))).expect("a free port");
        listener.listen(0).expect("listens");
        let address = listener.local_addr().expect("bound");
        let fill = |_| {
            let client = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
            client.set_nonblocking(true).expect("set");
            let _ = client.connect(&address);
            client
        };
        let clients = (0..4).map(fill).collect();
        (listener, clients)
    }

    /// Completions that no event announces would be found only when something else wakes the worker.
    #[test]
    fn many_connects_that_end_together_wake_the_worker_on_both_drivers() {
        for driver in [DriverChoice::IoUring, DriverChoice::Polling] {
            let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
            let dead = Address::Socket(listener.local_addr().expect("bound"));
            drop(listener);
            let (sender, outcome) = mpsc::channel();
            let settings = RuntimeSettings { driver, ..RuntimeSettings::default() };
            let worker = Worker::start(0, None, &settings, Arc::default(), move || async move {
                let connect = |_| {
                    let dead = dead.clone();
                    crate::spawn(async move {
                        super::connect(&dead, Duration::from_secs(20)).await.err().map(|error| error.kind())
                    })
                };
                let all: Vec<_> = (0..200).map(connect).collect();
                let mut refused = 0;
                for one in all {
                    refused += u32::from(one.await.ok().flatten() == Some(io::ErrorKind::ConnectionRefused));
                }
                sender.send(refused).expect("the test waits");
            });
            let refused = outcome.recv_timeout(Duration::from_secs(5)).expect("long before the limit of a connect");
            worker.expect("started").join().expect("no panic");
            assert_eq!(refused, 200, "{driver:?}");
        }
    }

    #[test]
    fn accepted_connections_inherit_the_options_of_their_listener() {
        let listener = bind(&"127.0.0.1:0".parse().expect("an address")).expect("bound");
        listen(&listener, 4).expect("listens");
        let client = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
        client.connect(&listener.local_addr().expect("bound")).expect("connected");
        listener.set_nonblocking(false).expect("set");
        let (accepted, _) = accept_one(&listener).expect("accepted");
        assert!(accepted.tcp_nodelay().expect("an option") && accepted.keepalive().expect("an option"));
        assert_eq!(accepted.tcp_keepalive_time().expect("an option"), KEEPALIVE_AFTER);
        assert!(!client.tcp_nodelay().expect("an option"), "the default of the system is another");
    }

    #[test]
    fn of_two_that_have_bound_an_address_one_alone_may_listen() {
        let first = bind(&"127.0.0.1:0".parse().expect("an address")).expect("bound");
        let address = Address::Socket(first.local_addr().expect("bound").as_socket().expect("an IP address"));
        let (second, worker, shared) = (bind(&address), bind(&address), bind(&address));
        assert!(is_free(&address).expect("looked"), "nobody listens yet");
        listen_alone(&first, 8).expect("alone");
        let refusal = listen_alone(&second.expect("bound"), 8).expect_err("another one listens");
        assert_eq!(refusal.kind(), io::ErrorKind::AddrInUse);
        listen(&worker.expect("bound"), 8).expect("a further socket of the first");
        listen(&shared.expect("bound"), 8).expect("one that wants to share");
        assert!(!is_free(&address).expect("looked") && !wait_for_sole_use(&address).expect("looked"));
    }

    #[test]
    fn an_address_that_does_not_respond_leaves_time_for_the_next() {
        let (hole, _clients) = black_hole();
        let good = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let targets = vec![hole.local_addr().expect("bound"), SockAddr::from(good.local_addr().expect("bound"))];
        let (told, outcome) = mpsc::channel();
        let worker = Worker::start(0, None, &RuntimeSettings::default(), Arc::default(), move || async move {
            let connected = connect_any(targets, Duration::from_secs(2)).await;
            told.send(connected.and_then(|socket| socket.peer_addr())).expect("the test waits");
        });
        let reached = outcome.recv_timeout(Duration::from_secs(10)).expect("an outcome").expect("connected");
        assert_eq!(reached.as_socket(), good.local_addr().ok());
        worker.expect("started").join().expect("no panic");
    }

    /// Resident bytes of the program's code.
    fn resident_code() -> u64 {
        let program = std::fs::read_link("/proc/self/exe").expect("a program");
        let program = program.to_string_lossy().into_owned();
        let maps = std::fs::read_to_string("/proc/self/smaps").expect("mappings");
        let mut lines = maps.lines().skip_while(|line| !(line.contains(" r-xp ") && line.ends_with(&program)));
        let resident = lines.find_map(|line| line.strip_prefix("Rss:")).expect("resident bytes");
        resident.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") * 1_024
    }

    #[test]
    fn pages_of_the_program_leave_the_resident_set_and_come_back() {
        static TABLE: [&str; 3] = ["constants", "and their", "relocations stay"];
        // Other tests of this process run at the same time, and take pages back.
        let has_shrunk = || {
            let before = resident_code();
            release_program_pages().expect("released");
            resident_code() < before
        };
        assert!((0..100).any(|_| has_shrunk()));
        assert_eq!(TABLE.join(" "), "constants and their relocations stay");
    }
}
