//! One TLS connection as a state machine over byte buffers.
//!
//! Built on the unbuffered API of rustls: records are decrypted in place in the caller's receive buffer and sealed
//! straight into the caller's output buffer. Only a record that arrived in part is kept here, and an idle session keeps
//! no buffer at all.

use std::fmt;
use std::sync::Arc;

use rustls::client::UnbufferedClientConnection;
use rustls::server::UnbufferedServerConnection;
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, CommonState, HandshakeKind, ProtocolVersion, ServerConfig};
use rustls_pki_types::ServerName;

use super::config::take_chosen;
use super::error::{TlsError, TlsFailure};
use super::identity::PeerIdentity;
use super::records::{self, Incoming, Outgoing};

/// Bytes that a peer may send before its handshake is complete.
/// Default 64 KiB, the bound that rustls sets to one handshake message: it must hold the client's
/// certificate chain. Worst case, with the slack of a growing buffer: 128 KiB x 256 handshakes per core = 32 MiB.
pub const HANDSHAKE_BYTES_MAX: usize = 64 * 1024;

/// Bytes of incomplete records kept between two calls of [`TlsSession::on_wire`] once the handshake is complete.
/// The largest record is 16 KiB + 2,053 bytes (RFC 8446 section 5.2, RFC 5246 section 6.2.3); the rest is room for one
/// post-handshake message in fragments. Smaller breaks large tickets, larger only helps an attacker.
pub const RESIDUE_BYTES_MAX: usize = 64 * 1024;

const _: () = assert!(RESIDUE_BYTES_MAX >= 2 * records::RECORD_BYTES_MAX);

/// Which end of the handshake this process plays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsRole {
    /// We accepted the connection; the peer is a client.
    Server,
    /// We opened the connection; the peer is an upstream.
    Client,
}

/// Where a session stands after the bytes just fed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsState {
    /// The handshake needs more bytes from the peer; nothing may be sealed yet.
    Handshaking,
    /// Both directions are open.
    Open,
    /// The peer sent close_notify: no more plaintext comes, ours may still be sealed and sent.
    PeerClosed,
}

/// One TLS connection. Feed what the socket gave to [`on_wire`](Self::on_wire), then send whatever was appended to
/// `wire`, also when the call failed (that is the alert). Once `Open`, pass plaintext through [`seal`](Self::seal).
/// Before the socket is closed for writing, call [`close`](Self::close). When the socket reports its end, call
/// [`on_end`](Self::on_end), which tells a clean end from a truncated one.
pub struct TlsSession {
    inner: Box<Inner>,
}

struct Inner {
    connection: Connection,
    /// Our certificate, for a server.
    own: Option<Arc<CertifiedKey>>,
    incoming: Incoming,
    /// We sent close_notify.
    closed: bool,
    /// The first failure; rustls must not be fed again after it.
    failed: Option<TlsError>,
}

// One per connection inside the box of `Inner`: a second box per variant would cost a chase and save nothing.
#[allow(clippy::large_enum_variant)]
enum Connection {
    Server(UnbufferedServerConnection),
    Client(UnbufferedClientConnection),
}

impl TlsSession {
    /// A session for an accepted connection. Nothing is sent until the client's hello arrives.
    ///
    /// # Errors
    /// [`Settings`](super::TlsErrorKind::Settings) if rustls refuses the configuration (for example its record size).
    pub fn server(config: &Arc<ServerConfig>) -> Result<Self, TlsError> {
        UnbufferedServerConnection::new(Arc::clone(config))
            .map(|connection| Self::new(Connection::Server(connection)))
            .map_err(|error| TlsError::new(TlsRole::Server, error.into()))
    }

    /// A session for a connection that we opened; call [`start`](Self::start) to get the first bytes to send.
    /// `name` is what the upstream's certificate must carry (see [`server_name`](super::server_name)).
    ///
    /// # Errors
    /// [`Settings`](super::TlsErrorKind::Settings) if rustls refuses the configuration.
    pub fn client(config: &Arc<ClientConfig>, name: ServerName<'static>) -> Result<Self, TlsError> {
        UnbufferedClientConnection::new(Arc::clone(config), name)
            .map(|connection| Self::new(Connection::Client(connection)))
            .map_err(|error| TlsError::new(TlsRole::Client, error.into()))
    }

    fn new(connection: Connection) -> Self {
        let inner = Inner { connection, own: None, incoming: Incoming::default(), closed: false, failed: None };
        Self { inner: Box::new(inner) }
    }

    /// Appends the first flight to `wire`: the ClientHello. Does nothing for a server or when already started.
    ///
    /// # Errors
    /// Any failure of the handshake state, as in [`on_wire`](Self::on_wire).
    pub fn start(&mut self, wire: &mut Vec<u8>) -> Result<(), TlsError> {
        self.on_wire(&mut [], &mut Vec::new(), wire).map(|_| ())
    }

    /// Feeds ciphertext. Appends decrypted bytes to `plain` (never more than `input` plus what was kept from before)
    /// and handshake records, tickets, key updates or an alert to `wire`. `input` is scratch afterwards, as records are
    /// decrypted in place; all of it is consumed or kept. Bytes after the peer's close_notify are ignored
    /// (RFC 8446 section 6.1).
    ///
    /// # Errors
    /// The session is over: send `wire`, then close. Every later call gives the same error.
    pub fn on_wire(&mut self, input: &mut [u8], plain: &mut Vec<u8>, wire: &mut Vec<u8>) -> Result<TlsState, TlsError> {
        let inner = &mut *self.inner;
        if let Some(error) = &inner.failed {
            return Err(error.clone());
        }
        let fed = match &mut inner.connection {
            Connection::Server(connection) => {
                let fed = inner.incoming.feed(connection, input, plain, wire);
                if inner.own.is_none() {
                    inner.own = take_chosen();
                }
                fed
            }
            Connection::Client(connection) => inner.incoming.feed(connection, input, plain, wire),
        };
        if let Err(failure) = fed {
            return Err(inner.fail(failure));
        }
        Ok(self.state())
    }

    /// Appends `plain` to `wire` as records of at most 16 KiB of plaintext each. Keys are updated when their limit is
    /// near (RFC 8446 section 5.5), and a key update that the peer requested is sent first.
    ///
    /// # Errors
    /// [`Handshaking`](super::TlsErrorKind::Handshaking) before `Open`, [`Closed`](super::TlsErrorKind::Closed) after
    /// [`close`](Self::close), [`KeysExhausted`](super::TlsErrorKind::KeysExhausted) for a TLS 1.2 connection that
    /// reached the limit of its keys, or the failure that ended the session. Nothing of `plain` was sealed then.
    pub fn seal(&mut self, plain: &[u8], wire: &mut Vec<u8>) -> Result<(), TlsError> {
        let inner = &mut *self.inner;
        if let Some(error) = &inner.failed {
            return Err(error.clone());
        }
        if plain.is_empty() {
            return Ok(());
        }
        if inner.connection.common().is_handshaking() {
            return Err(TlsError::new(inner.connection.role(), TlsFailure::Handshaking));
        }
        if inner.closed {
            return Err(TlsError::new(inner.connection.role(), TlsFailure::Closed));
        }
        inner.write(Outgoing::Plain(plain), wire)
    }

    /// Appends close_notify: our direction ends here, the peer's may go on (RFC 8446 section 6.1). Does nothing before
    /// the handshake is complete, after a failure, or the second time.
    pub fn close(&mut self, wire: &mut Vec<u8>) {
        let inner = &mut *self.inner;
        if inner.closed || inner.failed.is_some() || inner.connection.common().is_handshaking() {
            return;
        }
        inner.closed = true;
        // A failure is kept for the next call; there is nothing more to say to the peer.
        let _ = inner.write(Outgoing::CloseNotify, wire);
    }

    /// Tells the session that the socket gave its last byte.
    ///
    /// # Errors
    /// [`Truncated`](super::TlsErrorKind::Truncated) if the peer did not send close_notify first: then what was read
    /// may be incomplete, cut by anyone on the path. Protocols that frame their messages may ignore it between two
    /// messages.
    pub fn on_end(&self) -> Result<(), TlsError> {
        if let Some(error) = &self.inner.failed {
            return Err(error.clone());
        }
        if self.inner.incoming.peer_closed() { Ok(()) } else { Err(TlsError::new(self.role(), TlsFailure::Truncated)) }
    }

    /// The state as of the last call.
    pub fn state(&self) -> TlsState {
        if self.inner.incoming.peer_closed() {
            TlsState::PeerClosed
        } else if self.is_handshaking() {
            TlsState::Handshaking
        } else {
            TlsState::Open
        }
    }

    /// True until both directions can carry application data.
    pub fn is_handshaking(&self) -> bool {
        self.inner.connection.common().is_handshaking()
    }

    /// True once the peer sent close_notify.
    pub fn peer_closed(&self) -> bool {
        self.inner.incoming.peer_closed()
    }

    /// Our end of the handshake.
    pub fn role(&self) -> TlsRole {
        self.inner.connection.role()
    }

    /// Names in the certificate of the peer, once the handshake has verified it; `None` if it presented none.
    /// With `insecure_skip_verify` the names are only claimed. Parsed on each call: keep the result.
    pub fn peer_identity(&self) -> Option<PeerIdentity> {
        if self.is_handshaking() {
            return None;
        }
        let leaf = self.inner.connection.common().peer_certificates()?.first()?;
        Some(PeerIdentity::from_der(leaf))
    }

    /// The certificate of the peer in DER, once the handshake is complete; `None` if it presented none.
    pub fn peer_certificate(&self) -> Option<&[u8]> {
        let certificates = self.inner.connection.common().peer_certificates().filter(|_| !self.is_handshaking())?;
        certificates.first().map(|leaf| &leaf[..])
    }

    /// Our certificate in DER: the one that this handshake has chosen, whatever a reload has brought since. `None` for a client.
    pub fn own_certificate(&self) -> Option<&[u8]> {
        self.inner.own.as_ref()?.cert.first().map(|leaf| &leaf[..])
    }

    /// The protocol agreed by ALPN, if any.
    pub fn alpn(&self) -> Option<&[u8]> {
        self.inner.connection.common().alpn_protocol()
    }

    /// True if the handshake continued an earlier session and skipped the certificates.
    pub fn resumed(&self) -> bool {
        self.inner.connection.common().handshake_kind() == Some(HandshakeKind::Resumed)
    }

    /// `"1.3"` or `"1.2"` once agreed; a bounded label value.
    pub fn version(&self) -> Option<&'static str> {
        match self.inner.connection.common().protocol_version()? {
            ProtocolVersion::TLSv1_3 => Some("1.3"),
            ProtocolVersion::TLSv1_2 => Some("1.2"),
            _ => None,
        }
    }

    /// The agreed cipher suite by its IANA name, for logs.
    pub fn cipher_suite(&self) -> Option<&'static str> {
        let name = self.inner.connection.common().negotiated_cipher_suite()?.suite().as_str()?;
        // rustls marks those of TLS 1.3 in its own way (RFC 8446 appendix B.4).
        Some(match name {
            "TLS13_AES_128_GCM_SHA256" => "TLS_AES_128_GCM_SHA256",
            "TLS13_AES_256_GCM_SHA384" => "TLS_AES_256_GCM_SHA384",
            "TLS13_CHACHA20_POLY1305_SHA256" => "TLS_CHACHA20_POLY1305_SHA256",
            name => name,
        })
    }

    /// Bytes of incomplete records held for this session now; zero for an idle one.
    pub fn residue_bytes(&self) -> usize {
        self.inner.incoming.residue_bytes()
    }
}

impl fmt::Debug for TlsSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsSession")
            .field("role", &self.role())
            .field("state", &self.state())
            .field("version", &self.version())
            .field("failed", &self.inner.failed)
            .finish_non_exhaustive()
    }
}

impl Inner {
    /// Sends `what`; records that rustls still had queued go out first.
    fn write(&mut self, what: Outgoing<'_>, wire: &mut Vec<u8>) -> Result<(), TlsError> {
        let written = match &mut self.connection {
            Connection::Server(connection) => self.incoming.write(connection, what, wire),
            Connection::Client(connection) => self.incoming.write(connection, what, wire),
        };
        written.map_err(|failure| self.fail(failure))
    }

    /// Latches the first failure: rustls asserts that it is not used after it sent a fatal alert.
    fn fail(&mut self, failure: TlsFailure) -> TlsError {
        let error = TlsError::new(self.connection.role(), failure);
        self.incoming.discard();
        self.failed = Some(error.clone());
        error
    }
}

impl Connection {
    fn common(&self) -> &CommonState {
        match self {
            Connection::Server(connection) => connection,
            Connection::Client(connection) => connection,
        }
    }

    fn role(&self) -> TlsRole {
        match self {
            Connection::Server(_) => TlsRole::Server,
            Connection::Client(_) => TlsRole::Client,
        }
    }
}
