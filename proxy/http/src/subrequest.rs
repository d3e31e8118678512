//! Requests that the gateway makes for itself: whole ones, whose answers it reads to their end.

use std::{rc::Rc, time::Duration};

use weir_base::time::{Time, turn};
use weir_http_codec::{BodyLength, RequestHead, ResponseHead, encode};
use weir_upstream::{Acquired, Link, LossCause, Remains, Tried, Wanted};

use crate::{
    body::{Sink, relay},
    endpoint_responses,
    failure::Failure,
    http2::origin::Http2Origins,
    limits::INTERIM_RESPONSES_MAX,
    metrics::ListenerMetrics,
    origin::{Download as _, Means, Origin, WireOrigin},
    refusal::Refusal,
    response_class::ResponseClass,
    upstream::{HttpLane, HttpUpstream},
    wire::Framing,
};

/// One request.
pub(crate) struct Subrequest<'a> {
    pub(crate) head: &'a RequestHead,
    /// The authority that it is for.
    pub(crate) host: &'a [u8],
    /// All of it.
    pub(crate) body: &'a [u8],
    /// Its answer has no body.
    pub(crate) is_head: bool,
    /// Until the head of the answer is there, once there is a connection.
    pub(crate) timeout: Duration,
    /// How long the body of the answer may pause.
    pub(crate) idle_timeout: Duration,
    /// For all of it. `None`: as long as it takes.
    pub(crate) limit: Option<Duration>,
}

/// A final answer.
pub(crate) struct Answered {
    pub(crate) head: ResponseHead,
    /// The sink has all of its body.
    pub(crate) is_whole: bool,
    /// What is left on the lane; `None`: it ends.
    remains: Option<Remains>,
}

/// Why there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unanswered {
    /// Nobody was asked.
    Unreachable,
    /// Whoever was asked did not answer as it should.
    Failed,
}

impl Subrequest<'_> {
    /// Asks `upstream`; the body of the answer goes into `sink`, as far as that takes it. A request that nobody has seen is made
    /// of each other endpoint, or once more if there is none.
    ///
    /// # Errors
    /// There is no final head.
    pub(crate) async fn ask(
        &self,
        metrics: &ListenerMetrics,
        upstream: &Rc<HttpUpstream>,
        sink: &mut impl Sink,
    ) -> Result<Answered, Unanswered> {
        let ends = self.limit.map(|limit| turn::now().saturating_add(limit));
        let endpoints = upstream.settings().endpoints.len();
        let (mut tried, mut is_repeated, mut wants_fresh) = (Tried::default(), false, false);
        loop {
            let is_fresh = std::mem::take(&mut wants_fresh);
            let wanted = Wanted { avoid: tried.last(), tried: tried.clone(), is_fresh, hash: None };
            let mut lane = match acquire(upstream, wanted, ends).await.ok_or(Unanswered::Unreachable)? {
                Ok(lane) => lane,
                Err((_, Some(number))) => {
                    if tried.failed(number, endpoints) || !std::mem::replace(&mut is_repeated, true) {
                        continue;
                    }
                    return Err(Unanswered::Unreachable);
                }
                Err(_) => return Err(Unanswered::Unreachable),
            };
            let (number, is_reused, begun) = (lane.number(), lane.is_reused(), turn::now());
            let outcome = self.on(&mut lane, metrics, sink, ends).await;
            let is_repeatable = matches!(self.head.method(), b"GET" | b"HEAD") && !is_repeated;
            match outcome {
                Ok(answered) => {
                    let took = turn::now().since(begun);
                    let status = answered.head.status();
                    endpoint_responses::count(upstream, number, ResponseClass::of_status(status), Some(took));
                    endpoint_responses::judge(upstream, number, status, Some(took));
                    match answered.remains {
                        Some(remains) => lane.give_back(remains),
                        None => lane.ends(),
                    }
                    return Ok(answered);
                }
                // The connection was idle, and its other end had closed it.
                Err(Failure::Silent) if is_reused && is_repeatable => {
                    lane.failed(LossCause::Closed);
                    upstream.look_again(number);
                    (is_repeated, wants_fresh) = (true, true);
                }
                Err(Failure::Unseen) if is_repeatable => {
                    lane.ends();
                    is_repeated = !tried.failed(number, endpoints);
                }
                Err(failure) => {
                    upstream.note(number, failure.outcome(lane.open_since()), None);
                    lane.failed(match failure {
                        Failure::Origin(_, cause) => cause,
                        Failure::Connection => LossCause::Violation,
                        _ => LossCause::Closed,
                    });
                    return Err(Unanswered::Failed);
                }
            }
        }
    }

    /// On one lane.
    async fn on(
        &self,
        lane: &mut HttpLane,
        metrics: &ListenerMetrics,
        sink: &mut impl Sink,
        ends: Option<Time>,
    ) -> Result<Answered, Failure> {
        let length = BodyLength::Exact(self.body.len() as u64);
        let (deadline, origin_deadline) = (weir_engine::deadline(), weir_engine::deadline());
        origin_deadline.set(turn::now().saturating_add(self.timeout));
        let means = Means {
            metrics,
            deadline: &deadline,
            origin_deadline: &origin_deadline,
            framing: Framing::Plain,
            answer_idle_timeout: self.idle_timeout,
        };
        match lane.link() {
            Link::Connection(stream) => {
                stream.output.with(|into| encode::request(self.head, self.host, length, into));
                self.exchange(WireOrigin::new(stream), means, sink, ends).await
            }
            Link::Carrier(carrier) => match carrier.ask(self.head, self.host, self.body.is_empty()) {
                Ok(origin) => self.exchange(origin, means, sink, ends).await,
                Err(failure) => Err(failure),
            },
        }
    }

    /// The answer. A body that breaks off or takes too long takes nothing from the head.
    async fn exchange(
        &self,
        mut origin: impl Origin,
        means: Means<'_>,
        sink: &mut impl Sink,
        ends: Option<Time>,
    ) -> Result<Answered, Failure> {
        let (mut upload, mut download) = origin.sides(means);
        let head = async {
            if !self.body.is_empty() {
                upload.last(self.body);
                upload.relieved().await.map_err(Failure::of_origin)?;
            }
            let mut interim = 0;
            loop {
                let head = download.head().await?;
                if !head.is_interim() {
                    return Ok(head);
                }
                interim += 1;
                if interim > INTERIM_RESPONSES_MAX || head.status() == 101 {
                    return Err(Failure::Origin(Refusal::ORIGIN_MALFORMED, LossCause::Violation));
                }
            }
        };
        let too_long = Failure::Origin(Refusal::RESPONSE_TIMEOUT, LossCause::Timeout);
        let head = within(ends, head).await.unwrap_or(Err(too_long))?;
        let length = download.begin(&head, self.is_head);
        let is_whole = length == BodyLength::Exact(0)
            || within(ends, relay(&mut download, sink)).await.is_some_and(|relayed| relayed.is_ok());
        let remains = download.remains().filter(|_| is_whole && head.is_persistent());
        Ok(Answered { head, is_whole, remains })
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
async fn acquire(upstream: &Rc<HttpUpstream>, wanted: Wanted, ends: Option<Time>) -> Option<Acquired<Http2Origins>> {
    let mut acquiring = upstream.acquire(wanted);
    let acquired = within(ends, &mut acquiring).await;
    if acquired.is_none() {
        acquiring.leave();
    }
    acquired
}
