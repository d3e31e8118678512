//! The responses of an endpoint: counted, and judged for its passive health.

use std::time::Duration;

use weir_telemetry::{CoreMetrics, Histogram, catalog};
use weir_upstream::{ExchangeOutcome, ResponseVerdict};

use crate::{
    response_class::{ByClass, ResponseClass},
    upstream::HttpUpstream,
};

/// The cells of the responses of one endpoint on one worker.
struct EndpointResponses {
    classes: ByClass,
    first_byte: Histogram,
}

impl EndpointResponses {
    fn new(core: &CoreMetrics, [upstream, endpoint]: [&str; 2]) -> Self {
        let class = |class| core.counter(&catalog::HTTP_UPSTREAM_RESPONSES, &[upstream, endpoint, class]);
        Self {
            classes: ByClass::new(class),
            first_byte: core.histogram(&catalog::HTTP_UPSTREAM_FIRST_BYTE, &[upstream, endpoint]),
        }
    }
}

/// Counts a response of endpoint number `number` of `upstream`; `took`: from the end of the request to the beginning of the response.
pub(crate) fn count(upstream: &HttpUpstream, number: usize, class: ResponseClass, took: Option<Duration>) {
    let cells = upstream.own_metrics(number, EndpointResponses::new);
    cells.classes.inc(class);
    if let Some(took) = took {
        cells.first_byte.record(took.as_nanos() as u64);
    }
}

/// Judges an endpoint by a response with `status` that came to its end. `took` as in [`count`].
pub(crate) fn judge(upstream: &HttpUpstream, number: usize, status: u16, took: Option<Duration>) {
    upstream.note(number, ExchangeOutcome::Responded(judgement(status)), took);
}

/// The health that a status shows: 502, 503 and 504 are those of a gateway or of a server that cannot serve (RFC 9110 section 15.6).
const fn judgement(status: u16) -> ResponseVerdict {
    match status {
        502..=504 => ResponseVerdict::Unavailable,
        500.. => ResponseVerdict::ApplicationError,
        _ => ResponseVerdict::Well,
    }
}
