//! A protocol whose connections serve one client at a time and keep a state of their own between two clients.

use std::{fmt, hash::Hash, io, rc::Rc};

use weir_engine::{Stream, settings::Address};

use super::fitness::Fitness;
use crate::endpoint::Endpoint;

/// A wire protocol as the pool of its connections sees it. The pool bounds the time of each of these steps.
pub trait PooledProtocol: 'static + Sized {
    /// The difference between connections to one endpoint: database, user, and the identity that logs in.
    type Key: Clone + Eq + Hash + fmt::Debug + Send + Sync + 'static;
    /// The facts about one connection. They travel with the connection from client to client.
    type State: 'static;
    /// The state on its way to another worker.
    type Moved: Send + 'static;
    /// The knowledge of all workers about one endpoint, beyond its connections.
    type Watch: Default + Send + Sync + 'static;

    /// TLS begins inside the login, by [`LoginTarget::start_tls`], and not with the first byte.
    const NEGOTIATES_TLS: bool = false;
    /// Sent before a connection is closed; empty: nothing.
    const FAREWELL: &'static [u8] = b"";

    /// The database of `key`, for limits per database and for PAUSE of one database.
    fn database(key: &Self::Key) -> &[u8];

    /// The user of `key`, for limits per user.
    fn user(key: &Self::Key) -> &[u8];

    /// It judges endpoints: without, all of them take connections.
    fn judges(&self) -> bool {
        false
    }

    /// The use of an endpoint. A change has to be announced by [`PooledUpstream::reconsider`](super::PooledUpstream::reconsider).
    fn fitness(&self, _: &Self::Watch) -> Fitness {
        Fitness::Fit
    }

    /// A connection to the endpoint was lost, or could not be made.
    fn on_trouble(&self, _: &Self::Watch) {}

    /// The number by which the server knows a connection, for operators: that of its process. 0: it has none.
    fn process(_state: &Self::State) -> u32 {
        0
    }

    /// Logs a fresh connection in. May take the connect timeout of the upstream.
    ///
    /// # Errors
    /// The server refused, in its own words; or the connection broke.
    fn login(
        &self,
        stream: &mut Stream,
        target: &LoginTarget,
        key: &Self::Key,
    ) -> impl Future<Output = Result<Self::State, LoginError>>;

    /// Whether the endpoint may be used by a connection that has just logged in, by the knowledge of all workers about the endpoint.
    ///
    /// # Errors
    /// It leads elsewhere: [`LoginError::Busy`] keeps those that wait.
    fn admit(&self, _state: &Self::State, _watch: &Self::Watch) -> Result<(), LoginError> {
        Ok(())
    }

    /// Bytes of the server on a connection that no client has. Called with all that has come, in pieces as they came.
    fn on_idle_bytes(&self, state: &mut Self::State, bytes: &[u8]) -> IdleVerdict;

    /// Makes a connection as clean as after its login; false: it cannot be reused.
    fn reset(&self, stream: &mut Stream, state: &mut Self::State) -> impl Future<Output = bool>;

    /// Whether the server responds on a connection that has been idle for long.
    fn check(&self, stream: &mut Stream, state: &mut Self::State) -> impl Future<Output = bool>;

    /// Whether a clean connection in this state may go to another worker. One that may not is closed instead, and another one is made.
    fn is_movable(&self, _state: &Self::State) -> bool {
        true
    }

    /// The state of a clean connection that goes to another worker.
    fn pack(&self, state: Self::State) -> Self::Moved;

    /// The state as it was before the move.
    fn unpack(&self, moved: Self::Moved) -> Self::State;
}

/// A login that failed.
#[derive(Debug)]
pub enum LoginError {
    /// The server refused this login, and may take others.
    Refused {
        /// The words of the server in its protocol, for the client.
        words: Vec<u8>,
        /// The same for the log.
        text: String,
    },
    /// The server is full, and takes the same login when others have ended; or the connection is none that may serve, and another one may
    /// be. Those that wait wait on.
    Busy {
        /// The reason, for the log.
        text: String,
    },
    /// The connection broke, the server starts or ends, it broke the protocol, or TLS could not begin. Those that wait wait on, or
    /// go to another endpoint.
    Broken(io::Error),
}

impl From<io::Error> for LoginError {
    fn from(error: io::Error) -> Self {
        Self::Broken(error)
    }
}

/// The verdict on bytes that came on an idle connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdleVerdict {
    /// They are legal, and the state says what they said.
    Keep,
    /// They are legal and end inside of a message: the connection serves no client before the rest is there.
    Incomplete,
    /// The connection is over: the server takes its leave, or broke the protocol.
    Close,
}

/// The server of a login.
#[derive(Clone)]
pub struct LoginTarget {
    pub(crate) endpoint: Rc<Endpoint>,
    pub(crate) number: usize,
}

impl LoginTarget {
    /// Position of the endpoint in the settings.
    pub fn number(&self) -> usize {
        self.number
    }

    /// Its address.
    pub fn address(&self) -> &Address {
        &self.endpoint.connector().endpoint
    }

    /// The settings have TLS for it.
    pub fn has_tls(&self) -> bool {
        self.endpoint.connector().tls.is_some()
    }

    /// Begins TLS on `stream` as the settings say, and completes the handshake within its time. `received`: bytes of the server that
    /// were read before.
    ///
    /// # Errors
    /// The settings have no TLS, or the handshake failed.
    pub async fn start_tls(&self, stream: &mut Stream, received: &[u8]) -> io::Result<()> {
        self.endpoint.connector().start_tls(stream, received).await.map_err(|error| io::Error::other(error.text))
    }
}
