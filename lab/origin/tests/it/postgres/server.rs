//! A real PostgreSQL with the tables of pgbench. `cargo xtask setup postgres` installs it.

use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, getuid, kill_process};
use tempfile::TempDir;

/// The folder of Debian's programs of the server.
const PROGRAMS: &str = "/usr/lib/postgresql/15/bin";
/// Until it listens, and until it has ended.
const DEADLINE: Duration = Duration::from_secs(60);

/// Ended on drop.
pub struct Server {
    child: Child,
    pub address: SocketAddr,
    folder: TempDir,
}

impl Server {
    /// With the tables of pgbench at scale 1, and the balances that the origin gives.
    pub fn start() -> Self {
        let folder = tempfile::Builder::new().prefix("weir-origin-").tempdir().expect("a folder");
        if getuid().is_root() {
            run(Command::new("chown").arg("postgres").arg(folder.path()));
        }
        let data = folder.path().join("data");
        let initdb = ["--auth=trust", "--username=postgres", "--no-sync", "--encoding=UTF8", "--locale=C.UTF-8"];
        run(program("initdb").args(initdb).arg("--pgdata").arg(&data));
        // Between being found and being bound a port may become another's.
        let (child, address) =
            (0..10).find_map(|_| try_start(&data, folder.path())).expect("PostgreSQL ended ten times");
        let server = Self { child, address, folder };
        let port = address.port().to_string();
        run(Command::new("pgbench").args(["-i", "-q", "-h", "127.0.0.1", "-p", &port, "-U", "postgres", "postgres"]));
        server.psql("UPDATE pgbench_accounts SET abalance = (aid::int8 * 7919 % 1000003)::int4");
        server
    }

    fn psql(&self, text: &str) {
        let port = self.address.port().to_string();
        run(Command::new("psql").args(["-XAtqh", "127.0.0.1", "-p", &port, "-U", "postgres", "-c", text]));
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // An immediate shutdown: children and shared memory go. Without it the folder could not be removed.
        if let Some(pid) = Pid::from_raw(self.child.id() as i32) {
            let _ = kill_process(pid, Signal::QUIT);
        }
        let begun = Instant::now();
        while matches!(self.child.try_wait(), Ok(None)) && begun.elapsed() < DEADLINE {
            std::thread::sleep(Duration::from_millis(5));
        }
        debug_assert!(self.folder.path().exists());
    }
}

/// `None` if it ended.
fn try_start(data: &Path, folder: &Path) -> Option<(Child, SocketAddr)> {
    let free = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = free.local_addr().expect("an address");
    drop(free);
    let mut child = program("postgres")
        .arg("-D")
        .arg(data)
        .args(["-p", &address.port().to_string()])
        .args(["-c", "listen_addresses=127.0.0.1", "-c", "fsync=off", "-c", "timezone=UTC"])
        .arg("-c")
        .arg(format!("unix_socket_directories={}", folder.display()))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("PostgreSQL of Debian: run `cargo xtask setup postgres`");
    let begun = Instant::now();
    loop {
        if child.try_wait().expect("a child").is_some() {
            return None;
        }
        let port = address.port().to_string();
        let ready = program("pg_isready").args(["-q", "-h", "127.0.0.1", "-p", &port]).status();
        if ready.is_ok_and(|status| status.success()) {
            return Some((child, address));
        }
        assert!(begun.elapsed() < DEADLINE, "PostgreSQL does not listen");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A program of the server, which refuses to run as root.
fn program(name: &str) -> Command {
    let path = PathBuf::from(PROGRAMS).join(name);
    if !getuid().is_root() {
        return Command::new(path);
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid=postgres", "--regid=postgres", "--clear-groups", "--pdeathsig", "QUIT"]).arg(path);
    // The folder of the test may be closed to that user.
    command.current_dir("/");
    command
}

/// Runs a program to its end.
fn run(command: &mut Command) {
    let output =
        command.output().unwrap_or_else(|error| panic!("{command:?} ({error}): run `cargo xtask setup postgres`"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}
