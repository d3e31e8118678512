//! Requests that the gateway makes for itself: whole ones, whose answers it reads to their end.

use std::{rc::Rc, time::Duration};

use weir_base::time::turn;
use weir_http_codec::{BodyLength, RequestHead, ResponseHead, ResponseParser, encode};
use weir_upstream::{Link, LossCause, Wanted};

use crate::{
    attempt::Failure,
    origin::{Download as _, Means, Origin, WireOrigin},
    refusal::Refusal,
    relay::{Sink, relay},
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
    /// Asks `upstream`; the body of the answer goes into `sink`.
    ///
    /// # Errors
    /// There is no answer, or not all of one.
    pub(crate) async fn ask(
        &self,
        service: &Service,
        upstream: &Rc<HttpUpstream>,
        sink: &mut impl Sink,
    ) -> Result<ResponseHead, Unanswered> {
        let mut lane = upstream.acquire(Wanted::default()).await.map_err(|_| Unanswered::Unreachable)?;
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
        let outcome = match lane.link() {
            Link::Connection(stream) => {
                stream.output.with(|into| encode::request(self.head, self.host, length, into));
                self.exchange(WireOrigin::new(stream), means, sink).await
            }
            Link::Carrier(carrier) => match carrier.ask(self.head, self.host, self.body.is_empty()) {
                Ok(origin) => self.exchange(origin, means, sink).await,
                Err(failure) => Err(failure),
            },
        };
        finish(lane, outcome)
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
            relay(&mut download, sink).await.map_err(Failure::of_origin)?;
        }
        let keeps_lane = head.is_persistent() && download.is_clean();
        Ok((head, keeps_lane))
    }
}

fn finish(mut lane: HttpLane, outcome: Result<(ResponseHead, bool), Failure>) -> Result<ResponseHead, Unanswered> {
    let failure = match outcome {
        Ok((head, true)) => {
            lane.give_back();
            return Ok(head);
        }
        Ok((head, false)) => {
            lane.ends();
            return Ok(head);
        }
        Err(failure) => failure,
    };
    match failure {
        Failure::Origin(_, cause) => lane.failed(cause),
        _ => lane.failed(LossCause::Closed),
    }
    Err(Unanswered::Failed)
}
