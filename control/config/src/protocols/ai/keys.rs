//! The keys that only AI listeners and their upstreams have.

use weir_ai::settings::{self as ai, Abilities, Balance, KeyMode, ProviderDialect, TARGETS_MAX};
use weir_base::{ByteSize, Net};
use weir_spend::policy::Mode;
use weir_spend::shared::{CLAIM_TTL, OnStoreFailure};

use crate::document::At;
use crate::numbers::Period;
use crate::secret::SecretRef;
use crate::section::section;
use crate::sections::{COUNT_MAX, DEADLINE_MIN, UpstreamTlsSection};
use crate::texts::{Choice, Endpoint, LongWord, Money, Name, UtcTime, Word};

/// Longest deadline.
const DEADLINE_MAX: Period = Period::secs(86_400);

/// Longest time for which a response serves: 30 days.
const CACHE_TTL_MAX: Period = Period::secs(30 * 86_400);

/// Most tokens of a budget: a thousand million million.
const TOKENS_MAX: u64 = 1_000_000_000_000_000;

const _: () = assert!(TARGETS_MAX == 8, "the reference says eight");

section! {
    /// Keys of a listener.
    pub(crate) struct ListenerKeys {
        /// Settings of AI listeners only.
        table ai: ListenerAiSection;
    }
}

section! {
    /// Keys of an upstream.
    pub(crate) struct UpstreamKeys {
        /// The provider behind an upstream of AI listeners. `[upstream.http]` has the settings of its connections.
        table ai: UpstreamAiSection;
    }
}

section! {
    /// Keys of the file.
    pub(crate) struct FileKeys {
        /// Budgets and usage of all AI listeners.
        table ai: AiSection;
    }
}

section! {
    /// Budgets and usage of all AI listeners. Keys of the same name in several listeners share their budgets.
    pub(crate) struct AiSection {
        /// Absolute path of a directory on a local disk, with the journal of budgets, `usage.log` with a line per request, and
        /// `keys.json` with the keys that the admin API issues. Each gateway needs a separate directory; a binary upgrade hands it
        /// over. If absent, budgets end with the process, there is no usage log, and no key can be issued.
        optional state: LongWord;
        /// Memory of the exact cache, for stored responses and responses that are being recorded. It does not count in
        /// `limits.buffered_bytes`. Applies only to keys and listeners with `cache_ttl`.
        default cache_bytes_max: ByteSize = ByteSize::new(ai::CACHE_BYTES_MAX) => ByteSize::kib(64)..=ByteSize::mib(65_536);
        /// Maximum body size of a cached response. A longer response passes and is not stored.
        default cache_response_bytes_max: ByteSize = ByteSize::new(ai::CACHE_RESPONSE_BYTES_MAX)
            => ByteSize::kib(1)..=ByteSize::mib(64);
        /// Number of requests that the process keeps for `/api/v1/ai/requests`, with the data of the usage log. Each takes at most
        /// 1 KiB on average. 0 keeps none.
        default recent_requests: u32 = ai::RECENT_REQUESTS as u32 => 0..=ai::RECENT_REQUESTS_MAX as u32;
        /// Memory for bodies of requests in `/api/v1/ai/requests`, including requests in flight. The oldest bodies make room. Each
        /// worker has an equal share. Applies only to listeners with `recent_body_bytes_max`.
        default recent_bodies_bytes_max: ByteSize = ByteSize::new(ai::RECENT_BODIES_BYTES_MAX as u64)
            => ByteSize::kib(64)..=ByteSize::mib(256);
        /// A Redis server in which several gateways share the budgets of their keys. If absent, budgets apply to this gateway
        /// alone.
        optional_table store: AiStoreSection;
    }
}

section! {
    /// A Redis server (5 or later, or Valkey; no Redis Cluster) in which several gateways share the budgets of keys of the same
    /// name. Requires `ai.state`, which holds the journal of the gateway and its name in the store. Rates and `concurrent_max`
    /// apply to each gateway separately.
    pub(crate) struct AiStoreSection {
        /// `host:port` or `unix:/path`. Use one address that always leads to the primary, or list a server and the replicas that
        /// may replace it. Each session uses the first server that accepts writes. At most one may accept writes: two would each
        /// give out the whole budget.
        required endpoints: Vec<At<Endpoint>>;
        /// User for the login at the store. If absent, `default`.
        optional user: Word;
        /// Password of `user`. If absent, the gateway does not log in.
        optional password: SecretRef;
        /// Prefix of all keys in the store. Must be the same in all gateways that share budgets.
        default prefix: Word = Word(ai::STORE_PREFIX.to_owned());
        /// Treatment of keys with a budget while the store does not reply: `claimed` spends the budget that the gateway has
        /// claimed, then responds with 503; `refuse` responds with 503 after 2 s; `local` counts alone after 2 s, so that each
        /// gateway may use the whole budget.
        default on_failure: OnStoreFailure = OnStoreFailure::Claimed;
        /// Time from the last call of a gateway until other gateways may use the unused part of its claims. The gateway itself
        /// stops at three quarters of this time. Must be the same in all gateways.
        default claim_ttl: Period = Period(CLAIM_TTL) => Period::secs(30)..=Period::secs(31 * 86_400);
        /// TLS to the store. If absent, the connection uses clear text. Connecting, handshake and login together may take 1 s, so
        /// `handshake_timeout` is at most 1 s.
        optional_table tls: UpstreamTlsSection;
    }
}

section! {
    /// Settings of AI listeners only: clients speak OpenAI's API, or Anthropic's at `/v1/messages`.
    pub(crate) struct ListenerAiSection {
        /// Whether clients need a gateway key: `required` or `none`. `none` is for a listener that only this machine reaches.
        default keys: KeyMode = KeyMode::None;
        /// Permit `keys = "none"` at an address that is not a loopback address or a Unix socket. Otherwise, a listener without keys
        /// refuses browser requests from pages of other sites: a foreign `Origin`, `Sec-Fetch-Site: cross-site`, or a Host that is
        /// no loopback name and no IP address.
        default allow_open: bool = false;
        /// Maximum time from the end of a request to the first event of a stream. Then the gateway tries another target, or
        /// responds with 504 `ttft_timeout`.
        default first_token_timeout: Period = Period(ai::FIRST_TOKEN_TIMEOUT) => DEADLINE_MIN..=DEADLINE_MAX;
        /// Maximum pause within a response. Then a stream ends with an error event `idle_timeout`.
        default token_gap_timeout: Period = Period(ai::TOKEN_GAP_TIMEOUT) => DEADLINE_MIN..=DEADLINE_MAX;
        /// Maximum time from the head of a request to the end of its response, including all attempts. Then the client gets 504
        /// `upstream_timeout`, or an error event.
        default request_timeout: Period = Period(ai::REQUEST_TIMEOUT) => DEADLINE_MIN..=DEADLINE_MAX;
        /// How long the gateway reads on after a client has disconnected, up to 8 MiB, to charge the usage at the end of the
        /// response instead of an estimate. Meanwhile the provider generates, and bills the output. `0s` disconnects from the
        /// provider at once.
        default drain_on_disconnect: Period = Period(ai::DRAIN_ON_DISCONNECT) => Period::secs(0)..=Period::secs(600);
        /// Maximum size of a request body that the gateway reads (chats, responses, completions, embeddings, messages). A longer
        /// body gets 413. Bodies count in `limits.buffered_bytes`, and take at most half of it.
        default body_bytes_max: ByteSize = ByteSize::new(ai::BODY_BYTES_MAX) => ByteSize::kib(1)..=ByteSize::mib(1_024);
        /// Output tokens that a budget reserves for each choice (`n`) of a request, if neither the request nor its key sets an
        /// output limit.
        default reserved_output_tokens: u32 = ai::RESERVED_OUTPUT_TOKENS as u32 => 1..=COUNT_MAX;
        /// How long a cached response serves equal requests. Only for a listener without keys; otherwise each key has its own
        /// `cache_ttl`. If absent, nothing is cached.
        optional cache_ttl: Period => Period::secs(1)..=CACHE_TTL_MAX;
        /// Cache also requests whose responses are meant to vary: `temperature` above 0, `n` or `best_of` above 1.
        default cache_sampled: bool = false;
        /// Bytes of each request body and response body that the process keeps for `/api/v1/ai/requests?bodies=true`. Bodies
        /// contain prompts and responses; known forms of keys and passwords in them are replaced. `0B` keeps no bodies.
        default recent_body_bytes_max: ByteSize = ByteSize::new(0)
            => ByteSize::new(0)..=ByteSize::new(ai::RECENT_BODY_BYTES_MAX);
        /// Version of the prices, written to the usage log.
        default price_version: u32 = 1 => 0..=COUNT_MAX;
        /// Header fields by which clients attribute requests.
        table attribution: AttributionSection;
        /// Keys of clients.
        tables key: KeySection;
        /// Models by the names that clients use. If there are any, other names get 404, and the list of models has only these
        /// names. If there are none, every name goes to `upstream` unchanged.
        tables model: ModelSection;
        /// MCP servers, at `/mcp/<name>`.
        tables mcp: McpSection;
        /// Several MCP servers joined into one, at `/mcp/<name>`.
        tables mcp_federation: McpFederationSection;
        /// A2A agents, at `/a2a/<name>`.
        tables a2a: A2aSection;
        /// Prices of tokens, for budgets in money and the usage log. The most specific matching table applies.
        tables price: PriceSection;
    }
}

section! {
    /// Header fields by which clients attribute requests, for `usage.log` and `/api/v1/ai/requests`. A value has at most 128 bytes.
    pub(crate) struct AttributionSection {
        /// Header field with the end user. It overrides `user`, `safety_identifier` and `metadata.user_id` of the body.
        default user: Word = Word(ai::USER_FIELD.to_owned());
        /// Header field with the agent that makes the request.
        default agent: Word = Word(ai::AGENT_FIELD.to_owned());
        /// Header field with the conversation. It overrides `conversation` of the body.
        default conversation: Word = Word(ai::CONVERSATION_FIELD.to_owned());
        /// Header field with further words, separated by commas.
        default tags: Word = Word(ai::TAGS_FIELD.to_owned());
        /// Forward these fields to providers, MCP servers (except those of a federation) and A2A agents, such as another gateway
        /// that reads them. Otherwise they are removed.
        default forward: bool = false;
    }
}

section! {
    /// A gateway key of clients, and its policy. The text of the key is stored nowhere.
    pub(crate) struct KeySection [name = name] {
        /// Name of the key, unique in the listener, also in the usage log. Budgets belong to the name: a new `sha256` keeps them.
        required name: Name;
        /// SHA-256 of the key in hexadecimal, as `weir keys new NAME --offline` prints it. A key is `sk-weir-` and 43 letters,
        /// digits, `-` or `_`.
        required sha256: Word;
        /// SHA-256 of the previous key, which is valid until `old_until`.
        optional old_sha256: Word;
        /// Time from which the previous key gets 401. Requires `old_sha256`.
        optional old_until: UtcTime;
        /// If `false`, requests with the key get 401.
        default enabled: bool = true;
        /// Time from which requests with the key get 401. If absent, the key does not expire.
        optional expires: UtcTime;
        /// Models that the key may use, by the names that clients use. `*` matches any text, `?` one character. If absent, all
        /// models.
        optional models: Vec<At<Word>>;
        /// Models that the key may not use, even if they are in `models`.
        optional models_denied: Vec<At<Word>>;
        /// Tools that requests may declare; a tool that the provider itself runs has its type as name, such as `web_search`. If
        /// absent, all tools.
        optional tools: Vec<At<Word>>;
        /// Maximum number of tools in a request. If absent, there is no limit.
        optional tools_max: u32 => 0..=COUNT_MAX;
        /// Tools of `[[listener.ai.mcp]]` that the key may call, as `server/tool`. `*` matches any text, `?` one character. Lists
        /// omit other tools, and requests to a server without a listed tool get 404. If absent, all tools.
        optional mcp_tools: Vec<At<Word>>;
        /// Agents of `[[listener.ai.a2a]]` that the key may reach, by name. `*` matches any text, `?` one character. If absent, all
        /// agents.
        optional a2a_agents: Vec<At<Word>>;
        /// Maximum number of tool calls and messages to agents per minute; further calls get 429. `requests_per_minute` includes
        /// them. If absent, there is no limit.
        optional tool_calls_per_minute: u32 => 1..=COUNT_MAX;
        /// Maximum size of messages, instructions and tools together. If absent, only `body_bytes_max` limits them.
        optional prompt_bytes_max: ByteSize => ByteSize::new(1)..=ByteSize::mib(1_024);
        /// Maximum number of output tokens of each choice. A request with a higher limit, or none, gets this limit. If absent,
        /// there is no limit.
        optional output_tokens_max: u32 => 1..=COUNT_MAX;
        /// Networks of the clients that may use the key; other clients get 403. If absent, all networks.
        optional sources: Vec<At<Net>>;
        /// Maximum number of requests per minute; further requests get 429 with `retry-after`. If absent, there is no limit.
        optional requests_per_minute: u32 => 1..=COUNT_MAX;
        /// Maximum number of tokens per minute, estimated when a request begins and corrected when it ends. If absent, there is no
        /// limit.
        optional tokens_per_minute: u64 => 1..=TOKENS_MAX;
        /// Maximum number of requests at the same time, each to the end of its response. If absent, there is no limit.
        optional concurrent_max: u32 => 1..=COUNT_MAX;
        /// Tokens per day (UTC). A request whose estimated maximum does not fit gets 429 `insufficient_quota`. If absent, there is
        /// no limit.
        optional day_tokens: u64 => 1..=TOKENS_MAX;
        /// Tokens per month (UTC), like `day_tokens`.
        optional month_tokens: u64 => 1..=TOKENS_MAX;
        /// Money per day (UTC), like `day_tokens`. Models without a price are then refused.
        optional day_money: Money;
        /// Money per month (UTC), like `day_money`.
        optional month_money: Money;
        /// How long a cached response serves equal requests of this key. If absent, nothing is cached.
        optional cache_ttl: Period => Period::secs(1)..=CACHE_TTL_MAX;
        /// Cache also requests whose responses are meant to vary: `temperature` above 0, `n` or `best_of` above 1.
        default cache_sampled: bool = false;
        /// Treatment of a request that breaks the policy of the key: `enforce` refuses it, `observe` serves and counts it
        /// (`weir_ai_refusals_total`).
        default mode: Mode = Mode::Enforce;
    }
}

section! {
    /// A model, or all models whose names match a pattern.
    pub(crate) struct ModelSection [name = name] {
        /// The name that clients use. `*` matches any text, `?` one character. The first table that matches applies.
        required name: Word;
        /// How the first target is chosen: at random in proportion to the weights (`weight`), by the shortest recent time to the
        /// first token (`latency`, measured by each worker), or by the lowest price for the request (`price`, which needs
        /// `[[listener.ai.price]]`). Requests with a `prompt_cache_key`, and, with `keys = "none"`, requests whose response the
        /// provider stores, begin at the same target each time, chosen by weight. A request that continues a response goes to the
        /// target that made it. If that target is not known, and for `conversation`, the gateway tries all targets, first the one
        /// that the key has by weight.
        default balance: Balance = Balance::Weight;
        /// Send requests whose prompts begin with this many equal bytes to the same target first, chosen by weight, so that the
        /// provider has the beginning in its cache. The prompt is tools, then instructions, then messages. Shorter prompts use
        /// `balance`, and a `prompt_cache_key` takes precedence. If absent, prompts do not affect the choice.
        optional sticky_prefix_bytes: ByteSize => ByteSize::new(64)..=ByteSize::new(ai::STICKY_PREFIX_BYTES_MAX);
        /// The targets of the model, 1 to 8.
        tables target: TargetSection;
    }
}

section! {
    /// A provider of the model. If an attempt fails (no connection, a timeout, 408, 409, 429, 5xx), the gateway retries on the next
    /// target, until the client has a part of the response. `retry_budget_percent` of `[upstream.http]` limits retries.
    pub(crate) struct TargetSection {
        /// Upstream of the target. Requests for an API endpoint that the `dialect` of the upstream does not have skip the target,
        /// unless the gateway can translate them.
        required upstream: Name;
        /// Name of the model at the provider. If absent, the name that the client uses.
        optional model: Word;
        /// Share of the first attempts with `balance = "weight"`, relative to the other targets. With any `balance`, a target of
        /// weight 0 is used only after a failure.
        default weight: u32 = 1 => 0..=COUNT_MAX;
    }
}

section! {
    /// An MCP server over streamable HTTP, at `/mcp/<name>`. A session stays at one endpoint.
    pub(crate) struct McpSection [name = name] {
        /// Name of the server in the path, in `mcp_tools` and in metrics. Must be unique.
        required name: Name;
        /// Upstream of the server. The gateway sends `api_key` of `[upstream.ai]` as `Authorization: Bearer`.
        required upstream: Name;
        /// Path at the server.
        default path: LongWord = LongWord("/mcp".to_owned());
        /// Maximum pause within a response. Then the gateway aborts the response.
        default idle_timeout: Period = Period(ai::AGENT_IDLE_TIMEOUT) => DEADLINE_MIN..=DEADLINE_MAX;
    }
}

section! {
    /// Several MCP servers joined into one, at `/mcp/<name>`. Tools and prompts have the names `<server>__<own name>`.
    pub(crate) struct McpFederationSection [name = name] {
        /// Name of the federation in the path and in metrics. Must be unique, also among `[[listener.ai.mcp]]`.
        required name: Name;
        /// Names of 1 to 16 `[[listener.ai.mcp]]`. Lists follow this order. `mcp_tools` of keys uses the names of the servers.
        required servers: Vec<At<Name>>;
    }
}

section! {
    /// An agent that speaks A2A over JSON-RPC, at `/a2a/<name>`. Its card is at `/a2a/<name>/.well-known/agent-card.json`,
    /// unchanged.
    pub(crate) struct A2aSection [name = name] {
        /// Name of the agent in the path, in `a2a_agents` and in metrics. Must be unique.
        required name: Name;
        /// Upstream of the agent. The gateway sends `api_key` of `[upstream.ai]` as `Authorization: Bearer`.
        required upstream: Name;
        /// Path at the agent. The path of the card is below it.
        default path: LongWord = LongWord("/".to_owned());
        /// Maximum pause within a response. Then the gateway aborts the response.
        default idle_timeout: Period = Period(ai::AGENT_IDLE_TIMEOUT) => DEADLINE_MIN..=DEADLINE_MAX;
    }
}

section! {
    /// Prices per million tokens of a model, or of all models whose names match a pattern.
    pub(crate) struct PriceSection {
        /// Name of the model at its provider. `*` matches any text, `?` one character.
        required models: Word;
        /// Service tier of the request (`service_tier`). If absent, each tier without prices of its own.
        optional tier: Word;
        /// Price of prompt tokens.
        required input: Money;
        /// Price of prompt tokens from the provider's cache. If absent, `input` applies.
        optional cached_input: Money;
        /// Price of prompt tokens that are written to the provider's cache. If absent, `input` applies.
        optional cache_write: Money;
        /// Price of audio tokens of the prompt. If absent, `input` applies.
        optional audio_input: Money;
        /// Price of output tokens.
        required output: Money;
        /// Price of reasoning tokens. If absent, `output` applies.
        optional reasoning: Money;
        /// Price of audio tokens of the output. If absent, `output` applies.
        optional audio_output: Money;
    }
}

section! {
    /// The provider behind an upstream of AI listeners. `[upstream.http]` has the settings of its connections.
    pub(crate) struct UpstreamAiSection {
        /// API of the provider: `openai` (most servers, such as vLLM), `azure` (OpenAI's API with the key in `api-key`) or
        /// `anthropic`. Chats and messages are translated for clients of the other API.
        default dialect: ProviderDialect = ProviderDialect::OpenAi;
        /// API key of the provider. It replaces the key of the client. If absent, the provider gets the client's own key with `keys
        /// = "none"`, and no key with `keys = "required"`.
        optional api_key: SecretRef;
        /// Path in front of the API endpoints. If absent, `/openai/v1` for `azure`, and `/v1` otherwise.
        optional base_path: LongWord;
        /// Request the usage of streams (`stream_options.include_usage`) if the client does not. Set `false` for a server that
        /// refuses the option; the usage of its streams is then estimated.
        default include_usage: bool = true;
        /// Output limit of a chat without a limit that is translated for `anthropic`, whose API requires a limit. Claude 3 accepts
        /// at most 4096.
        default default_max_tokens: u32 = Abilities::default().default_max_tokens as u32 => 1..=COUNT_MAX;
        /// Whether chats at the provider accept `max_completion_tokens`. Set `false` for older servers: the gateway then writes
        /// limits as `max_tokens`.
        default max_completion_tokens: bool = true;
        /// Whether messages at the provider accept `output_config.effort`, to which `reasoning_effort` is translated. Set `false`
        /// for Claude models that refuse it: it is then left out, and named in `x-weir-translation-loss`.
        default reasoning_effort: bool = true;
        /// Check the health of endpoints by `GET /models` with `api_key` instead of `health_path`. A status from 200 to 399 is
        /// healthy. Providers count such requests: set `interval` of `[upstream.health]` to a value such as `"30s"`.
        default health_models: bool = false;
    }
}

impl Choice for KeyMode {
    const WORDS: &'static [(&'static str, Self)] = &[("none", Self::None), ("required", Self::Required)];
}

impl Choice for Balance {
    const WORDS: &'static [(&'static str, Self)] =
        &[("weight", Self::Weight), ("latency", Self::Latency), ("price", Self::Price)];
}

impl Choice for OnStoreFailure {
    const WORDS: &'static [(&'static str, Self)] =
        &[("claimed", Self::Claimed), ("refuse", Self::Refuse), ("local", Self::Local)];
}

impl Choice for Mode {
    const WORDS: &'static [(&'static str, Self)] = &[("enforce", Self::Enforce), ("observe", Self::Observe)];
}

impl Choice for ProviderDialect {
    const WORDS: &'static [(&'static str, Self)] =
        &[("openai", Self::OpenAi), ("azure", Self::Azure), ("anthropic", Self::Anthropic)];
}
