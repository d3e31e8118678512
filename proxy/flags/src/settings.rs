//! Settings of an operator. Plain data, already checked.

mod backup;

use std::{path::PathBuf, sync::Arc, time::Duration};

use weir_base::Secret;
use weir_flags_codec::UnknownFields;
use weir_flags_session::Token;
use weir_policy::http::{AddressRules, Cors, ForwardedFor};

pub use self::backup::{BACKUP_ENDPOINTS_MAX, BackupStore, BucketFault, RedisBackup, S3Access, S3Backup, bucket};
pub use crate::limits::*;

/// A listener.
#[derive(Clone, Debug)]
pub struct FlagsListenerSettings {
    /// The source of the flags.
    pub source: FlagSource,
    /// The field of a request that has the token, in lower case. Default `authorization`.
    pub token_header: Box<str>,
    /// The part of each path in front of those of the API, such as `/edge`. Empty: none.
    pub base_path: Box<str>,
    /// Names in a query that are no fields of a context.
    pub unknown_query_fields: UnknownFields,
    /// Clients may read flags that are off: `/api/frontend/all` and its relatives.
    pub all_endpoint: bool,
    /// OpenFeature's remote evaluation is served.
    pub ofrep: bool,
    /// Clients may follow changes: `/api/client/streaming`.
    pub streaming: bool,
    /// See [`STREAMS_MAX`].
    pub streams_max: usize,
    /// Endpoints for operators that the listener serves.
    pub backstage: Box<[Backstage]>,
    /// See [`METRICS_BYTES_MAX`].
    pub metrics_bytes_max: usize,
    /// Finds the client of a request behind trusted proxies.
    pub forwarded_for: ForwardedFor,
    /// Addresses from which requests are served. `None`: all.
    pub addresses: Option<Arc<AddressRules>>,
    /// Pages that may read responses. `None`: none of other origins.
    pub cors: Option<Cors>,
    /// Each request gets a redirect to the same address with TLS.
    pub redirect_https: bool,
}

/// The source of the flags of a listener.
#[derive(Clone, Debug)]
pub enum FlagSource {
    /// A server with Unleash's API.
    Upstream(UpstreamSource),
    /// A file.
    File(FileSource),
}

impl FlagSource {
    /// The names of its upstreams: that of the server, and that of the bucket with its backup.
    pub fn upstreams(&self) -> Vec<Arc<str>> {
        match self {
            Self::Upstream(source) => match source.backup.as_deref() {
                Some(BackupStore::S3(bucket)) => vec![source.upstream.clone(), bucket.upstream.clone()],
                _ => vec![source.upstream.clone()],
            },
            Self::File(_) => Vec::new(),
        }
    }
}

/// A server with Unleash's API.
#[derive(Clone, Debug)]
pub struct UpstreamSource {
    /// The name of the upstream.
    pub upstream: Arc<str>,
    /// The part of each path in front of those of the API of the server. Empty: none.
    pub base_path: Box<str>,
    /// The Host of requests to the server.
    pub host: Box<str>,
    /// The addresses of the server. If none stays, they are those of another server.
    pub endpoints: Arc<[Box<str>]>,
    /// Backend tokens that are known at the start.
    pub tokens: Arc<[Token]>,
    /// Frontend tokens that need no validation.
    pub pretrusted: Arc<[Token]>,
    /// A valid backend token that none of `tokens` covers is polled for.
    pub is_dynamic: bool,
    /// How changes arrive.
    pub mode: UpstreamMode,
    /// See [`POLL_INTERVAL`].
    pub poll_interval: Duration,
    /// See [`METRICS_INTERVAL`].
    pub metrics_interval: Duration,
    /// See [`VALIDATION_TIMEOUT`].
    pub validation_timeout: Duration,
    /// See [`REVALIDATION_INTERVAL`].
    pub revalidation_interval: Duration,
    /// The name of this program in requests to the server.
    pub app_name: Box<str>,
    /// Fields that each request to the server has, besides those of the protocol.
    pub fields: Arc<[(Box<str>, Secret)]>,
    /// Where copies of the flags and tokens are, from which a start without the server serves. `None`: none are kept.
    pub backup: Option<Arc<BackupStore>>,
}

impl UpstreamSource {
    /// Whether both are one server: the same upstream and path, with an address in common. Otherwise verdicts and flags of one say nothing about
    /// the other.
    pub fn is_server_of(&self, other: &Self) -> bool {
        let has_common = self.endpoints.iter().any(|endpoint| other.endpoints.contains(endpoint));
        self.upstream == other.upstream && self.base_path == other.base_path && has_common
    }
}

/// How changes of a server arrive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UpstreamMode {
    /// `GET /api/client/features`, once per interval.
    #[default]
    Polling,
    /// `GET /api/client/delta`, once per interval.
    Delta,
    /// `GET /api/client/streaming`.
    Streaming,
}

/// A file with flags.
#[derive(Clone, Debug)]
pub struct FileSource {
    /// The file.
    pub path: PathBuf,
    /// Its tokens: those of the client API, of the frontend API, and of both.
    pub tokens: Arc<[Token]>,
    /// See [`RELOAD_INTERVAL`]. Zero: the file is read at the start only.
    pub reload_interval: Duration,
}

/// An endpoint for operators.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backstage {
    /// The process serves.
    Health,
    /// The flags are there.
    Ready,
    /// Counters for Prometheus, with the names of Unleash Edge.
    Metrics,
    /// The flags of each environment.
    Features,
    /// The tokens, masked.
    Tokens,
    /// Metrics that wait for the next upload.
    MetricsBatch,
    /// This process, and the edges behind it.
    InstanceData,
    /// The version.
    Info,
}

impl Backstage {
    /// Every one, with its word in the file and behind `/internal-backstage/`.
    pub const ALL: &'static [(&'static str, Self)] = &[
        ("health", Self::Health),
        ("ready", Self::Ready),
        ("metrics", Self::Metrics),
        ("features", Self::Features),
        ("tokens", Self::Tokens),
        ("metricsbatch", Self::MetricsBatch),
        ("instancedata", Self::InstanceData),
        ("info", Self::Info),
    ];

    /// The endpoint of a word.
    pub fn of(word: &str) -> Option<Self> {
        Self::ALL.iter().find(|(name, _)| *name == word).map(|(_, endpoint)| *endpoint)
    }
}
