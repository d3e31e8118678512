//! A request to a server or an agent for the admin API, as the worker remembers it.

use weir_http::filter::ExchangeSummary;
use weir_spend::budget::Day;

use super::AgentFilter;
use crate::{
    agents::account::{Call, MessageRecord},
    recent::{RecentMessage, RecentRequest},
    spend::unix_time,
};

impl AgentFilter {
    /// Remembers a request that was admitted, with its line.
    pub(super) fn remember(&self, record: &MessageRecord, line: Vec<u8>) {
        self.worker.recent.push(RecentRequest {
            ended: unix_time(),
            listener: self.worker.listener.clone(),
            operation: record.call.map_or("", Call::operation),
            provider: None,
            is_stream: false,
            refusal: self.refused,
            message: Some(RecentMessage::new(record.protocol.name(), &record.method)),
            line: line.into(),
            bodies: None,
        });
    }

    /// Remembers a request that the gateway has refused before its admission. Strangers are left out, so that they push out no others.
    pub(super) fn remember_refused(&self, summary: &ExchangeSummary<'_>) {
        let is_stranger = self.worker.ring.is_some() && self.key.is_none();
        if self.refused.is_none() || is_stranger || self.worker.recent.is_off() {
            return;
        }
        let record = self.refused_record();
        let mut line = Vec::new();
        record.write_line(summary, (unix_time(), Day::default()), &mut line);
        self.remember(&record, line);
    }

    /// The record of a request that may have no server, and no message that could be read.
    fn refused_record(&self) -> MessageRecord {
        let request =
            self.target.map(|(_, request)| request).or_else(|| self.federated.as_ref().map(|all| all.request()));
        let record = match (self.server(), self.federation()) {
            (Some(server), _) => self.record(server.protocol, &server.name),
            (None, Some(federation)) => self.record(self.protocol, &federation.name),
            (None, None) => self.record(self.protocol, &"".into()),
        };
        match &self.message {
            Some(message) => self.message_record(record, message),
            None => MessageRecord { method: request.and_then(|one| one.word()).unwrap_or_default().into(), ..record },
        }
    }
}
