//! The responses of an endpoint: counted, and judged for its passive health.

use std::time::Duration;

use weir_telemetry::{CoreMetrics, Counter, Histogram, catalog};
use weir_upstream::{Answered, Outcome};

use crate::upstream::HttpUpstream;

/// By the first digit of their status, from 1 on.
const CLASSES: [&str; 5] = ["1xx", "2xx", "3xx", "4xx", "5xx"];

/// The cells of the responses of one endpoint on one worker.
struct EndpointResponses {
    classes: [Counter; CLASSES.len()],
    first_byte: Histogram,
}

impl EndpointResponses {
    fn new(core: &CoreMetrics, [upstream, endpoint]: [&str; 2]) -> Self {
        let class = |class| core.counter(&catalog::HTTP_UPSTREAM_RESPONSES, &[upstream, endpoint, class]);
        Self {
            classes: CLASSES.map(class),
            first_byte: core.histogram(&catalog::HTTP_UPSTREAM_FIRST_BYTE, &[upstream, endpoint]),
        }
    }
}

/// Endpoint number `number` of `upstream` has responded with `status`; `took`: from the end of the request to the beginning of the
/// response.
pub(crate) fn note(upstream: &HttpUpstream, number: usize, status: u16, took: Option<Duration>) {
    let cells = upstream.own_metrics(number, EndpointResponses::new);
    if let Some(cell) = cells.classes.get(usize::from(status / 100).wrapping_sub(1)) {
        cell.inc();
    }
    if let Some(took) = took {
        cells.first_byte.record(took.as_nanos() as u64);
    }
    upstream.note(number, Outcome::Answered(judge(status)), took);
}

/// What a status says of the endpoint: 502, 503 and 504 are those of a gateway or of a server that cannot serve (RFC 9110 section 15.6).
const fn judge(status: u16) -> Answered {
    match status {
        502..=504 => Answered::Unavailable,
        500.. => Answered::ApplicationError,
        _ => Answered::Well,
    }
}
