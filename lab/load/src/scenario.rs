//! A scenario: one workload in one TOML file, checked as a whole before any load.
//!
//! ```toml
//! name = "redis-mixed-64b"      # the row it belongs to
//! protocol = "redis"
//! mode = "open"                 # open | closed
//! arrival = "poisson"           # deterministic | poisson | gamma (burstiness = 4.0) | on_off (burst = 100)
//! seed = 1
//! shards = 1                    # generator cores
//! connections = 50              # of all shards together
//! pipeline = 1                  # requests under way per connection
//! slo_p99 = "2ms"               # optional
//! threshold = ["errors<0.1%"]   # optional: what the exit code of `weir lab load` says, beside slo_p99. Without slo_p99
//!                               # the lowest upper bound on p99, if there is one, is also the latency target
//! late_limit = "1s"             # default: 1 s or 20 x slo_p99, whichever is longer
//! integrity = true              # check replies
//! churn = false                 # true: each request has a connection of its own, with its login; `connections` bounds how many are
//!                               # under way
//!
//! [keys]
//! count = 100_000
//! prefix = "key:"
//! distribution = "zipf"         # uniform | zipf
//! exponent = 0.99
//! preload = true                # write all keys before the run
//!
//! [payload]                     # or several [[payload]] with weights
//! size = "64B"
//!
//! [[command]]
//! name = "GET"                  # GET, SET, INCR, MGET (with keys = n); or words = ["HSET", "{key}", "f", "{value}"]
//! weight = 80
//! [[command]]
//! name = "SET"
//! weight = 20
//!
//! [[phase]]
//! rate = 50_000                 # requests per second of all shards; a closed loop has none
//! warmup = "5s"
//! duration = "10s"
//! # connections = 400          # and pipeline or streams: of this phase, where `weir lab compare` runs each by itself
//! ```
//!
//! `redis-pubsub` has `channels = 100` in place of keys and commands: connections are subscribers then, and rates count the
//! messages that they hear. HTTP, WebSocket, PostgreSQL, MongoDB and TCP have no keys and no commands. For HTTP and WebSocket, `[request]`
//! describes the requests further:
//!
//! ```text
//! name = "http2-128b"
//! protocol = "http2"            # http1 | http2 | websocket | tcp
//! connections = 2
//! streams = 32                  # HTTP/2: requests under way per connection; pipeline for the others
//! payload.size = "128B"         # of a response's body, or of a message that comes back
//!
//! [request]
//! host = "lab.example"
//! path = "/index.html"          # left out: paths of the lab's own origin, whose responses show whose they are
//!                               # with a path and without payload.size, the body of a response may have any length
//!
//! [[phase]]
//! rate = 10_000
//! duration = "10s"
//! ```
//!
//! PostgreSQL has a section of its own, and no payload:
//!
//! ```text
//! protocol = "postgres"
//! [postgres]
//! query = "prepared"            # simple | extended | prepared, as pgbench -M
//! script = "tpcb-like"          # select-only | tpcb-like, as pgbench -b: a request is one transaction
//! user = "app"                  # default postgres
//! database = "shop"             # default the user
//! password = "env:PGPASSWORD"   # or the password itself; left out: none
//! accounts = 100_000            # of pgbench_accounts: 100,000 for each step of the scale
//! ```
//!
//! MongoDB has a section of its own; `payload` is the size of a document, 1 KiB by default:
//!
//! ```text
//! protocol = "mongodb"
//! payload.size = "1KiB"
//! [mongodb]
//! operation = "mixed"           # find | insert | mixed: a request is the command for one document
//! insert_percent = 20           # mixed: the share of inserts
//! database = "lab"
//! collection = "documents"
//! documents = 100_000           # each find draws one of these, by its _id from 1 on
//! user = "lab"                  # of the database admin
//! password = "env:MONGO_PASSWORD" # or the password itself; left out: no login
//! mechanism = "scram-sha-256"   # scram-sha-256 | scram-sha-1
//! compressor = "zstd"           # snappy | zlib | zstd; left out: none
//! load_balanced = false         # true: the client says so in hello, and the server must have a serviceId
//! ```
//!
//! A language model behind OpenAI's API has a section of its own; `payload` is the text of a reply:
//!
//! ```text
//! protocol = "ai"
//! payload.size = "1KiB"
//! [ai]
//! workload = "paced"            # llm | stream | paced | agent (whose reply is a call of a tool, without payload)
//! prompt_bytes = 512            # of the user's message
//! events = 64                   # stream, paced: events with text
//! first = "200ms"               # paced: wait of the origin before the first event,
//! gap = "20ms"                  # and before each further one
//! tools = 8                     # agent: schemas in each request
//! model = "weir-small"
//! key = "env:OPENAI_API_KEY"    # or the key itself; left out: none
//! ```
//!
//! Feature flags by Unleash's APIs have a section of their own, and no payload:
//!
//! ```text
//! protocol = "flags"
//! [flags]
//! endpoint = "frontend"         # client (all flags, as backends poll them) | frontend (those that are on for a context)
//! data = "large"                # small | large | huge: the flags that the lab's origin serves
//! method = "get"                # frontend: get | post
//! context = "user"              # frontend: user (a user and a plan, of 256 that take turns) | none
//! conditional = false           # true: requests have the tag of the first response, and a 304 is right
//! gzip = false                  # true: the client takes gzip, and a response has it
//! token = "env:UNLEASH_TOKEN"   # or the token itself; left out: that of the lab's origin
//! ```

use std::fmt;
use std::time::Duration;

use weir_base::ByteSize;
use weir_base::secret::Secret;
use weir_sasl::{Mechanism, ScramVerifier};

use crate::arrivals::{Arrival, Rate};
use crate::keys::Distribution;
use crate::protocols::Protocol;
use crate::threshold::{self, Threshold};

mod ai;
mod flags;
pub(crate) mod mistake;
mod mongodb;
pub(crate) mod read;
pub(crate) mod table;

pub use ai::{Ai, AiWorkload};
pub use flags::{CONTEXTS, Flags, FlagsEndpoint};
pub use mistake::{MISTAKES_MAX, Mistake, Mistakes};
pub use mongodb::{Mongodb, Operation};
pub use read::{FILE_BYTES_MAX, PHASES_MAX, parse, parse_with};
pub use table::parse_duration;

/// Connections of one run. Default 1,000,000: beyond the ports that one address has.
pub const CONNECTIONS_MAX: u32 = 1_000_000;

/// Requests under way on one connection. Default 1,024: deeper only measures buffers.
pub const PIPELINE_MAX: u32 = 1_024;

/// Keys of one MGET. Default 1,024, as much as clients batch.
pub const MGET_KEYS_MAX: u32 = 1_024;

/// Bytes of one value. Default 1 MiB, so that the arena of requests holds more than a hundred.
pub const PAYLOAD_BYTES_MAX: usize = 1 << 20;

/// Bytes of values that one MGET may ask for. Default 64 MiB: a reply is checked as a whole.
pub const REPLY_BYTES_MAX: u64 = 64 << 20;

/// Keys of the key space. Default 2^40: within the exact integers of the Zipf sampler, with room.
pub const KEYS_MAX: u64 = 1 << 40;

/// The late limit by default, and its part of the objective.
const LATE_LIMIT_MIN: Duration = Duration::from_secs(1);
const LATE_LIMIT_PER_SLO: u32 = 20;

/// The longest time that latency histograms hold, so the longest limit that can be judged.
pub const LATENCY_MAX: Duration = Duration::from_secs(60);

/// One checked workload. Everything in it is possible; nothing of it was tried.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// The row of the report: letters, digits, `-`, `_`, `.`.
    pub name: String,
    /// The wire protocol.
    pub protocol: &'static dyn Protocol,
    /// Open or closed loop.
    pub mode: Mode,
    /// Seed of every random choice.
    pub seed: u64,
    /// Generator cores, at least 1 and at most one per connection.
    pub shards: u32,
    /// Connections of all shards together.
    pub connections: u32,
    /// Requests under way per connection, at least 1; of HTTP/2 its streams.
    pub pipeline: u32,
    /// The p99 sojourn that a clean step must keep.
    pub slo_p99: Option<Duration>,
    /// Thresholds that decide the exit code of `weir lab load`, beside the latency target: see [`Self::gates`].
    pub thresholds: Vec<Threshold>,
    /// Sojourn above which a completed request is late, and delay from which it is not sent any more.
    pub late_limit: Duration,
    /// Whether replies are checked.
    pub integrity: bool,
    /// Each request has a connection of its own: made, used and ended. `connections` is then the most that are under way.
    pub churn: bool,
    /// The set of keys.
    pub keys: KeySpace,
    /// How large values are.
    pub payload: Payload,
    /// The mix, at least one; none where nothing is stored.
    pub commands: Vec<Command>,
    /// Path and host of HTTP and WebSocket requests.
    pub request: Request,
    /// Login and form of the requests of PostgreSQL.
    pub postgres: Postgres,
    /// Login and commands of MongoDB.
    pub mongodb: Mongodb,
    /// Prompts and replies of language models.
    pub ai: Ai,
    /// Requests for feature flags.
    pub flags: Flags,
    /// Channels to which the connections are subscribed, evenly: what one further connection of each shard publishes is
    /// heard by all of a channel, and each message that one of them hears is a request of its own. 0: a connection hears the
    /// replies to what it sent.
    pub channels: u32,
    /// In the order in which they run, at least one.
    pub phases: Vec<Phase>,
}

impl Scenario {
    /// The late limit for an objective: the longer of 1 s and 20 x the objective, within [`LATENCY_MAX`].
    #[must_use]
    pub fn late_limit_for(slo_p99: Option<Duration>) -> Duration {
        let of_slo = slo_p99.unwrap_or_default().saturating_mul(LATE_LIMIT_PER_SLO);
        of_slo.clamp(LATE_LIMIT_MIN, LATENCY_MAX)
    }

    /// The thresholds, and the latency target as one of them where none has the same bound.
    #[must_use]
    pub fn gates(&self) -> Vec<Threshold> {
        threshold::with_target(&self.thresholds, self.slo_p99)
    }

    /// Size or sizes of values in words. `any length`: a response may have any. `one row`, for example: the protocol decides.
    #[must_use]
    pub fn payload_words(&self) -> String {
        match (self.protocol.fixed_reply(self), self.request.has_any_length) {
            (Some(words), _) => words,
            (None, true) => "any length".to_owned(),
            (None, false) => self.payload.to_string(),
        }
    }

    /// Replies to what is sent once: 1, or the subscribers of a channel.
    #[must_use]
    pub fn copies(&self) -> u32 {
        self.connections.checked_div(self.channels).unwrap_or(1)
    }

    /// The scenario of one of its phases alone, with the connections of that one.
    #[must_use]
    pub fn alone(&self, phase: &Phase) -> Self {
        Self {
            connections: phase.connections.unwrap_or(self.connections),
            pipeline: phase.pipeline.unwrap_or(self.pipeline),
            phases: vec![Phase { connections: None, pipeline: None, ..phase.clone() }],
            ..self.clone()
        }
    }

    /// The target of a GET of HTTP: the path, or the first part of those of the lab's origin.
    #[must_use]
    pub fn path(&self) -> String {
        self.request.path.clone().unwrap_or_else(|| format!("/{}", self.payload.bytes_max()))
    }

    /// 16 hexadecimal digits, the same for the same scenario and, except by chance, for no other. Comments, spaces and keys
    /// that only say the default change nothing. Compare those of one build: another may know other keys.
    #[must_use]
    pub fn fingerprint(&self) -> String {
        // FNV-1a over the derived text, in which no field can be forgotten.
        let text = format!("{self:?}");
        let hash = text
            .bytes()
            .fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
        format!("{hash:016x}")
    }
}

/// Mode of the loop: what triggers the next request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Mode {
    /// The schedule.
    Open(Arrival),
    /// The reply to the one before: `connections x pipeline` requests are always under way.
    Closed,
}

/// `open` or `closed`.
impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Open(_) => "open",
            Self::Closed => "closed",
        })
    }
}

/// A part of a run with its own rate and its own record.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Phase {
    /// `phase-1` and so on by default.
    pub name: String,
    /// Offered load of all shards; `None` in a closed loop.
    pub rate: Option<Rate>,
    /// Load without measuring, first.
    pub warmup: Duration,
    /// The measured window.
    pub duration: Duration,
    /// In place of the scenario's, where each phase is a run of its own.
    pub connections: Option<u32>,
    /// The same of the requests under way per connection.
    pub pipeline: Option<u32>,
}

impl Phase {
    /// Whether it has connections, or requests under way, of its own.
    pub(crate) fn has_shape(&self) -> bool {
        self.connections.is_some() || self.pipeline.is_some()
    }
}

/// Which keys requests name.
#[derive(Clone, Debug, PartialEq)]
pub struct KeySpace {
    /// Keys, at least 1.
    pub count: u64,
    /// Before the number of the key.
    pub prefix: String,
    /// How often each is named.
    pub distribution: Distribution,
    /// Whether all are written before the run.
    pub preload: bool,
}

/// For protocols that store nothing: one key that no request names.
impl Default for KeySpace {
    fn default() -> Self {
        Self { count: 1, prefix: String::new(), distribution: Distribution::Uniform, preload: false }
    }
}

/// One size of values and how often it comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PayloadSize {
    /// Size of the value.
    pub bytes: usize,
    /// Share among the weights of all sizes.
    pub weight: u32,
}

/// Sizes of values: one, or a set with weights.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Payload(Vec<PayloadSize>);

impl Payload {
    /// `None` for an empty set, a size of 0 or beyond [`PAYLOAD_BYTES_MAX`], or a weight of 0.
    #[must_use]
    pub fn new(sizes: Vec<PayloadSize>) -> Option<Self> {
        let is_possible = |one: &PayloadSize| (1..=PAYLOAD_BYTES_MAX).contains(&one.bytes) && one.weight > 0;
        (!sizes.is_empty() && sizes.iter().all(is_possible)).then_some(Self(sizes))
    }

    /// All sizes.
    #[must_use]
    pub fn sizes(&self) -> &[PayloadSize] {
        &self.0
    }

    /// The largest size in bytes.
    #[must_use]
    pub fn bytes_max(&self) -> usize {
        self.0.iter().map(|one| one.bytes).max().unwrap_or(0)
    }
}

/// `64B`, or with weights `64B x 80, 1KiB x 20`.
impl fmt::Display for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let size = |one: &PayloadSize| ByteSize::new(one.bytes as u64).to_string();
        match &self.0[..] {
            [only] => f.write_str(&size(only)),
            all => {
                let parts: Vec<String> = all.iter().map(|one| format!("{} x {}", size(one), one.weight)).collect();
                f.write_str(&parts.join(", "))
            }
        }
    }
}

/// Path and host of HTTP and WebSocket requests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// The scenario names a path and no size of the payload: a body of any length is right, and only the status of a
    /// response is checked.
    pub has_any_length: bool,
    /// The path; `None`: those of the lab's own origin, `/N/WORD`, and `/` for a WebSocket.
    pub path: Option<String>,
    /// Value of Host, or of the authority.
    pub host: String,
}

/// How the connections of a scenario of PostgreSQL log in, and what they send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Postgres {
    /// Form of the requests.
    pub query: QueryForm,
    /// The statements of a request.
    pub script: Script,
    /// The user. Default `postgres`.
    pub user: String,
    /// The database. Default the name of the user.
    pub database: String,
    /// The password; `None`: the server lets the user in without one.
    pub password: Option<Secret>,
    /// Accounts from which each request draws one, from 1 on. Default 100,000: those of `pgbench -i` with scale 1.
    pub accounts: u32,
}

/// Rounds of PBKDF2 in a verifier of the lab: those of PostgreSQL.
const ITERATIONS: u32 = 4_096;
/// Salt of a verifier of the lab. It is the same in each run, so that the configurations of two runs are comparable.
const SALT: &[u8; 16] = b"weir lab, a salt";

impl Postgres {
    /// The SCRAM-SHA-256 verifier of the password, as `pg_authid` has it: gateways in front check the login by it. `None`: there
    /// is no password.
    #[must_use]
    pub fn verifier(&self) -> Option<Secret> {
        let password = self.password.as_ref()?;
        Some(ScramVerifier::from_password(Mechanism::ScramSha256, password, SALT, ITERATIONS).format())
    }
}

impl Default for Postgres {
    fn default() -> Self {
        Self {
            query: QueryForm::Simple,
            script: Script::SelectOnly,
            user: "postgres".to_owned(),
            database: "postgres".to_owned(),
            password: None,
            accounts: 100_000,
        }
    }
}

/// How a statement is sent: the words of `pgbench -M`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueryForm {
    /// As a text with its values, in one Query.
    Simple,
    /// Parsed and bound for each request.
    Extended,
    /// Parsed once for each connection, and bound for each request.
    Prepared,
}

impl QueryForm {
    /// Every one.
    pub const ALL: [Self; 3] = [Self::Simple, Self::Extended, Self::Prepared];

    /// Its word.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Simple => "simple",
            Self::Extended => "extended",
            Self::Prepared => "prepared",
        }
    }
}

/// The statements of a request: the words of `pgbench -b`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Script {
    /// The SELECT of one account.
    SelectOnly,
    /// A transaction of seven statements, each sent after the reply to the one before.
    TpcbLike,
}

impl Script {
    /// Every one.
    pub const ALL: [Self; 2] = [Self::SelectOnly, Self::TpcbLike];

    /// Its word.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::SelectOnly => "select-only",
            Self::TpcbLike => "tpcb-like",
        }
    }
}

/// One kind of request and how often it comes.
#[derive(Clone, Debug, PartialEq)]
pub struct Command {
    /// Kind of request.
    pub kind: CommandKind,
    /// Share among the weights of all commands.
    pub weight: u32,
}

/// The kind of a request.
#[derive(Clone, Debug, PartialEq)]
pub enum CommandKind {
    /// Read a key.
    Get,
    /// Write a key.
    Set,
    /// Read several keys at once.
    Mget {
        /// How many, at least 1.
        keys: u32,
    },
    /// Count, in keys of its own.
    Incr,
    /// Anything else with exactly one reply, which is not checked. The word `{key}` becomes a key of a space of its own,
    /// `{value}` a payload.
    Raw {
        /// Command and arguments.
        words: Vec<String>,
    },
}

impl CommandKind {
    /// Its name.
    #[must_use]
    pub fn word(&self) -> &str {
        match self {
            Self::Get => "GET",
            Self::Set => "SET",
            Self::Mget { .. } => "MGET",
            Self::Incr => "INCR",
            Self::Raw { words } => words.first().map_or("", String::as_str),
        }
    }

    /// Whether replies to it can be checked.
    #[must_use]
    pub fn is_checked(&self) -> bool {
        !matches!(self, Self::Raw { .. })
    }
}

#[cfg(test)]
mod tests;
