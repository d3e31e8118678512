//! Settings of an operator. Plain data, already checked.

use std::{path::PathBuf, sync::Arc, time::Duration};

pub use weir_mcp_session::federation::is_server_prefix;

pub use crate::agents::settings::{AGENT_IDLE_TIMEOUT, AgentProtocol, AgentServer, FEDERATED_SERVERS_MAX, Federation};
use weir_base::Secret;
use weir_engine::settings::{Address, TlsClientSettings};
use weir_spend::{Glob, keys::KeySettings, policy::CacheRule, prices::PriceTable, shared::ClaimSettings};

pub use crate::{
    attribution::{AGENT_FIELD, AttributionFields, CONVERSATION_FIELD, TAGS_FIELD, USER_FIELD},
    cache::settings::{BYTES_MAX as CACHE_BYTES_MAX, CacheSettings, RESPONSE_BYTES_MAX as CACHE_RESPONSE_BYTES_MAX},
    ring::SharedRing,
};

/// From the end of a request to the first event of a stream. Default 60 s; models that reason for long need more.
pub const FIRST_TOKEN_TIMEOUT: Duration = Duration::from_secs(60);

/// Longest pause between the pieces of a response. Default 60 s: providers send comments in longer ones.
pub const TOKEN_GAP_TIMEOUT: Duration = Duration::from_secs(60);

/// From the head of a request to the end of its response. Default 600 s, as the SDKs of OpenAI and Anthropic.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(600);

/// Bytes of a request body that has facts. Default 16 MiB: prompts with images. It is read whole before a provider gets it, charged
/// to `limits.buffered_bytes`.
pub const BODY_BYTES_MAX: u64 = 16 << 20;

/// Output tokens that are reserved for a request that names no limit, for each of its choices. Default 4,096.
pub const RESERVED_OUTPUT_TOKENS: u64 = 4_096;

/// How long the rest of a response is read whose client has left, for the usage that stands at its end. Default zero: the provider is left at
/// once, and stops generating. Such a read costs tokens that no client gets.
pub const DRAIN_ON_DISCONNECT: Duration = Duration::ZERO;

/// Bytes of such a rest. Default 8 MiB, as the longest response that is held.
pub const DRAIN_BYTES_MAX: u64 = 8 << 20;

/// Targets of one model. 8: as many attempts may follow each other.
pub const TARGETS_MAX: usize = weir_http::filter::ATTEMPTS_MAX as usize;

/// The most bytes of a prompt that decide on its target. 64 KiB: some 16,000 tokens, and 0.1 ms of work.
pub const STICKY_PREFIX_BYTES_MAX: u64 = 64 << 10;

/// Whether clients need a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyMode {
    /// They need none: every client that reaches the listener may use it.
    None,
    /// They need one of the listener's own.
    Required,
}

/// A listener.
#[derive(Clone, Debug)]
pub struct AiListenerSettings {
    /// Whether clients need a key.
    pub key_mode: KeyMode,
    /// The keys.
    pub keys: Arc<[KeySettings]>,
    /// The models, in order of the file. Empty: every model is at the first upstream, by the name that the client uses.
    pub models: Arc<[Model]>,
    /// Servers of MCP and agents of A2A.
    pub agents: Arc<[AgentServer]>,
    /// Names that lead to several of them.
    pub federations: Arc<[Federation]>,
    /// The prices.
    pub prices: Arc<PriceTable>,
    /// The upstreams that it may use: its own first, each once.
    pub upstreams: Vec<Arc<str>>,
    /// See [`FIRST_TOKEN_TIMEOUT`].
    pub first_token_timeout: Duration,
    /// See [`TOKEN_GAP_TIMEOUT`].
    pub token_gap_timeout: Duration,
    /// See [`REQUEST_TIMEOUT`].
    pub request_timeout: Duration,
    /// See [`DRAIN_ON_DISCONNECT`].
    pub drain_on_disconnect: Duration,
    /// See [`BODY_BYTES_MAX`].
    pub body_bytes_max: u64,
    /// See [`RESERVED_OUTPUT_TOKENS`].
    pub reserved_output_tokens: u64,
    /// The fields by which clients attribute requests.
    pub attribution: AttributionFields,
    /// Bytes of each body of a request and of its response that are remembered; at most [`RECENT_BODY_BYTES_MAX`]. Default 0: none, since bodies
    /// have prompts.
    pub recent_body_bytes_max: usize,
    /// Requests are refused that a page of a foreign site makes a browser send. For a listener of this machine without keys.
    pub refuses_web_pages: bool,
    /// Responses are cached by this rule, if clients need no key. With keys it is in their policies.
    pub cache: Option<CacheRule>,
    /// The snapshot of the keys with those that the admin API has issued, which all workers share.
    pub ring: SharedRing,
}

/// A model, or several by a pattern.
#[derive(Clone, Debug)]
pub struct Model {
    /// The names that clients use.
    pub name: Glob,
    /// How the first target of a request is chosen.
    pub balance: Balance,
    /// Requests whose prompts begin with the same bytes, so many, go first to the same target; at most [`STICKY_PREFIX_BYTES_MAX`]. `None`: the
    /// balance decides.
    pub sticky_prefix_bytes: Option<usize>,
    /// Where it is. At most [`TARGETS_MAX`].
    pub targets: Vec<Target>,
}

/// How the first of several targets is chosen. The others follow after a failure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Balance {
    /// By chance, in proportion to the weights; the others follow in their order.
    #[default]
    Weight,
    /// The one with the shortest time to the first token of late, as this worker sees it; the others follow from the next shortest.
    Latency,
    /// The one with the lowest price for the request; the others follow from the next lowest.
    Price,
}

impl Balance {
    /// The word in the file.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Weight => "weight",
            Self::Latency => "latency",
            Self::Price => "price",
        }
    }
}

/// A place of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The position of its upstream in [`AiListenerSettings::upstreams`].
    pub upstream: usize,
    /// The name that the provider uses. `None`: that of the client.
    pub model: Option<Box<str>>,
    /// Share of the first attempts by weight, relative to the sum. 0, with each balance: only after a failure.
    pub weight: u32,
}

/// The API of a provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProviderDialect {
    /// OpenAI's, which most servers speak.
    OpenAi,
    /// OpenAI's as Azure has it: the key in a field of its own.
    Azure,
    /// Anthropic's.
    Anthropic,
}

impl ProviderDialect {
    /// The path in front of all endpoints, if none is configured.
    pub const fn base_path(self) -> &'static str {
        match self {
            Self::OpenAi | Self::Anthropic => "/v1",
            Self::Azure => "/openai/v1",
        }
    }
}

/// The provider behind an upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Provider {
    /// Its API.
    pub dialect: ProviderDialect,
    /// Its key. `None`: it needs none, or that of the client goes there.
    pub api_key: Option<Secret>,
    /// The path in front of all endpoints, without a slash at its end.
    pub base_path: Box<str>,
    /// Its Host.
    pub host: Box<str>,
    /// It takes `stream_options.include_usage`, which OpenAI's API has: requests of streams get it.
    pub include_usage: bool,
    /// Its further abilities.
    pub abilities: Abilities,
}

impl Provider {
    /// A provider that has the defaults of its dialect, and no key.
    pub fn new(dialect: ProviderDialect, host: &str) -> Self {
        let base_path = dialect.base_path().into();
        Self {
            dialect,
            api_key: None,
            base_path,
            host: host.into(),
            include_usage: true,
            abilities: Abilities::default(),
        }
    }
}

impl Provider {
    /// The path of the list of its models, and the fields of a request for it that need no client: its key, and the version of the API.
    pub fn models_request(&self) -> (String, Vec<(&'static str, Secret)>) {
        let key = self.api_key.as_ref().map(|key| match self.dialect {
            ProviderDialect::OpenAi => ("authorization", Secret::new([b"Bearer ", key.expose()].concat())),
            ProviderDialect::Azure => ("api-key", key.clone()),
            ProviderDialect::Anthropic => ("x-api-key", key.clone()),
        });
        let version = (self.dialect == ProviderDialect::Anthropic)
            .then(|| ("anthropic-version", Secret::new(weir_ai_translate::ANTHROPIC_VERSION.as_bytes().to_vec())));
        (format!("{}/models", self.base_path), key.into_iter().chain(version).collect())
    }
}

/// Abilities of a provider that its dialect leaves open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Abilities {
    /// Output tokens of a chat that is translated for Anthropic's API and has no limit of its own: that API requires one. Default 8,192,
    /// which every model since Claude 3.5 has.
    pub default_max_tokens: u64,
    /// Its chats take `max_completion_tokens`. Without it, a limit that the gateway writes is `max_tokens`, which older servers know.
    /// Default true.
    pub max_completion_tokens: bool,
    /// Its messages take `output_config.effort`. Without it, a translation leaves out `reasoning_effort`. Default true.
    pub reasoning_effort: bool,
}

impl Default for Abilities {
    fn default() -> Self {
        let weir_ai_translate::Options { tokens_max, has_completion_limit, has_effort, .. } = Default::default();
        Self {
            default_max_tokens: tokens_max,
            max_completion_tokens: has_completion_limit,
            reasoning_effort: has_effort,
        }
    }
}

/// Requests that a process remembers for the admin API. Default 1,000; see [`RECENT_REQUESTS_MAX`].
pub const RECENT_REQUESTS: usize = 1_000;

/// The most of them. 10,000: with at most 1 KiB each on average, 10 MiB.
pub const RECENT_REQUESTS_MAX: usize = 10_000;

/// Memory of the process for their bodies, those of exchanges under way included. Default 16 MiB: the last 1,000 exchanges of 8 KiB each way.
/// Used by listeners with `recent_body_bytes_max` alone.
pub const RECENT_BODIES_BYTES_MAX: usize = 16 << 20;

/// The most of each body. 64 KiB: a long conversation with its tools.
pub const RECENT_BODY_BYTES_MAX: u64 = 64 << 10;

/// Budgets, usage and cache of the process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpendSettings {
    /// The directory of the journal, of the usage log and of the issued keys. `None`: budgets end with the process, there is no usage
    /// log, and no key can be issued.
    pub state: Option<PathBuf>,
    /// Bounds of the exact cache.
    pub cache: CacheSettings,
    /// See [`RECENT_REQUESTS`]; 0: none.
    pub recent_requests: usize,
    /// See [`RECENT_BODIES_BYTES_MAX`].
    pub recent_bodies_bytes_max: usize,
    /// The store that budgets are shared in with other gateways; only with `state`. `None`: they are those of this process.
    pub store: Option<StoreSettings>,
}

/// The keys of a store begin with it.
pub const STORE_PREFIX: &str = "weir:ai:";

/// The most endpoints of a store.
pub const STORE_ENDPOINTS_MAX: usize = 8;

/// A store of budgets that several gateways share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreSettings {
    /// One server, and replicas that may take its place: each session uses the first one that takes writes. 1 to [`STORE_ENDPOINTS_MAX`].
    pub endpoints: Vec<Address>,
    /// `None`: clear text.
    pub tls: Option<TlsClientSettings>,
    /// With a password; `None`: the default user.
    pub username: Option<String>,
    /// `None`: there is no login.
    pub password: Option<Secret>,
    /// See [`STORE_PREFIX`]. The same in all gateways.
    pub prefix: String,
    /// How budgets are claimed.
    pub claims: ClaimSettings,
}

impl Default for SpendSettings {
    fn default() -> Self {
        Self {
            state: None,
            cache: CacheSettings::default(),
            recent_requests: RECENT_REQUESTS,
            recent_bodies_bytes_max: RECENT_BODIES_BYTES_MAX,
            store: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_request_for_the_models_has_the_key_where_the_dialect_has_it() {
        let request = |dialect| {
            let of = Provider { api_key: Some(Secret::new(b"k".to_vec())), ..Provider::new(dialect, "h") };
            let (path, fields) = of.models_request();
            let shown = fields.iter().map(|(name, value)| format!("{name}: {}", value.expose_str().unwrap_or("?")));
            (path, shown.collect::<Vec<_>>())
        };
        let wanted =
            |path: &str, fields: &[&str]| (path.to_owned(), fields.iter().map(|one| (*one).to_owned()).collect());
        assert_eq!(request(ProviderDialect::OpenAi), wanted("/v1/models", &["authorization: Bearer k"]));
        assert_eq!(request(ProviderDialect::Azure), wanted("/openai/v1/models", &["api-key: k"]));
        let anthropic = ["x-api-key: k", "anthropic-version: 2023-06-01"];
        assert_eq!(request(ProviderDialect::Anthropic), wanted("/v1/models", &anthropic));
    }
}
