//! The policy of a key, a team or an organisation: facts become a verdict. Pure.
//!
//! A request passes every level of its key; the strictest applies. Rates, concurrency and budgets are kept with the accounts
//! and judged by the [meter](crate::meter), after these rules.

use std::{
    fmt,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    net::IpAddr,
    time::Duration,
};

use weir_base::Net;

use crate::{budget::Budgets, denial::Denial, glob::Glob, rate::Pace};

/// Patterns of one list. Default 1,024.
pub const PATTERNS_MAX: usize = 1_024;

/// The treatment of a request that wants more output tokens than it may.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum OutputAction {
    /// Its limit is lowered.
    #[default]
    Clamp,
    /// It is refused.
    Refuse,
}

/// The most output tokens of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OutputCap {
    /// The most. A request that names no limit gets this one.
    pub tokens: u64,
    /// For a request that names more.
    pub action: OutputAction,
}

/// Tools of a server, or of all that a pattern fits.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ServerTool {
    /// The name of the server.
    pub server: Glob,
    /// The name of the tool there.
    pub tool: Glob,
}

impl ServerTool {
    /// It from a text such as `github/create_issue` or `*/read_*`. `None`: the text is none.
    pub fn new(text: &str) -> Option<Self> {
        let (server, tool) = text.split_once('/')?;
        Some(Self { server: Glob::new(server).ok()?, tool: Glob::new(tool).ok()? })
    }
}

impl fmt::Display for ServerTool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.server.text(), self.tool.text())
    }
}

/// Whether refusals are applied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Mode {
    /// They are.
    #[default]
    Enforce,
    /// They are reported, and the request goes on.
    Observe,
}

/// The rule by which responses are cached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CacheRule {
    /// A response serves equal requests for so long.
    pub ttl: Duration,
    /// Also if requests want different responses: by a temperature, or several at once.
    pub takes_sampled: bool,
}

impl CacheRule {
    /// The stricter of two rules.
    #[must_use]
    pub fn stricter(self, other: Self) -> Self {
        Self { ttl: self.ttl.min(other.ttl), takes_sampled: self.takes_sampled && other.takes_sampled }
    }
}

/// A policy. `None` and empty lists do not limit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Policy {
    /// Models that may be used; empty: all.
    pub models_allowed: Vec<Glob>,
    /// Models that may not, also if they are allowed.
    pub models_denied: Vec<Glob>,
    /// Tools that may be declared; a built-in tool has its type as name. `Some` and empty: none.
    pub tools_allowed: Option<Vec<Glob>>,
    /// The most tools.
    pub tools_max: Option<u32>,
    /// Tools of servers that agents may call, and so the servers that they may reach. `None`: all.
    pub server_tools: Option<Vec<ServerTool>>,
    /// Agents that may be reached, by their names. `None`: all.
    pub agents: Option<Vec<Glob>>,
    /// Calls of tools and agents per minute.
    pub tool_calls: Option<Pace>,
    /// The most bytes of the prompt.
    pub prompt_bytes_max: Option<u64>,
    /// The most output tokens.
    pub output: Option<OutputCap>,
    /// Addresses that may use the key; empty: all.
    pub sources: Vec<Net>,
    /// Requests per minute.
    pub requests: Option<Pace>,
    /// Tokens per minute.
    pub tokens: Option<Pace>,
    /// Requests in flight, until the end of their responses.
    pub concurrent_max: Option<u32>,
    /// Budgets per day and month.
    pub budgets: Budgets,
    /// `None`: its responses are not cached.
    pub cache: Option<CacheRule>,
    /// Whether refusals are applied.
    pub mode: Mode,
}

/// A number that changes with any of these policies. Within one process: other versions may number them differently.
pub fn version<'p>(policies: impl IntoIterator<Item = &'p Policy>) -> u64 {
    let mut hasher = DefaultHasher::new();
    policies.into_iter().for_each(|policy| policy.hash(&mut hasher));
    hasher.finish()
}

/// The facts of a request before it is admitted.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    /// The client's address.
    pub source: IpAddr,
    /// The model by the name that the client uses. An alias is the operator's, and has a name of its own in the rules.
    pub model: &'a str,
    /// The price table has the model.
    pub is_priced: bool,
    /// Names of its tools. `None`: they could not be read, so a rule about tools refuses.
    pub tools: Option<&'a [&'a str]>,
    /// Bytes of the prompt.
    pub prompt_bytes: u64,
    /// The limit of output tokens that the request names.
    pub output_tokens: Option<u64>,
}

/// The decision about a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It may go on to rates and budgets.
    Allow {
        /// The limit of output tokens with which it is forwarded. `None`: it has none, and no level limits it.
        output_tokens: Option<u64>,
        /// The first refusal of a level that only observes.
        observed: Option<Denial>,
    },
    /// It may not.
    Refuse(Denial),
}

/// Judges a request by the policies of all its levels.
pub fn judge<'p>(policies: impl IntoIterator<Item = &'p Policy>, facts: &Facts<'_>) -> Verdict {
    let (mut output_tokens, mut observed) = (facts.output_tokens, None);
    for policy in policies {
        match policy.refusal(facts) {
            Some(denial) if policy.mode == Mode::Enforce => return Verdict::Refuse(denial),
            denial => observed = observed.or(denial),
        }
        if let (Some(cap), Mode::Enforce) = (policy.output, policy.mode) {
            output_tokens = Some(output_tokens.map_or(cap.tokens, |tokens| tokens.min(cap.tokens)));
        }
    }
    Verdict::Allow { output_tokens, observed }
}

impl Policy {
    /// Whether a server may be reached: one of its tools may be called.
    pub fn permits_server(&self, server: &str) -> bool {
        self.server_tools.as_ref().is_none_or(|rules| rules.iter().any(|rule| rule.server.matches(server)))
    }

    /// Whether a tool of a server may be called.
    pub fn permits_tool(&self, server: &str, tool: &str) -> bool {
        let fits = |rule: &ServerTool| rule.server.matches(server) && rule.tool.matches(tool);
        self.server_tools.as_ref().is_none_or(|rules| rules.iter().any(fits))
    }

    /// Whether an agent may be reached.
    pub fn permits_agent(&self, agent: &str) -> bool {
        self.agents.as_ref().is_none_or(|names| names.iter().any(|name| name.matches(agent)))
    }

    /// The first rule that the request breaks. A stranger learns least: the address comes first.
    fn refusal(&self, facts: &Facts<'_>) -> Option<Denial> {
        if !self.sources.is_empty() && !self.sources.iter().any(|net| net.contains(facts.source)) {
            return Some(Denial::Source);
        }
        let names = |patterns: &[Glob], name: &str| patterns.iter().any(|pattern| pattern.matches(name));
        let is_allowed = self.models_allowed.is_empty() || names(&self.models_allowed, facts.model);
        if !is_allowed || names(&self.models_denied, facts.model) {
            return Some(Denial::Model);
        }
        if self.budgets.limits_money() && !facts.is_priced {
            return Some(Denial::UnpricedModel);
        }
        if let Some(denial) = self.tool_refusal(facts.tools) {
            return Some(denial);
        }
        if let Some(limit) = self.prompt_bytes_max.filter(|limit| facts.prompt_bytes > *limit) {
            return Some(Denial::Prompt { limit });
        }
        let cap = self.output.filter(|cap| cap.action == OutputAction::Refuse)?;
        let is_above = facts.output_tokens.is_some_and(|tokens| tokens > cap.tokens);
        is_above.then_some(Denial::Output { limit: cap.tokens })
    }

    fn tool_refusal(&self, tools: Option<&[&str]>) -> Option<Denial> {
        if self.tools_allowed.is_none() && self.tools_max.is_none() {
            return None;
        }
        let Some(tools) = tools else { return Some(Denial::Tool) };
        if let Some(limit) = self.tools_max.filter(|limit| tools.len() > *limit as usize) {
            return Some(Denial::Tools { limit });
        }
        let allowed = self.tools_allowed.as_ref()?;
        let is_foreign = |tool: &&str| !allowed.iter().any(|pattern| pattern.matches(tool));
        tools.iter().any(is_foreign).then_some(Denial::Tool)
    }
}

#[cfg(test)]
mod tests;
