//! Failures made on purpose, so that clients can be seen to bear them.

use std::time::Duration;

use weir_http_codec::RequestHead;

use crate::metrics::ListenerMetrics;

/// What befalls the requests of a route. Both may befall one request, the delay first.
#[derive(Clone, Debug, PartialEq)]
pub struct Fault {
    /// A pause before the request goes on, and the share of requests that have it, 0 to 1.
    pub delay: Option<(Duration, f64)>,
    /// A status that is answered instead of the origin's, and the share of requests.
    pub abort: Option<(u16, f64)>,
    /// Only requests that have this field.
    pub field: Option<Box<str>>,
}

impl Fault {
    /// Lets it happen; the status that is answered now, if one is.
    pub(crate) async fn befall(
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
        let befalls = |share: f64| (chance() as f64 / u64::MAX as f64) < share;
        if let Some((delay, share)) = self.delay
            && befalls(share)
        {
            metrics.fault("delay");
            weir_engine::sleep(delay).await;
        }
        let (status, _) = self.abort.filter(|(_, share)| befalls(*share))?;
        metrics.fault("abort");
        Some(status)
    }
}
