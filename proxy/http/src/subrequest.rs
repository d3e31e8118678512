//! Requests that the gateway makes for itself: whole ones, whose responses it reads to their end.

use std::{rc::Rc, time::Duration};

use weir_base::time::{Time, turn};
use weir_engine::Account;
use weir_http_codec::{BodyLength, RequestHead, ResponseHead, encode};
use weir_upstream::{Acquired, Link, LossCause, Remains, SelectionCriteria, TriedEndpoints};

use crate::{
    body::{Sink, relay},
    endpoint_responses,
    failure::AttemptFailure,
    http1_body::Framing,
    http2::origin::Http2Multiplexer,
    limits::{BODY_PIECE_BYTES, INTERIM_RESPONSES_MAX},
    metrics::ListenerMetrics,
    origin::{AttemptContext, Download as _, Http1Origin, Origin},
    refusal::Refusal,
    response_class::ResponseClass,
    upstream::{HttpLane, HttpUpstream},
};

/// One request.
pub(crate) struct Subrequest<'a> {
    pub(crate) head: &'a RequestHead,
    /// The authority that it is for.
    pub(crate) host: &'a [u8],
    /// All of it.
    pub(crate) body: &'a [u8],
    /// Its response has no body.
    pub(crate) is_head: bool,
    /// No other endpoint than this one.
    pub(crate) endpoint: Option<usize>,
    /// An origin may get it twice, as a GET may be.
    pub(crate) is_repeatable: bool,
    /// Until the head of the response, once there is a connection.
    pub(crate) timeout: Duration,
    /// Longest pause in the body of the response.
    pub(crate) idle_timeout: Duration,
    /// For all of it. `None`: as long as it takes.
    pub(crate) limit: Option<Duration>,
    /// Charged with the bytes that wait on a connection of its own. `None`: it has no body to speak of.
    pub(crate) account: Option<Rc<dyn Account>>,
}

/// A final response.
pub(crate) struct SubrequestResponse {
    /// The endpoint that has responded.
    pub(crate) endpoint: usize,
    pub(crate) head: ResponseHead,
    /// The sink has all of its body.
    pub(crate) is_whole: bool,
}

/// The response that has come on a lane.
struct Received {
    head: ResponseHead,
    is_whole: bool,
    /// The state of the lane; `None`: it ends.
    remains: Option<Remains>,
}

/// The reason why there is no response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SubrequestError {
    /// No origin could be reached.
    Unreachable,
    /// The origin did not respond as it should.
    Failed,
}

impl<'a> Subrequest<'a> {
    /// One to any endpoint, whose response is here within this time.
    pub(crate) fn within(limit: Duration, head: &'a RequestHead, host: &'a [u8], body: &'a [u8]) -> Self {
        let (timeout, idle_timeout) = (limit, limit);
        let (is_head, endpoint, is_repeatable, limit, account) = (false, None, false, Some(limit), None);
        Self { head, host, body, is_head, endpoint, is_repeatable, timeout, idle_timeout, limit, account }
    }

    /// Sends it to `upstream`; the body of the response goes into `sink`, as far as that takes it. A request that no origin has seen goes
    /// to each other endpoint, or once more if there is none.
    ///
    /// # Errors
    /// There is no final head.
    pub(crate) async fn send(
        &self,
        metrics: &ListenerMetrics,
        upstream: &Rc<HttpUpstream>,
        sink: &mut impl Sink,
    ) -> Result<SubrequestResponse, SubrequestError> {
        let ends = self.limit.map(|limit| turn::now().saturating_add(limit));
        let endpoints = if self.endpoint.is_some() { 1 } else { upstream.settings().endpoints.len() };
        let (mut tried, mut is_repeated, mut wants_fresh) = (TriedEndpoints::default(), false, false);
        loop {
            let is_fresh = std::mem::take(&mut wants_fresh);
            let wanted = SelectionCriteria {
                avoid: tried.last(),
                tried: tried.clone(),
                is_fresh,
                only: self.endpoint,
                ..SelectionCriteria::default()
            };
            let mut lane = match acquire(upstream, wanted, ends).await.ok_or(SubrequestError::Unreachable)? {
                Ok(lane) => lane,
                Err((_, Some(number))) => {
                    if tried.failed(number, endpoints) || !std::mem::replace(&mut is_repeated, true) {
                        continue;
                    }
                    return Err(SubrequestError::Unreachable);
                }
                Err(_) => return Err(SubrequestError::Unreachable),
            };
            let (number, is_reused, begun) = (lane.number(), lane.is_reused(), turn::now());
            let outcome = self.send_on(&mut lane, metrics, sink, ends).await;
            let is_safe = self.is_repeatable || matches!(self.head.method(), b"GET" | b"HEAD");
            match outcome {
                Ok(Received { head, is_whole, remains }) => {
                    let (took, status) = (turn::now().since(begun), head.status());
                    endpoint_responses::count(upstream, number, ResponseClass::of_status(status), Some(took));
                    endpoint_responses::judge(upstream, number, status, Some(took));
                    match remains {
                        Some(remains) => lane.give_back(remains),
                        None => lane.ends(),
                    }
                    return Ok(SubrequestResponse { endpoint: number, head, is_whole });
                }
                // The connection was idle, and its peer had closed it.
                Err(AttemptFailure::NoResponse) if is_reused && is_safe && !is_repeated => {
                    lane.failed(LossCause::Closed);
                    upstream.look_again(number);
                    (is_repeated, wants_fresh) = (true, true);
                }
                // It is no fault of the endpoint, and the body is whole: any method may be sent again.
                Err(AttemptFailure::NotProcessed | AttemptFailure::Drained) => {
                    if !tried.failed(number, endpoints) && std::mem::replace(&mut is_repeated, true) {
                        lane.failed(LossCause::Closed);
                        return Err(SubrequestError::Failed);
                    }
                    lane.ends();
                }
                Err(failure) => {
                    upstream.note(number, failure.outcome(lane.open_since()), None);
                    lane.failed(match failure {
                        AttemptFailure::Origin(_, cause) => cause,
                        AttemptFailure::Connection => LossCause::Violation,
                        _ => LossCause::Closed,
                    });
                    return Err(SubrequestError::Failed);
                }
            }
        }
    }

    /// On one lane.
    async fn send_on(
        &self,
        lane: &mut HttpLane,
        metrics: &ListenerMetrics,
        sink: &mut impl Sink,
        ends: Option<Time>,
    ) -> Result<Received, AttemptFailure> {
        if let Some(account) = &self.account {
            lane.charge_to(account.clone());
        }
        let length = BodyLength::Exact(self.body.len() as u64);
        let (deadline, origin_deadline) = (weir_engine::deadline(), weir_engine::deadline());
        origin_deadline.set(turn::now().saturating_add(self.timeout));
        let attempt = AttemptContext {
            metrics,
            deadline: &deadline,
            origin_deadline: &origin_deadline,
            framing: Framing::Plain,
            response_idle_timeout: self.idle_timeout,
        };
        match lane.link() {
            Link::Connection(stream) => {
                stream.output.with(|into| encode::request(self.head, self.host, length, into));
                self.exchange(Http1Origin::new(stream), attempt, sink, ends).await
            }
            Link::Carrier(carrier) => match carrier.send_request(self.head, self.host, self.body.is_empty()) {
                Ok(origin) => self.exchange(origin, attempt, sink, ends).await,
                Err(failure) => Err(failure),
            },
        }
    }

    /// Reads the response. A body that breaks off or takes too long leaves the head valid.
    async fn exchange(
        &self,
        mut origin: impl Origin,
        attempt: AttemptContext<'_>,
        sink: &mut impl Sink,
        ends: Option<Time>,
    ) -> Result<Received, AttemptFailure> {
        let (mut upload, mut download) = origin.split(attempt);
        let head = async {
            let mut rest = self.body;
            while !rest.is_empty() {
                let (piece, behind) = rest.split_at(rest.len().min(BODY_PIECE_BYTES));
                rest = behind;
                if rest.is_empty() {
                    upload.last(piece)
                } else {
                    upload.data(piece)
                }
                upload.ready().await.map_err(AttemptFailure::of_origin)?;
            }
            let mut interim = 0;
            loop {
                let head = download.head().await?;
                if !head.is_interim() {
                    return Ok(head);
                }
                interim += 1;
                if interim > INTERIM_RESPONSES_MAX || head.status() == 101 {
                    return Err(AttemptFailure::Origin(Refusal::ORIGIN_MALFORMED, LossCause::Violation));
                }
            }
        };
        let too_long = AttemptFailure::Origin(Refusal::RESPONSE_TIMEOUT, LossCause::Timeout);
        let head = within(ends, head).await.unwrap_or(Err(too_long))?;
        let length = download.begin(&head, self.is_head);
        let is_whole = length == BodyLength::Exact(0)
            || within(ends, relay(&mut download, sink)).await.is_some_and(|relayed| relayed.is_ok());
        let remains = download.remains().filter(|_| is_whole && head.is_persistent());
        Ok(Received { head, is_whole, remains })
    }
}

/// `None`: it took too long.
async fn within<T>(ends: Option<Time>, wait: impl Future<Output = T>) -> Option<T> {
    match ends {
        Some(ends) => weir_engine::timeout(ends.since(turn::now()), wait).await.ok(),
        None => Some(wait.await),
    }
}

/// A lane, or the number of the endpoint that gave none. `None`: it took too long.
async fn acquire(
    upstream: &Rc<HttpUpstream>,
    wanted: SelectionCriteria,
    ends: Option<Time>,
) -> Option<Acquired<Http2Multiplexer>> {
    let mut acquiring = upstream.acquire(wanted);
    let acquired = within(ends, &mut acquiring).await;
    if acquired.is_none() {
        acquiring.leave();
    }
    acquired
}
