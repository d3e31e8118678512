//! Options that an operator may choose, with defaults and reasons. Names are those of MongoDB's connection strings where they have one.

use std::{sync::Arc, time::Duration};

use weir_base::Secret;
pub use weir_mongodb_codec::compressed::Compressor;
pub use weir_mongodb_session::pins::PinLimits;
pub use weir_policy::mongodb::Policy;
pub use weir_sasl::Mechanism;
use weir_upstream::pooled::PooledSettings;

pub use crate::users::Users;

/// From the accepted connection to the first hello, and from the first message of a login to its end. Default 30 s: a login takes three round
/// trips. A client that has said hello and does not log in has no such limit: monitors of drivers are such.
pub const CLIENT_LOGIN_TIMEOUT: Duration = Duration::from_secs(30);
/// The wait of a client for a server. Default 10 s: an application gives up at about that time. The refusal is code 462, behind which
/// drivers wait before they try again.
pub const QUEUE_WAIT_TIMEOUT: Duration = Duration::from_secs(10);
/// From the first byte of a message to its last one. Default 30 s: a message of 48 MB needs 13 Mbit/s.
pub const MESSAGE_TIMEOUT: Duration = Duration::from_secs(30);
/// From a write that wants no reply to the reply to the ping behind it. Default 5 min, and at most the request timeout: a delete of many
/// documents takes minutes, and a server that never answers must not keep a connection of its pool for ever. Beyond, the connections of server
/// and client end: the next request of the client must not overtake the write.
pub const SETTLE_TIMEOUT: Duration = Duration::from_secs(300);
/// Failures on one connection until it ends. Default 3: drivers close theirs after the first.
pub const LOGIN_FAILURES_MAX: u32 = 3;
/// The database of listed users. Default `admin`, which drivers use unless their connection string says otherwise.
pub const AUTH_SOURCE: &str = "admin";
/// The time between two looks at a server. Default 2 s: drivers look every 10 s, and a gateway has one monitor for all of them.
pub const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(2);
/// Connections of all workers to one server for one user. Default 100, as `maxPoolSize` of drivers.
pub const POOL_SIZE: u32 = 100;
/// A larger request goes on to its server while it still comes. Default 1 MiB: the most that one client holds in memory.
pub const HELD_BYTES_MAX: usize = 1024 * 1024;
/// Members of a replica set that are used. 50: the most that a set may have.
pub const MEMBERS_MAX: usize = 50;

/// How clients prove their identity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Auth {
    /// Not at all: the gateway's own login counts.
    None,
    /// SCRAM-SHA-256 or SCRAM-SHA-1, with the passwords of the listener's users.
    #[default]
    Scram,
    /// The certificate of their TLS connection (MONGODB-X509).
    X509,
    /// A password in clear text over TLS (PLAIN), for the listener's users.
    Plain,
    /// SCRAM that a server checks. Each client has one connection of its own to a server; the gateway has no password.
    Passthrough,
}

/// The server that clients see.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FaceChoice {
    /// A mongos, or a standalone server if the upstream is one that is none of a set.
    #[default]
    Auto,
    /// A mongos.
    Mongos,
    /// A standalone server.
    Standalone,
}

/// A MongoDB listener.
#[derive(Clone, Debug)]
pub struct MongodbListenerSettings {
    /// How clients prove their identity.
    pub auth: Auth,
    /// Users and their passwords, for [`Auth::Scram`] and [`Auth::Plain`].
    pub users: Arc<Users>,
    /// Mechanisms of [`Auth::Scram`]. Default both: old drivers have the older one only.
    pub mechanisms: Vec<Mechanism>,
    /// Subjects of certificates that may log in, as RFC 2253 writes them; `None`: every certificate that TLS has accepted.
    pub subjects: Option<Vec<String>>,
    /// See [`LOGIN_FAILURES_MAX`]; at least 1.
    pub login_failures_max: u32,
    /// See [`FaceChoice`].
    pub face: FaceChoice,
    /// Monitors of drivers get a change at once instead of asking every 10 s. Default true.
    pub streams_hello: bool,
    /// Compressors that clients may use, the best one first. Default none: compression costs the CPU time of the gateway.
    pub compressors: Vec<Compressor>,
    /// Rules about commands; a refused one gets code 13. Default: commands of the class dangerous are refused.
    pub policy: Arc<Policy>,
    /// Bounds of the cursors and transactions of one connection, for clients in load-balanced mode.
    pub connection_pins: PinLimits,
    /// The same of all connections of one user, for other clients.
    pub shared_pins: PinLimits,
    /// See [`CLIENT_LOGIN_TIMEOUT`].
    pub client_login_timeout: Duration,
    /// See [`MESSAGE_TIMEOUT`].
    pub message_timeout: Duration,
    /// See [`QUEUE_WAIT_TIMEOUT`].
    pub queue_wait_timeout: Duration,
    /// Longest time from a request to the end of its reply; `None`: no limit. A getMore of a change stream waits for its changes.
    pub request_timeout: Option<Duration>,
    /// See [`SETTLE_TIMEOUT`].
    pub settle_timeout: Duration,
    /// Longest silence of a client between requests; `None`: no limit.
    pub client_idle_timeout: Option<Duration>,
    /// See [`HELD_BYTES_MAX`]; at least 64 KiB.
    pub held_bytes_max: usize,
}

impl Default for MongodbListenerSettings {
    fn default() -> Self {
        Self {
            auth: Auth::default(),
            users: Arc::default(),
            mechanisms: vec![Mechanism::ScramSha256, Mechanism::ScramSha1],
            subjects: None,
            login_failures_max: LOGIN_FAILURES_MAX,
            face: FaceChoice::default(),
            streams_hello: true,
            compressors: Vec::new(),
            policy: Arc::default(),
            connection_pins: PinLimits::CONNECTION,
            shared_pins: PinLimits::SHARED,
            client_login_timeout: CLIENT_LOGIN_TIMEOUT,
            message_timeout: MESSAGE_TIMEOUT,
            queue_wait_timeout: QUEUE_WAIT_TIMEOUT,
            request_timeout: None,
            settle_timeout: SETTLE_TIMEOUT,
            client_idle_timeout: None,
            held_bytes_max: HELD_BYTES_MAX,
        }
    }
}

/// The proof of the gateway's own login at a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AuthMechanism {
    /// SCRAM, with the better mechanism that the user has.
    #[default]
    Scram,
    /// The password in clear text, over TLS alone.
    Plain,
    /// The client certificate of the upstream's TLS.
    X509,
}

/// A MongoDB upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MongodbUpstreamSettings {
    /// The user that logs in at the servers; `None`: no login, or that of the client with [`Auth::Passthrough`]. With
    /// [`AuthMechanism::X509`] it may be absent: the subject of the certificate is the user.
    pub user: Option<String>,
    /// Its password.
    pub password: Option<Secret>,
    /// Its proof.
    pub auth_mechanism: AuthMechanism,
    /// The database in which the user is. Default [`AUTH_SOURCE`]; `$external` follows from the mechanism.
    pub auth_source: String,
    /// The name of the replica set. Then the endpoints are seeds: its members are found and followed. `None`: the endpoints are the
    /// servers, each with the role that it reports.
    pub replica_set: Option<String>,
    /// Compressors that connections to the servers may use, the best one first. A compressed request of a client goes on as it came where
    /// its server has its compressor, and so does the reply. Default none: every message to a server is plain.
    pub compressors: Vec<Compressor>,
    /// See [`HEARTBEAT_INTERVAL`].
    pub heartbeat_interval: Duration,
    /// Sizes and ages of the pools; see [`POOL_SIZE`].
    pub pool: PooledSettings,
}

impl Default for MongodbUpstreamSettings {
    fn default() -> Self {
        Self {
            user: None,
            password: None,
            auth_mechanism: AuthMechanism::default(),
            auth_source: AUTH_SOURCE.to_owned(),
            replica_set: None,
            compressors: Vec::new(),
            heartbeat_interval: HEARTBEAT_INTERVAL,
            pool: PooledSettings { pool_size: POOL_SIZE, ..PooledSettings::default() },
        }
    }
}
