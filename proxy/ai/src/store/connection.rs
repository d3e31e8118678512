//! A connection to the store, for the thread that claims: it waits, with bounds.

use std::{
    fmt,
    io::{self, Read, Write},
    net::{SocketAddr, TcpStream, ToSocketAddrs as _},
    os::unix::net::UnixStream,
    sync::{Arc, mpsc},
    thread,
    time::{Duration, Instant},
};

use rustls::{ClientConnection, StreamOwned};
use weir_engine::{
    settings::{Address, TlsClientSettings},
    tls,
};
use weir_resp::{Value, ValueLimits, encode};

use super::script::SCRIPT;
use crate::settings::StoreSettings;

/// For a connection, and for each reply. Default 1 s: half of the time after which the store is out of contact.
const LIMIT: Duration = Duration::from_secs(1);

/// Bytes of a reply. The longest is a page of `INFO`, or 64 answers and 256 hungers: below 40 KiB.
const REPLY_BYTES_MAX: usize = 256 << 10;

/// Why the store has not answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreError {
    /// One of a fixed set, for metrics.
    pub reason: &'static str,
    /// In words.
    pub what: String,
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl StoreError {
    /// An error of this reason.
    pub fn new(reason: &'static str, what: impl Into<String>) -> Self {
        Self { reason, what: what.into() }
    }

    fn of(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => Self::new("timeout", "it does not answer in time"),
            io::ErrorKind::UnexpectedEof
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::BrokenPipe => Self::new("closed", "it has closed the connection"),
            _ => Self::new("connect", error.to_string()),
        }
    }
}

/// A stream to a server.
trait Wire: Read + Write + Send {}

impl<T: Read + Write + Send> Wire for T {}

/// A connection that has logged in.
pub struct StoreConnection {
    wire: Box<dyn Wire>,
    received: Vec<u8>,
    /// The hash of the script, which the server has loaded.
    pub hash: String,
    /// The process of the server.
    pub run: String,
}

impl StoreConnection {
    /// Connects, logs in and loads the script.
    ///
    /// # Errors
    /// The server cannot be reached, refuses, or is a replica that takes no writes.
    pub fn open(settings: &StoreSettings, address: &Address) -> Result<Self, StoreError> {
        let mut plain: Box<dyn Wire> = match address {
            Address::Unix(path) => {
                let stream = UnixStream::connect(path).map_err(|error| StoreError::of(&error))?;
                stream.set_read_timeout(Some(LIMIT)).map_err(|error| StoreError::of(&error))?;
                stream.set_write_timeout(Some(LIMIT)).map_err(|error| StoreError::of(&error))?;
                Box::new(stream)
            }
            other => Box::new(tcp(other)?),
        };
        if let Some(tls) = &settings.tls {
            plain = encrypted(plain, address, tls)?;
        }
        let mut connection = Self { wire: plain, received: Vec::new(), hash: String::new(), run: String::new() };
        if let Some(password) = &settings.password {
            let mut words: Vec<&[u8]> = vec![b"AUTH"];
            words.extend(settings.username.as_deref().map(str::as_bytes));
            words.push(password.expose());
            connection.command(&words)?;
        }
        let info = connection.command(&[b"INFO", b"server"])?;
        connection.run = run_of(info.as_bytes().unwrap_or_default());
        let hash = connection.command(&[b"SCRIPT", b"LOAD", SCRIPT.as_bytes()])?;
        connection.hash = String::from_utf8_lossy(hash.as_bytes().unwrap_or_default()).into_owned();
        Ok(connection)
    }

    fn command(&mut self, words: &[&[u8]]) -> Result<Value, StoreError> {
        let mut bytes = Vec::new();
        encode::command(&mut bytes, words.iter().copied());
        self.call(&bytes)
    }

    /// Sends a command and waits for its reply.
    ///
    /// # Errors
    /// There is none, or it is an error. The connection is of no use then.
    pub fn call(&mut self, command: &[u8]) -> Result<Value, StoreError> {
        let written = self.wire.write_all(command).and_then(|()| self.wire.flush());
        written.map_err(|error| StoreError::of(&error))?;
        let (end, mut chunk) = (Instant::now() + LIMIT, [0; 4_096]);
        loop {
            match Value::decode(&self.received, &ValueLimits::default()) {
                Ok(Some((value, length))) => {
                    self.received.drain(..length);
                    let refusal = value.as_error().map(|text| String::from_utf8_lossy(text).into_owned());
                    return refusal
                        .map_or(Ok(value), |text| Err(StoreError::new("refused", format!("it says: {text}"))));
                }
                Ok(None) if self.received.len() < REPLY_BYTES_MAX => {}
                _ => return Err(StoreError::new("protocol", "it does not speak the protocol of Redis")),
            }
            if Instant::now() >= end {
                return Err(StoreError::of(&io::ErrorKind::TimedOut.into()));
            }
            match self.wire.read(&mut chunk) {
                Ok(0) => return Err(StoreError::of(&io::ErrorKind::UnexpectedEof.into())),
                Ok(count) => self.received.extend_from_slice(&chunk[..count]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(StoreError::of(&error)),
            }
        }
    }
}

/// The process of a server, as `INFO` names it; empty: it does not.
fn run_of(info: &[u8]) -> String {
    let text = String::from_utf8_lossy(info);
    text.lines().find_map(|line| line.strip_prefix("run_id:")).unwrap_or_default().trim().to_owned()
}

/// Tries the addresses of the server in turn.
fn tcp(address: &Address) -> Result<TcpStream, StoreError> {
    let addresses = match address {
        Address::Host { name, port } => resolve(name, *port)?,
        Address::Socket(address) => vec![*address],
        Address::Unix(_) => Vec::new(),
    };
    let mut last = StoreError::new("connect", "its name has no address");
    for address in addresses {
        let connected = TcpStream::connect_timeout(&address, LIMIT).and_then(|stream| {
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(LIMIT))?;
            stream.set_write_timeout(Some(LIMIT))?;
            Ok(stream)
        });
        match connected {
            Ok(stream) => return Ok(stream),
            Err(error) => last = StoreError::new("connect", error.to_string()),
        }
    }
    Err(last)
}

/// The addresses of a name. A name server that hangs holds a thread until the resolver gives up, some seconds later, and not the caller.
fn resolve(name: &Arc<str>, port: u16) -> Result<Vec<SocketAddr>, StoreError> {
    let (sender, found) = mpsc::channel();
    let name = Arc::clone(name);
    let body = move || sender.send((&*name, port).to_socket_addrs().map(Iterator::collect));
    let spawned = thread::Builder::new().name("weir-resolve".to_owned()).spawn(body);
    spawned.map_err(|error| StoreError::of(&error))?;
    match found.recv_timeout(LIMIT) {
        Ok(found) => found.map_err(|error| StoreError::new("connect", format!("its name cannot be resolved: {error}"))),
        Err(_) => Err(StoreError::new("timeout", "its name is not resolved in time")),
    }
}

fn encrypted(
    plain: Box<dyn Wire>,
    address: &Address,
    settings: &TlsClientSettings,
) -> Result<Box<dyn Wire>, StoreError> {
    let failed = |what: String| StoreError::new("tls", what);
    let client = tls::client_config(settings).map_err(|error| failed(error.to_string()))?;
    let name = client.name_for(&address.host().unwrap_or_default()).map_err(|error| failed(error.to_string()))?;
    let session = ClientConnection::new(Arc::clone(&client.config), name).map_err(|error| failed(error.to_string()))?;
    let mut stream = StreamOwned::new(session, plain);
    while stream.conn.is_handshaking() {
        stream.conn.complete_io(&mut stream.sock).map_err(|error| failed(error.to_string()))?;
    }
    Ok(Box::new(stream))
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
