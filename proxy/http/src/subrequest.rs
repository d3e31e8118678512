//! Requests that the gateway makes for itself: whole ones, whose answers it reads to their end.

use std::{rc::Rc, time::Duration};

use weir_base::time::turn;
use weir_http_codec::{BodyLength, RequestHead, ResponseHead, ResponseParser, encode};
use weir_upstream::{Link, LossCause, Wanted};

use crate::{
    attempt::Failure,
    origin::{Download as _, Means, Origin, WireOrigin},
    refusal::Refusal,
    relay::{Broken, Sink, relay},
    service::{HttpLane, HttpUpstream, Service},
    settings::INTERIM_RESPONSES_MAX,
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
    /// For a connection, and again for all of the answer. `None`: as long as it takes.
    pub(crate) limit: Option<Duration>,
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
    /// once more, of another endpoint if there is one.
    ///
    /// # Errors
    /// There is no answer, or not all of one.
    pub(crate) async fn ask(
        &self,
        service: &Service,
        upstream: &Rc<HttpUpstream>,
        sink: &mut impl Sink,
    ) -> Result<ResponseHead, Unanswered> {
        let mut avoid = None;
        for is_last in [false, true] {
            let acquired = self.within(upstream.acquire(Wanted { avoid, ..Wanted::default() })).await;
            let mut lane = match acquired.ok_or(Unanswered::Unreachable)? {
                Ok(lane) => lane,
                Err((_, Some(number))) if !is_last => {
                    upstream.note(number, false, None);
                    avoid = Some(number);
                    continue;
                }
                Err(_) => return Err(Unanswered::Unreachable),
            };
            let (number, is_reused, begun) = (lane.number(), lane.is_reused(), turn::now());
            let outcome = self.within(self.on(&mut lane, service, sink)).await;
            let is_repeatable = matches!(self.head.method(), b"GET" | b"HEAD") && !is_last;
            match outcome {
                Some(Ok((head, keeps_lane))) => {
                    upstream.note(number, !upstream.is_failure(head.status()), Some(turn::now().since(begun)));
                    if keeps_lane {
                        lane.give_back()
                    } else {
                        lane.ends()
                    }
                    return Ok(head);
                }
                // The connection was idle, and its other end had closed it.
                Some(Err(Failure::Silent)) if is_reused && is_repeatable => lane.failed(LossCause::Closed),
                Some(Err(Failure::Unseen)) if is_repeatable => lane.ends(),
                failed => {
                    upstream.note(number, false, None);
                    lane.failed(match failed {
                        None => LossCause::Timeout,
                        Some(Err(Failure::Origin(_, cause))) => cause,
                        Some(_) => LossCause::Closed,
                    });
                    return Err(Unanswered::Failed);
                }
            }
        }
        Err(Unanswered::Failed)
    }

    /// `None`: it took too long.
    async fn within<T>(&self, wait: impl Future<Output = T>) -> Option<T> {
        match self.limit {
            Some(limit) => weir_engine::timeout(limit, wait).await.ok(),
            None => Some(wait.await),
        }
    }

    /// On one lane; whether that may carry another exchange.
    async fn on(
        &self,
        lane: &mut HttpLane,
        service: &Service,
        sink: &mut impl Sink,
    ) -> Result<(ResponseHead, bool), Failure> {
        let length = BodyLength::Exact(self.body.len() as u64);
        let (deadline, origin_deadline) = (weir_engine::deadline(), weir_engine::deadline());
        origin_deadline.set(turn::now().saturating_add(self.timeout));
        let mut parser = ResponseParser::new();
        let means = Means {
            metrics: &service.metrics,
            deadline: &deadline,
            origin_deadline: &origin_deadline,
            parser: &mut parser,
            framing: Framing::Plain,
            body_idle_timeout: self.idle_timeout,
        };
        match lane.link() {
            Link::Connection(stream) => {
                stream.output.with(|into| encode::request(self.head, self.host, length, into));
                self.exchange(WireOrigin::new(stream), means, sink).await
            }
            Link::Carrier(carrier) => match carrier.ask(self.head, self.host, self.body.is_empty()) {
                Ok(origin) => self.exchange(origin, means, sink).await,
                Err(failure) => Err(failure),
            },
        }
    }

    /// The answer, and whether the lane may carry another exchange.
    async fn exchange(
        &self,
        mut origin: impl Origin,
        means: Means<'_>,
        sink: &mut impl Sink,
    ) -> Result<(ResponseHead, bool), Failure> {
        let (mut upload, mut download) = origin.sides(means);
        if !self.body.is_empty() {
            upload.last(self.body);
            upload.relieved().await.map_err(Failure::of_origin)?;
        }
        let mut interim = 0;
        let head = loop {
            let head = download.head().await?;
            if !head.is_interim() {
                break head;
            }
            interim += 1;
            if interim > INTERIM_RESPONSES_MAX || head.status() == 101 {
                return Err(Failure::Origin(Refusal::ORIGIN_MALFORMED, LossCause::Violation));
            }
        };
        let length = head.body(self.is_head);
        download.begin(length);
        if length != BodyLength::Exact(0) {
            match relay(&mut download, sink).await {
                Ok(()) => {}
                // Nobody wants the rest; the head says enough.
                Err(Broken::TooLong) => return Ok((head, false)),
                Err(broken) => return Err(Failure::of_origin(broken)),
            }
        }
        let keeps_lane = head.is_persistent() && download.is_clean();
        Ok((head, keeps_lane))
    }
}
