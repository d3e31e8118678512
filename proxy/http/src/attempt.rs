//! One attempt to have a request answered: both directions at once, and what their end means.

use std::{
    cell::Cell,
    future::poll_fn,
    pin::pin,
    rc::Rc,
    task::{Context, Poll},
    time::Duration,
};

use weir_base::{
    error::Culprit,
    time::{Time, turn},
};
use weir_http_codec::BodyLength;
use weir_listener::CloseReason;
use weir_upstream::{LossCause, Outcome, Remains};

use crate::{
    answer::Answer,
    client::{Client, Sides, Watch as _},
    connection::Connection,
    exchange::{After, Asked},
    grpc,
    mirror::Copying,
    origin::{Download as _, Means, Origin},
    refusal::Refusal,
    relay::{Broken, Limited, RequestBody as _, Source as _, relay_paced},
    retry::{Class, Retries},
    routing::Routed,
    service::HttpLane,
    settings::HttpListenerSettings,
    tunnel::{Switched, Wish},
    wire::Framing,
};

/// A client does not take its answer.
pub(crate) const STALLED: &str = "client_stalled";
pub(crate) const STALLED_TEXT: &str = "the client does not read what it is sent";
/// An exchange took longer than it may.
const EXPIRED: CloseReason = CloseReason::Broken { reason: "call_expired", culprit: Culprit::Gateway };

/// How an attempt to have a request answered ended.
pub(crate) enum Ended {
    /// The client has the whole answer.
    Answered {
        status: u16,
        /// The connection may go on, as far as the answer is concerned.
        keeps_client: bool,
        /// What is left on the lane; `None`: it ends.
        remains: Option<Remains>,
    },
    /// The client has nothing of an answer yet.
    Failed(Failure),
    /// The client has a part of the answer: all that is left is to break it off.
    BrokenOff(CloseReason),
}

/// Why there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The origin closed before it said anything.
    Silent,
    /// The origin has certainly not begun with it.
    Unseen,
    /// The origin answered with this status, which is not for the client: it is asked again elsewhere.
    Status(u16),
    /// It took longer than the client was ready to wait, or than it may.
    Expired,
    /// The origin did not answer as it should.
    Origin(Refusal, LossCause),
    /// The origin broke a rule of their common connection, which ends for all exchanges on it.
    Connection,
    /// The origin is well, and does not do what the client wants.
    Unwilling(Refusal),
    /// The client is at fault.
    Client(Refusal),
    /// The client takes nothing of the answer.
    ClientStalled,
    /// The client is gone.
    ClientGone,
}

/// The beginning of an answer.
#[derive(Clone, Copy)]
pub(crate) struct Begun {
    pub(crate) at: Time,
    pub(crate) status: u16,
}

/// A deadline that passes sooner after the end of a request says nothing about the origin and the connection to it.
const SILENCE_MIN: Duration = Duration::from_secs(1);

/// One attempt to have a request answered by one lane.
pub(crate) struct Attempt<'a> {
    connection: &'a Connection,
    asked: &'a Asked,
    settings: &'a HttpListenerSettings,
    routed: &'a Routed<'a>,
    /// The number of the endpoint that is asked.
    endpoint: usize,
    retries: &'a Retries<'a>,
    /// Fields that no client may send, in trailers either.
    identity_fields: &'a [Box<str>],
    copying: Option<Rc<Copying>>,
    pub(crate) sent: Time,
    /// The request has been sent to its end.
    is_uploaded: Cell<bool>,
    /// The origin has agreed to a tunnel.
    pub(crate) switched: Option<Box<Switched>>,
    /// Bytes of the answer, on a connection of its own.
    pub(crate) received: u64,
    /// When the answer began, and with which status.
    begun: Cell<Option<Begun>>,
    /// The answer is one in gRPC's words.
    is_grpc: Cell<bool>,
}

impl<'a> Attempt<'a> {
    pub(crate) fn new(
        connection: &'a Connection,
        asked: &'a Asked,
        settings: &'a HttpListenerSettings,
        routed: &'a Routed<'a>,
        retries: &'a Retries<'a>,
        endpoint: usize,
    ) -> Self {
        let is_uploaded = Cell::new(asked.body == BodyLength::Exact(0));
        let sent = turn::now();
        Self {
            connection,
            asked,
            settings,
            routed,
            endpoint,
            retries,
            identity_fields: &[],
            copying: None,
            sent,
            is_uploaded,
            switched: None,
            received: 0,
            begun: Cell::new(None),
            is_grpc: Cell::new(false),
        }
    }

    /// Fields that no trailers may have, and who gets a copy of the body.
    pub(crate) fn passing(self, identity_fields: &'a [Box<str>], copying: Option<Rc<Copying>>) -> Self {
        Self { identity_fields, copying, ..self }
    }

    /// Both directions at once, until the answer is over or one of them breaks.
    pub(crate) async fn run<C: Client>(&mut self, client: &mut C, mut origin: impl Origin) -> Ended {
        let Sides { mut body, replies, watch, deadline, origin_deadline, parser } = client.sides(self.asked);
        let response_timeout = self.response_timeout();
        let (upload, download) = origin.sides(Means {
            metrics: &self.connection.service.metrics,
            deadline,
            origin_deadline,
            parser,
            framing: Framing::of(self.asked.body, true, true),
            answer_idle_timeout: self.asked.answer_idle_timeout,
        });
        let call = call_timeout(self.asked, self.routed, self.settings).map(|timeout| {
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
            endpoint: self.endpoint,
            replies,
            origin: download,
            is_uploaded: &self.is_uploaded,
            retries: self.retries,
            begun: &self.begun,
            is_grpc: &self.is_grpc,
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
                    let room = self.routed.body_bytes_max(self.settings, self.asked);
                    let copied = self.copying.as_ref().map(|copying| &copying.body);
                    let kept = self.retries.kept();
                    let mut sink = Limited::new(upload, room, self.identity_fields, copied, kept);
                    // A part of it was read before, or it is over before it began.
                    let is_begun = kept.is_some_and(|kept| kept.borrow().is_begun()) || body.is_done();
                    let ended = {
                        let rate = if self.asked.is_call { 0 } else { self.routed.body_rate_min(self.settings) };
                        let mut upload = pin!(async {
                            if is_begun {
                                sink.again(&mut body).await?;
                            }
                            relay_paced(&mut body, &mut sink, rate, || false).await
                        });
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
                                    Err(Broken::Untaken | Broken::Stalled) => {}
                                    Err(broken) => {
                                        return Poll::Ready(Some(Ended::Failed(self.connection.unread(broken))));
                                    }
                                }
                            }
                            match download.as_mut().poll(context) {
                                Poll::Ready(ended) => Poll::Ready(Some(ended)),
                                Poll::Pending if is_over => Poll::Ready(None),
                                // Who does not read the upload cannot see how it ends.
                                Poll::Pending => {
                                    watch.poll_gone(context).map(|()| Some(Ended::Failed(Failure::ClientGone)))
                                }
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
                    if self.begun.get().is_none() {
                        self.sent = turn::now();
                        origin_deadline.set(turn::now().saturating_add(response_timeout));
                    }
                    poll_fn(|context| {
                        if let Poll::Ready(ended) = poll_cut(context) {
                            return Poll::Ready(ended);
                        }
                        if body.poll_gone(context).is_ready() {
                            return Poll::Ready(Ended::Failed(Failure::ClientGone));
                        }
                        // An origin that does not read an upload to its end leaves some of it here.
                        if let Poll::Ready(broken) = body.poll_arrived(context) {
                            return Poll::Ready(Ended::Failed(self.connection.unread(broken)));
                        }
                        download.as_mut().poll(context)
                    })
                    .await
                }
            }
        };
        self.connection.service.sessions.read(body.received());
        self.received = answer.origin.received();
        self.switched = answer.switched.take();
        match ended {
            Ended::Failed(failure) if self.begun.get().is_some() => Ended::BrokenOff(failure.reason()),
            ended => ended,
        }
    }

    /// The request has been sent to its end.
    pub(crate) fn is_uploaded(&self) -> bool {
        self.is_uploaded.get()
    }

    fn response_timeout(&self) -> Duration {
        // A call's answer may begin with its first message, and a call says itself how long it may take.
        let usual = if self.asked.is_call { self.settings.grpc_idle_timeout } else { self.settings.response_timeout };
        let all = self.routed.action.response_timeout.unwrap_or(usual);
        self.retries.try_timeout().map_or(all, |one| one.min(all))
    }

    /// The origin had the whole request, and has said nothing for so long that this tells something of it.
    fn was_silent(&self) -> bool {
        self.is_uploaded.get() && self.begun.get().is_none() && turn::now().since(self.sent) >= SILENCE_MIN
    }

    /// Tells the upstream how its endpoint did, on a connection that stands since `opened`, and the access log when its answer
    /// began.
    pub(crate) fn note(&self, ended: &Ended, opened: Time) {
        let number = self.endpoint;
        if let Some(notes) = &self.asked.notes {
            notes.answer_began.set(self.begun.get().map(|begun| begun.at));
        }
        let took = self.begun.get().map(|begun| begun.at.since(self.sent));
        match ended {
            Ended::Answered { status, .. } => {
                let said = match self.asked.grpc_status.get() {
                    // The client's deadline, told by the origin.
                    Some(grpc::DEADLINE_EXCEEDED) if self.asked.call_timeout.is_some() => *status,
                    Some(said) => grpc::http_status(said),
                    None => *status,
                };
                self.routed.upstream.note(number, Outcome::Status(said), took);
            }
            Ended::Failed(Failure::Status(status)) => self.routed.upstream.note(number, Outcome::Status(*status), took),
            Ended::Failed(failure @ (Failure::Silent | Failure::Connection | Failure::Origin(..))) => {
                self.routed.upstream.note(number, failure.outcome(opened), took);
            }
            // The deadline was the gateway's own, and not the client's.
            Ended::Failed(Failure::Expired) if self.asked.call_timeout.is_none() && self.was_silent() => {
                self.routed.upstream.note(number, Outcome::TimedOut, took);
            }
            // It is no fault of the endpoint, or not certainly one.
            Ended::Failed(
                Failure::Unseen
                | Failure::Expired
                | Failure::Unwilling(_)
                | Failure::Client(_)
                | Failure::ClientStalled
                | Failure::ClientGone,
            )
            | Ended::BrokenOff(_) => {}
        }
    }

    /// What of this kind might be tried again, as far as the origin is concerned.
    pub(crate) fn class(&self, ended: &Ended) -> Option<Class> {
        let Ended::Failed(failure) = ended else { return None };
        match failure {
            Failure::Unseen => Some(Class::RefusedStream),
            Failure::Status(_) => Some(Class::Status),
            Failure::Origin(_, LossCause::Timeout) => Some(Class::Timeout),
            Failure::Silent | Failure::Origin(_, LossCause::Closed) => Some(Class::Reset),
            Failure::Origin(..)
            | Failure::Connection
            | Failure::Expired
            | Failure::Unwilling(_)
            | Failure::Client(_)
            | Failure::ClientStalled
            | Failure::ClientGone => None,
        }
    }

    /// What the end of the attempt means for the lane, and for the connection of the client.
    ///
    /// # Errors
    /// The client has had no answer: this one is for it.
    pub(crate) fn after(&self, mut lane: HttpLane, ended: Ended) -> Result<After, Refusal> {
        let upstream = &self.routed.upstream.settings().name;
        match ended {
            Ended::Answered { status, keeps_client, remains } => {
                lane.answered();
                match remains.filter(|_| self.is_uploaded.get()) {
                    Some(remains) => lane.give_back(remains),
                    None => lane.ends(),
                }
                self.connection.answered(self.asked, status, Some(self.sent), upstream, "ok");
                Ok(if keeps_client { After::Another } else { After::Close(CloseReason::Ended("answered")) })
            }
            Ended::Failed(Failure::Silent | Failure::Unseen | Failure::Status(_)) => {
                lane.failed(LossCause::Closed);
                Err(Refusal::ORIGIN_CLOSED)
            }
            Ended::Failed(Failure::Expired) => {
                if self.was_silent() {
                    lane.unanswered();
                }
                lane.ends();
                Err(expired(self.asked))
            }
            Ended::Failed(Failure::Unwilling(refusal)) => {
                lane.ends();
                Err(refusal)
            }
            Ended::Failed(Failure::Origin(refusal, cause)) => {
                lane.failed(cause);
                Err(refusal)
            }
            Ended::Failed(Failure::Connection) => {
                lane.failed(LossCause::Violation);
                Err(Refusal::ORIGIN_MALFORMED)
            }
            Ended::Failed(Failure::Client(refusal)) => {
                lane.ends();
                self.connection.at_fault(&refusal);
                Err(refusal)
            }
            Ended::Failed(Failure::ClientGone | Failure::ClientStalled) => {
                lane.ends();
                self.connection.abandoned(self.asked, Some(self.sent), upstream);
                Ok(After::Close(CloseReason::ClientReset))
            }
            Ended::BrokenOff(reason) => {
                let is_origins = reason.culprit() == Some(Culprit::Upstream);
                if is_origins {
                    lane.failed(LossCause::Closed);
                } else {
                    lane.answered();
                    lane.ends();
                }
                if self.asked.is_grpc {
                    // As the client learns it: by trailers, by the reset, or by its own.
                    self.asked.grpc_status.set(Some(match reason {
                        EXPIRED => grpc::DEADLINE_EXCEEDED,
                        _ if is_origins => grpc::INTERNAL,
                        _ => grpc::CANCELLED,
                    }));
                }
                if reason.name() == STALLED {
                    self.connection.violated(STALLED, STALLED_TEXT);
                }
                let status = self.begun.get().map_or(0, |begun| begun.status);
                self.connection.broke_off(self.asked, status, self.sent, upstream, reason.name());
                // Without its last chunk, or short of its length, it does not look complete. A call may say that it is not.
                Ok(After::Broken(if self.is_grpc.get() && reason == EXPIRED { grpc::EXPIRED } else { reason }))
            }
        }
    }
}

/// How long all of an exchange may take.
pub(crate) fn call_timeout(asked: &Asked, routed: &Routed<'_>, settings: &HttpListenerSettings) -> Option<Duration> {
    let may_be_long = asked.is_call || asked.wish != Wish::None;
    let usual = settings.request_timeout.filter(|_| !may_be_long);
    // The route's timeout holds for every request of the route. A WebSocket stops being a request once it is accepted.
    let own = routed.action.request_timeout.filter(|_| asked.wish == Wish::None).or(usual);
    [own, asked.call_timeout].into_iter().flatten().min()
}

/// The answer to a request that took longer than it may, named after the key that set the deadline; that of a call is its client's.
pub(crate) const fn expired(asked: &Asked) -> Refusal {
    match asked.call_timeout {
        None => Refusal::REQUEST_TIMEOUT,
        Some(_) => Refusal::RESPONSE_TIMEOUT,
    }
}

impl Failure {
    pub(crate) fn of_client(broken: Broken) -> Self {
        match broken {
            Broken::Malformed(error) => Self::Client(Refusal::malformed(error)),
            Broken::Idle => Self::Client(Refusal::BODY_TIMEOUT),
            Broken::TooLong => Self::Client(Refusal::BODY_TOO_LONG.closing()),
            Broken::Cut => Self::Client(Refusal::BODY_CUT),
            Broken::GivenUp => Self::Unwilling(Refusal::UPLOAD_GIVEN_UP),
            Broken::Untaken | Broken::Stalled | Broken::Cancelled => Self::ClientGone,
        }
    }

    pub(crate) fn of_origin(broken: Broken) -> Self {
        match broken {
            Broken::Malformed(_) | Broken::TooLong => Self::Origin(Refusal::ORIGIN_MALFORMED, LossCause::Violation),
            Broken::Idle => Self::Origin(Refusal::RESPONSE_TIMEOUT, LossCause::Timeout),
            Broken::Cut | Broken::Cancelled => Self::Origin(Refusal::ORIGIN_CLOSED, LossCause::Closed),
            Broken::Stalled | Broken::GivenUp => Self::ClientStalled,
            Broken::Untaken => Self::ClientGone,
        }
    }

    /// What it says of the endpoint, on a connection that stands since `opened`.
    pub(crate) const fn outcome(self, opened: Time) -> Outcome {
        match self {
            Self::Silent | Self::Connection => Outcome::Lost(opened),
            Self::Origin(_, LossCause::Timeout) => Outcome::TimedOut,
            _ => Outcome::Failed,
        }
    }

    /// The reason why a response broke off after it had begun. The gateway sets the deadlines, so the origin is not at fault when one
    /// passes.
    const fn reason(self) -> CloseReason {
        match self {
            Self::Connection => CloseReason::of_upstream(Refusal::ORIGIN_MALFORMED.reason),
            Self::Silent | Self::Unseen | Self::Status(_) => CloseReason::of_upstream("origin_closed"),
            Self::Expired => EXPIRED,
            Self::Origin(refusal, LossCause::Timeout) | Self::Unwilling(refusal) => {
                CloseReason::Broken { reason: refusal.reason, culprit: Culprit::Gateway }
            }
            Self::Origin(refusal, _) => CloseReason::of_upstream(refusal.reason),
            Self::Client(refusal) => CloseReason::of_client(refusal.reason),
            Self::ClientStalled => CloseReason::of_client(STALLED),
            Self::ClientGone => CloseReason::ClientReset,
        }
    }
}
