//! A key as JSON: what its operator may write. The members have the names of `[[listener.ai.key]]`.

use std::{fmt, ops::RangeInclusive, sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use weir_base::{Net, time};

use super::span;
use crate::{
    budget::Budgets,
    glob::Glob,
    policy::{CacheRule, Mode, OutputAction, OutputCap, PATTERNS_MAX, Policy, ServerTool},
    rate::Pace,
};

/// The most of a limit, as in the configuration: a thousand million million.
const LIMIT_MAX: u64 = 1_000_000_000_000_000;

/// Times for which a response may serve, as in the configuration: a second to 30 days.
const CACHE_TTL: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(30 * 86_400);

/// Units of a millionth in one of money.
const MICROS: u64 = 1_000_000;

/// The part of a key that its operator may write and change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeyDocument {
    /// The listener that takes it. `None`: each one whose clients need a key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub listener: Option<String>,
    /// It may be used.
    #[serde(default = "yes")]
    pub enabled: bool,
    /// A time in UTC (RFC 3339), from which on it may not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<String>,
    /// Its policy.
    #[serde(default)]
    pub policy: PolicyDocument,
}

fn yes() -> bool {
    true
}

/// A policy. Absent members do not limit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PolicyDocument {
    /// Patterns of models that may be used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub models: Option<Vec<String>>,
    /// Patterns of models that may not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub models_denied: Option<Vec<String>>,
    /// Patterns of tools that may be declared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<String>>,
    /// The most tools.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tools_max: Option<u32>,
    /// Tools of MCP servers that agents may call, as `server/tool`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mcp_tools: Option<Vec<String>>,
    /// Agents that may be reached.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub a2a_agents: Option<Vec<String>>,
    /// Calls of tools and agents per minute.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_calls_per_minute: Option<u64>,
    /// The most bytes of the prompt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt_bytes_max: Option<u64>,
    /// The most output tokens of each choice.
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
    /// Tokens per day.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub day_tokens: Option<u64>,
    /// Tokens per month.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub month_tokens: Option<u64>,
    /// Money per day, as a text with up to six decimals.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub day_money: Option<String>,
    /// Money per month.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub month_money: Option<String>,
    /// Time for which a response serves equal requests, as `5m`. Absent: nothing is cached.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_ttl: Option<String>,
    /// Requests that want different responses are cached, too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_sampled: Option<bool>,
    /// Treatment of a request that breaks it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<ModeWord>,
}

/// A [`Mode`] as a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ModeWord {
    /// See [`Mode::Enforce`].
    Enforce,
    /// See [`Mode::Observe`].
    Observe,
}

/// Why a document is no key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DocumentError {
    /// Another shape: an unknown member, a wrong type.
    Shape(String),
    /// A member, and the mistake in it.
    Member(&'static str, String),
}

impl fmt::Display for DocumentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Shape(what) => f.write_str(what),
            Self::Member(member, what) => write!(f, "`{member}` {what}"),
        }
    }
}

impl std::error::Error for DocumentError {}

impl KeyDocument {
    /// Reads one.
    ///
    /// # Errors
    /// See [`DocumentError`].
    pub fn read(members: Map<String, Value>) -> Result<Self, DocumentError> {
        serde_json::from_value(Value::Object(members)).map_err(|error| DocumentError::Shape(error.to_string()))
    }

    /// It with the members of `patch` (RFC 7396): a member replaces its own, `null` removes it, and those of `policy` one by one.
    ///
    /// # Errors
    /// See [`DocumentError`].
    pub fn patched(&self, patch: Map<String, Value>) -> Result<Self, DocumentError> {
        let shape = |error: serde_json::Error| DocumentError::Shape(error.to_string());
        let Value::Object(mut members) = serde_json::to_value(self).map_err(shape)? else { return Ok(self.clone()) };
        for (name, value) in patch {
            match (members.get_mut(&name), value) {
                (Some(Value::Object(own)), Value::Object(inner)) => inner.into_iter().for_each(|(name, value)| {
                    put(own, name, value);
                }),
                (_, value) => put(&mut members, name, value),
            }
        }
        Self::read(members)
    }

    /// The Unix time of its end, in seconds.
    ///
    /// # Errors
    /// It is no time.
    pub fn expires(&self) -> Result<Option<u64>, DocumentError> {
        self.expires.as_deref().map(|text| utc(text, "expires")).transpose()
    }
}

/// Puts a member; `null` removes it.
fn put(members: &mut Map<String, Value>, name: String, value: Value) {
    match value {
        Value::Null => drop(members.remove(&name)),
        value => drop(members.insert(name, value)),
    }
}

/// The Unix time of a member, in seconds.
///
/// # Errors
/// It is no time in UTC.
pub fn utc(text: &str, member: &'static str) -> Result<u64, DocumentError> {
    let wrong = || DocumentError::Member(member, "is no time in UTC: write it as in 2027-01-31T00:00:00Z".to_owned());
    time::from_rfc3339(text).ok_or_else(wrong)
}

impl PolicyDocument {
    /// The document of a policy.
    pub fn of(policy: &Policy) -> Self {
        let texts = |globs: &[Glob]| globs.iter().map(|glob| glob.text().to_owned()).collect::<Vec<_>>();
        let some = |globs: &[Glob]| Some(texts(globs)).filter(|list| !list.is_empty());
        let sources: Vec<String> = policy.sources.iter().map(ToString::to_string).collect();
        Self {
            models: some(&policy.models_allowed),
            models_denied: some(&policy.models_denied),
            tools: policy.tools_allowed.as_deref().map(texts),
            tools_max: policy.tools_max,
            mcp_tools: policy.server_tools.as_deref().map(|rules| rules.iter().map(ServerTool::to_string).collect()),
            a2a_agents: policy.agents.as_deref().map(texts),
            tool_calls_per_minute: policy.tool_calls.map(|pace| pace.per_minute),
            prompt_bytes_max: policy.prompt_bytes_max,
            output_tokens_max: policy.output.map(|cap| cap.tokens),
            sources: Some(sources).filter(|list| !list.is_empty()),
            requests_per_minute: policy.requests.map(|pace| pace.per_minute),
            tokens_per_minute: policy.tokens.map(|pace| pace.per_minute),
            concurrent_max: policy.concurrent_max,
            day_tokens: policy.budgets.day_tokens,
            month_tokens: policy.budgets.month_tokens,
            day_money: policy.budgets.day_money.map(money_text),
            month_money: policy.budgets.month_money.map(money_text),
            cache_ttl: policy.cache.map(|rule| span::text(rule.ttl)),
            cache_sampled: policy.cache.filter(|rule| rule.takes_sampled).map(|_| true),
            mode: (policy.mode == Mode::Observe).then_some(ModeWord::Observe),
        }
    }

    /// The policy of the document.
    ///
    /// # Errors
    /// A member that cannot be.
    pub fn policy(&self) -> Result<Policy, DocumentError> {
        let positive = |member: &'static str, value: Option<u64>| match value {
            Some(value) if !(1..=LIMIT_MAX).contains(&value) => {
                Err(DocumentError::Member(member, format!("is {value}; allowed are 1 to {LIMIT_MAX}")))
            }
            value => Ok(value),
        };
        let money = |member, text: &Option<String>| text.as_deref().map(|text| micros(text, member)).transpose();
        let output = positive("output_tokens_max", self.output_tokens_max)?;
        let concurrent = positive("concurrent_max", self.concurrent_max.map(u64::from))?;
        Ok(Policy {
            models_allowed: list("models", &self.models)?.unwrap_or_default(),
            models_denied: list("models_denied", &self.models_denied)?.unwrap_or_default(),
            // An empty list permits no tool.
            tools_allowed: self.tools.as_ref().map(|tools| globs("tools", tools)).transpose()?,
            tools_max: self.tools_max,
            server_tools: self.server_tools()?,
            agents: self.a2a_agents.as_ref().map(|agents| globs("a2a_agents", agents)).transpose()?,
            tool_calls: positive("tool_calls_per_minute", self.tool_calls_per_minute)?.map(Pace::per_minute),
            prompt_bytes_max: positive("prompt_bytes_max", self.prompt_bytes_max)?,
            output: output.map(|tokens| OutputCap { tokens, action: OutputAction::Clamp }),
            sources: self.nets()?,
            requests: positive("requests_per_minute", self.requests_per_minute)?.map(Pace::per_minute),
            tokens: positive("tokens_per_minute", self.tokens_per_minute)?.map(Pace::per_minute),
            concurrent_max: concurrent.and_then(|most| u32::try_from(most).ok()),
            budgets: Budgets {
                day_tokens: positive("day_tokens", self.day_tokens)?,
                day_money: money("day_money", &self.day_money)?,
                month_tokens: positive("month_tokens", self.month_tokens)?,
                month_money: money("month_money", &self.month_money)?,
            },
            cache: self.cache()?,
            mode: match self.mode {
                Some(ModeWord::Observe) => Mode::Observe,
                Some(ModeWord::Enforce) | None => Mode::Enforce,
            },
        })
    }

    /// An empty list permits no tool.
    fn server_tools(&self) -> Result<Option<Vec<ServerTool>>, DocumentError> {
        let Some(words) = &self.mcp_tools else { return Ok(None) };
        if words.len() > PATTERNS_MAX {
            let what = format!("has {} entries; the most is {PATTERNS_MAX}", words.len());
            return Err(DocumentError::Member("mcp_tools", what));
        }
        let wrong = || DocumentError::Member("mcp_tools", "names no tool of a server: write server/tool".to_owned());
        words.iter().map(|word| ServerTool::new(word).ok_or_else(wrong)).collect::<Result<_, _>>().map(Some)
    }

    fn cache(&self) -> Result<Option<CacheRule>, DocumentError> {
        let takes_sampled = self.cache_sampled.unwrap_or(false);
        let Some(text) = &self.cache_ttl else {
            let what = "has no effect without cache_ttl: nothing is cached";
            return if takes_sampled { Err(DocumentError::Member("cache_sampled", what.to_owned())) } else { Ok(None) };
        };
        let what = "is no time from 1s to 30d: write a whole number and a unit, as in \"5m\"";
        let ttl = span::read(text).filter(|ttl| CACHE_TTL.contains(ttl));
        let ttl = ttl.ok_or_else(|| DocumentError::Member("cache_ttl", what.to_owned()))?;
        Ok(Some(CacheRule { ttl, takes_sampled }))
    }

    fn nets(&self) -> Result<Vec<Net>, DocumentError> {
        let Some(sources) = &self.sources else { return Ok(Vec::new()) };
        check_length("sources", sources.len())?;
        let net = |text: &String| {
            text.parse::<Net>().map_err(|error| DocumentError::Member("sources", format!("has no network: {error}")))
        };
        sources.iter().map(net).collect()
    }
}

/// The patterns of a list that is not empty.
fn list(member: &'static str, list: &Option<Vec<String>>) -> Result<Option<Vec<Glob>>, DocumentError> {
    let Some(list) = list else { return Ok(None) };
    check_length(member, list.len())?;
    globs(member, list).map(Some)
}

/// An empty list would permit all, and a long one is judged slowly.
fn check_length(member: &'static str, length: usize) -> Result<(), DocumentError> {
    match length {
        0 => Err(DocumentError::Member(member, "is empty, which would permit all: leave it out".to_owned())),
        1..=PATTERNS_MAX => Ok(()),
        length => Err(DocumentError::Member(member, format!("has {length} entries; the most is {PATTERNS_MAX}"))),
    }
}

fn globs(member: &'static str, list: &[String]) -> Result<Vec<Glob>, DocumentError> {
    let glob = |text: &String| Glob::new(text).map_err(|error| DocumentError::Member(member, format!("has {error}")));
    match list.len() {
        0..=PATTERNS_MAX => list.iter().map(glob).collect(),
        length => Err(DocumentError::Member(member, format!("has {length} entries; the most is {PATTERNS_MAX}"))),
    }
}

/// An amount of money in millionths: digits, and up to six decimals.
fn micros(text: &str, member: &'static str) -> Result<u64, DocumentError> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let micros = (is_number(whole) && is_number(fraction) && fraction.len() <= 6)
        .then(|| format!("{whole}{fraction:0<6}").parse().ok())
        .flatten();
    let wrong = || DocumentError::Member(member, "is no amount of money: write it as in \"2.50\"".to_owned());
    micros.ok_or_else(wrong)
}

/// The shortest text of an amount.
fn money_text(micros: u64) -> String {
    let text = format!("{}.{:06}", micros / MICROS, micros % MICROS);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// The policy of a document as keys share it.
///
/// # Errors
/// See [`PolicyDocument::policy`].
pub(super) fn shared(document: &PolicyDocument) -> Result<Arc<Policy>, DocumentError> {
    document.policy().map(Arc::new)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(value: Value) -> Map<String, Value> {
        match value {
            Value::Object(members) => members,
            other => panic!("{other}"),
        }
    }

    fn read(value: Value) -> Result<KeyDocument, DocumentError> {
        KeyDocument::read(object(value))
    }

    fn whole() -> Value {
        json!({
            "listener": "ai", "enabled": false, "expires": "2099-12-31T00:00:00Z",
            "policy": {
                "models": ["gpt-*"], "models_denied": ["*-preview"], "tools": [], "tools_max": 0,
                "mcp_tools": ["github/*"], "a2a_agents": [], "tool_calls_per_minute": 30,
                "prompt_bytes_max": 1000, "output_tokens_max": 200, "sources": ["10.0.0.0/8"],
                "requests_per_minute": 60, "tokens_per_minute": 9000, "concurrent_max": 3,
                "day_tokens": 5, "month_tokens": 6, "day_money": "1.5", "month_money": "20",
                "cache_ttl": "5m", "cache_sampled": true, "mode": "observe",
            },
        })
    }

    #[test]
    fn a_policy_is_written_as_it_was_read() {
        let document = read(whole()).expect("a key");
        let policy = document.policy.policy().expect("a policy");
        assert_eq!((policy.budgets.day_money, policy.budgets.month_money), (Some(1_500_000), Some(20_000_000)));
        assert_eq!((policy.tools_allowed.as_deref(), policy.tools_max), (Some(&[][..]), Some(0)));
        let rule = CacheRule { ttl: Duration::from_secs(300), takes_sampled: true };
        assert_eq!(policy.cache, Some(rule));
        assert_eq!(PolicyDocument::of(&policy), document.policy);
        assert_eq!(serde_json::to_value(&document).expect("JSON"), whole());
        assert_eq!(document.expires(), Ok(Some(4_102_358_400)));
        assert_eq!(PolicyDocument::default().policy().expect("a policy"), Policy::default());
    }

    #[test]
    fn a_mistake_names_its_member() {
        let rows = [
            (json!({ "enabled": "yes" }), "invalid type"),
            (json!({ "sha256": "0" }), "unknown field `sha256`"),
            (json!({ "policy": { "rpm": 1 } }), "unknown field `rpm`"),
            (json!({ "policy": { "models": [] } }), "`models` is empty"),
            (json!({ "policy": { "models": ["a\nb"] } }), "`models` has"),
            (json!({ "policy": { "sources": ["here"] } }), "`sources` has no network"),
            (json!({ "policy": { "requests_per_minute": 0 } }), "`requests_per_minute` is 0"),
            (json!({ "policy": { "day_tokens": u64::MAX } }), "`day_tokens` is"),
            (json!({ "policy": { "day_tokens": -1 } }), "invalid value"),
            (json!({ "policy": { "day_money": "ten" } }), "`day_money` is no amount"),
            (json!({ "policy": { "cache_ttl": "soon" } }), "`cache_ttl` is no time"),
            (json!({ "policy": { "cache_ttl": "31d" } }), "`cache_ttl` is no time"),
            (json!({ "policy": { "cache_sampled": true } }), "`cache_sampled` has no effect"),
            (json!({ "policy": { "models": vec!["a"; PATTERNS_MAX + 1] } }), "`models` has 1025 entries"),
            (json!({ "policy": { "mcp_tools": ["github"] } }), "`mcp_tools` names no tool"),
            (json!({ "expires": "tomorrow" }), "`expires` is no time"),
        ];
        for (value, words) in rows {
            let error = read(value.clone())
                .and_then(|document| document.policy.policy().map(drop).and_then(|()| document.expires().map(drop)))
                .expect_err("a mistake");
            assert!(error.to_string().contains(words), "{value}: {error}");
        }
    }

    #[test]
    fn a_patch_changes_the_members_that_it_has() {
        let document = read(whole()).expect("a key");
        let patch = json!({ "enabled": true, "expires": null, "policy": { "day_tokens": 7, "models": null } });
        let changed = document.patched(object(patch)).expect("a key");
        assert!(changed.enabled && changed.expires.is_none() && changed.policy.models.is_none());
        assert_eq!((changed.policy.day_tokens, changed.policy.month_tokens), (Some(7), Some(6)));
        assert_eq!(changed.listener.as_deref(), Some("ai"), "it is not in the patch");
        assert!(document.patched(object(json!({ "policy": { "rpm": 1 } }))).is_err());
        assert!(document.patched(object(json!({ "policy": 3 }))).is_err());
        assert_eq!(document.patched(Map::new()), Ok(document));
    }
}
