//! Fault injection, to test how clients handle failures.

use std::time::Duration;

use weir_http_codec::RequestHead;

use crate::metrics::ListenerMetrics;

/// Faults of the requests of a route. Both may hit one request, the delay first.
#[derive(Clone, Debug, PartialEq)]
pub struct Fault {
    /// A pause before the request goes on, and the share of requests that have it, 0 to 1.
    pub delay: Option<(Duration, f64)>,
    /// A status in place of the origin's response, and the share of requests.
    pub abort: Option<(u16, f64)>,
    /// Only requests that have this field.
    pub field: Option<Box<str>>,
}

impl Fault {
    /// Injects the fault. Returns the status of the response, if the request is aborted.
    pub(crate) async fn inject(
        &self,
        metrics: &ListenerMetrics,
        chance: impl Fn() -> u64,
        head: &RequestHead,
    ) -> Option<u16> {
        if let Some(name) = &self.field
            && head.fields.all_named(name.as_bytes()).next().is_none()
        {
            return None;
        }
        let is_drawn = |share: f64| (chance() as f64 / u64::MAX as f64) < share;
        if let Some((delay, share)) = self.delay
            && is_drawn(share)
        {
            metrics.fault("delay");
            weir_engine::sleep(delay).await;
        }
        let (status, _) = self.abort.filter(|(_, share)| is_drawn(*share))?;
        metrics.fault("abort");
        Some(status)
    }
}
