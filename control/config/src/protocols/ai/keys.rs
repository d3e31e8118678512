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
        /// The provider behind an upstream of AI listeners. Its connections are those of `[upstream.http]`.
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
        /// Directory of the journal of budgets, of `usage.log` with a line per request, and of `keys.json` with the keys that the admin API
        /// issues; an absolute path, on a local disk. Each gateway needs one of its own; a binary upgrade hands it over. Absent: budgets
        /// end with the process, there is no usage log, and no key can be issued.
        optional state: LongWord;
        /// Memory of the exact cache, stored responses and those that are being recorded together. It is beside `limits.buffered_bytes`.
        /// Used by keys and listeners with `cache_ttl` alone.
        default cache_bytes_max: ByteSize = ByteSize::new(ai::CACHE_BYTES_MAX) => ByteSize::kib(64)..=ByteSize::mib(65_536);
        /// Bytes of the body of one cached response; a longer one passes and is not stored.
        default cache_response_bytes_max: ByteSize = ByteSize::new(ai::CACHE_RESPONSE_BYTES_MAX)
            => ByteSize::kib(1)..=ByteSize::mib(64);
        /// Requests that the process remembers for `/api/v1/ai/requests`, with what the usage log says of them; at most 1 KiB each on
        /// average. 0: none.
        default recent_requests: u32 = ai::RECENT_REQUESTS as u32 => 0..=ai::RECENT_REQUESTS_MAX as u32;
        /// Memory for the bodies of these requests, those of exchanges under way included; the oldest bodies make room. Each worker has an
        /// equal share. Used by listeners with `recent_body_bytes_max` alone.
        default recent_bodies_bytes_max: ByteSize = ByteSize::new(ai::RECENT_BODIES_BYTES_MAX as u64)
            => ByteSize::kib(64)..=ByteSize::mib(256);
        /// A Redis server in which several gateways share the budgets of their keys. Absent: the budgets are those of this gateway.
        optional_table store: AiStoreSection;
    }
}

section! {
    /// A Redis server (5 or later, or Valkey; no Redis Cluster) in which several gateways share the budgets of keys of the same name. It needs
    /// `ai.state`, where each gateway has its journal and its name in the store. Rates and `concurrent_max` stay those of each gateway.
    pub(crate) struct AiStoreSection {
        /// `host:port` or `unix:/path`: best one address, which follows the server. Or one server and replicas that may take its place; each
        /// session uses the first one that takes writes. At most one of them may: two would each give out the whole budget.
        required endpoints: Vec<At<Endpoint>>;
        /// User to log in as. Absent: `default`.
        optional user: Word;
        /// Its password. Absent: no login.
        optional password: SecretRef;
        /// All keys in the store begin with it. The same in all gateways that share their budgets.
        default prefix: Word = Word(ai::STORE_PREFIX.to_owned());
        /// Treatment of keys with a budget while the store does not answer: `claimed` spends what the gateway has claimed, and then refuses
        /// (503); `refuse` refuses after 2 s; `local` counts alone after 2 s, so that each gateway may use the whole budget.
        default on_failure: OnStoreFailure = OnStoreFailure::Claimed;
        /// From the last call of a gateway to the end of its claims: then others may use what it had not used. The gateway stops
        /// at three quarters of it. The same in all gateways.
        default claim_ttl: Period = Period(CLAIM_TTL) => Period::secs(30)..=Period::secs(31 * 86_400);
        /// TLS towards the store. Absent: clear text. A connection with its handshake and login has 1 s, so `handshake_timeout` is at most
        /// that.
        optional_table tls: UpstreamTlsSection;
    }
}

section! {
    /// Settings of AI listeners only: clients speak OpenAI's API, or Anthropic's at `/v1/messages`.
    pub(crate) struct ListenerAiSection {
        /// Whether clients need a key of `[[listener.ai.key]]`: `required`, or `none`, for a listener that only this machine reaches.
        default keys: KeyMode = KeyMode::None;
        /// Permit `keys = "none"` at an address that is not a loopback address or a Unix socket. Without it, a listener without keys
        /// refuses requests that a browser sends for pages of other sites: a foreign `Origin`, or a Host that is no loopback name or
        /// address.
        default allow_open: bool = false;
        /// From the end of a request to the first event of a stream. Another target of the model may follow, else 504 `ttft_timeout`.
        default first_token_timeout: Period = Period(ai::FIRST_TOKEN_TIMEOUT) => DEADLINE_MIN..=DEADLINE_MAX;
        /// Longest pause within a response; then a stream ends with an error event `idle_timeout`.
        default token_gap_timeout: Period = Period(ai::TOKEN_GAP_TIMEOUT) => DEADLINE_MIN..=DEADLINE_MAX;
        /// From the head of a request to the end of its response, all attempts included; then 504 `upstream_timeout`, or an error event.
        default request_timeout: Period = Period(ai::REQUEST_TIMEOUT) => DEADLINE_MIN..=DEADLINE_MAX;
        /// How long a response is read on after its client has left, at most 8 MiB, so that the usage at its end is charged and not an estimate.
        /// The provider goes on generating, and bills that. `0s`: the provider is left at once.
        default drain_on_disconnect: Period = Period(ai::DRAIN_ON_DISCONNECT) => Period::secs(0)..=Period::secs(600);
        /// Bytes of a body that the gateway reads (chats, responses, completions, embeddings, messages); a longer one gets 413. It is held
        /// in `limits.buffered_bytes`, of which bodies take at most half.
        default body_bytes_max: ByteSize = ByteSize::new(ai::BODY_BYTES_MAX) => ByteSize::kib(1)..=ByteSize::mib(1_024);
        /// Output tokens that a budget reserves for each answer of a request that names no limit and whose key has none.
        default reserved_output_tokens: u32 = ai::RESERVED_OUTPUT_TOKENS as u32 => 1..=COUNT_MAX;
        /// Time for which a response serves equal requests, at a listener without keys; with keys it is a key of theirs. Absent: nothing
        /// is cached.
        optional cache_ttl: Period => Period::secs(1)..=CACHE_TTL_MAX;
        /// Cache also requests that want different answers: with `temperature` above 0, `n` or `best_of` above 1.
        default cache_sampled: bool = false;
        /// Bytes of the body of each request, and of its response, that the process remembers for `/api/v1/ai/requests?bodies=true`. They have
        /// prompts and answers; known forms of keys and passwords in them are replaced. `0B`: none.
        default recent_body_bytes_max: ByteSize = ByteSize::new(0)
            => ByteSize::new(0)..=ByteSize::new(ai::RECENT_BODY_BYTES_MAX);
        /// Version of the prices, for the usage log.
        default price_version: u32 = 1 => 0..=COUNT_MAX;
        /// Header fields by which clients attribute requests.
        table attribution: AttributionSection;
        /// Keys of clients.
        tables key: KeySection;
        /// Models by the names that clients use. With one or more, other names get 404, and the list of models has these; without any,
        /// every name goes to `upstream` as it is.
        tables model: ModelSection;
        /// Servers of MCP, at `/mcp/<name>`.
        tables mcp: McpSection;
        /// Several servers of MCP as one, at `/mcp/<name>`.
        tables mcp_federation: McpFederationSection;
        /// Agents of A2A, at `/a2a/<name>`.
        tables a2a: A2aSection;
        /// Prices of tokens, for budgets in money and the usage log. The most specific row counts.
        tables price: PriceSection;
    }
}

section! {
    /// Header fields by which clients attribute requests, for `usage.log` and `/api/v1/ai/requests`. A text has up to 128 bytes.
    pub(crate) struct AttributionSection {
        /// The end user; before `user`, `safety_identifier` and `metadata.user_id` of the body.
        default user: Word = Word(ai::USER_FIELD.to_owned());
        /// The agent that makes the request.
        default agent: Word = Word(ai::AGENT_FIELD.to_owned());
        /// The conversation; before `conversation` of the body.
        default conversation: Word = Word(ai::CONVERSATION_FIELD.to_owned());
        /// Further words, separated by commas.
        default tags: Word = Word(ai::TAGS_FIELD.to_owned());
        /// Pass these fields on to providers, servers (except those of a federation) and agents, such as another gateway that reads them.
        /// Otherwise they are removed.
        default forward: bool = false;
    }
}

section! {
    /// A key of clients, and its policy. Its text is stored nowhere.
    pub(crate) struct KeySection [name = name] {
        /// Unique in the listener; in the usage log, and the name of its budgets: another `sha256` keeps them.
        required name: Name;
        /// SHA-256 of the key in hexadecimal, as `weir keys new NAME --offline` prints it. A key is `sk-weir-` and 43 letters, digits, `-`
        /// or `_`.
        required sha256: Word;
        /// SHA-256 of the key before, which is good until `old_until`.
        optional old_sha256: Word;
        /// From this time on the key before gets 401; together with `old_sha256`.
        optional old_until: UtcTime;
        /// `false`: its requests get 401.
        default enabled: bool = true;
        /// From this time on its requests get 401. Absent: never.
        optional expires: UtcTime;
        /// Models that it may use, by the names of clients; `*` is any text, `?` a character. Absent: all.
        optional models: Vec<At<Word>>;
        /// Models that it may not use, even if they are in `models`.
        optional models_denied: Vec<At<Word>>;
        /// Tools that requests may declare; those that a provider runs itself by their type, such as `web_search`. Absent: all.
        optional tools: Vec<At<Word>>;
        /// The most tools of a request. Absent: any number.
        optional tools_max: u32 => 0..=COUNT_MAX;
        /// Tools of `[[listener.ai.mcp]]` that it may call, as `server/tool`; `*` is any text, `?` a character. Lists lose the others, and
        /// a server without a tool in the list gets 404. Absent: all.
        optional mcp_tools: Vec<At<Word>>;
        /// Agents of `[[listener.ai.a2a]]` that it may reach, by name; patterns as above. Absent: all.
        optional a2a_agents: Vec<At<Word>>;
        /// Calls of tools and messages to agents per minute; then 429. They count as requests, too. Absent: any number.
        optional tool_calls_per_minute: u32 => 1..=COUNT_MAX;
        /// The most bytes of messages, instructions and tools. Absent: as `body_bytes_max`.
        optional prompt_bytes_max: ByteSize => ByteSize::new(1)..=ByteSize::mib(1_024);
        /// The most output tokens of each answer: a higher limit of a request is lowered, and one without a limit gets it. Absent: none.
        optional output_tokens_max: u32 => 1..=COUNT_MAX;
        /// Networks of its clients; others get 403. Absent: all.
        optional sources: Vec<At<Net>>;
        /// Requests per minute; then 429 with `retry-after`. Absent: any number.
        optional requests_per_minute: u32 => 1..=COUNT_MAX;
        /// Tokens per minute, estimated at the beginning and corrected at the end. Absent: any number.
        optional tokens_per_minute: u64 => 1..=TOKENS_MAX;
        /// Requests at once, to the end of their responses. Absent: any number.
        optional concurrent_max: u32 => 1..=COUNT_MAX;
        /// Tokens per day (UTC); a request whose most does not fit gets 429 `insufficient_quota`. Absent: no limit. The same of the next
        /// three.
        optional day_tokens: u64 => 1..=TOKENS_MAX;
        /// Tokens per month (UTC).
        optional month_tokens: u64 => 1..=TOKENS_MAX;
        /// Money per day. Models without a price are refused then.
        optional day_money: Money;
        /// Money per month.
        optional month_money: Money;
        /// Time for which a response serves equal requests of this key. Absent: nothing is cached.
        optional cache_ttl: Period => Period::secs(1)..=CACHE_TTL_MAX;
        /// Cache also requests that want different answers: with `temperature` above 0, `n` or `best_of` above 1.
        default cache_sampled: bool = false;
        /// Treatment of a request that breaks its policy: `enforce` refuses it, `observe` only counts it (`weir_ai_refusals_total`).
        default mode: Mode = Mode::Enforce;
    }
}

section! {
    /// A model, or all that a pattern fits.
    pub(crate) struct ModelSection [name = name] {
        /// The name that clients use; `*` is any text, `?` a character. The first table that fits counts.
        required name: Word;
        /// How the first target is chosen: by chance in proportion to their weights (`weight`), by the shortest time to the first token
        /// of late (`latency`, each worker measures its own), or by the lowest price for the request (`price`, which needs
        /// `[[listener.ai.price]]`). A `prompt_cache_key`, and responses that the provider keeps, go by weight in any case.
        default balance: Balance = Balance::Weight;
        /// Send requests whose prompts begin with the same bytes, so many, first to the same target, by weight, so that they find the
        /// beginning in its provider's cache: tools, instructions, messages, in this order. A shorter prompt goes by `balance`, and a
        /// `prompt_cache_key` counts before. Absent: prompts decide nothing.
        optional sticky_prefix_bytes: ByteSize => ByteSize::new(64)..=ByteSize::new(ai::STICKY_PREFIX_BYTES_MAX);
        /// Where it is, up to eight; one at the least.
        tables target: TargetSection;
    }
}

section! {
    /// A place of a model. If one fails (no connection, a deadline, 408, 409, 429, 5xx), the next is tried, until the client has a part
    /// of a response, within `retry_budget_percent` of `[upstream.http]`.
    pub(crate) struct TargetSection {
        /// The upstream. Requests whose endpoint its `dialect` does not have leave it out.
        required upstream: Name;
        /// The name of the model there. Absent: that of the client.
        optional model: Word;
        /// Share of the first attempts with `balance = "weight"`, relative to the other targets. 0, with each balance: only after a
        /// failure.
        default weight: u32 = 1 => 0..=COUNT_MAX;
    }
}

section! {
    /// A server of MCP over streamable HTTP, at `/mcp/<name>`. Sessions are kept to their endpoint.
    pub(crate) struct McpSection [name = name] {
        /// Its name in the path, in `mcp_tools` and in metrics; unique.
        required name: Name;
        /// Its upstream. `api_key` of `[upstream.ai]` goes there as `Authorization: Bearer`.
        required upstream: Name;
        /// Its path there.
        default path: LongWord = LongWord("/mcp".to_owned());
        /// Longest pause within a response; then the response breaks off.
        default idle_timeout: Period = Period(ai::AGENT_IDLE_TIMEOUT) => DEADLINE_MIN..=DEADLINE_MAX;
    }
}

section! {
    /// Several servers of MCP as one, at `/mcp/<name>`: their tools and prompts have the names `<server>__<own name>`.
    pub(crate) struct McpFederationSection [name = name] {
        /// Its name in the path and in metrics; none of `[[listener.ai.mcp]]` has it.
        required name: Name;
        /// Names of `[[listener.ai.mcp]]`, at most 16, in the order of lists. `mcp_tools` of keys has these names.
        required servers: Vec<At<Name>>;
    }
}

section! {
    /// An agent that speaks A2A over JSON-RPC, at `/a2a/<name>`; its card is at `/a2a/<name>/.well-known/agent-card.json`, as it is.
    pub(crate) struct A2aSection [name = name] {
        /// Its name in the path, in `a2a_agents` and in metrics; unique.
        required name: Name;
        /// Its upstream. `api_key` of `[upstream.ai]` goes there as `Authorization: Bearer`.
        required upstream: Name;
        /// Its path there; that of its card is below it.
        default path: LongWord = LongWord("/".to_owned());
        /// Longest pause within a response; then the response breaks off.
        default idle_timeout: Period = Period(ai::AGENT_IDLE_TIMEOUT) => DEADLINE_MIN..=DEADLINE_MAX;
    }
}

section! {
    /// Prices of a model, or of all that a pattern fits, per million tokens.
    pub(crate) struct PriceSection {
        /// The name of the model at its provider; `*` is any text, `?` a character.
        required models: Word;
        /// Service tier of the request (`service_tier`). Absent: each tier without a row of its own.
        optional tier: Word;
        /// Tokens of the prompt.
        required input: Money;
        /// Tokens of the prompt from the provider's cache. Absent: as `input`. The same of the next two.
        optional cached_input: Money;
        /// Tokens of the prompt that are written to the provider's cache.
        optional cache_write: Money;
        /// Tokens of the prompt that are audio.
        optional audio_input: Money;
        /// Tokens of the answer.
        required output: Money;
        /// Tokens of the answer that are reasoning. Absent: as `output`. The same of the next one.
        optional reasoning: Money;
        /// Tokens of the answer that are audio.
        optional audio_output: Money;
    }
}

section! {
    /// The provider behind an upstream of AI listeners. Its connections are those of `[upstream.http]`.
    pub(crate) struct UpstreamAiSection {
        /// Its API: `openai` (most servers, vLLM among them), `azure` (OpenAI's with the key in `api-key`) or `anthropic`. Chats
        /// and messages are translated for clients of the other API.
        default dialect: ProviderDialect = ProviderDialect::OpenAi;
        /// Its key, which takes the place of that of the client. Absent: the client's own goes there with `keys = "none"`, and none with
        /// `keys = "required"`.
        optional api_key: SecretRef;
        /// The path in front of its endpoints. Absent: `/v1`, of `azure` `/openai/v1`.
        optional base_path: LongWord;
        /// Request the usage of streams (`stream_options.include_usage`) where the client does not. `false` for a server that refuses the
        /// option; the usage of its streams is then estimated.
        default include_usage: bool = true;
        /// Output tokens of a chat without a limit that is translated for `anthropic`, whose API requires one. Claude 3 takes at most
        /// 4096.
        default default_max_tokens: u32 = Abilities::default().default_max_tokens as u32 => 1..=COUNT_MAX;
        /// Its chats take `max_completion_tokens`. `false` for older servers: a limit that the gateway writes is `max_tokens` then.
        default max_completion_tokens: bool = true;
        /// Its messages take `output_config.effort`, into which `reasoning_effort` is translated. `false` for Claude models that refuse
        /// it: then it is left out, and named in `x-weir-translation-loss`.
        default reasoning_effort: bool = true;
        /// Check the health of its endpoints by `GET /models` with `api_key`, which expects a status from 200 to 399, in place of
        /// `health_path`. Providers count such requests: write `[upstream.health]` with an `interval` such as `"30s"`.
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
