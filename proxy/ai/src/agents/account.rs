//! Usage record and counters of a message.

use std::{cell::RefCell, collections::HashMap, sync::Arc, time::Duration};

use weir_base::time::turn;
use weir_http::filter::ExchangeSummary;
use weir_spend::{budget::Day, usage::UsageRecord};
use weir_telemetry::{
    CoreMetrics, Counter, Histogram, catalog,
    log::{LogEvent, LogWriter, UpstreamChange, UpstreamEvent},
};

use super::settings::{AgentProtocol, AgentServer};
use crate::attribution::Attribution;

/// Methods of MCP that are labels (revisions 2025-03-26 to 2026-07-28). Others are `other`.
const MCP_METHODS: [&str; 18] = [
    "initialize",
    "server/discover",
    "ping",
    "tools/list",
    "tools/call",
    "resources/list",
    "resources/read",
    "resources/templates/list",
    "resources/subscribe",
    "resources/unsubscribe",
    "prompts/list",
    "prompts/get",
    "completion/complete",
    "logging/setLevel",
    "subscriptions/listen",
    "tasks/get",
    "tasks/result",
    "tasks/cancel",
];

/// Those of A2A, in the words of 0.3 and of 1.0.
const A2A_METHODS: [&str; 12] = [
    "message/send",
    "message/stream",
    "tasks/get",
    "tasks/cancel",
    "tasks/resubscribe",
    "agent/getAuthenticatedExtendedCard",
    "SendMessage",
    "SendStreamingMessage",
    "GetTask",
    "ListTasks",
    "CancelTask",
    "SubscribeToTask",
];

/// The label of a method.
pub(crate) fn method_label(protocol: AgentProtocol, method: &str) -> &'static str {
    let known = match protocol {
        AgentProtocol::Mcp => &MCP_METHODS[..],
        AgentProtocol::A2a => &A2A_METHODS[..],
    };
    known.iter().find(|known| **known == method).copied().unwrap_or("other")
}

/// A message that makes a server work for the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    /// A tool of an MCP server.
    Tool,
    /// An agent.
    Agent,
}

impl Call {
    /// The operation in the words of OpenTelemetry.
    pub(crate) const fn operation(self) -> &'static str {
        match self {
            Self::Tool => "execute_tool",
            Self::Agent => "invoke_agent",
        }
    }

    /// Whether a method is a call.
    pub(crate) fn of(protocol: AgentProtocol, method: &str) -> Option<Self> {
        match (protocol, method) {
            (AgentProtocol::Mcp, "tools/call") => Some(Self::Tool),
            (AgentProtocol::A2a, "message/send" | "message/stream" | "SendMessage" | "SendStreamingMessage") => {
                Some(Self::Agent)
            }
            _ => None,
        }
    }
}

/// The texts of a usage record that are known from the beginning. Arguments are no part of it.
#[derive(Clone, Debug)]
pub(crate) struct MessageRecord {
    pub(crate) request: String,
    pub(crate) key: Option<Arc<str>>,
    pub(crate) protocol: AgentProtocol,
    /// Empty: it is not known.
    pub(crate) server: Arc<str>,
    pub(crate) method: Box<str>,
    /// The name of the tool.
    pub(crate) tool: Option<Box<str>>,
    /// `None`: it has no line in the log.
    pub(crate) call: Option<Call>,
    pub(crate) attribution: Attribution,
}

impl MessageRecord {
    /// Appends the record of a message that is over, if it has one.
    pub(crate) fn write(&self, summary: &ExchangeSummary<'_>, at: (Duration, Day), out: &mut Vec<u8>) {
        if self.call.is_some() {
            self.write_line(summary, at, out);
        }
    }

    /// Appends the record of a message that is over, whether or not the log has it.
    pub(crate) fn write_line(&self, summary: &ExchangeSummary<'_>, (time, day): (Duration, Day), out: &mut Vec<u8>) {
        let provider = Some(summary.upstream).filter(|name| !name.is_empty());
        let (status, queue, total) = (summary.status, summary.timing.queue, summary.timing.total);
        let tries = u32::from(provider.is_some());
        UsageRecord { time, day, provider, status, tries, queue, total, ..self.record() }.write(out);
    }

    /// Appends the record of a message that is open in the short form, if it has one.
    pub(crate) fn write_open(&self, time: Duration, out: &mut Vec<u8>) {
        if self.call.is_some() {
            UsageRecord { time, ..self.record() }.write_open(out);
        }
    }

    fn record(&self) -> UsageRecord<'_> {
        let common = self.attribution.record();
        let common = UsageRecord { request: &self.request, key: self.key.as_deref(), ..common };
        let server = Some(&*self.server).filter(|server| !server.is_empty());
        match self.protocol {
            AgentProtocol::A2a => UsageRecord { agent: server, tags: Some(&self.method), ..common },
            AgentProtocol::Mcp => UsageRecord { server, tool: self.tool.as_deref(), ..common },
        }
    }
}

/// The server of a cell.
type CellKey = (AgentProtocol, Arc<str>);

/// Cells of one listener on one worker. Servers are labels by their names in the configuration.
pub(crate) struct AgentMetrics {
    core: CoreMetrics,
    listener: Box<str>,
    messages: RefCell<HashMap<(CellKey, &'static str), Counter>>,
    calls: RefCell<HashMap<CellKey, Histogram>>,
    left_out: RefCell<HashMap<(Arc<str>, &'static str), Counter>>,
    log: Option<LogWriter>,
}

impl AgentMetrics {
    pub(crate) fn new(core: &CoreMetrics, listener: &str) -> Self {
        let (messages, calls, left_out) = Default::default();
        Self { core: core.clone(), listener: listener.into(), messages, calls, left_out, log: None }
    }

    /// The same with a log.
    pub(crate) fn with_log(self, log: LogWriter) -> Self {
        Self { log: Some(log), ..self }
    }

    /// Counts and logs a server that a federation does without, for this reason.
    pub(crate) fn left_out(&self, upstream: &Arc<str>, server: &AgentServer, reason: &'static str) {
        let make = || self.core.counter(&catalog::AI_FEDERATION_FAILURES, &[&*self.listener, &server.name, reason]);
        self.left_out.borrow_mut().entry((server.name.clone(), reason)).or_insert_with(make).inc();
        if let Some(log) = &self.log {
            log.push(LogEvent::Upstream(UpstreamEvent {
                at: turn::now(),
                upstream: upstream.clone(),
                endpoint: format!("mcp/{}", server.name).into(),
                change: UpstreamChange::LeftOut,
                reason,
                detail: None,
                suppressed: 0,
            }));
        }
    }

    /// Counts a message, or a request without one, that goes to a server. `word`: a method or another fixed word.
    pub(crate) fn sent(&self, protocol: AgentProtocol, server: &Arc<str>, word: &'static str) {
        let labels = [&*self.listener, protocol.name(), server, word];
        let make = || self.core.counter(&catalog::AI_AGENT_MESSAGES, &labels);
        self.messages.borrow_mut().entry(((protocol, server.clone()), word)).or_insert_with(make).inc();
    }

    /// Records a call that is over.
    pub(crate) fn called(&self, server: &AgentServer, took: Duration) {
        let labels = [&*self.listener, server.protocol.name(), &server.name];
        let make = || self.core.histogram(&catalog::AI_AGENT_CALLS, &labels);
        self.calls.borrow_mut().entry(key(server)).or_insert_with(make).record(took.as_nanos() as u64);
    }
}

fn key(server: &AgentServer) -> CellKey {
    (server.protocol, server.name.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_method_of_a_client_is_no_label() {
        assert_eq!(method_label(AgentProtocol::Mcp, "tools/call"), "tools/call");
        assert_eq!(method_label(AgentProtocol::A2a, "tools/call"), "other");
        assert_eq!(method_label(AgentProtocol::Mcp, "x\r\ny"), "other");
        assert_eq!(Call::of(AgentProtocol::Mcp, "message/send"), None);
        assert_eq!(Call::of(AgentProtocol::A2a, "SendMessage"), Some(Call::Agent));
    }
}
