//! Copies of requests, sent to a second upstream. Nobody waits for them, and what they are answered goes nowhere.

use std::{cell::RefCell, rc::Rc};

use weir_base::time::turn;
use weir_http_codec::{BodyLength, RequestHead, ResponseParser, encode};
use weir_upstream::{Link, LossCause, Wanted};

use crate::{
    attempt::Failure,
    connection::Connection,
    exchange::Asked,
    origin::{Download as _, Means, Origin, WireOrigin},
    relay::{Copied, Nowhere, Sink as _, relay},
    routes::Mirror,
    routing::Routed,
    service::{HttpLane, HttpUpstream, Service},
    settings::INTERIM_RESPONSES_MAX,
    wire::Framing,
};

/// Copies under way on one worker of a listener; more are not made. As many exchanges as a second upstream can be expected to bear
/// unasked.
const MIRRORS_MAX: u32 = 256;

/// What is added to the host, so that the second upstream can tell copies: as Envoy does.
const SUFFIX: &[u8] = b"-shadow";

/// A copy that is being made.
pub(crate) struct Copying {
    upstream: Rc<HttpUpstream>,
    head: RequestHead,
    host: Vec<u8>,
    /// Of the body.
    pub(crate) body: RefCell<Copied>,
}

impl Copying {
    /// Of a request that is about to go on, if its route wants one of it.
    pub(crate) fn of(
        connection: &Connection,
        mirror: &Mirror,
        upstream: &Rc<HttpUpstream>,
        head: &RequestHead,
        host: &[u8],
    ) -> Option<Rc<Self>> {
        let service = &connection.service;
        if (service.chance() as f64 / u64::MAX as f64) >= mirror.share {
            return None;
        }
        if service.mirrors.get() >= MIRRORS_MAX {
            service.metrics.mirrored("in_flight");
            return None;
        }
        let mut shadow = host.to_vec();
        // In front of the port, if there is one.
        let colon =
            host.iter().rposition(|byte| *byte == b':').filter(|at| host[at + 1..].iter().all(u8::is_ascii_digit));
        let at = colon.unwrap_or(host.len());
        shadow.splice(at..at, SUFFIX.iter().copied());
        let body = RefCell::new(Copied::new(mirror.body_bytes_max));
        Some(Rc::new(Self { upstream: upstream.clone(), head: head.clone(), host: shadow, body }))
    }

    /// The request has gone to its end: the copy goes too.
    pub(crate) fn send(self: Rc<Self>, connection: &Connection, asked: &Asked, routed: &Routed<'_>) {
        let service = connection.service.clone();
        let copied = self.body.borrow_mut().take();
        let Some(body) = copied else { return service.metrics.mirrored("body_too_long") };
        let settings = service.http();
        let timeout = routed.action.response_timeout.unwrap_or(settings.response_timeout);
        let (idle_timeout, is_head) = (asked.body_idle_timeout, asked.is_head);
        service.mirrors.set(service.mirrors.get() + 1);
        weir_engine::spawn(async move {
            let _under_way = UnderWay(service.clone());
            let Ok(mut lane) = self.upstream.acquire(Wanted::default()).await else {
                return service.metrics.mirrored("unreachable");
            };
            let length = BodyLength::Exact(body.len() as u64);
            let (deadline, origin_deadline, mut parser) =
                (weir_engine::deadline(), weir_engine::deadline(), ResponseParser::new());
            origin_deadline.set(turn::now().saturating_add(timeout));
            let means = Means {
                metrics: &service.metrics,
                deadline: &deadline,
                origin_deadline: &origin_deadline,
                parser: &mut parser,
                framing: Framing::Plain,
                body_idle_timeout: idle_timeout,
            };
            let outcome = match lane.link() {
                Link::Connection(stream) => {
                    stream.output.with(|into| encode::request(&self.head, &self.host, length, into));
                    exchange(WireOrigin::new(stream), means, &body, is_head).await
                }
                Link::Carrier(carrier) => match carrier.ask(&self.head, &self.host, body.is_empty()) {
                    Ok(origin) => exchange(origin, means, &body, is_head).await,
                    Err(failure) => Err(failure),
                },
            };
            service.metrics.mirrored(if outcome.is_ok() { "ok" } else { "failed" });
            finish(lane, outcome);
        })
        .detach();
    }
}

/// Asks, and reads the answer to its end; whether the lane may carry another exchange.
async fn exchange(mut origin: impl Origin, means: Means<'_>, body: &[u8], is_head: bool) -> Result<bool, Failure> {
    let (mut upload, mut download) = origin.sides(means);
    if !body.is_empty() {
        upload.last(body);
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
            return Ok(false);
        }
    };
    let length = head.body(is_head);
    download.begin(length);
    if length != BodyLength::Exact(0) {
        relay(&mut download, &mut Nowhere).await.map_err(Failure::of_origin)?;
    }
    Ok(head.is_persistent() && download.is_clean())
}

fn finish(mut lane: HttpLane, outcome: Result<bool, Failure>) {
    match outcome {
        Ok(true) => lane.give_back(),
        Ok(false) => lane.ends(),
        Err(Failure::Origin(_, cause)) => lane.failed(cause),
        Err(_) => lane.failed(LossCause::Closed),
    }
}

struct UnderWay(Rc<Service>);

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.mirrors.set(self.0.mirrors.get() - 1);
    }
}
