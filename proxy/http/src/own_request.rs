//! Requests that filters, and the room of a listener, make themselves.

use std::{rc::Rc, time::Duration};

use futures_util::future::join_all;
use weir_base::{ByteLease, BytesPermit, time::turn};
use weir_engine::Account;
use weir_http_codec::{Known, strip_hop_by_hop};

use crate::{
    body::{BodyError, Sink},
    connection::Connection,
    filter::{FilterRequest, FilterRequestError, FilterRequestOutcome, FilterResponse},
    metrics::ListenerMetrics,
    service::{Routing, Service},
    subrequest::{Subrequest, SubrequestError},
};

impl Service {
    /// Sends a request that belongs to no exchange, such as a poll. It takes a lane of its upstream as any request does.
    ///
    /// # Errors
    /// See [`FilterRequestError`].
    pub async fn send_request(&self, request: FilterRequest) -> FilterRequestOutcome {
        send(&self.metrics, (&self.sessions.core().bytes, None), &self.routing(), request).await
    }

    /// The same for a response without an end in sight: `piece` gets its body as it comes, until it returns false. Returns the status once
    /// the response is over. `idle_timeout`: longest pause in the body; [`FilterRequest::timeout`] bounds the wait for the head alone.
    ///
    /// # Errors
    /// See [`FilterRequestError`]. A body that breaks off is no error.
    pub async fn follow_request(
        &self,
        request: FilterRequest,
        idle_timeout: Duration,
        piece: impl FnMut(&[u8]) -> bool,
    ) -> Result<u16, FilterRequestError> {
        let FilterRequest { upstream, endpoint, host, head, body, is_repeatable, timeout, .. } = request;
        let routing = self.routing();
        let upstream = routing.upstream(&upstream).ok_or(FilterRequestError::Unreachable)?;
        let host = host.unwrap_or_else(|| head.authority().into());
        let any = Subrequest::within(timeout, &head, &host, &body);
        let subrequest = Subrequest { endpoint, is_repeatable, idle_timeout, limit: None, ..any };
        let mut followed = FollowedBody { piece, is_over: false };
        let response = subrequest.send(&self.metrics, upstream, &mut followed).await?;
        Ok(response.head.status())
    }
}

/// A body that goes on piece by piece.
struct FollowedBody<F> {
    piece: F,
    is_over: bool,
}

impl<F: FnMut(&[u8]) -> bool> Sink for FollowedBody<F> {
    fn data(&mut self, data: &[u8]) {
        self.is_over = self.is_over || !(self.piece)(data);
    }

    fn end(&mut self, _: Option<&weir_http_codec::Fields>) {}

    async fn ready(&mut self) -> Result<(), BodyError> {
        if self.is_over { Err(BodyError::TooLong) } else { Ok(()) }
    }
}

/// Sends all of them at once. Their outcomes stand in the same order.
pub(crate) async fn send_all(
    connection: &Connection,
    routing: &Routing,
    requests: Vec<FilterRequest>,
) -> Vec<FilterRequestOutcome> {
    let service = &connection.service;
    let lease = &service.sessions.core().bytes;
    let account = connection.handle.account();
    let send = |request| send(&service.metrics, (lease, Some(account.clone())), routing, request);
    join_all(requests.into_iter().map(send)).await
}

async fn send(
    metrics: &ListenerMetrics,
    (lease, account): (&ByteLease, Option<Rc<dyn Account>>),
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
    let subrequest = Subrequest { endpoint, is_repeatable, account, ..any };
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
        (Err(error), _) => Err(error.into()),
    }
}

impl From<SubrequestError> for FilterRequestError {
    fn from(error: SubrequestError) -> Self {
        match error {
            SubrequestError::Unreachable => Self::Unreachable,
            SubrequestError::Failed => Self::Failed,
        }
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
