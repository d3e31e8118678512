//! The connection of the thread that claims.

use std::time::Duration;

use weir_engine::settings::Address;
use weir_resp::Value;
use weir_store::{Connection, Login, StoreError, StoreLimits};

use super::script::SCRIPT;
use crate::settings::StoreSettings;

/// For a connection as a whole (name, socket, TLS, login, script), and for each further call. Default 1 s: half of the time after which
/// the store is out of contact.
pub const LIMIT: Duration = Duration::from_secs(1);

/// Bytes of a reply. The longest is a page of `INFO`, or replies about 64 items and 256 hungers: below 40 KiB.
const REPLY_BYTES_MAX: u32 = 256 << 10;

/// A connection that has logged in and loaded the script.
pub struct StoreConnection {
    connection: Connection,
    /// The hash of the script, which the server has loaded.
    pub hash: String,
    /// The process of the server.
    pub run: String,
}

impl StoreConnection {
    /// Connects, logs in and loads the script, within [`LIMIT`] as a whole. A TLS handshake has its own time within it.
    ///
    /// # Errors
    /// The server cannot be reached, refuses, or is a replica that takes no writes.
    pub fn open(settings: &StoreSettings, address: &Address) -> Result<Self, StoreError> {
        let login = Login {
            tls: settings.tls.as_ref(),
            username: settings.username.as_deref(),
            password: settings.password.as_ref(),
        };
        let limits = StoreLimits { open: LIMIT, call: LIMIT, reply_bytes_max: REPLY_BYTES_MAX };
        let mut connection = Connection::open(login, address, limits)?;
        let info = connection.command(&[b"INFO", b"server"])?;
        let run = run_of(info.as_bytes().unwrap_or_default());
        let hash = connection.command(&[b"SCRIPT", b"LOAD", SCRIPT.as_bytes()])?;
        let hash = String::from_utf8_lossy(hash.as_bytes().unwrap_or_default()).into_owned();
        Ok(Self { connection, hash, run })
    }

    /// Sends a command and waits for its reply, at most for [`LIMIT`].
    ///
    /// # Errors
    /// There is none, or it is an error. The connection is of no use then.
    pub fn call(&mut self, command: &[u8]) -> Result<Value, StoreError> {
        self.connection.call(command)
    }
}

/// The process of a server, as `INFO` names it; empty: it does not.
fn run_of(info: &[u8]) -> String {
    let text = String::from_utf8_lossy(info);
    text.lines().find_map(|line| line.strip_prefix("run_id:")).unwrap_or_default().trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_process_of_a_server_is_its_run_id() {
        assert_eq!(run_of(b"# Server\r\nredis_version:7.0\r\nrun_id:ab12\r\nx:y\r\n"), "ab12");
        assert_eq!(run_of(b""), "");
    }
}
