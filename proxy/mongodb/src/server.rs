//! MongoDB servers as their pools see them: login, check, the way to another worker.

use std::{
    cell::RefCell,
    fmt,
    hash::{Hash, Hasher},
    io,
    sync::Arc,
};

use weir_base::Secret;
use weir_engine::Stream;
use weir_listener::login::{derive, entropy};
use weir_mongodb_codec::compressed::Compressor;
use weir_mongodb_session::{
    server_hello::ServerHello,
    server_login::{Credential, Failure, Progress, ServerIdentity, ServerLogin, Step},
};
use weir_sasl::{KeyCache, Nonce, limits::NONCE_RANDOM_BYTES};
use weir_upstream::{
    Probe,
    pooled::{Fitness, IdleVerdict, LoginError, LoginTarget, PooledProtocol},
};

use crate::{
    own_request,
    settings::{AuthMechanism, MongodbUpstreamSettings},
    watch::ServerWatch,
};

/// Derived keys that are remembered: of each upstream user one.
const DERIVED_KEYS_MAX: usize = 64;
/// The words of the log about a login at another process than that of the monitor.
const OTHER_PROCESS: &str = "another process answers than the monitor has found: the server has just started again, or several servers are \
                             behind this endpoint, which must be one server";
/// The name under which servers log the gateway.
pub(crate) const APPLICATION: &str = "weir";

/// The identity of a pool: the login of the gateway at the servers. Clones share it.
#[derive(Clone, PartialEq, Eq)]
pub struct PoolKey(Arc<Identity>);

#[derive(PartialEq, Eq)]
struct Identity {
    user: String,
    source: String,
    password: Option<Secret>,
    mechanism: AuthMechanism,
}

impl PoolKey {
    /// The pool of an upstream with these settings.
    pub(crate) fn new(settings: &MongodbUpstreamSettings) -> Self {
        Self(Arc::new(Identity {
            user: settings.user.clone().unwrap_or_default(),
            source: settings.auth_source.clone(),
            password: settings.password.clone(),
            mechanism: settings.auth_mechanism,
        }))
    }

    fn identity(&self, target: &LoginTarget) -> ServerIdentity {
        let password = || self.0.password.clone().unwrap_or_default();
        let credential = match self.0.mechanism {
            AuthMechanism::X509 => Credential::Certificate,
            _ if self.0.user.is_empty() => Credential::None,
            AuthMechanism::Scram => Credential::Password(password()),
            AuthMechanism::Plain => Credential::Plain(password()),
        };
        let (user, source) = (self.0.user.as_str().into(), self.0.source.as_str().into());
        let is_encrypted = target.has_tls();
        ServerIdentity { user, source, credential, application: APPLICATION.into(), is_encrypted }
    }
}

impl Hash for PoolKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (&self.0.user, &self.0.source).hash(state);
    }
}

impl fmt::Display for PoolKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.0.user, self.0.source)
    }
}

impl fmt::Debug for PoolKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The servers of one upstream on one worker.
pub struct MongodbServer {
    keys: RefCell<KeyCache>,
    /// Those that connections may agree on.
    compressors: Vec<Compressor>,
}

/// The state of a connection: all else that lasts is at the server, by cursor or logical session.
#[derive(Debug, Default)]
pub struct ServerState {
    /// Compressors that both sides have agreed on.
    pub(crate) compressors: Vec<Compressor>,
    /// The process of the server, as it names it.
    process: Option<[u8; 12]>,
    /// The last request that wanted no reply, and the ping behind it: its client has left in front of the reply to the ping.
    pub(crate) unsettled: [i32; 2],
}

/// The process that a server names in its hello; `None`: it names none, as those before MongoDB 4.4.
pub(crate) fn process(hello: &ServerHello) -> Option<[u8; 12]> {
    hello.topology.map(|topology| topology.process_id)
}

impl MongodbServer {
    /// Servers without a connection yet.
    pub(crate) fn new(settings: &MongodbUpstreamSettings) -> Self {
        let keys = RefCell::new(KeyCache::new(DERIVED_KEYS_MAX, *entropy::process_bytes()));
        Self { keys, compressors: settings.compressors.clone() }
    }
}

impl PooledProtocol for MongodbServer {
    type Key = PoolKey;
    type State = ServerState;
    type Moved = ServerState;
    type Watch = ServerWatch;

    fn database(_: &PoolKey) -> &[u8] {
        b""
    }

    fn user(key: &PoolKey) -> &[u8] {
        key.0.user.as_bytes()
    }

    fn judges(&self) -> bool {
        true
    }

    fn fitness(&self, watch: &ServerWatch) -> Fitness {
        watch.fitness()
    }

    fn on_trouble(&self, watch: &ServerWatch) {
        watch.suspect();
    }

    async fn login(&self, stream: &mut Stream, target: &LoginTarget, key: &PoolKey) -> Result<ServerState, LoginError> {
        let compressors = self.compressors.clone();
        let hello = log_in(stream, (key.identity(target), compressors), &self.keys).await?;
        let process = process(&hello);
        // A server lists none that was not offered.
        let compressors = hello.compressors.into_iter().filter(|one| self.compressors.contains(one)).collect();
        Ok(ServerState { compressors, process, unsettled: [0; 2] })
    }

    /// Cursors and transactions are looked for at the process that the monitor speaks to.
    fn admit(&self, state: &ServerState, watch: &ServerWatch) -> Result<(), LoginError> {
        if watch.is_other(state.process) {
            return Err(LoginError::Busy { text: OTHER_PROCESS.to_owned() });
        }
        Ok(())
    }

    /// A server says nothing unasked.
    fn on_idle_bytes(&self, _: &mut ServerState, _: &[u8]) -> IdleVerdict {
        IdleVerdict::Close
    }

    /// A connection comes back clean but behind a write that wants no reply, whose client has left: the server may be at work on it.
    async fn reset(&self, stream: &mut Stream, state: &mut ServerState) -> bool {
        own_request::settle(stream, &state.unsettled).await.is_ok()
    }

    async fn check(&self, stream: &mut Stream, _: &mut ServerState) -> bool {
        own_request::ping(stream).await.is_ok()
    }

    fn pack(&self, state: ServerState) -> ServerState {
        state
    }

    fn unpack(&self, moved: ServerState) -> ServerState {
        moved
    }
}

/// Logs a fresh connection in, or says hello where the identity has no credential.
pub(crate) async fn log_in(
    stream: &mut Stream,
    (identity, compressors): (ServerIdentity, Vec<Compressor>),
    keys: &RefCell<KeyCache>,
) -> Result<ServerHello, LoginError> {
    let mut random = [0; NONCE_RANDOM_BYTES];
    if !entropy::fill(&mut random) {
        return Err(io::Error::other("the system has no randomness").into());
    }
    let mut login = ServerLogin::new(identity, Nonce::from_random(&random)).with_compressors(compressors);
    stream.output.with(|out| login.start(out));
    let mut input = Vec::new();
    loop {
        match stream.reader.receive().await? {
            Some(chunk) => input.extend_from_slice(&chunk),
            None => return Err(failed(login.on_closed())),
        }
        let Progress { consumed, mut step } = stream.output.with(|out| login.on_bytes(&input, out));
        input.drain(..consumed);
        loop {
            step = match step {
                Step::More => break,
                Step::Derive(derivation) => {
                    let derived = derive(*derivation, keys).await;
                    stream.output.with(|out| login.on_keys(&derived, out))
                }
                Step::Done(_) if !input.is_empty() => {
                    return Err(io::Error::other("the server speaks behind its login").into());
                }
                Step::Done(hello) => return Ok(*hello),
                Step::Failed(failure) => return Err(failed(*failure)),
            };
        }
    }
}

/// The words of a server about the gateway's own login are not for clients.
fn failed(failure: Failure) -> LoginError {
    let text = failure.to_string();
    match failure {
        Failure::Refused { code: 462, .. } => LoginError::Busy { text },
        failure if failure.is_transient() => LoginError::Broken(io::Error::other(text)),
        _ => LoginError::Refused { words: Vec::new(), text },
    }
}

/// An identity that says hello and does not log in.
pub(crate) fn stranger(is_encrypted: bool) -> (ServerIdentity, Vec<Compressor>) {
    let nobody = || "".into();
    let application = APPLICATION.into();
    let identity =
        ServerIdentity { user: nobody(), source: nobody(), credential: Credential::None, application, is_encrypted };
    (identity, Vec::new())
}

/// The health check of a server: it takes a connection and replies to hello.
pub(crate) struct HelloProbe;

impl Probe for HelloProbe {
    async fn check(&self, mut stream: Stream) -> io::Result<Option<Stream>> {
        own_request::hello(&mut stream, &mut false).await?;
        Ok(Some(stream))
    }
}
