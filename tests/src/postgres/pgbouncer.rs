//! A real PgBouncer in front of a server, to compare with. Debian 12 has 1.18: without prepared statements in transaction
//! pooling, and without the startup parameter `options`.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::port;
use crate::postgres::server::{PASSWORD, Postgres, USER};
use crate::postgres::torture::USERS;
use crate::postgres::{account, url};
use crate::process::Process;
use crate::stream::{Address, Stream};

/// The configuration file in the folder.
const CONFIGURATION: &str = "pgbouncer.ini";

/// When a server connection goes back to the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolMode {
    /// When the client leaves.
    Session,
    /// After each transaction.
    Transaction,
    /// After each statement.
    Statement,
}

impl PoolMode {
    /// As configurations write it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Session => "session",
            Self::Transaction => "transaction",
            Self::Statement => "statement",
        }
    }
}

/// A running PgBouncer. It ends with this value.
pub struct Pgbouncer {
    /// The TCP address.
    pub address: Address,
    process: Process,
    folder: TempDir,
}

impl Pgbouncer {
    /// In front of every database of `server`, with `pool_size` connections for each. `lines` are further settings.
    ///
    /// # Panics
    /// If it is not installed, or does not listen.
    #[must_use]
    pub fn before(server: &Postgres, mode: PoolMode, pool_size: u32, lines: &str) -> Self {
        Self::start(server, mode, pool_size, lines, false)
    }

    /// The same for clients that log in without a password: those of the torture.
    ///
    /// # Panics
    /// As [`Pgbouncer::before`].
    #[must_use]
    pub fn trusting(server: &Postgres, mode: PoolMode, pool_size: u32) -> Self {
        Self::start(server, mode, pool_size, "", true)
    }

    fn start(server: &Postgres, mode: PoolMode, pool_size: u32, lines: &str, is_trusting: bool) -> Self {
        let (folder, port) = (Postgres::new_folder(), port::free());
        let users = folder.path().join("users.txt");
        let trusted: String = USERS.iter().map(|user| format!("\"{user}\" \"\"\n")).collect();
        std::fs::write(&users, format!("\"{USER}\" \"{PASSWORD}\"\n{trusted}")).expect("written");
        let config = folder.path().join(CONFIGURATION);
        let text = format!(
            "[databases]\n* = host=127.0.0.1 port={}\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\n\
             unix_socket_dir = {}\nauth_type = {}\nauth_file = {}\npool_mode = {}\n\
             default_pool_size = {pool_size}\nmax_client_conn = 1000\nadmin_users = {USER}\n\
             ignore_startup_parameters = extra_float_digits\n{lines}\n",
            server.port(),
            folder.path().display(),
            if is_trusting { "trust" } else { "scram-sha-256" },
            users.display(),
            mode.name(),
        );
        std::fs::write(&config, text).expect("written");
        std::fs::set_permissions(&users, Permissions::from_mode(0o600)).expect("permissions are set");
        [&users, &config].into_iter().for_each(|file| account::give(file));
        let words = ["/usr/sbin/pgbouncer".to_owned(), config.to_string_lossy().into_owned()];
        let log = folder.path().join("pgbouncer.log");
        let mut process = Process::start("pgbouncer", &account::command_line(&words, "TERM"), &log, &[]);
        let address = Address::port(port);
        process.wait_ready(|| Stream::connect(&address).is_ok());
        Self { address, process, folder }
    }

    /// The text of its configuration file.
    ///
    /// # Panics
    /// If the file is gone.
    #[must_use]
    pub fn configuration(&self) -> String {
        std::fs::read_to_string(self.folder.path().join(CONFIGURATION)).expect("the configuration")
    }

    /// A connection URL of the test user.
    #[must_use]
    pub fn url(&self, database: &str) -> String {
        url(self.address.tcp().port(), database)
    }

    /// The process, for signals, the log and figures.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }
}

impl Drop for Pgbouncer {
    fn drop(&mut self) {
        self.process.signal("TERM");
        let begun = Instant::now();
        while self.process.try_wait().is_none() && begun.elapsed() < Duration::from_secs(5) {
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}
