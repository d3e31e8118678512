//! The last call of an exchange for the admin API: its request as the worker remembers it.

use weir_http::filter::ExchangeSummary;
use weir_spend::usage::UsageRecord;

use super::AiFilter;
use crate::{
    account::first_token,
    recent::{RecentRequest, provider_name},
    spend::unix_time,
};

impl AiFilter {
    /// Remembers a request with the line that the usage log gets.
    pub(super) fn remember(&self, line: &[u8]) {
        let recent = &self.worker.recent;
        if recent.is_off() {
            return;
        }
        let facts = self.planned.as_ref().map(|(facts, _)| facts);
        recent.push(RecentRequest {
            ended: unix_time(),
            listener: self.worker.listener.clone(),
            operation: facts.map_or("", |facts| facts.endpoint.operation()),
            provider: self.provider.as_ref().map(|provider| provider_name(provider.dialect)),
            is_stream: facts.is_some_and(|facts| facts.options.is_stream()),
            refusal: self.refused,
            line: line.into(),
        });
    }

    /// Remembers a request that the gateway has refused before its admission. Strangers are left out, so that they push out no others.
    pub(super) fn remember_refused(&self, summary: &ExchangeSummary<'_>) {
        let is_stranger = self.worker.ring.is_some() && self.key.is_none();
        if self.refused.is_none() || is_stranger || self.worker.recent.is_off() {
            return;
        }
        let mut line = Vec::new();
        UsageRecord {
            time: unix_time(),
            status: summary.status,
            tries: self.tries,
            queue: summary.timing.queue,
            first_token: (summary.status != 0).then(|| first_token(&summary.timing)),
            total: summary.timing.total,
            ..self.identity.record()
        }
        .write(&mut line);
        self.remember(&line);
    }
}
