//! One request and its answer.

use std::{future::poll_fn, pin::pin, task::Poll, time::Duration};

use weir_base::{
    limits,
    time::{Time, turn},
};
use weir_engine::{Deadline, Stream};
use weir_http_codec::{BodyDecoder, BodyLength, BodyLimits, Known, RequestHead, Version, encode, token};
use weir_telemetry::log::AccessRecord;
use weir_upstream::{ExclusiveLane, LossCause};

use crate::{
    answer::Answer,
    connection::Connection,
    input::Input,
    metrics::Timing,
    refusal::Refusal,
    relay::{Broken, Flow, framing_of, receive},
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
pub(crate) async fn run(
    connection: &Connection,
    stream: &mut Stream,
    input: &mut Input,
    head: &mut RequestHead,
    deadline: &Deadline,
) -> After {
    let service = &connection.service;
    service.metrics.requested(head.method());
    let asked = Asked::of(head);
    let Some(_permit) = service.core.flight.try_acquire() else {
        service.metrics.shed(Refusal::IN_FLIGHT.reason);
        return refuse(connection, stream, input, &asked, deadline, Refusal::IN_FLIGHT).await;
    };
    let _in_flight = service.metrics.in_flight.guard();
    if head.fields.get(Known::ContentType).is_some_and(is_grpc) {
        return refuse(connection, stream, input, &asked, deadline, Refusal::GRPC_NEEDS_HTTP2).await;
    }
    let settings = service.http();
    let routing = service.routing();
    let routed = match route(connection, &routing, head, &asked) {
        Ok(routed) => routed,
        Err(answer) => return answer_locally(connection, stream, input, &asked, deadline, answer).await,
    };
    let Routed { action, upstream, host, .. } = &routed;
    let mut avoid = None;
    let mut decoder = BodyDecoder::new(asked.body);
    loop {
        let mut lane = match upstream.acquire(avoid).await {
            Ok(lane) => lane,
            Err(refusal) => {
                let refusal = Refusal::no_lane(refusal);
                return refuse(connection, stream, input, &asked, deadline, refusal).await;
            }
        };
        lane.stream().output.with(|into| encode::request(head, host, asked.body, into));
        let mut attempt = Attempt {
            connection,
            asked: &asked,
            settings: &settings,
            routed: &routed,
            response_timeout: action.response_timeout.unwrap_or(settings.response_timeout),
            deadline,
            decoder: &mut decoder,
            sent: turn::now(),
            is_upload_done: asked.body == BodyLength::Exact(0),
        };
        let ended = attempt.run(stream, input, &mut lane).await;
        let (sent, is_upload_done) = (attempt.sent, attempt.is_upload_done);
        match ended {
            Ended::Answered { status, keeps_client, keeps_lane } => {
                match keeps_lane && is_upload_done {
                    true => lane.give_back(),
                    false => lane.ends(),
                }
                connection.answered(&asked, status, Some(sent), &upstream.settings().name, "ok");
                if !keeps_client {
                    return After::Close("answered");
                }
                return after_body(connection, stream, input, &mut decoder, deadline).await;
            }
            // The origin had closed the idle connection when the request was on its way: nobody has seen it.
            Ended::Failed(Failure::Silent) if lane.is_reused() && asked.is_safe_to_repeat => {
                avoid = None;
                drop(lane);
            }
            Ended::Failed(Failure::Silent) => {
                lane.failed(LossCause::Closed);
                drop(lane);
                return refuse(connection, stream, input, &asked, deadline, Refusal::ORIGIN_CLOSED).await;
            }
            Ended::Failed(Failure::Origin(refusal, cause)) => {
                lane.failed(cause);
                drop(lane);
                return refuse(connection, stream, input, &asked, deadline, refusal).await;
            }
            Ended::Failed(Failure::Client(refusal)) => {
                lane.ends();
                drop(lane);
                connection.report(refusal);
                return refuse(connection, stream, input, &asked, deadline, refusal).await;
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
                connection.answered(&asked, 0, Some(sent), &upstream.settings().name, reason);
                // Without its last chunk, or short of its length, it does not look complete.
                return After::Close(reason);
            }
        }
    }
}

/// Answers without an origin, in the words of the configuration or the gateway's own.
async fn answer_locally(
    connection: &Connection,
    stream: &mut Stream,
    input: &mut Input,
    asked: &Asked,
    deadline: &Deadline,
    answer: Local,
) -> After {
    let (response, fields) = match answer {
        Local::Refused(refusal) => return refuse(connection, stream, input, asked, deadline, refusal).await,
        Local::Direct(response, fields) => (response, fields),
    };
    let closes = connection.closes_after(asked, stream);
    stream.output.with(|into| response.write(&fields, asked.is_head, closes, into));
    connection.answered(asked, response.status, None, "", "ok");
    if closes {
        return After::Close("answered");
    }
    after_body(connection, stream, input, &mut BodyDecoder::new(asked.body), deadline).await
}

fn is_grpc(content_type: &[u8]) -> bool {
    content_type.get(..16).is_some_and(|start| start.eq_ignore_ascii_case(b"application/grpc"))
}

/// Answers in the gateway's own name. The connection goes on if what is left of the request is little and known.
async fn refuse(
    connection: &Connection,
    stream: &mut Stream,
    input: &mut Input,
    asked: &Asked,
    deadline: &Deadline,
    refusal: Refusal,
) -> After {
    let closes = refusal.closes || connection.closes_after(asked, stream);
    let chance = connection.service.chance();
    stream.output.with(|into| refusal.write(asked.is_head, closes, chance, into));
    connection.answered(asked, refusal.status, None, "", refusal.reason);
    if closes {
        return After::Close(refusal.reason);
    }
    after_body(connection, stream, input, &mut BodyDecoder::new(asked.body), deadline).await
}

/// Reads what is left of a request body that nobody wants any more, if that is little.
async fn after_body(
    connection: &Connection,
    stream: &mut Stream,
    input: &mut Input,
    decoder: &mut BodyDecoder,
    deadline: &Deadline,
) -> After {
    let (limits, mut left) = (BodyLimits::default(), DISCARD_BYTES_MAX);
    deadline.set(turn::now().saturating_add(DISCARD_TIMEOUT));
    while !decoder.is_done() {
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
        match decoder.decode(input.bytes(), &limits) {
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

impl Connection {
    /// An answer without an origin is the last one here: what is left of the request is much, or not known.
    fn closes_after(&self, asked: &Asked, stream: &Stream) -> bool {
        let is_little = matches!(asked.body, BodyLength::Exact(length) if length <= DISCARD_BYTES_MAX);
        let is_over = !asked.is_persistent || self.is_draining() || stream.output.is_closed();
        is_over || !is_little || asked.expects_continue
    }

    /// Counts an answer, and logs it if it was chosen.
    fn answered(&self, asked: &Asked, status: u16, sent: Option<Time>, upstream: &str, outcome: &'static str) {
        let flushed = Time::now();
        let timing = Timing { arrived: asked.arrived, sent, replied: turn::now() };
        self.service.metrics.answered(status, &timing, flushed);
        if self.service.samples_access() {
            self.service.log_access(AccessRecord {
                at: flushed,
                listener: self.service.name().clone(),
                peer: self.peer,
                connection: self.id(),
                command: asked.method,
                upstream: sent.map(|_| upstream.into()),
                duration_nanos: flushed.nanos_since(asked.arrived),
                upstream_nanos: sent.map_or(0, |sent| timing.replied.nanos_since(sent)),
                request_bytes: 0,
                reply_bytes: 0,
                outcome,
            });
        }
    }
}

/// One attempt to have a request answered by one lane.
struct Attempt<'a> {
    connection: &'a Connection,
    asked: &'a Asked,
    settings: &'a HttpListenerSettings,
    routed: &'a Routed<'a>,
    response_timeout: Duration,
    /// Of the client's side.
    deadline: &'a Deadline,
    /// Of the request's body.
    decoder: &'a mut BodyDecoder,
    sent: Time,
    is_upload_done: bool,
}

impl Attempt<'_> {
    /// Both directions at once, until the answer is over or one of them breaks.
    async fn run(&mut self, stream: &mut Stream, input: &mut Input, lane: &mut ExclusiveLane) -> Ended {
        let origin_deadline = weir_engine::deadline();
        let metrics = &self.connection.service.metrics;
        let (appended, client) = (lane.stream().output.appended(), stream.output.clone());
        let origin = lane.stream();
        let mut answer = Answer {
            asked: self.asked,
            connection: self.connection,
            settings: self.settings,
            routed: self.routed,
            client: &client,
            deadline: &origin_deadline,
            is_begun: false,
            received: 0,
        };
        let ended = if self.is_upload_done {
            origin_deadline.set(turn::now().saturating_add(self.response_timeout));
            let mut download = pin!(answer.run(&mut origin.reader));
            let mut is_watched = input.bytes().is_empty();
            poll_fn(|context| {
                if self.connection.poll_ended(context) {
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
            let framing = framing_of(self.asked.body, true, true);
            let mut flow = Flow {
                reader: &mut stream.reader,
                input,
                output: &origin.output,
                decoder: self.decoder,
                framing,
                deadline: self.deadline,
                idle_timeout: self.settings.body_idle_timeout,
                received: 0,
            };
            let ended = {
                let mut upload = pin!(flow.run());
                let mut download = pin!(answer.run(&mut origin.reader));
                let mut is_over = false;
                poll_fn(|context| {
                    if self.connection.poll_ended(context) {
                        return Poll::Ready(Ended::Failed(Failure::ClientGone));
                    }
                    if !is_over && let Poll::Ready(sent) = upload.as_mut().poll(context) {
                        is_over = true;
                        match sent {
                            Ok(()) => {
                                self.is_upload_done = true;
                                self.sent = turn::now();
                                origin_deadline.set(turn::now().saturating_add(self.response_timeout));
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
            ended
        };
        let (is_begun, received) = (answer.is_begun, answer.received);
        let written = lane.stream().output.appended() - appended;
        lane.count_bytes(received as usize, written as usize);
        match ended {
            Ended::Failed(failure) if is_begun => Ended::BrokenOff(failure.reason()),
            ended => ended,
        }
    }
}

impl Failure {
    fn of_client(broken: Broken) -> Self {
        match broken {
            Broken::Malformed(error) => Self::Client(Refusal::malformed(error)),
            Broken::Idle => Self::Client(Refusal::BODY_TIMEOUT),
            Broken::Cut => Self::Client(Refusal::BODY_CUT),
            Broken::Untaken => Self::ClientGone,
        }
    }

    pub(crate) fn of_origin(broken: Broken) -> Self {
        match broken {
            Broken::Malformed(_) => Self::Origin(Refusal::ORIGIN_MALFORMED, LossCause::Violation),
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
