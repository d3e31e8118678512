//! Queries and answers of `/api/v1/ai/keys`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use weir_base::secret::Secret;

/// The policy of a key, with the names of `[[listener.ai.key]]`. Absent members do not limit.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AiKeyPolicy {
    /// Models that it may use, by the names of clients; `*` is any text, `?` a character.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub models: Option<Vec<String>>,
    /// Models that it may not use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub models_denied: Option<Vec<String>>,
    /// Tools that requests may declare; an empty list permits none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<String>>,
    /// The most tools of a request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tools_max: Option<u32>,
    /// Tools of MCP servers that it may call, as `server/tool`; an empty list permits none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mcp_tools: Option<Vec<String>>,
    /// Agents of A2A that it may reach; an empty list permits none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub a2a_agents: Option<Vec<String>>,
    /// Calls of tools and agents per minute.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_calls_per_minute: Option<u64>,
    /// The most bytes of messages, instructions and tools.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt_bytes_max: Option<u64>,
    /// The most output tokens of each answer: a higher limit of a request is lowered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_tokens_max: Option<u64>,
    /// Networks of its clients.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sources: Option<Vec<String>>,
    /// Requests per minute.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requests_per_minute: Option<u64>,
    /// Tokens per minute.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens_per_minute: Option<u64>,
    /// Requests at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub concurrent_max: Option<u32>,
    /// Tokens per day (UTC).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub day_tokens: Option<u64>,
    /// Tokens per month (UTC).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub month_tokens: Option<u64>,
    /// Money per day, as a text with up to six decimals.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub day_money: Option<String>,
    /// Money per month.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub month_money: Option<String>,
    /// Time for which a response serves equal requests, 1s to 30d, as `5m`. Absent: nothing is cached.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_ttl: Option<String>,
    /// True: requests that want different answers are cached, too. It needs `cache_ttl`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_sampled: Option<bool>,
    /// `enforce`, or `observe`, which refuses nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
}

/// Body of `POST /api/v1/ai/keys`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AiKeyRequest {
    /// Unique; 1 to 64 letters, digits, `-`, `_` or `.`.
    pub name: String,
    /// The listener that takes it. Absent: each one with `keys = "required"`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub listener: Option<String>,
    /// False: its requests get 401. Absent: true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// From this time on (RFC 3339 in UTC) its requests get 401. Absent: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<String>,
    /// Its policy. Absent: it is not limited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<AiKeyPolicy>,
}

/// Body of `PATCH /api/v1/ai/keys/{name}`, a merge patch (RFC 7396): an absent member stays, and `null` removes one, in `policy` too.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AiKeyChange {
    /// The listener that takes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub listener: Option<String>,
    /// Whether it may be used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// Its end (RFC 3339 in UTC).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<String>,
    /// The members of its policy that change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<AiKeyPolicy>,
}

/// Body of `POST /api/v1/ai/keys/{name}/rotate`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AiKeyRotation {
    /// Until this time (RFC 3339 in UTC) the text before is good, too. Absent: it is refused at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub old_until: Option<String>,
}

/// An order of an operator about issued keys.
#[derive(Debug, Clone, PartialEq)]
pub enum AiKeyOrder {
    /// Issue a key.
    Create(Box<AiKeyRequest>),
    /// Change the members of an [`AiKeyChange`]; their names and values are not checked yet.
    Change {
        /// Name of the key.
        name: String,
        /// A merge patch.
        patch: Map<String, Value>,
    },
    /// Give it another text.
    Rotate {
        /// Name of the key.
        name: String,
        /// See [`AiKeyRotation`].
        rotation: AiKeyRotation,
    },
    /// Remove it.
    Delete {
        /// Name of the key.
        name: String,
    },
}

/// The result of an [`AiKeyOrder`]: what is in force now.
#[derive(Debug)]
pub struct AiKeyOutcome {
    /// The key; a removed one as it was.
    pub key: AiKeyStatus,
    /// A text that was made.
    pub text: Option<Secret>,
}

/// The origin of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AiKeySource {
    /// A table of the configuration file. The API does not change it.
    Config,
    /// It was issued by this API.
    Api,
}

/// Whether a key may be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AiKeyState {
    /// It may.
    Active,
    /// An operator has disabled it.
    Disabled,
    /// It is past its end.
    Expired,
}

/// A text of a key. The gateway does not know it: it has only a hash.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AiKeyText {
    /// Its first letters; absent for a key of the configuration.
    pub shown: Option<String>,
    /// Until this time it is good, after a rotation; absent for the present one.
    pub until: Option<String>,
}

/// The use of a budget in its present window.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AiBudgetUse {
    /// Tokens, or millionths of money, of requests that are over.
    pub used: u64,
    /// Those that requests under way have reserved.
    pub reserved: u64,
    /// The budget; absent: there is none.
    pub limit: Option<u64>,
    /// Used and reserved at the other gateways that share the budget, when the store last answered; absent: it is not shared.
    pub used_elsewhere: Option<u64>,
    /// So much of the window this gateway may use, by its claim; absent: the budget is not shared.
    pub claimed: Option<u64>,
}

/// The use of a rate.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AiRateUse {
    /// Per minute.
    pub limit: u64,
    /// May come at once.
    pub remaining: u64,
    /// Seconds until all of it is free again.
    pub reset_seconds: f64,
}

/// The account of a key, which belongs to its name: all keys of the name have the same one.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AiKeyUsage {
    /// The day in UTC that `day_tokens` and `day_money` are of.
    pub day: String,
    /// Tokens of the day.
    pub day_tokens: AiBudgetUse,
    /// Money of the day, in millionths.
    pub day_money_micro: AiBudgetUse,
    /// Tokens of the month.
    pub month_tokens: AiBudgetUse,
    /// Money of the month, in millionths.
    pub month_money_micro: AiBudgetUse,
    /// Requests per minute; absent: no limit.
    pub requests_per_minute: Option<AiRateUse>,
    /// Tokens per minute; absent: no limit.
    pub tokens_per_minute: Option<AiRateUse>,
    /// Requests under way; absent: they are not limited, and so not counted.
    pub concurrent: Option<u64>,
}

/// A key of AI clients. Neither its text nor its hash is in it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AiKeyStatus {
    /// Its name.
    pub name: String,
    /// Its origin.
    pub source: AiKeySource,
    /// The listener that takes it; absent: each one with `keys = "required"`.
    pub listener: Option<String>,
    /// Whether it may be used now.
    pub state: AiKeyState,
    /// Its end in UTC; absent: never.
    pub expires: Option<String>,
    /// The time in UTC at which it was issued; absent for a key of the configuration.
    pub created: Option<String>,
    /// Its texts: the present one, and those before it that are still good.
    pub texts: Vec<AiKeyText>,
    /// Listeners that have a table of its name or of its hash, which counts in its place.
    pub shadowed_by: Vec<String>,
    /// Its policy.
    pub policy: AiKeyPolicy,
    /// Its account.
    pub usage: AiKeyUsage,
}

/// Answer of `/api/v1/ai/keys`, by name.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AiKeyList {
    /// The keys. One of the configuration stands once for each listener that has it.
    pub keys: Vec<AiKeyStatus>,
    /// True if keys can be issued here: `[ai]` has a `state`.
    pub can_issue: bool,
    /// Value of `after` for the next page; absent on the last.
    pub next_after: Option<String>,
}

/// Answer with a text, which is shown once.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AiKeyIssued {
    /// The text for the client. It is stored nowhere, and cannot be shown again.
    pub text: String,
    /// The key.
    pub key: AiKeyStatus,
}

/// A page of keys. The server has checked the limit already.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AiKeyQuery {
    /// Keys on the page, 1 to [`PAGE_MAX`](crate::limits::PAGE_MAX); those of one name are on one page.
    pub limit: usize,
    /// Only names behind this one.
    pub after: Option<String>,
    /// Only this name.
    pub name: Option<String>,
}
