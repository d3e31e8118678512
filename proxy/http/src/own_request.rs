//! Requests that filters make themselves.

use std::rc::Rc;

use futures_util::future::join_all;
use weir_base::{ByteLease, BytesPermit, time::turn};
use weir_engine::Account;
use weir_http_codec::{Known, strip_hop_by_hop};

use crate::{
    body::{BodyError, Sink},
    connection::Connection,
    filter::{FilterRequest, FilterRequestError, FilterRequestOutcome, FilterResponse},
    metrics::ListenerMetrics,
    service::Routing,
    subrequest::{Subrequest, SubrequestError},
};

/// Sends all of them at once. Their outcomes stand in the same order.
pub(crate) async fn send_all(
    connection: &Connection,
    routing: &Routing,
    requests: Vec<FilterRequest>,
) -> Vec<FilterRequestOutcome> {
    let service = &connection.service;
    let lease = &service.sessions.core().bytes;
    let account = connection.handle.account();
    let send = |request| send(&service.metrics, (lease, account.clone()), routing, request);
    join_all(requests.into_iter().map(send)).await
}

async fn send(
    metrics: &ListenerMetrics,
    (lease, account): (&ByteLease, Rc<dyn Account>),
    routing: &Routing,
    request: FilterRequest,
) -> FilterRequestOutcome {
    let FilterRequest { upstream, endpoint, host, mut head, body, is_repeatable, timeout, response_bytes_max } =
        request;
    let upstream = routing.upstream(&upstream).ok_or(FilterRequestError::Unreachable)?;
    // The framing is that of the new body.
    strip_hop_by_hop(&mut head.fields);
    head.fields.remove(Known::ContentLength);
    let host = host.unwrap_or_else(|| head.authority().into());
    let mut held = HeldBody { bytes: Vec::new(), most: response_bytes_max, permit: lease.empty(), broken: None };
    let any = Subrequest::within(timeout, &head, &host, &body);
    let subrequest = Subrequest { endpoint, is_repeatable, account: Some(account), ..any };
    let begun = turn::now();
    let sent = subrequest.send(metrics, upstream, &mut held).await;
    match (sent, held) {
        (_, HeldBody { broken: Some(error), .. }) => Err(error),
        (Ok(response), HeldBody { bytes, permit, .. }) => Ok(FilterResponse {
            endpoint: response.endpoint,
            status: response.head.status(),
            fields: response.head.fields,
            body: bytes,
            is_whole: response.is_whole,
            took: turn::now().since(begun),
            _permit: permit,
        }),
        (Err(SubrequestError::Unreachable), _) => Err(FilterRequestError::Unreachable),
        (Err(SubrequestError::Failed), _) => Err(FilterRequestError::Failed),
    }
}

/// The body of a response, which is charged as it comes.
struct HeldBody {
    bytes: Vec<u8>,
    most: usize,
    permit: BytesPermit,
    broken: Option<FilterRequestError>,
}

impl Sink for HeldBody {
    fn data(&mut self, data: &[u8]) {
        if self.broken.is_some() {
            return;
        }
        let is_too_long = data.len() > self.most - self.bytes.len();
        if is_too_long || !self.permit.grow(data.len() as u64) {
            self.broken = Some(if is_too_long { FilterRequestError::TooLong } else { FilterRequestError::NoRoom });
            self.bytes = Vec::new();
            let _ = self.permit.resize(0);
        } else {
            self.bytes.extend_from_slice(data);
        }
    }

    fn end(&mut self, _: Option<&weir_http_codec::Fields>) {}

    async fn ready(&mut self) -> Result<(), BodyError> {
        if self.broken.is_some() { Err(BodyError::TooLong) } else { Ok(()) }
    }
}
