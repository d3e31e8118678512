//! The head of a response, as the client gets it.

use std::time::Duration;

use weir_base::time::turn;
use weir_http::filter::ExchangeTiming;
use weir_http_codec::{Fields, Known};
use weir_spend::rate::duration_text;

use super::AiFilter;
use crate::credentials;

impl AiFilter {
    /// Hides the account at the provider, and adds the fields of the gateway.
    pub(super) fn change_response_head(&self, fields: &mut Fields, timing: &ExchangeTiming) {
        if !fields.has(Known::XRequestId) && !self.identity.request.is_empty() {
            fields.set(Known::XRequestId, self.identity.request.as_bytes());
        }
        if let Some(provider) = &self.provider {
            credentials::hide_account(fields, provider);
        }
        self.show_rates(fields);
        self.show_cache(fields);
        let millis = |span: Duration| span.as_secs_f64() * 1_000.0;
        let parts =
            [("policy", timing.policy + timing.request), ("queue", timing.queue), ("upstream", timing.upstream)];
        let parts = parts.map(|(name, span)| format!("{name};dur={:.3}", millis(span)));
        fields.push(b"server-timing", parts.join(", ").as_bytes());
    }

    /// The rates of the key, if it has any. They take the place of those of the provider, which are those of all keys.
    fn show_rates(&self, fields: &mut Fields) {
        let Some(key) = &self.key else { return };
        let rates = self.worker.meter.rates(key, turn::now());
        for (word, state) in [("requests", rates.requests), ("tokens", rates.tokens)] {
            let Some(state) = state else { continue };
            let values = [
                ("limit", state.limit.to_string()),
                ("remaining", state.remaining.to_string()),
                ("reset", duration_text(state.reset)),
            ];
            for (what, value) in values {
                fields.set_named(format!("x-ratelimit-{what}-{word}").as_bytes(), value.as_bytes());
            }
        }
    }
}
