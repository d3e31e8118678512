//! An exchange for the admin API: its bodies, if they are kept, and its request as the worker remembers it.

use weir_base::Secret;
use weir_http::filter::{ExchangeSummary, SeenBody, Tap};
use weir_http_codec::RequestHead;
use weir_spend::usage::UsageRecord;

use super::AiFilter;
use crate::{
    account::first_token,
    credentials,
    recent::{BodyCapture, RecentRequest, provider_name},
    spend::unix_time,
};

impl AiFilter {
    /// Keeps the body of the request, if the listener wants so, and no call before this one has.
    pub(super) fn begin_bodies(&mut self, head: &RequestHead, seen: SeenBody<'_>) {
        let (worker, most) = (&self.worker, self.worker.settings.recent_body_bytes_max);
        if most == 0 || self.planned.is_none() || worker.recent.is_off() || self.bodies.get_mut().is_some() {
            return;
        }
        let key = credentials::of_client(&head.fields);
        let capture = BodyCapture::begin(&worker.recent, most, seen.bytes, key);
        self.bodies.set(capture.map(Box::new));
    }

    /// A response begins: how it is tapped, so that its body is seen.
    pub(super) fn begin_response_body(&mut self, tap: Tap) -> Tap {
        let Some(bodies) = self.bodies.get_mut() else { return tap };
        bodies.begin_response();
        if tap == Tap::No { Tap::Follow } else { tap }
    }

    /// The response so far does not reach the client.
    pub(super) fn drop_response_body(&mut self) {
        if let Some(bodies) = self.bodies.get_mut() {
            bodies.begin_response();
        }
    }

    /// Keeps a piece of the response, as the client gets it.
    pub(super) fn keep_body(&mut self, piece: &[u8]) {
        if let Some(bodies) = self.bodies.get_mut() {
            bodies.push(piece);
        }
    }

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
            message: None,
            line: line.into(),
            bodies: self.bodies.take().map(|bodies| bodies.finish(&self.provider_keys())),
        });
    }

    /// The keys of all providers of the listener: a response of the cache, or of an earlier attempt, may have another than the last one.
    fn provider_keys(&self) -> Vec<&[u8]> {
        self.worker.providers.iter().filter_map(|provider| provider.api_key.as_ref()).map(Secret::expose).collect()
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
