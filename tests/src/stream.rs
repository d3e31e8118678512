//! The ways to reach a listener: TCP, a Unix socket, TLS over TCP.

use std::io::{ErrorKind, Read, Result, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustls::{ClientConfig, ClientConnection, StreamOwned};
use rustls_pki_types::ServerName;

/// Where something listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// Loopback TCP.
    Tcp(SocketAddr),
    /// A socket file.
    Unix(PathBuf),
}

impl Address {
    /// `127.0.0.1:port`.
    pub fn port(port: u16) -> Self {
        Self::Tcp(SocketAddr::from(([127, 0, 0, 1], port)))
    }

    /// As a configuration file writes it.
    pub fn text(&self) -> String {
        match self {
            Self::Tcp(address) => address.to_string(),
            Self::Unix(path) => format!("unix:{}", path.display()),
        }
    }

    /// The TCP address.
    ///
    /// # Panics
    /// For a Unix socket.
    pub fn tcp(&self) -> SocketAddr {
        match self {
            Self::Tcp(address) => *address,
            Self::Unix(path) => panic!("{} is not a TCP address", path.display()),
        }
    }
}

/// A connected byte stream.
pub enum Stream {
    /// Plain TCP.
    Tcp(TcpStream),
    /// A Unix socket.
    Unix(UnixStream),
    /// TLS over TCP.
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl Stream {
    /// Connects without TLS.
    pub fn connect(address: &Address) -> Result<Self> {
        match address {
            Address::Tcp(address) => {
                let stream = TcpStream::connect_timeout(address, Duration::from_secs(5))?;
                stream.set_nodelay(true)?;
                Ok(Self::Tcp(stream))
            }
            Address::Unix(path) => Self::connect_unix(path),
        }
    }

    fn connect_unix(path: &Path) -> Result<Self> {
        UnixStream::connect(path).map(Self::Unix)
    }

    /// Connects with TLS and finishes the handshake, so that a refusal shows here.
    pub fn connect_tls(address: SocketAddr, config: Arc<ClientConfig>) -> Result<Self> {
        let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(5))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(10)))?;
        let name = ServerName::try_from("localhost").expect("localhost is a server name");
        let mut connection = ClientConnection::new(config, name).map_err(std::io::Error::other)?;
        while connection.is_handshaking() {
            connection.complete_io(&mut stream)?;
        }
        Ok(Self::Tls(Box::new(StreamOwned::new(connection, stream))))
    }

    /// How long a read may wait; the error is `WouldBlock` then.
    pub fn set_read_timeout(&self, limit: Duration) -> Result<()> {
        match self {
            Self::Tcp(stream) => stream.set_read_timeout(Some(limit)),
            Self::Unix(stream) => stream.set_read_timeout(Some(limit)),
            Self::Tls(stream) => stream.sock.set_read_timeout(Some(limit)),
        }
    }

    /// How long a write may wait; the error is `WouldBlock` then.
    pub fn set_write_timeout(&self, limit: Duration) -> Result<()> {
        match self {
            Self::Tcp(stream) => stream.set_write_timeout(Some(limit)),
            Self::Unix(stream) => stream.set_write_timeout(Some(limit)),
            Self::Tls(stream) => stream.sock.set_write_timeout(Some(limit)),
        }
    }

    /// Ends our direction only: the peer reads end-of-file and may still answer.
    pub fn half_close(&mut self) -> Result<()> {
        match self {
            Self::Tcp(stream) => stream.shutdown(Shutdown::Write),
            Self::Unix(stream) => stream.shutdown(Shutdown::Write),
            Self::Tls(stream) => {
                stream.conn.send_close_notify();
                stream.flush()
            }
        }
    }

    /// A second handle on the same socket.
    ///
    /// # Panics
    /// For TLS, whose state has one owner.
    pub fn duplicate(&self) -> Self {
        match self {
            Self::Tcp(stream) => Self::Tcp(stream.try_clone().expect("a socket can be cloned")),
            Self::Unix(stream) => Self::Unix(stream.try_clone().expect("a socket can be cloned")),
            Self::Tls(_) => panic!("a TLS stream cannot be cloned"),
        }
    }
}

impl Read for Stream {
    /// Never [`ErrorKind::Interrupted`]: a read with a time limit is interrupted even where no signal has a handler, as when
    /// the machine is frozen for a moment (signal(7)), and most of what reads here takes an error for the connection's end.
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        loop {
            let read = match self {
                Self::Tcp(stream) => stream.read(buffer),
                Self::Unix(stream) => stream.read(buffer),
                Self::Tls(stream) => stream.read(buffer),
            };
            match read {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                read => return read,
            }
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        match self {
            Self::Tcp(stream) => stream.write(bytes),
            Self::Unix(stream) => stream.write(bytes),
            Self::Tls(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> Result<()> {
        match self {
            Self::Tcp(stream) => stream.flush(),
            Self::Unix(stream) => stream.flush(),
            Self::Tls(stream) => stream.flush(),
        }
    }
}
