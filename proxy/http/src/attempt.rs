//! One attempt to have a request answered: both directions at once, and what their end means.

use std::{
    cell::Cell,
    future::poll_fn,
    pin::{Pin, pin},
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
use weir_upstream::{LossCause, Outcome};

use crate::{
    answer::Answer,
    asked::Asked,
    body::{Broken, RequestBody, Sink},
    client::{After, Client, Sides, Watch},
    connection::Connection,
    endpoint_responses,
    failure::{Begun, EXPIRED, Ended, Failure},
    grpc,
    mirror::Copying,
    options::Class,
    origin::{Means, Origin},
    passage::Passage,
    refusal::Refusal,
    response_class::ResponseClass,
    routes::Action,
    settings::HttpListenerSettings,
    upgrade::{Switched, Wish},
    upload::{Limited, Limits, relay_paced},
    upstream::HttpLane,
    wire::Framing,
};

/// A deadline that passes sooner after the end of a request says nothing about the origin and the connection to it.
const SILENCE_MIN: Duration = Duration::from_secs(1);

/// One attempt to have a request answered by one lane.
pub(crate) struct Attempt<'a> {
    pub(crate) passage: &'a Passage<'a>,
    /// The number of the endpoint that is asked.
    endpoint: usize,
    copying: Option<Rc<Copying>>,
    pub(crate) sent: Time,
    /// The request has been sent to its end.
    is_uploaded: Cell<bool>,
    /// The origin has agreed to a tunnel.
    pub(crate) switched: Option<Box<Switched>>,
    /// When the answer began, and with which status.
    begun: Cell<Option<Begun>>,
    /// The answer is one in gRPC's words.
    is_grpc: Cell<bool>,
}

impl<'a> Attempt<'a> {
    /// An attempt with endpoint number `endpoint`.
    pub(crate) fn new(passage: &'a Passage<'a>, endpoint: usize) -> Self {
        Self {
            passage,
            endpoint,
            copying: passage.copying.borrow().clone(),
            sent: turn::now(),
            is_uploaded: Cell::new(passage.asked.body == BodyLength::Exact(0)),
            switched: None,
            begun: Cell::new(None),
            is_grpc: Cell::new(false),
        }
    }

    /// Both directions at once, until the answer is over or one of them breaks.
    pub(crate) async fn run<C: Client>(&mut self, client: &mut C, origin: &mut impl Origin) -> Ended {
        let Passage { connection, asked, .. } = *self.passage;
        let Sides { mut body, replies, watch, deadline, origin_deadline } = client.sides(asked);
        let (upload, download) = origin.sides(Means {
            metrics: &connection.service.metrics,
            deadline,
            origin_deadline,
            framing: Framing::of(asked.body, true, true),
            answer_idle_timeout: asked.answer_idle_timeout,
        });
        let all = self.passage.ends.map(|ends| {
            let all = weir_engine::deadline();
            all.set(ends);
            all
        });
        let poll_cut = |context: &mut Context<'_>| {
            if C::poll_ended(connection, context) {
                return Poll::Ready(Ended::Failed(Failure::ClientGone));
            }
            match &all {
                Some(all) => all.poll_expired(context).map(|()| Ended::Failed(Failure::Expired)),
                None => Poll::Pending,
            }
        };
        let mut answer = Answer {
            passage: self.passage,
            endpoint: self.endpoint,
            replies,
            origin: download,
            is_uploaded: &self.is_uploaded,
            begun: &self.begun,
            is_grpc: &self.is_grpc,
            switched: None,
        };
        match self.is_uploaded.get() {
            true => origin_deadline.set(turn::now().saturating_add(self.response_timeout())),
            false => origin_deadline.clear(),
        }
        let ended = {
            let mut download = pin!(answer.run());
            let early = match self.is_uploaded.get() {
                true => None,
                false => self.upload(&mut body, upload, &watch, download.as_mut(), &poll_cut).await,
            };
            match early {
                Some(ended) => ended,
                None => {
                    if self.begun.get().is_none() {
                        self.sent = turn::now();
                        origin_deadline.set(turn::now().saturating_add(self.response_timeout()));
                    }
                    rest(connection, &mut body, download, &poll_cut).await
                }
            }
        };
        self.switched = answer.switched.take();
        match ended {
            Ended::Failed(failure) if self.begun.get().is_some() => {
                // The client is not at fault if the gateway has ended its connection.
                let ending = connection.handle.ending().filter(|_| failure == Failure::ClientGone);
                Ended::BrokenOff(ending.unwrap_or(failure.reason()))
            }
            ended => ended,
        }
    }

    /// Sends the body of the request, and passes on meanwhile what comes back; `None`: the body is sent, or is not taken any more.
    async fn upload(
        &self,
        body: &mut impl RequestBody,
        upload: impl Sink,
        watch: &impl Watch,
        mut download: Pin<&mut impl Future<Output = Ended>>,
        poll_cut: &impl Fn(&mut Context<'_>) -> Poll<Ended>,
    ) -> Option<Ended> {
        let Passage { connection, settings, asked, routed, identity_fields, inspecting, .. } = *self.passage;
        let room = routed.body_bytes_max(settings, asked);
        let kept = self.passage.retries.kept();
        let limits = Limits {
            room,
            dropped: identity_fields,
            copied: self.copying.as_ref().map(|one| &one.body),
            kept,
            inspecting,
        };
        let mut sink = Limited::new(upload, limits);
        // A part of it was read before, or it is over before it began.
        let is_begun = kept.is_some_and(|kept| kept.borrow().is_begun()) || body.is_done();
        let rate = if asked.is_call { 0 } else { routed.body_rate_min(settings) };
        let ended = {
            let mut upload = pin!(async {
                if is_begun {
                    sink.again(body).await?;
                }
                relay_paced(body, &mut sink, rate, || false).await
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
                        Err(broken) => return Poll::Ready(Some(Ended::Failed(connection.unread(broken)))),
                    }
                }
                match download.as_mut().poll(context) {
                    Poll::Ready(ended) => Poll::Ready(Some(ended)),
                    Poll::Pending if is_over => Poll::Ready(None),
                    // Who does not read the upload cannot see how it ends.
                    Poll::Pending => watch.poll_gone(context).map(|()| Some(Ended::Failed(Failure::ClientGone))),
                }
            })
            .await
        };
        asked.note_body(room - sink.room);
        ended
    }

    /// The request has been sent to its end.
    pub(crate) fn is_uploaded(&self) -> bool {
        self.is_uploaded.get()
    }

    fn response_timeout(&self) -> Duration {
        // A call's answer may begin with its first message, and a call says itself how long it may take.
        let usual = if self.passage.asked.is_call {
            self.passage.settings.grpc_idle_timeout
        } else {
            self.passage.settings.response_timeout
        };
        let all = self.passage.routed.action.response_timeout.unwrap_or(usual);
        self.passage.retries.try_timeout().map_or(all, |one| one.min(all))
    }

    /// The origin had the whole request, and has said nothing for so long that this tells something of it.
    fn was_silent(&self) -> bool {
        self.is_uploaded.get() && self.begun.get().is_none() && turn::now().since(self.sent) >= SILENCE_MIN
    }

    /// Tells the upstream how its endpoint did, on a connection that stands since `opened`, and the access log when its answer
    /// began.
    pub(crate) fn note(&self, ended: &Ended, opened: Time) {
        let (number, upstream) = (self.endpoint, self.passage.routed.upstream);
        if let Some(notes) = &self.passage.asked.notes {
            notes.answer_began.set(self.begun.get().map(|begun| begun.at));
        }
        let took = self.begun.get().map(|begun| begun.at.since(self.sent));
        match ended {
            Ended::Answered { status, .. } => {
                let asked = self.passage.asked;
                let class = ResponseClass::of_status(asked.status_of_call(*status));
                endpoint_responses::count(upstream, number, class, took);
                let said = match asked.grpc_status.get() {
                    // The client's deadline, as the origin reports it: the call failed, and the endpoint may be well.
                    Some(grpc::DEADLINE_EXCEEDED) if asked.call_timeout.is_some() => *status,
                    Some(said) => grpc::http_status(said),
                    None => *status,
                };
                endpoint_responses::judge(upstream, number, said, took);
            }
            Ended::Failed(Failure::Status(status)) => {
                endpoint_responses::count(upstream, number, ResponseClass::of_status(*status), took);
                endpoint_responses::judge(upstream, number, *status, took);
            }
            // Whether the endpoint is at fault is not certain: nothing is said of its health.
            Ended::BrokenOff(reason) => {
                endpoint_responses::count(upstream, number, ResponseClass::of_break(*reason), took);
            }
            Ended::Failed(failure @ (Failure::Silent | Failure::Connection | Failure::Origin(..))) => {
                upstream.note(number, failure.outcome(opened), took);
            }
            // The deadline was the gateway's own, and not the client's.
            Ended::Failed(Failure::Expired) if self.passage.asked.call_timeout.is_none() && self.was_silent() => {
                upstream.note(number, Outcome::TimedOut, took);
            }
            // It is no fault of the endpoint, or not certainly one.
            Ended::Failed(
                Failure::Unseen
                | Failure::Expired
                | Failure::Inspected
                | Failure::Unwilling(_)
                | Failure::Client(_)
                | Failure::ClientStalled
                | Failure::ClientGone,
            ) => {}
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
            | Failure::Inspected
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
        let upstream = &self.passage.routed.upstream.settings().name;
        match ended {
            Ended::Answered { status, keeps_client, remains } => {
                lane.answered();
                match remains.filter(|_| self.is_uploaded.get()) {
                    Some(remains) => lane.give_back(remains),
                    None => lane.ends(),
                }
                self.passage.connection.answered(self.passage.asked, status, Some(self.sent), upstream, "ok");
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
                Err(expired(self.passage.asked))
            }
            Ended::Failed(Failure::Unwilling(refusal)) => {
                lane.ends();
                Err(refusal)
            }
            // An inspection gives the response itself.
            Ended::Failed(Failure::Inspected) => {
                lane.ends();
                Err(Refusal::POLICY_FAILED)
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
                self.passage.connection.at_fault(&refusal);
                Err(refusal)
            }
            Ended::Failed(Failure::ClientGone | Failure::ClientStalled) => {
                lane.ends();
                self.passage.connection.abandoned(self.passage.asked, Some(self.sent), upstream);
                Ok(After::Close(CloseReason::ClientReset))
            }
            Ended::BrokenOff(reason) => Ok(self.broke_off(lane, reason)),
        }
    }

    /// Ends a response that breaks off: the client has a part of it.
    fn broke_off(&self, mut lane: HttpLane, reason: CloseReason) -> After {
        let Passage { connection, asked, routed, .. } = *self.passage;
        let is_origins = reason.culprit() == Some(Culprit::Upstream);
        if is_origins {
            lane.failed(LossCause::Closed);
        } else {
            lane.answered();
            lane.ends();
        }
        if asked.is_grpc {
            // As the client learns it: by trailers, by the reset, or by its own.
            asked.grpc_status.set(Some(match reason {
                EXPIRED => grpc::DEADLINE_EXCEEDED,
                _ if is_origins => grpc::INTERNAL,
                _ => grpc::CANCELLED,
            }));
        }
        let status = self.begun.get().map_or(0, |begun| begun.status);
        connection.broke_off(asked, status, Some(self.sent), &routed.upstream.settings().name, reason);
        // Without its last chunk, or short of its length, it does not look complete. A call may say that it is not.
        After::Broken(if self.is_grpc.get() && reason == EXPIRED { grpc::EXPIRED } else { reason })
    }
}

/// Passes on what comes back once the request is sent, or is not taken any more.
async fn rest(
    connection: &Connection,
    body: &mut impl RequestBody,
    mut download: Pin<&mut impl Future<Output = Ended>>,
    poll_cut: &impl Fn(&mut Context<'_>) -> Poll<Ended>,
) -> Ended {
    poll_fn(|context| {
        if let Poll::Ready(ended) = poll_cut(context) {
            return Poll::Ready(ended);
        }
        if body.poll_gone(context).is_ready() {
            return Poll::Ready(Ended::Failed(Failure::ClientGone));
        }
        // An origin that does not read an upload to its end leaves some of it here.
        if let Poll::Ready(broken) = body.poll_arrived(context) {
            return Poll::Ready(Ended::Failed(connection.unread(broken)));
        }
        download.as_mut().poll(context)
    })
    .await
}

/// How long all of an exchange may take.
pub(crate) fn call_timeout(asked: &Asked, action: &Action, settings: &HttpListenerSettings) -> Option<Duration> {
    let may_be_long = asked.is_call || asked.wish != Wish::None;
    let usual = settings.request_timeout.filter(|_| !may_be_long);
    // The route's timeout holds for every request of the route. A WebSocket stops being a request once it is accepted.
    let own = action.request_timeout.filter(|_| asked.wish == Wish::None).or(usual);
    [own, asked.call_timeout].into_iter().flatten().min()
}

/// The answer to a request that took longer than it may, named after the key that set the deadline; that of a call is its client's.
pub(crate) const fn expired(asked: &Asked) -> Refusal {
    match asked.call_timeout {
        None => Refusal::REQUEST_TIMEOUT,
        Some(_) => Refusal::RESPONSE_TIMEOUT,
    }
}
