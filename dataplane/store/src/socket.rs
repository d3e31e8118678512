//! Sockets whose calls end at a time: plain ones, and those with TLS.

use std::{
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

use crate::connection::StoreError;

/// A socket whose calls end at a time, however slowly its peer goes on.
#[derive(Debug)]
pub(crate) struct Socket {
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
pub(crate) enum Wire {
    Plain(Socket),
    Tls(Box<StreamOwned<ClientConnection, Socket>>),
}

impl Wire {
    /// Connects, with TLS if there are settings of it, until `end`.
    pub(crate) fn connect(
        address: &Address,
        tls: Option<&TlsClientSettings>,
        end: Instant,
    ) -> Result<Self, StoreError> {
        let socket = connect(address, end)?;
        Ok(match tls {
            Some(tls) => Self::Tls(Box::new(encrypted(socket, address, tls)?)),
            None => Self::Plain(socket),
        })
    }

    pub(crate) fn set_end(&mut self, end: Instant) {
        match self {
            Self::Plain(socket) => socket.end = end,
            Self::Tls(stream) => stream.sock.end = end,
        }
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Plain(socket) => socket.write_all(bytes),
            Self::Tls(stream) => stream.write_all(bytes).and_then(|()| stream.flush()),
        }
    }

    pub(crate) fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.read(buffer),
            Self::Tls(stream) => stream.read(buffer),
        }
    }
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
mod tests {
    use std::net::TcpListener;

    use super::*;

    const LIMIT: Duration = Duration::from_secs(1);

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
}
