//! Settings of an operator. Plain data, already checked.

use std::{
    path::PathBuf,
    sync::{Arc, OnceLock},
    time::Duration,
};

pub use crate::agents::settings::{AGENT_IDLE_TIMEOUT, AgentProtocol, AgentServer};
use weir_base::Secret;
use weir_spend::{
    Glob,
    budget::Ledger,
    keys::{KeyRing, KeySettings},
    prices::PriceTable,
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

/// Output tokens that are reserved for a request that names no limit, for each of its answers. Default 4,096.
pub const RESERVED_OUTPUT_TOKENS: u64 = 4_096;

/// Targets of one model. 8: as many attempts may follow each other.
pub const TARGETS_MAX: usize = weir_http::filter::ATTEMPTS_MAX as usize;

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
    /// See [`BODY_BYTES_MAX`].
    pub body_bytes_max: u64,
    /// See [`RESERVED_OUTPUT_TOKENS`].
    pub reserved_output_tokens: u64,
    /// Requests are refused that a page of a foreign site makes a browser send. For a listener of this machine without keys.
    pub refuses_web_pages: bool,
    /// The snapshot of the keys, which all workers share.
    pub ring: SharedRing,
}

/// The snapshot of the keys. The first worker that needs it makes it.
#[derive(Clone, Debug, Default)]
pub struct SharedRing(Arc<OnceLock<Arc<KeyRing>>>);

impl AiListenerSettings {
    /// The keys with their accounts in this ledger, which is that of the process.
    pub(crate) fn ring(&self, ledger: &Ledger) -> Arc<KeyRing> {
        let make = || {
            let made = KeyRing::new(&self.keys, &[], ledger);
            // The configuration has checked them. Without a ring each key is unknown.
            made.inspect_err(|error| tracing::error!(%error, "the keys cannot be used")).unwrap_or_default().into()
        };
        self.ring.0.get_or_init(make).clone()
    }
}

/// A model, or several by a pattern.
#[derive(Clone, Debug)]
pub struct Model {
    /// The names that clients use.
    pub name: Glob,
    /// Where it is; the first is chosen by weight, and the others follow in their order. At most [`TARGETS_MAX`].
    pub targets: Vec<Target>,
}

/// A place of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The position of its upstream in [`AiListenerSettings::upstreams`].
    pub upstream: usize,
    /// The name that the provider uses. `None`: that of the client.
    pub model: Option<Box<str>>,
    /// Share of the first attempts, relative to the sum. 0: only after a failure.
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
}

/// Budgets and usage of the process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SpendSettings {
    /// The directory of the journal and of the usage log. `None`: budgets end with the process, and there is no usage log.
    pub state: Option<PathBuf>,
}
