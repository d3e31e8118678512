//! One request and its answer.

use std::{
    cell::{Cell, OnceCell},
    future::poll_fn,
    pin::pin,
    rc::Rc,
    task::{Context, Poll},
    time::Duration,
};

use weir_base::time::{Time, turn};
use weir_http_codec::{BodyLength, Known, RequestHead, Version, encode, token};
use weir_upstream::{Link, LossCause};

use crate::{
    access::{Notes, Outcome, RouteMetrics},
    answer::Answer,
    client::{Client, Sides},
    connection::Connection,
    grpc,
    metrics::Timing,
    origin::{Download as _, Means, Origin, WireOrigin},
    policies::AnswerFields,
    refusal::Refusal,
    relay::{Broken, Limited, RequestBody as _, relay},
    routing::{Local, Routed, route},
    service::HttpLane,
    settings::HttpListenerSettings,
    tunnel::{self, Switched, Wish},
    wire::Framing,
};

/// Connections that may turn a request away unseen, one after the other, before the client is told.
const UNSEEN_MAX: u32 = 3;

/// What happens to the connection after an exchange.
pub(crate) enum After {
    /// It may bring another request.
    Another,
    /// It ends, for this reason.
    Close(&'static str),
    /// So it does, with an answer that must not look complete.
    Broken(&'static str),
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
    pub(crate) is_grpc: bool,
    pub(crate) body: BodyLength,
    /// What policies put into its answer. Empty without policies.
    pub(crate) answer_fields: OnceCell<Box<AnswerFields>>,
    /// If it was chosen for the access log.
    pub(crate) notes: Option<Box<Notes>>,
    /// How long a body may pause, in either direction.
    pub(crate) body_idle_timeout: Duration,
    /// How long all of it may take, as the client says.
    pub(crate) call_timeout: Option<Duration>,
    /// Cells of its route, if routes are counted.
    pub(crate) route: OnceCell<Rc<RouteMetrics>>,
    pub(crate) wish: Wish,
}

impl Asked {
    fn of(head: &RequestHead, settings: &HttpListenerSettings) -> Self {
        let is_grpc = head.fields.get(Known::ContentType).is_some_and(grpc::is_grpc);
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
            is_grpc,
            body_idle_timeout: if is_grpc { settings.grpc_idle_timeout } else { settings.body_idle_timeout },
            call_timeout: if is_grpc { grpc::timeout(&head.fields) } else { None },
            body: head.body(),
            answer_fields: OnceCell::new(),
            notes: None,
            route: OnceCell::new(),
            wish: Wish::of(head),
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
    /// The origin has certainly not begun with it.
    Unseen,
    /// It took longer than the client was ready to wait.
    Expired,
    /// The origin did not answer as it should.
    Origin(Refusal, LossCause),
    /// The client is at fault.
    Client(Refusal),
    /// The client is gone.
    ClientGone,
}

/// Has one request answered.
pub(crate) async fn run(client: &mut impl Client, head: &mut RequestHead) -> After {
    let connection = client.connection().clone();
    let service = &connection.service;
    service.metrics.requested(head.method());
    let (settings, routing) = (service.http(), service.routing());
    let mut asked = Asked::of(head, &settings);
    asked.notes = Notes::of_sampled(&connection, head, || client.sent_bytes());
    let Some(_permit) = service.core.flight.try_acquire() else {
        service.metrics.shed(Refusal::IN_FLIGHT.reason);
        return refuse(client, &asked, Refusal::IN_FLIGHT);
    };
    let _in_flight = service.metrics.in_flight.guard();
    if asked.is_grpc && asked.version != Version::Http2 {
        return refuse(client, &asked, Refusal::GRPC_NEEDS_HTTP2);
    }
    let routed = match route(&connection, &routing, head, &asked, settings.forwarded).await {
        Ok(routed) => routed,
        Err(Local::Refused(refusal)) => return refuse(client, &asked, refusal),
        Err(Local::Direct(response, fields)) => {
            let after = client.reply(&asked, &response.answer(&fields), false, "answered");
            connection.answered(&asked, response.status, None, "", "ok");
            return after;
        }
        Err(Local::Slow(_)) => return refuse(client, &asked, Refusal::POLICY_FAILED),
    };
    if routed.upstream.is_multiplexed() {
        // What a connection may become, a stream cannot.
        asked.wish = Wish::None;
    }
    match asked.wish {
        Wish::Malformed if routed.upgrades(&settings).websocket => {
            return refuse(client, &asked, Refusal::WEBSOCKET_HANDSHAKE);
        }
        Wish::WebSocket(_) if routed.upgrades(&settings).websocket => asked.wish.ask(head),
        _ => asked.wish = Wish::None,
    }
    let mut attempts = 0;
    loop {
        attempts += 1;
        let mut lane = match routed.upstream.acquire(None).await {
            Ok(lane) => lane,
            Err(refusal) => return refuse(client, &asked, Refusal::no_lane(refusal)),
        };
        let host = routed.host.as_deref().unwrap_or(head.authority());
        if let Some(notes) = &mut asked.notes {
            notes.note_endpoint(routed.upstream.settings(), &lane);
        }
        let mut attempt = Attempt {
            connection: &connection,
            asked: &asked,
            settings: &settings,
            routed: &routed,
            sent: turn::now(),
            is_uploaded: Cell::new(asked.body == BodyLength::Exact(0)),
            switched: None,
            received: 0,
        };
        let is_reused = lane.is_reused();
        let ended = match lane.link() {
            Link::Connection(stream) => {
                let output = stream.output.clone();
                let before = output.appended();
                output.with(|into| encode::request(head, host, asked.body, into));
                let ended = attempt.run(client, WireOrigin::new(stream)).await;
                lane.count_bytes(attempt.received as usize, (output.appended() - before) as usize);
                ended
            }
            Link::Carrier(carrier) => match carrier.ask(head, host, attempt.is_uploaded.get()) {
                // Every connection pays for the size of this future, and few for this branch.
                Ok(origin) => Box::pin(attempt.run(client, origin)).await,
                Err(failure) => Ended::Failed(failure),
            },
        };
        let is_repeated = match ended {
            // The origin had closed the idle connection when the request was on its way: nobody has seen it.
            Ended::Failed(Failure::Silent) => is_reused && asked.is_safe_to_repeat,
            Ended::Failed(Failure::Unseen) => asked.body == BodyLength::Exact(0) && attempts < UNSEEN_MAX,
            _ => false,
        };
        if is_repeated {
            lane.ends();
            continue;
        }
        if let (Some(switched), Some(wire)) = (attempt.switched.take(), client.wire()) {
            let upstream = &routed.upstream.settings().name;
            connection.answered(&asked, 101, Some(attempt.sent), upstream, "ok");
            return Box::pin(tunnel::run(wire, &connection, &asked, &routed, lane, *switched)).await;
        }
        return match attempt.after(lane, ended) {
            Ok(after) => after,
            Err(refusal) => refuse(client, &asked, refusal),
        };
    }
}

/// Answers in the gateway's own name.
fn refuse(client: &mut impl Client, asked: &Asked, refusal: Refusal) -> After {
    let connection = client.connection().clone();
    let own = asked.answer_fields.get().map(|answer| answer.own());
    let answer = refusal.answer(own, connection.service.chance());
    let after = client.reply(asked, &answer, refusal.closes, refusal.reason);
    connection.answered(asked, refusal.status, None, "", refusal.reason);
    after
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
    connection: &'a Connection,
    asked: &'a Asked,
    settings: &'a HttpListenerSettings,
    routed: &'a Routed<'a>,
    sent: Time,
    /// The request has been sent to its end.
    is_uploaded: Cell<bool>,
    /// The origin has agreed to a tunnel.
    switched: Option<Box<Switched>>,
    /// Bytes of the answer, on a connection of its own.
    received: u64,
}

impl Attempt<'_> {
    /// Both directions at once, until the answer is over or one of them breaks.
    async fn run<C: Client>(&mut self, client: &mut C, mut origin: impl Origin) -> Ended {
        let Sides { mut body, replies, deadline, origin_deadline, parser } = client.sides(self.asked);
        let response_timeout = self.response_timeout();
        let (upload, download) = origin.sides(Means {
            connection: self.connection,
            deadline,
            origin_deadline,
            parser,
            framing: Framing::of(self.asked.body, true, true),
            body_idle_timeout: self.asked.body_idle_timeout,
        });
        let call = self.asked.call_timeout.map(|timeout| {
            let call = weir_engine::deadline();
            call.set(self.asked.arrived.saturating_add(timeout));
            call
        });
        let poll_cut = |context: &mut Context<'_>| {
            if C::poll_ended(self.connection, context) {
                return Poll::Ready(Ended::Failed(Failure::ClientGone));
            }
            match &call {
                Some(call) => call.poll_expired(context).map(|()| Ended::Failed(Failure::Expired)),
                None => Poll::Pending,
            }
        };
        let mut answer = Answer {
            asked: self.asked,
            connection: self.connection,
            routed: self.routed,
            replies,
            origin: download,
            is_uploaded: &self.is_uploaded,
            is_begun: false,
            switched: None,
        };
        match self.is_uploaded.get() {
            true => origin_deadline.set(turn::now().saturating_add(response_timeout)),
            false => origin_deadline.clear(),
        }
        let ended = {
            let mut download = pin!(answer.run());
            let early = match self.is_uploaded.get() {
                true => None,
                false => {
                    let policies = self.routed.action.policies.as_ref();
                    let room = policies.and_then(|policies| policies.body_bytes_max).unwrap_or(u64::MAX);
                    let mut sink = Limited::new(upload, room);
                    let ended = {
                        let mut upload = pin!(relay(&mut body, &mut sink));
                        let mut is_over = false;
                        poll_fn(|context| {
                            if let Poll::Ready(ended) = poll_cut(context) {
                                return Poll::Ready(Some(ended));
                            }
                            if !is_over && let Poll::Ready(sent) = upload.as_mut().poll(context) {
                                is_over = true;
                                match sent {
                                    Ok(()) => self.is_uploaded.set(true),
                                    // The origin may have said why before it stopped reading.
                                    Err(Broken::Untaken) => {}
                                    Err(broken) => return Poll::Ready(Some(Ended::Failed(Failure::of_client(broken)))),
                                }
                            }
                            match download.as_mut().poll(context) {
                                Poll::Ready(ended) => Poll::Ready(Some(ended)),
                                Poll::Pending if is_over => Poll::Ready(None),
                                Poll::Pending => Poll::Pending,
                            }
                        })
                        .await
                    };
                    if let Some(notes) = &self.asked.notes {
                        notes.body_bytes.set(room - sink.room);
                    }
                    ended
                }
            };
            match early {
                Some(ended) => ended,
                None => {
                    self.sent = turn::now();
                    origin_deadline.set(turn::now().saturating_add(response_timeout));
                    poll_fn(|context| {
                        if let Poll::Ready(ended) = poll_cut(context) {
                            return Poll::Ready(ended);
                        }
                        if body.poll_gone(context).is_ready() {
                            return Poll::Ready(Ended::Failed(Failure::ClientGone));
                        }
                        download.as_mut().poll(context)
                    })
                    .await
                }
            }
        };
        self.connection.service.metrics.read_bytes.add(body.received());
        let (is_begun, received) = (answer.is_begun, answer.origin.received());
        self.switched = answer.switched.take();
        self.received = received;
        match ended {
            Ended::Failed(failure) if is_begun => Ended::BrokenOff(failure.reason()),
            ended => ended,
        }
    }

    fn response_timeout(&self) -> Duration {
        // A call's answer may begin with its first message, and a call says itself how long it may take.
        let usual = if self.asked.is_grpc { self.settings.grpc_idle_timeout } else { self.settings.response_timeout };
        self.routed.action.response_timeout.unwrap_or(usual)
    }

    /// What the end of the attempt means for the lane, and for the connection of the client.
    ///
    /// # Errors
    /// The client has had no answer: this one is for it.
    fn after(&self, mut lane: HttpLane, ended: Ended) -> Result<After, Refusal> {
        let upstream = &self.routed.upstream.settings().name;
        match ended {
            Ended::Answered { status, keeps_client, keeps_lane } => {
                match keeps_lane && self.is_uploaded.get() {
                    true => lane.give_back(),
                    false => lane.ends(),
                }
                self.connection.answered(self.asked, status, Some(self.sent), upstream, "ok");
                Ok(if keeps_client { After::Another } else { After::Close("answered") })
            }
            Ended::Failed(Failure::Silent | Failure::Unseen) => {
                lane.failed(LossCause::Closed);
                Err(Refusal::ORIGIN_CLOSED)
            }
            Ended::Failed(Failure::Expired) => {
                lane.ends();
                Err(Refusal::RESPONSE_TIMEOUT)
            }
            Ended::Failed(Failure::Origin(refusal, cause)) => {
                lane.failed(cause);
                Err(refusal)
            }
            Ended::Failed(Failure::Client(refusal)) => {
                lane.ends();
                if refusal.reason == Refusal::BODY_TOO_LONG.reason {
                    self.connection.service.metrics.denied(refusal.reason);
                }
                self.connection.report(refusal.reason, refusal.text);
                Err(refusal)
            }
            Ended::Failed(Failure::ClientGone) => {
                lane.ends();
                Ok(After::Close("client_reset"))
            }
            Ended::BrokenOff(reason) => {
                if reason.starts_with("origin") {
                    lane.failed(LossCause::Closed);
                } else {
                    lane.ends();
                }
                self.connection.answered(self.asked, 0, Some(self.sent), upstream, reason);
                // Without its last chunk, or short of its length, it does not look complete.
                Ok(After::Broken(reason))
            }
        }
    }
}

impl Failure {
    fn of_client(broken: Broken) -> Self {
        match broken {
            Broken::Malformed(error) => Self::Client(Refusal::malformed(error)),
            Broken::Idle => Self::Client(Refusal::BODY_TIMEOUT),
            Broken::TooLong => Self::Client(Refusal::BODY_TOO_LONG.closing()),
            Broken::Cut => Self::Client(Refusal::BODY_CUT),
            Broken::Untaken | Broken::Cancelled => Self::ClientGone,
        }
    }

    pub(crate) fn of_origin(broken: Broken) -> Self {
        match broken {
            Broken::Malformed(_) | Broken::TooLong => Self::Origin(Refusal::ORIGIN_MALFORMED, LossCause::Violation),
            Broken::Idle => Self::Origin(Refusal::RESPONSE_TIMEOUT, LossCause::Timeout),
            Broken::Cut | Broken::Cancelled => Self::Origin(Refusal::ORIGIN_CLOSED, LossCause::Closed),
            Broken::Untaken => Self::ClientGone,
        }
    }

    const fn reason(self) -> &'static str {
        match self {
            Self::Silent | Self::Unseen => "origin_closed",
            Self::Expired => "call_expired",
            Self::Origin(refusal, _) | Self::Client(refusal) => refusal.reason,
            Self::ClientGone => "client_reset",
        }
    }
}
