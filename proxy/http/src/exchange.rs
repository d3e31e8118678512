//! One request and its answer.

use std::{
    cell::{Cell, OnceCell},
    future::poll_fn,
    pin::pin,
    rc::Rc,
    task::Poll,
    time::Duration,
};

use weir_base::{
    limits,
    time::{Time, turn},
};
use weir_http_codec::{BodyDecoder, BodyLength, BodyLimits, Fields, Known, RequestHead, Version, encode, token};
use weir_upstream::{ExclusiveLane, LossCause};

use crate::{
    access::{Notes, Outcome, RouteMetrics},
    answer::Answer,
    connection::{Connection, Front},
    metrics::Timing,
    policies::AnswerFields,
    refusal::Refusal,
    relay::{Broken, Flow, framing_of, receive},
    routes::DirectResponse,
    routing::{Local, Routed, route},
    settings::{DISCARD_BYTES_MAX, DISCARD_TIMEOUT, HttpListenerSettings},
};

/// What happens to the connection after an exchange.
pub(crate) enum After {
    /// It may bring another request.
    Another,
    /// It ends, for this reason.
    Close(&'static str),
}

/// What of a request decides on how it is answered, once its head has been made ready to go on.
pub(crate) struct Asked {
    pub(crate) arrived: Time,
    pub(crate) method: &'static str,
    pub(crate) is_head: bool,
    pub(crate) is_safe_to_repeat: bool,
    pub(crate) version: Version,
    pub(crate) is_persistent: bool,
    pub(crate) expects_continue: bool,
    pub(crate) wants_trailers: bool,
    pub(crate) body: BodyLength,
    /// What policies put into its answer. Empty without policies.
    pub(crate) answer_fields: OnceCell<Box<AnswerFields>>,
    /// If it was chosen for the access log.
    pub(crate) notes: Option<Box<Notes>>,
    /// Cells of its route, if routes are counted.
    pub(crate) route: OnceCell<Rc<RouteMetrics>>,
}

impl Asked {
    fn of(head: &RequestHead) -> Self {
        let wants_trailers = |value| token::list(value).any(|coding| coding.eq_ignore_ascii_case(b"trailers"));
        Self {
            arrived: turn::now(),
            method: method_name(head.method()),
            is_head: head.method() == b"HEAD",
            // Idempotent (RFC 9110 section 9.2.2), and with nothing that would have to be sent again.
            is_safe_to_repeat: matches!(head.method(), b"GET" | b"HEAD" | b"OPTIONS" | b"PUT" | b"DELETE")
                && head.body() == BodyLength::Exact(0),
            version: head.version(),
            is_persistent: head.is_persistent(),
            expects_continue: head.expects_continue(),
            wants_trailers: head.fields.all(Known::Te).any(wants_trailers),
            body: head.body(),
            answer_fields: OnceCell::new(),
            notes: None,
            route: OnceCell::new(),
        }
    }
}

fn method_name(method: &[u8]) -> &'static str {
    match method {
        b"GET" => "GET",
        b"HEAD" => "HEAD",
        b"POST" => "POST",
        b"PUT" => "PUT",
        b"DELETE" => "DELETE",
        b"PATCH" => "PATCH",
        b"OPTIONS" => "OPTIONS",
        _ => "other",
    }
}

/// How an attempt to have a request answered ended.
pub(crate) enum Ended {
    /// The client has the whole answer.
    Answered {
        status: u16,
        /// The connection may go on, as far as the answer is concerned.
        keeps_client: bool,
        /// Nothing is left on the lane.
        keeps_lane: bool,
    },
    /// The client has nothing of an answer yet.
    Failed(Failure),
    /// The client has a part of the answer: all that is left is to break it off.
    BrokenOff(&'static str),
}

/// Why there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The origin closed before it said anything.
    Silent,
    /// The origin did not answer as it should.
    Origin(Refusal, LossCause),
    /// The client is at fault.
    Client(Refusal),
    /// The client is gone.
    ClientGone,
}

/// Has one request answered.
pub(crate) async fn run(front: &mut Front<'_>, head: &mut RequestHead) -> After {
    let service = &front.connection.service;
    service.metrics.requested(head.method());
    let mut asked = Asked::of(head);
    asked.notes = Notes::of_sampled(front.connection, head, &front.stream.output);
    front.body = BodyDecoder::new(asked.body);
    let Some(_permit) = service.core.flight.try_acquire() else {
        service.metrics.shed(Refusal::IN_FLIGHT.reason);
        return refuse(front, &asked, Refusal::IN_FLIGHT).await;
    };
    let _in_flight = service.metrics.in_flight.guard();
    if head.fields.get(Known::ContentType).is_some_and(is_grpc) {
        return refuse(front, &asked, Refusal::GRPC_NEEDS_HTTP2).await;
    }
    let (settings, routing) = (service.http(), service.routing());
    let routed = match route(front.connection, &routing, head, &asked, settings.forwarded).await {
        Ok(routed) => routed,
        Err(Local::Refused(refusal)) => return refuse(front, &asked, refusal).await,
        Err(Local::Slow(_)) => return refuse(front, &asked, Refusal::POLICY_FAILED).await,
        Err(Local::Direct(response, fields)) => return answer_directly(front, &asked, &response, &fields).await,
    };
    loop {
        let mut lane = match routed.upstream.acquire(None).await {
            Ok(lane) => lane,
            Err(refusal) => return refuse(front, &asked, Refusal::no_lane(refusal)).await,
        };
        let host = routed.host.as_deref().unwrap_or(head.authority());
        if let Some(notes) = &mut asked.notes {
            notes.note_endpoint(routed.upstream.settings(), &lane);
        }
        lane.stream().output.with(|into| encode::request(head, host, asked.body, into));
        let mut attempt = Attempt {
            asked: &asked,
            settings: &settings,
            routed: &routed,
            sent: turn::now(),
            is_uploaded: Cell::new(asked.body == BodyLength::Exact(0)),
        };
        let ended = attempt.run(front, &mut lane).await;
        let is_stale = lane.is_reused() && asked.is_safe_to_repeat;
        if matches!(ended, Ended::Failed(Failure::Silent)) && is_stale {
            // The origin had closed the idle connection when the request was on its way: nobody has seen it.
            continue;
        }
        let (sent, is_uploaded) = (attempt.sent, attempt.is_uploaded.get());
        return after(front, &asked, &routed, lane, ended, sent, is_uploaded).await;
    }
}

/// What the end of an attempt means for the lane, for the client, and for its connection.
async fn after(
    front: &mut Front<'_>,
    asked: &Asked,
    routed: &Routed<'_>,
    mut lane: ExclusiveLane,
    ended: Ended,
    sent: Time,
    is_uploaded: bool,
) -> After {
    let upstream = &routed.upstream.settings().name;
    let refusal = match ended {
        Ended::Answered { status, keeps_client, keeps_lane } => {
            match keeps_lane && is_uploaded {
                true => lane.give_back(),
                false => lane.ends(),
            }
            front.connection.answered(asked, status, Some(sent), upstream, "ok");
            if !keeps_client {
                return After::Close("answered");
            }
            return after_body(front).await;
        }
        Ended::Failed(Failure::Silent) => {
            lane.failed(LossCause::Closed);
            Refusal::ORIGIN_CLOSED
        }
        Ended::Failed(Failure::Origin(refusal, cause)) => {
            lane.failed(cause);
            refusal
        }
        Ended::Failed(Failure::Client(refusal)) => {
            lane.ends();
            if refusal.reason == Refusal::BODY_TOO_LONG.reason {
                front.connection.service.metrics.denied(refusal.reason);
            }
            front.connection.report(refusal);
            refusal
        }
        Ended::Failed(Failure::ClientGone) => {
            lane.ends();
            return After::Close("client_reset");
        }
        Ended::BrokenOff(reason) => {
            if reason.starts_with("origin") {
                lane.failed(LossCause::Closed);
            } else {
                lane.ends();
            }
            front.connection.answered(asked, 0, Some(sent), upstream, reason);
            // Without its last chunk, or short of its length, it does not look complete.
            return After::Close(reason);
        }
    };
    drop(lane);
    refuse(front, asked, refusal).await
}

/// Answers without an origin, in the words of the configuration.
async fn answer_directly(front: &mut Front<'_>, asked: &Asked, response: &DirectResponse, fields: &Fields) -> After {
    let closes = front.closes_after(asked);
    front.stream.output.with(|into| response.write(fields, asked.is_head, closes, into));
    front.connection.answered(asked, response.status, None, "", "ok");
    match closes {
        true => After::Close("answered"),
        false => after_body(front).await,
    }
}

fn is_grpc(content_type: &[u8]) -> bool {
    content_type.get(..16).is_some_and(|start| start.eq_ignore_ascii_case(b"application/grpc"))
}

/// Answers in the gateway's own name. The connection goes on if what is left of the request is little and known.
async fn refuse(front: &mut Front<'_>, asked: &Asked, refusal: Refusal) -> After {
    let closes = refusal.closes || front.closes_after(asked);
    let chance = front.connection.service.chance();
    let fields = asked.answer_fields.get().map(|answer| answer.own());
    front.stream.output.with(|into| refusal.write(fields, asked.is_head, closes, chance, into));
    front.connection.answered(asked, refusal.status, None, "", refusal.reason);
    match closes {
        true => After::Close(refusal.reason),
        false => after_body(front).await,
    }
}

/// Reads what is left of a request body that nobody wants any more, if that is little.
async fn after_body(front: &mut Front<'_>) -> After {
    let Front { connection, stream, input, deadline, body, .. } = front;
    let (limits, mut left) = (BodyLimits::default(), DISCARD_BYTES_MAX);
    if !body.is_done() {
        deadline.set(turn::now().saturating_add(DISCARD_TIMEOUT));
    }
    while !body.is_done() {
        if input.bytes().is_empty() {
            match receive(&mut stream.reader, input, deadline).await {
                Some(Ok(count)) if count > 0 && count as u64 <= left => {
                    connection.service.metrics.read_bytes.add(count as u64);
                    left -= count as u64;
                }
                Some(Ok(0)) => return After::Close("client_closed"),
                Some(Err(_)) => return After::Close("client_reset"),
                Some(Ok(_)) | None => return After::Close("early_answer"),
            }
        }
        match body.decode(input.bytes(), &limits) {
            Ok(piece) => {
                let taken = piece.taken;
                input.spend(taken);
            }
            Err(error) => return After::Close(error.reason()),
        }
    }
    match stream.output.is_closed() {
        true => After::Close("client_reset"),
        false => After::Another,
    }
}

impl Front<'_> {
    /// An answer without an origin is the last one here: what is left of the request is much, or not known.
    fn closes_after(&self, asked: &Asked) -> bool {
        let is_little = matches!(self.body, BodyDecoder::Exact(left) if left <= DISCARD_BYTES_MAX);
        let is_over = !asked.is_persistent || self.connection.is_draining() || self.stream.output.is_closed();
        is_over || !is_little || asked.expects_continue
    }
}

impl Connection {
    /// Counts an answer, and logs it if it was chosen.
    fn answered(&self, asked: &Asked, status: u16, sent: Option<Time>, upstream: &str, outcome: &'static str) {
        let flushed = Time::now();
        let timing = Timing { arrived: asked.arrived, sent, replied: turn::now() };
        self.service.metrics.answered(status, &timing, flushed);
        if let Some(route) = asked.route.get() {
            route.answered(status, flushed.nanos_since(asked.arrived));
        }
        self.log_request(asked, &timing, flushed, &Outcome { status, upstream, reason: outcome });
    }
}

/// One attempt to have a request answered by one lane.
struct Attempt<'a> {
    asked: &'a Asked,
    settings: &'a HttpListenerSettings,
    routed: &'a Routed<'a>,
    sent: Time,
    /// The request has been sent to its end.
    is_uploaded: Cell<bool>,
}

impl Attempt<'_> {
    /// Both directions at once, until the answer is over or one of them breaks.
    async fn run(&mut self, front: &mut Front<'_>, lane: &mut ExclusiveLane) -> Ended {
        let Front { connection, stream, input, body, deadline, origin_deadline, answers } = front;
        let (metrics, origin) = (&connection.service.metrics, lane.stream());
        let (client, response_timeout) = (stream.output.clone(), self.response_timeout());
        // The head of the request is in it already.
        let unsent = origin.output.unsent();
        let appended = origin.output.appended();
        let mut answer = Answer {
            asked: self.asked,
            connection,
            settings: self.settings,
            routed: self.routed,
            client: &client,
            parser: answers,
            deadline: origin_deadline,
            is_uploaded: &self.is_uploaded,
            is_begun: false,
            received: 0,
        };
        origin_deadline.clear();
        let ended = if self.is_uploaded.get() {
            origin_deadline.set(turn::now().saturating_add(response_timeout));
            let mut download = pin!(answer.run(&mut origin.reader));
            let mut is_watched = input.bytes().is_empty();
            poll_fn(|context| {
                if connection.poll_ended(context) {
                    return Poll::Ready(Ended::Failed(Failure::ClientGone));
                }
                if let Poll::Ready(ended) = download.as_mut().poll(context) {
                    return Poll::Ready(ended);
                }
                if is_watched {
                    // The next request may come already, and an end of the client's direction is no end of its wish.
                    match input.poll_more(&mut stream.reader, context) {
                        Poll::Pending => {}
                        Poll::Ready(Ok(count)) => {
                            metrics.read_bytes.add(count as u64);
                            is_watched = false;
                        }
                        Poll::Ready(Err(_)) => return Poll::Ready(Ended::Failed(Failure::ClientGone)),
                    }
                }
                Poll::Pending
            })
            .await
        } else {
            let room = self.routed.action.policies.as_ref().and_then(|it| it.body_bytes_max).unwrap_or(u64::MAX);
            let mut flow = Flow {
                reader: &mut stream.reader,
                input,
                output: &origin.output,
                decoder: body,
                framing: framing_of(self.asked.body, true, true),
                deadline,
                idle_timeout: self.settings.body_idle_timeout,
                received: 0,
                room,
            };
            let ended = {
                let mut upload = pin!(flow.run());
                let mut download = pin!(answer.run(&mut origin.reader));
                let mut is_over = false;
                let sent_at = &mut self.sent;
                poll_fn(|context| {
                    if connection.poll_ended(context) {
                        return Poll::Ready(Ended::Failed(Failure::ClientGone));
                    }
                    if !is_over && let Poll::Ready(sent) = upload.as_mut().poll(context) {
                        is_over = true;
                        match sent {
                            Ok(()) => {
                                self.is_uploaded.set(true);
                                *sent_at = turn::now();
                                origin_deadline.set(turn::now().saturating_add(response_timeout));
                            }
                            // The origin may have said why before it stopped reading.
                            Err(Broken::Untaken) => {}
                            Err(broken) => return Poll::Ready(Ended::Failed(Failure::of_client(broken))),
                        }
                    }
                    download.as_mut().poll(context)
                })
                .await
            };
            metrics.read_bytes.add(flow.received);
            if let Some(notes) = &self.asked.notes {
                notes.body_bytes.set(room - flow.room);
            }
            ended
        };
        let (is_begun, received) = (answer.is_begun, answer.received);
        let written = origin.output.appended() - appended + unsent as u64;
        lane.count_bytes(received as usize, written as usize);
        match ended {
            Ended::Failed(failure) if is_begun => Ended::BrokenOff(failure.reason()),
            ended => ended,
        }
    }

    fn response_timeout(&self) -> Duration {
        self.routed.action.response_timeout.unwrap_or(self.settings.response_timeout)
    }
}

impl Failure {
    fn of_client(broken: Broken) -> Self {
        match broken {
            Broken::Malformed(error) => Self::Client(Refusal::malformed(error)),
            Broken::Idle => Self::Client(Refusal::BODY_TIMEOUT),
            Broken::TooLong => Self::Client(Refusal::BODY_TOO_LONG.closing()),
            Broken::Cut => Self::Client(Refusal::BODY_CUT),
            Broken::Untaken => Self::ClientGone,
        }
    }

    pub(crate) fn of_origin(broken: Broken) -> Self {
        match broken {
            Broken::Malformed(_) | Broken::TooLong => Self::Origin(Refusal::ORIGIN_MALFORMED, LossCause::Violation),
            Broken::Idle => Self::Origin(Refusal::RESPONSE_TIMEOUT, LossCause::Timeout),
            Broken::Cut => Self::Origin(Refusal::ORIGIN_CLOSED, LossCause::Closed),
            Broken::Untaken => Self::ClientGone,
        }
    }

    const fn reason(self) -> &'static str {
        match self {
            Self::Silent => "origin_closed",
            Self::Origin(refusal, _) | Self::Client(refusal) => refusal.reason,
            Self::ClientGone => "client_reset",
        }
    }
}

const _: () = assert!(DISCARD_BYTES_MAX <= limits::WRITE_HIGH_WATER_BYTES);
