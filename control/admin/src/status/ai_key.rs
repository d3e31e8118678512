//! Queries and responses of `/api/v1/ai/keys`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use weir_base::secret::Secret;

/// The policy of a key, with the names of `[[listener.ai.key]]`. An absent member sets no limit.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AiKeyPolicy {
    /// Models that the key may use, by the names that clients use. `*` matches any text, `?` one character.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub models: Option<Vec<String>>,
    /// Models that the key may not use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub models_denied: Option<Vec<String>>,
    /// Tools that requests may declare. An empty list permits no tool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<String>>,
    /// Maximum number of tools per request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tools_max: Option<u32>,
    /// Tools of MCP servers that the key may call, as `server/tool`. An empty list permits no tool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mcp_tools: Option<Vec<String>>,
    /// A2A agents that the key may reach. An empty list permits no agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub a2a_agents: Option<Vec<String>>,
    /// Maximum number of calls of tools and agents per minute.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_calls_per_minute: Option<u64>,
    /// Maximum size of messages, instructions and tools together, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt_bytes_max: Option<u64>,
    /// Maximum number of output tokens of each choice (`n`) in a response. The gateway lowers a higher limit in a request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_tokens_max: Option<u64>,
    /// Client networks that may use the key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sources: Option<Vec<String>>,
    /// Maximum number of requests per minute.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requests_per_minute: Option<u64>,
    /// Maximum number of tokens per minute.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens_per_minute: Option<u64>,
    /// Maximum number of concurrent requests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub concurrent_max: Option<u32>,
    /// Maximum number of tokens per day (UTC).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub day_tokens: Option<u64>,
    /// Maximum number of tokens per month (UTC).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub month_tokens: Option<u64>,
    /// Maximum cost per day (UTC), as a string with up to six decimals.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub day_money: Option<String>,
    /// Maximum cost per month (UTC).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub month_money: Option<String>,
    /// Time for which a cached response is used for equal requests, 1s to 30d, such as `5m`. If absent, nothing is cached.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_ttl: Option<String>,
    /// True: also cache requests with `temperature` above 0, or `n` or `best_of` above 1. Needs `cache_ttl`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_sampled: Option<bool>,
    /// `enforce` refuses requests that break the policy, `observe` only counts them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
}

/// Body of `POST /api/v1/ai/keys`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AiKeyRequest {
    /// Unique name of 1 to 64 letters, digits, `-`, `_` or `.`.
    pub name: String,
    /// The listener that accepts the key. If absent, every listener with `keys = "required"` accepts it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub listener: Option<String>,
    /// False: requests with the key get 401. Default true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// Time (RFC 3339 in UTC) from which requests with the key get 401. If absent, the key does not expire.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<String>,
    /// The policy of the key. If absent, the key is not limited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<AiKeyPolicy>,
}

/// Body of `PATCH /api/v1/ai/keys/{name}`, a merge patch (RFC 7396): absent members stay, `null` removes a member, in `policy` too.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AiKeyChange {
    /// The listener that accepts the key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub listener: Option<String>,
    /// Whether the key may be used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// Expiry of the key (RFC 3339 in UTC).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<String>,
    /// The members of the policy that change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<AiKeyPolicy>,
}

/// Body of `POST /api/v1/ai/keys/{name}/rotate`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AiKeyRotation {
    /// Time (RFC 3339 in UTC) until which the old secret stays valid. If absent, the old secret is refused at once.
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
    /// This API issued the key.
    Api,
}

/// Whether a key may be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AiKeyState {
    /// The key may be used.
    Active,
    /// An operator has disabled the key.
    Disabled,
    /// The key has expired.
    Expired,
}

/// A secret of a key. The gateway stores only its hash.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AiKeyText {
    /// The first letters of the secret; absent for a key in the configuration file.
    pub shown: Option<String>,
    /// Time until which the old secret is valid after a rotation; absent for the current secret.
    pub until: Option<String>,
}

/// The use of a budget in its current window.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AiBudgetUse {
    /// Tokens, or millionths of money, of completed requests.
    pub used: u64,
    /// Tokens, or millionths of money, that requests in progress have reserved.
    pub reserved: u64,
    /// The budget; absent if there is none.
    pub limit: Option<u64>,
    /// Used and reserved by other gateways that share the budget, at the last response of the store; absent if it is not shared.
    pub used_elsewhere: Option<u64>,
    /// The part of the budget that this gateway has claimed and may use; absent if the budget is not shared.
    pub claimed: Option<u64>,
}

/// The use of a rate.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AiRateUse {
    /// The rate per minute.
    pub limit: u64,
    /// Requests or tokens that the key may use now.
    pub remaining: u64,
    /// Seconds until the full rate is available again.
    pub reset_seconds: f64,
}

/// The account of a key. All keys with the same name have the same account.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AiKeyUsage {
    /// The day in UTC to which `day_tokens` and `day_money` apply.
    pub day: String,
    /// Tokens of the day.
    pub day_tokens: AiBudgetUse,
    /// Money of the day, in millionths.
    pub day_money_micro: AiBudgetUse,
    /// Tokens of the month.
    pub month_tokens: AiBudgetUse,
    /// Money of the month, in millionths.
    pub month_money_micro: AiBudgetUse,
    /// Requests per minute; absent if there is no limit.
    pub requests_per_minute: Option<AiRateUse>,
    /// Tokens per minute; absent if there is no limit.
    pub tokens_per_minute: Option<AiRateUse>,
    /// Requests in progress; absent if they are not limited and therefore not counted.
    pub concurrent: Option<u64>,
}

/// A key of AI clients, without its secret and hash.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AiKeyStatus {
    /// Name of the key.
    pub name: String,
    /// Origin of the key.
    pub source: AiKeySource,
    /// The listener that accepts the key; absent if every listener with `keys = "required"` does.
    pub listener: Option<String>,
    /// Whether the key may be used now.
    pub state: AiKeyState,
    /// Expiry of the key in UTC; absent if it does not expire.
    pub expires: Option<String>,
    /// Time in UTC at which the key was issued; absent for a key in the configuration file.
    pub created: Option<String>,
    /// The secrets of the key: the current secret, and old secrets that are still valid.
    pub texts: Vec<AiKeyText>,
    /// Listeners with a table of the same name or hash in the configuration file, which replaces this key.
    pub shadowed_by: Vec<String>,
    /// The policy of the key.
    pub policy: AiKeyPolicy,
    /// The account of the key.
    pub usage: AiKeyUsage,
}

/// Response of `/api/v1/ai/keys`, by name.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AiKeyList {
    /// The keys. A key in the configuration file is listed once for each listener that has it.
    pub keys: Vec<AiKeyStatus>,
    /// True if this gateway can issue keys: `[ai]` has a `state`.
    pub can_issue: bool,
    /// Value of `after` for the next page; absent on the last page.
    pub next_after: Option<String>,
}

/// Response with a secret, which is shown once.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AiKeyIssued {
    /// The secret for the client. The gateway does not store it and cannot show it again.
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
