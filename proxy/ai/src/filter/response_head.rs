//! The head of a response, as the client gets it.

use weir_base::time::turn;
use weir_http::filter::ExchangeTiming;
use weir_http_codec::{Fields, Known};

use super::AiFilter;
use crate::{added_fields, credentials};

impl AiFilter {
    /// Hides the account at the provider, and adds the fields of the gateway.
    pub(super) fn change_response_head(&self, fields: &mut Fields, timing: &ExchangeTiming) {
        if !fields.has(Known::XRequestId) && !self.identity.request.is_empty() {
            fields.set(Known::XRequestId, self.identity.request.as_bytes());
        }
        if let Some(provider) = &self.provider {
            credentials::hide_account(fields, provider);
        }
        if let Some(key) = &self.key {
            added_fields::show_rates(&self.worker.meter.rates(key, turn::now()), fields);
        }
        self.show_cache(fields);
        added_fields::show_timing(timing, fields);
    }
}
