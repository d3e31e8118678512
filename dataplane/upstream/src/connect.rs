//! Making one upstream connection: connect, TLS, greeting, each within its time.

use std::{io, os::fd::OwnedFd, time::Duration};

use weir_base::{exchange::Refusal, limits};
use weir_engine::{Stream, StreamOptions, Watermarks, net, settings::Address, timeout, tls};

use crate::{pooled::LoginError, protocol::Handshake, settings::UpstreamSettings};

/// Bytes of requests that may wait for an upstream that does not read, on a lane of requests.
const LANE_OUTPUT: Watermarks = Watermarks { high: 1 << 20, low: 1 << 18 };
/// The same of one exchange, such as an upload: as much as the other way, to a client.
const EXCHANGE_OUTPUT: Watermarks =
    Watermarks { high: limits::WRITE_HIGH_WATER_BYTES as usize, low: limits::WRITE_LOW_WATER_BYTES as usize };

/// A connection that could not be made.
#[derive(Debug)]
pub(crate) struct ConnectError {
    pub(crate) refusal: Refusal,
    /// The label value.
    pub(crate) reason: &'static str,
    pub(crate) text: String,
}

impl ConnectError {
    /// Nothing came in time.
    pub(crate) fn is_timeout(&self) -> bool {
        self.reason == TIMEOUT
    }
}

/// The label value of a connection that timed out.
const TIMEOUT: &str = "timeout";

/// How to reach one endpoint.
pub(crate) struct Connector {
    pub(crate) endpoint: Address,
    pub(crate) tls: Option<tls::TlsClient>,
    pub(crate) connect_timeout: Duration,
    handshake_timeout: Duration,
}

impl Connector {
    pub(crate) fn new(endpoint: Address, settings: &UpstreamSettings) -> io::Result<Self> {
        let (tls, handshake_timeout) = match &settings.tls {
            None => (None, Duration::ZERO),
            Some(tls) => {
                let client = tls::client_config(tls).map_err(io::Error::other)?;
                (Some(client), tls.handshake_timeout)
            }
        };
        Ok(Self { endpoint, tls, connect_timeout: settings.connect_timeout, handshake_timeout })
    }

    /// A stream to the endpoint for one exchange at a time, TLS included.
    pub(crate) async fn connect(&self) -> Result<Stream, ConnectError> {
        self.stream(EXCHANGE_OUTPUT).await
    }

    async fn stream(&self, marks: Watermarks) -> Result<Stream, ConnectError> {
        let mut stream = self.plain(marks).await?;
        if self.tls.is_some() {
            self.start_tls(&mut stream, &[]).await?;
        }
        Ok(stream)
    }

    async fn plain(&self, marks: Watermarks) -> Result<Stream, ConnectError> {
        let socket = match net::connect(&self.endpoint, self.connect_timeout).await {
            Ok(socket) => socket,
            Err(error) if error.kind() == io::ErrorKind::TimedOut => return Err(unreachable("timed out", TIMEOUT)),
            Err(error) => return Err(unreachable(error, "connect")),
        };
        Stream::new(socket, StreamOptions { marks }).map_err(|error| unreachable(error, "connect"))
    }

    /// Puts TLS between a stream to the endpoint and its queues, within its time; `received` was read before.
    pub(crate) async fn start_tls(&self, stream: &mut Stream, received: &[u8]) -> Result<(), ConnectError> {
        let Some(tls) = &self.tls else { return Err(unreachable("the upstream has no TLS settings", "tls")) };
        let session = client_session(tls, &self.endpoint)?;
        let shaken = timeout(self.handshake_timeout, stream.start_tls(session, received)).await;
        bounded(shaken, "tls")
    }

    /// A stream to the endpoint for a whole session; without TLS if the protocol begins it later.
    pub(crate) async fn connect_for_session(&self, negotiates_tls: bool) -> Result<Stream, ConnectError> {
        if negotiates_tls { self.plain(EXCHANGE_OUTPUT).await } else { self.connect().await }
    }

    /// A stream on which `login` has logged in; connect and login may take the connect timeout each. An error comes with the words of
    /// the server, if it was the server that refused the login.
    pub(crate) async fn log_in<T>(
        &self,
        negotiates_tls: bool,
        login: impl AsyncFnOnce(&mut Stream) -> Result<T, LoginError>,
    ) -> Result<(Stream, T), (ConnectError, Option<Vec<u8>>)> {
        let mut stream = self.connect_for_session(negotiates_tls).await.map_err(|error| (error, None))?;
        match timeout(self.connect_timeout, login(&mut stream)).await {
            Ok(Ok(state)) => Ok((stream, state)),
            Ok(Err(LoginError::Refused { words, text })) => {
                Err((ConnectError { refusal: Refusal::Greeting, reason: "greeting", text }, Some(words)))
            }
            Ok(Err(LoginError::Busy { text })) => {
                Err((ConnectError { refusal: Refusal::QueueFull, reason: "greeting", text }, None))
            }
            Ok(Err(LoginError::Broken(error))) => Err((unreachable(error, "greeting"), None)),
            Err(_) => Err((unreachable("timed out", TIMEOUT), None)),
        }
    }

    /// Connects to the endpoint and runs `begin` on the stream; each of the two may take the connect timeout.
    pub(crate) async fn connect_and<T>(
        &self,
        begin: impl AsyncFnOnce(Stream) -> io::Result<T>,
    ) -> Result<T, ConnectError> {
        let stream = self.connect().await?;
        bounded(timeout(self.connect_timeout, begin(stream)).await, "greeting")
    }

    /// A stream to the endpoint, greeted for `key`.
    pub(crate) async fn open<P: Handshake>(
        &self,
        protocol: &P,
        key: P::Key,
    ) -> Result<(Stream, P::Greeting), ConnectError> {
        let mut stream = self.stream(LANE_OUTPUT).await?;
        let greeted = timeout(self.connect_timeout, protocol.greet(&mut stream, key)).await;
        match greeted {
            Ok(Err(error)) if error.kind() == io::ErrorKind::PermissionDenied => {
                Err(ConnectError { refusal: Refusal::Greeting, reason: "greeting", text: error.to_string() })
            }
            greeted => Ok((stream, bounded(greeted, "greeting")?)),
        }
    }
}

/// A stream on a connection that another worker has made by [`Connector::log_in`].
pub(crate) fn adopt(socket: OwnedFd) -> io::Result<Stream> {
    Stream::new(socket.into(), StreamOptions { marks: EXCHANGE_OUTPUT })
}

fn client_session(tls: &tls::TlsClient, endpoint: &Address) -> Result<tls::TlsSession, ConnectError> {
    let host = endpoint.host().unwrap_or_else(|| "localhost".to_owned());
    let name = tls.name_for(&host).map_err(|error| unreachable(error, "tls"))?;
    tls::TlsSession::client(&tls.config, name).map_err(|error| unreachable(error, "tls"))
}

fn bounded<T, E>(result: Result<io::Result<T>, E>, reason: &'static str) -> Result<T, ConnectError> {
    match result {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => Err(unreachable(error, reason)),
        Err(_) => Err(unreachable("timed out", TIMEOUT)),
    }
}

fn unreachable(error: impl ToString, reason: &'static str) -> ConnectError {
    ConnectError { refusal: Refusal::Unreachable, reason, text: error.to_string() }
}
