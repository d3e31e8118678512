//! The keys that only flags listeners and their upstreams have.

use weir_base::{ByteSize, Net};
use weir_flags::settings::{self as flags, Backstage, UpstreamMode};
use weir_flags_codec::UnknownFields;
use weir_policy::http::HOPS_MAX;

use crate::document::At;
use crate::numbers::Period;
use crate::protocols::http::CorsSection;
use crate::secret::SecretRef;
use crate::section::section;
use crate::sections::{COUNT_MAX, UpstreamTlsSection};
use crate::texts::{Choice, Endpoint, LongWord, Name, Word};

/// Longest interval.
const INTERVAL_MAX: Period = Period::secs(86_400);

section! {
    /// Keys of a listener.
    pub(crate) struct ListenerKeys {
        /// Settings of flags listeners only.
        table flags: ListenerFlagsSection;
    }
}

section! {
    /// Keys of an upstream.
    pub(crate) struct UpstreamKeys {
        /// Settings of upstreams of flags listeners only: an Unleash server, or another edge. `[upstream.http]` has the settings of
        /// its connections.
        table flags: UpstreamFlagsSection;
    }
}

section! {
    /// Settings of upstreams of flags listeners only.
    pub(crate) struct UpstreamFlagsSection {
        /// Path prefix of the API at the upstream, such as `/unleash`. If absent, the API is at the root.
        optional base_path: LongWord;
    }
}

section! {
    /// Settings of flags listeners only: clients are SDKs of Unleash and OpenFeature. With an `upstream`, the flags come from an
    /// Unleash server or another edge, otherwise from `bootstrap_file`.
    pub(crate) struct ListenerFlagsSection {
        /// Backend tokens with which the gateway fetches flags (`project:environment.secret`). A secret can contain several tokens,
        /// separated by commas. Clients may use these tokens, and all valid tokens whose environment and projects one of them
        /// covers. Required with `upstream`, unless `dynamic` is true.
        optional tokens: Vec<At<SecretRef>>;
        /// Frontend tokens that need no validation by the upstream. The form `secret@environment` permits any secret.
        optional pretrusted_tokens: Vec<At<SecretRef>>;
        /// Also fetch flags with valid backend tokens of clients that no token in `tokens` covers. Otherwise such clients get 403.
        default dynamic: bool = false;
        /// How flags arrive from the upstream: `polling` fetches all flags once per `poll_interval`, `delta` only changes,
        /// `streaming` keeps a stream of changes open. If the upstream lacks the mode, it is polled.
        default upstream_mode: UpstreamMode = UpstreamMode::Polling;
        /// Interval of polls. Varies by up to 10 percent. Failures extend it up to 11 times.
        default poll_interval: Period = Period(flags::POLL_INTERVAL) => Period::secs(1)..=INTERVAL_MAX;
        /// Interval at which metrics and registrations of clients are sent to the upstream.
        default metrics_interval: Period = Period(flags::METRICS_INTERVAL) => Period::secs(1)..=INTERVAL_MAX;
        /// Memory for metrics between two uploads. Beyond it, the hours that are farthest from now are dropped first. A quarter is for
        /// applications and for metrics of their own, and no flood of them drops counts of flags.
        default metrics_bytes_max: ByteSize = ByteSize::new(flags::METRICS_BYTES_MAX as u64)
            => ByteSize::kib(256)..=ByteSize::mib(1_024);
        /// How long a request waits until the upstream has validated its token and the first flags are there. Then it gets 503
        /// with `Retry-After`, because SDKs stop for ever after 401 and 403. `0s` responds with 503 at once.
        default validation_timeout: Period = Period(flags::VALIDATION_TIMEOUT) => Period::secs(0)..=Period::secs(30);
        /// Interval at which valid tokens are validated again.
        default revalidation_interval: Period = Period(flags::REVALIDATION_INTERVAL) => Period::secs(1)..=INTERVAL_MAX;
        /// Name of the gateway in requests to the upstream (`UNLEASH-APPNAME`).
        default app_name: Word = Word("weir".to_owned());
        /// Header fields that are added to each request to the upstream.
        tables upstream_header: UpstreamHeaderSection;
        /// Directory for copies of flags and tokens. A start while the upstream is down serves these copies. Created if it does
        /// not exist; the files are readable for their owner only. A relative path starts at the configuration file's directory.
        /// Set at most one of `backup_dir`, `backup_redis` and `backup_s3`. Without one, there are no copies.
        optional backup_dir: LongWord;
        /// A Redis server for copies of flags and tokens, in place of `backup_dir`.
        optional_table backup_redis: RedisBackupSection;
        /// A bucket for copies of flags and tokens, in place of `backup_dir`.
        optional_table backup_s3: S3BackupSection;
        /// File with the flags of an offline gateway: a response of `/api/client/features`, or a map from names to
        /// `{ "enabled": true, "variant": "name" }`. A relative path starts at the configuration file's directory. Not allowed
        /// with `upstream`.
        optional bootstrap_file: LongWord;
        /// Backend tokens of an offline gateway. A token that is not of the form `project:environment.secret` may see all flags.
        optional client_tokens: Vec<At<SecretRef>>;
        /// Frontend tokens of an offline gateway.
        optional frontend_tokens: Vec<At<SecretRef>>;
        /// How often the gateway checks whether `bootstrap_file` has changed. With `0s`, it is read only at start and at a
        /// reload.
        default reload_interval: Period = Period(flags::RELOAD_INTERVAL) => Period::secs(0)..=INTERVAL_MAX;
        /// Header field of client requests that contains the token.
        default token_header: Word = Word("authorization".to_owned());
        /// Path prefix of all endpoints of this listener, such as `/edge`. If absent, the endpoints are at the root.
        optional base_path: LongWord;
        /// Names in a query of the frontend API that are no context fields: `properties` treats them as properties, as Unleash
        /// and Unleash Edge do, `drop` ignores them.
        default unknown_query_fields: UnknownFields = UnknownFields::Properties;
        /// Serve `/api/frontend/all` and `/api/proxy/all`, which also list disabled flags.
        default all_endpoint: bool = true;
        /// Serve OpenFeature's remote evaluation protocol at `/ofrep/v1/evaluate/flags`.
        default ofrep: bool = true;
        /// Serve `/api/client/streaming`, by which SDKs receive changes at once. Otherwise it is 404, and SDKs poll.
        default streaming: bool = true;
        /// Maximum number of open streams. Further ones get 429. Not allowed with `streaming = false`.
        default streams_max: u32 = flags::STREAMS_MAX as u32 => 1..=COUNT_MAX;
        /// Endpoints below `/internal-backstage`, which need no token: `health`, `ready`, `metrics`, `features`, `tokens`,
        /// `metricsbatch`, `instancedata`, `info`. All but the first two show data of the operator. If absent, `health` and
        /// `ready`.
        optional backstage: Vec<At<Backstage>>;
        /// Number of trusted proxies in front that append to X-Forwarded-For. The entry of the first of these proxies is the
        /// address of the client. With 0, the client is the peer of the connection.
        default trusted_hops: u32 = 0 => 0..=HOPS_MAX as u32;
        /// Networks of peers whose requests are served; other requests get 403. The peer is the other end of the connection, or the
        /// address in a PROXY header, whatever `trusted_hops` says. Set either `allow` or `deny`.
        optional allow: Vec<At<Net>>;
        /// Networks of peers whose requests get 403.
        optional deny: Vec<At<Net>>;
        /// Redirect each request to HTTPS with 308, for a listener without TLS beside one with TLS. Such a listener fetches no flags.
        default redirect_https: bool = false;
        /// Web pages of other origins that may read responses (CORS). If absent, every page may, without credentials: frontend
        /// SDKs run in pages.
        optional_table cors: CorsSection;
    }
}

section! {
    /// A Redis server (or Valkey; no Redis Cluster) with copies of flags and tokens, from which a start without the upstream serves. The
    /// keys are `unleash-features` and `unleash-tokens`, and copies that Unleash Edge has written there are read.
    pub(crate) struct RedisBackupSection {
        /// `host:port` or `unix:/path`. List a server and the replicas that may replace it: the first one that accepts the command is
        /// used.
        required endpoints: Vec<At<Endpoint>>;
        /// User for the login. If absent, `default`.
        optional user: Word;
        /// Password of `user`. If absent, the gateway does not log in.
        optional password: SecretRef;
        /// Number of the database.
        default database: u32 = 0 => 0..=COUNT_MAX;
        /// Prefix of both keys. Gateways with other flags, and Unleash Edges, need another one.
        optional prefix: Word;
        /// TLS to the server. If absent, the connection uses clear text. Connecting, handshake and login together may take 2 s, so
        /// `handshake_timeout` is at most 2 s.
        optional_table tls: UpstreamTlsSection;
    }
}

section! {
    /// A bucket in S3, or in a server with its API, with copies of flags and tokens, from which a start without the upstream serves.
    /// The objects are `/unleash-features.json` and `/unleash-tokens.json`, and copies that Unleash Edge has written there are read.
    pub(crate) struct S3BackupSection {
        /// Upstream that has the bucket, such as `s3.eu-central-1.amazonaws.com:443` with `[upstream.tls]`.
        required upstream: Name;
        /// Name of the bucket, which must exist.
        required bucket: Word;
        /// Region of the bucket. Servers other than S3 mostly expect `us-east-1`.
        required region: Word;
        /// Write the bucket in the path of a request. Otherwise it is in the host, in front of that of the endpoint. Servers other than
        /// S3 mostly need the path.
        default path_style: bool = false;
        /// Text in front of the names of both objects. Gateways with other flags, and Unleash Edges, need another one.
        default prefix: LongWord = LongWord("/".to_owned());
        /// Id of the access key. If absent, the environment variable `AWS_ACCESS_KEY_ID`.
        optional access_key_id: SecretRef;
        /// Secret access key. If absent, the environment variable `AWS_SECRET_ACCESS_KEY`.
        optional secret_access_key: SecretRef;
        /// Session token of a key that expires. If all three are absent, the environment variable `AWS_SESSION_TOKEN`.
        optional session_token: SecretRef;
    }
}

section! {
    /// A header field of each request to the upstream.
    pub(crate) struct UpstreamHeaderSection {
        /// Name of the field.
        required name: Word;
        /// Value of the field.
        required value: SecretRef;
    }
}

impl Choice for UpstreamMode {
    const WORDS: &'static [(&'static str, Self)] =
        &[("polling", Self::Polling), ("delta", Self::Delta), ("streaming", Self::Streaming)];
}

impl Choice for UnknownFields {
    const WORDS: &'static [(&'static str, Self)] = &[("properties", Self::Properties), ("drop", Self::Drop)];
}

impl Choice for Backstage {
    const WORDS: &'static [(&'static str, Self)] = Self::ALL;
}
