//! PostgreSQL servers as their pools see them: login, reset, check, the way to another worker.

use std::{
    cell::RefCell,
    collections::HashMap,
    fmt,
    hash::{BuildHasher as _, Hash, Hasher, RandomState},
    io,
    rc::Rc,
    sync::{Arc, LazyLock},
    time::Duration,
};

use weir_base::error::Culprit;
use weir_engine::{Output, Stream};
use weir_listener::login::{derive, entropy};
use weir_postgres_codec::frontend;
use weir_postgres_session::{
    CancelTarget, Recovered, Recovery, ServerParcel, ServerState, Value, WorkerShare,
    checkin::Verdict,
    io::ToServer,
    reported_name,
    server_login::{BindingMode, Failure, Progress, ServerFacts, ServerIdentity, ServerLogin, Step, TlsMode},
    users::Credential,
};
use weir_sasl::{ChannelBinding, KeyCache, limits::NONCE_RANDOM_BYTES};
use weir_upstream::{
    Probe,
    pooled::{Fitness, IdleVerdict, LoginError, LoginTarget, PooledProtocol},
};

use crate::{
    listen::Hubs,
    role::RoleWatch,
    settings::{AuthQuerySettings, PostgresDatabaseSettings, PostgresUpstreamSettings, TargetSessionAttrs},
};

/// Greetings that are remembered, one for each key. Beyond it all are forgotten, and servers send them again: about 2 MiB.
const GREETINGS_MAX: usize = 1_024;
/// Derived keys that are remembered: of each upstream user one.
pub(crate) const DERIVED_KEYS_MAX: usize = 1_024;

/// The `application_name` of connections that run auth queries.
const LOOKUPS: &str = "weir auth_query";

/// The identity of a pool: database, user, and the proof for that user. Clones share it.
#[derive(Clone)]
pub struct PoolKey(Arc<Identity>);

#[derive(PartialEq, Eq)]
struct Identity {
    /// The hash of the names: each transaction that waits for a server looks its pool up.
    hash: u64,
    /// The database as operators and limits know it: the name that clients give, if entries of the listener lead from names to databases.
    name: Box<[u8]>,
    /// The database at the server.
    database: Box<[u8]>,
    user: Box<[u8]>,
    credential: Credential,
    binding: BindingMode,
    /// Longest time of a statement, if its connections run auth queries. No client ever has one of them.
    lookup_timeout: Option<Duration>,
}

impl PoolKey {
    /// The pool of a client with that user, database and credential, at an upstream with these settings. `entry` is that of the database,
    /// if the listener has entries.
    pub(crate) fn new(
        user: &[u8],
        database: &[u8],
        credential: Credential,
        settings: &PostgresUpstreamSettings,
        entry: Option<&PostgresDatabaseSettings>,
    ) -> Self {
        let own = entry.and_then(|entry| entry.database.as_ref()).or(settings.database.as_ref());
        let real = own.map_or(database, |name| name.as_bytes());
        let name = if entry.is_some() { database } else { real };
        let of_entry = entry.and_then(|entry| Some((entry.user.as_ref()?, &entry.password)));
        match of_entry.or_else(|| Some((settings.user.as_ref()?, &settings.password))) {
            Some((user, password)) => {
                let password = password.clone().map_or(Credential::None, Credential::Password);
                Self::with(name, real, user.as_bytes(), password, settings.channel_binding, None)
            }
            None => Self::with(name, real, user, credential, settings.channel_binding, None),
        }
    }

    /// The pool of the connections that run auth queries, at an upstream with this binding.
    pub(crate) fn of_lookups(settings: &AuthQuerySettings, binding: BindingMode) -> Self {
        let (database, user) = (settings.database.as_bytes(), settings.user.as_bytes());
        Self::with(database, database, user, settings.credential.clone(), binding, Some(settings.timeout))
    }

    fn with(
        name: &[u8],
        database: &[u8],
        user: &[u8],
        credential: Credential,
        binding: BindingMode,
        lookup_timeout: Option<Duration>,
    ) -> Self {
        static HASHER: LazyLock<RandomState> = LazyLock::new(RandomState::new);
        let hash = HASHER.hash_one((name, user));
        Self(Arc::new(Identity {
            hash,
            name: name.into(),
            database: database.into(),
            user: user.into(),
            credential,
            binding,
            lookup_timeout,
        }))
    }

    pub(crate) fn database_name(&self) -> String {
        String::from_utf8_lossy(&self.0.name).into_owned()
    }

    pub(crate) fn user_name(&self) -> String {
        String::from_utf8_lossy(&self.0.user).into_owned()
    }

    fn identity(&self) -> ServerIdentity {
        let mut identity = ServerIdentity::new(&self.0.user, &self.0.database, self.0.credential.clone());
        identity.binding = self.0.binding;
        if let Some(timeout) = self.0.lookup_timeout {
            // No setting of a client comes here, and no schema but the system's is searched (CVE-2025-12819).
            let timeout = timeout.as_millis().max(1).to_string();
            let own = [("search_path", "pg_catalog"), ("application_name", LOOKUPS), ("statement_timeout", &timeout)];
            identity.parameters = own.map(|(name, value)| (name.into(), value.into())).to_vec();
        }
        identity
    }
}

impl PartialEq for PoolKey {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.0 == other.0
    }
}

impl Eq for PoolKey {}

impl Hash for PoolKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.0.hash);
    }
}

impl fmt::Display for PoolKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.user_name(), self.database_name())
    }
}

impl fmt::Debug for PoolKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The parameters that a server reports after a login, in its order and with its names.
pub(crate) type Greeting = Rc<Vec<(Vec<u8>, Vec<u8>)>>;

/// The servers of one upstream on one worker.
pub struct PostgresServer {
    settings: PostgresUpstreamSettings,
    share: Rc<WorkerShare>,
    greetings: RefCell<HashMap<PoolKey, Greeting>>,
    keys: RefCell<KeyCache>,
    hubs: Hubs,
}

impl PostgresServer {
    /// Servers with these settings; sessions of the worker share `share`.
    pub fn new(settings: PostgresUpstreamSettings, share: Rc<WorkerShare>) -> Self {
        let mut seed = [0; 32];
        // Without randomness no login succeeds, and the cache stays empty.
        let _ = aws_lc_rs::rand::fill(&mut seed);
        let keys = RefCell::new(KeyCache::new(DERIVED_KEYS_MAX, seed));
        Self { settings, share, greetings: RefCell::default(), keys, hubs: Hubs::default() }
    }

    /// The settings.
    pub fn settings(&self) -> &PostgresUpstreamSettings {
        &self.settings
    }

    /// The clients that listen.
    pub(crate) fn hubs(&self) -> &Hubs {
        &self.hubs
    }

    /// The identity of the upstream itself, without a client.
    pub(crate) fn own_identity(&self) -> ServerIdentity {
        let user = self.settings.user.as_deref().unwrap_or_default();
        let database = self.settings.database.as_deref().unwrap_or("postgres");
        let credential = self.settings.password.clone().map_or(Credential::None, Credential::Password);
        let own = ServerIdentity::new(user.as_bytes(), database.as_bytes(), credential);
        ServerIdentity { binding: self.settings.channel_binding, ..own }
    }

    /// Keys that its passwords have led to.
    pub(crate) fn keys(&self) -> &RefCell<KeyCache> {
        &self.keys
    }

    /// The report of a server of `key`. `None`: no connection was made yet.
    pub(crate) fn greeting(&self, key: &PoolKey) -> Option<Greeting> {
        self.greetings.borrow().get(key).cloned()
    }

    /// The greeting of a server that logged in on another worker, as its state still has it.
    pub(crate) fn greeting_of(&self, key: &PoolKey, state: &ServerState) -> Greeting {
        let reported = state.defaults().iter().filter_map(|(name, value)| match value {
            Value::Literal(value) => Some((reported_name(name).to_vec(), value.to_vec())),
            _ => None,
        });
        self.note_greeting(key, reported.collect())
    }

    fn note_greeting(&self, key: &PoolKey, parameters: Vec<(Vec<u8>, Vec<u8>)>) -> Greeting {
        let mut greetings = self.greetings.borrow_mut();
        if greetings.len() >= GREETINGS_MAX {
            greetings.clear();
        }
        let greeting = Rc::new(parameters);
        greetings.insert(key.clone(), greeting.clone());
        greeting
    }
}

impl PooledProtocol for PostgresServer {
    type Key = PoolKey;
    type State = ServerState;
    type Moved = ServerParcel;
    type Watch = RoleWatch;

    const NEGOTIATES_TLS: bool = true;
    /// Terminate.
    const FAREWELL: &'static [u8] = b"X\0\0\0\x04";

    fn database(key: &PoolKey) -> &[u8] {
        &key.0.name
    }

    fn user(key: &PoolKey) -> &[u8] {
        &key.0.user
    }

    fn judges(&self) -> bool {
        self.settings.target_session_attrs != TargetSessionAttrs::Any
    }

    fn fitness(&self, watch: &RoleWatch) -> Fitness {
        if self.judges() { watch.fitness() } else { Fitness::Fit }
    }

    fn on_trouble(&self, watch: &RoleWatch) {
        watch.suspect();
    }

    fn process(state: &ServerState) -> u32 {
        state.cancel_target().map_or(0, |target| target.pid)
    }

    async fn login(&self, stream: &mut Stream, target: &LoginTarget, key: &PoolKey) -> Result<ServerState, LoginError> {
        let facts = log_in(stream, target, key.identity(), &self.keys).await.inspect_err(|_| {
            // A client of this key is not let in before a server has accepted it again.
            self.greetings.borrow_mut().remove(key);
        })?;
        let cancel = (facts.pid != 0).then(|| CancelTarget { pid: facts.pid, secret: facts.secret[..].into() });
        let reported = facts.parameters.iter().map(|(name, value)| (&name[..], &value[..]));
        let state = ServerState::new(reported, cancel, &self.share);
        self.note_greeting(key, facts.parameters);
        Ok(state)
    }

    fn on_idle_bytes(&self, state: &mut ServerState, bytes: &[u8]) -> IdleVerdict {
        match state.on_idle_bytes(bytes, &self.share) {
            Ok(()) if state.facts(false).is_half_received => IdleVerdict::Incomplete,
            Ok(()) => IdleVerdict::Keep,
            Err(_) => IdleVerdict::Close,
        }
    }

    async fn reset(&self, stream: &mut Stream, state: &mut ServerState) -> bool {
        let mut recovery = Recovery::new(self.settings.server_reset_query.as_deref().map(str::as_bytes));
        let mut recovered = recovery.begin(state, &self.share, &Sink(&stream.output));
        loop {
            match recovered {
                Recovered::Clean => return true,
                Recovered::Unusable => return false,
                Recovered::NotYet => {}
            }
            let Ok(Some(chunk)) = stream.reader.receive().await else { return false };
            recovered = recovery.on_server(&chunk, state, &self.share, &Sink(&stream.output));
        }
    }

    /// A Sync, which has one reply whatever the state of the server.
    async fn check(&self, stream: &mut Stream, state: &mut ServerState) -> bool {
        const READY: [u8; 6] = [b'Z', 0, 0, 0, 5, b'I'];
        stream.output.with(frontend::sync);
        let mut received = Vec::new();
        while received.len() < READY.len() || !received.ends_with(&READY) {
            let Ok(Some(chunk)) = stream.reader.receive().await else { return false };
            received.extend_from_slice(&chunk);
            if received.len() > CHECK_BYTES_MAX {
                return false;
            }
        }
        received.truncate(received.len() - READY.len());
        state.on_idle_bytes(&received, &self.share).is_ok() && !state.facts(false).is_half_received
    }

    fn is_movable(&self, state: &ServerState) -> bool {
        state.facts(false).after_reply() == Verdict::Clean
    }

    fn pack(&self, state: ServerState) -> ServerParcel {
        state.pack().expect("a movable server is idle and clean")
    }

    fn unpack(&self, moved: ServerParcel) -> ServerState {
        moved.unpack(&self.share)
    }
}

/// Bytes before the reply to a check: reports and notices.
const CHECK_BYTES_MAX: usize = 64 * 1024;

/// The output of a server without a client.
struct Sink<'a>(&'a Output);

impl ToServer for Sink<'_> {
    fn to_server(&self, bytes: &[u8]) {
        self.0.append(bytes);
    }

    fn encode_to_server(&self, encode: impl FnOnce(&mut Vec<u8>)) {
        self.0.with(encode);
    }

    fn is_server_congested(&self) -> bool {
        self.0.is_congested()
    }
}

/// TLS as the settings of an endpoint have it.
fn tls_mode(target: &LoginTarget) -> TlsMode {
    if target.has_tls() { TlsMode::Require } else { TlsMode::Disable }
}

/// The binding of a login to the TLS below it, on both sides: the hash of the certificate of the one that is the server.
pub(crate) fn channel_binding(stream: &Stream) -> ChannelBinding {
    stream.with_server_certificate(ChannelBinding::of_certificate).unwrap_or_default()
}

/// Logs a fresh connection in.
pub(crate) async fn log_in(
    stream: &mut Stream,
    target: &LoginTarget,
    identity: ServerIdentity,
    keys: &RefCell<KeyCache>,
) -> Result<ServerFacts, LoginError> {
    let mut random = [0; NONCE_RANDOM_BYTES];
    if !entropy::fill(&mut random) {
        return Err(io::Error::other("the system has no randomness").into());
    }
    let mut login = ServerLogin::new(ServerIdentity { tls: tls_mode(target), ..identity }, &random);
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
                Step::StartTls => {
                    target.start_tls(stream, &std::mem::take(&mut input)).await?;
                    let binding = channel_binding(stream);
                    stream.output.with(|out| login.on_tls(binding, out))
                }
                Step::Derive(derivation) => {
                    let derived = derive(derivation, keys).await;
                    stream.output.with(|out| login.on_keys(&derived, out))
                }
                Step::Done(facts) => return Ok(*facts),
                Step::Failed(failure) => return Err(failed(*failure)),
            };
        }
    }
}

fn failed(failure: Failure) -> LoginError {
    let text = failure.to_string();
    match failure {
        Failure::Refused(error) if error.is_full() => LoginError::Busy { text },
        failure if failure.is_transient() => LoginError::Broken(io::Error::other(text)),
        // Before, it is about the gateway's own address, user or password, and not for clients.
        Failure::Refused(error) if error.is_authenticated => LoginError::Refused { words: error.message, text },
        _ => LoginError::Refused { words: Vec::new(), text },
    }
}

/// Begins TLS on a connection without a login, if its endpoint has it.
///
/// # Errors
/// The server has no TLS, or the handshake failed.
pub(crate) async fn encrypt(stream: &mut Stream, target: &LoginTarget) -> io::Result<()> {
    if tls_mode(target) == TlsMode::Disable {
        return Ok(());
    }
    stream.output.with(frontend::ssl_request);
    match stream.reader.receive().await? {
        Some(chunk) if *chunk == *b"S" => target.start_tls(stream, &[]).await,
        _ => Err(io::Error::other("the server has no TLS")),
    }
}

/// The health check of a server: it takes a connection and replies to the request of a session, whatever it replies. A server that starts,
/// ends or recovers says so with class 57, and is down.
pub struct LoginProbe {
    user: Box<[u8]>,
    database: Box<[u8]>,
}

impl LoginProbe {
    /// The probe of an upstream with these settings. It proves no password: a request for one is a reply.
    pub fn new(settings: &PostgresUpstreamSettings) -> Self {
        let user = settings.user.as_deref().unwrap_or("weir");
        let database = settings.database.as_deref().unwrap_or("postgres");
        Self { user: user.as_bytes().into(), database: database.as_bytes().into() }
    }
}

impl Probe for LoginProbe {
    async fn check(&self, mut stream: Stream) -> io::Result<Option<Stream>> {
        let identity = ServerIdentity::new(&self.user, &self.database, Credential::None);
        let mut login = ServerLogin::new(identity, &[0; NONCE_RANDOM_BYTES]);
        stream.output.with(|out| login.start(out));
        let mut input = Vec::new();
        loop {
            match stream.reader.receive().await? {
                Some(chunk) => input.extend_from_slice(&chunk),
                None => return Err(io::Error::other("the server closed the connection")),
            }
            let Progress { consumed, step } = stream.output.with(|out| login.on_bytes(&input, out));
            input.drain(..consumed);
            match step {
                Step::More => {}
                Step::Failed(failure) => match *failure {
                    Failure::Refused(error) if error.sqlstate.as_deref().is_some_and(|code| code.starts_with("57")) => {
                        return Err(io::Error::other(error.text));
                    }
                    Failure::Violation(violation) if violation.culprit == Culprit::Upstream => {
                        return Err(io::Error::other(violation.to_string()));
                    }
                    _ => break,
                },
                Step::Done(_) | Step::Derive(_) | Step::StartTls => break,
            }
        }
        stream.output.append(PostgresServer::FAREWELL);
        Ok(None)
    }
}
