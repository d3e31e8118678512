//! A connection to the store, for the thread that claims: it waits, with bounds.

use std::{
    fmt,
    io::{self, Read, Write},
    net::{SocketAddr, ToSocketAddrs as _},
    sync::{Arc, mpsc},
    thread,
    time::{Duration, Instant},
};

use rustls::{ClientConnection, StreamOwned};
use socket2::{Domain, SockAddr, Type};
use weir_engine::{
    settings::{Address, TlsClientSettings},
    tls,
};
use weir_resp::{Value, ValueLimits, encode};

use super::script::SCRIPT;
use crate::settings::StoreSettings;

/// For a connection as a whole (name, socket, TLS, login, script), and for each further call. Default 1 s: half of the time after which
/// the store is out of contact.
pub const LIMIT: Duration = Duration::from_secs(1);

/// Bytes of a reply. The longest is a page of `INFO`, or replies about 64 items and 256 hungers: below 40 KiB.
const REPLY_BYTES_MAX: usize = 256 << 10;

/// Why the store has not responded.
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
            io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => Self::new("timeout", "it does not respond in time"),
            io::ErrorKind::UnexpectedEof
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::BrokenPipe => Self::new("closed", "it has closed the connection"),
            _ => Self::new("connect", error.to_string()),
        }
    }
}

/// A socket whose calls end at a time, however slowly its peer goes on.
#[derive(Debug)]
struct Socket {
    stream: socket2::Socket,
    end: Instant,
}

impl Socket {
    /// Connects until `end`.
    fn connect(address: &SockAddr, domain: Domain, end: Instant) -> io::Result<Self> {
        let stream = socket2::Socket::new(domain, Type::STREAM, None)?;
        if domain != Domain::UNIX {
            stream.set_tcp_nodelay(true)?;
        }
        stream.connect_timeout(address, left(end)?)?;
        Ok(Self { stream, end })
    }
}

/// The time that is left.
///
/// # Errors
/// There is none.
fn left(end: Instant) -> io::Result<Duration> {
    let left = end.saturating_duration_since(Instant::now());
    // A socket takes 0 for no limit at all.
    if left < Duration::from_millis(1) { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
}

impl Read for Socket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(Some(left(self.end)?))?;
        self.stream.read(buffer)
    }
}

impl Write for Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(Some(left(self.end)?))?;
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A stream to a server.
enum Wire {
    Plain(Socket),
    Tls(Box<StreamOwned<ClientConnection, Socket>>),
}

impl Wire {
    fn set_end(&mut self, end: Instant) {
        match self {
            Self::Plain(socket) => socket.end = end,
            Self::Tls(stream) => stream.sock.end = end,
        }
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Plain(socket) => socket.write_all(bytes),
            Self::Tls(stream) => stream.write_all(bytes).and_then(|()| stream.flush()),
        }
    }

    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.read(buffer),
            Self::Tls(stream) => stream.read(buffer),
        }
    }
}

/// A connection that has logged in.
pub struct StoreConnection {
    wire: Wire,
    received: Vec<u8>,
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
        let end = Instant::now() + LIMIT;
        let socket = connect(address, end)?;
        let wire = match &settings.tls {
            Some(tls) => Wire::Tls(Box::new(encrypted(socket, address, tls)?)),
            None => Wire::Plain(socket),
        };
        let mut connection = Self { wire, received: Vec::new(), hash: String::new(), run: String::new() };
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
        self.exchange(&bytes)
    }

    /// Sends a command and waits for its reply, at most for [`LIMIT`].
    ///
    /// # Errors
    /// There is none, or it is an error. The connection is of no use then.
    pub fn call(&mut self, command: &[u8]) -> Result<Value, StoreError> {
        self.wire.set_end(Instant::now() + LIMIT);
        self.exchange(command)
    }

    fn exchange(&mut self, command: &[u8]) -> Result<Value, StoreError> {
        self.wire.write(command).map_err(|error| StoreError::of(&error))?;
        let mut chunk = [0; 4_096];
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

/// A socket to the server.
fn connect(address: &Address, end: Instant) -> Result<Socket, StoreError> {
    match address {
        Address::Host { name, port } => connect_any(&resolve(name, *port, end)?, end),
        Address::Socket(address) => connect_any(&[*address], end),
        Address::Unix(path) => {
            let connected = SockAddr::unix(path).and_then(|path| Socket::connect(&path, Domain::UNIX, end));
            connected.map_err(|error| StoreError::of(&error))
        }
    }
}

/// Tries addresses in turn. Each has its share of the time that is left, so that one that swallows packets leaves time for the next.
fn connect_any(addresses: &[SocketAddr], end: Instant) -> Result<Socket, StoreError> {
    let mut last = StoreError::new("connect", "its name has no address");
    for (index, address) in addresses.iter().enumerate() {
        let share = end.saturating_duration_since(Instant::now()) / (addresses.len() - index) as u32;
        match Socket::connect(&(*address).into(), Domain::for_address(*address), Instant::now() + share) {
            Ok(socket) => return Ok(Socket { end, ..socket }),
            Err(error) => last = StoreError::of(&error),
        }
    }
    Err(last)
}

/// The addresses of a name. A name server that hangs holds a thread until the resolver gives up, some seconds later, and not the caller.
fn resolve(name: &Arc<str>, port: u16, end: Instant) -> Result<Vec<SocketAddr>, StoreError> {
    let (sender, found) = mpsc::channel();
    let name = Arc::clone(name);
    let body = move || sender.send((&*name, port).to_socket_addrs().map(Iterator::collect));
    let spawned = thread::Builder::new().name("weir-resolve".to_owned()).spawn(body);
    spawned.map_err(|error| StoreError::of(&error))?;
    match found.recv_timeout(end.saturating_duration_since(Instant::now())) {
        Ok(found) => found.map_err(|error| StoreError::new("connect", format!("its name cannot be resolved: {error}"))),
        Err(_) => Err(StoreError::new("timeout", "its name is not resolved in time")),
    }
}

/// Encrypts a socket, within its time and that of the handshake.
fn encrypted(
    mut socket: Socket,
    address: &Address,
    settings: &TlsClientSettings,
) -> Result<StreamOwned<ClientConnection, Socket>, StoreError> {
    let failed = |what: String| StoreError::new("tls", what);
    let client = tls::client_config(settings).map_err(|error| failed(error.to_string()))?;
    let name = client.name_for(&address.host().unwrap_or_default()).map_err(|error| failed(error.to_string()))?;
    let session = ClientConnection::new(Arc::clone(&client.config), name).map_err(|error| failed(error.to_string()))?;
    let end = socket.end;
    socket.end = end.min(Instant::now() + settings.handshake_timeout);
    let mut stream = StreamOwned::new(session, socket);
    while stream.conn.is_handshaking() {
        stream.conn.complete_io(&mut stream.sock).map_err(|error| match error.kind() {
            io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => {
                StoreError::new("timeout", "it does not end the TLS handshake in time")
            }
            _ => failed(error.to_string()),
        })?;
    }
    stream.sock.end = end;
    Ok(stream)
}

#[cfg(test)]
pub(super) mod tests {
    use std::net::TcpListener;

    use weir_spend::shared::ClaimSettings;

    use super::*;

    pub(in super::super) fn settings(tls: Option<TlsClientSettings>) -> StoreSettings {
        let (prefix, claims) = ("weir:".to_owned(), ClaimSettings::default());
        StoreSettings { endpoints: Vec::new(), tls, username: None, password: None, prefix, claims }
    }

    /// A server that sends a byte every 20 ms to one client, until the connection ends.
    fn dripping(bytes: &'static [u8]) -> Address {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
        let address = listener.local_addr().expect("an address");
        thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("a client");
            for byte in bytes.iter().cycle() {
                thread::sleep(Duration::from_millis(20));
                if stream.write_all(&[*byte]).is_err() {
                    return;
                }
            }
        });
        Address::Socket(address)
    }

    fn time_to_fail(settings: &StoreSettings, address: &Address) -> Duration {
        let begin = Instant::now();
        let error = StoreConnection::open(settings, address).err().expect("it does not open");
        assert_eq!(error.reason, "timeout", "{error}");
        begin.elapsed()
    }

    #[test]
    fn a_server_that_drips_holds_a_connection_no_longer_than_its_limit() {
        let plain = time_to_fail(&settings(None), &dripping(b"$9"));
        // Timeouts of the kernel are as exact as its ticks.
        assert!(plain >= LIMIT * 9 / 10 && plain < 2 * LIMIT, "{plain:?}");
        // A record of a handshake, of 16 KiB.
        let insecure = TlsClientSettings { insecure_skip_verify: true, ..TlsClientSettings::default() };
        let record = b"\x16\x03\x03\x3f\xff\x02\x00\x3f\xf0";
        let whole = time_to_fail(&settings(Some(insecure.clone())), &dripping(record));
        assert!(whole >= LIMIT && whole < 2 * LIMIT, "{whole:?}");
        let short = TlsClientSettings { handshake_timeout: Duration::from_millis(100), ..insecure };
        let short = time_to_fail(&settings(Some(short)), &dripping(record));
        assert!(short >= Duration::from_millis(100) && short < LIMIT, "{short:?}");
    }

    #[test]
    fn an_address_that_swallows_packets_leaves_time_for_the_next() {
        // Its queue is full: further connections are neither taken nor refused.
        let full = socket2::Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
        full.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).expect("bound");
        full.listen(0).expect("it listens");
        let full_address = full.local_addr().expect("an address").as_socket().expect("an address");
        let _waiting: Vec<_> = (0..4)
            .map(|_| Socket::connect(&full_address.into(), Domain::IPV4, Instant::now() + Duration::from_millis(50)))
            .collect();
        let good = TcpListener::bind("127.0.0.1:0").expect("a listener");
        let good_address = good.local_addr().expect("an address");
        let begin = Instant::now();
        let found = connect_any(&[full_address, full_address, good_address], begin + LIMIT).expect("the third one");
        let peer = found.stream.peer_addr().expect("a peer").as_socket();
        assert_eq!(peer, Some(good_address));
        assert!(begin.elapsed() >= LIMIT / 2 && begin.elapsed() < LIMIT, "{:?}", begin.elapsed());
        let refused = connect_any(&[full_address, full_address], Instant::now() + LIMIT / 4).expect_err("none");
        assert_eq!(refused.reason, "timeout");
    }

    #[test]
    fn the_process_of_a_server_is_its_run_id() {
        assert_eq!(run_of(b"# Server\r\nredis_version:7.0\r\nrun_id:ab12\r\nx:y\r\n"), "ab12");
        assert_eq!(run_of(b""), "");
    }
}
